from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from policy.core.attributes import ATTRIBUTES
from policy.core.closures import compile_condition, compile_test
from policy.core.model import ALWAYS, AllOf, AnyOf, Condition, Facts, Not, Scalar
from policy.core.patterns import DomainMatcher, glob, parse_domain_pattern
from policy.core.rule_index import find_guard
from protofly.errors import SettingsError
from protofly.limits import POLICY_NESTING_LEVELS
from tests.support.policies import MONDAY_NOON, a_message, some_facts
from tests.support.policies import test as check

MESSAGE = a_message(
    type_="update",
    from_="Hyperty-Runtime://A.example/rt-Ana",
    to="comm://b.example/room-1/changes",
    resource="/rooms/\u00e9tage",
    **{"class": "event", "identity": {"userProfile": {"username": "mallory@evil.example"}}, "auth": True},
)
CLASS_7: dict[str, Any] = {"class": 7}
FACTS = some_facts(
    MESSAGE,
    size_bytes=500,
    via_length=2,
    identity_verified=True,
    identity_user="ana@Idp.example",
    identity_issuer="idp.example",
    session_roles=frozenset({"policy-manager", "member"}),
)
UNPROVED = some_facts(MESSAGE, size_bytes=500)


@pytest.mark.parametrize(
    ("attribute", "operator", "parameters", "expected"),
    [
        ("hook", "equals", ["out"], True),
        ("hook", "in", ["domain-out"], True),
        ("srcSPDomain", "equals", ["A.Example."], True),
        ("dstSPDomain", "equals", ["a.example"], False),
        ("dstSPDomain", "equals", ["*"], True),
        ("linkDomain", "like", ["*.example"], True),
        ("linkDomain", "in", ["x.example", "b.example"], True),
        ("linkDomain", "in", ["x.example", "*.example"], True),
        ("linkDomain", "equals", [], False),
        ("linkDomain", "like", [], False),
        ("srcScheme", "equals", ["hyperty-runtime"], True),
        ("srcScheme", "equals", ["runtime"], True),
        ("dstScheme", "like", ["CO*"], True),
        ("msgFrom", "equals", ["hyperty-runtime://A.EXAMPLE/rt-Ana"], True),
        ("msgFrom", "equals", ["runtime://a.example/rt-ana"], False),
        ("msgFrom", "like", ["hyperty-runtime://A.example/*"], True),
        ("msgTo", "like", ["*/changes"], True),
        ("msgTo", "like", ["comm://B.example/room-1/*"], True),
        ("msgTo", "like", ["comm://b.example/ROOM-1/*"], False),
        ("msgTo", "like", ["COMM://b.example/room-1/*"], True),
        ("msgTo", "like", ["c*://b.example/room-1/*"], True),
        ("msgFrom", "like", ["runtime://a.example/rt-*"], True),
        ("msgTo", "like", ["room-1"], False),
        ("msgTo", "contains", ["room-1"], True),
        ("actionType", "equals", ["UPDATE"], True),
        ("actionType", "in", [], False),
        ("actionType", "equals", [], False),
        ("actionType", "like", [], False),
        ("actionType", "contains", [], False),
        ("msgTo", "like", ["x", "*/changes"], True),
        ("msgTo", "like", ["*/changes", "x"], True),
        ("msgTo", "like", ["x", "y"], False),
        ("msgTo", "contains", ["*"], False),
        ("actionType", "like", ["UPD*"], True),
        ("resource", "like", ["/ROOMS/*"], False),
        ("actionType", "contains", ["dat"], True),
        ("msgType", "equals", ["update"], True),
        ("msgType", "in", ["registration"], False),
        ("msgId", "equals", [1], True),
        ("msgId", "equals", ["1"], True),
        ("class", "equals", ["event"], True),
        ("resource", "like", ["/rooms/*"], True),
        ("resource", "equals", ["/rooms/étage"], True),
        ("resource", "contains", ["oom"], True),
        ("size", "moreThan", [499], True),
        ("size", "lessThan", ["500"], False),
        ("size", "between", ["499 501"], True),
        ("size", "between", ["500 501"], False),
        ("size", "between", ["500 500"], False),
        ("size", "in", [1, 500], True),
        ("size", "in", [], False),
        ("size", "moreThan", [], False),
        ("size", "moreThan", [500], False),
        ("size", "lessThan", [501], True),
        ("size", "moreThan", [1000, 499], True),
        ("size", "between", ["1 500"], False),
        ("size", "between", ["499 500"], False),
        ("viaLength", "equals", [2], True),
        ("identity.verified", "equals", [True], True),
        ("identity.verified", "equals", ["false"], False),
        ("identity.user", "like", ["*@Idp.example"], True),
        ("srcUsername", "equals", ["mallory@evil.example"], False),
        ("srcIDPDomain", "equals", ["idp.example"], True),
        ("srcIDP", "equals", ["idp.example"], True),
        ("session.roles", "contains", ["policy-manager"], True),
        ("session.roles", "contains", ["policy"], False),
        ("session.roles", "like", ["policy-*"], True),
        ("session.roles", "in", ["x", "member"], True),
        ("session.roles", "in", [], False),
        ("session.roles", "in", ["mem*"], False),
        ("session.roles", "equals", ["mem*"], False),
        ("session.roles", "contains", [], False),
        ("session.roles", "like", ["x*", "mem*"], True),
        ("session.roles", "equals", ["member"], True),
        ("auth", "equals", [True], False),  # whatever the message says about itself
        ("auth", "equals", [False], True),
        ("time", "between", ["11:59:59 12:00:01"], True),
        ("time", "between", ["22:00 12:30"], True),
        ("time", "between", ["22:00 06:00"], False),
        ("time", "between", ["06:00 06:00"], False),
        ("time", "moreThan", ["12:00:00"], False),
        ("time", "between", ["12:00 06:00"], False),
        ("time", "between", ["22:00 12:00"], False),
        ("time", "between", ["11:00 06:00"], True),
        ("date", "equals", ["2026-01-05"], True),
        ("date", "between", ["2026-01-04 2026-01-06"], True),
        ("weekday", "equals", ["monday"], True),
        ("weekday", "in", ["Sunday", 1], True),
        ("weekday", "in", [0, 2], False),
        ("weekday", "in", [6, "6"], False),
        ("weekday", "equals", ["1"], True),
        ("weekday", "equals", ["MONDAY"], True),
        ("time", "equals", ["12:00"], True),
        ("time", "equals", ["12:00:01"], False),
        ("time", "lessThan", ["12:00:01"], True),
        ("time", "moreThan", ["11:59:59"], True),
        ("date", "moreThan", ["2026-01-04"], True),
        ("date", "lessThan", ["2026-01-05"], False),
    ],
)
def test_operators(attribute: str, operator: str, parameters: list[Scalar], expected: bool | None) -> None:
    assert compile_test(check(attribute, operator, *parameters))(FACTS) is expected


