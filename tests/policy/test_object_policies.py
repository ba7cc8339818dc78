"""Policies of objects: they deny what all else lets pass, and nothing that they say opens anything."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.core.engine import CompiledPolicies, Facts, Hook
from policy.core.gate import Gate, GateStep, PeerRule, narrow
from policy.core.object_policies import ObjectPolicy, compile_document
from policy.core.text import PolicyText, load_policies
from protofly.errors import Code, SettingsError
from protofly.limits import POLICY_DOCUMENT_RULES
from protofly.message import Message
from tests.support.policies import a_message, deny, one_policy, permit, some_facts, test

DOCUMENT = "hyperty-catalogue://catalogue.a.example/.well-known/policy/Room"
ROOM = "comm://a.example/room"
BO = "hyperty://b.example/bo"


class Named:
    """Documents for all messages."""

    def __init__(self, *policies: CompiledPolicies | None, is_needed: bool = True) -> None:
        self.found = [ObjectPolicy(DOCUMENT, one, is_needed) for one in policies]

    def about(self, _message: Message, /) -> Sequence[ObjectPolicy]:
        return self.found


def asked(hook: Hook = "in", type_: str = "create") -> Facts:
    return some_facts(a_message(type_=type_, from_=BO, to=ROOM), hook=hook)


def gate_of(named: Named, policies: CompiledPolicies | None = None) -> Gate:
    gate = Gate(policies, {"b.example": PeerRule(default="permit")})
    gate.narrow_by(named)
    return gate


@pytest.mark.parametrize("hook", ["in", "out", "local"])
def test_what_a_document_denies_does_not_pass_whatever_permits_it(hook: Hook) -> None:
    gate = gate_of(Named(one_policy(deny("no"))), one_policy(permit("yes")))
    verdict = gate.judge(asked(hook))
    assert (verdict.permitted, verdict.code, verdict.step) == (False, Code.POLICY, GateStep.DOCUMENT)
    assert verdict.details_for_sender == {"rule": f"document: {DOCUMENT} s/no"}
    assert gate.foresee(asked(hook)) == gate.explain(asked(hook)).verdict == verdict
    assert gate.denied == 1


def test_what_a_rule_denies_is_denied_by_that_rule_whatever_a_document_says() -> None:
    gate = gate_of(Named(one_policy(deny("no"))), one_policy(deny("never")))
    verdict = gate.judge(asked())
    assert (verdict.permitted, verdict.rule_id, verdict.step) == (False, "s/never", GateStep.POLICY)


def test_what_the_gates_of_another_node_let_pass_is_denied_and_counted_only_where_a_document_denies_it() -> None:
    alone = Gate()
    assert narrow(alone, asked()) is None
    denying, permitting = gate_of(Named(one_policy(deny("no")))), gate_of(Named(one_policy(permit("yes"))))
    verdict = narrow(denying, asked())
    assert verdict is not None
    assert (verdict.permitted, verdict.step) == (False, GateStep.DOCUMENT)
    assert narrow(permitting, asked()) is None
    assert (alone.denied, denying.denied, permitting.denied) == (0, 1, 0)


def test_what_a_document_permits_passes_only_if_all_else_lets_it_pass() -> None:
    opened = Named(one_policy(permit("yes")))
    assert gate_of(opened).judge(asked()).step is GateStep.DEFAULT
    verdict = gate_of(opened, one_policy(deny("no"))).judge(asked())
    assert (verdict.permitted, verdict.rule_id, verdict.step) == (False, "s/no", GateStep.POLICY)
    stranger = Gate()
    stranger.narrow_by(opened)
    assert stranger.judge(asked()).code is Code.DOMAIN_BLOCKED


def test_what_a_document_cannot_judge_does_not_pass() -> None:
    of_staff = one_policy(permit("staff", test("identity.user", "equals", "ana")))
    assert gate_of(Named(of_staff)).judge(asked()).code is Code.POLICY


def test_looking_for_a_domain_asks_no_document() -> None:
    looking = some_facts(a_message(from_="hyperty://a.example/ana", to=BO), hook="peer")
    assert gate_of(Named(one_policy(deny("no")))).judge(looking).permitted


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_document_that_is_not_here_stops_only_what_needs_it(*, is_needed: bool) -> None:
    verdict = gate_of(Named(None, is_needed=is_needed)).judge(asked())
    if is_needed:
        assert (verdict.code, verdict.retry_after_seconds) == (Code.POLICY_UNAVAILABLE, 1.0)
        assert verdict.details_for_sender == {"rule": f"document: {DOCUMENT}", "retryAfter": 1.0}
    else:
        assert verdict.permitted


def test_a_gate_with_documents_judges_the_own_bus_and_ends_flows_when_they_change() -> None:
    alone, gate = Gate(), Gate()
    before = gate.era
    gate.narrow_by(Named(one_policy(permit("yes"))))
    assert (alone.judges_own_bus, gate.judges_own_bus) == (False, True)
    assert gate.era is not before


def test_a_flow_is_settled_unless_a_document_reads_what_varies() -> None:
    assert gate_of(Named(one_policy(permit("yes")))).settle(asked()) is not None
    assert gate_of(Named(None, is_needed=False)).settle(asked()) is not None
    assert gate_of(Named(one_policy(deny("no")))).settle(asked()) is None
    varies, settles = one_policy(deny("big", test("size", "moreThan", 9_000))), one_policy(permit("yes"))
    for policies in ([varies], [varies, settles], [settles, varies]):
        assert gate_of(Named(*policies)).settle(asked()) is None


@given(text=st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_a_document_or_a_settings_error(text: str) -> None:
    with contextlib.suppress(SettingsError):
        compile_document(text, "document")


RULE = {"id": "no", "effect": "deny"}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"id": "s", "rules": [RULE | {"obligations": {"log": "x"}}]}, "obligations are for"),
        ({"id": "s", "rules": [RULE], "obligations": {"deny": {"notify": "hyperty://a.example/x"}}}, "obligations"),
        ({"id": "s", "rules": [RULE | {"id": f"r{n}"} for n in range(POLICY_DOCUMENT_RULES + 1)]}, "at most 256"),
        ({"id": "document: x", "rules": [RULE]}, "policies of objects are named so"),
        ({"id": "s", "rules": [RULE], "tests": [{"from": BO, "to": ROOM, "expect": "permit"}]}, "expects permit"),
        ({"id": "s", "rules": [RULE | {"condition": {"msgFrom": {"in": "@staff"}}}]}, "staff"),
        ([], ""),
    ],
)
def test_a_document_that_wants_more_or_makes_no_sense_is_refused(document: object, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compile_document(json.dumps(document), "document")
    assert words in caught.value.detail


def test_a_document_has_as_many_rules_as_it_may_have() -> None:
    rules = [RULE | {"id": f"r{n}"} for n in range(POLICY_DOCUMENT_RULES)]
    assert compile_document(json.dumps({"id": "s", "rules": rules}), "document").sets


def test_a_set_of_the_operator_cannot_take_the_name_of_a_document() -> None:
    text = json.dumps({"id": "document: x", "rules": [RULE]})
    with pytest.raises(SettingsError, match="policies of objects"):
        load_policies([PolicyText("p", text, "json")])
