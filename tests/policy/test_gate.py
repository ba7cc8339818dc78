from __future__ import annotations

from typing import Any

import pytest

from policy.core import gate as gate_module
from policy.core.engine import FAULT, AllOf, CompiledPolicies, Effect, Hook, Mode, compile_policies
from policy.core.gate import Gate, GateStep, PeerRule
from policy.core.rates import UNLIMITED, RateLimit, TypeRate
from policy.core.temporary import make_gate
from protofly.errors import Code, SettingsError
from protofly.message import Message
from tests.support.policies import a_message, deny, one_policy, permit, some_facts
from tests.support.policies import test as check

NAMED = {"b.example": PeerRule()}
NOTHING = compile_policies([])
MISSING = check("resource", "equals", "/x")
BETWEEN_DOMAINS: tuple[Hook, ...] = ("peer", "out", "in")


@pytest.mark.parametrize("hook", BETWEEN_DOMAINS)
def test_silent_policies_leave_it_to_the_peers_entry(hook: Hook) -> None:
    facts = some_facts(hook=hook, link_domain="b.example")
    assert Gate(NOTHING, NAMED).judge(facts).permitted
    closed = Gate(NOTHING, {"b.example": PeerRule(default="deny")}).judge(facts)
    assert (closed.permitted, closed.code, closed.step) == (False, Code.DOMAIN_BLOCKED, GateStep.DEFAULT)
    unnamed = Gate(NOTHING, {}).judge(facts)
    assert (unnamed.permitted, unnamed.code, unnamed.rule_id) == (False, Code.DOMAIN_BLOCKED, "")


def test_own_bus_is_open_unless_a_rule_denies() -> None:
    facts = some_facts(hook="local")
    assert Gate().judge(facts).permitted
    verdict = Gate(one_policy(deny("d"))).judge(facts)
    assert (verdict.permitted, verdict.code, verdict.rule_id) == (False, Code.POLICY, "s/d")


def test_rule_can_open_for_a_domain_that_nobody_named() -> None:
    verdict = Gate(one_policy(permit("p")), {}).judge(some_facts())
    assert verdict.permitted
    assert (verdict.rule_id, verdict.step, verdict.revision) == (
        "s/p",
        GateStep.POLICY,
        one_policy(permit("p")).revision,
    )


@pytest.mark.parametrize(
    ("gate", "is_by_rule"),
    [
        (Gate(one_policy(permit("p"))), True),
        (Gate(one_policy(deny("d")), NAMED), False),
        (Gate(NOTHING, NAMED), False),
        (Gate(NOTHING), False),
    ],
)
def test_only_what_passes_because_of_a_rule_is_permitted_by_a_rule(gate: Gate, *, is_by_rule: bool) -> None:
    assert gate.judge(some_facts()).is_permitted_by_rule is is_by_rule


def test_denial_names_rule_and_revision() -> None:
    policies = one_policy(deny("d"))
    gate = Gate(policies, NAMED)
    for _ in range(2):
        verdict = gate.judge(some_facts())
        assert (verdict.permitted, verdict.code, verdict.rule_id) == (False, Code.POLICY, "s/d")
        assert verdict.revision == policies.revision
        assert verdict.decision.effect is Effect.DENY
    assert gate.denied == 2


@pytest.mark.parametrize("hook", BETWEEN_DOMAINS)
def test_indeterminate_permit_is_no_permit_between_domains(hook: Hook) -> None:
    verdict = Gate(one_policy(permit("p", MISSING)), NAMED).judge(some_facts(hook=hook, link_domain="b.example"))
    assert (verdict.permitted, verdict.code) == (False, Code.POLICY)
    assert verdict.decision.effect is Effect.INDETERMINATE


def test_indeterminate_permit_is_silence_on_the_own_bus() -> None:
    assert Gate(one_policy(permit("p", MISSING))).judge(some_facts(hook="local")).permitted


