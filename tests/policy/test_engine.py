from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from policy.core import engine
from policy.core.attributes import ATTRIBUTES
from policy.core.beginnings import find_beginning
from policy.core.engine import (
    FAULT,
    Algorithm,
    AllOf,
    AnyOf,
    Condition,
    Decision,
    Effect,
    Mode,
    Not,
    Obligation,
    Policy,
    PolicySet,
    Rule,
    compile_canonical,
    compile_policies,
)
from policy.core.model import ALWAYS
from protofly.errors import Code, SettingsError
from tests.support.policies import a_message, both, deny, one_policy, permit, some_facts
from tests.support.policies import test as check

MISSING = check("resource", "equals", "/x")  # messages of these tests name no resource
HOLDS = check("actionType", "equals", "create")
FAILS = check("actionType", "equals", "delete")
TINY, HUGE = check("size", "lessThan", 10_000), check("size", "moreThan", 10_000)  # asked for each message

DENY_OVERRIDES, PERMIT_OVERRIDES, FIRST = Algorithm


def said(decision: Decision) -> tuple[str, str]:
    return decision.effect.value, decision.rule_id


@pytest.mark.parametrize(
    ("algorithm", "rules", "expected"),
    [
        (DENY_OVERRIDES, [permit("p"), deny("d")], ("deny", "s/d")),
        (DENY_OVERRIDES, [permit("p"), deny("d", FAILS)], ("permit", "s/p")),
        (DENY_OVERRIDES, [permit("p", FAILS)], ("not-applicable", "")),
        (DENY_OVERRIDES, [], ("not-applicable", "")),
        (PERMIT_OVERRIDES, [deny("d"), permit("p")], ("permit", "s/p")),
        (PERMIT_OVERRIDES, [deny("d"), permit("p", FAILS)], ("deny", "s/d")),
        (FIRST, [deny("d", FAILS), permit("p"), deny("later")], ("permit", "s/p")),
        (FIRST, [permit("p", priority=2), deny("d", priority=1)], ("deny", "s/d")),
        (FIRST, [permit("p", HOLDS), deny("d", HOLDS)], ("permit", "s/p")),
    ],
)
def test_combining_algorithms(algorithm: Algorithm, rules: list[Rule], expected: tuple[str, str]) -> None:
    assert said(one_policy(*rules, algorithm=algorithm).decide(some_facts())) == expected


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([deny("d", MISSING)], ("deny", "s/d")),
        ([permit("p", MISSING)], ("indeterminate", "")),
        ([permit("p", MISSING), permit("q", HOLDS)], ("permit", "s/q")),
        ([permit("p", MISSING), deny("d", HOLDS)], ("deny", "s/d")),
        ([permit("p", both(MISSING, FAILS))], ("not-applicable", "")),
        ([deny("d", both(FAILS, MISSING))], ("not-applicable", "")),
        ([deny("d", AnyOf(parts=(MISSING, HOLDS)))], ("deny", "s/d")),
        ([permit("p", Not(part=MISSING))], ("indeterminate", "")),
    ],
)
def test_missing_attribute_denies_denials_and_permits_nothing(
    algorithm: Algorithm, rules: list[Rule], expected: tuple[str, str]
) -> None:
    assert said(one_policy(*rules, algorithm=algorithm).decide(some_facts())) == expected


def test_missing_attribute_can_be_asked_for() -> None:
    policies = one_policy(deny("d", both(check("resource", "present", True), check("resource", "like", "/private/*"))))
    assert policies.decide(some_facts()).effect is Effect.NOT_APPLICABLE
    assert policies.decide(some_facts(a_message(resource="/private/x"))).effect is Effect.DENY


@pytest.mark.parametrize(
    ("target", "rules", "expected"),
    [
        (FAILS, [deny("d")], "not-applicable"),
        (MISSING, [deny("d")], "deny"),
        (MISSING, [permit("p")], "indeterminate"),
        (HOLDS, [permit("p")], "permit"),
    ],
)
def test_targets_of_policies_and_sets(target: object, rules: list[Rule], expected: str) -> None:
    assert target is not None
    inner = Policy(id="p", rules=tuple(rules), target=target)  # type: ignore[arg-type]
    outer = Policy(id="p", rules=tuple(rules))
    for policy_set in (
        PolicySet(id="s", policies=(inner,)),
        PolicySet(id="s", policies=(outer,), target=target),  # type: ignore[arg-type]
    ):
        assert compile_policies([policy_set]).decide(some_facts()).effect.value == expected


