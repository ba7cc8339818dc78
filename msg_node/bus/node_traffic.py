"""What other nodes of our domain say: messages for runtimes here, and what their own runtimes listen to.

Messages of another node have passed its gates and its checks of the sender; here they are decided like any other, and
go to sessions and links of this node, never on to a third node. There is one exception: when the recipient has moved,
its message goes on once, to where the directory says. What comes to nothing is answered, like at home.

Each node says which keys its sessions and links listen to, so that an event crosses once to each node that has somebody
for it, and to no other. Addresses that an owner holds are not said: they are in the directory. Source: message
specification, sections 20.1 and 20.2.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from federation.links.link_context import Refusal
from msg_node.addresses.core.allocation import is_below_any
from msg_node.addresses.core.observers import SUBSCRIPTION, Observers
from msg_node.addresses.core.subscriptions import Listeners
from msg_node.bus.addresses_of_nodes import AddressesOfNodes
from msg_node.bus.cluster_links import ClusterLinks
from msg_node.bus.core.router import DROP, Decision, Decisions, Deliver, Refuse
from msg_node.bus.core.tables import BusTables
from msg_node.bus.link_places import LinkPlaces
from msg_node.bus.node_questions import NodeQuestions
from msg_node.bus.node_routing import NodeRouting
from msg_node.bus.node_runs import ObjectsHere, RunsOfNodes, RunsToNodes
from msg_node.bus.refusals import Refusals
from msg_node.bus.session_moves import SessionMoves
from msg_node.bus.session_traffic import Destinations
from msg_node.bus.work_moves import WorkMoves
from msg_node.cluster.core.node_contents import (
    ABROAD,
    ACTION,
    ANSWER,
    HEARD,
    LINK_UP,
    MESSAGE,
    QUESTION,
    RESET,
    UNHEARD,
    Passed,
    decode_passed,
    key_content,
    key_of,
)
from msg_node.cluster.core.runs import RUN, RUN_ABROAD
from msg_node.cluster.node_bus import NodeBus
from msg_node.kernel.links import is_node
from msg_node.kernel.resources import Shape, shape_of
from msg_node.kernel.runtime_address import agent_of
from msg_node.requests.core.parked import Sender
from protofly import codec
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message

logger = logging.getLogger("msg_node")


class Interest:
    """The keys with listeners at this node, as announced, and at other nodes, as they announce them.

    Attributes:
        bus: Where it is said; set once, before anything runs.
        on_unheard: Called with a key to which only other nodes listen from now on.
    """

    def __init__(self, state: BusTables) -> None:
        self.on_unheard: Callable[[str], None] = _ignore
        self._state = state
        self._listeners: Listeners = state.listeners
        self._heard_at: dict[str, set[str]] = {}
        self._unsure: set[str] = set()
        self.bus: NodeBus
        state.listeners.index.on_heard = self._changed

    def met(self, node: str, *, is_new: bool) -> None:
        """A node is connected: say everything if it may not know it."""
        if is_new:
            self.reset(node)
        elif node not in self._unsure:
            return
        self._unsure.discard(node)
        self.bus.keep(node, RESET)
        for key in self._listeners.index.heard_here():
            if _is_said(key):
                self.bus.keep(node, key_content(HEARD, key))

    def lost_word(self, node: str) -> None:
        """Something of what was said to a node came back: say everything when it is met again."""
        self._unsure.add(node)

    def reset(self, node: str) -> None:
        """Nobody listens at a node, as far as is known."""
        number = self._state.links.of_node(node)
        for key in self._heard_at.pop(node, ()):
            self._listeners.index.discard(number, key)

    def heard(self, node: str, key: str) -> None:
        """Somebody at a node listens to a key."""
        keys = self._heard_at.setdefault(node, set())
        if key not in keys:
            keys.add(key)
            self._listeners.index.add(self._state.links.of_node(node), key)

    def unheard(self, node: str, key: str) -> None:
        """Nobody at a node listens to a key any more."""
        keys = self._heard_at.get(node, set())
        if key in keys:
            keys.discard(key)
            self._listeners.index.discard(self._state.links.of_node(node), key)

    def _changed(self, key: str, is_heard: bool) -> None:
        if not is_heard and self._listeners.index.targets(key):
            self.on_unheard(key)
        if not _is_said(key):
            return
        content = key_content(HEARD if is_heard else UNHEARD, key)
        for node in self.bus.connected:
            self.bus.keep(node, content)


def _ignore(_key: str) -> None:
    """Nobody remembers anything of it."""


def _is_said(key: str) -> bool:
    """True for keys that more than one node may listen to; an entity itself is listened to by its owner alone.

    A thing, or one of its events, has observers besides its agent.
    """
    return shape_of(key) is not Shape.BASE or (key.startswith("thing://") and agent_of(key) != key)


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The parts of a bus that only one of several nodes has.

    Attributes:
        routing: Finds addresses at other nodes.
        interest: Who listens to what, here and there.
        moves: Sessions that come from other nodes, or go there.
        questions: To other nodes, and of theirs.
        work: Parked requests and reports that follow their recipients.
        places: Which node has the link to which other domain.
        runs: Messages of flows to other nodes.
        addresses: What stubs are shown of all nodes.
    """

    routing: NodeRouting
    interest: Interest
    moves: SessionMoves
    questions: NodeQuestions
    work: WorkMoves
    places: LinkPlaces
    runs: RunsToNodes
    addresses: AddressesOfNodes

    def connect(self, bus: NodeBus) -> None:
        """Set where other nodes are reached; once, before anything runs."""
        self.routing.bus = self.interest.bus = self.questions.bus = self.work.bus = self.places.moves.bus = bus
        self.runs.bus = self.addresses.bus = bus


