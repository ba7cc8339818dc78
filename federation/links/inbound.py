"""What the far end of one link sends us: counted, checked, cleaned, judged by our gate, handed to our bus.

In whose name a message may come is a matter of the connection that brought it, and of what was proved on it. The main
domain of the link always counts; our own domains never do. Source: message specification, section 18.4.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import trio

from federation.core.border import InwardBorder, Speaker, check_source, id_carried
from federation.core.carried import CarriedForgeryError
from federation.core.carrier import Carrier, LinkPort
from federation.core.forgeries import ForgedNames, ForgeryLimit
from federation.core.interworking import INTERWORKING_TYPES
from federation.core.link_counts import LinkCount
from federation.core.link_machine import LinkMachine
from federation.discovery.redirects import follow_redirects
from federation.links.inward_flow import INWARD_FLOWS, Entered, InwardFlows
from federation.links.link_context import UNIDENTIFIED, BorderRules, LocalBus
from federation.links.link_events import LinkEvents
from federation.links.link_records import LinkRecords
from federation.links.traces import Traces
from policy.core.engine import Facts
from policy.core.gate import GateVerdict
from policy.core.model import LinkClass
from policy.core.obligations import Instead
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.forwarding import FORWARD
from protofly.message import Message
from protofly.record_runs import MessageRun
from protofly.records import MessageRecord, envelope_digest

FORGED_NAME_CHARS = 256
TURN_SECONDS = 0.005
SLICE_MESSAGES = 128
SLICE_BYTES = 32 << 10
"""Messages handed over between two looks at the clock: two milliseconds of work, more for costly requests.

Measured: at 64 messages each costs 0.7 µs more than in one go, at 128 it is 0.3 µs.
"""

ALONE_MESSAGES = 16
"""Messages outside flows handed over between two looks at the clock."""
_OF_NODES = ("domain", "mn:", "global:", "user")

Numbered = Sequence[tuple[int, bytes]]
"""Messages with their numbers in the stream of the peer, 0 for none."""


def _place_behind(fresh: int, messages: Numbered, processed: int) -> tuple[int, int]:
    """Where the first `fresh` messages end that were not seen before, and up to which number all are seen then.

    `processed`: up to which they are before.
    """
    for place, (number, _) in enumerate(messages, 1):
        if not number or number > processed:
            processed = number or processed
            fresh -= 1
        if not fresh:
            return place, processed
    return len(messages), processed


def is_for_node(message: Message) -> bool:
    """True for what the node itself has to do with: its services, and users, whose places are looked for."""
    return message.to.strip().lower().startswith(_OF_NODES)


class Near(Protocol):
    """The parts of a link that its way in uses."""

    domain: str
    records: LinkRecords
    events: LinkEvents
    machine: LinkMachine
    now: Callable[[], float]
    last_used_seconds: float

    def send_refusal(
        self, request: Message, code: Code, detail: str = "", instead: Instead | None = None, *, msg_id: str = ""
    ) -> None:
        """Answer a request of the peer's with a refusal, or with what a policy of ours says instead."""


@dataclass(slots=True)
class _Side:
    """The far end as one carrier brings it."""

    border: InwardBorder
    flows: InwardFlows
    limit: ForgeryLimit