def test_first_set_whose_target_matches_decides_alone() -> None:
    to_b = PolicySet(
        id="b",
        policies=(Policy(id="p", rules=(permit("x", FAILS),)),),
        target=check("dstSPDomain", "equals", "b.example"),
    )
    rest = PolicySet(id="rest", policies=(Policy(id="p", rules=(deny("y"),)),))
    policies = compile_policies([to_b, rest])
    assert policies.decide(some_facts()).effect is Effect.NOT_APPLICABLE
    assert policies.decide(some_facts(a_message(to="hyperty://c.example/h"))).rule_id == "rest/p/y"


def test_sets_whose_targets_are_asked_for_each_message_are_asked_in_order() -> None:
    sets = [
        PolicySet(id="a", policies=(Policy(id="", rules=(deny("d"),)),), target=HUGE),
        PolicySet(id="b", policies=(Policy(id="", rules=(permit("p"),)),), target=TINY),
        PolicySet(id="c", policies=(Policy(id="", rules=(deny("d"),)),), target=TINY),
    ]
    assert said(compile_policies(sets).decide(some_facts())) == ("permit", "b/p")
    assert said(compile_policies(sets[:1]).decide(some_facts())) == ("not-applicable", "")


def test_sets_are_asked_by_priority() -> None:
    late = PolicySet(id="late", priority=2, policies=(Policy(id="", rules=(permit("p"),)),), target=HOLDS)
    early = PolicySet(id="early", priority=1, policies=(Policy(id="", rules=(deny("d"),)),), target=HOLDS)
    assert compile_policies([late, early]).decide(some_facts()).rule_id == "early/d"


@pytest.mark.parametrize(
    ("algorithm", "expected"), [(DENY_OVERRIDES, "s/b/d"), (PERMIT_OVERRIDES, "s/a/p"), (FIRST, "s/a/p")]
)
def test_results_of_policies_are_combined_like_rules(algorithm: Algorithm, expected: str) -> None:
    policies = (Policy(id="a", rules=(permit("p"),), algorithm=FIRST), Policy(id="b", rules=(deny("d"),), target=HOLDS))
    assert (
        compile_policies([PolicySet(id="s", policies=policies, algorithm=algorithm)]).decide(some_facts()).rule_id
        == expected
    )


@pytest.mark.parametrize("outer", [DENY_OVERRIDES, FIRST])
def test_policies_that_combine_alike_keep_their_algorithm_in_a_set_with_another(outer: Algorithm) -> None:
    policies = [
        Policy(id=name, rules=(deny("d", TINY), deny("e", HUGE), permit("p", TINY)), algorithm=PERMIT_OVERRIDES)
        for name in "ab"
    ]
    both_policies = PolicySet(id="s", policies=tuple(policies), algorithm=outer)
    assert said(compile_policies([both_policies]).decide(some_facts())) == ("permit", "s/a/p")


def test_each_policy_of_a_set_keeps_its_target() -> None:
    policies = (
        Policy(id="a", rules=(deny("d"),), target=HUGE),
        Policy(id="b", rules=(permit("p"),), target=TINY),
        Policy(id="c", rules=(deny("d"),), target=HUGE),
    )
    assert said(compile_policies([PolicySet(id="s", policies=policies)]).decide(some_facts())) == ("permit", "s/b/p")


def test_neighbours_on_an_attribute_that_is_missing_are_indeterminate() -> None:
    policies = one_policy(permit("p", MISSING), permit("q", check("resource", "like", "/y/*")))
    assert said(policies.decide(some_facts())) == ("indeterminate", "")
    assert policies.faults == 0


def test_policy_that_does_not_apply_hides_no_indeterminate_one() -> None:
    first = Policy(id="a", rules=(permit("p", MISSING),), algorithm=FIRST)
    second = Policy(id="b", rules=(permit("p", HUGE),))
    for policies in ((first, second), (second, first)):
        decision = compile_policies([PolicySet(id="s", policies=policies)]).decide(some_facts())
        assert said(decision) == ("indeterminate", "")


