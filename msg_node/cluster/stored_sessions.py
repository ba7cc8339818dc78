"""What a node that has died stored of a session, read from the engine for another node of its domain. Blocking.

Rows are found by what they say, and not by their keys: these are numbers of the node that died. The engine has indexes
for that (`ADD` of `msg_node.storage.engine_schema`), so that thousands of sessions come back within seconds. A node
that takes over a whole name (`cluster.standby`) does not need it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msg_node.kernel.changes import Table
from msg_node.storage.engine import Engine
from msg_node.storage.engine_keys import digests, in_order, portions
from msg_node.storage.engine_rows import DOMAIN, find_rows
from msg_node.storage.engine_schema import MEMBER_CHARACTERS

_OF_EACH: Final = """SELECT found.row FROM unnest(%s::text[]) AS wanted (text) CROSS JOIN LATERAL (
    SELECT row, number FROM trapezoid_row
    WHERE node = %s AND kind = '{kind}' AND trapezoid_member(row, '{member}') = wanted.text OFFSET 0
) AS found ORDER BY found.number"""
"""One look into the index for each text: for all at once, an engine without statistics of new rows reads them all."""
_BROUGHT_BACK: Final = _OF_EACH.format(kind="sessions", member="token_digest")
_OPENED: Final = _OF_EACH.format(kind="sessions", member="runtime_key")
_ADDRESSES: Final = _OF_EACH.format(kind="addresses", member="sid")
_SUBSCRIPTIONS: Final = _OF_EACH.format(kind="subscriptions", member="sid")
_THINGS: Final = """SELECT row FROM trapezoid_row
    WHERE node = %s AND kind = 'twin_things' AND starts_with(convert_from(key, 'UTF8'), %s) ORDER BY number LIMIT %s"""
_LEASES: Final = "SELECT row FROM trapezoid_row WHERE node = %s AND kind = 'qos_leases' ORDER BY number"
_ALL_LEASES: Final = """SELECT row FROM trapezoid_row
    WHERE node IN (SELECT name FROM trapezoid_node) AND kind = 'qos_leases'"""
_CLAIMS: Final = "SELECT key, node, epoch FROM trapezoid_claim WHERE digest = ANY(%b::bytea[])"


_GIVEN: Final = "SELECT row FROM trapezoid_row WHERE node = %s AND kind = %s AND digest = sha256(%b)"
FORGOTTEN_AT_ONCE: Final = 500
_FORGET_GIVEN: Final = """WITH old AS MATERIALIZED (
        SELECT digest FROM trapezoid_row WHERE node = %s AND kind = %s
            AND (convert_from(row, 'UTF8')::json ->> 'given_at')::float8 < %s
        LIMIT %s FOR UPDATE SKIP LOCKED
    ) DELETE FROM trapezoid_row AS given USING old
    WHERE given.node = %s AND given.kind = %s AND given.digest = old.digest RETURNING 1"""
"""Nodes that do this at the same time do not wait for each other."""
_ON_THEIR_WAY: Final = (DOMAIN, Table.GIVEN_SESSIONS.value)


class StoredSessions:
    """Reads rows of other nodes; one thread uses it at a time.

    Args:
        engine: Its connection belongs to this alone.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def sessions(self, node: str, digests: Collection[str], runtimes: Collection[str]) -> list[bytes]:
        """Rows of sessions with tokens of these digests or of these runtimes, or nearly. Raises EngineError."""
        begins = list(dict.fromkeys(runtime[:MEMBER_CHARACTERS] for runtime in runtimes))
        with self._engine.transaction() as connection:
            found = [
                connection.execute(_BROUGHT_BACK, (list(dict.fromkeys(digests)), node)),
                connection.execute(_OPENED, (begins, node)),
            ]
            return [row for one in found for (row,) in one.fetchall()]

    def held(self, node: str, sids: Collection[int]) -> tuple[list[bytes], list[bytes]]:
        """Rows of addresses and of subscriptions of sessions. Raises EngineError."""
        numbers = (list(dict.fromkeys(map(str, sids))), node)
        with self._engine.transaction() as connection:
            addresses, subscriptions = (
                connection.execute(_ADDRESSES, numbers),
                connection.execute(_SUBSCRIPTIONS, numbers),
            )
            return [row for (row,) in addresses.fetchall()], [row for (row,) in subscriptions.fetchall()]

    def policies(self, node: str, objects: Collection[str]) -> dict[str, bytes]:
        """Rows of policies that were named for objects, by canonical key of the object. Raises EngineError."""
        with self._engine.transaction() as connection:
            return find_rows(connection, node, Table.OBJECT_POLICIES.value, objects)

    def leases(self, node: str) -> list[bytes]:
        """Rows of all reservations of a node, which are few. Raises EngineError."""
        with self._engine.transaction() as connection:
            return [row for (row,) in connection.execute(_LEASES, (node,)).fetchall()]

    def all_leases(self) -> list[bytes]:
        """Rows of all reservations of the domain. Raises EngineError."""
        with self._engine.transaction() as connection:
            return [row for (row,) in connection.execute(_ALL_LEASES).fetchall()]

    def claims(self, keys: Collection[str]) -> dict[str, tuple[str, int]]:
        """Node and epoch of the claims of these keys. Raises EngineError."""
        with self._engine.transaction() as connection:
            found = [connection.execute(_CLAIMS, (digests(some),), prepare=False) for some in portions(in_order(keys))]
            return {key.decode(): (node, epoch) for one in found for key, node, epoch in one.fetchall()}

    def things(self, node: str, agent: str, *, most: int) -> list[bytes]:
        """Rows of the things of an agent. Raises EngineError."""
        with self._engine.transaction() as connection:
            return [row for (row,) in connection.execute(_THINGS, (node, f"{agent}/", most)).fetchall()]

    def without_row(self, node: str, addresses: Collection[str]) -> list[str]:
        """Those addresses of which a node has stored no owner. Raises EngineError."""
        with self._engine.transaction() as connection:
            owned = find_rows(connection, node, Table.ADDRESSES.value, addresses)
        return [address for address in addresses if address not in owned]

    def given(self, digest: str) -> bytes | None:
        """The row of a session on its way from one node to another, by the digest of its token. Raises EngineError."""
        with self._engine.transaction() as connection:
            row = connection.execute(_GIVEN, (*_ON_THEIR_WAY, digest.encode()), binary=True).fetchone()
        return None if row is None else bytes(row[0])

    def forget_given(self, before: float) -> bool:
        """Forget sessions that were given before that time, and never taken in, `FORGOTTEN_AT_ONCE` of them at most.

        Returns:
            True if others may be left.

        Raises:
            EngineError: None was forgotten, as far as is known.
        """
        values = (*_ON_THEIR_WAY, before, FORGOTTEN_AT_ONCE, *_ON_THEIR_WAY)
        with self._engine.transaction() as connection:
            return len(connection.execute(_FORGET_GIVEN, values).fetchall()) == FORGOTTEN_AT_ONCE

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()
