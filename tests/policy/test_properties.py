"""The engine against a second one, written straight from the specification, that knows no index and no programs."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.core.engine import (
    Algorithm,
    AllOf,
    AnyOf,
    Condition,
    Effect,
    Facts,
    Hook,
    Not,
    Operator,
    Policy,
    PolicySet,
    Rule,
    Test,
    compile_canonical,
    compile_policies,
)
from policy.core.model import HOOKS
from protofly.errors import SettingsError
from tests.support.policies import a_message, some_facts

DOMAINS = ("a.example", "b.example", "x.b.example", "xb.example", "c.example")
TYPES = ("create", "response", "odd")


def value_of(attribute: str, facts: Facts) -> str | int | None:
    if attribute == "hook":
        return facts.hook
    if attribute == "srcSPDomain":
        return facts.from_domain or None
    if attribute == "dstSPDomain":
        return facts.to_domain or None
    if attribute == "linkDomain":
        return facts.link_domain or (None if facts.hook != "local" else "")
    if attribute == "actionType":
        return facts.message.type
    if attribute == "size":
        return facts.size_bytes
    if attribute == "msgTo":
        return facts.message.to if "://" in facts.message.to else None
    return facts.identity_user or None if facts.identity_verified else None


def holds(condition: Condition, facts: Facts) -> bool | None:
    if isinstance(condition, Test):
        return compares(condition, facts)
    if isinstance(condition, Not):
        inner = holds(condition.part, facts)
        return None if inner is None else not inner
    outcomes = [holds(part, facts) for part in condition.parts]
    decisive = not isinstance(condition, AllOf)
    return decisive if decisive in outcomes else None if None in outcomes else not decisive


def compares(test: Test, facts: Facts) -> bool | None:
    value = value_of(test.attribute, facts)
    if test.operator is Operator.PRESENT:
        return (value is not None) is test.parameters[0]
    if value is None:
        return None
    if test.operator is Operator.MORE_THAN:
        return any(int(value) > int(parameter) for parameter in test.parameters)
    patterns = [str(parameter) for parameter in test.parameters]
    if not test.attribute.endswith("Domain"):
        is_wild = test.operator is Operator.LIKE
        return any(fnmatchcase(str(value), p) if is_wild else p in ("*", str(value)) for p in patterns)
    return any(str(value) == p or (p.startswith("*.") and str(value).endswith(p[1:])) for p in patterns)


def combined(results: list[tuple[Effect, str]], algorithm: Algorithm) -> tuple[Effect, str]:
    order = {
        Algorithm.DENY_OVERRIDES: [{Effect.DENY}, {Effect.PERMIT}],
        Algorithm.PERMIT_OVERRIDES: [{Effect.PERMIT}, {Effect.DENY}],
        Algorithm.FIRST_APPLICABLE: [{Effect.DENY, Effect.PERMIT}],
    }[algorithm]
    for wanted in order:
        for result in results:
            if result[0] in wanted:
                return result
    is_open = any(effect is Effect.INDETERMINATE for effect, _ in results)
    return (Effect.INDETERMINATE if is_open else Effect.NOT_APPLICABLE), ""


def weakened(target: bool | None, result: tuple[Effect, str]) -> tuple[Effect, str]:
    if target is False:
        return Effect.NOT_APPLICABLE, ""
    return (Effect.INDETERMINATE, "") if target is None and result[0] is Effect.PERMIT else result


def expected(sets: list[PolicySet], facts: Facts) -> tuple[Effect, str]:
    for policy_set in sorted(sets, key=lambda each: each.priority):
        target = holds(policy_set.target, facts)
        if target is False:
            continue
        results = []
        for policy in sorted(policy_set.policies, key=lambda each: each.priority):
            inner = [
                applied(policy_set, policy, rule, facts) for rule in sorted(policy.rules, key=lambda r: r.priority)
            ]
            results.append(weakened(holds(policy.target, facts), combined(inner, policy.algorithm)))
        return weakened(target, combined(results, policy_set.algorithm))
    return Effect.NOT_APPLICABLE, ""


def applied(policy_set: PolicySet, policy: Policy, rule: Rule, facts: Facts) -> tuple[Effect, str]:
    outcome = holds(AllOf(parts=(rule.target, rule.condition)), facts)
    if outcome is False:
        return Effect.NOT_APPLICABLE, ""
    if outcome is None and rule.effect is Effect.PERMIT:
        return Effect.INDETERMINATE, ""
    return rule.effect, f"{policy_set.id}/{policy.id}/{rule.id}"


def _domain_test(attribute: str) -> st.SearchStrategy[Test]:
    patterns = st.sampled_from((*DOMAINS, "*.b.example", "*.example"))
    return st.builds(
        Test,
        attribute=st.just(attribute),
        operator=st.sampled_from([Operator.EQUALS, Operator.IN, Operator.LIKE]),
        parameters=st.lists(patterns, max_size=3).map(tuple),
    )


def _text_test(attribute: str, *patterns: str) -> st.SearchStrategy[Test]:
    return st.builds(
        Test,
        attribute=st.just(attribute),
        operator=st.sampled_from([Operator.LIKE, Operator.LIKE, Operator.EQUALS]),
        parameters=st.lists(st.sampled_from(patterns), max_size=3).map(tuple),
    ).filter(lambda test: test.operator is Operator.LIKE or not any("*" in str(p) for p in test.parameters))


_TEXTS = st.one_of(
    _text_test("msgTo", "hyperty://b.example/*", "hyperty://c.example/h", "*/h", "hyperty://*.b.example/h"),
    _text_test("identity.user", "ana@*", "bo@idp.example", "b*", "*"),
)
_SINGLE = st.one_of(
    _TEXTS,
    _domain_test("srcSPDomain"),
    _domain_test("dstSPDomain"),
    _domain_test("linkDomain"),
    st.sampled_from(HOOKS).map(lambda hook: Test(attribute="hook", operator=Operator.EQUALS, parameters=(hook,))),
    st.sampled_from(TYPES).map(lambda word: Test(attribute="actionType", operator=Operator.IN, parameters=(word,))),
    st.just(Test(attribute="size", operator=Operator.MORE_THAN, parameters=(500,))),
    st.just(Test(attribute="identity.user", operator=Operator.EQUALS, parameters=("ana@idp.example",))),
    st.booleans().map(lambda flag: Test(attribute="identity.user", operator=Operator.PRESENT, parameters=(flag,))),
)


def _compound(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    parts = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(st.builds(AllOf, parts=parts), st.builds(AnyOf, parts=parts), st.builds(Not, part=inner))


_CONDITIONS: st.SearchStrategy[Condition] = st.recursive(_SINGLE, _compound, max_leaves=5)
_RULES = st.builds(
    Rule,
    id=st.uuids().map(str),
    effect=st.sampled_from([Effect.PERMIT, Effect.DENY]),
    priority=st.integers(0, 2),
    target=st.one_of(st.just(AllOf()), _CONDITIONS),
    condition=_CONDITIONS,
)
_POLICIES = st.builds(
    Policy,
    id=st.uuids().map(str),
    rules=st.lists(_RULES, max_size=4).map(tuple),
    priority=st.integers(0, 2),
    target=st.one_of(st.just(AllOf()), _CONDITIONS),
    algorithm=st.sampled_from(Algorithm),
)
_SETS = st.lists(
    st.builds(
        PolicySet,
        id=st.uuids().map(str),
        policies=st.lists(_POLICIES, max_size=3).map(tuple),
        priority=st.integers(0, 2),
        target=_CONDITIONS,
        algorithm=st.sampled_from(Algorithm),
    ),
    max_size=3,
)


def _facts(hook: Hook, domains: tuple[str, str], type_: str, size: int, user: str) -> Facts:
    message = a_message(
        type_=type_, from_=f"hyperty://{domains[0]}/h", to=f"hyperty://{domains[1]}/h" if domains[1] else "no address"
    )
    others = {"size_bytes": size, "identity_user": user, "identity_verified": bool(user)}
    if size == 0:
        others |= {"from_domain": ""}
    return some_facts(message, hook=hook, **others)


_FACTS = st.builds(
    _facts,
    st.sampled_from(HOOKS),
    st.tuples(st.sampled_from(DOMAINS), st.sampled_from((*DOMAINS, ""))),
    st.sampled_from(TYPES),
    st.sampled_from([0, 400, 600]),
    st.sampled_from(["", "ana@idp.example", "bo@idp.example"]),
)


@settings(max_examples=300, deadline=None)
@given(sets=_SETS, many=st.lists(_FACTS, min_size=1, max_size=8))
def test_engine_decides_as_the_specification_says(sets: list[PolicySet], many: list[Facts]) -> None:
    try:
        policies = compile_policies(sets)
    except SettingsError:  # a set behind one that takes everything
        return
    again = compile_canonical(policies.canonical)
    for facts in (*many, *many):
        decision = policies.decide(facts)
        assert (decision.effect, decision.rule_id) == expected(sets, facts)
        assert again.decide(facts).rule_id == decision.rule_id
    assert policies.faults == 0


_NEIGHBOURS = st.lists(
    st.builds(
        Rule,
        id=st.uuids().map(str),
        effect=st.sampled_from([Effect.PERMIT, Effect.DENY, Effect.DENY]),
        condition=st.one_of(_TEXTS, _TEXTS, st.builds(AllOf, parts=st.tuples(_TEXTS, _SINGLE)), _SINGLE),
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(rules=_NEIGHBOURS, algorithm=st.sampled_from(Algorithm), many=st.lists(_FACTS, min_size=1, max_size=8))
def test_rules_that_texts_rule_out_together_decide_as_if_each_were_asked(
    rules: list[Rule], algorithm: Algorithm, many: list[Facts]
) -> None:
    sets = [PolicySet(id="s", policies=(Policy(id="p", rules=tuple(rules), algorithm=algorithm),))]
    policies = compile_policies(sets)
    for facts in many:
        decision = policies.decide(facts)
        assert (decision.effect, decision.rule_id) == expected(sets, facts)
    assert policies.faults == 0


@settings(max_examples=100, deadline=None)
@given(condition=_CONDITIONS, facts=_FACTS)
def test_outcomes_agree_with_the_specification(condition: Condition, facts: Facts) -> None:
    rule = Rule(id="r", effect=Effect.DENY, condition=condition)
    policies = compile_policies([PolicySet(id="s", policies=(Policy(id="p", rules=(rule,)),))])
    (outcome,) = policies.outcomes(facts)
    assert outcome.applies is holds(condition, facts)
