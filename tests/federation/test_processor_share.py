"""A stub that computes all the time gets its share of a core; one that computes now and then never waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.core.processor_share import ProcessorShare, UnaskedRequests
from federation.core.stub_meters import StubMeters
from protofly.limits import STUB_CPU_BURST_SECONDS, STUB_CPU_SHARE, STUB_EXCHANGE_US

SAVED_SECONDS = STUB_CPU_BURST_SECONDS * STUB_CPU_SHARE
MICROSECONDS = 1_000_000


def exchange(processor: ProcessorShare, seconds: float, now: float) -> bool:
    """One exchange that takes so much in all; true when the share is used up."""
    processor.take_us(round(seconds * MICROSECONDS) - STUB_EXCHANGE_US, now)
    return processor.is_used_up(now)


def test_what_was_saved_up_may_be_taken_at_once_and_not_more() -> None:
    processor = ProcessorShare()
    assert not exchange(processor, SAVED_SECONDS, 0.0)
    assert processor.pause_seconds == 0.0
    assert exchange(processor, 1.0, 0.0)
    assert processor.pause_seconds == pytest.approx(1.0 / STUB_CPU_SHARE)
    assert exchange(processor, 1.0, 0.0)
    assert processor.pause_seconds == pytest.approx(2.0 / STUB_CPU_SHARE)


def test_it_counts_as_used_up_until_half_is_there_again() -> None:
    processor = ProcessorShare()
    exchange(processor, 1.0, 0.0)
    exchange(processor, SAVED_SECONDS, 0.0)
    half = (1.0 + SAVED_SECONDS / 2) / STUB_CPU_SHARE
    assert processor.is_used_up(half - 1)
    assert not processor.is_used_up(half)
    assert exchange(processor, 0.5, half - 1)
    assert not exchange(processor, 0.0, half + 2)
    assert not exchange(processor, 0.0, half + 3)


def test_exchanges_that_compute_nothing_are_paid_for_too() -> None:
    processor = ProcessorShare()
    for _ in range(round(SAVED_SECONDS * MICROSECONDS) // STUB_EXCHANGE_US - 1):
        processor.take_us(0, 0.0)
    assert not processor.is_used_up(0.0)
    for _ in range(3):
        processor.take_us(0, 0.0)
    assert processor.is_used_up(0.0)


def test_time_without_exchanges_saves_up_a_minute_and_not_more() -> None:
    processor = ProcessorShare()
    exchange(processor, SAVED_SECONDS, 0.0)
    assert not exchange(processor, SAVED_SECONDS, 1_000_000.0)
    assert exchange(processor, 0.1, 1_000_000.0)


def test_another_share_keeps_what_part_of_it_was_saved_up() -> None:
    processor = ProcessorShare()
    exchange(processor, SAVED_SECONDS / 2, 0.0)
    processor.share = 1.0
    assert not exchange(processor, STUB_CPU_BURST_SECONDS / 2, 0.0)
    assert exchange(processor, 0.1, 0.0)
    assert processor.pause_seconds == pytest.approx(0.1)


def test_requests_that_nothing_asked_for_come_a_hundred_a_second_and_ten_seconds_worth_at_once() -> None:
    unasked = UnaskedRequests()
    unasked.take(1_000, 0.0)
    assert (unasked.is_used_up(0.0), unasked.pause_seconds) == (False, 0.0)
    unasked.take(50, 0.0)
    assert (unasked.is_used_up(0.0), unasked.pause_seconds) == (True, 0.5)
    assert unasked.is_used_up(5.4)
    assert not unasked.is_used_up(5.5)


def test_meters_say_once_what_is_short_and_once_that_there_is_enough_again() -> None:
    meters = StubMeters()
    assert not meters.take(0, 1_000, 0.0)
    assert (meters.pause_seconds, meters.shortage(0.0)) == (0.0, "")
    assert meters.take(0, 100, 0.0)
    assert not meters.take(0, 100, 0.0)
    assert meters.pause_seconds == 2.0
    assert "more than 100 a second beyond what it hears" in meters.shortage(0.0)
    assert not meters.take(32 * MICROSECONDS, 0, 0.0)
    assert meters.pause_seconds > 2.0
    assert "50% of a core" in meters.shortage(0.0)
    assert meters.is_used_up(0.0)
    assert meters.take(0, 0, 3600.0)
    assert not meters.take(0, 0, 3600.0)
    assert (meters.is_used_up(3600.0), meters.shortage(3600.0)) == (False, "")


@given(
    share=st.floats(0.01, 1.0),
    exchanges=st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 100.0)), max_size=60),
)
def test_whatever_it_does_it_takes_its_share_what_it_saved_and_one_exchange(
    share: float, exchanges: list[tuple[float, float]]
) -> None:
    processor, now, taken = ProcessorShare(), 0.0, 0.0
    processor.share = share
    for seconds, idle_seconds in exchanges:
        now += processor.pause_seconds + idle_seconds
        assert taken <= share * (now + STUB_CPU_BURST_SECONDS) + 0.001
        processor.take_us(round(seconds * MICROSECONDS), now)
        taken += seconds + STUB_EXCHANGE_US / MICROSECONDS
