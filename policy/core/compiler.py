"""Rules, policies and sets as the engine keeps them: conditions split into what can be settled early and the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from policy.core.attributes import ATTRIBUTES, MESSAGE_TYPES
from policy.core.beginnings import Beginning, find_beginning
from policy.core.closures import (
    Predicate,
    all_of,
    always,
    compile_condition,
    never,
    tests_of,
    unknown,
)
from policy.core.model import LOGGED, Condition, Decision, Effect, Facts, Policy, PolicySet, Rule
from policy.core.obligations import APPLIES_TO, check_labelled, check_obligations, instead_of, is_recorded
from policy.core.rule_index import Guard, conjuncts, find_guard
from protofly.errors import Code, SettingsError


class Split(NamedTuple):
    """A condition in three parts that all have to hold.

    `by_gate` depends on hook and domains only, `by_type` on those and the message's type, `rest` on more.
    """

    by_gate: Predicate
    by_type: Predicate
    rest: Predicate


_BY_GATE: Final = frozenset(attribute.name for attribute in ATTRIBUTES.values() if attribute.is_fixed)
_BY_TYPE: Final = _BY_GATE | {"actionType"}
_VARYING: Final = frozenset(attribute.name for attribute in ATTRIBUTES.values() if attribute.varies)


class CompiledRule(NamedTuple):
    """One rule: its conditions, where the index files it, how texts begin where it applies, and what it decides.

    `reads_what_varies`: it, its policy or its set asks for something that differs between messages of one flow.
    """

    rule_id: str
    source: Rule
    condition: Split
    guard: Guard | None
    beginning: Beginning | None
    decision: Decision
    policy_number: int
    reads_what_varies: bool


class CompiledPolicy(NamedTuple):
    """One policy, without its rules, which name it by number."""

    source: Policy
    target: Split
    set_number: int


class CompiledSet(NamedTuple):
    """One policy set, without its policies, which name it by number."""

    source: PolicySet
    target: Split


def compile_rule(policy_set: PolicySet, policy: Policy, rule: Rule, policy_number: int) -> CompiledRule:
    """Compile one rule.

    Raises:
        SettingsError: It makes no sense; names the rule.
    """
    rule_id = "/".join(name for name in (policy_set.id, policy.id, rule.id) if name)
    if rule.effect not in (Effect.PERMIT, Effect.DENY):
        raise SettingsError(f"rule {rule_id}: effect must be permit or deny")
    obligations = tuple(
        obligation
        for obligation in (*rule.obligations, *policy.obligations, *policy_set.obligations)
        if obligation.on is rule.effect
    )
    reason = Code.POLICY if rule.effect is Effect.DENY else None
    bounds = () if instead_of(obligations) is None else (APPLIES_TO,)
    try:
        check_obligations(obligations)
        check_labelled(obligations)
        condition = compile_split([rule.target, rule.condition, *bounds])
        guard = find_guard([policy_set.target, policy.target, rule.target, rule.condition])
        beginning = find_beginning([rule.target, rule.condition])
    except SettingsError as exc:
        raise SettingsError(f"rule {rule_id}: {exc.detail}") from exc
    decision = Decision(rule.effect, rule_id, reason, obligations, (LOGGED,) if is_recorded(obligations) else ())
    asked = (policy_set.target, policy.target, rule.target, rule.condition)
    varies = any(test.attribute in _VARYING for part in asked for test in tests_of(part))
    return CompiledRule(rule_id, rule, condition, guard, beginning, decision, policy_number, varies)


def compile_split(conditions: Iterable[Condition]) -> Split:
    """Compile conditions that all have to hold.

    Raises:
        SettingsError: One of them makes no sense.
    """
    split: tuple[list[Predicate], ...] = ([], [], [])
    for part in (part for condition in conditions for part in conjuncts(condition)):
        names = {test.attribute for test in tests_of(part)}
        depth = 0 if names <= _BY_GATE else 1 if names <= _BY_TYPE else 2
        split[depth].append(compile_condition(part))
    by_gate, by_type, rest = (all_of(tuple(predicates)) for predicates in split)
    return Split(by_gate, by_type, rest)


def settle(split: Split, facts: Facts) -> Predicate:
    """Return what is left of a condition for messages with this gate, these domains and this type.

    It may be just `always`, `never` or `unknown`. Types outside `MESSAGE_TYPES` count as one unknown type.
    """
    if facts.message.type in MESSAGE_TYPES:
        return _remaining((split.by_gate, split.by_type), split.rest, facts)
    return _remaining((split.by_gate,), all_of((split.by_type, split.rest)), facts)


def _remaining(known: tuple[Predicate, ...], rest: Predicate, facts: Facts) -> Predicate:
    outcome = all_of(known)(facts)
    if outcome is False:
        return never
    if outcome:
        return rest
    return unknown if rest is always else all_of((unknown, rest))


def attributes_of(sets: Iterable[PolicySet]) -> set[str]:
    """Names of all attributes that conditions in these sets read; the target of an empty set or policy is one too."""
    conditions: list[Condition] = []
    for policy_set in sets:
        conditions.append(policy_set.target)
        for policy in policy_set.policies:
            conditions.append(policy.target)
            for rule in policy.rules:
                conditions += rule.target, rule.condition
    return {test.attribute for condition in conditions for test in tests_of(condition)}
