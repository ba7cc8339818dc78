"""Which process runs a node on a data folder: a lock that ends with the process, and what it says about itself.

`check` beside a running node can so distinguish its own ports and documents from those of others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from protofly.errors import SettingsError

LOCK_NAME = "running.json"
_FLOCK = "hhqqi0q"
"""`struct flock` of Linux on 64 bits: asking who holds the lock must not take it, not even for a moment."""


class RunningNode(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a running node writes into its lock file. `ports` are those of its settings."""

    pid: int
    ports: tuple[int, ...] = ()


@contextlib.contextmanager
def running_alone(data_dir: Path, ports: tuple[int, ...]) -> Iterator[None]:
    """Be the one node on this folder.

    The lock is of the process and not of the open file, so that children that outlive a killed node do not hold it.

    Raises:
        SettingsError: Another node runs on it, or the file cannot be written.
    """
    path = data_dir / LOCK_NAME
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise SettingsError(f"{exc.filename or path}: {exc.strerror}") from exc
    try:
        _lock(descriptor, path, RunningNode(pid=os.getpid(), ports=ports))
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, node: RunningNode) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, msgspec.json.encode(node))
    except (BlockingIOError, PermissionError) as exc:
        raise SettingsError(f"{path.parent} is in use by a running node; stop it first") from exc
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc


def running_node(data_dir: Path) -> RunningNode | None:
    """The node that runs on this folder, None when there is none. Not for the process that is that node."""
    path = data_dir / LOCK_NAME
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            if struct.unpack(_FLOCK, answer)[0] == fcntl.F_UNLCK:
                return None
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.json.decode(file.read(), type=RunningNode)
            return RunningNode(pid=0)
    except OSError:
        return None
