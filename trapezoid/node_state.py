"""The state of a stopped node: what it holds, a clean start, and a copy in one file.

A clean start takes away what came with traffic, and nothing that keeps somebody out or proves somebody: restrictions,
expulsions, revoked tokens, trust in other domains and the keys under which all that is sealed stay.
"""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from msg_node.bus.core.erasure import (
    end_requests_for,
    erase,
    erase_registrations,
    find_person,
    find_traces,
    is_named_in,
    names_of,
)
from msg_node.kernel.changes import NewRow, Table
from msg_node.records.quarantined import about, remove_kept
from msg_node.running import running_alone
from msg_node.settings.model import Settings
from msg_node.settings.storage import state_keys
from msg_node.storage.state_file import StateFile
from msg_node.wiring.accounts import forget_guid
from msg_node.wiring.foundation import restored_state
from protofly.errors import SettingsError
from stubs_cache.store import load_secret

STATE: Final = "state.sqlite"
_DATABASES: Final = (STATE, "tokens.sqlite", "guids.sqlite", "trust.sqlite", "users.sqlite", "clients.sqlite")
_FILES: Final = ("secret", "live-serial")
_FOLDERS: Final = ("pinned_stubs", "policies")
KEPT: Final = frozenset({Table.RESTRICTIONS, Table.BLOCK_LISTS, Table.EXPULSIONS})
"""Tables that a clean start leaves: whom operators, block lists and owners of objects keep out."""
_LABEL: Final = "trapezoid-state.json"
_FORMAT: Final = 1
_MOST_BYTES: Final = 64 << 30


class StateLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The label of a copy: of which node it is, and in which form."""

    format: int
    domain: str
    node: str


@contextlib.contextmanager
def stopped(settings: Settings) -> Iterator[Path]:
    """Be alone on the data folder of a node whose state is in files; gives the folder.

    Raises:
        SettingsError: A node runs on it, or its state is in an engine.
    """
    if settings.storage.engine:
        raise SettingsError("the state of this node is in `storage.engine`: use the tools of that engine")
    with running_alone(settings.node.data_dir, ()):
        yield settings.node.data_dir


def rows_by_table(settings: Settings, data_dir: Path) -> dict[str, int]:
    """Count the rows of each table.

    Raises:
        HostError: STORAGE.
    """
    state = StateFile(data_dir / STATE, state_keys(settings))
    try:
        return {table.value: len(rows) for table, rows in state.load().items()}
    finally:
        state.close()


def reset(settings: Settings, data_dir: Path) -> dict[str, int]:
    """Take away all rows but those of `KEPT`, in one transaction; returns how many by table.

    Raises:
        HostError: STORAGE; nothing was changed.
    """
    state = StateFile(data_dir / STATE, state_keys(settings))
    try:
        found = {table: rows for table, rows in state.load().items() if table not in KEPT and rows}
        state.commit({table: dict.fromkeys(rows) for table, rows in found.items()})
        return {table.value: len(rows) for table, rows in found.items()}
    finally:
        state.close()


def erase_person(settings: Settings, data_dir: Path, name: str, *, keeps_bans: bool, is_tried: bool) -> dict[str, int]:
    """Take out all that is held of one person, unless it is only tried; returns how many rows by table.

    Raises:
        PeerError: BAD_BODY, the text names nobody.
        SettingsError: The settings cannot be used.
        HostError: STORAGE.
    """
    now = time.time()
    file = StateFile(data_dir / STATE, state_keys(settings))
    try:
        state = restored_state(settings, file.load(), load_secret(data_dir / "secret"), now=now)
        person = find_person(state, name)
        traces = find_traces(state, person, keeps_bans=keeps_bans)
        kept = about(data_dir, names_of(person))
        proposals = state.proposals.of_person(partial(is_named_in, person), person.credentials)
        counts = {**traces.counts(), "quarantined_messages": len(kept), "proposals": len(proposals)}
        found = {table: count for table, count in counts.items() if count}
        if is_tried:
            return found
        end_requests_for(state, traces, now=now)
        for sid in person.sids:
            state.lifecycle.close(sid, now=now)
        erase_registrations(state, traces)
        erase(state, traces, now=now)
        for proposal in proposals:
            state.proposals.remove(proposal)
        rows: dict[Table, dict[str, NewRow | None]] = {table: {} for table in Table}
        for change in state.take_changes():
            rows[change.table][change.key] = change.row
        file.commit(rows)
        file.scrub()
    finally:
        file.close()
    remove_kept(kept)
    if person.guid:
        forget_guid(data_dir, None, person.guid)
    return found


def unseal(settings: Settings, data_dir: Path) -> None:
    """Write the state file in plain text again.

    Raises:
        SettingsError: The keys of the settings are not its own.
        HostError: STORAGE; the file is as it was.
    """
    file = StateFile(data_dir / STATE, state_keys(settings))
    try:
        file.unseal()
    finally:
        file.close()


def export(settings: Settings, data_dir: Path, file: Path) -> list[str]:
    """Copy the state into one new file that only its owner reads; returns the names of what is in it.

    Raises:
        SettingsError: The file is there already, or cannot be written.
    """
    label = StateLabel(format=_FORMAT, domain=settings.node.domain, node=settings.node.name)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise SettingsError(f"{file}: {exc.strerror}") from exc
    try:
        with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            _add(archive, _LABEL, msgspec.json.encode(label))
            names = list(_add_all(archive, data_dir))
            raw.flush()
        return names
    except (OSError, sqlite3.Error) as exc:
        file.unlink(missing_ok=True)
        raise SettingsError(f"{file}: {exc}") from exc


def _add_all(archive: tarfile.TarFile, data_dir: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=data_dir) as folder:
        for name in _DATABASES:
            if (data_dir / name).is_file():
                copy = Path(folder) / name
                _copy_database(data_dir / name, copy)
                _add(archive, name, copy.read_bytes())
                yield name
    files = [data_dir / name for name in _FILES]
    files += [path for name in _FOLDERS for path in sorted((data_dir / name).rglob("*"))]
    for path in files:
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(data_dir).as_posix()
            _add(archive, name, path.read_bytes())
            yield name


def _copy_database(path: Path, copy: Path) -> None:
    """Copy a database with what is still in its log."""
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    facts = tarfile.TarInfo(name)
    facts.size, facts.mode = len(content), 0o600
    archive.addfile(facts, io.BytesIO(content))


def restore(settings: Settings, data_dir: Path, file: Path) -> list[str]:
    """Put the files of a copy into a data folder that has no state yet; returns their names.

    Raises:
        SettingsError: The folder has a state, the copy is of another domain or no copy, or a file cannot be written.
    """
    present = [name for name in (*_DATABASES, *_FILES, *_FOLDERS) if (data_dir / name).exists()]
    if present:
        raise SettingsError(f"{data_dir} has a state already ({', '.join(present)}): choose an empty `node.data_dir`")
    try:
        with tarfile.open(file, "r:gz") as archive:
            label = _read_label(archive, file)
            if label.domain != settings.node.domain:
                raise SettingsError(
                    f"{file} has the state of {label.domain}: name the settings of a node of that domain"
                )
            found = {one.name: _content(archive, one, file) for one in archive}
    except (OSError, EOFError, tarfile.TarError) as exc:
        raise SettingsError(f"{file}: {exc}") from exc
    del found[_LABEL]
    try:
        for name, content in found.items():
            path = data_dir / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(content)
    except OSError as exc:
        raise SettingsError(f"{exc.filename}: {exc.strerror}") from exc
    return sorted(found)


def _read_label(archive: tarfile.TarFile, file: Path) -> StateLabel:
    wrong = SettingsError(f"{file} is no copy made by `trapezoid state export`, or of a newer version")
    first = archive.next()
    if first is None or first.name != _LABEL:
        raise wrong
    try:
        label = msgspec.json.decode(_content(archive, first, file), type=StateLabel)
    except msgspec.MsgspecError as exc:
        raise wrong from exc
    if label.format != _FORMAT:
        raise wrong
    return label


def _content(archive: tarfile.TarFile, facts: tarfile.TarInfo, file: Path) -> bytes:
    """The content of a member; nothing but plain files of known names is taken."""
    parts = facts.name.split("/")
    is_known = facts.name in {_LABEL, *_DATABASES, *_FILES} or (len(parts) > 1 and parts[0] in _FOLDERS)
    if not facts.isreg() or not is_known or {"", ".", ".."} & set(parts) or facts.size > _MOST_BYTES:
        raise SettingsError(f"{file} has a member that no state has: {facts.name[:128]!r}")
    source = archive.extractfile(facts)
    assert source is not None
    return source.read()
