"""Messages of runtimes: each is decoded, admitted, decided and performed, a batch at a time.

A batch is what one read has brought. It comes in as one plain call; each message goes to the queues of its
destinations, and once per scheduler round each destination gets one write. Order holds per sender and receiver; what
cannot be delivered is answered. The clock is read once per batch. Source: design, section 3; message specification,
section 20.2.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from federation.links.guest_border import DeniedError, GuestBorder
from federation.links.link_context import Refusal
from msg_node.addresses.core.observers import SUBSCRIPTION, Observers
from msg_node.addresses.foreign_objects import ForeignObjects
from msg_node.bus.core.admission import Admission
from msg_node.bus.core.draining_router import DrainingRouter
from msg_node.bus.core.fenced_router import fenced
from msg_node.bus.core.router import (
    DROP,
    FIND_NODE,
    FIND_USER,
    SERVE,
    SOMEWHERE,
    Decision,
    Deliver,
    Park,
    Refuse,
    ToDomain,
    here_only,
    parked,
)
from msg_node.bus.core.tables import BusTables
from msg_node.bus.effects import Effects
from msg_node.bus.middleware import Stack
from msg_node.bus.node_routing import NodeRouting
from msg_node.bus.own_requests import OwnRequests
from msg_node.bus.refusals import Refusals
from msg_node.bus.runtime_port import RuntimePort
from msg_node.bus.runtimes import Runtimes
from msg_node.bus.send_queues import SendQueues
from msg_node.bus.session_flows import SessionFlows
from msg_node.bus.user_routing import UserRouting
from msg_node.kernel.answers import validator_reply
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.resources import SESSION_KEY
from msg_node.registries.core.twin_service import keep_value
from msg_node.requests.local_requests import LocalRequests
from msg_node.requests.parked_actions import ParkedActions
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import BROKEN_FRAMES_IN_A_ROW, POLICY_REDIRECTS
from protofly.message import Message
from wire.core.websocket import PROTOCOL_ERROR

TURN_SECONDS = 0.005
_BEGINS_SESSION_KEY = frozenset({"", " ", "m", "M"})
"""With one of these begins what may have `SESSION_KEY` as its canonical key, in any spelling."""


@dataclass(frozen=True, slots=True)
class Destinations:
    """The destinations of messages: runtimes and links, services, a queue, a user that is to be found.

    Attributes:
        effects: Serve requests to the node itself.
        requests: Requests between sessions that wait for an answer.
        nodes: Finds addresses at other nodes, for one of several.
    """

    send_queues: SendQueues
    effects: Effects
    parked_actions: ParkedActions
    foreign: ForeignObjects
    own_requests: OwnRequests
    users: UserRouting
    requests: LocalRequests
    nodes: NodeRouting | None = None


class SessionDelivery:
    """Performs what the router decided about messages of sessions.

    Args:
        stack: What each message passes first.
        node: Address of this node, named as the source of receipts.
    """

    def __init__(self, state: BusTables, destinations: Destinations, stack: Stack, *, node: str) -> None:
        self._state = state
        self._twin = state.twin
        self.judge = stack.judge
        """Asked about each message before it is delivered; None: nobody is."""
        self._node = node
        self._send_queues = destinations.send_queues
        self._to_listeners = destinations.send_queues.to_listeners
        self._effects = destinations.effects
        self._parked_actions = destinations.parked_actions
        self._foreign = destinations.foreign
        self._users = destinations.users
        self._nodes = destinations.nodes
        self._requests = destinations.requests

    def answers_action(self, message: Message, sid: int) -> bool:
        """Take a response of a session that answers an action which waits here; False when it is anything else."""
        return self._parked_actions.is_used and self._parked_actions.answered(message, sid)

    def perform(self, port: RuntimePort, message: Message, decision: Decision, now: float) -> Refusal | None:
        """Hand a message to its destination.

        Args:
            port: The connection that it came from, with a session.
            message: It has been admitted, and is no answer to an action (`answers_action`).
            decision: Of the router.
            now: Seconds since the Unix epoch.

        Returns:
            A refusal, which is the caller's to answer; None when the message was taken.

        Raises:
            PeerError: Why the message is refused.
        """
        sid = port.sid
        assert sid is not None
        judge = self.judge
        if judge is not None:
            refusal = judge(message, sid, port.roles, _domain_of(decision), now)
            if refusal is not None:
                return refusal
        if self._twin.watches:
            keep_value(self._state, message, sid, now)
        if decision is SERVE:
            answer = partial(self._send_queues.enqueue_reply, port) if port.guest_of else port.answer
            self._effects.serve(message, sid, answer, now)
            return None
        if type(decision) is ToDomain:
            return self._to_domain(message, decision, sid, port)
        refusal = None
        if type(decision) is Deliver:
            refusal = self._to_sessions(message, decision.numbers, sid, port, now)
        elif decision is not DROP:
            return self._to_node(message, decision, sid, port, now)
        if refusal is None and message.wants_receipt:  # abroad, the link says when the far end has it
            self._send_queues.enqueue(port, codec.response(message, 200, extra={"source": self._node}))
        return refusal

    def _to_sessions(
        self, message: Message, numbers: tuple[int, ...], sid: int, port: RuntimePort, now: float
    ) -> Refusal | None:
        """Queue for those who listen here, sessions and links."""
        if message.type == "response" and self._requests:
            message = self._requests.came(message)
        code = self._to_listeners(numbers, message, port.blockers, port.roles)
        if message.type == "delete":
            self._foreign.observed_deletion(message, numbers)
        elif message.peek.guarantee and bytes(message.peek.guarantee) == b'"ack"':
            self._parked_actions.guarantee(message, numbers, now, sender=sid)
        if code is not None:
            return Refusal(code)
        if message.peek.ttl:
            self._requests.sent(message, sid)
        return None

    def _to_domain(self, message: Message, decision: ToDomain, sid: int, port: RuntimePort) -> Refusal | None:
        """Queue for another domain, and for those of us who listen as well, if there are any."""
        domain = decision.domain
        if message.to.startswith("domain://msg-node."):
            if message.to_key.endswith("/sm") and message.type in ("subscribe", "unsubscribe"):
                self._foreign.request(message, domain, sid)
                return None
            if message.to_key.endswith("address-allocation"):
                return Refusal(Code.TRANSIT)  # addresses of our hyperties come from us; specification, section 18.4
        refusal = self._send_queues.links.send(domain, message, port.roles)
        if refusal is None:
            link = self._send_queues.links.congested_link(domain)
            if link is not None:
                port.blockers.add(link)
            if decision.numbers:
                self._to_listeners(decision.numbers, message, port.blockers, port.roles)
        return refusal

    def _to_node(self, message: Message, decision: Decision, sid: int, port: RuntimePort, now: float) -> Refusal | None:
        """Let the node itself see to a message that is for no service: park it, find its user, or refuse it."""
        if type(decision) is Park:
            self._parked_actions.take(message, sid, now, roles=port.roles)
        elif decision is FIND_USER:
            return self._users.take(message, sid, port.roles)
        elif decision is FIND_NODE and self._nodes is not None:
            return self._nodes.take(message, sid, port.roles)
        elif type(decision) is Refuse:
            return Refusal(decision.code, decision.value)
        return None


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of messages of sessions before the router decides."""

    admission: Admission
    guests: GuestBorder
    observers: Observers