def test_the_same_indeterminate_permit_is_judged_at_each_gate_anew() -> None:
    gate = Gate(one_policy(permit("p", MISSING)), NAMED)
    hooks: tuple[Hook, ...] = ("local", "out", "local", "out")
    assert [gate.judge(some_facts(hook=hook)).permitted for hook in hooks] == [True, False, True, False]


def test_silence_is_judged_by_the_entry_of_each_domain_anew() -> None:
    gate = Gate(one_policy(deny("d", check("size", "moreThan", 10_000))), NAMED)
    domains = ("b.example", "c.example", "b.example", "c.example")
    verdicts = [gate.judge(some_facts(a_message(to=f"hyperty://{domain}/h"))) for domain in domains]
    assert [verdict.permitted for verdict in verdicts] == [True, False, True, False]
    assert {verdict.step for verdict in verdicts} == {GateStep.DEFAULT}


@pytest.mark.parametrize("hook", [*BETWEEN_DOMAINS, "local"])
def test_indeterminate_deny_is_a_denial_everywhere(hook: Hook) -> None:
    assert not Gate(one_policy(deny("d", MISSING)), NAMED).judge(some_facts(hook=hook)).permitted


def test_exception_in_a_rule_is_a_counted_denial() -> None:
    gate = Gate(one_policy(permit("p", check("size", "moreThan", 1))), NAMED)
    verdict = gate.judge(some_facts(size_bytes="no number"))
    assert (verdict.permitted, verdict.code, verdict.decision) == (False, Code.POLICY, FAULT)
    assert gate.policies.faults == 1
    assert gate.judge(some_facts()).permitted


def test_report_mode_is_shown_and_changes_nothing() -> None:
    gate = Gate(one_policy(deny("d", mode=Mode.REPORT)), NAMED)
    verdict = gate.judge(some_facts())
    assert verdict.permitted
    assert [(outcome.rule_id, outcome.effect) for outcome in verdict.decision.shadow] == [("s/d", Effect.DENY)]
    assert Gate(one_policy(deny("d", mode=Mode.REPORT), permit("p")), {}).judge(some_facts()).permitted
    assert not Gate(one_policy(permit("p", mode=Mode.REPORT)), {}).judge(some_facts()).permitted


def test_rates_come_first_and_each_direction_has_its_own() -> None:
    rule = PeerRule(rate=RateLimit(messages_per_second=2.0))
    gate = Gate(one_policy(deny("d", check("size", "moreThan", 10_000))), {"b.example": rule})
    outward, inward = some_facts(), some_facts(a_message(from_="hyperty://b.example/h"), hook="in")
    assert [gate.judge(outward).permitted for _ in range(3)] == [True, True, False]
    assert [gate.judge(inward).permitted for _ in range(3)] == [True, True, False]
    assert gate.denied == 2
    refused = gate.judge(some_facts(size_bytes=20_000))
    assert gate.denied == 3
    assert (refused.code, refused.step, refused.rule_id) == (Code.RATE, GateStep.RATE, "")
    assert refused.retry_after_seconds == pytest.approx(0.5)
    assert gate.judge(some_facts(now=outward.now + 0.6)).permitted


def test_a_type_of_message_has_its_own_rate_in_each_direction() -> None:
    rates = (TypeRate(types=("subscribe",), limit=RateLimit(messages_per_second=1.0)),)
    gate = Gate(NOTHING, {"b.example": PeerRule(rates=rates)})
    wishes = [
        some_facts(a_message(type_="subscribe")),
        some_facts(a_message(type_="subscribe"), hook="in", link_domain="b.example"),
    ]
    for wish in wishes:
        assert gate.judge(wish).permitted
        refused = gate.judge(wish)
        assert (refused.code, refused.step) == (Code.RATE, GateStep.RATE)
        assert refused.retry_after_seconds == pytest.approx(1.0)
    assert all(gate.judge(some_facts(a_message(type_="update"))).permitted for _ in range(50))


