"""Links to other domains and to the other nodes of our own, for those who send over links.

A node of our own stands in place of a domain under its name with a mark (`msg_node.kernel.links.node_name`). What is
for another domain goes to the node that has its link (`msg_node.bus.link_places`); until that is known it waits,
bounded per sender. Source: design, section 6.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from zlib import crc32

import msgspec
import trio

from federation.links.link_context import Refusal
from msg_node.bus.core.awaited_places import AwaitedPlaces, WaitingMessage
from msg_node.bus.core.tables import BusTables
from msg_node.bus.link_places import LinkPlaces
from msg_node.bus.refusals import Refusals
from msg_node.bus.requests_elsewhere import RequestsElsewhere
from msg_node.bus.runs_abroad import RunsAbroad
from msg_node.bus.send_queues import Links
from msg_node.bus.session_flow import Outward
from msg_node.cluster.core.node_contents import LINK_UP, MOVES, Passed, key_content
from msg_node.cluster.node_bus import NodeBus
from msg_node.kernel.congestion import Congestible
from msg_node.kernel.links import node_name
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, HostError
from protofly.lifetime import aged
from protofly.message import Message

_NO_ROLES: frozenset[str] = frozenset()
_SETTLED: Final = True
LOOK_SECONDS: Final = 1.0


Permits = Callable[[str, Message], Refusal | None]
"""A refusal when we do not talk to the domain that a message is for: then its link is not looked for."""


class ClusterLinks:
    """Sends over links of both kinds.

    Args:
        links: Those to other domains.
        node_bus: That between our nodes.
        state: Which session speaks for an address, and which domains are ours.
        places: Which node has which link.
        refusals: Answer what waited in vain.
        permits: See `Permits`.

    Attributes:
        requests: Those that other nodes have.
        runs: Messages of flows to nodes with links, and of those to links of ours.
    """

    def __init__(
        self,
        links: Links,
        node_bus: NodeBus,
        state: BusTables,
        places: LinkPlaces,
        refusals: Refusals,
        permits: Permits,
    ) -> None:
        self._links = links
        self._node_bus = node_bus
        self._state = state
        self._domains = state.domains
        self._places = places
        self._refusals = refusals
        self._permits = permits
        self._waiting: AwaitedPlaces[bool] = AwaitedPlaces()
        self.clock: Callable[[], float] = time.monotonic
        self.requests = RequestsElsewhere(lambda key: bool(state.holders.speaker_of(key)), lambda: self.clock())
        self.runs = RunsAbroad(links, node_bus, places, self.requests)
        places.on_settled = self._settled

    async def run(self) -> None:
        """Answer requests that a node took along when it died, until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            for request in self.requests.overdue():
                self.refuse(request, Refusal(Code.GATEWAY_TIMEOUT))
            self._refusals.send_queues.wake()

    def send(self, domain: str, message: Message, roles: frozenset[str] = _NO_ROLES) -> Refusal | None:
        """See `OutboundLinks`."""
        if self._places.has(domain):
            return self._links.send(domain, message, roles)
        node = node_name(domain)
        if node:
            origin = self._sender_of(message) if message.is_action and not self._is_from_abroad(message) else None
            return self._pass_on(node, Passed(message, roles, self._is_from_abroad(message), sender=origin))
        return self._send_elsewhere(domain, message, roles)

    def forward(self, passed: Passed) -> Refusal | None:
        """Send what another node of ours has for another domain, whose link it believes here."""
        domain = passed.domain
        place = self._places.place_of_mark(domain)
        is_here = place == self._places.node
        if is_here and not passed.moves and domain in self._places.held:
            waiting = self._waits(passed.message, passed.roles, -1 - crc32(passed.message.from_key.encode()))
            if self._waiting.has_room(waiting):  # else it may overtake, which is better than to be lost
                self._waiting.wait(domain, waiting)
                return None
        if is_here:
            return self._links.send(domain, passed.message, passed.roles)
        if passed.moves >= MOVES:
            return Refusal(Code.NOT_CONNECTED)  # it goes no further: nodes do not know yet where the link is
        if place:  # before anything that waits here: it was sent before that, when the link was here
            return self._pass_on(place, replace(passed, moves=passed.moves + 1))
        return self._send_elsewhere(domain, passed.message, passed.roles)

    def flow(self, domain: str, message: Message, roles: frozenset[str]) -> Outward | None:
        """See `Links`: what goes to the node with the link is judged there."""
        if self._places.has(domain):
            return self._links.flow(domain, message, roles)
        return self.runs.way(domain, message, roles)

    def reach(self, domain: str, message: Message, roles: frozenset[str]) -> Refusal | None:
        """See `OutboundLinks`. Where another node has the link, what is kept here goes there (`WorkMoves`)."""
        if node_name(domain):
            return None
        if self._places.has(domain):
            return self._links.reach(domain, message, roles)
        refusal = self._permits(domain, message)
        if refusal is None:
            self._places.look_again(domain)
        return refusal

    def is_live(self, domain: str) -> bool:
        """See `OutboundLinks`; a link that another node has is not up here."""
        node = node_name(domain)
        if node:
            return node in self._node_bus.connected
        return self._places.has(domain) and self._links.is_live(domain)

    def congested_link(self, domain: str) -> Congestible | None:
        """See `Links`."""
        node = node_name(domain) or self._places.node_of(domain)
        if not node or self._places.has(domain):
            return self._links.congested_link(domain)
        return self._node_bus.congested(node)

    def flush(self) -> None:
        """See `Links`."""
        self._links.flush()
        self._node_bus.flush()

    def _send_elsewhere(self, domain: str, message: Message, roles: frozenset[str]) -> Refusal | None:
        node = self._places.node_of(domain)
        if not node:
            return self._wait(domain, message, roles)
        refusal = self._pass_on(node, Passed(message, roles, domain=domain))
        if refusal is None:
            self.runs.sent += 1
            self.requests.went(message)
        elif refusal.code is Code.NOT_CONNECTED:
            self._places.look_again(domain)
        return refusal

    def stop_waiting(self, code: Code) -> None:
        """Answer the requests that other nodes have and that have no reply yet: this node stops."""
        for request in self.requests.abandon():
            self.refuse(request, Refusal(code))

    def _pass_on(self, node: str, passed: Passed) -> Refusal | None:
        code = self._node_bus.send(node, passed.encode())
        return None if code is None else Refusal(code)

    def _wait(self, domain: str, message: Message, roles: frozenset[str]) -> Refusal | None:
        """Keep a message until it is known which node has the link."""
        refusal = self._permits(domain, message)
        if refusal is not None:
            return refusal
        sid = self._state.holders.speaker_of(message.from_key) or 0
        waiting = self._waits(message, roles, sid)
        if not self._waiting.has_room(waiting):
            return Refusal(Code.OVERLOAD)
        if self._waiting.wait(domain, waiting):
            self._places.want(domain)
        return None

    def _waits(self, message: Message, roles: frozenset[str], number: int) -> WaitingMessage:
        return WaitingMessage(message, number, roles, self.clock())

    def _settled(self, domain: str, error: HostError | None) -> None:
        """Send what waited, or refuse it."""
        for waiting in self._waiting.conclude(domain, _SETTLED, 0.0):
            message = aged(waiting.message, self.clock() - waiting.since)
            if message is None:
                refusal: Refusal | None = Refusal(Code.TIMEOUT)
            elif error is not None:
                refusal = Refusal(error.code)
            else:
                refusal = self.send(domain, message, waiting.roles)
            if refusal is not None:
                self.refuse(waiting.message, refusal)
        self._refusals.send_queues.wake()

    def refuse(self, message: Message, refusal: Refusal) -> None:
        """Answer a message that was taken and came to nothing, wherever its sender is."""
        if message.expects_reply:
            value = msgspec.UNSET if refusal.value is None else refusal.value
            node, detail = self._refusals.node, refusal.detail
            self._refusals.answer(codec.refusal(message, refusal.code, source=node, value=value, detail=detail))

    def announce(self, domain: str) -> None:
        """Have other nodes know that a link is up (again): the other domain may have forgotten what they listen to."""
        for node in self._node_bus.connected:
            self._node_bus.keep(node, key_content(LINK_UP, domain))

    def _is_from_abroad(self, message: Message) -> bool:
        sender = domain_of(message.from_)
        return sender != "" and sender not in self._domains

    def _sender_of(self, message: Message) -> tuple[str, str] | None:
        """Runtime and credential of the session that an action comes from."""
        session = self._state.sessions.get(self._state.holders.speaker_of(message.from_key) or 0)
        return None if session is None else (session.runtime_key, session.proof.credential)
