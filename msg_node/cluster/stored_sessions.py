"""What a node that has died stored of a session, read from the engine for another node of its domain. Blocking.

Rows are found by what they say, and not by their keys: these are numbers of the node that died. That reads all its rows
of a kind, in the engine: some tens of milliseconds for ten thousand sessions. A node that takes over a whole name
(`cluster.standby`) does not need it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msg_node.storage.engine import Engine

_ROWS: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = %s AND convert_from(row, 'UTF8')::json ->> %s = %s ORDER BY number"""
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

    def sessions(self, node: str, member: str, value: str) -> list[bytes]:
        """Rows of sessions whose `member` has that value. Raises EngineError."""
        return self._rows(node, "sessions", member, value)

    def held(self, node: str, sid: int) -> tuple[list[bytes], list[bytes]]:
        """Rows of addresses and of subscriptions of a session. Raises EngineError."""
        return self._rows(node, "addresses", "sid", str(sid)), self._rows(node, "subscriptions", "sid", str(sid))

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

    def _rows(self, node: str, kind: str, member: str, value: str) -> list[bytes]:
        with self._engine.transaction() as connection:
            return [row for (row,) in connection.execute(_ROWS, (node, kind, member, value)).fetchall()]
