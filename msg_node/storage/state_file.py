"""The file of the state: rows by table and key in one SQLite file, changed by transactions. Blocking.

With keys the file is sealed (`sealing`): a file in plain text when it is opened with keys for the first time, and one
under an older key when a newer one is put in front of it. Both write the whole file anew, in one transaction.

Source: design, section 6.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from msg_node.kernel.changes import LOGGED, NewRow, Table
from msg_node.storage.file_checks import FileError
from msg_node.storage.sealing import Sealer, StateKeys, UnsealedError
from msg_node.storage.state_log import StateLog
from protofly.errors import Code, HostError

SCHEMA_VERSION = 2
SEALED_VERSION = 3
"""Of a file that is sealed, which older programs refuse."""
BLOCK_ROWS = (256, 64, 16, 4, 1)
"""Rows of one statement. SQLite runs a statement without Python's lock: with one per row, the writer has to wait for a
busy bus after every row; with very many, the bus waits for the writer, which has the lock while it makes their text."""
_PUT = "INSERT INTO {} (key, row) VALUES {} ON CONFLICT (key) DO UPDATE SET row = excluded.row"
_DELETE = "DELETE FROM {} WHERE key IN ({})"
_LENGTH_BYTES = 4
_PROOF, _PROOF_PLACE = b"trapezoid state", "sealed"
NO_TEXT = (ValueError, TypeError, RecursionError, msgspec.EncodeError)
"""Raised by rows that have no JSON text."""

_T = TypeVar("_T")
Rows = Mapping[Table, dict[str, NewRow | None]]


class StateFile:
    """An open state file. One process has it open at a time; one thread uses it at a time."""

    def __init__(self, path: Path, keys: StateKeys | None = None) -> None:
        """Open or create the file `path`; its folder must exist.

        Args:
            path: The file.
            keys: Seal it with the first of them; None for plain text.

        Raises:
            HostError: STORAGE, the file cannot be opened, belongs to a running node or is not a state file.
            FileError: `state-sealed` without keys, `state-key-foreign` with others than its own.
        """
        self._path = path
        self._sealer: Sealer | None = None
        self._connection, self._logs = _open(path)
        try:
            self._settle(keys)
        except BaseException:
            self._connection.close()
            raise

    def load(self) -> dict[Table, dict[str, bytes]]:
        """Read all rows.

        Raises:
            HostError: STORAGE.
        """
        try:
            return {table: self._load(table) for table in Table}
        except sqlite3.Error as exc:
            raise _storage_error(self._path, exc) from exc

    def _load(self, table: Table) -> dict[str, bytes]:
        if table in self._logs:
            return self._logs[table].load()
        found = self._connection.execute(f"SELECT key, row FROM {table.value} ORDER BY rowid")  # noqa: S608 - a name of ours
        if self._sealer is None:
            return dict(found)
        return dict(self._opened(table, place, sealed) for place, sealed in found)

    def _opened(self, table: Table, place: str, sealed: bytes) -> tuple[str, bytes]:
        assert self._sealer is not None
        try:
            text = self._sealer.open(sealed, place)
        except UnsealedError as exc:
            raise HostError(Code.STORAGE, f"state row {table.value}/{place[:16]}: {exc}") from exc
        end = _LENGTH_BYTES + int.from_bytes(text[:_LENGTH_BYTES], "big")
        key = text[_LENGTH_BYTES:end].decode()
        if self._sealer.place(table.value, key) != place:
            raise HostError(Code.STORAGE, f"state row {table.value}/{place[:16]}: it belongs elsewhere")
        return key, text[end:]

    def commit(self, rows: Rows) -> None:
        """Write rows in one transaction; None removes a row.

        Raises:
            HostError: STORAGE. The file is as it was before. Rows that have no JSON text have been removed from `rows`,
                so that the next attempt can succeed.
        """
        before = [(log, log.counts) for log in self._logs.values()]
        try:
            with self._connection:
                for table, of_table in rows.items():
                    self._write(table, of_table)
        except (sqlite3.Error, HostError, *NO_TEXT) as exc:
            for log, counts in before:
                log.rolled_back(counts)
            if isinstance(exc, sqlite3.Error):
                raise _storage_error(self._path, exc) from exc
            if not isinstance(exc, HostError):
                refuse_unwritable(rows, exc)
            raise

    def _write(self, table: Table, rows: dict[str, NewRow | None]) -> None:
        if table in self._logs:
            self._logs[table].append(rows)
            return
        sealer = self._sealer
        for keys in _blocks([key for key, row in rows.items() if row is None]):
            places = keys if sealer is None else [sealer.place(table.value, key) for key in keys]
            self._connection.execute(_DELETE.format(table.value, ", ".join("?" * len(keys))), places)
        for keys in _blocks([key for key, row in rows.items() if row is not None]):
            if sealer is None:
                values = [value for key in keys for value in (key, msgspec.json.encode(rows[key]))]
            else:
                values = [
                    value for key in keys for value in _sealed(sealer, table, key, msgspec.json.encode(rows[key]))
                ]
            self._connection.execute(_PUT.format(table.value, ", ".join(["(?, ?)"] * len(keys))), values)

    def scrub(self) -> None:
        """Leave nothing in the file that was removed from the tables: it is written anew.

        Raises:
            HostError: STORAGE. The tables are as they were.
        """
        before = [(log, log.counts) for log in self._logs.values()]
        try:
            with self._connection:
                for log in self._logs.values():
                    log.write_anew()
            before = []
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (sqlite3.Error, HostError) as exc:
            for log, counts in before:
                log.rolled_back(counts)
            raise exc if isinstance(exc, HostError) else _storage_error(self._path, exc) from exc

    def unseal(self) -> None:
        """Write the file in plain text again.

        Raises:
            HostError: STORAGE. The file is as it was.
        """
        if self._sealer is not None:
            self._rewrite(None)

    def _settle(self, keys: StateKeys | None) -> None:
        """Seal the file with the first key, unless it is; or find that it is none of theirs."""
        try:
            found = self._connection.execute("SELECT id, proof, is_scrubbed FROM sealed").fetchone()
            if found is None:
                if keys is not None:
                    self._rewrite(Sealer(keys))
                return
            self._sealer = _sealer_of(self._path, found[0], found[1], keys)
            self._use(self._sealer)
            assert keys is not None
            if found[0] != keys.ids[0]:
                self._rewrite(Sealer(keys))
            elif not found[2]:
                self._scrub_sealed()
        except sqlite3.Error as exc:
            raise _storage_error(self._path, exc) from exc

    def _rewrite(self, sealer: Sealer | None) -> None:
        """Write everything anew under another key, or in plain text; and leave nothing behind."""
        rows = self.load()
        before = self._sealer
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._use(sealer)
                for table, of_table in rows.items():
                    self._replace(table, {key: msgspec.Raw(row) for key, row in of_table.items()})
                self._connection.execute("DELETE FROM sealed")
                if sealer is not None:
                    proof = sealer.seal(_PROOF, _PROOF_PLACE)
                    self._connection.execute("INSERT INTO sealed VALUES (?, ?, 0)", (sealer.id, proof))
                version = SCHEMA_VERSION if sealer is None else SEALED_VERSION
                self._connection.execute(f"PRAGMA user_version = {version}")
        except sqlite3.Error as exc:
            self._use(before)
            raise _storage_error(self._path, exc) from exc
        self._scrub_sealed()

    def _replace(self, table: Table, rows: dict[str, msgspec.Raw]) -> None:
        if table in self._logs:
            self._logs[table].replace(rows)
            return
        self._connection.execute(f"DELETE FROM {table.value}")  # noqa: S608 - a name of ours
        self._write(table, dict(rows))

    def _use(self, sealer: Sealer | None) -> None:
        self._sealer = sealer
        for log in self._logs.values():
            log.sealer = sealer

    def _scrub_sealed(self) -> None:
        """Leave nothing in the file of how it was before; again at the next start, if the process dies meanwhile."""
        self.scrub()
        with self._connection:
            self._connection.execute("UPDATE sealed SET is_scrubbed = 1")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _sealed(sealer: Sealer, table: Table, key: str, row: bytes) -> tuple[str, bytes]:
    """Place and text of a row that is sealed: its key, and what it holds."""
    place, name = sealer.place(table.value, key), key.encode()
    return place, sealer.seal(len(name).to_bytes(_LENGTH_BYTES, "big") + name + row, place)


def _sealer_of(path: Path, id_: str, proof: bytes, keys: StateKeys | None) -> Sealer:
    """What opens a file that was sealed with the key of that name. Raises FileError, or HostError: STORAGE."""
    if keys is None:
        action = "name the file with its keys in `storage.key_file`"
        raise FileError("state-sealed", path, f"is sealed with the key {id_}", action)
    by_id = dict(zip(keys.ids, keys.secrets, strict=True))
    if id_ not in by_id:
        what = f"has no key {id_}, with which {path} is sealed"
        raise FileError("state-key-foreign", keys.file, what, "put that key into it, behind the newer ones")
    sealer = Sealer(StateKeys(keys.file, (by_id[id_], *(one for name, one in by_id.items() if name != id_))))
    try:
        sealer.open(proof, _PROOF_PLACE)
    except UnsealedError as exc:
        raise HostError(Code.STORAGE, f"{path}: {exc}") from exc
    return sealer


def refuse_unwritable(rows: Rows, exc: Exception) -> None:
    """Remove the rows that have no JSON text, so that the next attempt to write the others can succeed.

    Raises:
        HostError: STORAGE, with their names, if there are any.
    """
    names = []
    for table, of_table in rows.items():
        for key in [key for key, row in of_table.items() if not _has_text(key, row)]:
            del of_table[key]
            names.append(f"{table.value}/{key!a:.80}")
    if names:
        raise HostError(Code.STORAGE, f"rows that no text can say: {', '.join(names)}") from exc


def _has_text(key: str, row: NewRow | None) -> bool:
    try:
        msgspec.json.encode({key: row})
    except NO_TEXT:
        return False
    return True


def _blocks(rows: list[_T]) -> Iterator[list[_T]]:
    """Cut rows into blocks of few different sizes, so that the statements for them are prepared once."""
    first = 0
    for size in BLOCK_ROWS:
        while len(rows) - first >= size:
            yield rows[first : first + size]
            first += size


def _open(path: Path) -> tuple[sqlite3.Connection, dict[Table, StateLog]]:
    """Open or create the file, exclusively, with a commit that has reached the disk when it returns."""
    try:
        path.touch(mode=0o600)
        connection = sqlite3.connect(path, timeout=0.0, check_same_thread=False)
    except (OSError, sqlite3.Error) as exc:
        raise _storage_error(path, exc) from exc
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with connection:
            logs = _create_tables(connection, path)
    except sqlite3.Error as exc:
        connection.close()
        raise _storage_error(path, exc) from exc
    except HostError:
        connection.close()
        raise
    return connection, logs


def _create_tables(connection: sqlite3.Connection, path: Path) -> dict[Table, StateLog]:
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SEALED_VERSION:
        raise HostError(Code.STORAGE, f"{path} was written by a newer version of this program")
    for table in Table:
        if table not in LOGGED:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {table.value} (key TEXT NOT NULL UNIQUE, row BLOB NOT NULL)"
            )
    logs = {table: StateLog(connection, table) for table in LOGGED}
    for log in logs.values():
        log.create()
    connection.execute("CREATE TABLE IF NOT EXISTS sealed (id TEXT NOT NULL, proof BLOB NOT NULL, is_scrubbed INTEGER)")
    connection.execute(f"PRAGMA user_version = {max(version, SCHEMA_VERSION)}")
    return logs


def _storage_error(path: Path, exc: sqlite3.Error | OSError) -> HostError:
    if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return HostError(Code.STORAGE, f"{path} is in use by a running node")
    return HostError(Code.STORAGE, f"{path}: {exc}")
