"""The file of the state: rows by table and key in one SQLite file, changed by transactions. Blocking.

Source: design, section 6.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from msg_node.kernel.changes import LOGGED, NewRow, Table
from msg_node.storage.state_log import StateLog
from protofly.errors import Code, HostError

SCHEMA_VERSION = 2
BLOCK_ROWS = (256, 64, 16, 4, 1)
"""Rows of one statement. SQLite runs a statement without Python's lock: with one per row, the writer has to wait for a
busy bus after every row; with very many, the bus waits for the writer, which has the lock while it makes their text."""
_PUT = "INSERT INTO {} (key, row) VALUES {} ON CONFLICT (key) DO UPDATE SET row = excluded.row"
_DELETE = "DELETE FROM {} WHERE key IN ({})"
NO_TEXT = (ValueError, TypeError, RecursionError, msgspec.EncodeError)
"""Raised by rows that have no JSON text."""

_T = TypeVar("_T")
Rows = Mapping[Table, dict[str, NewRow | None]]


class StateFile:
    """An open state file. One process has it open at a time; one thread uses it at a time."""

    def __init__(self, path: Path) -> None:
        """Open or create the file `path`; its folder must exist.

        Raises:
            HostError: STORAGE, the file cannot be opened, belongs to a running node or is not a state file.
        """
        self._path = path
        self._connection, self._logs = _open(path)

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
        return dict(self._connection.execute(f"SELECT key, row FROM {table.value} ORDER BY rowid"))  # noqa: S608 - a name of ours

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
        for keys in _blocks([key for key, row in rows.items() if row is None]):
            self._connection.execute(_DELETE.format(table.value, ", ".join("?" * len(keys))), keys)
        for keys in _blocks([key for key, row in rows.items() if row is not None]):
            values = [value for key in keys for value in (key, msgspec.json.encode(rows[key]))]
            self._connection.execute(_PUT.format(table.value, ", ".join(["(?, ?)"] * len(keys))), values)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


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
    if version > SCHEMA_VERSION:
        raise HostError(Code.STORAGE, f"{path} was written by a newer version of this program")
    for table in Table:
        if table not in LOGGED:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {table.value} (key TEXT NOT NULL UNIQUE, row BLOB NOT NULL)"
            )
    logs = {table: StateLog(connection, table) for table in LOGGED}
    for log in logs.values():
        log.create()
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return logs


def _storage_error(path: Path, exc: sqlite3.Error | OSError) -> HostError:
    if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return HostError(Code.STORAGE, f"{path} is in use by a running node")
    return HostError(Code.STORAGE, f"{path}: {exc}")
