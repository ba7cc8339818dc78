"""Parked requests and reports follow their recipients to the node of the domain that has them now.

Each node looks at the recipients of what waits here and have no session here: it asks the directory about some of them
at a time, again and again, and gives what waits to the node that has claimed them (`MovedWork`). A look costs one
question, however many wait, and nothing at all while nobody is away. Source: message specification, section 19.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import trio

from msg_node.bus.core.tables import BusTables
from msg_node.bus.link_claims import link_key
from msg_node.bus.link_places import LinkPlaces
from msg_node.cluster.directory import Claim, Directory
from msg_node.cluster.node_bus import NodeBus
from msg_node.kernel.changes import Table
from msg_node.requests.core.moved_work import MovedWork
from msg_node.requests.core.recipients import is_domain
from msg_node.requests.parked_actions import ParkedActions
from protofly.errors import HostError

logger = logging.getLogger("msg_node")

LOOK_SECONDS: Final = 0.5
LOOKED_AT_ONCE: Final = 2_000
"""So a recipient among 40,000 that are away is found within ten seconds."""
RETRY_SECONDS: Final = 1.0

ReadShared = Callable[[Table], Mapping[str, bytes]]
"""Reads the rows of a table of the domain. Blocks. Raises HostError."""


class WorkMoves:
    """Gives work to other nodes, and takes in what they give.

    Args:
        node: The name of this node.
        state: What waits here, and for whom.
        directory: Who has whom.
        read: See `ReadShared`.
        places: Which node has the link to another domain, and with it what is parked for that.

    Attributes:
        bus: Which nodes are there; set once, before anything runs.
    """

    def __init__(self, node: str, state: BusTables, directory: Directory, read: ReadShared, places: LinkPlaces) -> None:
        delivery = state.delivery
        self._node = node
        self._state = state
        self._parking = delivery.parking
        self._inboxes = delivery.inboxes
        self._directory = directory
        self._read = read
        self._moved = MovedWork(node, delivery.journal, delivery.parking, delivery.inboxes)
        self._taken: set[str] = set()  # keys of given rows, until they are seen to be gone
        self._round: list[str] = []
        self._given = trio.Event()
        self._given.set()  # before this process began
        self._actions: ParkedActions
        self._places = places
        self.bus: NodeBus

    def connect(self, actions: ParkedActions) -> None:
        """Set who goes on with what is taken in; once, before anything runs."""
        self._actions = actions

    def heard(self, tables: Collection[str] | None) -> None:
        """Rows of some tables of the domain have changed; None: perhaps of all."""
        if tables is None or not {Table.GIVEN_PARKED.value, Table.GIVEN_INBOX.value}.isdisjoint(tables):
            self._given.set()

    async def run(self) -> None:
        """Give and take until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_giving)
            nursery.start_soon(self._keep_taking)

    # Giving.

    async def _keep_giving(self) -> None:
        while True:
            await trio.sleep(LOOK_SECONDS)
            try:
                await self._give_some()
            except HostError as exc:
                logger.warning("cluster: the directory does not say for whom work waits here: %s", exc)

    async def _give_some(self) -> None:
        if not self._round:
            self._round = [*self._parking.queues.names(), *self._inboxes.owners()]
        some, self._round = self._round[:LOOKED_AT_ONCE], self._round[LOOKED_AT_ONCE:]
        recipients = {name: keys for name in dict.fromkeys(some) if (keys := self._away(name))}
        if not recipients:
            return
        claims = await self._directory.find({key for keys in recipients.values() for key in keys})
        now, count = time.time(), 0
        for name, keys in recipients.items():
            node = self._other_node(keys, claims)
            if node and self._away(name) == keys:
                count += self._moved.give_requests(name, node, now) + self._moved.give_reports(name, node, now)
        if count:
            logger.info("cluster: %d parked requests and reports go to the nodes of their recipients", count)
            self._actions.recorder.commit()

    def _away(self, name: str) -> tuple[str, ...]:
        """The keys under which others may have somebody for whom work waits here; none while that is for us.

        A report is for who has the address in whose name it was sent, and else for the runtime that sent it.
        """
        if is_domain(name):
            return () if self._places.has(name) else (link_key(name),)
        if self._state.owners.owner(name) is not None:
            return ()
        reports = self._inboxes.of_owner(name)
        if not reports:
            return (name,)
        runtime_key = reports[0].sender.runtime_key
        return () if self._state.sessions.by_runtime(runtime_key) is not None else (name, runtime_key)

    def _other_node(self, keys: Iterable[str], claims: Mapping[str, Claim]) -> str:
        claim = next((claims[key] for key in keys if key in claims), None)
        return claim.node if claim is not None and claim.node in self.bus.connected else ""

    # Taking.

    async def _keep_taking(self) -> None:
        while True:
            await self._given.wait()
            self._given = trio.Event()
            try:
                requests = await trio.to_thread.run_sync(self._read, Table.GIVEN_PARKED)
                reports = await trio.to_thread.run_sync(self._read, Table.GIVEN_INBOX)
                self._take(requests, reports)
            except HostError as exc:
                logger.error("cluster: work that was given to this node cannot be read; trying again: %s", exc)
                self._given.set()
                await trio.sleep(RETRY_SECONDS)

    def _take(self, requests: Mapping[str, bytes], reports: Mapping[str, bytes]) -> None:
        now, known, actions = time.time(), self._taken, self._actions
        queues = self._moved.take_requests({key: row for key, row in requests.items() if key not in known}, now)
        owners = self._moved.take_reports({key: row for key, row in reports.items() if key not in known})
        self._taken = requests.keys() | reports.keys()
        actions.recorder.commit()
        actions.is_used = actions.is_used or len(self._parking) > 0
        actions.outbox.restore()
        for queue in queues:
            actions.agents.hand_over(queue, now)
        actions.recorder.senders.notify_inboxes(owners)
        actions.recorder.commit()