@pytest.mark.parametrize("hook", ["in", "out"])
@pytest.mark.parametrize(
    ("from_", "to", "passes"),
    [
        ("runtime://a.example/rt/p2prequester/1", "hyperty://b.example/h", False),
        ("hyperty://a.example/h", "runtime://b.example/rt/p2phandler/6f1", False),
        ("hyperty://a.example/h", "runtime://b.example/p2phandler/6f1/status", False),
        ("hyperty://a.example/h", "runtime://b.example/p2phandlers/6f1", True),
        ("hyperty://a.example/p2phandler", "hyperty://b.example/h", True),
    ],
)
def test_where_direct_connections_are_barred_nobody_sets_one_up_whatever_rules_say(
    hook: Hook, from_: str, to: str, passes: bool
) -> None:
    facts = some_facts(a_message(from_=from_, to=to), hook=hook, link_domain="b.example")
    assert Gate(NOTHING, NAMED).judge(facts).permitted
    for policies in (NOTHING, one_policy(permit("p"))):
        verdict = Gate(policies, {"b.example": PeerRule(p2p=False)}).judge(facts)
        assert verdict.permitted is passes
        assert passes or (verdict.code, verdict.step) == (Code.POLICY, GateStep.LIST)


def test_a_bar_on_direct_connections_keeps_nobody_from_finding_the_domain() -> None:
    gate = Gate(NOTHING, {"b.example": PeerRule(p2p=False)})
    message = a_message(to="runtime://b.example/rt/p2phandler/6f1")
    assert gate.judge(some_facts(message, hook="peer")).permitted
    carried = a_message(type_="forward", message={"type": "create", "from": "hyperty://a.example/h", "to": message.to})
    assert gate.judge(some_facts(carried)).code is Code.POLICY


def test_rates_do_not_slow_down_looking_for_a_domain_or_the_own_bus() -> None:
    gate = Gate(NOTHING, {"b.example": PeerRule(rate=RateLimit(messages_per_second=1.0))})
    assert all(gate.judge(some_facts(hook="peer")).permitted for _ in range(10))
    assert all(gate.judge(some_facts(hook="local")).permitted for _ in range(10))


def test_subdomains_of_one_entry_share_its_rate() -> None:
    gate = Gate(NOTHING, {"*.b.example": PeerRule(rate=RateLimit(messages_per_second=5.0))})
    passed = [gate.judge(some_facts(a_message(to=f"hyperty://n{n}.b.example/h"))).permitted for n in range(50)]
    assert sum(passed) == 5


def test_a_message_between_two_domains_of_one_entry_counts_once() -> None:
    gate = Gate(NOTHING, {"*.b.example": PeerRule(rate=RateLimit(messages_per_second=4.0))})
    message = a_message(from_="hyperty://one.b.example/h", to="hyperty://a.example/h")
    facts = some_facts(message, hook="in", link_domain="two.b.example")
    assert [gate.judge(facts).permitted for _ in range(5)] == [True] * 4 + [False]


@pytest.mark.parametrize(
    ("peers", "passes"),
    [
        ({"b.example": PeerRule()}, True),
        ({"b.example": PeerRule(default="deny")}, False),
        ({"c.example": PeerRule()}, False),
        ({"b.example": PeerRule(), "c.example": PeerRule(default="deny")}, False),
        ({"b.example": PeerRule(default="deny"), "c.example": PeerRule()}, False),
        ({"b.example": PeerRule(), "c.example": PeerRule()}, True),
    ],
)
def test_over_a_link_the_entry_of_the_sender_counts_besides_that_of_the_link(
    peers: dict[str, PeerRule], passes: bool
) -> None:
    message = a_message(from_="hyperty://c.example/h", to="hyperty://a.example/h")
    assert Gate(NOTHING, peers).judge(some_facts(message, hook="in", link_domain="b.example")).permitted is passes


