"""Message specification, section 21: policies. One test per row; row 52 is among the routing rows."""

from __future__ import annotations

import json

import pytest

from policy.core.gate import Gate, PeerRule
from policy.core.text import PolicyText, load_policies
from protofly.codec import build
from protofly.errors import Code
from tests.support.policies import a_message, some_facts


def effect(document: object, **facts: object) -> str:
    """What a policy file says about a message from a.example to b.example, on a Monday."""
    policies = load_policies([PolicyText("p.json", json.dumps(document), "json")])
    return policies.decide(some_facts(a_message(), **facts)).effect.value  # type: ignore[arg-type]


def rules(algorithm: str, *effects: str) -> dict[str, object]:
    return {
        "id": "s",
        "policies": [
            {
                "rule_combining_algorithm": algorithm,
                "rules": [{"id": f"r{n}", "effect": one} for n, one in enumerate(effects)],
            }
        ],
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deny-overrides", "deny"),
        ("blockOverrides", "deny"),
        ("denyOverrides", "deny"),
        ("permit-overrides", "permit"),
        ("allowOverrides", "permit"),
    ],
)
def test_row_48_algorithms_have_the_names_of_all_three_languages(name: str, expected: str) -> None:
    assert effect(rules(name, "permit", "deny")) == expected


MONDAY = {"attribute": "weekday", "operator": "equals", "params": 1}


@pytest.mark.parametrize(
    "rule",
    [
        {"scope": "hyperty", "target": "hyperty://b.example/h-bo", "decision": False},
        {"scope": "global", "target": "global", "condition": MONDAY, "decision": False},
        {"condition": {"weekday": {"equals": "Monday"}}, "effect": "deny"},
        {"condition": {"weekday": {"equals": "monday"}}, "effect": "deny"},
        {"condition": {"msgType": {"equals": "create"}}, "effect": "deny"},
    ],
)
def test_row_48_scopes_weekdays_and_message_types_are_read_in_their_old_forms(rule: dict[str, object]) -> None:
    assert effect({"key": "k", "rules": [rule]}) == "deny"


@pytest.mark.parametrize(("effects", "expected"), [(("permit", "deny"), "permit"), (("deny", "permit"), "deny")])
def test_row_49_the_first_rule_that_applies_decides(effects: tuple[str, ...], expected: str) -> None:
    assert effect(rules("first-applicable", *effects)) == expected
    assert effect(rules("firstApplicable", *effects)) == expected


def test_row_50_without_a_permit_block_overrides_says_nothing_and_the_default_decides() -> None:
    document = {"id": "s", "rules": [{"effect": "deny", "condition": {"actionType": {"equals": "delete"}}}]}
    policies = load_policies([PolicyText("p.json", json.dumps(document), "json")])
    assert effect(document) == "not-applicable"
    gate = Gate(policies, {"b.example": PeerRule(), "c.example": PeerRule(default="deny")})
    assert gate.judge(some_facts(a_message())).permitted
    assert not gate.judge(some_facts(a_message(), link_domain="c.example")).permitted


def test_row_51_silence_permits_here_and_denies_abroad() -> None:
    gate = Gate()
    assert gate.judge(some_facts(a_message(), hook="local", link_domain="")).permitted
    verdict = gate.judge(some_facts(a_message()))
    assert (verdict.permitted, verdict.code) == (False, Code.DOMAIN_BLOCKED)


SECRET = "hyperty://b.example/secret"
INNER = {"type": "create", "from": "hyperty://a.example/h", "to": SECRET}


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ({"message": INNER}, False),
        (INNER, False),
        ({"message": {**INNER, "type": "forward", "to": "hyperty://b.example/m", "body": INNER}}, False),
        ({"message": {**INNER, "to": "hyperty://b.example/other"}}, True),
        ({"message": "nothing that can be read"}, True),
    ],
)
def test_row_57_what_a_message_carries_is_judged_in_both_forms(body: dict[str, object], *, passes: bool) -> None:
    document = {"id": "s", "rules": [{"effect": "deny", "condition": {"msgTo": {"equals": SECRET}}}]}
    gate = Gate(load_policies([PolicyText("p.json", json.dumps(document), "json")]), {"b.example": PeerRule()})
    message = build(id=1, type="forward", from_=INNER["from"], to="hyperty://b.example/m", body=body)
    verdict = gate.judge(some_facts(message))
    assert verdict.permitted is passes
