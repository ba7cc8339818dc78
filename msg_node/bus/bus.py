"""The message bus: every message of every session, link and service of this node passes here, a batch at a time.

A batch comes in as one plain call, is checked, routed and queued per destination, and once per scheduler round each
destination gets one write. Order holds per sender and receiver; what cannot be delivered is answered. Source: design,
section 3.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from os import urandom

from federation.core.border import check_hops, hops_of
from federation.guest_border import GuestBorder
from federation.link_context import Refusal
from federation.router import Federation
from msg_node.addresses.core.observers import concerns_observers
from msg_node.addresses.core.remote_subscriptions import RemoteSubscriptions
from msg_node.addresses.foreign_objects import ForeignObjects
from msg_node.bus.absences import Absences
from msg_node.bus.connection_effects import ConnectionDependencies, ConnectionEffects
from msg_node.bus.core.admission import check_named_source, check_passable, is_refusal_sent
from msg_node.bus.core.router import (
    FIND_USER,
    SERVE,
    SERVE_SESSION,
    SOMEWHERE,
    Decision,
    Deliver,
    Park,
    Refuse,
    Router,
    ToDomain,
)
from msg_node.bus.core.tables import BusTables
from msg_node.bus.effects import EffectDependencies, Effects
from msg_node.bus.guest_traffic import GuestTraffic
from msg_node.bus.inquiries import Inquiries
from msg_node.bus.middleware import Stack
from msg_node.bus.runtime_port import RuntimePort, ignore_message
from msg_node.bus.send_queues import SendQueues
from msg_node.bus.services import Services
from msg_node.bus.sweeper import Sweeper
from msg_node.bus.user_routing import UserRouting
from msg_node.kernel.answers import described, session_refusal, validator_reply
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.directories import OWN, Source
from msg_node.kernel.identifiers import SEED_BYTES
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.resources import SESSION_KEY
from msg_node.kernel.seeds import Seeds
from msg_node.kernel.service import Event
from msg_node.registries.core.foreign_registry import REGISTRIES, as_found
from msg_node.registries.core.twin_service import keep_value
from msg_node.requests.local_requests import LocalRequests
from msg_node.requests.parked_actions import ParkedActions, Parks, park_nothing
from msg_node.requests.recorder import RequestRecorder
from msg_node.storage.state_store import StateStore
from protofly import codec
from protofly.address import domain_of
from protofly.counters import Counters
from protofly.errors import Code, PeerError
from protofly.limits import BROKEN_FRAMES_IN_A_ROW, MAX_HOPS
from protofly.message import Message
from protofly.records import Record
from wire.core.websocket import GOING_AWAY, PROTOCOL_ERROR

TURN_SECONDS = 0.005
_FLAGS = ("auth", "sessionToken")
_NODE_ORIGIN = 0
_NO_STEPS = Stack()


class Bus:
    """Routes between runtimes, services and other domains.

    Args:
        node: Address of this node.
        guests: Judges what runtimes of other domains send and are sent.
        record: Takes audit records.
        stack: What each message of a session passes before it is delivered.
        parks: Whether a policy wants a request parked whose recipient is away.
        wait_accepting: Waits until the writer takes more records (settings: `records.durability`).
        is_accepting: Whether they do.
    """

    def __init__(
        self,
        *,
        node: str,
        state: BusTables,
        services: Services,
        store: StateStore,
        remote: RemoteSubscriptions,
        guests: GuestBorder,
        record: Callable[[Record], None],
        stack: Stack = _NO_STEPS,
        parks: Parks = park_nothing,
        wait_accepting: Callable[[], Awaitable[None]],
        is_accepting: Callable[[], bool],
        ping_seconds: float,
        max_hops: int = MAX_HOPS,
    ) -> None:
        self._node = node
        self._state = state
        self._services = services
        self._source_of = state.senders.source_of
        self._seeds = Seeds(urandom)
        self._judge = stack.judge
        self.ping_seconds = ping_seconds
        self._max_hops = max_hops
        self._router = Router(state, serves=services.serves, services=services.keys)
        self.counters = Counters(NodeCount)
        self.send_queues = SendQueues(
            state, self.counters, guests=guests, wait_accepting=wait_accepting, is_accepting=is_accepting
        )
        self.absences = Absences(state, self.send_queues, self.counters)
        self._requests = self.send_queues.requests = LocalRequests(self.counters, refuse=self._refuse_later)
        self._ports, self._connections = self.send_queues.ports, self.send_queues.connections
        self._to_listeners, self._enqueue = self.send_queues.to_listeners, self.send_queues.enqueue
        self.wait_for_port, self.wait_for_room = self.send_queues.wait_for_port, self.send_queues.wait_for_room
        self.wake_flusher, self.run_flusher = self.send_queues.wake, self.send_queues.run
        connections = ConnectionEffects(
            ConnectionDependencies(
                state=state,
                services=services,
                ports=self._ports,
                connections=self._connections,
                absences=self.absences,
                counters=self.counters,
                record=record,
                forget=self._forget_session,
            )
        )
        self._effects = Effects(
            EffectDependencies(
                state=state,
                services=services,
                store=store,
                ports=self._ports,
                connections=connections,
                counters=self.counters,
                route_own=self._route_own,
                enqueue=self.send_queues.enqueue_reply,
                wake=self.send_queues.wake,
            )
        )
        self.inquiries = Inquiries(self._effects.concluded)
        recorder = RequestRecorder(state, self.send_queues, self.counters, node=node, apply=self._effects.apply)
        self.parked_actions = ParkedActions(state, self.send_queues, recorder, serves=services.serves, parks=parks)
        self._effects.connect(self.inquiries, self.parked_actions)
        send, apply = self.send_queues.send_abroad, self._effects.apply_for
        self.foreign = ForeignObjects(node, state, remote, services.observers, send=send, apply=apply)
        self._guests = GuestTraffic(state, self._router, guests, self.foreign.observe, forward=self._forward)
        self.users = UserRouting(
            state, self.send_queues, node=node, judge_local=stack.judge_local, refuse=self._refuse_later
        )
        self.run_sweeper = Sweeper(
            self._effects,
            self._connections,
            ping_seconds=ping_seconds,
            slices=(lambda: self.parked_actions.sweep(time.time()), self._requests.expire),
            ticks=(self.foreign.expire, lambda: self.parked_actions.tick(time.time())),
        ).run

    def connect_federation(self, federation: Federation) -> None:
        """Set where foreign messages go; once, before anything runs."""
        self.send_queues.connect_federation(federation)

    # Connections.

    def connected(self, port: RuntimePort) -> None:
        """A connection was accepted; it has no session yet."""
        self._connections[port.connection] = port
        port.answer, port.queue.on_expired = partial(self._enqueue, port), self._expired

    def disconnected(self, port: RuntimePort) -> None:
        """A connection has ended."""
        self.send_queues.closed(port)
        port.answer = ignore_message
        self._effects.apply(self._services.sessions.connection_lost(port.connection, now=time.time()), self._route_own)

    def runtime_of(self, port: RuntimePort) -> str:
        """Address of the runtime that has its session on a connection, "" before there is one."""
        session = None if port.sid is None else self._state.sessions.get(port.sid)
        return "" if session is None else session.runtime

    @property
    def live_sessions(self) -> int:
        """Sessions with a connection."""
        return len(self._ports)

    @property
    def is_accepting(self) -> bool:
        """True if the writer takes more records; readers pause while it does not."""
        return self.send_queues.is_accepting()

    # Batches in.

    def from_session(self, port: RuntimePort, frames: list[bytes]) -> int:
        """Route what one read brought.

        Returns:
            How many frames were taken. Fewer than there are: the port is closing; or a receiver is congested, and the
            rest is for `wait_for_port` to wait with, so that a flood finds its bound at its source; or it is time that
            others have their turn, since some requests cost as much as a thousand messages.
        """
        now = time.time()
        ends = time.monotonic() + TURN_SECONDS
        port.heard(now)
        taken = 0
        with self._effects:
            for raw in frames:
                taken += 1
                self._take_frame(port, raw, now)
                if port.blockers or port.queue.is_closing or time.monotonic() > ends:
                    break
        if port.queue.is_congested and not port.queue.is_slow:
            port.blockers.add(port.queue)  # by the answers to what it asked, which it has to read first
        self.counters[NodeCount.FRAMES_IN] += taken
        self.foreign.forget_unheard()
        self.send_queues.wake()
        return taken

    def _take_frame(self, port: RuntimePort, raw: bytes, now: float) -> None:
        try:
            messages = codec.decode(raw)
        except codec.BrokenMessageError as exc:
            self._broken(port, exc)
            return
        port.broken_in_a_row = 0
        if messages[0].raw is not raw and codec.repeats_members(raw):
            self.counters[NodeCount.REPEATED_MEMBERS] += 1
        for message in messages:
            try:
                self._from_session(port, message, now)
            except PeerError as exc:
                self._refuse(port, message, Refusal(exc.code))

    def from_link(self, domain: str, messages: list[Message]) -> list[Code | None]:
        """Route messages that passed the border of a linked domain; answers for each why it was refused."""
        now = time.time()
        number = self._state.links.number(domain)
        codes: list[Code | None] = []
        for message in messages:
            try:
                readable = as_found(message) if message.from_.startswith(REGISTRIES) else message
                code = self._from_link(domain, number, readable, now)
                is_parked = code is not None and self.parked_actions.parks(code, readable, number, frozenset())
                codes.append(None if is_parked else code)
            except PeerError as exc:
                codes.append(exc.code)
        self.send_queues.wake()
        return codes

    def answer(self, message: Message) -> None:
        """Route a reply that the node made in place of somebody else."""
        if self.foreign.is_answer(message):
            self.foreign.answered(message, "")
        elif not (self.parked_actions.is_used and self.parked_actions.answers.link_refused(message)):
            self._route_own(message)
        self.send_queues.wake()

    # From sessions.

    def _from_session(self, port: RuntimePort, message: Message, now: float) -> None:
        sid = port.sid
        if sid is None or message.to == SESSION_KEY or message.to_key == SESSION_KEY:
            self._session_verb(port, message, now)
            return
        if port.guest_of:
            self._guests.take(port, message, now)
            return
        peek = message.peek
        from_key = message.from_key
        if message.type == "response":
            source = self._source_of(sid, from_key, is_response=True, was_addressed=port.queue.was_asked(from_key))
        else:
            source = self._source_of(sid, from_key)
        if source is not OWN:
            if source.code is not None:
                self.counters[NodeCount.REFUSED_SOURCES] += 1
                self._refuse(port, message, Refusal(source.code))
                return
            if source is Source.LEARNABLE:
                self._router.learned.learn(from_key, sid, now)
        if peek.source and message.type != "response":
            check_named_source(self._state, sid, message)
        if concerns_observers(message):
            self.foreign.observe(message, sid)
        if peek.ttl or message.type == "forward":
            check_passable(message)
        if peek.via:
            check_hops(hops_of(message), self._node, max_hops=self._max_hops)
        if peek.auth or peek.session_token:
            message = codec.with_body(message, codec.without_members(message.body, _FLAGS))
        self._forward(port, message, self._router.decide(message, sid, now), now)

    def _forward(self, port: RuntimePort, message: Message, decision: Decision, now: float) -> Refusal | None:
        """Hand a checked message of a session to its destination; a refusal has been answered."""
        assert port.sid is not None
        if (
            message.type == "response"
            and self.parked_actions.is_used
            and self.parked_actions.answered(message, port.sid)
        ):
            return None
        domain = "" if type(decision) is Deliver else _domain_of(decision)
        judge = self._judge
        refusal = None if judge is None else judge(message, port.sid, port.roles, domain, now)
        if self._state.twin.watches and refusal is None:
            keep_value(self._state, message, port.sid, now)
        if refusal is not None:
            pass
        elif type(decision) is Deliver:
            refusal = self._to_sessions(message, decision.numbers, port.sid, port, now)
        elif type(decision) is ToDomain:
            refusal = self._to_foreign(message, decision, port.sid, port)
        elif type(decision) is Park:
            self.parked_actions.take(message, port.sid, now, roles=port.roles)
            return None
        elif decision is SERVE:
            result = self._services.handle(message, port.sid, now=now, seed=self._seeds.next())
            self._effects.apply(result, partial(self.send_queues.enqueue_reply, port) if port.guest_of else port.answer)
            return None
        elif type(decision) is Refuse:
            refusal = Refusal(decision.code)
        elif decision is FIND_USER:
            refusal = self.users.take(message, port.sid, port.roles)
        if refusal is not None:
            self._refuse(port, message, refusal)
        elif not domain and message.wants_receipt:  # abroad, the link says when the far end has it
            self._enqueue(port, codec.response(message, 200, extra={"source": self._node}))
        return refusal

    def _to_sessions(
        self, message: Message, numbers: tuple[int, ...], sid: int, port: RuntimePort, now: float
    ) -> Refusal | None:
        """To those who listen here, sessions and links."""
        if message.type == "response" and self._requests:
            message = self._requests.came(message)
        code = self._to_listeners(numbers, message, port.blockers, port.roles)
        if message.type == "delete":
            self.foreign.observed_deletion(message, numbers)
        elif message.peek.guarantee and bytes(message.peek.guarantee) == b'"ack"':
            self.parked_actions.guarantee(message, numbers, now)
        if code is not None:
            return Refusal(code)
        if message.peek.ttl:
            self._requests.sent(message, sid)
        return None

    def _session_verb(self, port: RuntimePort, message: Message, now: float) -> None:
        if message.to_key == SESSION_KEY:
            self.ask_session(port, message, port.answer, now=now)
        else:
            self._refuse(port, message, Refusal(Code.NO_CREDENTIALS))

    def ask_session(
        self, port: RuntimePort, message: Message, answer: Callable[[Message], None], *, now: float
    ) -> None:
        """Serve a message to `mn:/session`: the runtime's own, or one that a connector words for it.

        `answer` takes the reply, if there is one, as soon as what it promises is durable.
        """
        if message.type == "open":
            self._clear_holder(message)
        result = self._services.sessions.handle_session(
            message,
            port.line,
            now=now,
            seed=urandom(SEED_BYTES),
        )
        self._effects.apply(result, answer)

    def _clear_holder(self, message: Message) -> None:
        """The holder of the session that an opener asks for is alive if it answered the ping of an earlier opener."""
        with contextlib.suppress(PeerError):
            holder = self._ports.get(self._state.sessions.by_runtime(message.from_key) or 0)
            if holder is not None and holder.sid is not None:
                self._state.transitions.heard(holder.sid, now=holder.heard_at)

    def _to_foreign(self, message: Message, decision: ToDomain, sid: int, port: RuntimePort) -> Refusal | None:
        """To another domain, and to those of us who listen as well, if there are any."""
        domain = decision.domain
        if message.to.startswith("domain://msg-node."):
            if message.to_key.endswith("/sm") and message.type in ("subscribe", "unsubscribe"):
                self.foreign.request(message, domain, sid)
                return None
            if message.to_key.endswith("address-allocation"):
                return Refusal(Code.TRANSIT)  # addresses of our hyperties come from us; specification, section 18.4
        refusal = self.send_queues.send_abroad(domain, message, port.roles)
        if refusal is None:
            link = self.send_queues.blocker(domain)
            if link is not None:
                port.blockers.add(link)
            if decision.numbers:
                self._to_listeners(decision.numbers, message, port.blockers, port.roles)
        return refusal

    def _broken(self, port: RuntimePort, exc: codec.BrokenMessageError) -> None:
        """Source: message specification, section 1.7."""
        self.counters[NodeCount.BROKEN_FRAMES] += 1
        port.broken_in_a_row += 1
        reply = validator_reply(exc, self.runtime_of(port), has_desc=port.line.dialect.reads_desc)
        if reply is not None:
            self._enqueue(port, reply)
        if exc.code in (Code.BROKEN_JSON, Code.TOO_DEEP) and port.broken_in_a_row >= BROKEN_FRAMES_IN_A_ROW:
            port.queue.close(PROTOCOL_ERROR, exc.code.word)

    def _refuse(self, port: RuntimePort, message: Message, refusal: Refusal) -> None:
        if port.sid is not None and self.parked_actions.parks(refusal.code, message, port.sid, port.roles):
            return
        self.counters[NodeCount.REFUSED.of(refusal.code.word)] += 1
        if message.expects_reply or is_refusal_sent(message, refusal.code):
            code, value, has_desc = refusal.code, refusal.value, port.line.dialect.reads_desc
            self._enqueue(port, session_refusal(message, code, value, source=self._node, has_desc=has_desc))

    def _refuse_later(self, number: int, message: Message, refusal: Refusal) -> None:
        """Refuse a message that waited, to the session or the link that it came from."""
        port = self._ports.get(number)
        if port is not None:
            self._refuse(port, message, refusal)
        elif number < 0 and message.expects_reply:
            self._route_own(codec.refusal(message, refusal.code, source=self._node))

    # From links.

    def _from_link(self, domain: str, number: int, message: Message, now: float) -> Code | None:
        if message.type == "response" and self.foreign.is_answer(message):
            self.foreign.answered(message, domain)
            return None
        if concerns_observers(message):
            self.foreign.observe(message, number)
        if message.peek.ttl or message.type == "forward":
            check_passable(message)
        if (self.parked_actions.is_used or message.peek.message_class) and self.parked_actions.takes_from_link(
            message, domain, number, now
        ):
            return None
        decision = self._router.decide(message, number, now)
        if type(decision) is Deliver:
            sids = self._state.guests.without_transit(message.to, decision.numbers)
            if sids:
                if message.type == "delete":
                    self.foreign.object_deleted(message, domain)
                return self._to_listeners(sids, message, self.send_queues.link_blockers)
            return Code.TRANSIT if domain_of(message.to) not in self._state.domains else None
        if decision is SERVE:
            result = self._services.handle(message, number, now=now, seed=self._seeds.next())
            self._effects.apply(result, self._route_own)
            return None
        if type(decision) is ToDomain:
            return Code.TRANSIT
        if decision is FIND_USER:
            refusal = self.users.take(message, number)
            return None if refusal is None else refusal.code
        if decision is SERVE_SESSION:
            return Code.NO_SUCH_SERVICE
        return decision.code if type(decision) is Refuse else None

    def _expired(self, message: Message) -> None:
        """The time of a message was over before a slow runtime read it."""
        self.counters[NodeCount.EXPIRED] += 1
        if (
            message.expects_reply
            and not self.parked_actions.keeps(message)
            and not self._requests.ended_unread(message)
        ):
            self.answer(codec.refusal(message, Code.TIMEOUT, source=self._node))

    def _route_own(self, message: Message) -> None:
        """Route a message of the node's own."""
        try:
            decision = self._router.decide(message, _NODE_ORIGIN, time.time())
        except PeerError:
            return
        numbers = decision.numbers if isinstance(decision, Deliver | ToDomain) else ()
        if numbers:
            ports = [port for number in numbers if (port := self._ports.get(number)) is not None]
            if message.is_response and any(port.line.dialect.reads_desc for port in ports):
                message = described(message)
            self._to_listeners(numbers, message, set())
        if type(decision) is ToDomain:
            self.send_queues.send_abroad(decision.domain, message)

    def _forget_session(self, sid: int) -> None:
        """A session is over: nothing is learned from it any more, and nobody listens abroad for it."""
        self._router.learned.forget(sid)
        self.absences.ended(sid)
        self._requests.session_ended(sid)
        self.foreign.forget_unheard()

    def publish_statuses(self, changes: list[StatusChange]) -> None:
        """Store the statuses of entries that another registry reports, and notify who listens."""
        self._effects.apply(self._services.publish_statuses(changes), self._route_own)

    def link_is_live(self, domain: str) -> None:
        """A link is up (again): renew what we listen to there, hand over what waits for it."""
        self.foreign.link_is_live(domain)
        self.parked_actions.outbox.link_is_live(domain, time.time())

    def wants_link(self, domain: str) -> bool:
        """Whether a domain's link is needed although nothing is under way."""
        return self.foreign.is_wanted(domain) or self.parked_actions.outbox.is_wanted(domain)

    def publish_events(self, events: list[Event]) -> None:
        """Store events that no request has caused, and notify who listens."""
        self._effects.apply(self._services.publish_events(events), self._route_own)

    # Time.

    def drain(self) -> None:
        """The node stops: say so to every runtime and close. Source: message specification, section 5.4."""
        self.inquiries.drain()
        self.users.drain()
        for sid, message in self._services.sessions.draining("", list(self._ports)).items():
            self._ports[sid].queue.enqueue(message)
        for port in list(self._connections.values()):
            port.queue.close(GOING_AWAY, "the node stops")


def _domain_of(decision: Decision) -> str:
    """The other domain that a message is for, `SOMEWHERE` for a user to be found, "" for ours."""
    if isinstance(decision, ToDomain | Park):
        return decision.domain
    return SOMEWHERE if decision is FIND_USER else ""