def test_a_sender_without_a_domain_is_judged_by_the_link_alone() -> None:
    gate = Gate(NOTHING, NAMED, allow=["b.example"])
    message = a_message(from_="user-guid://abc", to="hyperty://a.example/h")
    assert gate.judge(some_facts(message, hook="in", link_domain="b.example")).permitted
    assert not gate.judge(some_facts(message, hook="in", link_domain="c.example")).permitted


def test_domains_that_nobody_named_share_the_rate_of_the_entry_for_all() -> None:
    gate = Gate(NOTHING, {"*": PeerRule(rate=RateLimit(messages_per_second=5.0))})
    passed = [gate.judge(some_facts(a_message(to=f"hyperty://n{n}.example/h"))).permitted for n in range(50)]
    assert sum(passed) == 5


def test_rates_go_on_when_policies_are_replaced() -> None:
    gate = Gate(NOTHING, {"b.example": PeerRule(rate=RateLimit(messages_per_second=1.0))})
    assert gate.judge(some_facts()).permitted
    gate.replace(one_policy(permit("p")))
    assert gate.judge(some_facts()).code is Code.RATE


@pytest.mark.parametrize(
    ("peers", "is_spent"),
    [
        ({"b.example": PeerRule(rate=RateLimit(messages_per_second=1.0))}, True),
        ({"b.example": PeerRule(rate=RateLimit(messages_per_second=2.0))}, False),
        ({"*": PeerRule(rate=RateLimit(messages_per_second=1.0))}, False),
    ],
)
def test_rates_go_on_for_entries_that_stay_as_they_are(peers: dict[str, PeerRule], *, is_spent: bool) -> None:
    gate = Gate(NOTHING, {"b.example": PeerRule(rate=RateLimit(messages_per_second=1.0))})
    assert gate.judge(some_facts()).permitted
    gate.configure(peers, allow=None, deny=[])
    assert (gate.judge(some_facts()).code is Code.RATE) is is_spent


def test_replaced_policies_count_from_the_next_message() -> None:
    gate = Gate(one_policy(deny("d")), NAMED)
    assert not gate.judge(some_facts()).permitted
    gate.replace(one_policy(permit("p")))
    assert gate.judge(some_facts()).rule_id == "s/p"
    assert gate.judge(some_facts()).revision == gate.policies.revision


@pytest.mark.parametrize(
    ("allow", "denied", "domain", "passes"),
    [
        (None, [], "b.example", True),
        ([], [], "b.example", False),
        (["b.example"], [], "b.example", True),
        (["*.b.example"], [], "b.example", False),
        (["*.b.example"], [], "x.b.example", True),
        (["*"], ["b.example"], "b.example", False),
        (["b.example"], ["*"], "b.example", True),
        (["x.b.example"], ["*.b.example"], "x.b.example", True),
        (["x.b.example"], ["*.b.example"], "y.b.example", False),
        (["*.b.example"], ["*.x.b.example"], "z.x.b.example", False),
        (["b.example"], ["b.example"], "b.example", False),
        (None, ["*.b.example"], "xb.example", True),
    ],
)
def test_most_specific_name_of_the_lists_decides(
    allow: list[str] | None, denied: list[str], domain: str, passes: bool
) -> None:
    gate = Gate(NOTHING, {"*": PeerRule()}, allow=allow, deny=denied)
    verdict = gate.judge(some_facts(a_message(to=f"hyperty://{domain}/h")))
    assert verdict.permitted is passes
    assert verdict.code is (None if passes else Code.DOMAIN_BLOCKED)


def test_lists_stand_above_rules() -> None:
    gate = Gate(one_policy(permit("p")), NAMED, deny=["b.example"])
    assert gate.judge(some_facts()).step is GateStep.LIST


