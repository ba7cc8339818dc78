"""Limits of rules: what passes at most, whom it is counted for, what strangers can make of it, and what is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.core import limits
from policy.core.engine import compile_canonical
from policy.core.gate import Gate, GateStep, PeerRule
from policy.core.limits import BURST_SECONDS, kept_counts, parse_limit
from policy.core.model import Facts, Hook
from policy.core.quotas import Counted, Quota
from policy.core.rates import RateLimit
from policy.core.text import PolicyText, load_policies
from protofly.codec import build
from protofly.errors import Code, SettingsError
from tests.support.policies import MONDAY_NOON, a_message, some_facts

FILE = """
id = "s"
[limits]
calls = {limit}
[[rules]]
id = "r"
effect = "permit"
condition = {{ actionType = {{ in = ["create", "forward"] }} }}
obligations = {{ limit = "calls" }}
[[rules]]
id = "rest"
effect = "permit"
"""
HOUR = 3600.0


def gate_of(limit: str) -> Gate:
    policies = load_policies([PolicyText("p.toml", FILE.format(limit=limit), "toml")])
    return Gate(compile_canonical(policies.canonical), {"*": PeerRule()})  # as it comes to another process


def asked(sender: str = "ana", recipient: str = "bo", *, hook: Hook = "out", **others: object) -> Facts:
    domains = ("b.example", "a.example") if hook == "in" else ("a.example", "b.example")
    names = [f"hyperty://{domain}/{name}" for domain, name in zip(domains, (sender, recipient), strict=True)]
    return some_facts(a_message(from_=names[0], to=names[1]), hook=hook, **others)


def test_a_rate_lets_pass_what_it_permits_and_says_how_long_to_wait() -> None:
    gate = gate_of('{ by = "all", messages_per_second = 0.5, burst_seconds = 4 }')
    assert [gate.judge(asked()).permitted for _ in range(3)] == [True, True, False]
    verdict = gate.judge(asked())
    assert (verdict.code, verdict.step, verdict.rule_id) == (Code.RATE, GateStep.LIMIT, "s/r")
    assert verdict.details_for_sender == {"retryAfter": pytest.approx(2.0), "rule": "s/r"}
    assert gate.judge(some_facts(a_message(type_="read"))).permitted  # by a rule without a limit
    assert gate.judge(asked(now=MONDAY_NOON + 2.001)).permitted
    assert gate.denied == 2


@pytest.mark.parametrize("by", ["sender", "recipient"])
def test_one_address_in_other_letters_has_no_limit_of_its_own(by: str) -> None:
    gate = gate_of(f'{{ by = "{by}", per = "day", messages = 1 }}')
    messages = [
        a_message(from_=f"{scheme}://A.example/ana", to=f"{scheme}://B.example/bo") for scheme in ("hyperty", "HYPERTY")
    ]
    assert [gate.judge(some_facts(one)).permitted for one in messages] == [True, False]


def test_a_volume_lasts_until_its_period_ends_and_goes_on_in_another_process() -> None:
    limit = '{ per = "hour", messages = 2 }'
    gate = gate_of(limit)
    assert [gate.judge(asked(name)).code for name in ("ana", "eve", "ana")] == [None, None, Code.QUOTA]
    after = gate_of(limit)
    after.quotas.restore(kept_counts(gate.quotas.counted(), MONDAY_NOON))
    assert after.judge(asked(now=MONDAY_NOON + 600)).details_for_sender == {"retryAfter": HOUR - 600, "rule": "s/r"}
    assert after.judge(asked(now=MONDAY_NOON + HOUR)).permitted
    assert kept_counts(gate.quotas.counted(), MONDAY_NOON + HOUR) == {}


@pytest.mark.parametrize(
    ("by", "passed"),
    [
        ("all", [True, False, False, False]),
        ("domain", [True, False, False, True]),
        ("sender", [True, False, True, True]),
        ("recipient", [True, True, False, True]),
    ],
)
def test_a_limit_counts_for_all_together_or_one_by_one(by: str, passed: list[bool]) -> None:
    gate = gate_of(f'{{ by = "{by}", per = "day", messages = 1 }}')
    other = asked("ana", "cid", link_domain="c.example")
    pairs = [asked("ana", "bo"), asked("ana", "cy"), asked("eve", "bo"), other]
    if by == "sender":
        pairs[3] = asked("ida")
    assert [gate.judge(facts).permitted for facts in pairs] == passed
    shown = {(one.key, one.counted.messages) for one in gate.limits if one.counted is not None}
    assert len(shown) == passed.count(True)


def test_names_of_people_are_not_kept_in_the_clear() -> None:
    gate = gate_of('{ by = "sender", per = "day", messages = 5 }')
    gate.judge(asked("ana"))
    [name] = gate.quotas.counted()
    assert name.startswith("limit:calls ")
    assert "ana" not in name
    assert list(gate.quotas) == []  # they are no quotas of peers


def test_what_another_rule_denies_or_a_peer_may_not_send_is_not_counted() -> None:
    text = FILE.format(limit='{ by = "all", per = "day", messages = 1 }')
    text += '[[rules]]\nid = "no"\neffect = "deny"\ncondition = { size = { moreThan = 1000 } }\n'
    rule = PeerRule(rate=RateLimit(messages_per_second=1.0, burst_seconds=2.0))
    gate = Gate(load_policies([PolicyText("p.toml", text, "toml")]), {"*": rule})
    assert gate.judge(asked(size_bytes=2000)).code is Code.POLICY
    assert gate.judge(asked(size_bytes=100)).permitted
    assert gate.judge(asked(size_bytes=100)).step is GateStep.RATE  # before the limit is asked
    assert gate.judge(asked(size_bytes=100, now=MONDAY_NOON + 9)).step is GateStep.LIMIT


def test_asking_and_looking_up_a_domain_count_nothing() -> None:
    gate = gate_of('{ by = "all", per = "day", messages = 1 }')
    for _ in range(3):
        assert gate.foresee(asked()).permitted
        assert gate.explain(asked()).verdict.permitted
        assert gate.judge(some_facts(a_message(), hook="peer")).permitted
    assert gate.judge(asked()).permitted
    assert not gate.judge(asked()).permitted


def test_a_mark_counts_what_is_sent_and_not_that_a_domain_is_looked_up() -> None:
    limit = '{ by = "all", per = "day", messages = 100 }'
    text = FILE.format(limit=limit).replace('{ limit = "calls" }', '{ mark = "calls" }')
    gate = Gate(load_policies([PolicyText("p.toml", text, "toml")]), {"*": PeerRule()})
    hooks: tuple[Hook, ...] = ("peer", "out", "in")
    for hook in hooks:
        gate.judge(asked(hook=hook))
    assert [one.counted.messages for one in gate.limits if one.counted is not None] == [2]


def test_what_a_forwarded_message_carries_counts_as_well() -> None:
    gate = gate_of('{ by = "all", per = "day", messages = 3 }')
    inner = msgspec.json.decode(a_message().raw)
    forward = build(id=1, type="forward", from_="hyperty://a.example/h", to="hyperty://b.example/h", body=inner)
    assert gate.judge(some_facts(forward)).permitted
    assert gate.foresee(some_facts(forward)).permitted  # which counts nothing
    counted = [one.counted.messages for one in gate.limits if one.counted is not None]
    assert counted == [2]  # the one outside, and the one inside
    assert gate.judge(some_facts(forward)).code is Code.QUOTA


@pytest.mark.parametrize("hook", ["out", "in"])
def test_a_flow_is_settled_with_the_limit_of_its_rule(hook: Hook) -> None:
    gate = gate_of('{ by = "sender", per = "day", messages = 2 }')
    gate.judge(asked(hook=hook))
    settled = gate.settle(asked(hook=hook))
    assert settled is not None
    assert settled.bucket is not None
    assert [bool(settled.bucket.take(1, MONDAY_NOON, "create")) for _ in range(2)] == [False, True]
    assert gate.judge(asked(hook=hook)).code is Code.QUOTA
    assert gate.judge(asked("eve", hook=hook)).permitted


def test_a_domain_of_many_names_gets_one_count_for_those_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES_PER_DOMAIN", 10)
    gate = gate_of('{ by = "sender", per = "day", messages = 1 }')
    passed = [gate.judge(asked(f"n{number}", hook="in")).permitted for number in range(30)]
    assert passed == [True] * 11 + [False] * 19
    elsewhere = a_message(from_="hyperty://c.example/eve", to="hyperty://a.example/ana")
    assert gate.judge(some_facts(elsewhere, hook="in")).permitted  # another domain has places of its own
    assert "* b.example" in {one.key for one in gate.limits}


def test_those_who_share_a_count_share_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES_PER_DOMAIN", 1)
    gate = gate_of('{ by = "sender", messages_per_second = 1, burst_seconds = 2 }')
    passed = [gate.judge(asked(f"n{number}", hook="in")).permitted for number in range(6)]
    assert passed == [True] * 3 + [False] * 3
    assert len(list(gate.limits)) == 2


def test_all_places_are_had_by_strangers_before_any_of_them_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES", 6)
    gate = gate_of('{ by = "sender", per = "day", messages = 1 }')
    senders = [f"hyperty://{domain}.example/n{number}" for number in (1, 2, 3) for domain in "bcd"]
    for sender in senders:
        gate.judge(some_facts(a_message(from_=sender, to="hyperty://a.example/ana"), hook="in"))
    assert {one.key for one in gate.limits} == {*senders[:6], "* b.example", "* c.example", "* d.example"}


def test_places_are_given_away_when_their_time_is_over_and_flows_are_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES_PER_DOMAIN", 10)
    gate = gate_of('{ by = "sender", per = "hour", messages = 1 }')
    era = gate.era
    for number in range(12):
        gate.judge(asked(f"n{number}", hook="in"))
    assert gate.era is era
    later = MONDAY_NOON + HOUR
    assert [gate.judge(asked(f"m{number}", hook="in", now=later)).permitted for number in range(10)] == [True] * 10
    assert gate.era is not era
    assert len(gate.quotas.counted()) == 10


def test_our_own_runtimes_have_half_of_all_places_and_strangers_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES", 6)
    gate = gate_of('{ by = "sender", per = "day", messages = 1 }')
    own = [f"hyperty://a.example/n{number}" for number in range(5)]
    for sender in own:
        gate.judge(some_facts(a_message(from_=sender, to="hyperty://a.example/ana"), hook="local"))
    assert {one.key for one in gate.limits} == {*own[:3], "* "}
    strangers = [f"hyperty://{domain}.example/n" for domain in "bcd"]
    for sender in strangers:
        gate.judge(some_facts(a_message(from_=sender, to="hyperty://a.example/ana"), hook="in"))
    assert {one.key for one in gate.limits} == {*own[:3], "* ", *strangers[:2], "*"}


def test_room_for_further_counts_is_made_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES_PER_DOMAIN", 1)
    gate = gate_of('{ by = "sender", messages_per_second = 10, burst_seconds = 0.1 }')
    keys = []
    for number, seconds in enumerate((0.0, 0.0, 0.5, 1.0, 1.5)):
        gate.judge(asked(f"n{number}", hook="in", now=MONDAY_NOON + seconds))
        keys.append({one.key.removeprefix("hyperty://b.example/") for one in gate.limits})
    shared = "* b.example"
    assert keys == [{"n0"}, {"n0", shared}, {"n0", shared}, {"n3"}, {"n3", shared}]


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from("bcd"), st.integers(0, 100)), max_size=200))
def test_no_stranger_takes_more_than_its_places_and_nobody_gets_more_than_the_limit(
    sent: list[tuple[int, str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIMIT_PLACES_PER_DOMAIN", 8)
        patch.setattr(limits, "LIMIT_PLACES", 20)
        gate = gate_of('{ by = "sender", per = "day", messages = 2 }')
        passed: dict[str, int] = {}
        for number, domain, second in sent:
            sender = f"hyperty://{domain}.example/n{number}"
            facts = some_facts(
                a_message(from_=sender, to="hyperty://a.example/ana"), hook="in", now=MONDAY_NOON + second
            )
            passed[sender] = passed.get(sender, 0) + gate.judge(facts).permitted
        assert all(count <= 2 for count in passed.values())
        assert sum(passed.values()) <= 2 * (20 + 4)
        assert len(list(gate.limits)) <= 20 + 4


def test_other_policies_forget_rates_and_keep_volumes() -> None:
    text = '{{ by = "all", per = "day", messages = {} }}'
    gate = gate_of(text.format(1))
    assert gate.judge(asked()).permitted
    raised = load_policies([PolicyText("p.toml", FILE.format(limit=text.format(2)), "toml")])
    gate.replace(raised)
    assert [gate.judge(asked()).permitted for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("limit", "complaint"),
    [
        ("{}", "needs messages_per_second"),
        ('{ by = "everybody", per = "day", messages = 1 }', "everybody"),
        ('{ per = "week", messages = 1 }', "week"),
        ('{ per = "day" }', "together with"),
        ("{ messages = 5 }", "needs messages_per_second"),
        ('{ per = "day", messages = 0 }', "more than 0"),
        ("{ messages_per_second = 0 }", "must be more than 0"),
        ("{ burst_seconds = 3 }", "burst_seconds goes with"),
        ("{ messages_per_second = 1, mesages = 3 }", "mesages"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_with_its_line(limit: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint) as refused:
        gate_of(limit)
    assert refused.value.detail.startswith("p.toml:4:")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('limit = "calls"', 'limit = "cals"', 'p.toml:9: unknown limit "cals"; did you mean "calls"'),
        ('effect = "permit"\ncond', 'effect = "deny"\ncond', "belongs to a rule that permits"),
        ('limit = "calls"', 'limit = "calls", answer = 480', "counts messages that pass"),
    ],
)
def test_a_limit_where_it_cannot_be_is_refused(old: str, new: str, complaint: str) -> None:
    text = FILE.format(limit='{ per = "day", messages = 1 }').replace(old, new)
    with pytest.raises(SettingsError, match=complaint):
        load_policies([PolicyText("p.toml", text, "toml")])


def test_two_limits_of_one_name_are_refused_unless_they_say_the_same() -> None:
    texts = [
        PolicyText(f"{name}.toml", FILE.format(limit=f'{{ per = "day", messages = {most} }}'), "toml")
        for name, most in (("p", 1), ("q", 2))
    ]
    second = texts[1]._replace(text=texts[1].text.replace('id = "s"', 'id = "t"'))
    first = texts[0]._replace(text=texts[0].text.replace('id = "s"', 'id = "s"\ntarget = { hook = "in" }', 1))
    first = first._replace(text=first.text.replace('{ hook = "in" }', '{ hook = { equals = "in" } }'))
    with pytest.raises(SettingsError, match='two limits have the name "calls"'):
        load_policies([first, second])
    same = second._replace(text=second.text.replace("messages = 2", "messages = 1"))
    assert len(load_policies([first, same]).limits) == 1


def test_the_text_of_a_limit_says_all_of_it() -> None:
    limit = parse_limit("calls by=sender messages_per_second=2.5 burst_seconds=4 per=day messages=100")
    assert (limit.name, limit.by) == ("calls", "sender")
    assert limit.rate == RateLimit(messages_per_second=2.5, burst_seconds=4.0)
    assert limit.quota == Quota(per="day", messages=100)


def test_a_limit_of_bytes_alone_is_a_rate_with_the_usual_burst() -> None:
    limit = parse_limit("calls bytes_per_second=100")
    assert (limit.rate, limit.quota) == (RateLimit(bytes_per_second=100.0, burst_seconds=BURST_SECONDS), None)


@given(st.text(max_size=80))
def test_any_other_text_is_refused_and_nothing_else_happens(text: str) -> None:
    try:
        parse_limit(text)
    except SettingsError:
        return
    assert "=" in text


@pytest.mark.parametrize("text", ["", "x", "a/b per=day messages=1", f"{'n' * 65} per=day messages=1", "x per day=1"])
def test_a_limit_is_a_name_and_then_members_with_values(text: str) -> None:
    with pytest.raises(SettingsError, match="limit"):
        parse_limit(text)
    assert parse_limit(f"{'n' * 64} per=day messages=1").name == "n" * 64


def test_a_start_takes_over_no_more_counts_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES", 3)
    counted = {f"limit:x {n} day": Counted(until=MONDAY_NOON + 1, bytes=n) for n in range(9)}
    counted["b.example out day"] = Counted(until=1.0)
    assert set(kept_counts(counted, MONDAY_NOON)) == {
        "limit:x 8 day",
        "limit:x 7 day",
        "limit:x 6 day",
        "b.example out day",
    }


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("all", "limit:calls  day"),
        ("domain", "limit:calls b.example day"),
        ("sender", "limit:calls d7ae546febbebe4700f05e16 day"),
        ("recipient", "limit:calls 687992f3660867a288d55875 day"),
    ],
)
def test_a_count_keeps_its_name_over_restarts(by: str, name: str) -> None:
    gate = gate_of(f'{{ by = "{by}", per = "day", messages = 5 }}')
    gate.judge(asked())
    assert list(gate.quotas.counted()) == [name]


def test_the_count_of_those_who_share_one_is_kept_under_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES_PER_DOMAIN", 1)
    gate = gate_of('{ by = "sender", per = "day", messages = 5 }')
    for name in ("ana", "bo"):
        gate.judge(asked(name, hook="in"))
    assert "limit:calls * b.example day" in gate.quotas.counted()


def test_a_volume_that_is_over_is_kept_while_its_rate_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES_PER_DOMAIN", 1)
    gate = gate_of('{ by = "sender", messages_per_second = 0.0001, burst_seconds = 20000, per = "hour", messages = 5 }')
    gate.judge(asked("ana", hook="in"))
    (name,) = gate.quotas.counted()
    gate.judge(asked("bo", hook="in", now=MONDAY_NOON + HOUR))
    assert name in gate.quotas.counted()


def test_no_room_is_made_of_what_peers_have_used_of_their_quotas() -> None:
    counted = {"b.example out day": Counted(until=MONDAY_NOON - 1, bytes=1)}
    limits.Limits(counted, lambda: None)._sweep(MONDAY_NOON)
    assert set(counted) == {"b.example out day"}


def test_room_is_made_of_volumes_whose_period_is_over_and_of_no_others() -> None:
    counted = {"limit:x 1 day": Counted(until=MONDAY_NOON + 1, bytes=1), "limit:x 2 day": Counted(until=MONDAY_NOON)}
    limits.Limits(counted, lambda: None)._sweep(MONDAY_NOON)
    assert set(counted) == {"limit:x 1 day"}


def test_places_that_were_given_away_are_there_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT_PLACES", 3)
    gate = gate_of('{ by = "sender", per = "hour", messages = 1 }')
    for hours in range(3):
        senders = [f"hyperty://{domain}.example/n{hours}" for domain in "bcd"]
        for sender in senders:
            message = a_message(from_=sender, to="hyperty://a.example/ana")
            gate.judge(some_facts(message, hook="in", now=MONDAY_NOON + hours * HOUR))
        assert {one.key for one in gate.limits} == set(senders)
