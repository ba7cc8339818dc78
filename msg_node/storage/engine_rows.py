"""The rows of one node in the engine: read and written like the state file, on the condition of the node's epoch.

Rows of some tables (`SHARED`) belong to the domain. They stand under no node's name; what a node writes of them is
announced to the others (`SHARED_CHANNEL`) with its transaction; of those in `FOLLOWED`, each key (`RECORDS_CHANNEL`).
Several nodes may write the same of them at once, so each locks what it changes in one order, and adds in that order:
otherwise two could wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Final

import msgspec
import psycopg
from psycopg.rows import TupleRow

from msg_node.kernel.changes import FOLLOWED, GIVEN, SHARED, Table
from msg_node.kernel.domain_records import RECORDS_CHANNEL, announcement
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import SILENT, EngineError
from msg_node.storage.engine_keys import digests, in_order, portions
from msg_node.storage.engine_line import LONG_SECONDS, patience_seconds
from msg_node.storage.state_file import NO_TEXT, Rows, refuse_unwritable

HOLD: Final = "SELECT trapezoid_hold(%s, %s)"
_DELETE: Final = """DELETE FROM trapezoid_row AS held USING unnest(%b::text[], %b::bytea[]) AS gone (kind, digest)
    WHERE held.node = (SELECT %s::text) AND held.kind = gone.kind AND held.digest = gone.digest"""
_LOCK: Final = """SELECT 1 FROM trapezoid_row AS held JOIN unnest(%b::text[], %b::bytea[]) AS wanted (kind, digest)
    USING (kind, digest) WHERE held.node = (SELECT %s::text) ORDER BY kind, digest FOR UPDATE OF held"""
_FIND: Final = """SELECT held.key, held.row FROM trapezoid_row AS held
    JOIN unnest(%b::text[], %b::bytea[]) AS wanted (kind, digest) USING (kind, digest)
    WHERE held.node = (SELECT %s::text)"""
_PUT_ALL: Final = """INSERT INTO trapezoid_row (node, kind, digest, key, row)
    SELECT %s, kind, sha256(key), key, row FROM unnest(%b::text[], %b::bytea[], %b::bytea[])
        WITH ORDINALITY AS put (kind, key, row, place) ORDER BY place
    ON CONFLICT (node, kind, digest)"""
_PUT: Final = f"{_PUT_ALL} DO UPDATE SET row = excluded.row"
PUT_NEW: Final = f"{_PUT_ALL} DO NOTHING"
"""Puts rows under keys that have none."""
_LOAD: Final = "SELECT kind, key, row FROM trapezoid_row WHERE node IN (%s, %s) AND kind = ANY(%s) ORDER BY number"
_OF_KIND: Final = "SELECT key, row FROM trapezoid_row WHERE node = %s AND kind = %s ORDER BY number"

DOMAIN: Final = ""
"""In place of a node's name, for rows of the domain."""
SHARED_CHANNEL: Final = "trapezoid_shared"
"""Where names of tables are announced whose shared rows have changed."""
ANNOUNCE: Final = "SELECT pg_notify(%s, text) FROM unnest(%s::text[]) AS changed (text)"
_SHARE: Final = """INSERT INTO trapezoid_row (node, kind, digest, key, row)
    SELECT %s, kind, digest, key, row FROM trapezoid_row WHERE node = %s AND kind = ANY(%s) ORDER BY kind, digest
    ON CONFLICT (node, kind, digest) DO NOTHING"""
_UNSHARE: Final = "DELETE FROM trapezoid_row WHERE node = %s AND kind = ANY(%s) RETURNING 1"
ANNOUNCED_AT_ONCE: Final = 500
"""After more changed rows of one table in a transaction, only the table is announced."""

_Gone = list[tuple[str, bytes]]
_Put = list[tuple[str, bytes, bytes]]
_SHARED_KINDS: Final = frozenset(table.value for table in SHARED)
_GIVEN_KINDS: Final = frozenset(table.value for table in GIVEN)
_FOLLOWED_KINDS: Final = frozenset(table.value for table in FOLLOWED)