def test_most_specific_entry_counts() -> None:
    peers = {"*": PeerRule(default="deny"), "*.example": PeerRule(), "b.example": PeerRule(default="deny")}
    gate = Gate(NOTHING, peers)
    assert not gate.judge(some_facts()).permitted
    assert gate.judge(some_facts(a_message(to="hyperty://c.example/h"))).permitted
    assert not gate.judge(some_facts(a_message(to="hyperty://c.test/h"))).permitted


@pytest.mark.parametrize(
    ("peers", "words"),
    [
        ({"b..example": PeerRule()}, "not a domain"),
        ({"*b.example": PeerRule()}, "whole labels"),
        ({"b.example": PeerRule(), "B.example": PeerRule()}, "has two entries"),
        ({"b.example": PeerRule(rate=RateLimit(messages_per_second=0.0))}, r'peer "b.example": messages_per_second'),
    ],
)
def test_entries_that_make_no_sense_are_refused(peers: dict[str, PeerRule], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Gate(NOTHING, peers)


def test_explanation_shows_every_rule_and_uses_nothing_up() -> None:
    policies: CompiledPolicies = one_policy(deny("d", MISSING), permit("p", AllOf()))
    gate = Gate(policies, {"*.example": PeerRule(rate=RateLimit(messages_per_second=1.0))})
    for _ in range(5):
        explanation = gate.explain(some_facts())
        assert explanation.verdict.rule_id == "s/d"
        assert (explanation.peer_entry, explanation.is_listed) == ("*.example", True)
        assert [(rule.rule_id, rule.applies) for rule in explanation.rules] == [("s/d", None), ("s/p", True)]
    assert gate.denied == 0
    assert gate.judge(some_facts()).code is Code.POLICY


def test_a_closed_own_bus_lets_pass_only_what_a_rule_permits() -> None:
    rules = one_policy(permit("reads", check("actionType", "equals", "read")))
    gate = Gate(rules, {"b.example": PeerRule()}, own_bus="deny")
    read, create = a_message(type_="read"), a_message()
    assert gate.judge(some_facts(read, hook="local")).rule_id == "s/reads"
    verdict = gate.judge(some_facts(create, hook="local"))
    assert (verdict.permitted, verdict.code, verdict.step, verdict.details_for_sender) == (
        False,
        Code.POLICY,
        GateStep.DEFAULT,
        None,
    )
    assert gate.judge(some_facts(create)).permitted  # between domains the entry decides
    gate.configure({}, allow=None, deny=())
    assert gate.judge(some_facts(create, hook="local")).permitted


def test_an_indeterminate_permit_opens_no_closed_bus() -> None:
    rules = one_policy(permit("p", check("resource", "equals", "/x")))
    for own_bus, passes in (("permit", True), ("deny", False)):
        gate = Gate(rules, own_bus="deny" if own_bus == "deny" else "permit")
        assert gate.judge(some_facts(hook="local")).permitted is passes


def test_the_own_bus_is_judged_as_soon_as_anything_can_be_said_about_it() -> None:
    assert not Gate().judges_own_bus
    assert Gate(own_bus="deny").judges_own_bus
    assert Gate(one_policy(permit("p"))).judges_own_bus
    gate = Gate()
    gate.set_temporary([make_gate("*", "*", "permit")])
    assert gate.judges_own_bus


def test_many_names_do_not_make_a_gate_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "GATE_KNOWN_DOMAINS", 3)
    gate = Gate(one_policy(permit("p", check("hook", "equals", "out"))), {})
    facts = some_facts()
    sizes = []
    for name in ("a", "b", "b", "c", "d", "e"):
        assert gate.judge(some_facts(facts.message, to_domain=name, link_domain=f"{name}.example")).permitted
        sizes.append(len(gate._lanes._lanes))
    assert sizes == [1, 2, 2, 3, 1, 2]  # when there are too many, all are looked up anew


