"""Obligations: what is carried out, what a gate says with it, and what is refused when policies are loaded."""

from __future__ import annotations

import pytest

from policy.core.engine import compile_canonical
from policy.core.gate import Gate, GateVerdict, PeerRule
from policy.core.model import LOGGED, Hook
from policy.core.obligations import Duties, Instead, is_service, notified_addresses
from policy.core.text import PolicyText, load_policies
from protofly.errors import Code, SettingsError
from tests.support.policies import a_message, some_facts

RULE = """
id = "s"
[[rules]]
id = "r"
effect = "{effect}"
condition = {{ dstSPDomain = {{ equals = "b.example" }} }}
obligations = {obligations}
"""
BOB = "hyperty://b.example/bob"
DESK = "hyperty://a.example/desk"


def gate_of(obligations: str, effect: str = "permit") -> Gate:
    policies = load_policies([PolicyText("p.toml", RULE.format(effect=effect, obligations=obligations), "toml")])
    return Gate(compile_canonical(policies.canonical), {"b.example": PeerRule()})  # as it comes to another process


def verdict_of(gate: Gate, type_: str = "create", hook: Hook = "out") -> GateVerdict:
    return gate.judge(some_facts(a_message(type_=type_, to=BOB), hook=hook))


@pytest.mark.parametrize("effect", ["permit", "deny"])
@pytest.mark.parametrize(
    ("obligations", "instead"),
    [
        (f'{{ redirect = "{DESK}" }}', Instead(address=DESK)),
        ("{ answer = 480 }", Instead(code=480)),
        ('{ answer = "200 Back on Monday" }', Instead(code=200, description="Back on Monday")),
        ('{ answer = { code = 486, description = "Busy" } }', Instead(code=486, description="Busy")),
    ],
)
def test_a_message_that_is_redirected_or_answered_does_not_go_to_its_recipient(
    obligations: str, instead: Instead, effect: str
) -> None:
    gate = gate_of(obligations, effect)
    verdict = verdict_of(gate)
    assert (verdict.permitted, verdict.code, verdict.rule_id, verdict.instead) == (False, Code.POLICY, "s/r", instead)
    assert gate.settle(some_facts(a_message(to=BOB))) is None


@pytest.mark.parametrize("type_", ["response", "subscribe", "unsubscribe", "forward", "ping"])
@pytest.mark.parametrize("effect", ["permit", "deny"])
def test_replies_and_subscriptions_go_their_way(type_: str, effect: str) -> None:
    gate = gate_of(f'{{ redirect = "{DESK}" }}', effect)
    assert not verdict_of(gate).permitted
    assert verdict_of(gate, type_).permitted  # also after a request on the same way


def test_a_look_up_is_not_redirected() -> None:
    assert verdict_of(gate_of(f'{{ redirect = "{DESK}" }}', "deny"), hook="peer").permitted


@pytest.mark.parametrize("effect", ["permit", "deny"])
def test_a_logged_decision_is_marked_for_a_record_of_its_own_and_ends_no_message(effect: str) -> None:
    gate = gate_of('{ log = "to B" }', effect)
    verdict = verdict_of(gate)
    assert (verdict.permitted, verdict.decision.shadow) == (effect == "permit", (LOGGED,))
    assert verdict_of(gate_of('{ log = "480" }', effect)).instead is None  # no answer, whatever the text looks like
    assert gate.settle(some_facts(a_message(to=BOB))) is None


@pytest.mark.parametrize(
    "obligations", ['{ log = "x" }', f'{{ log = "{"x" * 64}" }}', f'{{ answer = "486 {"x" * 200}" }}']
)
def test_obligations_as_short_and_as_long_as_they_may_be_are_taken(obligations: str) -> None:
    assert gate_of(obligations).judge(some_facts(a_message(to=BOB))).rule_id == "s/r"