class SessionTraffic:
    """Takes in what runtimes send.

    Args:
        checks: Asked about each message.
        flows: Take what is like messages before; their router decides about the rest.
        delivery: Performs decisions.
        refusals: Answers what is refused.
        runtimes: Serves requests about sessions.

    Attributes:
        guests: Judges what runtimes of other domains send.
    """

    def __init__(
        self,
        checks: Checks,
        flows: SessionFlows,
        delivery: SessionDelivery,
        refusals: Refusals,
        runtimes: Runtimes,
        effects: Effects,
    ) -> None:
        self._admission = checks.admission
        self.guests = checks.guests
        self._observers = checks.observers
        self._flows = flows
        self._delivery = delivery
        self._refuse = refusals.refuse
        self._runtimes = runtimes
        self._effects = effects
        self._send_queues = refusals.send_queues
        self._counters = refusals.send_queues.counters

    def refuse_requests(self, retry_seconds: float) -> None:
        """The node stops: refuse new requests from now on."""
        self._flows.router = DrainingRouter(self._flows.router, retry_seconds)

    def judge_by(self, stack: Stack) -> None:
        """Have other steps asked from the next message on."""
        self._delivery.judge = stack.judge
        self._flows.judge_by(stack)

    def fence(self, retry_seconds: float | None) -> None:
        """Refuse what promises anything; with None, go on."""
        self._flows.router = fenced(self._flows.router, retry_seconds)

    def take(self, port: RuntimePort, frames: list[bytes]) -> int:
        """Route what one read brought.

        Returns:
            How many frames were taken. Fewer than there are: the port is closing; or a receiver is congested, and the
            rest is for `wait_for_port` to wait with, so that a flood finds its bound at its source; or it is time that
            others have their turn, since some requests cost as much as a thousand messages.
        """
        now = self._effects.now()
        port.heard(now)
        queue = port.queue
        with self._effects:
            taken = self._take_turn(port, frames, now)
        if queue.is_congested and not queue.is_slow:
            port.blockers.add(queue)  # by the answers to what it asked, which it has to read first
        self._counters[NodeCount.FRAMES_IN] += taken
        self._send_queues.end_turn(now, taken)
        return taken

    def _take_turn(self, port: RuntimePort, frames: list[bytes], now: float) -> int:
        ends = time.monotonic() + TURN_SECONDS
        taken, many, flows, table, queue = 0, len(frames), self._flows, port.flows, port.queue
        flows.begin_turn()
        while taken < many:
            run = 0 if table.last is None else flows.take(port, frames, taken, now)
            if not run:
                run = 1
                self._take_frame(port, frames[taken], now)
                if table.last is not None:
                    flows.begin_turn()
            taken += run
            if port.blockers or queue.is_closing or time.monotonic() > ends:
                break
        return taken

    def _take_frame(self, port: RuntimePort, raw: bytes, now: float) -> None:
        try:
            messages = codec.decode(raw)
        except codec.BrokenMessageError as exc:
            self._broken(port, exc)
            return
        port.broken_in_a_row = 0
        if messages[0].raw is not raw and codec.repeats_members(raw):
            self._counters[NodeCount.REPEATED_MEMBERS] += 1
        for message in messages:
            try:
                sid = port.sid
                if sid is None or (message.to[:1] in _BEGINS_SESSION_KEY and message.to_key == SESSION_KEY):
                    self._about_session(port, message, now)
                    continue
                if port.guest_of:
                    self._take_of_guest(port, message, sid, now)
                    continue
                admitted = self._admission.admit(message, sid, port.queue, now)
                is_response = admitted.type == "response"
                if admitted.type == "unsubscribe" or SUBSCRIPTION in (admitted.from_ if is_response else admitted.to):
                    self._follow(admitted, sid)
                if is_response and self._delivery.answers_action(admitted, sid):
                    continue
                decision = self._flows.router.decide(admitted, sid, now)
                refusal = self._delivery.perform(port, admitted, decision, now)
                if refusal is not None:
                    self._not_taken(port, admitted, refusal, now)
                elif not is_response and (type(decision) is Deliver or type(decision) is ToDomain):
                    self._flows.notice(port, admitted, decision)
            except PeerError as exc:
                self._refuse(port, message, Refusal(exc.code))

    def _not_taken(self, port: RuntimePort, message: Message, refusal: Refusal, now: float) -> None:
        """Refuse a message, or do what a policy says instead."""
        left = refusal if refusal.instead is None else self._redirected(port, message, refusal, now)
        if left is not None:
            self._refuse(port, message, left)

    def _redirected(self, port: RuntimePort, message: Message, refusal: Refusal, now: float) -> Refusal | None:
        """Route a message anew that a policy sends elsewhere, as if it had been sent there: it is judged again.

        Each rule does that once for a message.

        Returns:
            Why nobody was given it.

        Raises:
            PeerError: The same.
        """
        sid, followed = port.sid, set[str]()
        assert sid is not None
        asked: Refusal | None = refusal
        while asked is not None and asked.instead is not None and (to := asked.instead.address):
            if to in followed or len(followed) == POLICY_REDIRECTS:
                return Refusal(Code.LOOP)
            followed.add(to)
            message = codec.with_recipient(message, to)
            if message.type == "response" and self._delivery.answers_action(message, sid):
                return None
            decision = self._flows.router.decide(message, sid, now)
            asked = self._delivery.perform(port, message, decision, now)
        return asked

    def _about_session(self, port: RuntimePort, message: Message, now: float) -> None:
        if message.to_key == SESSION_KEY:
            self._runtimes.ask_session(port, message, port.answer, now=now)
        else:
            self._refuse(port, message, Refusal(Code.NO_CREDENTIALS))

    def _take_of_guest(self, port: RuntimePort, message: Message, sid: int, now: float) -> None:
        """Take a message of a runtime of another domain: the gate of its domain judges it, as it would on a link.

        Nothing of it goes on to another domain, its own included: this node carries between its own domain and others,
        never from one of them to the next. Source: message specification, sections 18.4 and 18.5.

        Raises:
            PeerError: Why it is refused; that is recorded.
        """
        domain = port.guest_of
        try:
            self._admission.check_guest(message, sid, domain, now=now)
        except PeerError as exc:
            self.guests.refused(domain, message, exc.code, now)
            raise
        try:
            entered = self.guests.enter(domain, message, now)
        except DeniedError as exc:
            self._refuse(port, message, Refusal(exc.code, {"msgId": exc.msg_id}, exc.instead))
            return
        admitted = entered.message
        try:
            is_response = admitted.type == "response"
            if admitted.type == "unsubscribe" or SUBSCRIPTION in (admitted.from_ if is_response else admitted.to):
                self._follow(admitted, sid)
            decision = parked(admitted, here_only(self._flows.router.decide(admitted, sid, now, may_park=False)))
            is_taken = is_response and self._delivery.answers_action(admitted, sid)
            if is_response and not is_taken:
                admitted = self.guests.replied(domain, admitted)
            refusal = None if is_taken else self._delivery.perform(port, admitted, decision, now)
        except PeerError as exc:
            entered.arrived(exc.code)
            raise
        if refusal is not None:
            self._refuse(port, admitted, refusal)
        entered.arrived(None if refusal is None else refusal.code)

    def _follow(self, message: Message, sid: int) -> None:
        """Follow a message by which an observer may come or go. Raises PeerError; see `Observers.passes`."""
        self._observers.passes(message, sid)
        self._effects.store_rest()

    def _broken(self, port: RuntimePort, exc: codec.BrokenMessageError) -> None:
        """Answer a frame without a readable message. Source: message specification, section 1.7."""
        self._counters[NodeCount.BROKEN_FRAMES] += 1
        port.broken_in_a_row += 1
        reply = validator_reply(exc, self._runtimes.runtime_of(port), has_desc=port.line.dialect.reads_desc)
        if reply is not None:
            self._send_queues.enqueue(port, reply)
        if exc.code in (Code.BROKEN_JSON, Code.TOO_DEEP) and port.broken_in_a_row >= BROKEN_FRAMES_IN_A_ROW:
            port.queue.close(PROTOCOL_ERROR, exc.code.word)


def _domain_of(decision: Decision) -> str:
    """The other domain that a message is for, `SOMEWHERE` for a user to be found, "" for ours."""
    if type(decision) is ToDomain or type(decision) is Park:
        return decision.domain
    return SOMEWHERE if decision is FIND_USER else ""