@pytest.mark.parametrize("attribute", sorted(ATTRIBUTES))
def test_equals_star_fits_whatever_is_there(attribute: str) -> None:
    is_there = ATTRIBUTES[attribute].read(FACTS) is not None
    assert compile_test(check(attribute, "equals", "*"))(FACTS) is (True if is_there else None)


@pytest.mark.parametrize(
    ("attribute", "operator", "parameters"),
    [
        ("colour", "equals", ["red"]),
        ("size", "like", ["5*"]),
        ("size", "equals", ["many"]),
        ("size", "moreThan", [1.5]),
        ("size", "moreThan", [True]),
        ("size", "between", ["1"]),
        ("size", "between", ["2 1"]),
        ("size", "between", ["1 2 3"]),
        ("size", "moreThan", ["*"]),
        ("size", "in", ["*"]),
        ("msgTo", "in", ["*"]),
        ("date", "between", ["2026-01-06 2026-01-04"]),
        ("linkDomain", "contains", ["b.example"]),
        ("linkDomain", "like", ["*b.example"]),
        ("linkDomain", "like", ["b.*"]),
        ("linkDomain", "equals", ["b..example"]),
        ("linkDomain", "equals", ["127.0.0.1"]),
        ("msgTo", "equals", ["comm://b.example/*"]),
        ("msgTo", "equals", ["a b"]),
        ("msgTo", "like", ["1 x://b.example/*"]),
        ("time", "equals", ["24:00"]),
        ("time", "equals", ["12:60"]),
        ("time", "equals", ["12:00:60"]),
        ("date", "equals", ["2026-02-30"]),
        ("resource", "equals", [1.5]),
        ("hook", "equals", [""]),
        ("hook", "equals", ["sideways"]),
        ("time", "equals", ["25:00"]),
        ("time", "equals", ["noon"]),
        ("date", "equals", ["05.01.2026"]),
        ("weekday", "equals", ["caturday"]),
        ("weekday", "equals", [7]),
        ("weekday", "equals", ["x"]),
        ("weekday", "equals", ["01"]),
        ("weekday", "between", ["monday friday"]),
        ("identity.verified", "equals", ["perhaps"]),
        ("resource", "present", ["yes"]),
        ("resource", "present", []),
        ("resource", "equals", [True]),
    ],
)
def test_comparisons_that_make_no_sense_are_refused(attribute: str, operator: str, parameters: list[Scalar]) -> None:
    with pytest.raises(SettingsError):
        compile_test(check(attribute, operator, *parameters))


