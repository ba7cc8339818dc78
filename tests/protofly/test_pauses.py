"""Pauses between attempts that fail in a row."""

from __future__ import annotations

import pytest

from protofly.pauses import doubling_seconds, jittered, scattered


def test_pauses_double_from_the_second_failure_on_until_the_bound() -> None:
    assert [doubling_seconds(5.0, failures, 60.0) for failures in range(7)] == [5, 5, 10, 20, 40, 60, 60]


def test_pause_stays_bounded_after_any_number_of_failures() -> None:
    assert doubling_seconds(0.25, 10**6, 30.0) == 30.0


def test_first_pause_is_bounded_as_well() -> None:
    assert doubling_seconds(10.0, 1, 3.0) == 3.0


@pytest.mark.parametrize(("draw", "seconds"), [(0.0, 90.0), (0.5, 100.0), (1.0, 110.0)])
def test_jitter_is_a_tenth_to_both_sides(draw: float, seconds: float) -> None:
    assert jittered(100.0, draw=draw) == pytest.approx(seconds)


@pytest.mark.parametrize(("draw", "seconds"), [(0.0, 50.0), (0.5, 100.0), (0.999_999, 150.0)])
def test_pauses_that_are_scattered_are_up_to_half_shorter_or_longer(draw: float, seconds: float) -> None:
    assert scattered(100.0, draw=draw) == pytest.approx(seconds, rel=1e-4)
