"""Parked requests and reports of a node that has died go on at another one: they are made rows that are given to it.

One transaction ends the epoch of the dead process, on the condition that its name is as it was when it was found dead,
and moves its rows. So a process that is only slow writes nothing afterwards, of several nodes that try, one gets
everything, and one that starts again under the name has what is left. Sessions, registry entries and the twin stay
under the name: sessions are fetched by who brings them back. See docs/adr/0036.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from msg_node.cluster.core.lease import BEAT_SECONDS, NameRow
from msg_node.cluster.membership import Membership
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import EngineError
from msg_node.storage.engine_rows import DOMAIN, SHARED_CHANNEL

logger = logging.getLogger("msg_node")

_HOLD: Final = "SELECT trapezoid_hold(%s, %s)"
_ANY: Final = """SELECT EXISTS (SELECT 1 FROM trapezoid_row WHERE node = %s AND kind IN ('parked', 'inbox'))
    OR EXISTS (SELECT 1 FROM trapezoid_row WHERE node = %s AND kind IN ('given_parked', 'given_inbox')
        AND substring(key from 1 for %s) = %s)"""
_FENCE: Final = """WITH seen AS (
        SELECT name FROM trapezoid_node WHERE name = %s AND epoch = %s AND beat = %s AND is_held = %s
        FOR UPDATE SKIP LOCKED
    ) UPDATE trapezoid_node AS node SET epoch = epoch + 1, beat = 0, is_held = false
    FROM seen WHERE node.name = seen.name RETURNING epoch"""
"""Who holds the name in a transaction is not dead. To wait for it could be for ever: it may want to end our epoch."""
_LOCK: Final = """SELECT 1 FROM trapezoid_row WHERE node = %s AND kind IN ('given_parked', 'given_inbox')
    AND substring(key from 1 for %s) = %s ORDER BY kind, digest FOR UPDATE"""
"""In the order of `msg_node.storage.engine_rows`: who gives them writes them as well."""
_TAKE_OVER: Final = """UPDATE trapezoid_row
    SET node = %s, kind = 'given_' || kind, key = %b || key, digest = sha256(%b || key)
    WHERE node = %s AND kind IN ('parked', 'inbox')"""
_FORWARD: Final = """UPDATE trapezoid_row
    SET key = %b || substring(key from %s), digest = sha256(%b || substring(key from %s))
    WHERE node = %s AND kind IN ('given_parked', 'given_inbox') AND substring(key from 1 for %s) = %s"""
_ANNOUNCE: Final = "SELECT pg_notify(%s, kind) FROM unnest(ARRAY['given_parked', 'given_inbox']) AS changed (kind)"


class WorkTakeover:
    """Has this node go on with the work of nodes that have died.

    Args:
        engine: Its connection belongs to this alone.
        membership: Knows which nodes have died.
        node: Our name.
        epoch: Under which we hold it.
    """

    def __init__(self, engine: Engine, membership: Membership, node: str, epoch: int) -> None:
        self._engine = engine
        self._membership = membership
        self._held = (node, epoch)
        self._limiter = trio.CapacityLimiter(1)

    async def run(self) -> None:
        """Look for the dead once per beat, until cancelled."""
        try:
            while True:
                await trio.sleep(BEAT_SECONDS)
                for name, row in self._membership.dead():
                    await self._take_over_from(name, row)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self.close, limiter=self._limiter)

    async def _take_over_from(self, name: str, row: NameRow) -> None:
        try:
            if await trio.to_thread.run_sync(self.take_over, name, row, limiter=self._limiter):
                logger.warning("cluster: node %s has died: its parked requests and inboxes go on here", name)
        except EngineError as exc:
            logger.warning("cluster: the work of node %s cannot be taken over: %s", name, exc)

    def take_over(self, name: str, row: NameRow) -> bool:
        """Make ours what a dead node has parked. Blocks.

        Args:
            name: Of the node.
            row: Its name as it was when it was found dead.

        Returns:
            False when there is nothing, or when the name is not as it was, or in use.

        Raises:
            EngineError: The engine cannot be asked. FencedError: it is us who have lost our name.
        """
        theirs, (node, _) = f"{name} ".encode(), self._held
        with self._engine.transaction() as connection:
            connection.execute(_HOLD, self._held)
            found = connection.execute(_ANY, (name, DOMAIN, len(theirs), theirs)).fetchone()
            if found is None or not found[0]:
                return False
            seen = (name, row.epoch, row.beat, row.is_held)
            if connection.execute(_FENCE, seen).fetchone() is None:
                return False
            ours, rest = f"{node} ".encode(), len(theirs) + 1
            connection.execute(_LOCK, (DOMAIN, len(theirs), theirs))
            connection.execute(_FORWARD, (ours, rest, ours, rest, DOMAIN, len(theirs), theirs))
            mark = f"{node} {name} {row.epoch} ".encode()
            connection.execute(_TAKE_OVER, (DOMAIN, mark, mark, name))
            connection.execute(_ANNOUNCE, (SHARED_CHANNEL,))
        return True

    async def end(self, name: str, row: NameRow) -> bool:
        """End the epoch of a dead process, so that it writes nothing any more.

        Args:
            name: Of the node.
            row: Its name as it was when it was found dead.

        Returns:
            False when the name is not as it was, or in use.

        Raises:
            EngineError: As `take_over`.
        """
        return await trio.to_thread.run_sync(self._end, name, row, limiter=self._limiter)

    def _end(self, name: str, row: NameRow) -> bool:
        with self._engine.transaction() as connection:
            connection.execute(_HOLD, self._held)
            return connection.execute(_FENCE, (name, row.epoch, row.beat, row.is_held)).fetchone() is not None

    def close(self) -> None:
        """Close the connection. Blocks."""
        self._engine.close()
