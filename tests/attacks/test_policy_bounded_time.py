"""Policies and messages made to be slow or to break the engine (trust and hosts, section 7, attack 52)."""

from __future__ import annotations

import time

import pytest

from policy.core.attributes import ATTRIBUTES
from policy.core.engine import AnyOf, Effect, Policy, PolicySet, compile_policies
from policy.core.gate import Gate, PeerRule
from protofly.errors import SettingsError
from protofly.limits import POLICY_PROGRAM_STEPS, POLICY_RULES_PER_MESSAGE
from tests.support.policies import a_message, both, deny, one_policy, permit, some_facts
from tests.support.policies import test as check

MANY = 20_000
LONG = "a." * 50_000 + "example"


def seconds_of(action: object) -> float:
    assert callable(action)
    began = time.thread_time()
    action()
    return time.thread_time() - began


def test_rules_for_many_peers_cost_a_message_nothing() -> None:
    rules = [
        deny(f"r{n}", both(check("linkDomain", "equals", f"n{n}.example"), check("size", "moreThan", 9)))
        for n in range(MANY)
    ]
    policies = one_policy(*rules, permit("p"))
    facts = some_facts(a_message(to="hyperty://n77.example/h"))
    assert policies.decide(facts).rule_id == "s/r77"
    assert policies.decide(some_facts()).rule_id == "s/p"
    strangers = [some_facts(link_domain=f"stranger{n}.example") for n in range(100)]
    assert seconds_of(lambda: [policies.decide(stranger) for stranger in strangers]) < 0.1


def test_long_list_of_names_is_one_look_up() -> None:
    policies = one_policy(deny("d", check("linkDomain", "in", *[f"n{n}.example" for n in range(MANY)])), permit("p"))
    assert policies.decide(some_facts(link_domain="n19999.example")).effect is Effect.DENY
    assert seconds_of(lambda: [policies.decide(some_facts(link_domain=f"s{n}.example")) for n in range(100)]) < 0.1


def test_more_rules_for_every_message_than_time_allows_are_refused() -> None:
    rules = [deny(f"r{n}", check("size", "equals", n)) for n in range(POLICY_RULES_PER_MESSAGE + 1)]
    with pytest.raises(SettingsError, match="would be asked for one message"):
        one_policy(*rules)
    rules = [deny(f"r{n}", check("linkDomain", "like", "*.b.example")) for n in range(POLICY_RULES_PER_MESSAGE + 1)]
    with pytest.raises(SettingsError, match="would be asked for one message"):
        one_policy(*rules)


@pytest.mark.parametrize("attribute", ["srcSPDomain", "dstSPDomain", "linkDomain"])
def test_endless_domain_is_a_missing_one(attribute: str) -> None:
    member = {"srcSPDomain": "from_domain", "dstSPDomain": "to_domain", "linkDomain": "link_domain"}[attribute]
    facts = some_facts(**{"hook": "out", member: LONG})  # type: ignore[arg-type]
    assert ATTRIBUTES[attribute].read(facts) is None
    policies = one_policy(deny("d", check(attribute, "like", "*.example")))
    assert policies.decide(facts).effect is Effect.DENY
    assert seconds_of(lambda: policies.decide(facts)) < 0.05
    assert (
        not Gate(one_policy(permit("p", check(attribute, "like", "*.example"))), {"*": PeerRule()})
        .judge(facts)
        .permitted
    )


def test_endless_texts_are_compared_in_linear_time() -> None:
    policies = one_policy(deny("d", check("resource", "like", "*a*a*a*a*a*a*a*a*b")))
    facts = some_facts(a_message(resource="a" * 500_000))
    assert seconds_of(lambda: policies.decide(facts)) < 0.2


def test_many_different_domains_do_not_make_the_engine_grow() -> None:
    policies = one_policy(*[permit(f"p{n}", check("size", "equals", n)) for n in range(500)])
    facts = some_facts()
    for number in range(1000):
        policies.decide(some_facts(facts.message, to_domain=f"n{number}.example"))
        assert policies._program_steps <= POLICY_PROGRAM_STEPS


def test_strange_types_share_one_program() -> None:
    policies = one_policy(
        deny("d", check("actionType", "equals", "create")), permit("odd", check("actionType", "like", "odd*"))
    )
    for number in range(100):
        assert policies.decide(some_facts(a_message(type_=f"odd{number}"))).rule_id == "s/odd"
    assert len(policies._programs) == 1


@pytest.mark.parametrize(
    "facts",
    [
        some_facts(a_message(from_="")),
        some_facts(a_message(from_="<>", to="\x00")),
        some_facts(a_message(resource={"a": [1]})),
        some_facts(a_message(type_="x" * 10_000)),
        some_facts(now=float("inf")),
        some_facts(now=float("-inf")),
        some_facts(via_length=10**30),
    ],
)
def test_every_attribute_survives_hostile_messages(facts: object) -> None:
    present = [check(name, "present", True) for name in ATTRIBUTES]
    policies = one_policy(permit("p", AnyOf(parts=tuple(present))))
    assert policies.decide(facts).effect is Effect.PERMIT  # type: ignore[arg-type]
    for attribute in ATTRIBUTES.values():
        attribute.read(facts)  # type: ignore[arg-type]
    assert policies.faults == 0


def test_as_many_rules_as_fit_are_decided_within_a_few_milliseconds() -> None:
    rules = tuple(permit(f"r{n}", check("size", "equals", -n)) for n in range(POLICY_RULES_PER_MESSAGE))
    policies = compile_policies([PolicySet(id="s", policies=(Policy(id="", rules=rules),))])
    assert policies.decide(some_facts()).effect is Effect.NOT_APPLICABLE
    assert seconds_of(lambda: policies.decide(some_facts())) < 0.02
