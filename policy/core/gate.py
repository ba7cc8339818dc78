"""The gate between domains, and on the own bus: every message passes one, none passes beside it.

In this order: how much the peer may send in this direction, whether its domain is listed, what a gate for a time says,
what the policies say and how much a rule lets pass, what the peer's entry in the settings says when the policies say
nothing, and of what would pass, what the owner of an object has named for it. Between domains silence means no: a
domain that no entry names is denied unless a rule permits it. A gate answers with a verdict and does nothing else:
recording, answering and passing on are the caller's.
Source: trust and hosts, section 5.3; message specification, sections 15.3 and 21, rows 48 to 52.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from policy.core.engine import (
    CompiledPolicies,
    Decision,
    Effect,
    Facts,
    RuleOutcome,
    compile_policies,
)
from policy.core.limits import Limit, Limits
from policy.core.model import Hook, LinkClass
from policy.core.object_policies import ObjectPolicies, denial_of, settles
from policy.core.obligations import Duties, Instead, Transfer, duties_of, instead_of, limit_of, mark_of, transfer_of
from policy.core.peer_entries import OWN_BUS, UNNAMED, DefaultEffect, DomainLists, PeerEntries, PeerEntry, PeerRule
from policy.core.quotas import Quotas, QuotaWait
from policy.core.rates import BothBuckets, Bucket
from policy.core.temporary import TemporaryGate, TemporaryGates
from protofly.address import P2P_STUBS, domain_of
from protofly.errors import Code, PeerError
from protofly.forwarding import FORWARD, carried
from protofly.limits import FORWARD_LEVELS, GATE_KNOWN_DOMAINS, OBJECT_POLICY_WAIT_SECONDS
from protofly.message import Message

__all__ = ["Explanation", "Gate", "GateStep", "GateVerdict", "PeerRule", "Settled", "narrow"]

_UNASKED: Final = Decision(Effect.NOT_APPLICABLE)


class GateStep(StrEnum):
    """The step of a gate that gave the verdict."""

    RATE = "rate"
    LIST = "list"
    GATE = "gate"
    """A gate for a time, which an operator has set."""
    POLICY = "policy"
    LIMIT = "limit"
    """A rule permits it, and its limit is used up."""
    DEFAULT = "default"
    DOCUMENT = "document"
    """The policy of an object, which its owner has named, does not let it pass."""
    NODE = "node"
    """No gate was asked: the node's own words."""


class GateVerdict(msgspec.Struct, frozen=True):
    """Decision about a message: passed or not. `code` says why not; `rule_id` is "" unless a rule decided.

    `revision` names the policies, `decision` is what they said (with obligations and what report mode would have
    done), and `retry_after_seconds` goes with `Code.RATE` and `Code.QUOTA`. `instead` is what a rule puts in the place
    of passing the message on, which then is not permitted. `limit` is what the rule that permits it lets pass at most,
    `mark` a limit in which the message counts beside that, and `duties` is what is to be done beside the decision.
    `transfer` is what the rule says about the data of a message that leaves.
    """

    permitted: bool
    code: Code | None
    rule_id: str
    revision: str
    retry_after_seconds: float = 0.0
    step: GateStep = GateStep.DEFAULT
    decision: Decision = _UNASKED
    instead: Instead | None = None
    limit: Limit | None = None
    mark: Limit | None = None
    duties: Duties | None = None
    transfer: Transfer | None = None

    @property
    def is_permitted_by_rule(self) -> bool:
        """True if a rule permits it; otherwise no policy applied to what passes."""
        return self.permitted and self.step is GateStep.POLICY

    @property
    def details_for_sender(self) -> dict[str, object] | None:
        """Details of a denial for a sender of our own domain. Source: message specification, sections 4 and 15.3."""
        details: dict[str, object] = {"retryAfter": self.retry_after_seconds} if self.retry_after_seconds else {}
        if self.rule_id:
            details["rule"] = self.rule_id
        return details or None

    def details_of(self, msg_id: str) -> dict[str, object] | None:
        """The same, with the id under which the message is in records and in the log; "" if it is not there."""
        return {**(self.details_for_sender or {}), "msgId": msg_id} if msg_id else self.details_for_sender


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict with everything that led to it. Rates are left out: asking must not use them up."""

    verdict: GateVerdict
    peer_entry: str
    """The entry of the settings that fits the peer, "" if none does."""
    is_listed: bool
    """True if the allow and deny lists let the peer's domain pass."""
    rules: tuple[RuleOutcome, ...]
    values: dict[str, object]
    """Attributes that rules read, as they saw them; what was missing is not here."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The verdict of a gate for all messages of one flow, valid while the gate's era is `era`.

    Attributes:
        verdict: They pass, and this is why.
        bucket: What each of them has to pass first, None without rates.
        era: The era of the gate.
    """

    verdict: GateVerdict
    bucket: Bucket | None
    era: object


