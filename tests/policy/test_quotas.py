"""Volumes of an hour, a day or a month: what fits, what waits until when, and what survives."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.core.gate import Gate, PeerRule
from policy.core.quotas import Counted, Period, Quota, QuotaBucket, Quotas, QuotaWait, period_of
from policy.core.rates import RateLimit
from protofly.errors import Code
from tests.support.policies import MONDAY_NOON, some_facts

HOUR = 3600.0


@pytest.mark.parametrize(
    ("per", "moment", "begin", "end"),
    [
        ("hour", "2026-01-05T12:34:56", "2026-01-05T12:00:00", "2026-01-05T13:00:00"),
        ("day", "2026-02-28T23:59:59", "2026-02-28T00:00:00", "2026-03-01T00:00:00"),
        ("month", "2026-12-31T10:00:00", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
        ("month", "2028-02-29T10:00:00", "2028-02-01T00:00:00", "2028-03-01T00:00:00"),
    ],
)
def test_periods_are_those_of_utc(per: Period, moment: str, begin: str, end: str) -> None:
    stamps = [dt.datetime.fromisoformat(f"{one}+00:00").timestamp() for one in (moment, begin, end)]
    assert period_of(per, stamps[0]) == (stamps[1], stamps[2])


def test_what_does_not_fit_waits_for_the_end_of_the_period_and_counts_nothing() -> None:
    bucket = QuotaBucket(Quota(per="hour", messages=2, bytes=1000), Counted())
    assert [bucket.take(400, MONDAY_NOON) for _ in range(2)] == [0.0, 0.0]
    wait = bucket.take(1, MONDAY_NOON + 600)
    assert (wait, type(wait)) == (HOUR - 600, QuotaWait)
    assert (bucket.counted.messages, bucket.counted.bytes) == (2, 800)
    assert bucket.take(900, MONDAY_NOON + HOUR) == 0.0
    assert bucket.take(101, MONDAY_NOON + HOUR) == HOUR
    assert bucket.take(100, MONDAY_NOON + HOUR) == 0.0


def test_a_quota_of_bytes_alone_counts_messages_and_bounds_none() -> None:
    bucket = QuotaBucket(Quota(per="day", bytes=100), Counted())
    assert [bucket.take(30, MONDAY_NOON) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.counted.messages == 3
    assert bucket.take(11, MONDAY_NOON) > 0.0


def test_a_clock_that_is_set_back_begins_no_new_period() -> None:
    bucket = QuotaBucket(Quota(per="day", messages=1), Counted())
    assert bucket.take(1, MONDAY_NOON) == 0.0
    assert bucket.take(1, MONDAY_NOON - 30 * 86_400) > 30 * 86_400


def test_a_quota_of_types_lets_others_pass() -> None:
    bucket = QuotaBucket(Quota(per="day", messages=1, types=("read",)), Counted())
    assert [bool(bucket.take(1, MONDAY_NOON, type_)) for type_ in ("read", "read", "create")] == [False, True, False]
    bucket.give_back(1, "create")
    bucket.give_back(1, "read")
    assert bucket.take(1, MONDAY_NOON, "read") == 0.0


def test_what_is_given_back_of_a_quota_of_all_types_is_there_again() -> None:
    bucket = QuotaBucket(Quota(per="day", messages=1, bytes=100), Counted())
    assert bucket.take(100, MONDAY_NOON, "read") == 0.0
    bucket.give_back(100, "read")
    assert (bucket.counted.messages, bucket.counted.bytes) == (0, 0)
    bucket.give_back(100, "read")  # more than was taken
    assert (bucket.counted.messages, bucket.counted.bytes) == (0, 0)
    assert bucket.take(100, MONDAY_NOON, "create") == 0.0


@given(
    st.lists(st.tuples(st.sampled_from(("read", "create")), st.integers(0, 50), st.booleans()), max_size=30),
    st.sampled_from(((), ("read",))),
)
def test_a_quota_counts_what_passed_of_its_types_and_was_not_given_back(
    sent: list[tuple[str, int, bool]], types: tuple[str, ...]
) -> None:
    bucket = QuotaBucket(Quota(per="day", messages=5, bytes=100, types=types), Counted())
    messages = size = 0
    for type_, size_bytes, goes_back in sent:
        counts = not types or type_ in types
        fits = not counts or (messages < 5 and size + size_bytes <= 100)
        assert (bucket.take(size_bytes, MONDAY_NOON, type_) == 0.0) is fits
        if fits and goes_back:
            bucket.give_back(size_bytes, type_)
        elif fits and counts:
            messages, size = messages + 1, size + size_bytes
        assert (bucket.counted.messages, bucket.counted.bytes) == (messages, size)


def test_at_the_end_of_a_period_what_is_refused_waits_for_a_second() -> None:
    bucket = QuotaBucket(Quota(per="hour", messages=0), Counted())
    waits = [bucket.take(1, MONDAY_NOON + HOUR - left) for left in (2.0, 1.0, 0.25)]
    assert waits == [2.0, 1.0, 1.0]


def test_an_entry_that_is_gone_takes_no_other_with_it() -> None:
    quotas = Quotas()
    for name in ("b.example", "b.example.evil", "c.example"):
        quotas.bucket(name, "in", None, (Quota(per="day", messages=1),))
    quotas.forget("b.example")
    assert [name for name, _ in quotas] == ["b.example.evil in day", "c.example in day"]


def gate_of(*quotas: Quota, rate: float | None = None) -> Gate:
    return Gate(peers={"*.example": PeerRule(quotas=quotas, rate=RateLimit(messages_per_second=rate))})


def test_a_gate_refuses_with_the_code_of_what_is_used_up() -> None:
    gate = gate_of(Quota(per="hour", messages=3), rate=2.0)
    codes = [gate.judge(some_facts(now=MONDAY_NOON + second)).code for second in (0, 0, 0, 1, 1)]
    assert codes == [None, None, Code.RATE, None, Code.QUOTA]
    verdict = gate.judge(some_facts(now=MONDAY_NOON + 600))
    assert (verdict.code, verdict.details_for_sender) == (Code.QUOTA, {"retryAfter": HOUR - 600})
    assert msgspec.json.encode(verdict.details_for_sender) == b'{"retryAfter":3000.0}'
    assert gate.judge(some_facts(now=MONDAY_NOON, hook="in")).permitted  # the other direction
    assert gate.judge(some_facts(now=MONDAY_NOON + HOUR)).permitted


def test_names_that_share_an_entry_share_its_quota() -> None:
    gate = gate_of(Quota(per="hour", messages=1))
    assert gate.judge(some_facts(link_domain="x.b.example")).permitted
    assert gate.judge(some_facts(link_domain="y.b.example")).code is Code.QUOTA


def test_a_flow_is_settled_with_its_quota() -> None:
    gate = gate_of(Quota(per="hour", messages=1))
    settled = gate.settle(some_facts())
    assert settled is not None
    assert settled.bucket is not None
    assert [bool(settled.bucket.take(1, MONDAY_NOON)) for _ in range(2)] == [False, True]
    assert gate.judge(some_facts()).code is Code.QUOTA


@pytest.mark.parametrize("most", [1, 2])
def test_counts_survive_other_settings_and_another_process(most: int) -> None:
    gate = gate_of(Quota(per="hour", messages=1))
    assert gate.judge(some_facts()).permitted
    rule = PeerRule(quotas=(Quota(per="hour", messages=most),), p2p=False)
    gate.configure({"*.example": rule}, allow=None, deny=())
    after = Gate(peers={"*.example": rule})
    after.quotas.restore(gate.quotas.counted())
    for one in (gate, after):
        assert [one.judge(some_facts()).permitted for _ in range(2)] == [most == 2, False]
    gate.configure({}, allow=None, deny=())
    assert list(gate.quotas) == []
    assert len(gate.quotas.counted()) == 1


def test_asking_what_a_gate_would_say_counts_nothing() -> None:
    gate = gate_of(Quota(per="hour", messages=1))
    for _ in range(3):
        assert gate.foresee(some_facts()).permitted
        assert gate.explain(some_facts()).verdict.permitted
    assert gate.quotas.counted() == {}
    assert isinstance(gate.quotas, Quotas)
