"""The other nodes of the domain, as the engine has them: where their bus listens, and which have died.

A node has died when its lease was not renewed for as long as it lasts, counted here from when its last renewal was
seen; or when it left in order. No clock of another machine is asked. See docs/adr/0028.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

import trio

from msg_node.cluster.core.lease import BEAT_SECONDS, LEASE_SECONDS, NameRow
from msg_node.cluster.lease_keeper import lease_clock
from msg_node.cluster.names import Names
from msg_node.kernel.node_figures import NodeFigures
from msg_node.storage.engine_errors import EngineError

logger = logging.getLogger("msg_node")

SILENT_SECONDS: Final = LEASE_SECONDS
"""Without a renewal for so long, a node has died."""
TAKEN_OVER_SECONDS: Final = SILENT_SECONDS + 5.0
"""After so long, another node has gone on with the work of one that has died (`WorkTakeover`)."""


class Membership:
    """Watches the names of the domain.

    Args:
        names: Over a connection of its own.
        node: Our name.
        clock: Seconds of a clock that only goes forward.
    """

    def __init__(self, names: Names, node: str, clock: Callable[[], float] = lease_clock) -> None:
        self._names = names
        self._node = node
        self._clock = clock
        self._limiter = trio.CapacityLimiter(1)
        self._rows: dict[str, NameRow] = {}
        self._seen_at: dict[str, float] = {}
        self._addresses: dict[str, str] = {}
        self._endpoints: dict[str, str] = {}
        self._listening: set[str] = set()
        self._figures: dict[str, NodeFigures] = {}
        self._read_at = clock()

    def addresses(self) -> Mapping[str, str]:
        """Address of the bus of each other node, by its name."""
        return self._addresses

    def endpoints(self) -> list[str]:
        """Published URLs of the other living nodes, in the order of their names, each once and without our own."""
        ours = self._endpoints.get(self._node)
        alive = [url for name, url in sorted(self._endpoints.items()) if not self.is_dead(name)]
        return [url for url in dict.fromkeys(alive) if url not in (ours, "")]

    def figures(self) -> dict[str, NodeFigures]:
        """Latest figures of each living node of the domain, ours included; empty while the engine cannot be read."""
        if self._clock() - self._read_at > SILENT_SECONDS:
            return {}
        return {name: one for name, one in self._figures.items() if not self.is_dead(name)}

    def is_dead(self, node: str) -> bool:
        """True if a node has died, left or been removed. False while it is not known for sure, or ours to judge."""
        now = self._clock()
        if now - self._read_at > SILENT_SECONDS:
            return False  # it is us who see nothing
        row = self._rows.get(node)
        if row is None:
            return node in self._seen_at  # else it has joined since we looked
        return not row.is_held or now - self._seen_at[node] > SILENT_SECONDS

    def found_dead(self, node: str) -> NameRow | None:
        """The name of a node that has died or left, as it was when that was found; None as long as it may be alive."""
        return self._rows.get(node) if self.is_dead(node) else None

    def dead(self) -> list[tuple[str, NameRow]]:
        """The other names of nodes that listened for us and have died, or have been left for as long as a lease."""
        now = self._clock()
        if now - self._read_at > SILENT_SECONDS:
            return []
        return [
            (name, row)
            for name, row in self._rows.items()
            if name in self._listening and now - self._seen_at[name] > SILENT_SECONDS
        ]

    def unreachable(self, connected: Collection[str]) -> list[str]:
        """The other nodes that may have parked work of the domain, and that are not among those.

        They are alive, or died so lately that nobody has gone on with their work yet.
        """
        now = self._clock()
        is_blind = now - self._read_at > SILENT_SECONDS
        return [
            name
            for name in self._listening.difference(connected)
            if is_blind or (self._rows[name].is_held and now - self._seen_at[name] <= TAKEN_OVER_SECONDS)
        ]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look at the names once per beat, until cancelled."""
        is_started = False
        try:
            while True:
                await self._look()
                if not is_started:
                    is_started = True
                    task_status.started()
                await trio.sleep(BEAT_SECONDS)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._names.close, limiter=self._limiter)

    async def _look(self) -> None:
        now = self._clock()
        try:
            rows = await trio.to_thread.run_sync(self._names.rows, limiter=self._limiter)
        except EngineError as exc:
            logger.warning("cluster: the nodes of the domain cannot be read: %s", exc)
            return
        for name, (row, _) in rows.items():
            if row != self._rows.get(name):
                self._seen_at[name] = self._clock()  # after the answer: it may have been renewed since we asked
        self._rows = {name: row for name, (row, _) in rows.items()}
        self._listening = {name for name, (_, facts) in rows.items() if name != self._node and facts.bus}
        self._addresses = {name: rows[name][1].bus for name in self._listening if rows[name][0].is_held}
        self._endpoints = {name: facts.endpoint for name, (row, facts) in rows.items() if row.is_held}
        self._figures = {name: facts.figures for name, (_, facts) in rows.items()}
        self._read_at = now
