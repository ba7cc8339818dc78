"""Records of GUIDs on disk, and how far each GUID has come: what the global registry connector remembers.

One SQLite file. A record and its mark are on disk before `accept` returns, so that a restart never takes a registry's
word for something older; the record itself is kept as it was signed, to be checked again whenever it is used. Beyond
`GUIDS_REMEMBERED` the GUID that was seen longest ago is forgotten; one that was revoked goes last.

Source: data formats, section 4.3, checks 5, 7 and 8.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from msg_node.storage.private_database import PrivateDatabase
from protofly.guid_record import GuidRecord, Mark, advance
from protofly.limits import GUIDS_REMEMBERED

_SCHEMA = """
CREATE TABLE IF NOT EXISTS guid (
    guid TEXT PRIMARY KEY, jwt TEXT NOT NULL, last_update_us INTEGER NOT NULL, digest TEXT NOT NULL,
    revoked INTEGER NOT NULL, seen_at REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS guid_by_age ON guid (revoked, seen_at);
"""
_OLDEST = "DELETE FROM guid WHERE guid IN (SELECT guid FROM guid ORDER BY revoked, seen_at LIMIT ?)"


class Kept(NamedTuple):
    """The stored state of a GUID: its record as it was signed ("" after a deletion), its mark, when it was seen."""

    jwt: str
    mark: Mark
    seen_at: float


class Guids(Protocol):
    """Durable records by GUID. Plain calls that wait for what stores them: for threads; each raises HostError."""

    def load(self, guid: str) -> Kept | None:
        """Return the stored state of a GUID, None if there is none."""

    def accept(self, record: GuidRecord, jwt: str, *, now: float) -> None:
        """Hold a record against what was seen before, and remember it; see `GuidStore`."""

    def forget(self, guid: str) -> bool:
        """Drop the record of a GUID, but not how far it had come; whether there was one."""


class GuidStore:
    """Durable records by GUID. Plain calls that wait for the disk: for threads, and for programs without a loop."""

    def __init__(self, path: Path, *, max_guids: int = GUIDS_REMEMBERED) -> None:
        """Open or create the file, readable by its owner only.

        Raises:
            HostError: STORAGE.
        """
        self._max_guids = max_guids
        self._file = PrivateDatabase(path, _SCHEMA)
        with contextlib.ExitStack() as undo:
            undo.callback(self._file.close)
            with self._file.used() as database:
                self._count = int(database.execute("SELECT count(*) FROM guid").fetchone()[0])
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __len__(self) -> int:
        return self._count

    def load(self, guid: str) -> Kept | None:
        """Return the stored state of a GUID, None if there is none.

        Raises:
            HostError: STORAGE.
        """
        with self._file.used() as database:
            return _load(database, guid)

    def all(self) -> list[tuple[str, Kept]]:
        """Read the stored records of all GUIDs, in their order. Raises HostError: STORAGE."""
        rows = self._file.rows("SELECT guid, jwt, last_update_us, digest, revoked, seen_at FROM guid ORDER BY guid")
        return [(str(guid), _kept(row)) for guid, *row in rows]

    def accept(self, record: GuidRecord, jwt: str, *, now: float) -> None:
        """Hold a record against what was seen before, and remember it.

        Args:
            record: What `jwt` says; it proves its GUID.
            jwt: As it was signed.
            now: Seconds since the Unix epoch.

        Raises:
            RecordError: See `advance`; then everything stays as it was.
            HostError: STORAGE.
        """
        with self._file.changed() as database:
            kept = _load(database, record.guid)
            mark = advance(record, None if kept is None else kept.mark, now=now)
            row = (record.guid, jwt, mark.last_update_us, mark.digest, int(mark.is_revoked), now)
            database.execute("INSERT OR REPLACE INTO guid VALUES (?, ?, ?, ?, ?, ?)", row)
            count = self._count + (kept is None)
            if count > self._max_guids:
                count -= database.execute(_OLDEST, (count - self._max_guids,)).rowcount
        self._count = count

    def forget(self, guid: str) -> bool:
        """Drop the record of a GUID, but not how far it had come; whether there was one.

        Raises:
            HostError: STORAGE.
        """
        with self._file.used() as database:
            dropped = database.execute("UPDATE guid SET jwt = '' WHERE guid = ? AND jwt <> ''", (guid,))
            return dropped.rowcount > 0


def _load(database: sqlite3.Connection, guid: str) -> Kept | None:
    row = database.execute(
        "SELECT jwt, last_update_us, digest, revoked, seen_at FROM guid WHERE guid = ?", (guid,)
    ).fetchone()
    return None if row is None else _kept(row)


def _kept(row: Sequence[Any]) -> Kept:
    jwt, last_update_us, digest, revoked, seen_at = row
    return Kept(jwt, Mark(last_update_us, digest, bool(revoked)), seen_at)