class Inbound:
    """The way in of one link.

    Attributes:
        is_shut: The link is taken away: what its carriers still bring is not looked at.
    """

    def __init__(self, link: Near, rules: BorderRules, bus: LocalBus, traces: Traces) -> None:
        self._link = link
        self._rules = rules
        self._bus = bus
        self._traces = traces
        self._replies, self._counters = link.machine.replies, link.machine.counters
        self._our_domains = rules.ours.domains
        self.link_class = rules.gate.class_of(link.domain)
        self._sides: dict[Carrier | None, _Side] = {None: self._side(frozenset(), is_node=True)}
        self._side_now = self._sides[None]
        self.forged_names = ForgedNames()
        self.is_shut = False

    def carrier_live(self, carrier: Carrier, domains: frozenset[str], *, is_node: bool) -> None:
        """A carrier is up. `domains` were proved on it; `is_node`: the far end has proved itself as a node."""
        self._sides[None] = self._side(frozenset(), is_node=True)
        self._sides[carrier] = self._side(domains, is_node=is_node)

    def carrier_proved(self, carrier: Carrier, domains: frozenset[str]) -> None:
        """From now on a carrier that is up speaks for these domains besides the main one, and for no others."""
        side = self._sides.get(carrier)
        if side is not None:
            side.border, side.flows = self._border(domains)

    def reconsider(self) -> None:
        """Other legacy addresses are granted now, to this domain or to another: what was seen of senders is over."""
        for side in self._sides.values():
            side.border, side.flows = self._border(side.border.speaker.domains)

    def withdraw(self, names: frozenset[str]) -> None:
        """These are aliases of the domain no more, whatever was proved: nobody speaks for them from now on.

        Carriers that prove them again get them back.
        """
        for side in self._sides.values():
            domains = side.border.speaker.domains
            if not domains.isdisjoint(names):
                side.border, side.flows = self._border(domains - names)

    def carrier_lost(self, carrier: Carrier) -> None:
        """A carrier is gone, and what was proved on it."""
        self._sides.pop(carrier, None)

    def domains(self) -> frozenset[str]:
        """The domains for which somebody speaks now."""
        return frozenset[str]().union(*(side.border.speaker.domains for side in self._sides.values()))

    def _side(self, domains: frozenset[str], *, is_node: bool) -> _Side:
        return _Side(*self._border(domains), ForgeryLimit(is_node=is_node))

    def _border(self, domains: frozenset[str]) -> tuple[InwardBorder, InwardFlows]:
        """Make the border for what comes in from now on; a new stub may speak for other addresses than the last one."""
        domain = self._link.domain
        is_theirs = partial(self._rules.interworking.speaks_for, domain)
        theirs = domains | {domain} | self._rules.listed_aliases(domain)
        speaker = Speaker(theirs, self._our_domains, is_theirs)
        rules, link = self._rules, self._link
        border = InwardBorder(rules.ours.node, speaker, max_hops=rules.max_hops)
        return border, INWARD_FLOWS[rules.flows](domain, border, rules, link.records)

    def take(
        self, messages: Numbered, stream: str, carrier: Carrier | None = None, *, ends_seconds: float = math.inf
    ) -> int:
        """See `Inbox`. What comes once the link is taken away comes again where it is then, so it is dropped.

        Messages of flows are alike and cheap. Any other may cost as much as a thousand of them: a request to a service,
        or one that is for thousands of listeners. So behind a few of those, and behind each request to the node itself,
        the bus gets what there is, and the clock is looked at.
        """
        if self.is_shut:
            return len(messages)
        link, place = self._link, len(messages)
        arrived = link.last_used_seconds = link.now()
        raws, last = link.machine.unseen(messages, stream)
        side = self._side_now = self._sides.get(carrier) or self._sides[None]
        wall = time.time()
        entered, taken, alone = Entered(), 0, 0
        while taken < len(raws):
            run = side.flows.take(raws, taken, wall, entered)
            if not run:
                run, alone = 1, alone + 1
                self._take_one(side, raws[taken], wall, entered)
            taken += run
            if alone >= ALONE_MESSAGES or (alone and entered.messages and is_for_node(entered.messages[-1])):
                self._hand_over(side, entered, arrived)
                entered, alone = Entered(), 0
                if time.monotonic() > ends_seconds and taken < len(raws):
                    place, last = _place_behind(taken, messages, link.machine.streams.processed(stream))
                    break
        self._hand_over(side, entered, arrived)
        link.machine.streams.heard(stream, last)
        if side.limit.is_reached:
            side.limit = ForgeryLimit(is_node=True)  # another carrier begins anew
            raise PeerError(Code.SPOOFED_SOURCE, "too many messages in the name of others", domain=link.domain)
        return place

    def _hand_over(self, side: _Side, entered: Entered, arrived: float) -> None:
        side.flows.end_turn(entered)
        if entered.messages:
            self._hand_to_bus(entered, arrived)

    def _take_one(self, side: _Side, raw: bytes, now: float, entered: Entered) -> None:
        """Let one text go the whole way."""
        usual = side.border.without_trailer(raw)
        if usual is not None and usual[0].type != FORWARD:
            inner, msg_id = usual
            if self._enter(inner, msg_id, len(raw), now, entered):
                side.flows.notice(inner, len(raw), entered)
            return
        try:
            for message in codec.decode(raw):
                self._enter(message, b"", len(raw), now, entered)
        except codec.BrokenMessageError as exc:
            self._counters[LinkCount.BROKEN] += 1
            self._link.events.broken(exc)

    def reclassify(self, link_class: LinkClass) -> None:
        """The domain has another trust class from the next message on."""
        self.link_class = link_class
        for side in self._sides.values():
            side.flows.link_class = link_class

    def _enter(self, message: Message, msg_id: bytes, size: int, now: float, entered: Entered) -> bool:
        """Check, clean and judge one message; returns true when it has entered.

        One that has crossed the border comes with its id in both sides' records.
        """
        link, border = self._link, self._side_now.border
        try:
            if message.peek.source or message.from_ not in border.known_senders:
                self._check_sender(message, border)
            if message.type in INTERWORKING_TYPES:
                raise PeerError(Code.BAD_TYPE, "only interworking stubs are sent this", domain=link.domain)
            inner, msg_id = (message, msg_id) if msg_id else border.cross(message)
            from_domain = self._sender_domain(inner)
            to_domain = domain_of(inner.to)
            identify = self._rules.identify
            who = UNIDENTIFIED if identify is None else identify(inner, link.domain, now)
        except PeerError as exc:
            link.records.refused(message, msg_id or id_carried(message), exc.code, now, size)
            self._refuse(message, exc)
            return False
        hops = border.hops_crossed
        facts = Facts(
            "in",
            inner,
            from_domain,
            to_domain,
            link.domain,
            size,
            hops,
            now,
            *who,
            link_class=self.link_class,
            recipients=self._rules.recipients,
        )
        verdict = self._rules.gate.judge(facts)
        digest = envelope_digest(inner.type, inner.from_, inner.to, inner.id, inner.body)
        entry = link.records.entering(facts, verdict, msg_id, digest)
        if verdict.decision.shadow and verdict.permitted:
            link.records.decided(facts, verdict, msg_id)
        if not verdict.permitted:
            self._keep_out(inner, facts, verdict, entry, entered)
            return False
        if self._rules.gate.has_policies:
            inner.judged(verdict.is_permitted_by_rule)
        if inner.type == "response":
            inner = self._replies.came(inner, time.monotonic())
        entered.take(inner, entry)
        return True

    def _keep_out(
        self, message: Message, facts: Facts, verdict: GateVerdict, entry: MessageRecord, entered: Entered
    ) -> None:
        """Our gate does not let a message pass: refuse it, or answer or redirect it as a rule says."""
        link, msg_id = self._link, bytes.fromhex(entry.msg_id)
        if verdict.instead is not None:
            link.records.decided(facts, verdict, msg_id)
            facts, verdict = follow_redirects(self._rules.gate, facts, verdict)
            if verdict.permitted:
                facts.message.judged(verdict.is_permitted_by_rule)
                entered.take(facts.message, link.records.entering(facts, verdict, msg_id, entry.digest))
                return
        code = verdict.code or Code.POLICY
        self._counters[LinkCount.DENIED] += 1
        link.records.denied(entry, facts, verdict, msg_id)
        link.send_refusal(message, code, instead=verdict.instead, msg_id=entry.msg_id)
        if message.is_response:
            answer = self._replies.denied(message, code, verdict.details_of(entry.msg_id), time.monotonic())
            if answer is not None:
                self._bus.answer(answer)

    def _sender_domain(self, message: Message) -> str:
        """The domain that a sender is of; the ranges of an interworking stub are of its domain."""
        is_legacy = self._rules.interworking.admission(self._link.domain) is not None
        return self._link.domain if is_legacy else domain_of(message.from_)

    def _check_sender(self, message: Message, border: InwardBorder) -> None:
        """A stranger's address may only answer what one of us asked it; nobody answers in a name of ours.

        Source: message specification, section 18.4.
        """
        try:
            border.check_sender(message)
        except PeerError:
            is_asked = message.is_response and self._replies.is_asked(message)
            if not is_asked or border.speaker.is_never(message.from_):
                raise
            check_source(message, border.speaker)

    def _refuse(self, message: Message, exc: PeerError) -> None:
        link = self._link
        if exc.code is not Code.SPOOFED_SOURCE or isinstance(exc, CarriedForgeryError):
            link.send_refusal(message, exc.code, exc.detail)
        elif message.is_response and self._replies.is_open(message):
            self._counters[LinkCount.UNHEARD_ACKNOWLEDGEMENTS] += 1  # an honest observer of our object, in its name
        else:
            if not message.is_response:  # an honest node may be late with replies, or bring too many
                self._side_now.limit.caught(time.monotonic())
            self._counters[LinkCount.SPOOFED] += 1
            self.forged_names.count(message.from_[:FORGED_NAME_CHARS])
            link.events.spoofed(message.from_, exc.code)

    def _hand_to_bus(self, entered: Entered, arrived: float) -> None:
        link = self._link
        codes = self._bus.deliver(link.domain, entered.messages)
        total_us = int((time.monotonic() - arrived) * 1e6)
        delivered, place = codes.count(None), 0
        for recorded in entered.recorded:
            if isinstance(recorded, MessageRun):
                upto = place + len(recorded)
                link.records.arrived_run(recorded, codes[place:upto], total_us)
            else:
                upto = place + 1
                self._trace(entered.messages[place], arrived)
                link.records.arrived(recorded, codes[place], total_us)
            place = upto
        if delivered < len(codes):
            for message, code in zip(entered.messages, codes, strict=True):
                if code is not None:
                    self._counters[LinkCount.UNDELIVERABLE] += 1
                    link.send_refusal(message, code)
        self._counters[LinkCount.RECEIVED] += delivered

    def _trace(self, message: Message, arrived: float) -> None:
        """Note the hops of a message that is traced; those of a flow are not."""
        if message.peek.trace:
            self._traces.hop(message.trace, "link in", arrived)
            self._traces.hop(message.trace, "bus")