def test_denial_says_why_and_carries_the_obligations_of_its_effect() -> None:
    def obliged(name: str, on: Effect = Effect.DENY) -> tuple[Obligation, ...]:
        return (Obligation(on=on, name=name, value=name),)

    rule = Rule(id="r", effect=Effect.DENY, obligations=obliged("rule"))
    policy = Policy(id="p", rules=(rule,), obligations=obliged("policy") + obliged("other", Effect.PERMIT))
    decision = compile_policies([PolicySet(id="s", policies=(policy,), obligations=obliged("set"))]).decide(
        some_facts()
    )
    assert decision.reason is Code.POLICY
    assert [obligation.name for obligation in decision.obligations] == ["rule", "policy", "set"]


def test_report_mode_reports_and_decides_nothing() -> None:
    policies = one_policy(deny("trial", mode=Mode.REPORT), permit("real"))
    decision = policies.decide(some_facts())
    assert said(decision) == ("permit", "s/real")
    assert [(outcome.rule_id, outcome.effect) for outcome in decision.shadow] == [("s/trial", Effect.DENY)]


def test_report_rule_that_does_not_apply_is_silent() -> None:
    assert one_policy(deny("trial", FAILS, mode=Mode.REPORT)).decide(some_facts()).shadow == ()


def test_set_in_report_mode_hides_no_other_set() -> None:
    trial = PolicySet(id="trial", mode=Mode.REPORT, policies=(Policy(id="", rules=(deny("d"),)),))
    real = PolicySet(id="real", policies=(Policy(id="", rules=(permit("p"),)),))
    decision = compile_policies([trial, real]).decide(some_facts())
    assert said(decision) == ("permit", "real/p")
    assert decision.shadow[0].rule_id == "trial/d"


def test_rules_on_gate_domains_and_type_are_settled_once_and_stay_right() -> None:
    policies = one_policy(
        deny("in-only", check("hook", "equals", "in")),
        deny("c", check("linkDomain", "equals", "c.example")),
        permit("create", both(check("actionType", "in", "create", "open"), check("size", "lessThan", 1000))),
        permit("odd", check("actionType", "equals", "odd")),
    )
    for _ in range(2):  # the second time out of the prepared programs
        assert policies.decide(some_facts()).rule_id == "s/create"
        assert policies.decide(some_facts(size_bytes=5000)).effect is Effect.NOT_APPLICABLE
        assert policies.decide(some_facts(hook="in")).rule_id == "s/in-only"
        assert policies.decide(some_facts(a_message(to="hyperty://c.example/h"))).rule_id == "s/c"
        assert policies.decide(some_facts(a_message(type_="odd"))).rule_id == "s/odd"
        assert policies.decide(some_facts(a_message(type_="strange"))).effect is Effect.NOT_APPLICABLE


@pytest.mark.parametrize(
    "empty",
    [
        PolicySet(id="empty", policies=(), target=HOLDS),
        PolicySet(id="empty", policies=(Policy(id="p", rules=()),), target=HOLDS),
        PolicySet(id="open", policies=(Policy(id="empty", rules=(), target=FAILS),), target=HOLDS),
    ],
    ids=["no-policies", "no-rules", "no-rules-under-a-target"],
)
def test_target_with_nothing_below_it_still_distinguishes_messages(empty: PolicySet) -> None:
    behind = PolicySet(id="behind", policies=(Policy(id="", rules=(permit("p"),)),))
    policies = compile_policies([empty, behind])
    for _ in range(2):  # the second time out of the prepared programs
        assert said(policies.decide(some_facts())) == ("not-applicable", "")
        assert said(policies.decide(some_facts(a_message(type_="response")))) == ("permit", "behind/p")
    assert "actionType" in policies.facts_read


@pytest.mark.parametrize("written", ["comm:/Room", "comm:Room", "comm:///Room", "COMM:/Room"])
def test_neighbours_on_one_address_apply_however_the_rule_writes_it(written: str) -> None:
    policies = one_policy(
        deny("other", check("msgTo", "equals", "comm://b.example/other")), deny("d", check("msgTo", "equals", written))
    )
    assert said(policies.decide(some_facts(a_message(to="comm:/Room")))) == ("deny", "s/d")
    assert policies.decide(some_facts(a_message(to="comm:/Rooms"))).effect is Effect.NOT_APPLICABLE


@pytest.mark.parametrize("spelling", ["re-open", "reopen", "re_open"])
def test_spellings_of_re_open_are_one_type(spelling: str) -> None:
    policies = one_policy(deny("d", check("actionType", "equals", "re-open")))
    assert policies.decide(some_facts(a_message(type_="zzz"))).effect is Effect.NOT_APPLICABLE
    assert policies.decide(some_facts(a_message(type_=spelling))).effect is Effect.DENY


