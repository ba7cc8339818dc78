"""A message over a link in the name of an alias is judged by both domains: lists, rates, defaults, direct connections.

Here `b.example` is linked, and speaks for `b-lab.example` too.
"""

from __future__ import annotations

import pytest

from policy.core.engine import Facts
from policy.core.gate import Gate, GateStep, PeerRule
from policy.core.rates import RateLimit, TypeRate
from protofly.errors import Code
from tests.support.policies import a_message, deny, one_policy, permit, some_facts
from tests.support.policies import test as check

LAB, BO = "hyperty://b-lab.example/h", "hyperty://b.example/h"


def facts(from_: str = LAB, *, type_: str = "create", **body: object) -> Facts:
    message = a_message(type_=type_, from_=from_, to="hyperty://a.example/ana", **body)
    return some_facts(message, hook="in", link_domain="b.example")


def test_a_barred_domain_is_barred_over_every_link() -> None:
    gate = Gate(peers={"b.example": PeerRule()}, deny=["b-lab.example"])
    assert gate.judge(facts(BO)).permitted
    verdict = gate.judge(facts())
    assert (verdict.permitted, verdict.code, verdict.step) == (False, Code.DOMAIN_BLOCKED, GateStep.LIST)
    assert gate.denied == 1


@pytest.mark.parametrize(
    ("allow", "denied", "permitted"),
    [
        (["b.example"], [], False),
        (["b.example", "b-lab.example"], [], True),
        (["b-lab.example"], [], False),
        (None, ["b.example"], False),
        (None, ["*.example"], False),
        (None, [], True),
    ],
)
def test_the_lists_have_to_let_both_pass(allow: list[str] | None, denied: list[str], permitted: bool) -> None:
    gate = Gate(peers={"b.example": PeerRule()}, allow=allow, deny=denied)
    assert gate.judge(facts()).permitted is permitted
    assert gate.explain(facts()).verdict.permitted is permitted


def test_an_alias_that_nothing_names_is_judged_as_its_main_domain() -> None:
    assert Gate(peers={"b.example": PeerRule()}).judge(facts()).permitted
    assert not Gate(peers={"b.example": PeerRule(default="deny")}).judge(facts()).permitted


def test_an_entry_that_fits_the_alias_denies_by_default_as_well() -> None:
    gate = Gate(peers={"b.example": PeerRule(), "*.example": PeerRule(default="deny")})
    assert gate.judge(facts(BO)).permitted
    assert gate.judge(facts()).code is Code.DOMAIN_BLOCKED
    opened = Gate(one_policy(permit("p")), {"b.example": PeerRule(), "*.example": PeerRule(default="deny")})
    assert opened.judge(facts()).permitted


def test_rates_of_both_count_and_what_one_refuses_costs_the_other_nothing() -> None:
    main, wild = PeerRule(rate=RateLimit(messages_per_second=3.0)), PeerRule(rate=RateLimit(messages_per_second=1.0))
    gate = Gate(peers={"b.example": main, "*.example": wild})
    assert [gate.judge(facts()).permitted for _ in range(4)] == [True, False, False, False]
    assert [gate.judge(facts(BO)).permitted for _ in range(3)] == [True, True, False]


def test_names_are_no_more_rate_than_one() -> None:
    gate = Gate(peers={"b.example": PeerRule(rate=RateLimit(messages_per_second=2.0))})
    assert [gate.judge(facts(name)).permitted for name in (LAB, BO, LAB, BO)] == [True, True, False, False]


def test_rates_of_types_of_both_count() -> None:
    reads = (TypeRate(types=("read",), limit=RateLimit(messages_per_second=1.0)),)
    gate = Gate(peers={"b.example": PeerRule(rates=reads), "*.example": PeerRule(rates=reads)})
    assert [gate.judge(facts(type_="read")).permitted for _ in range(2)] == [True, False]
    assert all(gate.judge(facts()).permitted for _ in range(9))


def test_a_bar_on_direct_connections_of_either_counts() -> None:
    stub = "runtime://b-lab.example/rt/p2phandler/x"
    gate = Gate(peers={"b.example": PeerRule(), "*.example": PeerRule(p2p=False)})
    assert gate.judge(facts()).permitted
    assert not gate.judge(facts(stub)).permitted


def test_rules_see_the_domain_of_the_sender_and_that_of_the_link() -> None:
    gate = Gate(one_policy(deny("d", check("srcSPDomain", "equals", "b-lab.example"))), {"b.example": PeerRule()})
    assert not gate.judge(facts()).permitted
    assert gate.judge(facts(BO)).permitted


@pytest.mark.parametrize(
    ("gate", "is_barred"),
    [
        (Gate(), False),
        (Gate(peers={"b.example": PeerRule()}), False),
        (Gate(peers={"*": PeerRule()}), False),
        (Gate(peers={"*.example": PeerRule(default="deny")}), True),
        (Gate(peers={"*": PeerRule()}, deny=["b-lab.example"]), True),
        (Gate(peers={"*": PeerRule()}, allow=["b.example"]), True),
        (Gate(one_policy(deny("d", check("linkDomain", "equals", "b-lab.example"))), {"*": PeerRule()}), True),
        (Gate(one_policy(deny("d", check("linkDomain", "equals", "c.example"))), {"*": PeerRule()}), False),
    ],
)
def test_what_is_said_against_a_domain_bars_it_and_silence_does_not(gate: Gate, is_barred: bool) -> None:
    probe = some_facts(hook="peer", to_domain="b-lab.example", link_domain="b-lab.example")
    assert gate.bars(probe) is is_barred
    assert gate.denied == 0


def test_the_message_inside_a_message_is_judged_by_its_own_sender_as_well() -> None:
    gate = Gate(peers={"b.example": PeerRule()}, deny=["b-lab.example"])
    inner = {"type": "create", "from": LAB, "to": "hyperty://a.example/ana", "body": {}}
    assert gate.judge(facts(BO, type_="forward", message=inner | {"from": BO})).permitted
    assert not gate.judge(facts(BO, type_="forward", message=inner)).permitted
