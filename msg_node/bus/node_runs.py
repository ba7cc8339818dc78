"""Messages of one flow between nodes of one domain: they go, and are routed, as one thing.

A message whose recipient is at another node crosses as one content (`Passed`), is decoded again there and routed by
itself. Messages of a flow go as a run (`msg_node.cluster.core.runs`): the node of their sender has decided about the
flow (`SessionFlows`), and the node of their recipient asks its router once for all of them. What a run does not
take goes the whole way, which stays the definition. See docs/adr/0029.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from federation.links.link_context import Refusal
from msg_node.addresses.core.allocation import is_below_any
from msg_node.addresses.core.observers import SUBSCRIPTION
from msg_node.bus.core.router import Decisions, Deliver
from msg_node.bus.core.tables import BusTables
from msg_node.bus.send_queues import SendQueues
from msg_node.cluster.core.node_contents import Passed
from msg_node.cluster.core.runs import HEADS_KNOWN, RunHead, RunReader, encode_run
from msg_node.cluster.node_bus import NodeBus
from msg_node.kernel.congestion import Congestible
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.links import NODES, node_name
from protofly.address import domain_of
from protofly.errors import PeerError
from protofly.message import Message

RUN_BYTES: Final = 256 << 10
"""Most of a run. A longer message goes the whole way."""
_NOTED: Final = frozenset({"response", "subscribe", "unsubscribe", "delete", "forward"})
"""Types of which more is looked at than where they go."""


def goes_in_runs(type_: str, to: str) -> bool:
    """True if nothing but its destination has to be known about a message without members that a node reads."""
    return type_ not in _NOTED and SUBSCRIPTION not in to and not to.startswith("domain://")


class ObjectsHere(Protocol):
    """Asks the policies of objects of this node about messages that the gates of another node let pass."""

    def concerns(self, message: Message) -> bool:
        """False for a message about which they say nothing."""

    def narrow(self, message: Message, roles: frozenset[str], *, is_from_abroad: bool) -> Refusal | None:
        """Return the denial of a message by the policies of objects here; None if it passes."""


class NoObjects:
    """No object has a policy."""

    def concerns(self, message: Message) -> bool:  # noqa: ARG002
        """See `ObjectsHere`."""
        return False

    def narrow(self, message: Message, roles: frozenset[str], *, is_from_abroad: bool) -> Refusal | None:  # noqa: ARG002
        """See `ObjectsHere`."""
        return None


class RunsToNodes:
    """Sends messages of flows to other nodes.

    Args:
        state: Names the nodes, and says which domains are ours.

    Attributes:
        bus: Where they are reached; set once, before anything runs.
        send_queues: Count what is delivered; set once, before anything runs.
        name: What stands for the node with a number in place of a domain.
    """

    def __init__(self, state: BusTables) -> None:
        self.name = state.links.domain
        self._domains = state.domains
        self._heads: dict[tuple[object, ...], bytes] = {}
        self.bus: NodeBus
        self.send_queues: SendQueues

    def send(self, number: int, run: Sequence[Message], roles: frozenset[str] = frozenset()) -> int:
        """Queue messages of one flow for the node with a number.

        Returns:
            How many were taken. The next one is for `SendQueues.to_listeners`, which says why it is not taken either.
        """
        bus, node = self.bus, node_name(self.name(number))
        if node not in bus.connected:
            return 0
        part = fitting(run)
        if not part or bus.send(node, encode_run(self.head(run[0], roles), part)) is not None:
            return 0
        self.send_queues.counters[NodeCount.DELIVERED] += len(part)
        return len(part)

    def blocker(self, number: int) -> Congestible | None:
        """Those who wait for a node, if senders should pause for it."""
        senders = self.bus.congested(node_name(self.name(number)))
        return None if senders is None or senders.is_slow else senders

    def head(self, like: Message, roles: frozenset[str]) -> bytes:
        """The bytes with which a run of messages like this one begins."""
        key = like.type, like.from_, like.to, like.verdict, roles
        head = self._heads.get(key)
        if head is None:
            sender = domain_of(like.from_)
            is_from_abroad = sender != "" and sender not in self._domains
            head = RunHead(like.type, like.from_, like.to, roles, is_from_abroad, like.verdict).encode()
            if len(self._heads) >= HEADS_KNOWN:
                self._heads.clear()
            self._heads[key] = head
        return head


def fitting(run: Sequence[Message]) -> Sequence[Message]:
    """The first messages of a flow, as many as go in one run."""
    size_bytes = 0
    for index, message in enumerate(run):
        size_bytes += len(message.raw)
        if size_bytes > RUN_BYTES:
            return run[:index]
    return run


class NodeWay:
    """The way of one flow of a session to another node, in the place of an `OutwardFlow`.

    Args:
        number: Of the node.
        roles: Those of the session.
    """

    is_current = True
    """The router says where the recipient is."""

    def __init__(self, runs: RunsToNodes, number: int, roles: frozenset[str]) -> None:
        self._runs, self._number, self._roles = runs, number, roles

    @property
    def sent(self) -> int:
        """Messages that this node has given to somebody."""
        return self._runs.send_queues.counters[NodeCount.DELIVERED]

    def send(self, messages: list[Message], now: float) -> int:  # noqa: ARG002  of `OutwardFlow`
        """See `OutwardFlow.send`."""
        return self._runs.send(self._number, messages, self._roles)

    def difference(self, message: Message, sent: int) -> str:
        """See `OutwardFlow.difference`."""
        runs = self._runs
        if self.sent != sent + 1:
            return "" if runs.bus.congested(node_name(runs.name(self._number))) is not None else "it was not sent"
        head, [arrived] = RunReader().read(encode_run(runs.head(message, self._roles), [message]))
        if head.roles != self._roles:
            return f"roles are {sorted(self._roles)}, and would be {sorted(head.roles)}"
        return "" if arrived == message else "it would arrive in another way"


class RunsOfNodes:
    """Takes runs of other nodes.

    Asked again here, once for each run, is what only this node knows: whether the recipient is here, and may have what
    it claims; whether it is a single runtime; what has room in its queue. Gates, rates, the right to the sender's
    address, JSON and its depth are not asked again: the node that the sender is connected to has done so, and proved
    that it is one of ours.

    Args:
        router: Decides about what is here, and looks nowhere else.
        take_one: Takes a message that goes the whole way.

    Attributes:
        objects: What it concerns goes the whole way.
    """

    def __init__(
        self,
        state: BusTables,
        router: Decisions,
        send_queues: SendQueues,
        take_one: Callable[[Passed, int, float], None],
    ) -> None:
        self._pending = state.owners.pending
        self._guests = state.guests
        self._router = router
        self._send_queues = send_queues
        self._take_one = take_one
        self.objects: ObjectsHere = NoObjects()
        self._reader = RunReader()

    def take(self, number: int, content: bytes, now: float) -> None:
        """Take a run of the node with a number; `now` is seconds since the Unix epoch. Raises PeerError."""
        head, messages = self._reader.read(content)
        if not messages:
            return
        taken = self._take_run(number, head, messages, now)
        for message in messages[taken:]:
            self._take_one(Passed(message, head.roles, head.is_from_abroad), number, now)

    def read(self, content: bytes) -> list[Message]:
        """The messages of a run that came back. Raises PeerError."""
        return self._reader.read(content)[1]

    def _take_run(self, number: int, head: RunHead, messages: list[Message], now: float) -> int:
        like = messages[0]
        if not goes_in_runs(head.type, head.to) or self.objects.concerns(like):
            return 0
        try:
            if self._pending and is_below_any(like.to_key, self._pending):
                return 0
            decision = self._router.decide(like, number, now, may_park=False)
        except PeerError:
            return 0
        if type(decision) is not Deliver:
            return 0
        numbers = decision.numbers
        if head.is_from_abroad:
            numbers = self._guests.without_transit(head.to, numbers)
        if len(numbers) != 1 or numbers[0] <= NODES:
            return 0
        queues, number = self._send_queues, numbers[0]
        taken = queues.run_to_listener(number, messages)
        if (blocker := queues.congested(number)) is not None:
            queues.link_blockers.add(blocker)
        return taken