@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_logic_is_three_valued_and_in_no_order(left: bool | None, right: bool | None) -> None:
    def of(value: bool | None) -> Condition:
        if value is None:
            return check("identity.user", "equals", "ana")  # nobody was verified: missing
        return check("size", "equals", 500 if value else 1)

    conjunction = compile_condition(AllOf(parts=(of(left), of(right))))(UNPROVED)
    longer = compile_condition(AllOf(parts=(of(left), ALWAYS, of(right))))(UNPROVED)
    disjunction = compile_condition(AnyOf(parts=(of(left), of(right))))(UNPROVED)
    assert conjunction is longer
    assert conjunction is (False if False in (left, right) else None if None in (left, right) else True)
    assert disjunction is (True if True in (left, right) else None if None in (left, right) else False)
    assert compile_condition(Not(part=of(left)))(UNPROVED) is (None if left is None else not left)


def test_empty_conditions() -> None:
    assert compile_condition(AllOf())(FACTS) is True
    assert compile_condition(AnyOf(parts=()))(FACTS) is False


def test_bottomless_conditions_are_refused() -> None:
    condition: Condition = check("size", "equals", 1)
    for _ in range(100):
        condition = Not(part=condition)
    with pytest.raises(SettingsError, match="nested"):
        compile_condition(condition)


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        (some_facts(a_message(from_="user-guid://abc"), link_domain=""), {"srcSPDomain", "linkDomain"}),
        (some_facts(a_message(resource=7)), {"resource"}),
        (some_facts(a_message(resource=None)), {"resource"}),
        (some_facts(a_message(**CLASS_7)), {"class"}),
        (some_facts(identity_user="ana@idp.example"), {"identity.user", "srcUsername", "srcIDPDomain", "srcIDP"}),
        (some_facts(identity_verified=True, identity_user="ana"), {"srcIDPDomain", "srcIDP", "identity.issuer"}),
        (some_facts(identity_verified=True, identity_issuer="idp.example"), {"identity.user", "srcUsername"}),
        (some_facts(hook="in", link_domain=""), {"linkDomain", "linkClass"}),
        (some_facts(now=-1.0), {"time", "date", "weekday"}),
        (some_facts(now=1e300), {"time", "date", "weekday"}),
        (some_facts(now=253_402_300_800.0), {"time", "date", "weekday"}),
        (some_facts(now=float("nan")), {"time", "date", "weekday"}),
        (some_facts(a_message(from_="no<address")), {"msgFrom", "srcScheme", "srcSPDomain"}),
    ],
)
def test_what_is_absent_unverified_or_of_a_wrong_type_is_missing(facts: Facts, missing: set[str]) -> None:
    for attribute in missing:
        assert ATTRIBUTES[attribute].read(facts) is None, attribute


def test_on_the_own_bus_it_is_known_that_there_is_no_link() -> None:
    assert compile_test(check("linkDomain", "equals", "b.example"))(some_facts(hook="local")) is False
    assert ATTRIBUTES["linkClass"].read(some_facts(hook="local")) == ""


@pytest.mark.parametrize("now", [0.0, 0.5])
def test_the_first_second_that_a_clock_shows_is_a_thursday_of_1970(now: float) -> None:
    facts = some_facts(now=now)
    first = date(1970, 1, 1).toordinal()
    assert [ATTRIBUTES[name].read(facts) for name in ("time", "date", "weekday")] == [0, first, 4]


@pytest.mark.parametrize(
    ("from_", "to", "expected"),
    [
        ("hyperty://a.example/h", "domain://registry.a.example", ("create", "registration")),
        ("domain://registry.a.example", "hyperty://a.example/h", ("create", "registration")),
        ("hyperty://a.example/h", "domain://msg-node.a.example/sm", ("create", "dataSync")),
        ("domain://msg-node.a.example/sm", "hyperty://a.example/h", ("create", "dataSync")),
        ("hyperty://a.example/h", "domain://msg-node.a.example/address-allocation", ("create", "addressAllocation")),
        ("runtime://a.example/r/idm", "hyperty://b.example/h", ("create", "identityManagement")),
        ("runtime://a.example/r/sm", "runtime://b.example/r/ua", ("create", "p2pConnection")),
        ("hyperty://a.example/h", "hyperty://b.example/h", ("create",)),
    ],
)
def test_message_class_follows_from_the_addresses(from_: str, to: str, expected: tuple[str, ...]) -> None:
    assert ATTRIBUTES["msgType"].read(some_facts(a_message(from_=from_, to=to))) == expected


