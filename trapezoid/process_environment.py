"""What differs between the processes of one node on one machine: names, folders, sockets; as variables of settings.

The first process has the name and the data folder of the settings, so a node that gets more processes keeps what it
has. The others have `NAME-p2`, `NAME-p3`, … and folders below the first one's. See docs/adr/0041.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Final

from msgspec.structs import replace

from msg_node.cluster.node_line import Address
from msg_node.settings.model import Settings
from msg_node.storage.policy_store import FOLDER as POLICIES
from protofly.errors import SettingsError
from stubs_cache.store import load_secret, write_whole

PROCESSES: Final = "processes"
"""The folder below `node.data_dir` that has those of all processes but the first."""
MOST_PROCESSES: Final = 64
_KEY_BYTES: Final = 32
_SOCKET_FOLDER_BYTES: Final = 90
_COPIED: Final = (POLICIES, "pinned_stubs")
"""Folders with decisions of operators, which count at all processes."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that all processes share, 0 for a listener that the settings do not have."""

    listen: int
    site: int


def count_of(asked: int) -> int:
    """Resolve the setting for the number of processes: 0 means one for each core that this program may use.

    At most `MOST_PROCESSES`.
    """
    return min(asked or len(os.sched_getaffinity(0)), MOST_PROCESSES)


def folder_of(data_dir: Path, number: int) -> Path:
    """The data folder of a process."""
    return data_dir if number == 1 else data_dir / PROCESSES / str(number)


def name_of(node: str, number: int) -> str:
    """The name of a process of a node with this name."""
    return node if number == 1 else f"{node}-p{number}"


def own_names(settings: Settings) -> set[str]:
    """The names of all processes that this node has or had."""
    return {name_of(settings.node.name, number) for number in process_folders(settings.node.data_dir)}


def process_folders(data_dir: Path) -> dict[int, Path]:
    """The data folders of all processes that this node has or had, by their numbers; the first is always there."""
    others = (path for path in (data_dir / PROCESSES).glob("*") if path.name.isdecimal())
    return {1: data_dir} | {int(path.name): path for path in sorted(others, key=lambda path: int(path.name))}


def settings_of_processes(settings: Settings) -> list[Settings]:
    """The settings as the commands see them of each process that this node has or had, the first one's first."""
    folders = process_folders(settings.node.data_dir).values()
    return [replace(settings, node=replace(settings.node, data_dir=folder)) for folder in folders]


def environment_of(settings: Settings, number: int, count: int, ports: Ports, bus_folder: Path) -> dict[str, str]:
    """The settings of one process that differ from those of the files.

    Args:
        settings: As the files say.
        number: From 1.
        count: Of the processes.
        ports: Which the parent has reserved.
        bus_folder: For sockets between processes, if `cluster.listen` says nothing.
    """
    data_dir, cluster = settings.node.data_dir, settings.cluster
    given = {
        "NODE__PROCESSES": str(count),
        "NODE__DATA_DIR": str(folder_of(data_dir, number)),
        "LISTEN__PORT": str(ports.listen),
    }
    if settings.site is not None:
        given["SITE__PORT"] = str(ports.site)
    if not cluster.listen:
        given["CLUSTER__LISTEN"] = f"unix:{bus_folder / f'{number}.sock'}"
        given["CLUSTER__KEY_FILE"] = str(data_dir / PROCESSES / "cluster.key")
    if number > 1:
        given["NODE__NAME"] = name_of(settings.node.name, number)
        if settings.records.spool_dir is not None:
            spool = settings.records.spool_dir
            given["RECORDS__SPOOL_DIR"] = str(spool.with_name(f"{spool.name}.{number}"))
        for name in ("listen", "advertise"):
            if text := getattr(cluster, name):
                given[f"CLUSTER__{name.upper()}"] = _next(text, number - 1)
    return {f"TRAPEZOID__{name}": value for name, value in given.items()}


@contextmanager
def bus_folder(folder: Path) -> Iterator[Path]:
    """A folder for sockets between processes: `folder`, or one with a shorter path, as far as sockets need that."""
    if len(os.fsencode(folder)) <= _SOCKET_FOLDER_BYTES:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="trapezoid-") as shorter:
        yield Path(shorter)


def prepare_folders(settings: Settings, count: int) -> None:
    """Make the folders of all processes, with what they have in common.

    Raises:
        SettingsError: One cannot be made.
    """
    data_dir = settings.node.data_dir
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / PROCESSES).mkdir(mode=0o700, exist_ok=True)
        secret = load_secret(data_dir / "secret")
        _keep(data_dir / PROCESSES / "cluster.key", token_bytes(_KEY_BYTES))
        for number in range(2, count + 1):
            folder = folder_of(data_dir, number)
            folder.mkdir(mode=0o700, exist_ok=True)
            _keep(folder / "secret", secret)
            for name in _COPIED:
                _mirror(data_dir / name, folder / name)
    except OSError as exc:
        raise SettingsError(f"{exc.filename or data_dir}: {exc.strerror}") from exc


def _mirror(source: Path, target: Path) -> None:
    """Have a folder as another one is, or none."""
    shutil.rmtree(target, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, target)


def _keep(path: Path, content: bytes) -> None:
    """Write a private file that is not there yet."""
    if not path.exists():
        write_whole(path, content)


def _next(text: str, further: int) -> str:
    """The address of the bus of a further process: the next port, or a path of its own."""
    address = Address.parse(text)
    if address.path:
        return str(Address(path=f"{address.path}.{further + 1}"))
    return str(Address(address.host, address.port + further))