class _Lane:
    """The settled decisions about one domain at one hook, looked up by each message."""

    __slots__ = ("bars_p2p", "bucket", "default", "entry", "is_listed")

    def __init__(
        self, entry: PeerEntry, bucket: Bucket | None, *, is_listed: bool, default: GateVerdict, bars_p2p: bool
    ) -> None:
        self.bars_p2p = bars_p2p
        self.entry = entry
        self.bucket = bucket
        self.is_listed = is_listed
        self.default = default


def _both_lanes(link: _Lane, sender: _Lane) -> _Lane:
    """The settled decisions about messages of one domain over the link of another."""
    is_listed = link.is_listed and sender.is_listed
    if sender.entry is link.entry or sender.entry is UNNAMED:
        return _Lane(link.entry, link.bucket, is_listed=is_listed, default=link.default, bars_p2p=link.bars_p2p)
    buckets = [bucket for bucket in (link.bucket, sender.bucket) if bucket is not None]
    return _Lane(
        link.entry,
        BothBuckets(*buckets) if len(buckets) == 2 else buckets[0] if buckets else None,
        is_listed=is_listed,
        default=link.default if sender.default.permitted else sender.default,
        bars_p2p=link.bars_p2p or sender.bars_p2p,
    )


class _Lanes:
    """All lanes, for as long as entries, lists and policies are these."""

    def __init__(self, entries: PeerEntries, lists: DomainLists, own_bus: PeerEntry, revision: str) -> None:
        self._entries = entries
        self._own_bus = own_bus
        self._lists = lists
        self._revision = revision
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._of_senders: dict[tuple[str, str], _Lane] = {}

    def of(self, hook: str, domain: str) -> _Lane:
        """The settled decisions about one domain at one hook."""
        return self._lanes.get((hook, domain)) or self._open(hook, domain)

    def of_sender(self, facts: Facts) -> _Lane:
        """How a message is judged that comes over a link in the name of another domain than the linked one.

        By both: the lists have to let both pass, and where an entry names the sender's domain, its rates and its
        default count as well.
        """
        link, sender = facts.link_domain, facts.from_domain
        if sender in (link, ""):
            return self.of("in", link)
        found = self._of_senders.get((link, sender))
        if found is None:
            if len(self._of_senders) >= GATE_KNOWN_DOMAINS:
                self._of_senders.clear()
            found = _both_lanes(self.of("in", link), self.of("in", sender))
            self._of_senders[link, sender] = found
        return found

    def _open(self, hook: str, domain: str) -> _Lane:
        if hook == "local":
            entry, is_listed = self._own_bus, True
        else:
            entry, is_listed = self._entries.find(domain), self._lists.let_pass(domain)
        permitted = entry.rule.default == "permit"
        refusal = Code.POLICY if hook == "local" else Code.DOMAIN_BLOCKED
        default = GateVerdict(permitted, None if permitted else refusal, "", self._revision)
        bars_p2p = hook in ("in", "out") and not entry.rule.p2p
        lane = _Lane(entry, entry.bucket(hook), is_listed=is_listed, default=default, bars_p2p=bars_p2p)
        if len(self._lanes) >= GATE_KNOWN_DOMAINS:
            self._lanes.clear()  # nothing is lost but time: rates live with the entries
        self._lanes[hook, domain] = lane
        return lane


