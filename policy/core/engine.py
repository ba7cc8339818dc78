"""The policy decision point: policies compiled once, asked for every message, twice.

Loading turns each condition into a closure and splits it: what depends only on the gate, the three domains and the
type of a message (`hook`, `srcSPDomain`, `dstSPDomain`, `linkDomain`, `actionType`) is settled once per such
combination, and what is left over is a short walk, its *program*. Combinations differ only in what some rule reads:
policies that never ask for `srcSPDomain` share a program over all senders. Programs are a pure function of the policies
and that combination: nothing in them can go stale, and they are dropped with the policies. Decisions themselves are
never stored. `decide` raises nothing: a failure inside is a denial and is counted.

The engine has no clock, no I/O and no event loop, and can be made again anywhere from its source
(`compile_canonical`, or by pickling).
Source: trust and hosts, section 5.3; message specification, section 15.3; data formats, section 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import msgspec

from policy.core.attributes import ATTRIBUTES, DOMAIN_CHARS, MESSAGE_TYPES
from policy.core.closures import (
    Predicate,
    all_of,
    always,
    never,
    unknown,
)
from policy.core.combining import (
    NOT_APPLICABLE,
    Branch,
    Evaluate,
    RuleStep,
    combine_branches,
    combine_steps,
    constant,
    first_set,
    under,
    with_shadow,
)
from policy.core.compiler import (
    CompiledPolicy,
    CompiledRule,
    CompiledSet,
    attributes_of,
    compile_rule,
    compile_split,
    settle,
)
from policy.core.limits import Limit
from policy.core.model import (
    ALWAYS,
    DOCUMENT_PREFIX,
    HOOKS,
    Algorithm,
    AllOf,
    AnyOf,
    Condition,
    Decision,
    Effect,
    Facts,
    Hook,
    Mode,
    Not,
    Obligation,
    Operator,
    Policy,
    PolicySet,
    Rule,
    ShadowOutcome,
    Test,
)
from policy.core.obligations import BOUNDS_READ, instead_of, limit_of, mark_of
from policy.core.rule_index import RuleIndex, conjuncts
from policy.core.temporary import RULE_PREFIX
from protofly.errors import Code, SettingsError
from protofly.limits import POLICY_PROGRAM_STEPS, POLICY_RULES, POLICY_RULES_PER_MESSAGE, POLICY_SETS

__all__ = [
    "ALWAYS",
    "FAULT",
    "HOOKS",
    "Algorithm",
    "AllOf",
    "AnyOf",
    "CompiledPolicies",
    "Condition",
    "Decision",
    "Effect",
    "Facts",
    "Hook",
    "Mode",
    "Not",
    "Obligation",
    "Operator",
    "Policy",
    "PolicySet",
    "Rule",
    "RuleOutcome",
    "ShadowOutcome",
    "Test",
    "compile_canonical",
    "compile_policies",
]

FAULT: Final = Decision(Effect.DENY, reason=Code.POLICY)
"""The decision when evaluation itself fails: a denial."""
FAULT_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """The result of one rule for one message.

    `applies` is None if it is indeterminate because of the `missing` attributes.
    """

    rule_id: str
    effect: Effect
    mode: Mode
    applies: bool | None
    missing: tuple[str, ...]


_DOMAINS: Final = {"srcSPDomain": "from_domain", "dstSPDomain": "to_domain", "linkDomain": "link_domain"}


class CompiledPolicies:
    """Policies ready to decide. Made by `compile_policies`."""

    def __init__(self, sets: Sequence[PolicySet]) -> None:
        self.sets: tuple[PolicySet, ...] = tuple(sorted(sets, key=lambda policy_set: policy_set.priority))
        self.canonical = msgspec.json.encode(self.sets)
        """The source of all this as JSON: what `compile_canonical` takes."""
        self.revision = hashlib.sha256(self.canonical).hexdigest()[:16]
        """Names exactly these policies in records."""
        self.faults = 0
        """Evaluations that failed: a defect of ours. They were denials, or rules on trial that said nothing."""
        self.last_fault = ""
        self._sets: list[CompiledSet] = []
        self._policies: list[CompiledPolicy] = []
        self._rules: list[CompiledRule] = []
        for policy_set in self.sets:
            self._add_set(policy_set)
        has_bounds = any(instead_of(rule.decision.obligations) for rule in self._rules)
        self.facts_read = frozenset(attributes_of(self.sets)) | (BOUNDS_READ if has_bounds else frozenset())
        """Every attribute that any rule or target reads."""
        self.limits = self._limits()
        """What rules let pass at most, or count in."""
        self._check_size()
        self._index = RuleIndex([rule.guard for rule in self._rules])
        self._check_cost()
        asked = [field for name, field in _DOMAINS.items() if name in self.facts_read]
        self._border_of: Callable[[Facts], Hashable] = attrgetter("hook", *asked)
        self._reads_type = "actionType" in self.facts_read
        self._programs: dict[Hashable, Evaluate] = {}
        self._program_steps = 0

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return compile_canonical, (self.canonical,)

    def decide(self, facts: Facts) -> Decision:
        """Say what the policies want for one message. Never raises; a failure inside is the decision `FAULT`."""
        try:
            key = self._border_of(facts)
            if self._reads_type:
                type_ = facts.message.type
                key = key, type_ if type_ in MESSAGE_TYPES else ""
            evaluate = self._programs.get(key)
            if evaluate is None:
                evaluate = self._program(key, facts)
            return evaluate(facts)
        except Exception as exc:  # what cannot be judged is denied. Trust and hosts, section 5.3, rule 2
            self._count_fault(exc)
            return FAULT

    def settles(self, facts: Facts) -> bool:
        """True if what is decided about one message holds for every message of its flow.

        A flow is what has the same hook, domains, addresses, type, roles and verified identity, and names no member of
        `BodyPeek`. Rules that cannot apply to it may read what they like.
        """
        for number in self._index.candidates(facts):
            rule = self._rules[number]
            policy = self._policies[rule.policy_number]
            splits = (self._sets[policy.set_number].target, policy.target, rule.condition)
            if rule.reads_what_varies and all(settle(split, facts) is not never for split in splits):
                return False
        return True

    def outcomes(self, facts: Facts) -> tuple[RuleOutcome, ...]:
        """Evaluate every rule for one message, in order of evaluation; for explanations, not for the message path."""
        return tuple(self._outcome(rule, facts) for rule in self._rules)

    def facts_of(self, facts: Facts) -> dict[str, object]:
        """Those attributes that rules read, with the values they saw; what is missing is left out."""
        values = {name: ATTRIBUTES[name].read(facts) for name in sorted(self.facts_read)}
        return {name: value for name, value in values.items() if value is not None}

    def _add_set(self, source: PolicySet) -> None:
        for policy in sorted(source.policies, key=lambda policy: policy.priority):
            number = len(self._policies)
            self._policies.append(CompiledPolicy(policy, compile_split([policy.target]), len(self._sets)))
            for rule in sorted(policy.rules, key=lambda rule: rule.priority):
                self._rules.append(compile_rule(source, policy, rule, number))
        self._sets.append(CompiledSet(source, compile_split([source.target])))

    def _limits(self) -> set[Limit]:
        """The limits that rules keep to or count in. Raises SettingsError: two of one name."""
        named = (of(rule.decision.obligations) for rule in self._rules for of in (limit_of, mark_of))
        limits = {limit for limit in named if limit is not None}
        by_name = dict[str, Limit]()
        for limit in limits:
            if by_name.setdefault(limit.name, limit) is not limit:
                raise SettingsError(f'two limits have the name "{limit.name}", and say different things: rename one')
        return limits

    def _check_size(self) -> None:
        """Refuse what could never be asked, or is ambiguous."""
        if len(self._sets) > POLICY_SETS or len(self._rules) > POLICY_RULES:
            raise SettingsError(
                f"more than {POLICY_SETS} policy sets or {POLICY_RULES} rules: name domains in lists instead of one "
                "rule for each"
            )
        seen: set[str] = set()
        for prefix, owner in ((RULE_PREFIX, "gates for a time"), (DOCUMENT_PREFIX, "policies of objects")):
            if any(policy_set.id.startswith(prefix) for policy_set in self.sets):
                raise SettingsError(f'no id of a set begins with "{prefix}": {owner} are named so; rename the set')
        for name in [policy_set.id for policy_set in self.sets] + [rule.rule_id for rule in self._rules]:
            if name in seen:
                raise SettingsError(f'the id "{name}" is used twice: rename one')
            seen.add(name)
        closed = ""
        for policy_set in self.sets:
            if policy_set.mode is Mode.ENFORCE:
                if closed:
                    raise SettingsError(
                        f'set "{policy_set.id}" is never asked: "{closed}" before it has no target and takes every '
                        "message; give that one a target, or put the policies of both into one set"
                    )
                closed = policy_set.id if not conjuncts(policy_set.target) else ""

    def _check_cost(self) -> None:
        most = self._index.most_candidates()
        if most > POLICY_RULES_PER_MESSAGE:
            raise SettingsError(
                f"up to {most} rules would be asked for one message, at most {POLICY_RULES_PER_MESSAGE} are permitted: "
                "name domains in lists instead of one rule for each"
            )

    def _count_fault(self, exc: Exception) -> None:
        self.faults += 1
        self.last_fault = f"{type(exc).__name__}: {exc}"[:FAULT_CHARS]

    def _program(self, key: Hashable, facts: Facts) -> Evaluate:
        """Settle what gate, domains and type settle, and keep the result for the next message like this one."""
        candidates = [self._rules[number] for number in self._index.candidates(facts)]
        evaluate = self._specialise(candidates, facts)
        if max(map(len, (facts.from_domain, facts.to_domain, facts.link_domain))) <= DOMAIN_CHARS:
            steps = len(candidates) + 1
            if self._program_steps + steps > POLICY_PROGRAM_STEPS:
                self._programs.clear()  # a peer of many names can make us forget; never make us grow
                self._program_steps = 0
            self._programs[key] = evaluate
            self._program_steps += steps
        return evaluate

    def _specialise(self, candidates: list[CompiledRule], facts: Facts) -> Evaluate:
        by_policy: dict[int, list[CompiledRule]] = {}
        for rule in candidates:
            by_policy.setdefault(rule.policy_number, []).append(rule)
        by_set: dict[int, list[int]] = {}
        for number in by_policy:
            by_set.setdefault(self._policies[number].set_number, []).append(number)
        enforced: list[tuple[Predicate, Evaluate]] = []
        shadows: list[Evaluate] = []
        is_closed = False
        for set_number, policy_set in enumerate(self._sets):
            target = settle(policy_set.target, facts)
            if target is never:
                continue
            branches: list[Branch] = []
            for number in by_set.get(set_number, ()):
                branch, reporting = self._branch(number, by_policy[number], facts)
                branches.append(branch)
                shadows.extend(under(target, under(branch.target, evaluate)) for evaluate in reporting)
            branches = [branch for branch in branches if branch.steps and branch.target is not never]
            evaluate = combine_branches(branches, policy_set.source.algorithm) if branches else constant(NOT_APPLICABLE)
            if policy_set.source.mode is Mode.REPORT:
                shadows.append(under(target, evaluate))
            elif not is_closed:
                enforced.append((target, evaluate))
                is_closed = target is always or target is unknown
        program = first_set(enforced)
        return with_shadow(program, shadows, self._count_fault) if shadows else program

    def _branch(self, number: int, rules: list[CompiledRule], facts: Facts) -> tuple[Branch, list[Evaluate]]:
        """One policy with the rules that are left of it, and those of its rules that only report."""
        policy = self._policies[number]
        steps: list[RuleStep] = []
        reporting: list[Evaluate] = []
        for rule in rules:
            predicate = settle(rule.condition, facts)
            if predicate is never:
                continue
            step = RuleStep(predicate, rule.decision, rule.source.effect is Effect.PERMIT, rule.beginning)
            if rule.source.mode is Mode.REPORT:
                reporting.append(combine_steps((step,), Algorithm.FIRST_APPLICABLE))
            else:
                steps.append(step)
        return Branch(settle(policy.target, facts), policy.source.algorithm, tuple(steps)), reporting

    def _outcome(self, rule: CompiledRule, facts: Facts) -> RuleOutcome:
        policy = self._policies[rule.policy_number]
        policy_set = self._sets[policy.set_number]
        splits = (policy_set.target, policy.target, rule.condition)
        applies = all_of(tuple(predicate for split in splits for predicate in split))(facts)
        only_rule = msgspec.structs.replace(policy.source, rules=(rule.source,))
        single = msgspec.structs.replace(policy_set.source, policies=(only_rule,))
        names = attributes_of([single])
        missing = sorted(name for name in names if ATTRIBUTES[name].read(facts) is None) if applies is None else ()
        is_report = Mode.REPORT in (policy_set.source.mode, rule.source.mode)
        mode = Mode.REPORT if is_report else Mode.ENFORCE
        return RuleOutcome(rule.rule_id, rule.source.effect, mode, applies, tuple(missing))


def compile_policies(sets: Sequence[PolicySet]) -> CompiledPolicies:
    """Compile policy sets, in the order in which they are to be asked.

    Raises:
        SettingsError: A rule that makes no sense, an id used twice, a set that is never asked, or more rules than
        bounded time allows.
    """
    return CompiledPolicies(sets)


def compile_canonical(canonical: bytes) -> CompiledPolicies:
    """Compile again, here or in another process, from `CompiledPolicies.canonical`.

    Raises:
        SettingsError: The text is not one that `canonical` gave.
    """
    try:
        sets = msgspec.json.decode(canonical, type=tuple[PolicySet, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise SettingsError("not the canonical source of policies") from exc
    return CompiledPolicies(sets)