def test_what_is_not_carried_out_may_stand_with_a_denial_only() -> None:
    assert not verdict_of(gate_of('{ encrypt = "always" }', "deny")).permitted
    with pytest.raises(SettingsError, match=r'p\.toml:7: the obligation "encrypt" is not carried out'):
        gate_of('{ encrypt = "always" }', "permit")


@pytest.mark.parametrize("effect", ["permit", "deny"])
@pytest.mark.parametrize(
    ("obligations", "duties"),
    [
        (f'{{ notify = "{DESK}" }}', Duties(notify=DESK)),
        ("{ quarantine = true }", Duties(quarantine=True)),
        (f'{{ notify = "{DESK}", quarantine = true }}', Duties(DESK, quarantine=True)),
    ],
)
def test_duties_stand_beside_a_decision_and_change_nothing_of_it(obligations: str, duties: Duties, effect: str) -> None:
    gate = gate_of(obligations, effect)
    verdict = verdict_of(gate)
    assert (verdict.permitted, verdict.duties, verdict.instead) == (effect == "permit", duties, None)
    assert verdict.decision.shadow == (LOGGED,)  # each has a record, and passes the gate by itself
    assert gate.settle(some_facts(a_message(to=BOB))) is None


def test_nothing_is_to_be_done_for_a_rule_that_says_no_or_that_is_on_trial() -> None:
    assert verdict_of(gate_of("{ quarantine = false }")).duties is None
    text = RULE.format(effect="deny", obligations="{ quarantine = true }").replace(
        'id = "s"', 'id = "s"\nmode = "report"'
    )
    verdict = verdict_of(Gate(load_policies([PolicyText("p.toml", text, "toml")]), {"b.example": PeerRule()}))
    assert (verdict.permitted, verdict.duties) == (True, None)


def test_addresses_that_are_notified_are_known_wherever_the_obligation_stands() -> None:
    rule = '[[policies.rules]]\nid = "r"\neffect = "deny"\n'
    rule += 'obligations = { notify = "hyperty://a.example/1", log = "x" }\n'
    text = (
        'id = "s"\nobligations = { deny = { notify = "hyperty://a.example/2" } }\n[[policies]]\n'
        f'obligations = {{ permit = {{ notify = "hyperty://c.example/3" }} }}\n{rule}'
    )
    with pytest.raises(SettingsError, match='"notify" is given twice'):
        load_policies([PolicyText("p.toml", text, "toml")])
    sets = load_policies([PolicyText("p.toml", text.replace("{ deny =", "{ permit ="), "toml")]).sets
    names = {"hyperty://a.example/1", "hyperty://a.example/2", "hyperty://c.example/3"}
    assert notified_addresses(sets) == names


MARKS = """
id = "s"
[limits.strikes]
by = "sender"
per = "day"
messages = 2
[[rules]]
id = "probe"
effect = "deny"
condition = { actionType = { equals = "delete" } }
obligations = { mark = "strikes" }
[[rules]]
id = "calls"
effect = "permit"
condition = { actionType = { equals = "create" } }
obligations = { limit = "strikes" }
"""


def test_a_mark_counts_in_a_limit_without_being_held_against_it() -> None:
    gate = Gate(load_policies([PolicyText("p.toml", MARKS, "toml")]), {"b.example": PeerRule()})
    assert [verdict_of(gate, "delete").code for _ in range(3)] == [Code.POLICY] * 3
    assert verdict_of(gate, "create").code is Code.QUOTA
    others = some_facts(a_message(from_="hyperty://a.example/eve", to=BOB))
    assert [gate.judge(others).code for _ in range(3)] == [None, None, Code.QUOTA]


def test_what_is_marked_is_never_settled_for_a_flow_and_no_question_counts() -> None:
    text = MARKS.replace('"deny"', '"permit"')
    gate = Gate(load_policies([PolicyText("p.toml", text, "toml")]), {"b.example": PeerRule()})
    facts = some_facts(a_message(type_="delete", to=BOB))
    assert gate.settle(facts) is None
    assert gate.foresee(facts).permitted
    assert list(gate.limits) == []
    assert gate.judge(facts).permitted
    assert [(one.limit.name, one.counted and one.counted.messages) for one in gate.limits] == [("strikes", 1)]


