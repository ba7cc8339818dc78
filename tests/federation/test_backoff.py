"""How long domains are left alone, and how long answers are believed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.core import backoff
from federation.core.backoff import Backoff

MIDDLE = 0.5


def test_pause_doubles_and_stops_at_ten_minutes_while_messages_wait() -> None:
    pauses = [backoff.backoff_seconds(failures, draw=MIDDLE) for failures in range(1, 11)]
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_pause_grows_to_a_day_when_nothing_waits() -> None:
    assert backoff.backoff_seconds(9, draw=MIDDLE, is_waiting=False) == 1280
    assert backoff.backoff_seconds(10_000, draw=MIDDLE, is_waiting=False) == 86_400


def test_failures_in_a_row_are_counted_and_the_time_is_kept() -> None:
    state = Backoff()
    for now in (100.0, 200.0):
        state = state.after_failure(now=now, draw=MIDDLE, is_waiting=True)
    assert state == Backoff(2, 210.0)
    assert not state.is_over(209.9)
    assert state.is_over(210.0)


@settings(deadline=None)
@given(st.integers(min_value=0), st.floats(min_value=0, max_value=1, exclude_max=True), st.booleans())
def test_pause_is_always_positive_and_bounded(failures: int, draw: float, is_waiting: bool) -> None:
    assert 4.4 < backoff.backoff_seconds(failures, draw=draw, is_waiting=is_waiting) <= 86_400


@pytest.mark.parametrize(
    ("max_age", "life"), [(None, 86_400), (0, 300), (1, 300), (3600, 3600), (10**9, 172_800), (-5, 300)]
)
def test_life_of_documents_follows_the_server_within_bounds(max_age: float | None, life: float) -> None:
    assert backoff.document_life_seconds(max_age, draw=MIDDLE) == pytest.approx(life)


def test_life_without_headers_varies_by_ten_percent() -> None:
    assert backoff.document_life_seconds(None, draw=0.0) == pytest.approx(77_760)
    assert backoff.document_life_seconds(None, draw=0.999_999) == pytest.approx(95_040, rel=1e-4)


@pytest.mark.parametrize(("soa", "life"), [(None, 3600), (1, 60), (900, 900), (10**9, 3600)])
def test_negative_answers_live_an_hour_or_as_long_as_the_zone_says(soa: float | None, life: float) -> None:
    assert backoff.negative_life_seconds(soa, was_recently_valid=False, draw=MIDDLE) == pytest.approx(life)


def test_error_of_a_domain_that_worked_lately_is_believed_for_two_minutes() -> None:
    assert backoff.negative_life_seconds(None, was_recently_valid=True, draw=MIDDLE) == 120


@pytest.mark.parametrize(("ttl", "clamped"), [(0, 60), (300, 300), (2**31, 86_400)])
def test_dns_times_are_clamped(ttl: float, clamped: float) -> None:
    assert backoff.clamped_ttl_seconds(ttl) == clamped


def test_refresh_is_due_from_80_percent_of_the_life() -> None:
    assert backoff.refresh_at(1000.0, 100.0) == 1080.0


@pytest.mark.parametrize("draw", [0.0, 0.999])
def test_the_longest_pause_is_not_spread(draw: float) -> None:
    assert backoff.backoff_seconds(100, draw=draw) == 600
    assert backoff.backoff_seconds(100, draw=draw, is_waiting=False) == 86_400