class InboundTurns:
    """Hands what one carrier brings to its link, turn by turn.

    One frame of another node, or one answer of a guest, may hold a hundred thousand messages. They are handed over a
    few at a time; other tasks that have something to do come in between.

    Args:
        carrier: Brought them; None speaks for the main domain only.
        waits_for_room: Waits for receivers of ours that cannot keep up.

    Attributes:
        is_over: Nothing more is handed over. It is not acknowledged, so it comes again over the next link.
    """

    def __init__(self, carrier: Carrier | None = None, *, waits_for_room: bool = False) -> None:
        self._carrier = carrier
        self._waits_for_room = waits_for_room
        self._ends_seconds = 0.0
        self.is_over = False

    def begin(self) -> None:
        """The carrier has waited: its turn begins."""
        self._ends_seconds = time.monotonic() + TURN_SECONDS

    async def take(self, messages: Numbered, stream: str, port: LinkPort) -> None:
        """Hand over numbered messages of `stream`, in order, until it `is_over`.

        Raises:
            PeerError: See `Inbox`; what came behind is not handed over.
        """
        for one_slice in _slices(messages):
            part = one_slice
            while part:
                if self.is_over:
                    return
                part = part[port.inbound(part, stream, self._carrier, ends_seconds=self._ends_seconds) :]
                if self._waits_for_room:
                    await port.wait_for_room()
                await self.give_way()

    async def give_way(self) -> None:
        """Let other tasks come in between when the turn is over."""
        if time.monotonic() > self._ends_seconds:
            await trio.lowlevel.checkpoint()
            self.begin()


def _slices(messages: Numbered) -> Iterator[Numbered]:
    first, size = 0, 0
    for index, (_, raw) in enumerate(messages):
        if index > first and (index - first >= SLICE_MESSAGES or size + len(raw) > SLICE_BYTES):
            yield messages[first:index]
            first, size = index, 0
        size += len(raw)
    yield messages[first:]