@pytest.mark.parametrize(("type_", "expected"), [("create", "rpc"), ("update", "event"), ("response", None)])
def test_delivery_class_without_a_name_follows_from_the_type(type_: str, expected: str | None) -> None:
    assert ATTRIBUTES["class"].read(some_facts(a_message(type_=type_))) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("abc", "abc", True),
        ("abc", "abcd", False),
        ("a*", "abc", True),
        ("*c", "abc", True),
        ("a*a", "a", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "acb", False),
        ("a*b*c", "xbc", False),
        ("a*b*c", "abx", False),
        ("a*b*a", "a", False),
        ("ab*c*ba", "aba", False),
        ("ab**ba", "aba", False),
        ("ab**ba", "abba", True),
        ("*", "", True),
        ("**", "x", True),
        ("*ab*ab*", "ab", False),
        ("x*y*", "xzy", True),
    ],
)
def test_globs_are_anchored_at_both_ends(pattern: str, text: str, expected: bool) -> None:
    assert glob(pattern)(text) is expected


def test_domain_matcher_of_nothing_fits_nothing() -> None:
    assert not DomainMatcher(())("b.example")
    assert DomainMatcher((parse_domain_pattern("*"),))("b.example")


def test_a_domain_named_in_full_does_not_name_those_below_it() -> None:
    matcher = DomainMatcher((parse_domain_pattern("b.example"), parse_domain_pattern("*.c.example")))
    domains = ("b.example", "x.b.example", "c.example", "x.c.example", "y.x.c.example")
    assert [matcher(domain) for domain in domains] == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("attribute", "is_filed"),
    [("srcSPDomain", True), ("dstSPDomain", True), ("linkDomain", True), ("srcIDPDomain", False), ("msgTo", False)],
)
def test_rules_are_filed_by_domains_that_are_known_before_the_message_is_looked_at(
    attribute: str, is_filed: bool
) -> None:
    guard = find_guard([check(attribute, "equals", "x.example")])
    assert (guard is not None) is is_filed


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("00:00", 0), ("12:30", 45_000), ("23:59", 86_340), ("07:08:09", 25_689), ("23:59:59", 86_399)],
)
def test_a_time_of_day_is_counted_in_hours_minutes_and_seconds(written: str, seconds: int) -> None:
    holds = compile_condition(check("time", "equals", written))
    midnight = MONDAY_NOON - 43_200
    for off in (-1, 0, 1):
        now = midnight + (seconds + off) % 86_400
        assert holds(some_facts(now=now)) is (off == 0)


def test_noon_is_noon() -> None:
    assert MONDAY_NOON % 86_400 == 12 * 3600


@pytest.mark.parametrize(("verdict", "expected"), [(True, True), (False, False), (None, False)])
def test_auth_is_what_an_earlier_gate_of_this_node_decided(verdict: bool | None, expected: bool) -> None:
    facts = some_facts(MESSAGE, auth=verdict)
    assert compile_test(check("auth", "equals", True))(facts) is expected
    assert compile_test(check("auth", "equals", False))(facts) is not expected


def test_conditions_stand_inside_each_other_up_to_their_number() -> None:
    condition: Condition = check("hook", "equals", "out")
    for _ in range(POLICY_NESTING_LEVELS):
        condition = Not(part=condition)
    compile_condition(condition)
    with pytest.raises(SettingsError, match="nested"):
        compile_condition(Not(part=condition))


@pytest.mark.parametrize("kind", [AllOf, AnyOf])
def test_several_conditions_stand_inside_each_other_up_to_the_same_number(kind: type[AllOf | AnyOf]) -> None:
    condition: Condition = check("hook", "equals", "out")
    for _ in range(POLICY_NESTING_LEVELS):
        condition = kind(parts=(condition, ALWAYS))
    compile_condition(condition)
    with pytest.raises(SettingsError, match="nested"):
        compile_condition(kind(parts=(condition, ALWAYS)))


def test_a_pattern_fits_a_text_of_nothing_but_its_pieces() -> None:
    assert glob("a*b*c")("abc")
    assert not glob("ab*b*bc")("abc")
    assert glob("*b*")("b")