@pytest.mark.parametrize("attribute", ["msgFrom", "resource"])
def test_a_rule_for_any_text_applies_beside_one_for_another_text(attribute: str) -> None:
    rules = deny("one", check(attribute, "equals", "/other")), deny("any", check(attribute, "equals", "*"))
    verdict = Gate(one_policy(*rules), NAMED).judge(some_facts(a_message(resource="/x")))
    assert (verdict.permitted, verdict.rule_id) == (False, "s/any")


@pytest.mark.parametrize("hook", BETWEEN_DOMAINS)
def test_who_is_cut_off_does_not_pass_whatever_entries_lists_and_rules_say(hook: Hook) -> None:
    gate = Gate(one_policy(permit("p")), NAMED, allow=["b.example", "*.b.example"])
    facts, below, other = (
        some_facts(hook=hook, link_domain=one, from_domain=one, to_domain=one)
        for one in ("b.example", "x.b.example", "xb.example.b.example.c.example")
    )
    assert gate.judge(facts).permitted
    gate.cut_off(["b.example"])
    assert [gate.judge(one).code for one in (facts, below)] == [Code.DOMAIN_BLOCKED, None]
    gate.replace(one_policy(permit("another")))
    assert gate.judge(facts).code is Code.DOMAIN_BLOCKED
    gate.cut_off(["*.b.example"])
    assert [gate.judge(one).code for one in (facts, below)] == [None, Code.DOMAIN_BLOCKED]
    assert gate.judge(other).code is Code.DOMAIN_BLOCKED  # the list says so, not the cut
    gate.cut_off([])
    assert [gate.judge(one).permitted for one in (facts, below)] == [True, True]


def test_what_comes_over_anothers_link_in_the_name_of_who_is_cut_off_does_not_pass() -> None:
    gate = Gate(NOTHING, {"c.example": PeerRule(), "b.example": PeerRule()})
    facts = some_facts(hook="in", link_domain="c.example", from_domain="b.example")
    assert gate.judge(facts).permitted
    gate.cut_off(["b.example"])
    assert gate.judge(facts).code is Code.DOMAIN_BLOCKED


def forwarded(levels: int = 1) -> Message:
    """A message inside so many others."""
    inner: dict[str, object] = {"type": "create", "from": "hyperty://a.example/h", "to": "hyperty://b.example/h-bo"}
    for _ in range(levels - 1):
        inner = {**inner, "type": "forward", "body": {"message": inner}}
    return a_message(type_="forward", message=inner)


def test_who_forwards_a_message_has_not_proved_who_wrote_it() -> None:
    proved: dict[str, Any] = {"identity_verified": True, "identity_user": "ana", "identity_issuer": "idp.example"}
    for attribute, value in (("identity.user", "ana"), ("identity.issuer", "idp.example")):
        gate = Gate(one_policy(permit("p", check(attribute, "equals", value))), {})
        assert gate.judge(some_facts(**proved)).permitted
        assert not gate.judge(some_facts(forwarded(), **proved)).permitted
        assert not gate.foresee(some_facts(forwarded(), **proved)).permitted
    gate = Gate(one_policy(permit("p", check("identity.verified", "equals", True))), {})
    assert gate.judge(some_facts(**proved)).permitted
    assert not gate.judge(some_facts(forwarded(), **proved)).permitted


def test_forward_that_is_denied_itself_is_foreseen_so_whatever_it_carries() -> None:
    gate = Gate(one_policy(deny("d", check("actionType", "equals", "forward"))), NAMED)
    for judge in (gate.foresee, gate.judge):
        verdict = judge(some_facts(forwarded()))
        assert (verdict.permitted, verdict.rule_id) == (False, "s/d")
    all_denied = Gate(one_policy(deny("d", check("actionType", "equals", "forward")), deny("c")), NAMED)
    assert all_denied.foresee(some_facts(forwarded())).rule_id == all_denied.judge(some_facts(forwarded())).rule_id
    assert all_denied.foresee(some_facts(forwarded())).rule_id == "s/d"


