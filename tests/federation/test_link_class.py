"""The trust class of the far end, as policies see it: at both gates, for links and guests, and again in a replay."""

from __future__ import annotations

import pytest

from federation.links.visitors import greeting, may_talk
from policy.core.gate import Gate, PeerRule
from policy.core.model import Condition, LinkClass
from protofly.records import NO_FACTS
from tests.support.policies import both, deny, one_policy, permit, unrecorded
from tests.support.policies import test as condition
from tests.support.replayed import facts_of
from tests.support.sides import Bus, Pair, chat, inbound, node_of, request, text

STREAM = "5" * 32
PLAIN = condition("linkClass", "equals", "plain")


def gate(link_class: LinkClass, *conditions: Condition) -> Gate:
    """Permits all but what comes from plain domains or goes there."""
    rules = one_policy(deny("plain", both(PLAIN, *conditions)), permit("rest"))
    return Gate(rules, {"*": PeerRule(link_class=link_class)})


@pytest.mark.parametrize(("link_class", "passes"), [("plain", False), ("node", True)])
def test_rule_about_plain_domains_holds_in_both_directions(link_class: LinkClass, passes: bool) -> None:
    pair = Pair(a=Bus("a.example", gate=gate(link_class)))
    pair.carrier().open()
    assert (pair.to_b.send(request(1)) is None) is passes
    pair.to_b.inbound(inbound(text()), STREAM)
    assert len(pair.a.delivered) == int(passes)


@pytest.mark.parametrize("link_class", ["plain", "node"])
def test_what_a_gate_decided_by_the_class_is_decided_alike_from_its_record(link_class: LinkClass) -> None:
    judge = gate(link_class, condition("actionType", "equals", "read"))
    pair = Pair(a=Bus("a.example", gate=judge))
    carrier = pair.carrier()
    carrier.open()
    pair.to_b.send(request(1))
    pair.to_b.send(chat(2))
    carrier.pump()
    carrier.arrive()
    carrier.acknowledge()
    pair.to_b.inbound(inbound(text()), STREAM)
    assert len(pair.a.message_records) == 3
    for record in pair.a.message_records:
        assert (record.facts or NO_FACTS).link_class == link_class
        assert (judge.policies.decide(facts_of(record)).rule_id or None) == record.rule_id


@pytest.mark.parametrize(("link_class", "talks"), [("plain", False), ("node", True)])
def test_gate_peer_sees_the_class_before_a_domain_is_looked_for(link_class: LinkClass, talks: bool) -> None:
    message = greeting(node_of("a.example"), node_of("a.example"))
    assert may_talk(unrecorded(gate(link_class)), "b.example", message) is talks


def test_class_is_that_of_the_entry_that_names_the_domain() -> None:
    judge = Gate(peers={"b.example": PeerRule(link_class="plain"), "*.b.example": PeerRule()})
    classes = [judge.class_of(name) for name in ("b.example", "x.b.example", "c.example", "no domain")]
    assert classes == ["plain", "node", "node", "node"]
