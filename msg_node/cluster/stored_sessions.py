"""What a node that has died stored of a session, read from the engine for another node of its domain. Blocking.

Rows are found by what they say, and not by their keys: these are numbers of the node that died. The engine has indexes
for that (`ADD` of `msg_node.storage.engine_schema`), so that thousands of sessions come back within seconds. A node
that takes over a whole name (`cluster.standby`) does not need it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msg_node.storage.engine import Engine

_BROUGHT_BACK: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = 'sessions' AND trapezoid_member(row, 'token_digest') = %s ORDER BY number"""
_BY_RUNTIME: Final = """SELECT row FROM trapezoid_row WHERE node = %s AND kind = 'sessions'
    AND trapezoid_member(row, 'runtime_key') = left(%s, 500) ORDER BY number"""
_ADDRESSES: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = 'addresses' AND trapezoid_member(row, 'sid') = %s ORDER BY number"""
_SUBSCRIPTIONS: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = 'subscriptions' AND trapezoid_member(row, 'sid') = %s ORDER BY number"""
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

    def by_token(self, node: str, digest: str) -> list[bytes]:
        """Rows of sessions whose token has that digest. Raises EngineError."""
        with self._engine.transaction() as connection:
            return [row for (row,) in connection.execute(_BROUGHT_BACK, (node, digest)).fetchall()]

    def by_runtime(self, node: str, runtime_key: str) -> list[bytes]:
        """Rows of sessions of a runtime, and of others whose long keys begin like its own. Raises EngineError."""
        with self._engine.transaction() as connection:
            return [row for (row,) in connection.execute(_BY_RUNTIME, (node, runtime_key)).fetchall()]

    def held(self, node: str, sid: int) -> tuple[list[bytes], list[bytes]]:
        """Rows of addresses and of subscriptions of a session. Raises EngineError."""
        with self._engine.transaction() as connection:
            addresses, subscriptions = [
                connection.execute(one, (node, str(sid))) for one in (_ADDRESSES, _SUBSCRIPTIONS)
            ]
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