@pytest.mark.parametrize("levels", [1, 2])
def test_a_forward_passes_if_what_it_carries_passes_and_is_counted_once(levels: int) -> None:
    facts = some_facts(forwarded(levels))
    gate = Gate(one_policy(deny("d", check("actionType", "equals", "create"))), NAMED)
    assert (gate.judge(facts).rule_id, gate.denied) == ("s/d", 1)
    assert gate.judge(some_facts(a_message(type_="read"))).permitted
    assert Gate(NOTHING, NAMED).judge(facts).permitted


def test_only_what_passes_without_a_trial_and_carries_nothing_is_settled_for_its_flow() -> None:
    def settles(gate: Gate, message: Message) -> bool:
        return gate.settle(some_facts(message)) is not None

    assert settles(Gate(NOTHING, NAMED), a_message())
    assert not settles(Gate(NOTHING, NAMED), forwarded())
    assert not settles(Gate(one_policy(deny("d")), NAMED), a_message())
    assert not settles(Gate(one_policy(deny("d", mode=Mode.REPORT)), NAMED), a_message())
    assert not settles(Gate(NOTHING, {}), a_message())


def test_only_an_entry_of_its_own_names_a_domain() -> None:
    gate = Gate(NOTHING, {"b.example": PeerRule(), "*": PeerRule()})
    assert [gate.names(domain) for domain in ("b.example", "*", "c.example")] == [True, False, False]


@pytest.mark.parametrize(
    ("gate", "is_barred"),
    [
        (Gate(NOTHING, {}), False),
        (Gate(NOTHING, NAMED), False),
        (Gate(NOTHING, {"*": PeerRule(default="deny")}), True),
        (Gate(NOTHING, {"b.example": PeerRule(default="deny")}), True),
        (Gate(NOTHING, {}, deny=["b.example"]), True),
        (Gate(one_policy(deny("d")), {}), True),
        (Gate(one_policy(deny("d")), NAMED), True),
    ],
)
def test_a_domain_is_barred_by_what_is_said_against_it_and_not_by_silence(gate: Gate, is_barred: bool) -> None:
    assert gate.bars(some_facts(hook="peer")) is is_barred
    assert gate.denied == 0


def test_many_names_over_one_link_do_not_make_a_gate_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "GATE_KNOWN_DOMAINS", 3)
    gate = Gate(NOTHING, NAMED)
    message = a_message(to="hyperty://a.example/h")
    sizes = []
    for name in ("c", "d", "d", "e", "f", "g"):
        gate.judge(some_facts(message, hook="in", link_domain="b.example", from_domain=f"{name}.example"))
        sizes.append(len(gate._lanes._of_senders))
    assert sizes == [1, 2, 2, 3, 1, 2]


@pytest.mark.parametrize(("link", "sender"), [(True, False), (False, True), (True, True), (False, False)])
def test_over_a_link_the_rates_and_bars_of_link_and_sender_count_both(*, link: bool, sender: bool) -> None:
    def peer(is_limited: bool) -> PeerRule:
        rate = RateLimit(messages_per_second=2.0) if is_limited else UNLIMITED
        return PeerRule(rate=rate, p2p=not is_limited)

    gate = Gate(NOTHING, {"b.example": peer(link), "c.example": peer(sender)})
    message = a_message(from_="hyperty://c.example/h", to="hyperty://a.example/h")
    facts = some_facts(message, hook="in", link_domain="b.example")
    assert [gate.judge(facts).permitted for _ in range(3)] == [True, True, not (link or sender)]
    direct = a_message(from_="hyperty://c.example/h", to="runtime://a.example/rt/p2phandler/6f1")
    assert gate.foresee(some_facts(direct, hook="in", link_domain="b.example")).permitted is not (link or sender)
