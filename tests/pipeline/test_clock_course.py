"""Clocks over the hours of a day: the reference, and what is known between measured hours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from pipeline.columns.clock_course import as_seen_from, filled, offsets_by_hour
from pipeline.columns.clock_graph import Delay, Offset
from pipeline.columns.clock_tables import HOUR_US

A, B, C, D = "a.example", "b.example", "c.example", "d.example"
PAIRS = ((A, B), (B, C), (A, C), (C, D))
LINE_US = 9_000

Course = Callable[[int], int]
Pairs = Sequence[tuple[str, str]]


def still(_hour: int) -> int:
    return 0


def hourly(clocks: Mapping[str, Course], *, pairs: Mapping[int, Pairs] | None = None) -> list[tuple[int, Delay]]:
    """What is measured hour by hour between clocks that go so; `pairs` says what there is in some hours."""
    found = []
    for hour in range(24):
        for src, dst in (pairs or {}).get(hour, PAIRS):
            if {src, dst} <= clocks.keys():
                ahead_us = clocks[dst](hour) - clocks[src](hour)
                found.append((hour * HOUR_US, Delay(src, dst, LINE_US + ahead_us, 100)))
                found.append((hour * HOUR_US, Delay(dst, src, LINE_US - ahead_us, 100)))
    return found


def ahead(offsets: list[Offset]) -> dict[str, int]:
    return {one.domain: one.offset_us for one in offsets}


def test_offsets_of_all_hours_have_one_reference_though_it_is_away_in_some() -> None:
    clocks: dict[str, Course] = {A: still, B: lambda _: 50, C: lambda _: 70, D: lambda _: 90}
    away = {3: [(B, C), (C, D)]}
    measured = offsets_by_hour(hourly(clocks, pairs=away))
    assert ahead(measured[2 * HOUR_US]) == {A: 0, B: 50, C: 70, D: 90}
    assert measured[3 * HOUR_US] == []
    assert {one.reference for offsets in measured.values() for one in offsets} == {A}


def test_a_domain_that_is_rarely_there_is_no_reference() -> None:
    rare = {hour: [(B, C), (C, D)] for hour in range(20)}
    measured = offsets_by_hour(hourly(dict.fromkeys((A, B, C, D), still), pairs=rare))
    assert {one.reference for offsets in measured.values() for one in offsets} == {B}
    assert all(measured.values())


def test_domains_that_never_meet_have_references_of_their_own() -> None:
    apart = {hour: [(A, B), (C, D)] for hour in range(24)}
    measured = offsets_by_hour(hourly(dict.fromkeys((A, B, C, D), still), pairs=apart))
    found = {(one.domain, one.reference, one.component) for one in measured[0]}
    assert found == {(A, A, 0), (B, A, 0), (C, C, 1), (D, C, 1)}


def test_between_measured_hours_a_clock_is_somewhere_between_both_and_the_error_says_so() -> None:
    clocks: dict[str, Course] = {A: still, B: lambda hour: 1_000 * hour}
    quiet: dict[int, Pairs] = {hour: [] for hour in (0, 5, 6, 7, 23)}
    course = {
        (one.domain, hour_us // HOUR_US): one
        for hour_us, one in filled(offsets_by_hour(hourly(clocks, pairs=quiet)), 0, 23 * HOUR_US)
    }
    assert len(course) == 2 * 24
    assert [course[B, hour].offset_us for hour in (4, 5, 6, 7, 8)] == [4_000, 5_000, 6_000, 7_000, 8_000]
    assert course[B, 6].error_us == LINE_US + 4_000
    assert course[B, 6].drift_ppb == round(1_000 / 3.6)
    for hour in (0, 23):
        assert course[B, hour].error_us == LINE_US + 720_000


@pytest.mark.parametrize(("hours_with_a", "reference"), [(4, A), (3, B)])
def test_the_reference_was_there_in_four_fifths_of_the_hours(hours_with_a: int, reference: str) -> None:
    delays = [
        (hour * HOUR_US, Delay(*way, 9, 100))
        for hour in range(5)
        for pair in ([(A, B), (B, C)] if hour < hours_with_a else [(B, C)])
        for way in (pair, pair[::-1])
    ]
    assert {one.reference for offsets in offsets_by_hour(delays).values() for one in offsets} == {reference}


def test_before_and_after_measured_hours_a_clock_goes_on_as_it_went_and_the_error_grows() -> None:
    twice_as_fast = Offset(B, 1_000, 200, 1, 100, 0, drift_ppb=1_000_000_000)
    course = dict(filled({5 * HOUR_US: [twice_as_fast]}, 3 * HOUR_US, 7 * HOUR_US))
    assert sorted(course) == [hour * HOUR_US for hour in range(3, 8)]
    for hour in range(3, 8):
        away_us = (hour - 5) * HOUR_US
        found = course[hour * HOUR_US]
        assert (found.offset_us, found.error_us) == (1_000 + away_us, 200 + abs(away_us) // 5_000)
        assert found.messages == (0 if away_us else 100)


@pytest.mark.parametrize("errors_us", [(300, 700), (700, 300)])
def test_between_measured_hours_the_larger_error_counts(errors_us: tuple[int, int]) -> None:
    ends = {
        hour * HOUR_US: [Offset(B, hour * HOUR_US, error_us, 1, 100, 0)]
        for hour, error_us in zip((0, 2), errors_us, strict=True)
    }
    found = dict(filled(ends, 0, 2 * HOUR_US))[HOUR_US]
    assert (found.offset_us, found.error_us, found.messages) == (HOUR_US, 700 + 2 * HOUR_US, 0)
    assert found.drift_ppb == 1_000_000_000


def test_another_day_is_seen_from_the_references_of_this_one() -> None:
    def one(domain: str, ahead_us: int, error_us: int, reference: str) -> Offset:
        return Offset(domain, ahead_us, error_us, 1, 100, 0, reference=reference)

    before = {0: [one(A, 0, 0, A), one(B, 50, 3, A), one(C, 70, 4, A), one(D, 0, 0, D)], HOUR_US: [one(A, 0, 0, A)]}
    seen = dict(as_seen_from(before, {B}))
    assert seen == {0: [one(A, -50, 3, B), one(B, 0, 0, B), one(C, 20, 7, B)], HOUR_US: []}
    assert dict(as_seen_from(before, {A, D})) == before
