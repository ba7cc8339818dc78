"""Takes each message over the border: both gates judge it, both nodes write it down, and the truth is kept.

The decisions are those of the node's own gate with the deployed policies; what the proposed ones would say is counted
beside them.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from importlib import resources
from typing import Final

import msgspec
from msgspec import Raw

from benchmarks.synth.abuse import Extra, Spoof
from benchmarks.synth.draws import FAULTS, NO_FAULT, TYPES, Draws
from benchmarks.synth.meters import Meter
from benchmarks.synth.spools import Entry, NodeSpool
from benchmarks.synth.truth import Case, Flip, Truth
from benchmarks.synth.world import Domain, World
from policy.core.engine import CompiledPolicies, Effect
from policy.core.gate import Gate, GateVerdict
from policy.core.model import Facts, Hook
from policy.core.recorded_facts import record_facts
from policy.core.text import PolicyText, load_policies
from protofly.errors import Code
from protofly.message import NO_PEEK, BodyPeek, Message
from protofly.records import DecisionRecord, LinkEvent, MessageRecord, PolicyEvent, StubEvent

_TRAPS: Final = 0.002
_ENDINGS: Final = (  # upper end of chance, how the message ends at the sender's, why
    (0.0006, "expired", Code.DEPLOY_TIMEOUT),
    (0.0010, "rejected", Code.STUB_REFUSED),
    (0.0011, "timeout", Code.GATEWAY_TIMEOUT),
)
_UNKNOWN_RECIPIENTS: Final = 0.003
_SIMPLE_TYPES: Final = frozenset({"update", "response", "read", "subscribe", "unsubscribe"})
_SIMPLE_BYTES: Final = 8_000
_WIRE_BYTES: Final = 118
"""What the border adds to a message, besides the names of node and stub."""
_VARIANT, _LOW_BITS = 1 << 63, (1 << 62) - 1
_RESOURCES: Final = (NO_PEEK, BodyPeek(resource=Raw(b'"/status"')), BodyPeek(resource=Raw(b'"/private/diary"')))

FlipKey = tuple[str, str, str, str, str, str, str]


class Passing(msgspec.Struct, gc=False):
    """One message on its way from a domain to another."""

    at_us: int
    source: Domain
    target: Domain
    message: Message
    size: int
    transit_us: int
    stub_us: int
    fuel: int
    policy_us: int
    hops: int
    chance: float
    fault: str
    digest: str
    is_unknown: bool
    msg_id: str = ""
    wire: int = 0


def read_policy(name: str) -> tuple[str, CompiledPolicies]:
    """Text and meaning of a policy file that comes with this package: "deployed" or "proposed"."""
    text = resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return text, load_policies([PolicyText(f"{name}.toml", text, "toml")])


class Traffic:
    """Everything that happens between the domains."""

    def __init__(self, world: World, spools: list[NodeSpool], truth: Truth) -> None:
        self._world = world
        self._spools = spools
        self._truth = truth
        deployed, self._proposed = read_policy("deployed")[1], read_policy("proposed")[1]
        self._gate = Gate(deployed)
        self._reads = deployed.facts_read
        truth.deployed_rev, truth.proposed_rev = deployed.revision, self._proposed.revision
        self._templates: dict[tuple[str, int, int], MessageRecord] = {}
        self._running: dict[tuple[int, int], Meter] = {}
        self._counts = [0] * len(world.domains)
        self._flips: Counter[FlipKey] = Counter()
        self._flip_bytes: Counter[FlipKey] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._judged = 0
        self._tracked = world.tracked

    def pass_drawn(self, draws: Draws, extras: list[Extra]) -> None:
        """Take the messages of one slot, and what was planted in it, over the border in the order of time."""
        domains, sources, targets = self._world.domains, self._world.sources, self._world.targets
        planted = iter(extras)
        extra = next(planted, None)
        for number, at_us in enumerate(draws.at_us):
            while extra is not None and extra.at_us <= at_us:
                self._pass_extra(extra)
                extra = next(planted, None)
            pair, resource, hops = draws.pair[number], draws.resource[number], draws.hops[number]
            source, target = domains[sources[pair]], domains[targets[pair]]
            type_, size, fault = TYPES[draws.msg_type[number]], draws.size[number], draws.fault[number]
            from_ = source.addresses[draws.from_user[number]]
            to = target.addresses[draws.to_user[number]]
            is_simple = type_ in _SIMPLE_TYPES and size < _SIMPLE_BYTES and not resource and not hops
            healthy = self._world.healthy
            is_struck = fault != NO_FAULT and is_simple and source.number in healthy and target.number in healthy
            self._pass(
                Passing(
                    at_us,
                    source,
                    target,
                    Message(None, type_, from_, to, b"", b"", _RESOURCES[resource]),
                    size,
                    draws.transit_us[number],
                    draws.stub_us[number],
                    draws.fuel[number],
                    draws.policy_us[number],
                    hops,
                    draws.chance[number],
                    FAULTS[fault] if is_struck else "",
                    draws.digest[32 * number : 32 * number + 32],
                    False,
                )
            )
        while extra is not None:
            self._pass_extra(extra)
            extra = next(planted, None)

    def _pass_extra(self, extra: Extra) -> None:
        source, target = self._world.domains[extra.source], self._world.domains[extra.target]
        is_unknown = extra.to_user < 0
        to = f"hyperty://{target.name}/h-x{-extra.to_user:04x}" if is_unknown else target.addresses[extra.to_user]
        message = Message(None, extra.msg_type, extra.sender, to, b"", b"")
        number = self._counts[extra.source] * 2_654_435_761 & 0xFFFFFFFF
        transit_us, digest = 9_000 + number % 9_000, f"{extra.at_us:016x}{number:016x}"
        self._pass(
            Passing(
                extra.at_us, source, target, message, 380, transit_us, 150, 13_000, 5, 0, 0.5, "", digest, is_unknown
            )
        )

    def spoof(self, spoof: Spoof) -> None:
        """A message in somebody else's name: it never reaches a gate, only the record of an event shows it."""
        observer, linked = self._world.domains[spoof.observer], self._world.domains[spoof.linked]
        self._spools[spoof.observer].append(
            LinkEvent(
                ts_us=spoof.at_us + observer.offset_us,
                domain=linked.name,
                event="spoofed",
                direction="in",
                code=Code.SPOOFED_SOURCE.word,
                src_key=spoof.claimed,
            )
        )

    # One message.

    def _pass(self, passing: Passing) -> None:
        source, target = passing.source, passing.target
        self._counts[source.number] = count = self._counts[source.number] + 1
        high = (passing.at_us + source.offset_us) // 1000 << 16 | 0x7000 | count & 0xFFF
        passing.msg_id = f"{high:016x}{_VARIANT | (source.id_base + count) & _LOW_BITS:016x}"
        passing.wire = passing.size + _WIRE_BYTES + 2 * len(source.name) + len(target.name)
        fault = passing.fault
        if fault:
            self._truth.case_list.append(Case(fault, passing.msg_id, source.name, target.name))
        has_crossed = True if fault == "orphan" else self._leave(passing)
        if has_crossed and fault != "lost":
            self._enter(passing)
            if fault == "duplicated":
                passing.transit_us += 40_000
                self._enter(passing)

    def _leave(self, passing: Passing) -> bool:
        """The sender's side; says whether the message crosses."""
        source, target = passing.source, passing.target
        ts_us = passing.at_us + source.offset_us
        record: MessageRecord = self._template("out", source, target).__copy__()
        self._fill(record, passing, ts_us)
        record.size_wire = passing.wire
        record.digest = passing.digest
        facts = Facts(
            "out", passing.message, source.name, target.name, target.name, passing.size, passing.hops, ts_us / 1e6
        )
        verdict = self._judge(record, facts, source)
        if verdict.permitted:
            self._handle(record, passing)
        else:
            record.size_wire, record.stub_ver, record.channel, record.peer_node = None, None, None, None
            self._deny(record, facts, verdict, source)
        has_crossed = record.outcome == "delivered"
        if passing.fault == "outcome":
            record.outcome, record.outcome_code = "expired", Code.DEPLOY_TIMEOUT.word
        self._write(source, record, facts, verdict, is_paired=has_crossed)
        return has_crossed

    def _handle(self, record: MessageRecord, passing: Passing) -> None:
        """The peer's stub takes the message, or does not."""
        upgrade = passing.target.stub
        is_newer = passing.at_us >= upgrade.at_us
        version = upgrade.newer if is_newer else upgrade.older
        meter = self._run_stub(passing, version)
        stub_us = int(passing.stub_us * upgrade.latency) if is_newer else passing.stub_us
        record.stub_ver = version
        record.d_stub_us = stub_us
        record.fuel = int(passing.fuel * upgrade.fuel) if is_newer else passing.fuel
        meter.count(stub_us, record.fuel)
        record.d_peer_us = stub_us + 2 * passing.transit_us
        record.d_total_us = record.d_peer_us + 60 + passing.stub_us // 4
        traps = _TRAPS * upgrade.traps if is_newer else _TRAPS
        if not passing.fault and passing.chance < _ENDINGS[-1][0]:
            _, outcome, code = next(one for one in _ENDINGS if passing.chance < one[0])
            record.outcome, record.outcome_code = outcome, code.word  # type: ignore[assignment]
        elif not passing.fault and 1 - passing.chance < traps:
            record.outcome, record.outcome_code, record.trap = "trapped", Code.STUB_TRAPPED.word, "unreachable"
            meter.traps += 1
            self._spools[passing.source.number].append(
                StubEvent(
                    ts_us=record.ts_us,
                    domain=passing.target.name,
                    event="fault",
                    stub_ver=version,
                    code=Code.STUB_TRAPPED.word,
                    trap="unreachable",
                    msg_id=passing.msg_id,
                )
            )

    def _enter(self, passing: Passing) -> None:
        """The receiver's side."""
        source, target, fault = passing.source, passing.target, passing.fault
        ts_us = passing.at_us + passing.transit_us + target.offset_us
        if fault == "skewed":  # their clock was set back for a moment
            ts_us -= (120 + passing.fuel % 780) * 1_000_000
        record: MessageRecord = self._template("in", source, target).__copy__()
        self._fill(record, passing, ts_us)
        record.size_wire = passing.wire + 17 if fault == "size" else passing.wire
        record.digest = passing.digest[::-1] if fault == "altered" else passing.digest
        record.d_total_us = 35 + passing.stub_us // 3
        facts = Facts(
            "in",
            passing.message,
            source.name,
            target.name,
            source.name,
            record.size_wire,
            passing.hops + 2,
            ts_us / 1e6,
        )
        verdict = self._judge(record, facts, target)
        if not verdict.permitted:
            self._deny(record, facts, verdict, target)
        elif passing.is_unknown or (not fault and 0.5 < passing.chance < 0.5 + _UNKNOWN_RECIPIENTS):
            record.outcome, record.outcome_code = "undeliverable", Code.NOT_REGISTERED.word
        self._write(target, record, facts, verdict, is_paired=fault != "orphan")
        if not fault:
            self._truth.matched += 1

    def _judge(self, record: MessageRecord, facts: Facts, node: Domain) -> GateVerdict:
        verdict = self._gate.judge(facts)
        record.policy_rev = verdict.revision
        record.rule_id = verdict.rule_id or None
        record.reason = verdict.step
        record.facts = record_facts(
            facts, record.src_domain, record.dst_domain, self._reads, is_hashed=node.hash_key is not None
        )
        self._judged += 1
        if verdict.permitted and verdict.decision.shadow:
            self._decide(record, facts, verdict, node)
        return verdict

    def _deny(self, record: MessageRecord, facts: Facts, verdict: GateVerdict, node: Domain) -> None:
        code = verdict.code or Code.POLICY
        record.decision, record.outcome, record.outcome_code = "deny", "denied", code.word
        self._decide(record, facts, verdict, node)

    def _decide(self, record: MessageRecord, facts: Facts, verdict: GateVerdict, node: Domain) -> None:
        self._spools[node.number].append(
            DecisionRecord(
                ts_us=record.ts_us,
                hook=facts.hook,
                effect="permit" if verdict.permitted else "deny",
                permitted=verdict.permitted,
                policy_rev=verdict.revision,
                src_domain=record.src_domain,
                dst_domain=record.dst_domain,
                link_domain=facts.link_domain,
                msg_id=record.msg_id,
                msg_type=record.msg_type,
                src_key=record.src_key,
                dst_key=record.dst_key,
                size_in=record.size_in,
                rule_id=verdict.rule_id or None,
                reason=None if verdict.code is None else verdict.code.word,
                shadow=tuple(f"{one.rule_id} {one.effect.value}" for one in verdict.decision.shadow if one.rule_id)
                or None,
            )
        )

    def _write(
        self, node: Domain, record: MessageRecord, facts: Facts, verdict: GateVerdict, *, is_paired: bool
    ) -> None:
        """Write the record down, and what the truth has to know about it."""
        proposed = self._proposed.decide(facts)
        flip = None
        if (proposed.effect is Effect.PERMIT) is not verdict.permitted:
            old, new = ("permit", "deny") if verdict.permitted else ("deny", "permit")
            flip = old, new, verdict.rule_id, proposed.rule_id
            key = (record.role, record.src_domain, record.dst_domain, *flip)
            self._flips[key] += 1
            self._flip_bytes[key] += record.size_in
        self._outcomes[f"{record.role} {record.outcome}"] += 1
        entry = None
        if node.number in self._tracked:
            entry = Entry(
                record.msg_id,
                record.role,
                record.outcome,
                record.src_domain,
                record.dst_domain,
                is_paired,
                flip,
                record.size_in,
            )
        self._spools[node.number].append_message(record, entry)

    @staticmethod
    def _fill(record: MessageRecord, passing: Passing, ts_us: int) -> None:
        message = passing.message
        record.ts_us = ts_us
        record.msg_id = passing.msg_id
        record.src_key = message.from_
        record.dst_key = message.to
        record.msg_type = message.type
        record.size_in = passing.size
        record.d_policy_us = passing.policy_us

    def _template(self, role: Hook, source: Domain, target: Domain) -> MessageRecord:
        key = role, source.number, target.number
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = MessageRecord(
                ts_us=0,
                role="out" if role == "out" else "in",
                msg_id="",
                attempt=1,
                src_domain=source.name,
                dst_domain=target.name,
                src_key="",
                dst_key="",
                msg_type="",
                size_in=0,
                digest="",
                outcome="delivered",
                decision="permit",
                channel="stub" if role == "out" else "peer",
                peer_node=target.node if role == "out" else source.node,
            )
        return template

    def _run_stub(self, passing: Passing, version: str) -> Meter:
        """The meter of the stub; records a link and a stub when they are first used."""
        pair = passing.source.number, passing.target.number
        meter = self._running.get(pair)
        if meter is not None and meter.version == version:
            return meter
        ts_us = passing.at_us + passing.source.offset_us
        spool, domain = self._spools[passing.source.number], passing.target.name
        if meter is not None:
            self._sum_up(pair, ts_us)
            spool.append(StubEvent(ts_us=ts_us, domain=domain, event="stopped", stub_ver=meter.version))
        spool.append(StubEvent(ts_us=ts_us, domain=domain, event="started", stub_ver=version, duration_us=21_000))
        spool.append(LinkEvent(ts_us=ts_us, domain=domain, event="up", direction="out", peer_node=passing.target.node))
        meter = self._running[pair] = Meter(version, ts_us)
        return meter

    def sum_up(self, now_us: int) -> None:
        """Every node writes summaries of its stubs. A minute apart in life, as far as segments here."""
        for pair in self._running:
            self._sum_up(pair, now_us + self._world.domains[pair[0]].offset_us)

    def _sum_up(self, pair: tuple[int, int], ts_us: int) -> None:
        summary = self._running[pair].sum_up(self._world.domains[pair[1]].name, ts_us)
        if summary is not None:
            self._spools[pair[0]].append(summary)

    def deploy(self, now_us: int) -> None:
        """Every node starts with the policies that are deployed."""
        policies = self._gate.policies
        for spool in self._spools:
            spool.append(
                PolicyEvent(
                    ts_us=now_us + spool.domain.offset_us,
                    event="deployed",
                    cause="start",
                    actor="trapezoid",
                    mode="enforce",
                    files=("deployed.toml",),
                    after=policies.revision,
                    diff_sha256=sha256(b"\n" + policies.canonical).hexdigest(),
                    rules=sum(len(policy.rules) for one in policies.sets for policy in one.policies),
                    reads=tuple(sorted(policies.facts_read)),
                )
            )

    # The truth.

    def add_truth(self) -> None:
        """Count what was written. Damage comes later, and takes off again what it makes unreadable."""
        truth = self._truth
        truth.outcomes = dict(sorted(self._outcomes.items()))
        truth.roles = {
            role: sum(count for name, count in self._outcomes.items() if name.startswith(f"{role} "))
            for role in ("in", "out")
        }
        truth.decisions = self._judged
        truth.flips = [
            Flip(*key, messages=count, bytes=self._flip_bytes[key]) for key, count in sorted(self._flips.items())
        ]
