"""The way out of one link: what our side sends is checked, judged by our gate, and made ready for the far side.

Its counterpart is `inbound`.
"""

from __future__ import annotations

import time
from secrets import token_hex

from msgspec.structs import replace

from federation.core.border import (
    BareBorder,
    OutwardBorder,
    Speaker,
    check_speaks_for,
    hops_of,
    named_abroad,
    refusal_abroad,
)
from federation.core.carried import cleaned_forward
from federation.core.interworking import INTERWORKING_TYPES
from federation.core.link_counts import LinkCount
from federation.core.link_machine import LinkMachine
from federation.core.outbound_queue import OutboundMessage, deadline_of
from federation.links.link_context import UNIDENTIFIED, BorderRules, Refusal
from federation.links.link_records import LinkRecords
from federation.links.outward_flow import FlowTerms
from policy.core.engine import Facts
from policy.core.gate import GateStep, GateVerdict
from policy.core.obligations import Instead
from protofly import codec
from protofly.address import domain_of, is_address
from protofly.errors import Code, PeerError
from protofly.forwarding import FORWARD
from protofly.lifetime import ttl_of
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import NO_PEEK, Message
from protofly.records import envelope_digest

_UNUSUAL_TYPES = INTERWORKING_TYPES | {FORWARD, "response"}
_OWN_WORDS = GateVerdict(permitted=True, code=None, rule_id="", revision="", step=GateStep.NODE)


class Outbound:
    """The way out of one link.

    Args:
        domain: The foreign domain.
        border: Makes messages ready to leave.
        rules: Hold for every message between our domain and another one.
        machine: Says whether it takes messages now.
        records: Gets what is not even queued.
    """

    def __init__(
        self,
        domain: str,
        border: OutwardBorder | BareBorder,
        rules: BorderRules,
        machine: LinkMachine,
        records: LinkRecords,
    ) -> None:
        self._domain = domain
        self._rules = rules
        self._machine = machine
        self._records = records
        self._border = border
        self.link_class = rules.gate.class_of(domain)
        """The trust class of the domain."""
        self._our_domains = rules.ours.domains
        self._we = Speaker(self._our_domains)
        self._is_legacy = rules.interworking.admission(domain) is not None

    def judged(self, message: Message, roles: frozenset[str], started: float) -> OutboundMessage | Refusal:
        """Judge one message of ours and make it ready; a refusal is recorded, and the caller's to answer.

        Args:
            message: As our bus has it.
            roles: Those of its sender's session.
            started: Now, in monotonic seconds.
        """
        rules, domain = self._rules, self._domain
        now = time.time()
        try:
            if self._is_legacy or message.type in INTERWORKING_TYPES:
                message = rules.interworking.handed_over(domain, message, token_hex(16))
            via_length = len(hops_of(message)) if message.peek.via else 0
            from_domain = domain_of(message.from_)
            if message.type != "response" and (
                from_domain not in self._our_domains or message.peek.source or "@" in message.from_
            ):
                check_speaks_for(message, self._we)  # what the far end would take for a forgery of ours
            if message.type == FORWARD and message.body:
                message = codec.with_body(message, cleaned_forward(message.body, self._we.may_use))
            who = UNIDENTIFIED if rules.identify is None else rules.identify(message, from_domain, now)
        except PeerError as exc:
            return Refusal(exc.code)
        facts = Facts(
            "out",
            message,
            from_domain,
            domain,
            domain,
            len(message.raw),
            via_length,
            now,
            *who,
            roles,
            message.verdict,
            self.link_class,
        )
        verdict = rules.gate.judge(facts)
        policy_us = int((time.monotonic() - started) * 1e6)
        if not verdict.permitted:
            code = verdict.code or Code.POLICY
            self._machine.counters[LinkCount.DENIED] += 1
            msg_id = rules.ids.next(now)
            recorded = self._records.kept_back(facts, verdict, msg_id, code, outcome="denied", policy_us=policy_us)
            return Refusal(code, verdict.details_of(recorded), verdict.instead)
        if verdict.decision.shadow:
            self._records.decided(facts, verdict)
        msg_id = rules.ids.next(now)
        try:
            outbound = self._made_ready(message, msg_id, verdict, now, started)
        except PeerError as exc:
            self._machine.counters[LinkCount.REFUSED] += 1
            self._records.kept_back(facts, verdict, msg_id, exc.code, outcome="rejected", policy_us=policy_us)
            return Refusal(exc.code, detail=exc.detail)
        outbound.policy_us, outbound.facts = policy_us, self._records.facts_of(facts, verdict)
        return outbound

    def flow(self, message: Message, roles: frozenset[str]) -> FlowTerms | None:
        """The shared decisions of the flow of the message just sent; None if each message is judged by itself."""
        rules, border, records = self._rules, self._border, self._records
        is_usual = message.takes_members and message.peek == NO_PEEK and message.type not in _UNUSUAL_TYPES
        if not is_usual or self._is_legacy or rules.identify is not None or isinstance(border, BareBorder):
            return None
        if "@" in message.from_ or "msgId" in rules.gate.facts_read:
            return None
        size, now, to = len(message.raw), time.time(), self._domain
        facts = Facts("out", message, domain_of(message.from_), to, to, size, 0, now, session_roles=roles)
        facts = replace(facts, auth=message.verdict, link_class=self.link_class)
        settled = rules.gate.settle(facts) if facts.from_domain in self._our_domains else None
        if settled is None:
            return None
        return FlowTerms(settled, rules, border, records.facts_of(facts, settled.verdict))

    def refusal(
        self,
        request: Message,
        code: Code,
        detail: str,
        started: float,
        instead: Instead | None = None,
        *,
        msg_id: str = "",
    ) -> OutboundMessage | None:
        """Answer a request of the peer's in the name of the address that it wanted. Our own words pass no gate.

        With `instead`, the answer is a policy's; else it names the id of its record, if `msg_id` says that. None when
        it expects none, none can be given now, or its sender has a name that nobody can read: all that is queued has
        addresses that can be read.
        """
        if not request.expects_reply or not is_address(request.from_):
            return None
        node, ours = self._rules.ours.node, self._our_domains
        if instead is None:
            reply = refusal_abroad(request, code, detail, node=node, our_domains=ours, msg_id=msg_id)
        else:
            answer = codec.response(request, instead.code, description=instead.description or None)
            reply = named_abroad(request, answer, node, ours)
        now = time.time()
        try:
            return self._made_ready(reply, self._rules.ids.next(now), _OWN_WORDS, now, started)
        except PeerError:
            self._machine.counters[LinkCount.REFUSED] += 1
            return None

    def _made_ready(
        self, message: Message, msg_id: bytes, verdict: GateVerdict, now: float, started: float
    ) -> OutboundMessage:
        """Take a message over the border.

        Raises:
            PeerError: The link takes none now, or it may not cross.
        """
        machine = self._machine
        if machine.refusal is not None:
            machine.check_accepting(started)
        crossing = self._border.cross(message, msg_id)
        has_ttl = message.peek.ttl
        return OutboundMessage(
            message,
            crossing.wire,
            crossing.msg_id,
            envelope_digest(message.type, message.from_, message.to, message.id, crossing.body),
            int(now * 1e6),
            started,
            verdict.rule_id,
            verdict.revision,
            0,
            deadline_of(message) if has_ttl else REQUEST_TTL_SECONDS,
            reason=verdict.step,
            ttl_seconds=(ttl_of(message) or 0.0) if has_ttl else 0.0,
        )
