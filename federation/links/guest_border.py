"""Runtimes of other domains that have a session here: the gates and the records of a link, without a link.

A guest speaks for its domain as a link does, so it is judged as one: `peer` when it opens its session, `in` for what it
sends, `out` for what is sent to it, each with its domain as `linkDomain` and with the buckets that the domain's link
uses, so that nobody gains a message by coming as a guest. The roles of a guest's own session count for nothing, as
those behind a link do; only `session.class` differs. What the node itself answers (refusals, session
replies) passes no gate.
Source: message specification, section 18.5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from federation.core.border import InwardBorder, Speaker, hops_of, id_carried
from federation.core.carried import NODE_FLAGS, cleaned_forward
from federation.core.interworking import INTERWORKING_TYPES
from federation.core.transactions import ANY_REPLIES, ONE_REPLY, Transactions, tracking_of
from federation.discovery.redirects import follow_redirects
from federation.links.decision_records import DecisionRecords
from federation.links.link_context import UNIDENTIFIED, BorderRules
from federation.links.link_events import LinkEvents
from federation.links.link_records import LinkRecords, Recording
from policy.core.engine import Facts
from policy.core.gate import GateVerdict
from policy.core.session_class import SessionClass
from protofly import codec
from protofly.address import domain_of, valid_domain
from protofly.errors import Code, PeerError
from protofly.forwarding import FORWARD
from protofly.late_replies import marked_late
from protofly.limits import GATE_KNOWN_DOMAINS, REQUEST_TTL_SECONDS
from protofly.message import Message
from protofly.records import MessageRecord, envelope_digest

CHANNEL = "guest"
"""The channel in records of such a message."""
ANSWERED_SECONDS = 3600.0
"""For so long a guest may take for its answer: who asks without a `ttl` times it itself, as with our own runtimes."""

_NO_ROLES = frozenset[str]()
_GUEST = SessionClass.GUEST.alone


@dataclass(frozen=True, slots=True)
class GuestContext:
    """The context that the borders of all guests share.

    `decisions` judges their opens, and records denials within bounds. `mains` gives the main domain of each alias that
    the operator lists: its guests are judged as the link of that domain. `doubt_until` is in monotonic seconds: until
    then a reply to an unknown request may answer one of the process before this one.
    """

    rules: BorderRules
    recording: Recording
    decisions: DecisionRecords
    mains: dict[str, str] = field(default_factory=dict)
    doubt_until: float = field(default_factory=lambda: time.monotonic() + REQUEST_TTL_SECONDS)


class DeniedError(PeerError):
    """Our gate does not let a message pass; `instead` is what a rule puts in the place of a refusal."""

    def __init__(self, verdict: GateVerdict, domain: str, msg_id: str) -> None:
        super().__init__(verdict.code or Code.POLICY, domain=domain, msg_id=msg_id)
        self.instead = verdict.instead


class Entered:
    """A message of a guest that our gate let in, and its record, which `arrived` ends."""

    __slots__ = ("_began", "_entry", "_records", "message")

    def __init__(self, message: Message, entry: MessageRecord, records: LinkRecords, began: float) -> None:
        self.message = message
        self._entry = entry
        self._records = records
        self._began = began

    def arrived(self, code: Code | None) -> None:
        """The bus has taken the message; `code` says why nobody could be given it."""
        self._records.arrived(self._entry, code, int((time.monotonic() - self._began) * 1e6))


class _Side:
    """Border, records and events of the guests of one domain, and what they were asked."""

    __slots__ = ("asked", "border", "events", "records")

    def __init__(self, domain: str, context: GuestContext) -> None:
        speaker = Speaker(frozenset({domain}), context.rules.ours.domains)
        self.border = InwardBorder(context.rules.ours.node, speaker, max_hops=context.rules.max_hops)
        self.records = LinkRecords(domain, context.recording)
        self.events = LinkEvents(domain, context.recording.record)
        self.records.carried(channel=CHANNEL, peer_node="", stub_version="")
        self.asked = Transactions(doubt_until=context.doubt_until)

    def handed(self, message: Message, now: float) -> None:
        """A guest was given a message; `now` is monotonic seconds."""
        tracking = tracking_of(message)
        if tracking is ONE_REPLY:
            self.asked.started(message, now, ANSWERED_SECONDS)
        elif tracking is ANY_REPLIES:
            self.asked.addressed(message, now)
        self.asked.expired(now)  # nobody is answered in its place


class GuestBorder:
    """Judges and records what guests send and are sent."""

    def __init__(self, context: GuestContext) -> None:
        self.rules = context.rules
        self._our_domains = context.rules.ours.domains
        self._we = Speaker(self._our_domains)
        self._context = context
        self._sides: dict[str, _Side] = {}

    def follow(self, mains: Mapping[str, str]) -> None:
        """Judge guests of these aliases as the links of their main domains from now on."""
        self._context.mains.clear()
        self._context.mains.update(mains)

    def open(self, domain: str, message: Message) -> None:
        """Judge the `open` or `re-open` of a guest.

        Raises:
            PeerError: NAME_INVALID for what is no domain that could be linked; DOMAIN_BLOCKED or POLICY.
        """
        valid_domain(domain)
        domain = self._context.mains.get(domain, domain)
        if self.rules.interworking.admission(domain) is not None:
            raise PeerError(Code.DOMAIN_BLOCKED, "this domain speaks through its interworking stub only", domain=domain)
        facts = Facts(
            "peer",
            message,
            domain_of(message.from_),
            domain,
            domain,
            len(message.raw),
            0,
            time.time(),
            session_roles=_GUEST,
            link_class=self.rules.gate.class_of(domain),
        )
        verdict, msg_id = self._context.decisions.judge(facts, group="guests", source=domain)
        if not verdict.permitted:
            detail = "our policy does not talk to this domain"
            raise PeerError(verdict.code or Code.POLICY, detail, domain=domain, msg_id=msg_id)

    def enter(self, domain: str, message: Message, now: float) -> Entered:
        """Clean and judge what a guest sends; its sender has been checked. `now` is seconds since the Unix epoch.

        Raises:
            DeniedError: Our gate does not let it pass.
            PeerError: Why else it may not enter. Both are recorded.
        """
        rules, began = self.rules, time.monotonic()
        domain = self._context.mains.get(domain, domain)
        side = self._side(domain)
        try:
            if message.type in INTERWORKING_TYPES:
                raise PeerError(Code.BAD_TYPE, "only interworking stubs are sent this", domain=domain)
            inner, _ = side.border.cross(message)
            from_domain, to_domain = domain_of(inner.from_), domain_of(inner.to)
            if from_domain in self._our_domains:  # an address of ours that it leases
                from_domain = domain
            who = UNIDENTIFIED if rules.identify is None else rules.identify(inner, domain, now)
        except PeerError as exc:
            self.refused(domain, message, exc.code, now)
            raise
        facts = Facts(
            "in",
            inner,
            from_domain,
            to_domain,
            domain,
            len(message.raw),
            side.border.hops_crossed,
            now,
            *who,
            _GUEST,
            link_class=rules.gate.class_of(domain),
            recipients=rules.recipients,
        )
        verdict = rules.gate.judge(facts)
        msg_id = rules.ids.next(now)
        digest = envelope_digest(inner.type, inner.from_, inner.to, inner.id, inner.body)
        entry = side.records.entering(facts, verdict, msg_id, digest)
        if verdict.instead is not None:
            side.records.decided(facts, verdict, msg_id)
            facts, verdict = follow_redirects(rules.gate, facts, verdict)
            inner = facts.message
            entry = side.records.entering(facts, verdict, msg_id, digest)
        if not verdict.permitted:
            side.records.denied(entry, facts, verdict, msg_id)
            raise DeniedError(verdict, domain, entry.msg_id)
        if verdict.decision.shadow:
            side.records.decided(facts, verdict, msg_id)
        if rules.gate.has_policies:
            inner.judged(verdict.is_permitted_by_rule)
        return Entered(inner, entry, side.records, began)

    def replied(self, domain: str, reply: Message) -> Message:
        """A reply of a guest as it is delivered: marked late unless it answers what a guest of its domain was asked."""
        asked, now = self._side(self._context.mains.get(domain, domain)).asked, time.monotonic()
        if asked.replied(reply, now) or asked.is_open(reply) or not asked.is_late(reply, now):
            return reply
        return marked_late(reply)

    def refused(self, domain: str, message: Message, code: Code, now: float) -> None:
        """Record that a message of a guest was turned away before our gate saw it."""
        side = self._side(self._context.mains.get(domain, domain))
        side.records.refused(message, id_carried(message), code, now, len(message.raw))
        if code is Code.SPOOFED_SOURCE:
            side.events.spoofed(message.from_, code)

    def leave(
        self,
        domain: str,
        message: Message,
        hand_over: Callable[[Message], Code | None],
        roles: frozenset[str] = _NO_ROLES,
    ) -> Code | None:
        """Judge what is sent to a guest of `domain`, hand it over if it may leave, and record it.

        Args:
            domain: The guest's.
            message: As our bus has it.
            hand_over: Gives it to the guest as it would be read behind the link; says why not.
            roles: Those of the sender's session, if it is one of our own domain.

        Returns:
            Why the guest was not given it.
        """
        rules, now, began = self.rules, time.time(), time.monotonic()
        domain = self._context.mains.get(domain, domain)
        side = self._side(domain)
        records = side.records
        try:
            if message.type in INTERWORKING_TYPES:
                rules.interworking.check_sent(domain, message)
            hops = len(hops_of(message)) if message.peek.via else 0
            from_domain = domain_of(message.from_)
            if message.type == FORWARD and message.body:
                message = codec.with_body(message, cleaned_forward(message.body, self._we.may_use))
            who = UNIDENTIFIED if rules.identify is None else rules.identify(message, from_domain, now)
        except PeerError as exc:
            return exc.code
        facts = Facts(
            "out",
            message,
            from_domain,
            domain,
            domain,
            len(message.raw),
            hops,
            now,
            *who,
            roles,
            message.verdict,
            rules.gate.class_of(domain),
        )
        verdict = rules.gate.judge(facts)
        policy_us, msg_id = int((time.monotonic() - began) * 1e6), rules.ids.next(now)
        if not verdict.permitted:
            code = verdict.code or Code.POLICY
            records.kept_back(facts, verdict, msg_id, code, outcome="denied", policy_us=policy_us)
            return code
        if verdict.decision.shadow:
            records.decided(facts, verdict, msg_id)
        refused = hand_over(without_flags(message))
        if refused is None:
            side.handed(message, began)
        records.handed(facts, verdict, msg_id, refused, policy_us=policy_us)
        return refused

    def _side(self, domain: str) -> _Side:
        side = self._sides.get(domain)
        if side is None:
            if len(self._sides) >= GATE_KNOWN_DOMAINS:
                self._sides.clear()
            side = self._sides[domain] = _Side(domain, self._context)
        return side


def without_flags(message: Message) -> Message:
    """A message as it is read behind a link: without what only nodes set."""
    peek = message.peek
    if not (peek.via or peek.auth or peek.session_token or peek.asserted_identity):
        return message
    return codec.with_body(message, codec.without_members(message.body, NODE_FLAGS))
