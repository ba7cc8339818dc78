"""What a node that has died stored of a session, read from the engine for another node of its domain. Blocking.

Rows are found by what they say, and not by their keys: these are numbers of the node that died. The engine has indexes
for that (`ADD` of `msg_node.storage.engine_schema`), so that thousands of sessions come back within seconds. A node
that takes over a whole name (`cluster.standby`) does not need it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msg_node.storage.engine import Engine
from msg_node.storage.engine_schema import MEMBER_CHARACTERS

_BROUGHT_BACK: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = 'sessions' AND trapezoid_member(row, 'token_digest') = ANY(%s) ORDER BY number"""
_OPENED: Final = """SELECT row FROM trapezoid_row WHERE node = %s AND kind = 'sessions'
    AND trapezoid_member(row, 'runtime_key') = ANY(%s) ORDER BY number"""
_ADDRESSES: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = 'addresses' AND trapezoid_member(row, 'sid') = ANY(%s) ORDER BY number"""
_SUBSCRIPTIONS: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = 'subscriptions' AND trapezoid_member(row, 'sid') = ANY(%s) ORDER BY number"""
_THINGS: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = 'twin_things' AND starts_with(convert_from(key, 'UTF8'), %s) ORDER BY number LIMIT %s"""
_WITHOUT_ROW: Final = """SELECT key FROM unnest(%b::bytea[]) AS claimed (key) WHERE NOT EXISTS (
    SELECT 1 FROM trapezoid_row AS held WHERE node = %s AND kind = 'addresses' AND held.digest = sha256(claimed.key))"""


class StoredSessions:
    """Reads rows of other nodes; one thread uses it at a time.

    Args:
        engine: Its connection belongs to this alone.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def sessions(self, node: str, digests: Collection[str], runtimes: Collection[str]) -> list[bytes]:
        """Rows of sessions with tokens of these digests or of these runtimes, or nearly. Raises EngineError."""
        begins = [runtime[:MEMBER_CHARACTERS] for runtime in runtimes]
        with self._engine.transaction() as connection:
            found = [
                connection.execute(_BROUGHT_BACK, (node, list(digests))),
                connection.execute(_OPENED, (node, begins)),
            ]
            return [row for one in found for (row,) in one.fetchall()]

    def held(self, node: str, sids: Collection[int]) -> tuple[list[bytes], list[bytes]]:
        """Rows of addresses and of subscriptions of sessions. Raises EngineError."""
        numbers = (node, list(map(str, sids)))
        with self._engine.transaction() as connection:
            addresses, subscriptions = (
                connection.execute(_ADDRESSES, numbers),
                connection.execute(_SUBSCRIPTIONS, numbers),
            )
            return [row for (row,) in addresses.fetchall()], [row for (row,) in subscriptions.fetchall()]

    def things(self, node: str, agent: str, *, most: int) -> list[bytes]:
        """Rows of the things of an agent. Raises EngineError."""
        with self._engine.transaction() as connection:
            return [row for (row,) in connection.execute(_THINGS, (node, f"{agent}/", most)).fetchall()]

    def without_row(self, node: str, addresses: Collection[str]) -> list[str]:
        """Those addresses of which a node has stored no owner. Raises EngineError."""
        keys = [address.encode() for address in addresses]
        with self._engine.transaction() as connection:
            return [key.decode() for (key,) in connection.execute(_WITHOUT_ROW, (keys, node)).fetchall()]

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()