class EngineRows:
    """Rows of `node`, for as long as `epoch` is the newest of its name. One thread uses it at a time.

    Args:
        engine: Its connection belongs to these rows alone.
        node: Name of the node.
        epoch: Under which its lease is held.
    """

    def __init__(self, engine: Engine, node: str, epoch: int) -> None:
        self._engine = engine
        self._held = (node, epoch)

    def load(self) -> dict[Table, dict[str, bytes]]:
        """Read all rows. Those that an older program kept for this node, and that are shared, are the domain's then.

        Raises:
            EngineError: FencedError when another process holds the name.
        """
        node, _ = self._held
        rows: dict[Table, dict[str, bytes]] = {table: {} for table in Table}
        kinds = {table.value: of_table for table, of_table in rows.items()}
        with self._engine.transaction() as connection:  # ends before the long one, for others may wait for it
            connection.execute(HOLD, self._held)
            connection.execute(_SHARE, (DOMAIN, node, sorted(_FOLLOWED_KINDS)))
            if connection.execute(_UNSHARE, (node, sorted(_FOLLOWED_KINDS))).fetchone() is not None:
                connection.execute(ANNOUNCE, (RECORDS_CHANNEL, [f"{kind} " for kind in sorted(_FOLLOWED_KINDS)]))
        with self._engine.transaction(LONG_SECONDS) as connection:
            connection.execute("SET LOCAL statement_timeout = 0")  # a million rows take longer than a usual statement
            found: list[TupleRow] = connection.execute(_LOAD, (node, DOMAIN, list(kinds)), binary=True).fetchall()
        for kind, key, row in found:
            kinds[kind][key.decode()] = row
        return rows

    def commit(self, rows: Rows) -> None:
        """Write rows in one transaction; None removes a row. Tries again at once if the connection had ended.

        Raises:
            HostError: STATE_UNAVAILABLE: nothing of it counts, or, when the connection was lost, perhaps all of it;
                writing a row twice does no harm. STORAGE: rows that have no JSON text have been removed from `rows`.
        """
        try:
            gone, put = _texts(rows)
        except NO_TEXT as exc:
            refuse_unwritable(rows, exc)
            raise
        try:
            self._commit(gone, put)
        except EngineError as exc:
            if not exc.is_lost or exc.word == SILENT:
                raise
            self._commit(gone, put)

    def _commit(self, gone: _Gone, put: _Put) -> None:
        node, _ = self._held
        changed = {kind for kind, *_ in (*gone, *put)}
        shared = sorted(changed & _SHARED_KINDS)
        with self._engine.transaction(patience_seconds(len(gone) + len(put))) as connection:
            connection.execute(HOLD, self._held)
            if changed - _SHARED_KINDS:
                own = [one for one in gone if one[0] not in _SHARED_KINDS]
                _write(connection, node, own, [one for one in put if one[0] not in _SHARED_KINDS])
            if shared:
                of_domain = [one for one in gone if one[0] in _SHARED_KINDS]
                new = sorted((one for one in put if one[0] in _SHARED_KINDS), key=lambda one: lock_order(*one[:2]))
                changes = [*of_domain, *((kind, key) for kind, key, _ in new)]
                _lock(connection, changes)
                _write(connection, DOMAIN, of_domain, new)
                connection.execute(ANNOUNCE, (SHARED_CHANNEL, shared))
                if heard := _followed(changes):
                    connection.execute(ANNOUNCE, (RECORDS_CHANNEL, heard))

    def scrub(self) -> None:
        """Nothing to do: the engine reuses the space of removed rows by itself (autovacuum)."""

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()


class SharedRows:
    """Reads rows of the domain, for any thread.

    Args:
        engine: Its connection belongs to this alone.

    Attributes:
        channel: Where names of tables are announced whose rows have changed.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self.channel = SHARED_CHANNEL

    def read(self, kind: str) -> dict[str, bytes]:
        """All rows of one table, as they are now. Raises EngineError."""
        with self._lock, self._engine.transaction() as connection:
            found: list[TupleRow] = connection.execute(_OF_KIND, (DOMAIN, kind), binary=True).fetchall()
        return {key.decode(): row for key, row in found}

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._engine.close()


def find_rows(
    connection: psycopg.Connection[TupleRow], node: str, kind: str, keys: Collection[str]
) -> dict[str, bytes]:
    """Those rows of a node, or of the domain, that are there. Raises psycopg.Error."""
    found = [
        connection.execute(_FIND, ([kind] * len(some), digests(some), node), binary=True, prepare=False)
        for some in portions(in_order(keys))
    ]
    return {key.decode(): bytes(row) for one in found for key, row in one.fetchall()}


def lock_order(kind: str, key: bytes) -> tuple[str, bytes]:
    """Place of a row of the domain among those that nodes may add at once.

    What is on its way is added by one node, and stays in the order in which that had it.
    """
    return kind, b"" if kind in _GIVEN_KINDS else sha256(key).digest()


def _lock(connection: psycopg.Connection[TupleRow], changes: Collection[tuple[str, bytes]]) -> None:
    """Lock those rows of the domain that are there, in the order that all nodes keep."""
    every = sorted((kind, sha256(key).digest()) for kind, key in changes)
    for some in portions(every) if len(every) > 1 else ():
        kinds, named = zip(*some, strict=True)
        connection.execute(_LOCK, (list(kinds), list(named), DOMAIN), prepare=False)


def _write(connection: psycopg.Connection[TupleRow], node: str, gone: _Gone, put: _Put) -> None:
    for part in portions(gone):
        kinds, keys = zip(*part, strict=True)
        connection.execute(_DELETE, (list(kinds), digests(keys), node), prepare=False)
    for some in portions(put):
        connection.execute(_PUT, (node, *map(list, zip(*some, strict=True))))


def _followed(changed: Iterable[tuple[str, bytes]]) -> list[str]:
    """The announcements of changed rows whose tables nodes follow."""
    keys: dict[str, list[bytes]] = {}
    for kind, key in changed:
        if kind in _FOLLOWED_KINDS:
            keys.setdefault(kind, []).append(key)
    return [
        text
        for kind, names in keys.items()
        for text in (
            [announcement(kind, name.decode()) for name in names] if len(names) <= ANNOUNCED_AT_ONCE else [f"{kind} "]
        )
    ]


def _texts(rows: Rows) -> tuple[_Gone, _Put]:
    """Rows that are gone, and rows with their text."""
    gone: _Gone = []
    put: _Put = []
    for table, of_table in rows.items():
        for key, row in of_table.items():
            name = key.encode()
            if row is None:
                gone.append((table.value, name))
            else:
                put.append((table.value, name, msgspec.json.encode(row)))
    return gone, put
