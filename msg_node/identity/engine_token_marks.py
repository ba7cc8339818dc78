"""Renewals and revocations of session tokens, in the engine that nodes of one domain share: see `TokenStore`.

A mark is raised by a conditional write, so of two nodes that renew one token one is refused. It is announced to the
others with its transaction. It needs no epoch of a node: it only ever takes from what tokens are worth.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import Any, Final

import msgspec

from msg_node.identity.core.issued_tokens import TokenMark
from msg_node.identity.mark_keeper import CHANNEL, announcement
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import EngineError
from msg_node.storage.engine_rows import DOMAIN

_RAISE: Final = """INSERT INTO trapezoid_row AS held (node, kind, digest, key, row)
    VALUES (%s, 'token_marks', sha256(%b::bytea), %b, %b)
    ON CONFLICT (node, kind, digest) DO UPDATE SET row = excluded.row
    WHERE (convert_from(held.row, 'UTF8')::json ->> 'least')::bigint < %s RETURNING 1"""
_ANNOUNCE: Final = "SELECT pg_notify(%s, %s)"
_FORGET: Final = """WITH old AS MATERIALIZED (
        SELECT digest FROM trapezoid_row WHERE node = %s AND kind = 'token_marks'
            AND (convert_from(row, 'UTF8')::json ->> 'until')::float8 <= %s FOR UPDATE SKIP LOCKED
    ) DELETE FROM trapezoid_row AS mark USING old
    WHERE mark.node = %s AND mark.kind = 'token_marks' AND mark.digest = old.digest"""
"""Nodes that do this at the same time do not wait for each other."""
_LOAD: Final = "SELECT row FROM trapezoid_row WHERE node = %s AND kind = 'token_marks'"
_KEPT_BETWEEN: Final = 1_000
"""After so many marks, those that say nothing any more are deleted."""


class EngineTokenMarks:
    """Durable marks of a domain. Plain calls that wait for the engine: for threads.

    Args:
        engine: Its connection belongs to these marks alone.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._numbers = count()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._engine.close()

    def load(self) -> list[TokenMark]:
        """All marks of the domain. Raises HostError."""
        with self._lock, self._engine.transaction() as connection:
            found: list[tuple[Any, ...]] = connection.execute(_LOAD, (DOMAIN,), binary=True).fetchall()
        return [msgspec.json.decode(row, type=TokenMark) for (row,) in found]

    def keep(self, mark: TokenMark, *, now: float) -> bool:
        """Remember a mark; False when another node has raised it as far already. Raises HostError."""
        key, row = mark.login.encode(), msgspec.json.encode(mark)
        with self._lock:
            self._look()
            with self._engine.transaction() as connection:
                is_raised = connection.execute(_RAISE, (DOMAIN, key, key, row, mark.least)).fetchone() is not None
                connection.execute(_ANNOUNCE, (CHANNEL, announcement(mark)))
                if next(self._numbers) % _KEPT_BETWEEN == 0:
                    connection.execute(_FORGET, (DOMAIN, now, DOMAIN))
        return is_raised

    def _look(self) -> None:
        """Find out whether the connection has been lost meanwhile: a write that may have succeeded is not repeated."""
        try:
            with self._engine.transaction() as connection:
                connection.execute("SELECT 1")
        except EngineError as exc:
            if not exc.is_lost:
                raise