def test_what_a_limit_refuses_has_no_duties_and_no_marks() -> None:
    text = MARKS.replace('limit = "strikes" }', f'limit = "strikes", notify = "{DESK}" }}')
    gate = Gate(load_policies([PolicyText("p.toml", text, "toml")]), {"b.example": PeerRule()})
    verdicts = [verdict_of(gate) for _ in range(3)]
    assert [one.duties for one in verdicts] == [Duties(notify=DESK), Duties(notify=DESK), None]


@pytest.mark.parametrize(
    ("obligations", "words"),
    [
        ('{ mark = "strikes", limit = "strikes" }', "leave out the mark"),
        ('{ mark = "nobody" }', "limit"),
        ("{ mark = true }", "expected"),
    ],
)
def test_marks_without_a_meaning_are_refused_when_they_are_loaded(obligations: str, words: str) -> None:
    text = MARKS.replace('{ limit = "strikes" }', obligations)
    with pytest.raises(SettingsError, match=words):
        load_policies([PolicyText("p.toml", text, "toml")])


@pytest.mark.parametrize(
    ("obligations", "words"),
    [
        ('{ redirect = "domain://msg-node.a.example/admin" }', "not the address of"),
        ('{ redirect = "domain://registry.a.example" }', "not the address of"),
        ('{ redirect = "runtime://a.example/ana" }', "not the address of"),
        ('{ redirect = "mn:/session" }', "not the address of"),
        ('{ redirect = "global://registry" }', "not the address of"),
        ('{ redirect = "https://a.example/x" }', "not the address of"),
        ('{ redirect = "comm://a.example/room/subscription" }', "not the address of"),
        ('{ redirect = "comm://a.example/room/children/chat" }', "not the address of"),
        ('{ redirect = "hyperty:///desk" }', "not the address of"),
        ('{ redirect = "nobody" }', "address"),
        ("{ redirect = { code = 486 } }", "expected a text, a number"),
        ('{ redirect = "" }', "address"),
        ("{ redirect = true }", "address"),
        ("{ answer = 100 }", "from 200 to 599"),
        ("{ answer = 600 }", "from 200 to 599"),
        ('{ answer = "no" }', "from 200 to 599"),
        (f'{{ answer = {{ code = 200, description = "{"x" * 300}" }} }}', "at most 200"),
        ('{ answer = { code = 200, text = "x" } }', "unknown key"),
        ('{ answer = { description = "x" } }', 'needs a "code"'),
        ('{ answer = "200 a\\u0007b" }', "from 200 to 599"),
        (f'{{ redirect = "{DESK}", answer = 200 }}', "keep one of"),
        ('{ log = "x", permit = { log = "y" } }', "given twice"),
        (f'{{ redirect = "{DESK}", park = true }}', "keep one of"),
        ('{ log = "" }', "log: expected"),
        (f'{{ log = "{"x" * 65}" }}', "log: expected"),
        ('{ log = "a\\u0007b" }', "log: expected"),
        ("{ log = 7 }", "log: expected"),
        ('{ park = "yes" }', "park: expected"),
        ('{ quarantine = "yes" }', "quarantine: expected"),
        ('{ notify = "domain://msg-node.a.example/admin" }', "notify: .* is not the address of"),
        ('{ notify = "ops" }', "notify: .* is not the address of"),
    ],
)
def test_obligations_without_a_meaning_are_refused_when_they_are_loaded(obligations: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        gate_of(obligations)


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("hyperty://b.example/bob", False),
        ("comm://b.example/room", False),
        ("domain://msg-node.b.example/sm", True),
        ("runtime://b.example/r", True),
        ("hyperty:", True),
        ("1x://b.example/no-address", True),
    ],
)
def test_what_is_no_address_counts_as_a_service(address: str, *, is_one: bool) -> None:
    assert is_service(address) is is_one
