from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.core.rates import UNLIMITED, BothBuckets, RateBucket, RateLimit, TypedBuckets, TypeRate, make_bucket
from protofly.errors import SettingsError


def passed(bucket: RateBucket, moments: list[float], size_bytes: int = 100) -> int:
    return sum(bucket.take(size_bytes, now) == 0.0 for now in moments)


def test_burst_passes_and_the_next_one_waits() -> None:
    bucket = RateBucket(RateLimit(messages_per_second=10.0))
    assert passed(bucket, [100.0] * 10) == 10
    assert bucket.take(100, 100.0) == pytest.approx(0.1)
    assert bucket.take(100, 100.11) == 0.0


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_one_message_passes_where_the_burst_has_room_for_no_more(rate: float) -> None:
    bucket = RateBucket(RateLimit(messages_per_second=rate))
    assert passed(bucket, [100.0] * 3) == 1
    assert bucket.take(100, 100.0) == pytest.approx(1.0 / rate)
    assert bucket.take(100, 100.1 + 1.0 / rate) == 0.0


def test_rate_is_kept_over_time() -> None:
    bucket = RateBucket(RateLimit(messages_per_second=10.0))
    assert 109 <= passed(bucket, [tick / 100 for tick in range(1000)]) <= 111  # a burst of ten, then ten per second


def test_bytes_are_counted_beside_messages() -> None:
    bucket = RateBucket(RateLimit(messages_per_second=1000.0, bytes_per_second=1000.0))
    assert passed(bucket, [5.0] * 20, size_bytes=250) == 4
    assert bucket.take(250, 5.0) == pytest.approx(0.25)


def test_a_burst_of_bytes_may_be_used_up_to_the_last() -> None:
    bucket = RateBucket(RateLimit(messages_per_second=1024.0, bytes_per_second=1024.0))
    assert passed(bucket, [5.0] * 3, size_bytes=512) == 2
    assert bucket.take(512, 5.5) == 0.0
    assert bucket.take(1, 5.5) > 0.0


def test_a_burst_of_bytes_that_is_used_up_exactly_passes() -> None:
    bucket = RateBucket(RateLimit(bytes_per_second=1024.0, burst_seconds=1.0 - 1e-9))  # one second with the rounding
    assert passed(bucket, [5.0] * 3, size_bytes=512) == 2


def test_message_larger_than_the_burst_passes_and_is_paid_for() -> None:
    bucket = RateBucket(RateLimit(bytes_per_second=1000.0))
    assert bucket.take(5000, 10.0) == 0.0
    assert bucket.take(1, 10.0) == pytest.approx(4.001)
    assert bucket.take(1, 14.1) == 0.0


@pytest.mark.parametrize("limit", [RateLimit(messages_per_second=1.0), RateLimit(bytes_per_second=100.0)])
def test_who_tries_again_too_early_waits_no_longer_for_it(limit: RateLimit) -> None:
    bucket = RateBucket(limit)
    assert bucket.take(100, 50.0) == 0.0
    for tenths in range(1, 10):
        assert bucket.take(100, 50.0 + tenths / 10) == pytest.approx(1.0 - tenths / 10)
    assert bucket.take(100, 51.0) == 0.0


def test_refused_message_costs_nothing() -> None:
    bucket = RateBucket(RateLimit(messages_per_second=1.0))
    assert bucket.take(1, 0.0) == 0.0
    assert all(bucket.take(1, 0.5) > 0.0 for _ in range(1000))
    assert bucket.take(1, 1.1) == 0.0


def test_clock_set_back_neither_opens_nor_blocks_for_long() -> None:
    bucket = RateBucket(RateLimit(messages_per_second=1.0))
    year = 31_536_000.0
    assert bucket.take(1, 2 * year) == 0.0
    assert bucket.take(1, year) > 0.0
    assert bucket.take(1, year + 1.1) == 0.0


def test_no_limit_needs_no_bucket() -> None:
    assert make_bucket(UNLIMITED) is None
    assert passed(RateBucket(UNLIMITED), [0.0] * 1000) == 1000


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_rate_that_is_none_is_refused(wrong: float) -> None:
    for limit in (
        RateLimit(messages_per_second=wrong),
        RateLimit(bytes_per_second=wrong),
        RateLimit(burst_seconds=wrong),
    ):
        with pytest.raises(SettingsError):
            make_bucket(limit)


@given(
    steps=st.lists(st.tuples(st.floats(-5.0, 5.0), st.integers(0, 5000)), max_size=200),
    messages=st.floats(0.5, 100.0),
    octets=st.floats(10.0, 10_000.0),
)
def test_never_more_than_burst_plus_rate(steps: list[tuple[float, int]], messages: float, octets: float) -> None:
    bucket = RateBucket(RateLimit(messages_per_second=messages, bytes_per_second=octets, burst_seconds=1.0))
    now = forward_seconds = 1000.0
    count = size = largest = 0
    for step, size_bytes in steps:
        now += step
        forward_seconds += max(step, 0.0)
        if bucket.take(size_bytes, now) == 0.0:
            count, size, largest = count + 1, size + size_bytes, max(largest, size_bytes)
    elapsed = forward_seconds - 1000.0
    assert count <= max(messages * 1.0, 1.0) + messages * elapsed + 0.001
    assert size <= octets * (elapsed + 1.0) + largest + 1


TYPED = (
    TypeRate(types=("subscribe", "create"), limit=RateLimit(messages_per_second=2.0)),
    TypeRate(types=("update",), limit=RateLimit(bytes_per_second=100.0)),
)


