"""Messages of one flow for another domain, whose link another node of ours has: they go there as one thing.

The node of the sender has decided about the flow (`SessionFlows`); the node with the link judges it, and keeps what was
decided about it as it does for flows of its own sessions (`OutwardFlow`). What a run does not take goes the whole way,
message by message, and so does everything for a node of a version that knows no such runs. Runs go by the same
connection as single messages and marks, so they keep the order. See docs/adr/0029 and 0039.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federation.core.transactions import ONE_REPLY, tracking_of
from msg_node.bus.link_places import LinkPlaces
from msg_node.bus.node_runs import fitting
from msg_node.bus.requests_elsewhere import RequestsElsewhere
from msg_node.bus.send_queues import Links
from msg_node.bus.session_flow import Outward
from msg_node.cluster.core.handshake import RUNS_ABROAD
from msg_node.cluster.core.node_contents import MOVES, Passed
from msg_node.cluster.core.runs import HEADS_KNOWN, RunHead, RunReader, abroad_head, cut_abroad, encode_run
from msg_node.cluster.node_bus import NodeBus
from protofly.forwarding import FORWARD
from protofly.message import Message

SendOne = Callable[[Passed], bool]
"""Sends one message the whole way, and answers it if that fails; True if it was taken."""
_AT_ONCE: Final = 2
"""A flow is made for a run of so many messages: for a single one it costs more than it saves."""


class RunsAbroad:
    """Sends messages of flows to nodes with links, and takes those of other nodes.

    Args:
        links: Those of this node.
        node_bus: That between our nodes.
        places: Which node has which link.
        requests: Those that other nodes have.

    Attributes:
        sent: Messages that this node has passed on to nodes with links, in runs or one by one.
    """

    def __init__(self, links: Links, node_bus: NodeBus, places: LinkPlaces, requests: RequestsElsewhere) -> None:
        self._links = links
        self.bus = node_bus
        self._places = places
        self.requests = requests
        self.sent = 0
        self._reader = RunReader()
        self._flows: dict[tuple[str, RunHead], Outward] = {}

    def node_of(self, domain: str) -> str:
        """The other node that takes runs for a domain, "" if there is none."""
        node = self._places.node_of(domain)
        return node if node != self._places.node and self.bus.is_able(node, RUNS_ABROAD) else ""

    def way(self, domain: str, message: Message, roles: frozenset[str]) -> Outward | None:
        """The way of the flow of a message that was just passed on; None: each is passed on by itself."""
        node = self.node_of(domain)
        return WayAbroad(self, node, domain, message, roles) if node and message.type != FORWARD else None

    def take(self, content: bytes, now: float, send_one: SendOne) -> str:
        """Send a run of another node, or pass it on to where the link went; `now` is seconds since the Unix epoch.

        Returns:
            The domain.

        Raises:
            PeerError: PROTOCOL_ERROR; then none of its messages is taken.
        """
        domain, moves, run = cut_abroad(content)
        head, messages = self._reader.read(run)
        place = self._places.place_of_mark(domain)
        is_here = place == self._places.node
        if is_here and domain not in self._places.held:
            self._send(domain, head, messages, now, send_one)
        elif is_here or moves >= MOVES or not self._pass_on(place, abroad_head(domain, moves + 1) + run):
            for message in messages:
                send_one(Passed(message, head.roles, domain=domain, moves=moves))
        return domain

    def _pass_on(self, node: str, content: bytes) -> bool:
        return self.bus.is_able(node, RUNS_ABROAD) and self.bus.send(node, content) is None

    def read(self, content: bytes) -> list[Message]:
        """The messages of a run that came back. Raises PeerError."""
        return self._reader.read(cut_abroad(content)[2])[1]

    def _send(self, domain: str, head: RunHead, messages: list[Message], now: float, send_one: SendOne) -> None:
        key = domain, head
        flow, done, many = self._flows.get(key), 0, len(messages)
        if (flow is None or not flow.is_current) and many >= _AT_ONCE:
            self._flows.pop(key, None)
            is_taken = send_one(Passed(messages[0], head.roles, domain=domain))
            flow, done = self._links.flow(domain, messages[0], head.roles) if is_taken else None, 1
            if flow is not None:
                self._keep(key, flow)
        while done < many:
            taken = flow.send(messages[done:], now) if flow is not None and flow.is_current else 0
            if not taken:
                send_one(Passed(messages[done], head.roles, domain=domain))
            done += taken or 1

    def _keep(self, key: tuple[str, RunHead], flow: Outward) -> None:
        if len(self._flows) >= HEADS_KNOWN:
            self._flows.clear()
        self._flows[key] = flow


class WayAbroad:
    """The way of one flow of a session to the node with the link, in the place of an `OutwardFlow`.

    Args:
        node: The one with the link.
        like: A message of the flow.
        roles: Those of the session.
    """

    def __init__(self, runs: RunsAbroad, node: str, domain: str, like: Message, roles: frozenset[str]) -> None:
        self._runs, self._node, self._domain = runs, node, domain
        head = RunHead(like.type, like.from_, like.to, roles, verdict=like.verdict)
        self._head, self._start = head, abroad_head(domain, 0) + head.encode()
        self._is_tracked = tracking_of(like) is ONE_REPLY

    @property
    def is_current(self) -> bool:
        """True while the link is at that node, and it takes runs."""
        return self._runs.node_of(self._domain) == self._node

    @property
    def sent(self) -> int:
        """Messages that were passed on."""
        return self._runs.sent

    def send(self, messages: list[Message], now: float) -> int:  # noqa: ARG002  of `Outward`
        """See `OutwardFlow.send`."""
        runs = self._runs
        run = fitting(messages)
        if not run or runs.bus.send(self._node, encode_run(self._start, run)) is not None:
            return 0
        runs.sent += len(run)
        for message in run if self._is_tracked else ():
            runs.requests.went(message)
        return len(run)

    def difference(self, message: Message, sent: int) -> str:
        """See `OutwardFlow.difference`."""
        if self.sent != sent + 1:
            return "" if self._runs.bus.congested(self._node) is not None else "it was not sent"
        domain, _, run = cut_abroad(encode_run(self._start, [message]))
        head, [arrived] = RunReader().read(run)
        if (domain, head) != (self._domain, self._head):
            return f"it is {head} for {domain}, and would be {self._head} for {self._domain}"
        return "" if arrived == message else "it would arrive in another way"