class Gate:
    """All gates of a node: they share policies, peers and rates, and differ by the `hook` in the facts.

    Attributes:
        era: Another object as soon as policies, entries or lists change.
        facts_read: What the rules of the policies in force read.
        has_policies: Whether there are any.
        limits: What has been counted for the limits of rules.
        objects: The policies of single objects, None where there are none.
        policies: Those in force.
        quotas: What has been counted for the quotas of entries.
    """

    def __init__(
        self,
        policies: CompiledPolicies | None = None,
        peers: Mapping[str, PeerRule] | None = None,
        *,
        allow: Sequence[str] | None = None,
        deny: Sequence[str] = (),
        own_bus: DefaultEffect = "permit",
    ) -> None:
        """Set up the gates.

        Args:
            policies: What rules say; None is no rules at all.
            peers: Settings by domain or `*.domain`; the most specific one counts.
            allow: If given, only these domains pass, whatever rules say; empty: nobody does.
            deny: These do not pass, unless `allow` names them more specifically.
            own_bus: What happens on the own bus to messages about which no policy says anything.

        Raises:
            SettingsError: A name that is no domain pattern, or a rate that is not more than 0.
        """
        self.quotas = Quotas()
        self._entries = PeerEntries(peers or {}, self.quotas)
        self._lists = DomainLists(allow, deny)
        self._own_bus = OWN_BUS[own_bus]
        self._temporary = TemporaryGates()
        self.objects: ObjectPolicies | None = None
        self.limits = Limits(self.quotas.volumes, self._begin_era)
        self.denied = 0
        """Messages that did not pass."""
        self.replace(policies if policies is not None else compile_policies([]))

    @property
    def judges_own_bus(self) -> bool:
        """True if any message on the own bus could be denied, or has a record of its own."""
        is_open = self._own_bus is not OWN_BUS["deny"] and self.objects is None
        return self.has_policies or bool(self._temporary) or not is_open

    def configure(
        self,
        peers: Mapping[str, PeerRule],
        *,
        allow: Sequence[str] | None,
        deny: Sequence[str],
        own_bus: DefaultEffect = "permit",
    ) -> None:
        """Put other entries and lists in force from the next message on. Rates of unchanged entries go on.

        Raises:
            SettingsError: As when the gates are set up; then nothing has changed.
        """
        lists = self._lists.with_lists(allow, deny)
        self._entries, self._lists = self._entries.with_others(peers), lists
        self._own_bus = OWN_BUS[own_bus]
        self.replace(self.policies)

    def cut_off(self, patterns: Iterable[str]) -> None:
        """Let these domains not pass from the next message on, whatever entries, lists and rules say; no others.

        Raises:
            SettingsError: A name that is no domain pattern.
        """
        self._lists = self._lists.with_cut_off(patterns)
        self.replace(self.policies)

    def set_temporary(self, gates: Sequence[TemporaryGate]) -> None:
        """Put these gates in force from the next message on, and no others; the one that was set last is first."""
        self._temporary = TemporaryGates(gates)
        self._begin_era()

    def narrow_by(self, objects: ObjectPolicies) -> None:
        """Let these deny what would pass, from the next message on; again when they have changed."""
        self.objects = objects
        self._begin_era()

    def judge(self, facts: Facts) -> GateVerdict:
        """Decide whether one message passes, and count it. Never raises."""
        if facts.hook == "in" and facts.from_domain != facts.link_domain:
            lane = self._lanes.of_sender(facts)
        else:
            lane = self._lanes.of(facts.hook, facts.link_domain)
        bucket = lane.bucket
        if bucket is not None:
            wait_seconds = bucket.take(facts.size_bytes, facts.now, facts.message.type)
            if wait_seconds:
                self.denied += 1
                revision = self.policies.revision
                return GateVerdict(False, _code_of(wait_seconds), "", revision, float(wait_seconds), GateStep.RATE)
        verdict = self._decide(lane, facts)
        if verdict.permitted and facts.message.type == FORWARD:
            verdict = self._decide_carried(lane, facts, verdict, counts=True)
        if verdict.limit is not None:
            verdict = self._counted(verdict, facts)
        if verdict.mark is not None and facts.hook != "peer":
            self.limits.bucket(verdict.mark, facts).take(facts.size_bytes, facts.now, facts.message.type)
        if not verdict.permitted:
            self.denied += 1
        return verdict

    def _counted(self, verdict: GateVerdict, facts: Facts) -> GateVerdict:
        """Count a permitted message in its limit; the verdict becomes a denial when the limit is reached."""
        if verdict.limit is None or facts.hook == "peer":
            return verdict
        bucket = self.limits.bucket(verdict.limit, facts)
        wait_seconds = bucket.take(facts.size_bytes, facts.now, facts.message.type)
        if not wait_seconds:
            return verdict
        return msgspec.structs.replace(
            verdict,
            permitted=False,
            code=_code_of(wait_seconds),
            retry_after_seconds=float(wait_seconds),
            step=GateStep.LIMIT,
            mark=None,  # what was decided is not what happens
            duties=None,
        )

    def settle(self, facts: Facts) -> Settled | None:
        """Decide for all messages of the flow of this one; None if each has to be judged by itself.

        See `CompiledPolicies.settles` for what a flow is. Nothing is counted, and what is refused is not settled.
        """
        lane = self._lanes.of_sender(facts) if facts.hook == "in" else self._lanes.of(facts.hook, facts.link_domain)
        verdict = self._decide(lane, facts)
        if not verdict.permitted or verdict.decision.shadow or verdict.mark or facts.message.type == FORWARD:
            return None
        if not self.policies.settles(facts) or (self.objects is not None and not settles(self.objects, facts)):
            return None
        bucket = lane.bucket
        if verdict.limit is not None:
            limited = self.limits.bucket(verdict.limit, facts)
            bucket = limited if bucket is None else BothBuckets(bucket, limited)
        return Settled(verdict, bucket, self.era)

    def _decide_carried(self, lane: _Lane, facts: Facts, verdict: GateVerdict, *, counts: bool = False) -> GateVerdict:
        """Judge what a message carries as well, if it can be read; with `counts`, limits count it.

        Source: message specification, section 9.7.
        """
        inner = facts.message
        is_inbound = facts.hook == "in"
        for _ in range(FORWARD_LEVELS):
            message = carried(inner)
            if message is None:
                break
            inner = message
            try:
                from_domain, to_domain = domain_of(inner.from_), domain_of(inner.to)
            except PeerError:
                continue
            inner_facts = msgspec.structs.replace(
                facts,
                message=inner,
                from_domain=from_domain,
                to_domain=to_domain,
                identity_verified=False,  # who sends the outer message is not who wrote this one
                identity_user="",
                identity_issuer="",
                identity_groups=None,
            )
            inner_verdict = self._decide(self._lanes.of_sender(inner_facts) if is_inbound else lane, inner_facts)
            if counts:
                inner_verdict = self._counted(inner_verdict, inner_facts)
            if not inner_verdict.permitted:  # what is carried has no way of its own that could be another
                return msgspec.structs.replace(inner_verdict, instead=None)
            if verdict.transfer is None:
                verdict = msgspec.structs.replace(verdict, transfer=inner_verdict.transfer)
        return verdict

    def foresee(self, facts: Facts) -> GateVerdict:
        """Say what the verdict would be, rates aside; changes and counts nothing."""
        lane = self._lanes.of_sender(facts) if facts.hook == "in" else self._lanes.of(facts.hook, facts.link_domain)
        verdict = self._decide(lane, facts)
        if verdict.permitted and facts.message.type == FORWARD:
            return self._decide_carried(lane, facts, verdict)
        return verdict

    def explain(self, facts: Facts) -> Explanation:
        """Say what the verdict would be and why; changes and counts nothing."""
        lane = self._lanes.of(facts.hook, facts.link_domain)
        if facts.hook == "in":
            lane = self._lanes.of_sender(facts)
        return Explanation(
            self._decide(lane, facts),
            lane.entry.name,
            lane.is_listed,
            self.policies.outcomes(facts),
            self.policies.facts_of(facts),
        )

    def names(self, domain: str) -> bool:
        """True if an entry of the settings is for this domain alone."""
        return self._entries.names(domain)

    def class_of(self, domain: str) -> LinkClass:
        """The trust class of a foreign domain, for the facts about its messages."""
        return self._entries.find(domain).rule.link_class

    def bars(self, facts: Facts) -> bool:
        """True if a domain is kept out as such, by the lists, by a rule or by its entry; counts nothing.

        A domain that nothing names is not let in either, but nothing is said against it.
        """
        lane = self._lanes.of(facts.hook, facts.link_domain)
        verdict = self._decide(lane, facts)
        return not verdict.permitted and not (lane.entry is UNNAMED and verdict.step is GateStep.DEFAULT)

    def replace(self, policies: CompiledPolicies) -> None:
        """Put policies in force from the next message on, with everything that depends on them. Rates go on."""
        self._begin_era()
        self.policies = policies
        self.limits.keep_only(policies.limits)
        self.facts_read = policies.facts_read
        self.has_policies = bool(policies.sets)
        listed = (Code.DOMAIN_BLOCKED, Code.POLICY)
        self._listed = {code: GateVerdict(False, code, "", policies.revision, 0.0, GateStep.LIST) for code in listed}
        self._verdicts: dict[Decision, GateVerdict] = {}
        self._lanes = _Lanes(self._entries, self._lists, self._own_bus, policies.revision)

    def _begin_era(self) -> None:
        self.era = object()

    def _decide(self, lane: _Lane, facts: Facts) -> GateVerdict:
        verdict = self._decide_alone(lane, facts)
        if verdict.transfer is not None:
            verdict = _as_transfer(verdict, verdict.transfer, lane.entry.rule, facts.hook)
        if self.objects is None or not verdict.permitted or facts.hook == "peer":
            return verdict
        return _narrowed(verdict, self.objects, facts)

    def _decide_alone(self, lane: _Lane, facts: Facts) -> GateVerdict:
        """Decide without the policies of single objects."""
        if not lane.is_listed:
            return self._listed[Code.DOMAIN_BLOCKED]
        if lane.bars_p2p and _sets_up_p2p(facts.message):
            return self._listed[Code.POLICY]
        if self._temporary and (gate := self._temporary.find(facts)) is not None:
            permitted = gate.effect == "permit"
            code = None if permitted else Code.POLICY
            return GateVerdict(permitted, code, gate.rule_id, self.policies.revision, 0.0, GateStep.GATE)
        if not self.has_policies:
            return lane.default
        decision = self.policies.decide(facts)
        if decision.shadow:  # made for this message only
            return self._weigh(lane, decision)
        effect = decision.effect
        if effect is Effect.NOT_APPLICABLE:
            return lane.default
        if effect is Effect.INDETERMINATE:
            return self._weigh(lane, decision)
        verdict = self._verdicts.get(decision)
        if verdict is None:
            verdict = self._verdicts[decision] = self._weigh(lane, decision)
        return verdict

    def _weigh(self, lane: _Lane, decision: Decision) -> GateVerdict:
        """Turn what the policies said into a verdict.

        An indeterminate permit is no permit: between domains that is a denial; on the own bus it is silence.
        """
        effect = decision.effect
        is_silent = effect is Effect.NOT_APPLICABLE or (effect is Effect.INDETERMINATE and lane.entry is self._own_bus)
        if is_silent:
            return msgspec.structs.replace(lane.default, decision=decision)
        instead = instead_of(decision.obligations)
        permitted = effect is Effect.PERMIT and instead is None
        return GateVerdict(
            permitted,
            None if permitted else Code.POLICY,
            decision.rule_id,
            self.policies.revision,
            0.0,
            GateStep.POLICY,
            decision,
            instead,
            limit_of(decision.obligations) if permitted else None,
            mark_of(decision.obligations),
            duties_of(decision.obligations),
            transfer_of(decision.obligations) if permitted else None,
        )


