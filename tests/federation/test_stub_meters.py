from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.core.stub_meters import StubMeters
from protofly.log_linear import NEGATIVE, ZERO, bucket_of

EXCHANGE = {"messages": 2, "elapsed_us": 170, "fuel": 40_000, "cpu_us": 90, "memory_bytes": 1 << 20}


def test_counts_grow_and_histograms_are_those_since_they_were_taken() -> None:
    meters = StubMeters()
    assert not meters.has_news
    assert set(meters.totals().values()) == {0}
    for _ in range(3):
        meters.exchanged(**EXCHANGE)
    meters.exchanged(**{**EXCHANGE, "elapsed_us": 5, "memory_bytes": 1})
    assert (meters.calls, meters.messages, meters.fuel, meters.memory_bytes) == (4, 8, 160_000, 1 << 20)
    assert meters.take_histograms() == (((bucket_of(5), 1), (bucket_of(170), 3)), ((bucket_of(40_000), 4),))
    assert not meters.has_news
    assert meters.take_histograms() == (None, None)
    assert meters.totals() == {
        "calls": 4,
        "messages": 8,
        "traps": 0,
        "fuel": 160_000,
        "cpu_us": 360,
        "memory_bytes": 1 << 20,
        "log_lines_dropped": 0,
        "paused_us": 0,
    }


@given(value=st.integers(1, 1 << 62))
def test_a_bucket_holds_values_that_differ_by_a_sixteenth_at_most(value: int) -> None:
    exponent, mantissa = divmod(bucket_of(value), 16)
    assert (16 + mantissa) * 2**exponent <= value * 16 < (17 + mantissa) * 2**exponent


def test_nothing_and_less_than_nothing_have_buckets_of_their_own() -> None:
    assert [bucket_of(value) for value in (-5, 0, 1, 2)] == [NEGATIVE, ZERO, 0, 16]
