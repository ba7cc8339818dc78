"""Tables of the state file whose rows come and go in great numbers, kept as a log.

A row of the file is not a row of the table but what one commit changed: JSON text `{key: row, …}`, where `null` says
that a row is gone. To write a thousand changes then costs one insertion at the end instead of a thousand at random
places of an index, which was two thirds of what it cost to make addresses durable.

The log is read from its beginning, once, at the start. When most of it speaks of rows that are gone it is written
anew, in the transaction of a commit: each change is rewritten once in its life, on average. See docs/adr/0014.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from itertools import islice

import msgspec

from msg_node.kernel.changes import NewRow, Table
from msg_node.storage.sealing import Sealer, UnsealedError
from protofly.errors import Code, HostError

DEAD_ROWS = 65_536
"""So many changes without a meaning are kept at least before a log is written anew,"""
DEAD_SHARE = 4
"""and so many for each row that is there."""
_ROWS_AT_A_TIME = 1_000
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_GONE = b"null"


class StateLog:
    """One logged table of an open state file; everything runs in the caller's transaction.

    Args:
        connection: The state file.
        table: One of `changes.LOGGED`.

    Attributes:
        sealer: Seals what is written, and opens what is read; None for a file in plain text.
    """

    def __init__(self, connection: sqlite3.Connection, table: Table) -> None:
        self.sealer: Sealer | None = None
        self._connection = connection
        self._table = table
        self._name = f"{table.value}_log"
        self._counts = (0, 0)

    @property
    def counts(self) -> tuple[int, int]:
        """Changes in the log, and rows that they leave: at most, since a row that is put again counts again."""
        return self._counts

    def rolled_back(self, counts: tuple[int, int]) -> None:
        """The transaction came to nothing: what the log holds is what it held at `counts`."""
        self._counts = counts

    def create(self) -> None:
        """Make the table; what a file of version 1 holds, a row per row, moves in."""
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {self._name} (number INTEGER PRIMARY KEY, changes BLOB)")
        old = self._table.value
        if self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (old,)).fetchone():
            rows = self._connection.execute(f"SELECT key, row FROM {old} ORDER BY rowid")  # noqa: S608 - a name of ours
            self._append_all({key: msgspec.Raw(row) for key, row in rows})
            self._connection.execute(f"DROP TABLE {old}")

    def load(self) -> dict[str, bytes]:
        """All rows, in the order in which they came.

        Raises:
            HostError: STORAGE, when the log is not what this node writes.
            sqlite3.Error: The file cannot be read.
        """
        return {key: bytes(row) for key, row in self._read().items()}

    def _read(self) -> dict[str, msgspec.Raw]:
        rows: dict[str, msgspec.Raw] = {}
        count = 0
        for (text,) in self._connection.execute(f"SELECT changes FROM {self._name} ORDER BY number"):  # noqa: S608 - a name of ours
            try:
                changes = _decode(text if self.sealer is None else self.sealer.open(text, self._name))
            except UnsealedError as exc:
                raise HostError(Code.STORAGE, f"state log {self._table.value}: {exc}") from exc
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as exc:
                raise HostError(Code.STORAGE, f"state log {self._table.value} cannot be read") from exc
            count += len(changes)
            for key, row in changes.items():
                if bytes(row) == _GONE:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        self._counts = count, len(rows)
        return rows

    def append(self, rows: Mapping[str, NewRow | None]) -> None:
        """Write down changes, None for a row that is gone; once in a while, write the whole log anew.

        Raises:
            HostError: STORAGE, when the log cannot be read while it is written anew.
            sqlite3.Error: The file cannot be written.
        """
        if not rows:
            return
        self._append(rows)
        changes, left = self._counts
        if changes - left > DEAD_ROWS + DEAD_SHARE * max(0, left):
            self.write_anew()

    def write_anew(self) -> None:
        """Drop all changes that have no meaning any more.

        Raises:
            HostError: STORAGE, when the log cannot be read.
            sqlite3.Error: The file cannot be written.
        """
        self.replace(self._read())

    def replace(self, rows: Mapping[str, msgspec.Raw]) -> None:
        """Write these rows in place of all that is there. Raises sqlite3.Error: the file cannot be written."""
        self._connection.execute(f"DELETE FROM {self._name}")  # noqa: S608 - a name of ours
        self._counts = 0, 0
        self._append_all(rows)

    def _append_all(self, rows: Mapping[str, msgspec.Raw]) -> None:
        items = iter(rows.items())
        while some := dict(islice(items, _ROWS_AT_A_TIME)):
            self._append(some)

    def _append(self, rows: Mapping[str, NewRow | None]) -> None:
        text = _encode(rows)
        if self.sealer is not None:
            text = self.sealer.seal(text, self._name)
        self._connection.execute(f"INSERT INTO {self._name} (changes) VALUES (?)", (text,))  # noqa: S608 - a name of ours
        changes, left = self._counts
        gone = sum([row is None for row in rows.values()])
        self._counts = changes + len(rows), left + len(rows) - 2 * gone
