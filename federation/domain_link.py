"""All that we do towards one foreign domain: gate, border, queue, whichever carrier is up, and the records of it.

The link decides nothing about trust (that is the provider's) and runs no stub by itself (that is the supervisor's).
Everything here is a plain call: a batch goes in, decisions and queue entries come out, one flush per scheduler round
sends them. Source: design, section 3.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from secrets import token_hex

import trio

from federation.awaited_replies import AwaitedReplies
from federation.core.border import OutwardBorder, Speaker, check_speaks_for, hops_of, refusal_abroad
from federation.core.carried import cleaned_forward
from federation.core.carrier import Carrier, LinkPort
from federation.core.contact_trouble import ContactTrouble, Side
from federation.core.interworking import INTERWORKING_TYPES
from federation.core.line_watch import LineWatch, Sight
from federation.core.outbound_queue import OutboundQueue, Pending, deadline_of
from federation.core.peer_streams import PeerStreams
from federation.core.stub_status import StubStatus
from federation.inbound import Inbound
from federation.link_context import UNIDENTIFIED, LinkContext, Refusal, StepTimes
from federation.link_events import LinkEvents
from federation.link_records import LinkRecords, Outcome
from policy.core.engine import Facts
from policy.core.gate import Step, Verdict
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.forwarding import FORWARD
from protofly.lifetime import ttl_of
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import Message
from protofly.records import envelope_digest

logger = logging.getLogger("federation")

SLOW_SECONDS = 0.25
FIRST_CONTACT_SECONDS = 2.0


class DomainLink(LinkPort):
    """Our side of one domain pair.

    Args:
        stream: 32 hex digits that name our sequence of message numbers.
        stub_url: Address of the peer's stub on our node.
        touched: Told when something was queued, so that the link is flushed in this scheduler round.
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
        self.domain = domain
        self.asked_by = ""
        self.touched = touched
        self.stub_url = stub_url
        self.hosted = StubStatus(stub_url, domain, on_change=context.on_stub_state)
        self.queue = OutboundQueue(stream, context.limits)
        self.counters: Counter[str] = Counter()
        self.times = StepTimes()
        self.state = "created"
        self.detail = ""
        self.worker_pid: int | None = None
        self.stub: dict[str, object] = {}
        self.stub_version = ""
        self._context = context
        self.records = LinkRecords(domain, context)
        self.events = LinkEvents(domain, context.record)
        self._outward = OutwardBorder(context.node, stub_url, max_hops=context.max_hops)
        self._our_domains = context.our_aliases | {context.our_domain}
        self._we = Speaker(self._our_domains)
        self._is_legacy = context.interworking.admission(domain) is not None
        self.replies = AwaitedReplies(domain, self._our_domains, context, self.counters)
        self.streams = PeerStreams()
        self._watch = LineWatch()
        self.trouble = ContactTrouble(domain)
        self._inbound = Inbound(self, context, self._our_domains)
        self.carriers: list[Carrier] = []
        self.needed = trio.Event()
        self.scope = trio.CancelScope()
        self.last_used_seconds = time.monotonic()
        self.peer_node = ""
        self.refuse_until_seconds = 0.0
        self.refuse_code: Code | None = None
        self.last_code: Code | None = None
        self.is_slow = False
        self._relief = trio.lowlevel.ParkingLot()
        self._came_up = trio.Event()

    @property
    def is_congested(self) -> bool:
        """Whether senders should pause: half of what may be queued is queued."""
        return self.queue.is_congested

    @property
    def patience_seconds(self) -> float:
        """How long senders pause for us: a first contact is worth more patience than a slow line."""
        return SLOW_SECONDS if self.carriers else FIRST_CONTACT_SECONDS

    async def wait_relief(self) -> None:
        """Wait until the far end has accepted some."""
        await self._relief.park()

    async def wait_live(self) -> None:
        """Wait until a carrier is up."""
        while not self.carriers:
            await self._came_up.wait()

    def stub_verified(self) -> None:
        """It is known now what the stub is: what waits for it and is not for such a stub is answered."""
        for pending, code in self.queue.withdraw(partial(self._context.interworking.check_sent, self.domain)):
            self._end(pending, "rejected", code)

    def retire(self) -> None:
        """The link is taken away; whoever still waits is answered."""
        self.give_up(Code.OVERLOAD, "the link is closed")
        self.scope.cancel()

    # Outward.

    def send(self, message: Message, roles: frozenset[str] = frozenset()) -> Refusal | None:
        """Judge one message of ours and queue it; a refusal is the caller's to answer. `roles` are its session's."""
        context = self._context
        started = time.monotonic()
        now = time.time()
        try:
            if self._is_legacy or message.type in INTERWORKING_TYPES:
                message = context.interworking.handed_over(self.domain, message, token_hex(16))
            via_length = len(hops_of(message)) if message.peek.via else 0
            from_domain = domain_of(message.from_)
            if message.type != "response" and (
                from_domain not in self._our_domains or message.peek.source or "@" in message.from_
            ):
                check_speaks_for(
                    message, Speaker(self._our_domains)
                )  # what the far end would take for a forgery of ours
            if message.type == FORWARD and message.body:
                message = codec.with_body(message, cleaned_forward(message.body, self._we.may_use))
            who = UNIDENTIFIED if context.identify is None else context.identify(message, from_domain, now)
        except PeerError as exc:
            return Refusal(exc.code)
        domain = self.domain
        facts = Facts(
            "out", message, from_domain, domain, domain, len(message.raw), via_length, now, *who, roles, message.verdict
        )
        verdict = context.gate.judge(facts)
        policy_us = int((time.monotonic() - started) * 1e6)
        if not verdict.permitted:
            code = verdict.code or Code.POLICY
            self.counters["denied"] += 1
            self.records.kept_back(facts, verdict, context.ids.next(now), code, outcome="denied", policy_us=policy_us)
            return Refusal(code, verdict.told)
        if verdict.decision.shadow:
            self.records.decided(facts, verdict)
        refused = self._queue(message, verdict, now, started, policy_us, facts)
        return None if refused is None else Refusal(refused)

    def _queue(
        self,
        message: Message,
        verdict: Verdict,
        now: float,
        started: float,
        policy_us: int = 0,
        facts: Facts | None = None,
    ) -> Code | None:
        context = self._context
        msg_id = context.ids.next(now)
        try:
            if self.refuse_code is not None and started < self.refuse_until_seconds and not self.carriers:
                raise PeerError(self.refuse_code, self.detail, domain=self.domain)
            crossing = self._outward.cross(message, msg_id)
        except PeerError as exc:
            self.counters["refused"] += 1
            if facts is not None:
                self.records.kept_back(facts, verdict, msg_id, exc.code, outcome="rejected", policy_us=policy_us)
            return exc.code
        ttl_seconds = deadline_of(message) if message.peek.ttl else REQUEST_TTL_SECONDS
        pending = Pending(
            message,
            crossing.wire,
            crossing.msg_id,
            envelope_digest(message.type, message.from_, message.to, message.id, crossing.body),
            int(now * 1e6),
            started,
            verdict.rule_id,
            verdict.revision,
            policy_us,
            ttl_seconds,
            reason=verdict.step,
            facts=None if facts is None else self.records.facts_of(facts),
            ttl_seconds=(ttl_of(message) or 0.0) if message.peek.ttl else 0.0,
        )
        code = self.queue.submit(pending)
        if code is not None:
            self.counters["rejected"] += 1
            self.records.ended(pending, "rejected", code, time.monotonic())
            return code
        self.counters["sent"] += 1
        self.last_used_seconds = started
        self.touched(self)
        self.replies.sent(message, started, ttl_seconds)
        if message.peek.trace:
            context.traces.hop(message.trace, "gate out", started)
        if not self.carriers:
            self.asked_by = message.from_
            self.needed.set()
        return None

    def send_refusal(self, request: Message, code: Code, detail: str = "") -> None:
        """Answer a request of the peer's in the name of the address that it wanted. Our own words pass no gate."""
        if not request.expects_reply:
            return
        reply = refusal_abroad(request, code, detail, node=self._context.node, our_domains=self._our_domains)
        self._queue(reply, _OWN_WORDS, time.time(), time.monotonic())

    def flush(self) -> None:
        """Let the carrier take what waits; once per scheduler round."""
        if self.carriers:
            self.carriers[0].pump()

    # What carriers report.

    @property
    def is_live(self) -> bool:
        """Whether a carrier is up."""
        return bool(self.carriers)

    @property
    def carried_by(self) -> str:
        """How messages go: "stub", "peer", or "" while no carrier is up."""
        return self.carriers[0].channel if self.carriers else ""

    def carrier_live(self, carrier: Carrier, *, peer_node: str, domains: frozenset[str] = frozenset()) -> None:
        """See `LinkPort`. The first carrier that is up carries until it is lost, so that the order holds."""
        for old in [one for one in self.carriers if one.origin and one.origin == carrier.origin]:
            self.carrier_lost(old)
            old.end()
        self.carriers.append(carrier)
        self.peer_node = peer_node
        self._inbound.carrier_live(carrier, domains, is_node=bool(peer_node))
        if not self._watch.is_stalled:
            self.state, self.detail = "live", ""
        self.queue.is_carried = True
        self.refuse_code = self.last_code = None
        self._came_up.set()
        self.trouble.over()
        self.events.came_up(carrier.direction, peer_node=peer_node)
        self._mark_way()
        self._context.on_live(self.domain)
        self.carriers[0].pump()
        self._relieve()

    def carrier_proved(self, carrier: Carrier, domains: frozenset[str]) -> None:
        """See `LinkPort`."""
        self._inbound.carrier_proved(carrier, domains)

    @property
    def domains(self) -> frozenset[str]:
        """The domains for which the far end speaks now: its own, and the aliases that were proved or are listed."""
        return self._inbound.domains()

    def forged_names(self, most: int) -> dict[str, int]:
        """The names of others in which messages came, the most frequent first."""
        return self._inbound.forged_names.most(most)

    def _relieve(self) -> None:
        self.is_slow = False
        self._relief.unpark_all()

    def carrier_lost(self, carrier: Carrier) -> None:
        """See `LinkPort`."""
        if carrier not in self.carriers:
            return
        was_active = carrier is self.carriers[0]
        self.carriers.remove(carrier)
        self._inbound.carrier_lost(carrier)
        self.events.went_down(carrier.direction, waiting=self.queue.under_way + self.queue.waiting, detail=self.detail)
        self._mark_way()
        if was_active:
            self._watch.reset()
            self.queue.carrier_lost(time.monotonic())
            self._relief.unpark_all()
        if self.carriers:
            self.state, self.detail = ("stalled", self.detail) if self._watch.is_stalled else ("live", "")
            self.queue.is_carried = True
            self.carriers[0].pump()
        else:
            self.state = "disconnected"
            self._context.on_lost(self.domain)
            self._came_up = trio.Event()
            if not self.is_idle:
                self.needed.set()

    def accepted(self, number: int) -> None:
        """See `LinkPort`."""
        done = self.queue.resume(number)
        if done:
            now = time.monotonic()
            self.records.delivered(done, now)
            self.counters["accepted"] += len(done)
            self.replies.delivered(done, now)
        if done and not self.queue.is_congested:
            self._relieve()
        if self.queue.is_exhausted and not self.queue.under_way:
            self._begin_stream()
        elif self.queue.waiting and self.carriers:
            self.carriers[0].pump()

    def _begin_stream(self) -> None:
        """After 2^32 messages: another name, numbers from 1, and a new carrier that knows it."""
        self.queue.begin_stream(token_hex(16))
        for carrier in list(self.carriers):
            carrier.end()

    def is_active(self, carrier: Carrier) -> bool:
        """See `LinkPort`."""
        return bool(self.carriers) and self.carriers[0] is carrier

    def refused(self, number: int, code: Code, detail: str) -> None:
        """See `LinkPort`."""
        pending = self.queue.refused(number)
        if pending is not None:
            self._end(pending, "rejected", code, detail)

    def quarantined(self, pending: Pending) -> None:
        """See `LinkPort`."""
        msg_id = pending.msg_id.hex()
        about = {"domain": self.domain, "msg_id": msg_id, "code": Code.QUARANTINED.word}
        logger.error("message %s killed the stub of %s twice and is quarantined", msg_id, self.domain, extra=about)
        self._context.quarantine(self.domain, pending)
        self._end(pending, "trapped", Code.QUARANTINED)

    def _end(self, pending: Pending, outcome: Outcome, code: Code, detail: str = "") -> None:
        """A message of ours ends here: write it down, forget that a reply was expected, tell the sender."""
        now = time.monotonic()
        self.counters[outcome] += 1
        self.records.ended(pending, outcome, code, now)
        if pending.message.peek.trace:
            self._context.traces.hop(pending.message.trace, outcome, now)
        self.replies.failed(pending, code, detail, now)

    def processed(self, stream: str) -> int:
        """See `LinkPort`."""
        return self.streams.processed(stream)

    async def wait_for_room(self) -> None:
        """See `LinkPort`."""
        await self._context.wait_for_room()

    # Inward.

    def inbound(self, messages: Sequence[tuple[int, bytes]], stream: str, carrier: Carrier | None = None) -> None:
        """See `LinkPort`.

        Raises:
            PeerError: SPOOFED_SOURCE after too many messages in the name of others: the carrier is to be closed.
        """
        self.last_used_seconds = time.monotonic()
        self._inbound.take(messages, stream, carrier)

    # Time.

    def tick(self, now: float) -> bool:
        """Answer some of what waited too long; whether there may be more. `now` is monotonic seconds."""
        overdue = self.queue.expire(now)
        for pending in overdue:
            if self.carriers:  # the far end has not taken it in time, which is the same as no answer in time
                self._end(pending, "expired", Code.GATEWAY_TIMEOUT, self.detail)
            else:
                code = self.refuse_code or self.last_code or Code.DEPLOY_TIMEOUT
                self._end(pending, "expired", code, self.detail)
        if self.carriers:
            self._watch_line(self.carriers[0], now)
        silent_seconds = self.silent_seconds(now)
        detail = f"{self.domain} is stalled: nothing heard for {silent_seconds:.0f} s" if silent_seconds else ""
        value = {"link": "stalled", "silentSeconds": round(silent_seconds, 1)} if silent_seconds else None
        unanswered = 0 if overdue else self.replies.expire(now, detail=detail, value=value)
        return bool(overdue or unanswered)  # what still waits here has another code

    def silent_seconds(self, now: float) -> float:
        """How long a stalled line has been silent; 0 while it is not stalled. `now` is monotonic seconds."""
        since = self._watch.silent_since
        return 0.0 if since is None else now - since

    def _watch_line(self, carrier: Carrier, now: float) -> None:
        """Find out whether the line on which our messages go is stalled, or is heard again."""
        untaken = self.queue.under_way + self.queue.waiting
        awaited = len(self.replies)
        sight = self._watch.look(now, heard=carrier.heard_seconds, is_owed=untaken > 0 or awaited > 0)
        if sight is Sight.SILENT and not carrier.probe() and not untaken:
            self._watch.reset()  # a reply may take its time, and this line cannot be asked
        elif sight is Sight.STALLED:
            waits = f"{untaken} messages are not taken, {awaited} requests wait for their reply"
            self.state, self.detail = "stalled", f"nothing heard for {self.silent_seconds(now):.0f} s; {waits}"
            self.counters["stalls"] += 1
            self.events.stalled(self.detail)
        elif sight is Sight.HEARD_AGAIN:
            self.state, self.detail = "live", ""
            self.events.heard_again(self._watch.stalled_seconds)

    def give_up(self, code: Code, detail: str) -> None:
        """The domain cannot be reached for a reason that time does not heal: answer everything that waits."""
        self.detail = detail
        for pending in self.queue.abandon():
            self._end(pending, "rejected", code, detail)

    def met(self, side: Side, text: str) -> None:
        """Something keeps us from the domain: a warning when it is another trouble than before."""
        warning = self.trouble.met(side, text, time.time())
        if warning:
            self.events.troubled(warning)

    @property
    def problem(self) -> str:
        """What is wrong with the link, in words for operators; "" when nothing is."""
        if self._watch.is_stalled:
            return f"{self.domain} is stalled: {self.detail}"
        return "" if self.carriers else self.trouble.text(time.time())

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or is under way, nobody expects a reply or listens there, and no legacy is there."""
        is_used = self.queue.waiting or self.queue.under_way or len(self.replies) or self._is_legacy
        return not (is_used or self._context.is_wanted(self.domain))

    # The records.

    def _mark_way(self) -> None:
        self.records.carried(channel=self.carried_by, peer_node=self.peer_node, stub_version=self.stub_version)


_OWN_WORDS = Verdict(permitted=True, code=None, rule_id="", revision="", step=Step.NODE)
