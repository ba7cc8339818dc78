"""Histograms of times: many at once count as each by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.histograms import BOUNDS_SECONDS, BOUNDS_US, Histogram

TIMES = st.one_of(
    st.integers(-5, 60_000_000), st.sampled_from(BOUNDS_US), st.sampled_from([one + 1 for one in BOUNDS_US])
)


@given(times=st.lists(TIMES, max_size=60))
def test_many_times_count_as_each_by_itself(times: list[int]) -> None:
    one_by_one, at_once = Histogram(), Histogram()
    for time_us in times:
        one_by_one.observe(time_us)
    at_once.observe_all(list(times))
    assert (at_once.counts, at_once.sum_us) == (one_by_one.counts, one_by_one.sum_us)
    assert at_once.cumulative()[-1] == ("+Inf", float(len(times)))


@pytest.mark.parametrize("count", [1, 15, 16, 40])
def test_times_above_all_bounds_count_in_the_last_place(count: int) -> None:
    histogram = Histogram()
    histogram.observe_all([BOUNDS_US[-1] + 1] * count)
    assert histogram.counts == [0] * len(BOUNDS_US) + [count]


def test_a_bound_belongs_to_the_times_up_to_it() -> None:
    histogram = Histogram()
    histogram.observe_all([BOUNDS_US[0]] * 20 + [BOUNDS_US[0] + 1])
    assert histogram.counts[:2] == [20, 1]


LOW, MIDDLE, HIGH = BOUNDS_SECONDS[0], BOUNDS_SECONDS[2], BOUNDS_SECONDS[3]


@pytest.mark.parametrize(
    ("counts", "share", "seconds"),
    [
        ({}, 0.5, None),
        ({3: 10}, 0.0, MIDDLE),
        ({3: 10}, 0.5, (MIDDLE + HIGH) / 2),
        ({3: 10}, 1.0, HIGH),
        ({0: 4}, 0.5, LOW / 2),
        ({0: 4, 3: 4}, 0.25, LOW / 2),
        ({0: 4, 3: 4}, 0.5, LOW),
        ({0: 4, 3: 4}, 0.75, (MIDDLE + HIGH) / 2),
        ({0: 4, 3: 4}, 1.0, HIGH),
        ({len(BOUNDS_US): 4}, 0.5, BOUNDS_SECONDS[-1]),
    ],
)
def test_a_quantile_lies_in_the_bounds_that_have_that_share_below(
    counts: dict[int, int], share: float, seconds: float | None
) -> None:
    histogram = Histogram()
    for place, count in counts.items():
        histogram.counts[place] = count
    assert histogram.quantile(share) == (None if seconds is None else pytest.approx(seconds))


def test_the_bounds_are_those_that_dashboards_ask_for() -> None:
    histogram = Histogram()
    assert histogram.cumulative() == [
        (bound, 0.0)
        for bound in (
            *("0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1"),
            *("0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "+Inf"),
        )
    ]
    assert [bound / 1e6 for bound in BOUNDS_US] == list(BOUNDS_SECONDS)


@pytest.mark.parametrize("count", [1, 16])
def test_a_sum_is_that_of_all_times_and_of_what_was_taken_over(count: int) -> None:
    one, other = Histogram(), Histogram()
    assert one.sum_us == 0
    one.observe_all([3] * count)
    other.observe_all([700, 900])
    one.add(other)
    assert (one.sum_us, other.sum_us) == (3 * count + 1600, 1600)
    assert one.counts[:3] == [count, 2, 0]
    assert one.cumulative()[:2] == [("0.0005", count), ("0.001", count + 2.0)]
