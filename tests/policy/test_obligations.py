"""Obligations: what is carried out, what a gate says with it, and what is refused when policies are loaded."""

from __future__ import annotations

import pytest

from policy.core.engine import compile_canonical
from policy.core.gate import Gate, PeerRule, Verdict
from policy.core.model import LOGGED, Hook
from policy.core.obligations import Instead
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


def verdict_of(gate: Gate, type_: str = "create", hook: Hook = "out") -> Verdict:
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
    assert not verdict_of(gate_of('{ notify = "hyperty://a.example/ops" }', "deny")).permitted
    with pytest.raises(SettingsError, match=r'p\.toml:7: the obligation "notify" is not carried out'):
        gate_of('{ notify = "hyperty://a.example/ops" }', "permit")


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
        (f'{{ redirect = "{DESK}", answer = 200 }}', "give one of"),
        ('{ log = "x", permit = { log = "y" } }', "given twice"),
        (f'{{ redirect = "{DESK}", park = true }}', "give one of"),
        ('{ log = "" }', "log: expected"),
        (f'{{ log = "{"x" * 65}" }}', "log: expected"),
        ('{ log = "a\\u0007b" }', "log: expected"),
        ("{ log = 7 }", "log: expected"),
        ('{ park = "yes" }', "park: expected"),
    ],
)
def test_obligations_without_a_meaning_are_refused_when_they_are_loaded(obligations: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        gate_of(obligations)