def test_types_of_one_group_share_its_rate_and_others_only_that_of_all() -> None:
    buckets = TypedBuckets(RateLimit(messages_per_second=5.0), TYPED)
    taken = [buckets.take(1, 0.0, type_) == 0.0 for type_ in ("subscribe", "create", "create", "read", "read", "read")]
    assert taken == [True, True, False, True, True, True]
    assert buckets.take(1, 0.0, "read") == pytest.approx(0.2)
    assert buckets.take(1, 0.0, "subscribe") == pytest.approx(0.5)


def test_what_the_rate_of_all_refuses_is_not_counted_to_its_type() -> None:
    buckets = TypedBuckets(RateLimit(messages_per_second=1.0), TYPED)
    assert buckets.take(100, 0.0, "read") == 0.0
    assert all(buckets.take(100, 0.0, "update") for _ in range(5))
    assert buckets.take(100, 1.0, "update") == 0.0
    assert buckets.take(1, 2.0, "update") == 0.0


def test_what_is_given_back_is_given_back_in_messages_and_in_bytes() -> None:
    bucket = RateBucket(RateLimit(messages_per_second=2.0, bytes_per_second=100.0))
    assert bucket.take(10, 0.0) == 0.0
    for _ in range(50):
        assert bucket.take(90, 0.0) == 0.0
        bucket.give_back(90)
    assert bucket.take(90, 0.0) == 0.0
    assert bucket.take(1, 0.0) == pytest.approx(0.5)  # the first and the last count, and nothing between them


@pytest.mark.parametrize("limit", [RateLimit(messages_per_second=2.0), RateLimit(bytes_per_second=100.0)])
def test_no_more_is_given_back_than_was_taken(limit: RateLimit) -> None:
    bucket = RateBucket(limit)
    assert bucket.take(50, 0.0) == 0.0
    for _ in range(3):
        bucket.give_back(1000)
    assert passed(bucket, [0.0] * 3, size_bytes=50) == 2


@pytest.mark.parametrize(
    ("of_type", "size_bytes"),
    [(RateLimit(messages_per_second=1.0), 1), (RateLimit(bytes_per_second=100.0), 100)],
    ids=["messages", "bytes"],
)
def test_a_type_has_its_whole_rate_after_the_rate_of_all_refused_it(of_type: RateLimit, size_bytes: int) -> None:
    buckets = TypedBuckets(RateLimit(messages_per_second=1.0), [TypeRate(types=("update",), limit=of_type)])
    assert buckets.take(1, 0.0, "read") == 0.0
    for now in (0.5, 0.9):
        assert buckets.take(size_bytes, now, "update") > 0.0
    assert buckets.take(size_bytes, 1.0, "update") == 0.0


def test_large_messages_of_a_type_are_paid_for_in_bytes() -> None:
    buckets = TypedBuckets(UNLIMITED, TYPED)
    assert buckets.take(100, 0.0, "update") == 0.0
    assert buckets.take(50, 0.0, "update") == pytest.approx(0.5)
    assert buckets.take(10_000, 0.0, "read") == 0.0


def test_a_type_has_one_rate() -> None:
    with pytest.raises(SettingsError, match="update"):
        make_bucket(UNLIMITED, [*TYPED, TypeRate(types=("update",), limit=UNLIMITED)])


@given(
    st.lists(
        st.tuples(st.sampled_from(["subscribe", "create", "update", "read"]), st.integers(0, 200), st.floats(0, 0.5)),
        max_size=60,
    )
)
def test_whatever_comes_no_group_and_no_sender_gets_more_than_its_rate(
    messages: list[tuple[str, int, float]],
) -> None:
    """Each rate with its burst of one second, and one message more that a byte bucket may let pass in debt."""
    buckets, now, passed = TypedBuckets(RateLimit(messages_per_second=4.0), TYPED), 0.0, dict.fromkeys("scru", 0)
    for type_, size, pause in messages:
        now += pause
        passed[type_[0]] += buckets.take(size, now, type_) == 0.0
    assert sum(passed.values()) <= 4 * (now + 1) + 1e-6
    assert passed["s"] + passed["c"] <= 2 * (now + 1) + 1e-6


def test_what_one_of_two_buckets_refuses_costs_nothing_in_the_other() -> None:
    first, second = (RateBucket(RateLimit(messages_per_second=rate, bytes_per_second=100.0)) for rate in (2.0, 1.0))
    both = BothBuckets(first, second)
    assert both.take(10, 0.0) == 0.0
    assert all(both.take(10, 0.0) == pytest.approx(1.0) for _ in range(5))
    assert first.take(90, 0.0) == 0.0
    assert both.take(1, 0.0) == pytest.approx(0.5)
    both.give_back(10)
    assert (first.take(10, 0.0), second.take(10, 0.0)) == (0.0, 0.0)


def test_what_a_type_gives_back_it_gives_back_for_all() -> None:
    buckets = TypedBuckets(RateLimit(messages_per_second=1.0), TYPED)
    for type_ in ("update", "read", "create"):
        assert buckets.take(100, 0.0, type_) == 0.0
        assert buckets.take(100, 0.0, type_) > 0.0
        buckets.give_back(100, type_)
    both = BothBuckets(buckets, buckets)
    assert both.take(1, 0.0, "read") > 0.0
    assert both.take(1, 0.0, "update") > 0.0
    assert buckets.take(100, 0.0, "update") == 0.0


@pytest.mark.parametrize(
    "limit", [RateLimit(messages_per_second=1.0, burst_seconds=4), RateLimit(bytes_per_second=100.0, burst_seconds=4)]
)
def test_a_bucket_is_empty_from_the_moment_on_at_which_its_debt_is_paid(limit: RateLimit) -> None:
    bucket = RateBucket(limit)
    assert bucket.take(100, 10.0) == 0.0
    assert [bucket.is_empty(now) for now in (10.0, 10.5, 11.0, 12.0)] == [False, False, True, True]