def test_same_policies_have_the_same_revision_and_others_another() -> None:
    first, again, other = one_policy(permit("p")), one_policy(permit("p")), one_policy(permit("q"))
    assert first.revision == again.revision
    assert first.revision != other.revision
    assert len(first.revision) == 16


def test_policies_can_be_compiled_again_elsewhere() -> None:
    policies = one_policy(deny("d", both(check("size", "moreThan", 10), Not(part=FAILS))), permit("p"))
    for copy in (compile_canonical(policies.canonical), pickle.loads(pickle.dumps(policies))):
        assert copy.revision == policies.revision
        assert said(copy.decide(some_facts())) == ("deny", "s/d")


def test_canonical_source_that_is_none_is_refused() -> None:
    for nonsense in (b"", b"{}", b'[{"id":1}]', b"[" * 100_000):
        with pytest.raises(SettingsError):
            compile_canonical(nonsense)


def test_every_fact_that_a_rule_reads_is_named() -> None:
    policies = one_policy(deny("d", AnyOf(parts=(MISSING, Not(part=check("size", "moreThan", 1))))))
    assert policies.facts_read == {"resource", "size"}
    assert policies.facts_of(some_facts(size_bytes=7)) == {"size": 7}


def test_outcomes_name_what_was_missing() -> None:
    rules = deny("d", both(MISSING, HOLDS)), permit("p", HOLDS), permit("q", FAILS)
    outcomes = one_policy(*rules).outcomes(some_facts())
    assert [(outcome.rule_id, outcome.applies, outcome.missing) for outcome in outcomes] == [
        ("s/d", None, ("resource",)),
        ("s/p", True, ()),
        ("s/q", False, ()),
    ]


@pytest.mark.parametrize("of_set", [Mode.ENFORCE, Mode.REPORT])
def test_outcomes_say_which_rules_only_report(of_set: Mode) -> None:
    rules = permit("p"), deny("d", mode=Mode.REPORT)
    policies = compile_policies([PolicySet(id="s", policies=(Policy(id="", rules=rules),), mode=of_set)])
    assert [outcome.mode for outcome in policies.outcomes(some_facts())] == [of_set, Mode.REPORT]


def test_engine_needs_no_event_loop() -> None:
    program = "import sys, policy.core.engine, policy.core.rates; print('trio' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([PolicySet(id="s", policies=()), PolicySet(id="s", policies=(), target=HOLDS)], "used twice"),
        ([PolicySet(id="s", policies=()), PolicySet(id="t", policies=())], "never asked"),
        ([PolicySet(id="s", policies=(Policy(id="", rules=(permit("r"), deny("r"))),))], "used twice"),
        ([PolicySet(id="s", policies=(Policy(id="", rules=(Rule(id="r", effect=Effect.INDETERMINATE),)),))], "effect"),
        ([PolicySet(id="s", policies=(Policy(id="", rules=(deny("r", check("size", "like", "x")),)),))], "s/r"),
    ],
)
def test_policies_that_make_no_sense_are_refused(sets: list[PolicySet], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        compile_policies(sets)


def test_no_policies_say_nothing() -> None:
    assert compile_policies([]).decide(some_facts()).effect is Effect.NOT_APPLICABLE
    assert ALWAYS.parts == ()


def test_failure_inside_is_a_counted_denial() -> None:
    policies = one_policy(permit("p", check("size", "moreThan", 1)))
    decision = policies.decide(some_facts(size_bytes="not a number"))
    assert decision is FAULT
    assert decision.effect is Effect.DENY
    assert (policies.faults, policies.last_fault.partition(":")[0]) == (1, "TypeError")


def test_failing_report_rule_changes_nothing_and_is_counted() -> None:
    policies = one_policy(deny("trial", check("size", "moreThan", 1), mode=Mode.REPORT), permit("p"))
    assert said(policies.decide(some_facts(size_bytes="not a number"))) == ("permit", "s/p")
    assert policies.faults == 1


def test_a_rule_that_asks_for_a_domain_at_all_is_asked_for_every_one() -> None:
    policies = one_policy(deny("d", check("linkDomain", "present", True)))
    assert said(policies.decide(some_facts())) == ("deny", "s/d")


def test_sets_and_rules_are_taken_up_to_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "POLICY_SETS", 2)
    monkeypatch.setattr(engine, "POLICY_RULES", 3)
    one, two, three = (PolicySet(id=name, policies=(), target=HOLDS) for name in "abc")
    compile_policies([one, two])
    with pytest.raises(SettingsError, match="more than 2 policy sets"):
        compile_policies([one, two, three])
    rules = [deny(f"d{number}", HOLDS) for number in range(4)]
    one_policy(*rules[:3])
    with pytest.raises(SettingsError, match="or 3 rules"):
        one_policy(*rules)


