"""Records of the whole domain, in the engine that its nodes share: see `DomainRecords`. Blocking."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Final

import psycopg
from psycopg.rows import TupleRow

from msg_node.kernel.domain_records import RECORDS_CHANNEL, announcement
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import EngineError
from msg_node.storage.engine_rows import DOMAIN, find_rows

_LOAD: Final = "SELECT key, row FROM trapezoid_row WHERE node = %s AND kind = %s ORDER BY key"
_READ: Final = "SELECT row FROM trapezoid_row WHERE node = %s AND kind = %s AND digest = sha256(%b)"
_ADD: Final = """INSERT INTO trapezoid_row (node, kind, digest, key, row) VALUES (%s, %s, sha256(%b), %b, %b)
    ON CONFLICT (node, kind, digest) DO NOTHING RETURNING 1"""
_REPLACE: Final = """UPDATE trapezoid_row SET row = %b
    WHERE node = %s AND kind = %s AND digest = sha256(%b) AND row = %b RETURNING 1"""
_REMOVE: Final = (
    "DELETE FROM trapezoid_row WHERE node = %s AND kind = %s AND digest = sha256(%b) AND row = %b RETURNING 1"
)
_ANNOUNCE: Final = "SELECT pg_notify(%s, %s)"
_FORGET_OLDEST: Final = """WITH oldest AS MATERIALIZED (
        SELECT digest FROM (SELECT digest, convert_from(row, 'UTF8')::json AS facts FROM trapezoid_row
            WHERE node = %(node)s AND kind = %(kind)s) AS kept
        ORDER BY (facts ->> 'is_revoked')::boolean DESC, (facts ->> 'seen_at')::float8 DESC OFFSET %(most)s
    ), old AS MATERIALIZED (
        SELECT digest FROM trapezoid_row
            WHERE node = %(node)s AND kind = %(kind)s AND digest IN (SELECT digest FROM oldest) FOR UPDATE SKIP LOCKED
    ) DELETE FROM trapezoid_row AS record USING old
    WHERE record.node = %(node)s AND record.kind = %(kind)s AND record.digest = old.digest"""
"""Nodes that do this at the same time do not wait for each other."""


class EngineRecords:
    """Records by kind and key, for any thread.

    Args:
        engine: Its connection belongs to these records alone; it is opened when it is needed.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()

    def load(self, kind: str) -> dict[str, bytes]:
        """All records of a kind by key, in its order. Raises EngineError."""
        with self._lock, self._engine.transaction() as connection:
            found: list[TupleRow] = connection.execute(_LOAD, (DOMAIN, kind), binary=True).fetchall()
        return {key.decode(): bytes(row) for key, row in found}

    def read(self, kind: str, key: str) -> bytes | None:
        """A record as it is now, None when there is none. Raises EngineError."""
        with self._lock:
            return self._read(kind, key.encode())

    def find(self, kind: str, keys: Collection[str]) -> dict[str, bytes]:
        """See `DomainRecords`. Raises EngineError."""
        with self._lock, self._engine.transaction() as connection:
            return find_rows(connection, DOMAIN, kind, keys)

    def replace(self, kind: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Put a record in place of the one that was read; None is no record, and one of both is one.

        Returns:
            False when `old` is not what is there: then nothing was changed.

        Raises:
            EngineError: It was perhaps replaced, if the connection was lost twice.
        """
        name = key.encode()
        with self._lock:
            try:
                return self._replace(kind, name, old, new)
            except EngineError as exc:
                if not exc.is_lost:
                    raise
            return self._replace(kind, name, old, new) or self._read(kind, name) == new

    def forget_oldest(self, kind: str, most: int) -> None:
        """See `DomainRecords`. Raises EngineError."""
        with self._lock, self._engine.transaction() as connection:
            connection.execute(_FORGET_OLDEST, {"node": DOMAIN, "kind": kind, "most": most})

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._engine.close()

    def _read(self, kind: str, name: bytes) -> bytes | None:
        with self._engine.transaction() as connection:
            row = connection.execute(_READ, (DOMAIN, kind, name), binary=True).fetchone()
        return None if row is None else bytes(row[0])

    def _replace(self, kind: str, name: bytes, old: bytes | None, new: bytes | None) -> bool:
        with self._engine.transaction() as connection:
            done = _change(connection, kind, name, (old, new))
            if done:
                connection.execute(_ANNOUNCE, (RECORDS_CHANNEL, announcement(kind, name.decode())))
        return done


def _change(
    connection: psycopg.Connection[TupleRow], kind: str, name: bytes, rows: tuple[bytes | None, bytes | None]
) -> bool:
    old, new = rows
    if old is None:
        done = connection.execute(_ADD, (DOMAIN, kind, name, name, new)).fetchone()
    elif new is None:
        done = connection.execute(_REMOVE, (DOMAIN, kind, name, old)).fetchone()
    else:
        done = connection.execute(_REPLACE, (new, DOMAIN, kind, name, old)).fetchone()
    return done is not None
