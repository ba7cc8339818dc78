"""Labels of data that leaves: who may receive it, and what the record of a message says about it."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from policy.core.engine import Facts, Hook
from policy.core.gate import Gate, GateStep, PeerRule
from policy.core.obligations import LABELS, Transfer
from policy.core.recorded_facts import with_transfer
from policy.core.text import PolicyText, load_policies
from protofly.codec import decode
from protofly.errors import Code, SettingsError
from protofly.records import GateFacts
from tests.support.policies import a_message, some_facts

ANA, BO = "hyperty://a.example/ana", "hyperty://b.example/bo"
PATIENT: dict[str, object] = {"label": ["personal", "health"], "consent": "required", "purpose": "care", "basis": "law"}


def gate_of(obligations: object, *received: str, **rule: object) -> Gate:
    one = {"id": "yes", "effect": "permit", "obligations": obligations, **rule}
    policies = load_policies([PolicyText("p", json.dumps({"id": "s", "rules": [one]}), "json")])
    return Gate(policies, {"b.example": PeerRule(may_receive=frozenset(received))})


def leaving(hook: Hook = "out", type_: str = "create") -> Facts:
    return some_facts(a_message(type_=type_, from_=ANA, to=BO), hook=hook)


@pytest.mark.parametrize("received", [(), ("personal",), ("Personal", "health")])
def test_labelled_data_stays_here_unless_the_domain_may_receive_all_its_labels(received: tuple[str, ...]) -> None:
    verdict = gate_of(PATIENT, *received).judge(leaving())
    assert (verdict.permitted, verdict.code, verdict.step) == (False, Code.CONSENT, GateStep.POLICY)
    assert (verdict.rule_id, verdict.details_for_sender) == ("s/yes", {"rule": "s/yes"})
    assert gate_of(PATIENT, *received).settle(leaving()) is None


def test_with_consent_it_leaves_and_its_record_says_what_it_was() -> None:
    gate = gate_of(PATIENT, "personal", "health", "more")
    verdict = gate.judge(leaving())
    assert verdict.permitted
    assert verdict.transfer == Transfer(("health", "personal"), True, "care", "law")
    recorded = with_transfer(None, verdict.transfer)
    assert recorded == GateFacts(labels=("health", "personal"), purpose="care", basis="law")
    settled = gate.settle(leaving())
    assert settled is not None
    assert settled.verdict.transfer == verdict.transfer


def test_the_label_stands_beside_all_else_that_a_record_says() -> None:
    recorded, transfer = GateFacts(via_length=2), Transfer(("health",))
    assert with_transfer(recorded, transfer) == GateFacts(via_length=2, labels=("health",))
    assert with_transfer(recorded, None) == recorded
    assert with_transfer(None, None) is None


def test_where_no_consent_is_required_a_label_only_says_what_left() -> None:
    verdict = gate_of({"label": "contacts"}).judge(leaving())
    assert (verdict.permitted, verdict.transfer) == (True, Transfer(("contacts",)))


@pytest.mark.parametrize("hook", ["in", "local", "peer"])
def test_what_does_not_leave_needs_no_consent_and_is_not_labelled(hook: Hook) -> None:
    verdict = gate_of(PATIENT).judge(leaving(hook))
    assert (verdict.permitted, verdict.transfer) == (True, None)


def test_the_same_rule_is_judged_by_the_entry_of_each_domain() -> None:
    gate = gate_of(PATIENT, "personal", "health")
    there = leaving()
    elsewhere = replace(there, to_domain="c.example", link_domain="c.example")
    assert [gate.judge(one).permitted for one in (there, elsewhere, there)] == [True, False, True]


def test_what_a_message_carries_needs_consent_as_well() -> None:
    inner = {"type": "create", "from": ANA, "to": BO, "body": {}}
    raw = json.dumps({"type": "forward", "from": ANA, "to": BO, "body": {"message": inner}})
    (forward,) = decode(raw.encode())
    rule = {"condition": {"actionType": {"equals": "create"}}}
    for received, permitted in (((), False), (("personal", "health"), True)):
        verdict = gate_of(PATIENT, *received, **rule).judge(some_facts(forward, hook="out"))
        assert verdict.permitted is permitted
        assert verdict.transfer is not None


@pytest.mark.parametrize("is_labelled", [True, False])
def test_the_label_of_what_a_message_carries_is_recorded_where_the_message_has_none_itself(is_labelled: bool) -> None:
    def rule(id_: str, type_: str, **obligations: object) -> dict[str, object]:
        condition = {"actionType": {"equals": type_}}
        return {"id": id_, "effect": "permit", "condition": condition, "obligations": obligations}

    outer = rule("outer", "forward", **({"label": "outer"} if is_labelled else {"log": "short"}))
    inner = {"type": "create", "from": ANA, "to": BO, "body": {}}
    raw = json.dumps({"type": "forward", "from": ANA, "to": BO, "body": {"message": inner}})
    (forward,) = decode(raw.encode())
    rules = [outer, rule("inner", "create", label="inner")]
    policies = load_policies([PolicyText("p", json.dumps({"id": "s", "rules": rules}), "json")])
    peer = PeerRule(may_receive=frozenset(("outer", "inner")))
    verdict = Gate(policies, {"b.example": peer}).judge(some_facts(forward, hook="out"))
    assert verdict.transfer is not None
    assert verdict.transfer.labels == (("outer",) if is_labelled else ("inner",))


@pytest.mark.parametrize(
    ("obligations", "words"),
    [
        ({"consent": "required"}, "give the label too"),
        ({"purpose": "x"}, "give the label too"),
        ({"label": "Personal"}, "lower-case"),
        ({"label": []}, "lower-case"),
        ({"label": ["health", "Personal"]}, "lower-case"),
        ({"label": [f"l{number}" for number in range(9)]}, "at most 8"),
        ({"label": ["a,b", "c"], "basis": "\x1b"}, "64 characters"),
        ({"label": "a", "consent": True}, "required"),
        ({"label": "a", "purpose": "x" * 65}, "64 characters"),
        ({"label": {"a": 1}}, ""),
    ],
)
def test_what_says_nothing_clear_about_data_is_refused(obligations: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        gate_of(obligations)
    assert words in caught.value.detail


def test_data_has_up_to_eight_labels() -> None:
    labels = [f"l{number}" for number in range(LABELS)]
    verdict = gate_of({"label": labels}, *labels).judge(some_facts())
    assert verdict.transfer is not None
    assert verdict.transfer.labels == tuple(labels)


def test_a_denial_has_no_label() -> None:
    with pytest.raises(SettingsError, match="belongs to a rule that permits"):
        gate_of({"label": "a"}, effect="deny")


def test_a_label_of_a_set_stands_with_all_that_its_rules_permit() -> None:
    rules = [
        {"id": "yes", "effect": "permit"},
        {"id": "no", "effect": "deny", "condition": {"size": {"moreThan": 9999}}},
    ]
    text = json.dumps({"id": "s", "obligations": {"permit": {"label": "a"}}, "rules": rules})
    gate = Gate(load_policies([PolicyText("p", text, "json")]), {"b.example": PeerRule()})
    assert gate.judge(leaving()).transfer == Transfer(("a",))