class NodeTraffic:
    """Takes in what other nodes say; see `NodeBusUser`.

    Args:
        parts: Of one of several nodes.
        observers: Follows who may observe what.
        router: Decides about what is here, and looks nowhere else.
        destinations: Where messages go.
        refusals: Answer what comes to nothing.

    Attributes:
        links: Those of the domain; set once, before anything runs.
    """

    def __init__(
        self,
        state: BusTables,
        parts: NodeParts,
        observers: Observers,
        router: Decisions,
        destinations: Destinations,
        refusals: Refusals,
    ) -> None:
        self._state = state
        self._parts = parts
        self._observers = observers
        self._router = router
        self._runs = RunsOfNodes(state, router, destinations.send_queues, self._route)
        self._refusals = refusals
        self._send_queues = destinations.send_queues
        self._effects = destinations.effects
        self._foreign = destinations.foreign
        self._parked_actions = destinations.parked_actions
        self._requests = destinations.requests
        self.links: ClusterLinks
        parts.interest.on_unheard = self._foreign.heard_elsewhere
        parts.runs.send_queues = destinations.send_queues

    def narrow_by(self, objects: ObjectsHere) -> None:
        """Have the policies of objects here asked about messages of other nodes."""
        self._runs.objects = objects

    def met(self, node: str, *, is_new: bool) -> None:
        """See `NodeBusUser`."""
        logger.info("cluster: node %s is connected", node)
        self._parts.interest.met(node, is_new=is_new)
        self._parts.addresses.met(node)

    def taken(self, node: str, contents: Sequence[bytes]) -> None:
        """See `NodeBusUser`."""
        now = time.time()
        number = self._state.links.of_node(node)
        with self._effects:
            for content in contents:
                try:
                    self._take(node, number, content, now)
                except PeerError as exc:
                    logger.warning("cluster: content of node %s is refused: %s", node, exc)
        self._send_queues.end_turn(now, len(contents))

    def returned(self, node: str, contents: Sequence[bytes]) -> None:
        """See `NodeBusUser`."""
        for content in contents:
            if content[:1] in (QUESTION, ANSWER) or self._link_returned(node, content):
                continue  # who asked waits no longer than a moment
            if content[:1] not in (MESSAGE, ACTION, ABROAD, RUN, RUN_ABROAD):
                self._parts.interest.lost_word(node)
                continue
            for message in self._messages_of(content):
                self.links.requests.returned(message)
                self._parts.routing.forget(message.to_key)
                self._refusals.undelivered(message, Code.NOT_CONNECTED)
        self._send_queues.wake()

    def _messages_of(self, content: bytes) -> list[Message]:
        """The messages of a content that came back."""
        if content[:1] == RUN:
            return self._runs.read(content)
        return self.links.runs.read(content) if content[:1] == RUN_ABROAD else [decode_passed(content).message]

    def _link_returned(self, node: str, content: bytes) -> bool:
        """Take back a content about a link that moves; False if it is none."""
        try:
            return self._parts.places.moves.returned(content)
        except PeerError as exc:
            logger.warning("cluster: node %s has a link in part only: %s", node, exc)
            return True

    async def wait_for_room(self) -> None:
        """See `NodeBusUser`."""
        await self._send_queues.wait_for_room()

    def _take(self, node: str, number: int, content: bytes, now: float) -> None:
        kind = content[:1]
        if kind == RUN:
            self._runs.take(number, content, now)
        elif kind == MESSAGE:
            self._route(decode_passed(content), number, now)
        elif kind == ACTION:
            self._take_action(decode_passed(content), number, now)
        elif kind in (ABROAD, RUN_ABROAD):
            self._take_abroad(content, now)
        elif kind == LINK_UP:
            self._foreign.link_is_live(key_of(content))
        elif kind == HEARD:
            self._parts.interest.heard(node, key_of(content))
        elif kind == UNHEARD:
            self._parts.interest.unheard(node, key_of(content))
        elif kind == RESET:
            self._parts.interest.reset(node)
        elif kind == QUESTION:
            self._parts.questions.asked(node, content)
        elif kind == ANSWER:
            self._parts.questions.answered(content)
        elif not (self._parts.addresses.take(node, content) or self._parts.places.moves.take(node, content)):
            raise PeerError(Code.PROTOCOL_ERROR, "this content is of a newer version")

    def _route(self, passed: Passed, number: int, now: float) -> None:
        """Let a message go on to those who are here."""
        message = passed.message
        if message.is_response:
            self.links.requests.came(message)
            if self._refusals.own_requests.take_answer(message, domain_of(message.from_)):
                return
        elif (
            refusal := self._runs.objects.narrow(message, passed.roles, is_from_abroad=passed.is_from_abroad)
        ) is not None:
            if message.expects_reply:
                value = refusal.value or UNSET
                self._refusals.answer(codec.refusal(message, refusal.code, source=self._refusals.node, value=value))
            return
        try:
            self._follow(message, number)
            pending = self._state.owners.pending
            if pending and is_below_any(message.to_key, pending):
                code = self._wait_for_claim(passed, number)
            else:
                code = self._to_here(passed, self._router.decide(message, number, now, may_park=False), number, now)
        except PeerError as exc:
            code = exc.code
        if code is not None and message.expects_reply:
            self._refusals.answer(codec.refusal(message, code, source=self._refusals.node))

    def _take_abroad(self, content: bytes, now: float) -> None:
        """Send messages over a link of ours; while the link does not keep up, the other node is not read."""
        if content[:1] == RUN_ABROAD:
            domain = self.links.runs.take(content, now, self._send_abroad)
        else:
            passed = decode_passed(content)
            self._send_abroad(passed)
            domain = passed.domain
        if (link := self.links.congested_link(domain)) is not None and not link.is_slow:
            self._send_queues.link_blockers.add(link)

    def _send_abroad(self, passed: Passed) -> bool:
        """Send a message over a link of ours; False if it was refused, and answered."""
        refusal = self.links.forward(passed)
        if refusal is not None:
            self.links.refuse(passed.message, refusal)
        return refusal is None

    def _take_action(self, passed: Passed, number: int, now: float) -> None:
        """Take an action whose recipient is here, or was until now: then it is parked, and goes on to where that is."""
        message = passed.message
        if (
            refusal := self._runs.objects.narrow(message, passed.roles, is_from_abroad=passed.is_from_abroad)
        ) is not None:
            self._refusals.refuse_later(number, message, refusal)
            return
        try:
            sender = Sender(*(passed.sender or ("", "")))
            self._parked_actions.take(message, number, now, roles=passed.roles, sender=sender)
        except PeerError as exc:
            self._refusals.refuse_later(number, message, Refusal(exc.code))

    def _follow(self, message: Message, number: int) -> None:
        """Follow a message by which an observer may come or go; the other node has asked whether it may."""
        is_response = message.type == "response"
        if SUBSCRIPTION in (message.from_ if is_response else message.to):
            self._observers.passes(message, number)
        elif message.type == "unsubscribe":
            resource = canonical_key(codec.body_text(bytes(message.peek.resource)))
            self._observers.take_off(self._state.observer_rights.object_at(resource), message.to_key, by="")
        else:
            return
        self._effects.store_rest()

    def _to_here(self, passed: Passed, decision: Decision, number: int, now: float) -> Code | None:
        message = passed.message
        if type(decision) is not Deliver:
            return self._not_here(passed, decision, number)
        numbers = self._here(message, passed, decision.numbers)
        if not numbers:
            return self._not_here(passed, DROP, number)
        if message.type == "response":
            message = self._requests.came(message)
        code = self._send_queues.to_listeners(numbers, message, self._send_queues.link_blockers, passed.roles)
        if message.type == "delete":
            self._foreign.observed_deletion(message, numbers)
        elif message.peek.guarantee and bytes(message.peek.guarantee) == b'"ack"':
            self._parked_actions.guarantee(message, numbers, now)
        return code

    def _wait_for_claim(self, passed: Passed, number: int) -> Code | None:
        """Who has claimed the recipient here may not get it: ask the directory, which is answered behind that claim."""
        if passed.is_rerouted:
            return Code.NO_ROUTE
        refusal = self._parts.routing.take(passed.message, number, passed.roles)
        return None if refusal is None else refusal.code

    def _here(self, message: Message, passed: Passed, numbers: tuple[int, ...]) -> tuple[int, ...]:
        if passed.is_from_abroad:
            numbers = self._state.guests.without_transit(message.to, numbers)
        return tuple([number for number in numbers if not is_node(number)])

    def _not_here(self, passed: Passed, decision: Decision, number: int) -> Code | None:
        """The recipient has moved, or has ended: pass its message on once, or refuse it."""
        message = passed.message
        if type(decision) is Refuse and decision.code is not Code.NO_ROUTE:
            return decision.code
        if passed.is_rerouted or self._parts.routing.place(message.to_key) == 0:
            return Code.NO_ROUTE
        refusal = self._parts.routing.take(message, number, passed.roles)
        return None if refusal is None else refusal.code