def test_rules_for_one_message_are_taken_up_to_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "POLICY_RULES_PER_MESSAGE", 3)
    rules = [deny(f"d{number}", check("size", "lessThan", number)) for number in range(4)]
    one_policy(*rules[:3])
    with pytest.raises(SettingsError, match="up to 4 rules"):
        one_policy(*rules)


@pytest.mark.parametrize("name", ["size", "time", "date", "weekday"])
def test_a_rule_that_can_apply_and_reads_what_varies_settles_nothing(name: str) -> None:
    reads = check(name, "present", True)
    elsewhere = check("linkDomain", "equals", "elsewhere.example")
    assert not one_policy(deny("d", reads)).settles(some_facts())
    assert not one_policy(permit("p"), deny("d", both(HOLDS, reads))).settles(some_facts())
    assert one_policy(permit("p"), deny("d", both(FAILS, reads))).settles(some_facts())
    assert one_policy(permit("p"), deny("d", both(elsewhere, reads))).settles(some_facts())


@pytest.mark.parametrize("name", ["msgFrom", "actionType", "srcSPDomain", "viaLength", "identity.user"])
def test_a_rule_on_what_all_messages_of_a_flow_share_is_settled(name: str) -> None:
    assert one_policy(permit("p"), deny("d", check(name, "present", True))).settles(some_facts())


def test_a_target_that_reads_what_varies_settles_nothing_either() -> None:
    for policy_set in (
        PolicySet(id="s", target=TINY, policies=(Policy(id="", rules=(permit("p"),)),)),
        PolicySet(id="s", policies=(Policy(id="", target=TINY, rules=(permit("p"),)),)),
        PolicySet(id="s", policies=(Policy(id="", rules=(deny("d", TINY, mode=Mode.REPORT), permit("p"))),)),
    ):
        assert not compile_policies([policy_set]).settles(some_facts())


def test_what_rules_read_is_marked_for_every_attribute() -> None:
    varying = {name for name, attribute in ATTRIBUTES.items() if attribute.varies}
    assert varying == {"msgId", "size", "time", "date", "weekday", "dstStatus", "dstPresence"}


HERE, THERE = "comm://b.example/here", "comm://b.example/there"


@pytest.mark.parametrize("operator", ["equals", "in", "like"])
@pytest.mark.parametrize("written", ["comm://B.example/here", "COMM://b.example/here", HERE])
def test_a_denial_among_neighbours_on_one_attribute_applies_however_it_is_written(operator: str, written: str) -> None:
    others = [deny(f"o{number}", check("msgTo", operator, f"{THERE}/{number}")) for number in range(3)]
    policies = one_policy(others[0], deny("d", check("msgTo", operator, written)), *others[1:])
    assert said(policies.decide(some_facts(a_message(to=HERE)))) == ("deny", "s/d")
    assert policies.decide(some_facts(a_message(to=THERE))).effect is Effect.NOT_APPLICABLE


@pytest.mark.parametrize("pattern", ["comm://b.example/h*", "comm://B.example/*re", "comm:*", "*/here", "*"])
def test_a_denial_by_a_pattern_among_neighbours_applies(pattern: str) -> None:
    other = deny("o", check("msgTo", "like", "comm://c.example/*"))
    for rules in (
        [other, deny("d", check("msgTo", "like", pattern))],
        [deny("d", check("msgTo", "like", pattern)), other],
    ):
        policies = one_policy(*rules)
        assert said(policies.decide(some_facts(a_message(to=HERE)))) == ("deny", "s/d")
        assert said(policies.decide(some_facts(a_message(to="comm://c.example/x")))) in (
            ("deny", "s/o"),
            ("deny", "s/d"),
        )