def narrow(gate: Gate, facts: Facts) -> GateVerdict | None:
    """Apply the policies of single objects to a message that the gates of another node let pass.

    A denial is counted, like one of the gate itself.

    Returns:
        The denial; None if the message passes.
    """
    if gate.objects is None:
        return None
    verdict = _narrowed(GateVerdict(True, None, "", gate.policies.revision), gate.objects, facts)
    gate.denied += not verdict.permitted
    return None if verdict.permitted else verdict


def _as_transfer(verdict: GateVerdict, transfer: Transfer, peer: PeerRule, hook: Hook) -> GateVerdict:
    """What a verdict that labels data becomes: nothing is labelled that does not leave, nor leaves without consent."""
    if hook != "out":
        return msgspec.structs.replace(verdict, transfer=None)
    if transfer.needs_consent and not peer.may_receive.issuperset(transfer.labels):
        return msgspec.structs.replace(verdict, permitted=False, code=Code.CONSENT, limit=None)
    return verdict


def _narrowed(verdict: GateVerdict, objects: ObjectPolicies, facts: Facts) -> GateVerdict:
    """Apply the policies of single objects to a verdict that permits a message."""
    denial = denial_of(objects, facts)
    if denial is None:
        return verdict
    wait_seconds = OBJECT_POLICY_WAIT_SECONDS if denial.code is Code.POLICY_UNAVAILABLE else 0.0
    return GateVerdict(False, denial.code, denial.rule_id, verdict.revision, wait_seconds, GateStep.DOCUMENT)


def _code_of(wait_seconds: float) -> Code:
    return Code.QUOTA if isinstance(wait_seconds, QuotaWait) else Code.RATE


def _sets_up_p2p(message: Message) -> bool:
    """True if a message is to or from a P2P stub. Source: message specification, section 17."""
    return any(f"/{name}/" in address for name in P2P_STUBS for address in (message.to, message.from_))
