"""Documents of the whole domain in the engine: small files that nodes replace by compare-and-set. Blocking."""

from __future__ import annotations

from typing import Final

from msg_node.storage.engine import Engine
from msg_node.storage.engine_rows import DOMAIN, SHARED_CHANNEL

DOCUMENT: Final = "document"
TRUST: Final = "trust"
"""Kinds in place of tables: nodes that restore their state pass over these rows."""
_HOLD: Final = "SELECT trapezoid_hold(%s, %s)"
_READ: Final = "SELECT row FROM trapezoid_row WHERE node = %s AND kind = %s AND digest = sha256(%s)"
_ADD: Final = """INSERT INTO trapezoid_row (node, kind, digest, key, row) VALUES (%s, %s, sha256(%b), %b, %b)
    ON CONFLICT (node, kind, digest) DO NOTHING RETURNING number"""
_PUT: Final = """INSERT INTO trapezoid_row (node, kind, digest, key, row) VALUES (%s, %s, sha256(%b), %b, %b)
    ON CONFLICT (node, kind, digest) DO UPDATE SET row = excluded.row"""
_ANNOUNCE: Final = "SELECT pg_notify(%s, %s)"
_REPLACE: Final = """UPDATE trapezoid_row SET row = %b
    WHERE node = %s AND kind = %s AND digest = sha256(%b) AND row = %b RETURNING number"""


class EngineDocuments:
    """The documents, over one connection of their own; one thread uses them at a time.

    Args:
        engine: Its connection belongs to these documents alone.
        node: Our name.
        epoch: Under which we hold it.
        kind: Which documents.
    """

    def __init__(self, engine: Engine, node: str, epoch: int, kind: str = DOCUMENT) -> None:
        self._engine = engine
        self._kind = kind
        self._held = (node, epoch)

    def read(self, name: str) -> bytes | None:
        """A document as it is now, None when there is none. Raises EngineError."""
        with self._engine.transaction() as connection:
            row = connection.execute(_READ, (DOMAIN, self._kind, name.encode()), binary=True).fetchone()
        return None if row is None else bytes(row[0])

    def replace(self, name: str, new: bytes, old: bytes | None) -> bool:
        """Put a document in place of the one that was read; False when that is not there any more.

        Raises:
            EngineError: FencedError when another process holds our name.
        """
        key = name.encode()
        with self._engine.transaction() as connection:
            connection.execute(_HOLD, self._held)
            if old is None:
                done = connection.execute(_ADD, (DOMAIN, self._kind, key, key, new)).fetchone()
            else:
                done = connection.execute(_REPLACE, (new, DOMAIN, self._kind, key, old)).fetchone()
        return done is not None

    def put(self, name: str, new: bytes) -> None:
        """Put a document in place of whatever is there, and announce that (`SHARED_CHANNEL`).

        Raises:
            EngineError: FencedError when another process holds our name.
        """
        key = name.encode()
        with self._engine.transaction() as connection:
            connection.execute(_HOLD, self._held)
            connection.execute(_PUT, (DOMAIN, self._kind, key, key, new))
            connection.execute(_ANNOUNCE, (SHARED_CHANNEL, self._kind))

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()