@pytest.mark.parametrize("wanted", ["to-1", "to-2", "size", "from", "to-3", "to-4"])
def test_each_of_many_rules_on_various_attributes_is_asked(wanted: str) -> None:
    """Neighbours on one attribute are ruled out together: never those of another, nor what stands beside them."""
    ana, bo = "hyperty://a.example/ana", "hyperty://a.example/bo"
    messages = {
        "to-1": a_message(from_=bo, to=f"{HERE}/1"),
        "to-2": a_message(from_=bo, to=f"{HERE}/2"),
        "size": a_message(from_=bo, to=THERE, value="x" * 10_000),
        "from": a_message(from_=ana, to=THERE),
        "to-3": a_message(from_=bo, to=f"{HERE}/3"),
        "to-4": a_message(from_=bo, to=f"{HERE}/4"),
    }
    rules = [
        deny("to-1", check("msgTo", "equals", f"{HERE}/1")),
        deny("to-2", check("msgTo", "equals", f"{HERE}/2")),
        deny("size", HUGE),
        deny("from", check("msgFrom", "equals", ana)),
        deny("to-3", check("msgTo", "equals", f"{HERE}/3")),
        deny("to-4", check("msgTo", "equals", f"{HERE}/4")),
    ]
    for start in range(len(rules)):
        policies = one_policy(*rules[start:], *rules[:start], algorithm=FIRST)
        assert said(policies.decide(some_facts(messages[wanted]))) == ("deny", f"s/{wanted}")
        assert policies.decide(some_facts(a_message(from_=bo, to=THERE))).effect is Effect.NOT_APPLICABLE


@pytest.mark.parametrize("kind", [AllOf, AnyOf])
@pytest.mark.parametrize(("part", "expected"), [(HOLDS, "deny"), (FAILS, "not-applicable")])
def test_one_condition_of_several_stands_for_itself(kind: type[AllOf | AnyOf], part: Condition, expected: str) -> None:
    assert one_policy(deny("d", kind(parts=(part,)))).decide(some_facts()).effect.value == expected


def test_a_policy_of_its_own_algorithm_is_not_combined_with_the_rules_of_others() -> None:
    first = Policy(id="1", rules=(permit("p", TINY), deny("d", TINY)), algorithm=FIRST)
    second = Policy(id="2", rules=(deny("never", HUGE),), algorithm=DENY_OVERRIDES)
    policies = compile_policies([PolicySet(id="s", policies=(first, second), algorithm=DENY_OVERRIDES)])
    assert policies.decide(some_facts()).effect is Effect.PERMIT


def test_what_is_settled_for_many_names_is_forgotten_before_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "POLICY_PROGRAM_STEPS", 10)
    policies = one_policy(deny("d", TINY))
    for number in range(50):
        name = f"n{number}.example"
        assert policies.decide(some_facts(to_domain=name, link_domain=name)).effect is Effect.DENY
        assert len(policies._programs) <= 5


def test_what_is_settled_without_any_rule_is_forgotten_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "POLICY_PROGRAM_STEPS", 10)
    policies = one_policy(deny("d", check("dstSPDomain", "equals", "other.example")))
    sizes = []
    for number in range(25):
        name = f"n{number}.example"
        assert policies.decide(some_facts(to_domain=name, link_domain=name)).effect is Effect.NOT_APPLICABLE
        sizes.append(len(policies._programs))
    assert (sizes[9:11], sizes[19:21]) == ([10, 1], [10, 1])


@pytest.mark.parametrize("is_policy", [False, True])
def test_the_target_of_an_empty_set_or_policy_is_read_as_well(*, is_policy: bool) -> None:
    target = check("identity.user", "equals", "ana")
    policies = (Policy(id="p", target=target, rules=()),) if is_policy else ()
    found = compile_policies([PolicySet(id="s", target=ALWAYS if is_policy else target, policies=policies)])
    assert found.facts_read >= {"identity.user"}


@pytest.mark.parametrize(("chars", "is_read"), [(253, True), (254, False)])
def test_a_domain_is_read_up_to_its_most_characters(chars: int, *, is_read: bool) -> None:
    name = "a" * (chars - 8) + ".example"
    assert ATTRIBUTES["dstSPDomain"].read(some_facts(to_domain=name)) == (name if is_read else None)


def test_a_test_without_parameters_has_no_beginning() -> None:
    assert find_beginning([check("msgTo", "in")]) is None
    assert find_beginning([check("msgTo", "in", "hyperty://a.example/x")]) is not None
