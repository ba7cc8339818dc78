"""The link to one foreign domain: reads the clock, has messages judged, performs what the machine of the link decides.

Trust is the stub provider's, running the stub is the supervisor's. Everything here is a plain call: a batch goes in,
records and queue entries come out, one flush per scheduler round sends them. Source: design, section 3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from secrets import token_hex

import trio

from federation.core.awaited_replies import LinkNames
from federation.core.border import BareBorder, OutwardBorder
from federation.core.carrier import Carrier, CarrierEvent, Inbox, LinkPort
from federation.core.link_machine import (
    NAME_STREAM,
    RELIEVED,
    Answer,
    CameUp,
    CannotProbe,
    Delivered,
    EndCarrier,
    Ended,
    GiveUp,
    HeardAgain,
    LinkAction,
    LinkMachine,
    NewStream,
    Probe,
    Pump,
    Quarantine,
    Rejected,
    Signal,
    SpeaksFor,
    Stalled,
    StopWaiting,
    StubVerified,
    Switched,
    TakeOver,
    Tick,
    WentDown,
    queues_of,
)
from federation.core.outbound_queue import OutboundMessage, OutboundQueue
from federation.core.stub_status import StubStatus
from federation.links.inbound import Inbound
from federation.links.link_context import LinkContext, LinkObserver, LocalBus, Refusal
from federation.links.link_events import LinkEvents
from federation.links.link_records import LinkRecords
from federation.links.need import Need
from federation.links.outbound import Outbound
from federation.links.paused_senders import PausedSenders
from federation.links.traces import Traces
from policy.core.model import LinkClass
from policy.core.obligations import Instead
from protofly.counters import Counters
from protofly.errors import Code
from protofly.message import Message

logger = logging.getLogger("federation")

_NO_ROLES = frozenset[str]()


class DomainLink(LinkPort):
    """Our side of one domain pair.

    Args:
        domain: The foreign domain.
        stream: 32 hex digits that name our sequence of message numbers.
        stub_url: Address of the domain's stub on our node.
        context: What all links share.
        touched: Called when something was queued, so that the link is flushed in this scheduler round.

    Attributes:
        stub: What we know of the domain's stub here.
        machine: The state of the link.
        inward: The way in.
        outward: The way out.
        senders: Those that pause.
        effects: Performs what the machine decides.
        now: The clock of the link, in monotonic seconds.
        need: That a carrier is needed, and by whose message.
    """

    def __init__(
        self,
        domain: str,
        stream: str,
        stub_url: str,
        context: LinkContext,
        *,
        touched: Callable[[DomainLink], None],
    ) -> None:
        rules, clock = context.rules, context.clock
        self.domain = domain
        self.touched = touched
        self.stub = StubStatus(stub_url, domain, on_change=context.observer.on_stub_state)
        self.records = LinkRecords(domain, context.recording)
        self.events = LinkEvents(domain, context.recording.record, monotonic=clock.monotonic)
        names = LinkNames(domain, rules.ours.node, rules.ours.domains)
        self.machine = LinkMachine(names, stream, context.limits, doubt_until=clock.doubt_until)
        self.inward = Inbound(self, rules, context.bus, context.traces)
        self.senders = PausedSenders(self.machine)
        self.need = Need()
        self.scope = trio.CancelScope()
        self.last_used_seconds = clock.monotonic()
        self._context = context
        self.now = clock.monotonic
        node, max_hops = rules.ours.node, rules.max_hops
        is_bare = domain in context.terms.bare
        border = BareBorder(node, max_hops=max_hops) if is_bare else OutwardBorder(node, stub_url, max_hops=max_hops)
        self.outward = Outbound(domain, border, rules, self.machine, self.records)
        self.effects = LinkEffects(self, context.bus, context.observer, context.traces)

    # Outward.

    def send(self, message: Message, roles: frozenset[str] = _NO_ROLES) -> Refusal | None:
        """Judge one message of ours and queue it; a refusal is the caller's to answer. `roles` are its session's."""
        now = self.now()
        outbound = self.outward.judged(message, roles, now)
        if type(outbound) is Refusal:
            return outbound
        return self._submit(outbound, now)  # type: ignore[arg-type]

    def send_refusal(
        self, request: Message, code: Code, detail: str = "", instead: Instead | None = None, *, msg_id: str = ""
    ) -> None:
        """Answer a request of the peer's with a refusal, or with what a policy of ours says instead.

        `msg_id` is that of its record, in hex.
        """
        now = self.now()
        outbound = self.outward.refusal(request, code, detail, now, instead, msg_id=msg_id)
        if outbound is not None:
            self._submit(outbound, now)

    def _submit(self, outbound: OutboundMessage, now: float) -> Refusal | None:
        actions = self.machine.handle(outbound, now)
        if actions:
            action = actions[0]
            if type(action) is Rejected:
                code = Code.STUB_THROTTLED if is_throttled(self) else action.code
                self.records.not_taken(outbound, code, self.now())
                return Refusal(code)
            self.need.arise(outbound.message.from_)
        self.last_used_seconds = now
        self.touched(self)
        message = outbound.message
        if message.peek.trace:
            self.effects.has_traced = True
            self._context.traces.hop(message.trace, "gate out", now)
        return None

    def flush(self) -> None:
        """Let the carriers take what waits; once per scheduler round."""
        if self.machine.carriers:
            self.machine.carriers[0].pump()
        if self.machine.canary is not None and self.machine.canary.carrier is not None:
            self.machine.canary.carrier.pump()

    # What carriers report.

    def handle(self, event: CarrierEvent | TakeOver) -> None:
        """See `LinkPort`; takes in as well which carrier is to follow which."""
        now = self.now()
        self.effects.perform(self.machine.handle(event, now), now)

    def is_active(self, carrier: Carrier) -> bool:
        """See `LinkPort`."""
        return self.machine.carriers.may_take(carrier)

    def processed(self, stream: str) -> int:
        """See `LinkPort`."""
        return self.machine.streams.processed(stream)

    @property
    def inbound(self) -> Inbox:
        """See `LinkPort`."""
        return self.inward.take

    async def wait_for_room(self) -> None:
        """See `LinkPort`."""
        await self._context.bus.wait_for_room()

    # Time, and what the supervisor says.

    def tick(self, now: float) -> bool:
        """Answer some of what waited too long; true when there may be more. `now` is monotonic seconds."""
        carriers = self.machine.carriers
        actions = self.machine.handle(Tick(carriers[0].heard_seconds if carriers else 0.0), now)
        self.effects.perform(actions, now)
        return any(isinstance(action, Ended | Answer) for action in actions)

    def retire(self, code: Code, detail: str) -> None:
        """The link is taken away: everything that waits is answered, carriers end, and the stub is stopped."""
        self.stop_waiting(code, detail)
        self.give_up(code, detail)
        for carrier in list(self.machine.carriers):
            carrier.cut_off(code)
        self.inward.is_shut = True
        self.scope.cancel()

    def give_up(self, code: Code, detail: str) -> None:
        """The domain cannot be reached for a reason that time does not heal: answer everything that waits."""
        now = self.now()
        self.effects.perform(self.machine.handle(GiveUp(code, detail), now), now)

    def stop_waiting(self, code: Code, detail: str) -> None:
        """Answer every request that has no reply yet, whether it has left or not."""
        now = self.now()
        self.effects.perform(self.machine.handle(StopWaiting(code, detail), now), now)

    def stub_verified(self) -> None:
        """The kind of the stub is known now: what waits and is not for such a stub is answered."""
        now, interworking = self.now(), self._context.rules.interworking
        event = StubVerified(partial(interworking.check_sent, self.domain))
        self.effects.perform(self.machine.handle(event, now), now)

    @property
    def is_idle(self) -> bool:
        """True when nothing waits or is under way, no reply is expected, nobody listens there, no legacy is there.

        A link that is to stay connected is never idle.
        """
        machine, context = self.machine, self._context
        if len(machine.replies) or any(queue.waiting or queue.under_way for queue in queues_of(machine)):
            return False
        if self.domain in context.terms.connected or context.rules.interworking.admission(self.domain) is not None:
            return False
        return not context.bus.is_wanted(self.domain)

    @property
    def is_live(self) -> bool:
        """True while a carrier is up."""
        return bool(self.machine.carriers)

    @property
    def state(self) -> str:
        """One word for operators: live, stalled, disconnected, or a state of the stub."""
        return self.machine.state

    @property
    def queue(self) -> OutboundQueue:
        """See `LinkPort`."""
        return self.machine.queue

    @property
    def counters(self) -> Counters:
        """Counts of messages; `LinkCount` has their meaning."""
        return self.machine.counters


class LinkEffects:
    """The effects of one link's actions.

    Attributes:
        has_traced: A message whose way is followed was sent.
    """

    def __init__(self, link: DomainLink, bus: LocalBus, observer: LinkObserver, traces: Traces) -> None:
        self._link = link
        self._observer = observer
        self._traces = traces
        self._came_up = trio.Event()
        self._switched = trio.Event()
        self.has_traced = False
        self._performers: dict[type, Callable[..., object]] = {
            Delivered: self._delivered,
            Ended: self._ended,
            Answer: lambda action, _now: bus.answer(action.reply),
            Pump: lambda action, _now: action.carrier.pump(),
            EndCarrier: lambda action, _now: action.carrier.end(),
            Probe: self._probe,
            CameUp: self._carrier_up,
            Switched: self._is_switched,
            SpeaksFor: lambda action, _now: link.inward.carrier_proved(action.event.carrier, action.event.domains),
            WentDown: self._carrier_down,
            Stalled: lambda action, _now: link.events.stalled(action.detail),
            HeardAgain: lambda action, _now: link.events.heard_again(action.seconds),
            Quarantine: self._quarantine,
            Signal: self._signalled,
        }

    async def wait_live(self) -> None:
        """Wait until a carrier is up."""
        while not self._link.machine.carriers:
            await self._came_up.wait()

    async def wait_carried_by_another(self, carrier: Carrier) -> None:
        """Wait until messages do not go by this carrier."""
        while self._link.machine.carriers and self._link.machine.carriers[0] is carrier:
            self._switched = trio.Event()
            await self._switched.wait()

    def perform(self, actions: Iterable[LinkAction], now: float) -> None:
        """Do what the machine decided, in order; `now` is when it did, in monotonic seconds."""
        for action in actions:
            self._performers[type(action)](action, now)

    def _delivered(self, action: Delivered, now: float) -> None:
        self._link.records.delivered(action.messages, now)
        if action.relieves:
            self._link.senders.relieve()
        if self.has_traced:
            self._trace_delivered(action.messages, now)

    def _ended(self, action: Ended, now: float) -> None:
        message = action.message.message
        self._link.records.ended(action.message, action.outcome, action.code, now)
        if message.peek.trace:
            self._traces.hop(message.trace, action.outcome, now)

    def _probe(self, action: Probe, now: float) -> None:
        if not action.carrier.probe():
            self._link.machine.handle(CannotProbe(), now)

    def _signalled(self, signal: Signal, now: float) -> None:
        if signal is RELIEVED:
            self._link.senders.relieve()
        elif signal is NAME_STREAM:
            self.perform(self._link.machine.handle(NewStream(token_hex(16)), now), now)

    def _trace_delivered(self, messages: Iterable[OutboundMessage], now: float) -> None:
        for one in messages:
            if one.message.peek.trace:
                self._traces.hop(one.message.trace, "stub", one.handed_seconds)
                self._traces.hop(one.message.trace, "acknowledged", now)

    def _carrier_up(self, action: CameUp, _now: float) -> None:
        event = action.event
        self._link.inward.carrier_live(event.carrier, event.domains, is_node=bool(event.peer_node))
        self._came_up.set()
        self._link.events.came_up(event.carrier.direction, peer_node=event.peer_node)
        self._mark_way()
        self._observer.on_live(self._link.domain)

    def _is_switched(self, _action: Switched, _now: float) -> None:
        self._switched.set()
        self._mark_way()

    def _carrier_down(self, down: WentDown, _now: float) -> None:
        self._link.inward.carrier_lost(down.carrier)
        self._link.events.went_down(down.carrier.direction, waiting=down.waiting, detail=down.detail)
        self._mark_way()
        if down.was_active:
            self._switched.set()
            self._link.senders.look_again()
        if down.was_last:
            self._observer.on_lost(self._link.domain)
            self._came_up = trio.Event()
            if not self._link.is_idle:
                self._link.need.arise()

    def _mark_way(self) -> None:
        machine = self._link.machine
        self._link.records.carried(
            channel=machine.carried_by, peer_node=machine.peer_node, stub_version=self._link.stub.started_sha256
        )

    def _quarantine(self, action: Quarantine, _now: float) -> None:
        message, domain = action.message, self._link.domain
        msg_id = message.msg_id.hex()
        about = {"domain": domain, "msg_id": msg_id, "code": Code.QUARANTINED.word}
        logger.error("message %s killed the stub of %s twice and is quarantined", msg_id, domain, extra=about)
        self._observer.quarantine(domain, message)


def reclassify(link: DomainLink, link_class: LinkClass) -> None:
    """The domain of a link has another trust class from the next message on."""
    link.outward.link_class = link_class
    link.inward.reclassify(link_class)


def is_throttled(link: DomainLink) -> bool:
    """True while the stub of a link has used up its share of the processor, or of what it may ask the node for."""
    return link.stub.meters.is_used_up(link.now())


def close_link(link: DomainLink) -> None:
    """End the carriers of a link in good order, the stub among them; the next need starts it again."""
    for carrier in list(link.machine.carriers):
        if carrier.channel == "peer":
            carrier.drain()
    link.need.recall()
