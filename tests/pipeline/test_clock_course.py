"""Clocks over the hours of a day: the reference, what is known between measured hours, drifts and steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from pipeline.columns.clock_course import ClockFinding, clock_findings, filled, finding_line, offsets_by_hour
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


@pytest.mark.parametrize("wrong", [A, C])
@pytest.mark.parametrize("day_us", [-4_000_000, 60_000, 4_000_000])
def test_a_clock_that_drifts_is_found_also_if_it_is_the_reference(wrong: str, day_us: int) -> None:
    clocks: dict[str, Course] = dict.fromkeys((A, B, C, D), still) | {wrong: lambda hour: day_us * hour // 24}
    [found] = clock_findings(offsets_by_hour(hourly(clocks)))
    assert (found.domain, found.kind, found.against) == (wrong, "drift", "the median of 4 clocks")
    assert abs(found.change_us - day_us) < 30


def test_a_clock_that_was_set_is_found_with_the_hour_and_drifts_no_more_than_before() -> None:
    clocks: dict[str, Course] = dict.fromkeys((A, B, C, D), still) | {B: lambda hour: 700_000 * (hour >= 10)}
    measured = offsets_by_hour(hourly(clocks))
    [found] = clock_findings(measured)
    assert (found.domain, found.kind, found.hour_us, found.change_us) == (B, "step", 10 * HOUR_US, 700_000)
    assert finding_line(found, "2026-03-02") == (
        "clock of b.example on 2026-03-02: was set by 700 ms (± 24 ms) to be fast before 10:00 "
        "against the median of 4 clocks; let it follow NTP"
    )


def test_clocks_that_follow_each_other_give_no_findings() -> None:
    clocks: dict[str, Course] = {A: lambda hour: 3_000 * (hour % 3), B: lambda hour: 1_500 * hour, C: still, D: still}
    assert clock_findings(offsets_by_hour(hourly(clocks))) == []


def test_of_two_clocks_the_one_that_is_not_the_reference_is_named_and_the_other_one_with_it() -> None:
    clocks: dict[str, Course] = {A: lambda hour: -100_000 * hour, B: still}
    [found] = clock_findings(offsets_by_hour(hourly(clocks)))
    assert (found.domain, found.against) == (B, f"the clock of {A}")
    assert "drifts, 2,400 ms a day fast (27.8 ppm" in finding_line(found, "2026-03-02")


@pytest.mark.parametrize(
    ("change_us", "said"),
    [
        (86_400_000_000, "86,400,000 ms a day fast (1,000,000.0 ppm, ± 2 ms)"),
        (-86_400_000_000, "86,400,000 ms a day slow (1,000,000.0 ppm, ± 2 ms)"),
        (864_000, "864 ms a day fast (10.0 ppm, ± 2 ms)"),
    ],
)
def test_a_drift_is_said_by_the_day_and_in_parts_of_a_million(change_us: int, said: str) -> None:
    assert said in finding_line(ClockFinding(B, "drift", 0, change_us, 2_000, "x"), "2026-03-02")


def measured_of(courses: Mapping[str, Mapping[int, tuple[int, int]]]) -> dict[int, list[Offset]]:
    """Offsets and errors of domains by hour, against the clock of a.example."""
    found: dict[int, list[Offset]] = {}
    for domain, course in courses.items():
        for hour, (offset_us, error_us) in course.items():
            offset = Offset(domain, offset_us, error_us, 1, 100, 0, reference=A)
            found.setdefault(hour * HOUR_US, []).append(offset)
    return found


def course_of(*gains_us: int, error_us: int = 500, hours: int = 1, first: int = 0) -> dict[int, tuple[int, int]]:
    """A clock that gains so much from each measured hour to the next."""
    return {first + hours * place: (sum(gains_us[:place]), error_us) for place in range(len(gains_us) + 1)}


def beside_the_reference(course: Mapping[int, tuple[int, int]]) -> list[ClockFinding]:
    """Findings about b.example, whose clock goes so."""
    return clock_findings(measured_of({A: dict.fromkeys(course, (0, 0)), B: course}))


@pytest.mark.parametrize(("gained_us", "is_found"), [(6_250, False), (-6_250, False), (6_251, True), (-6_251, True)])
def test_a_drift_is_found_beyond_50_ms_a_day(gained_us: int, *, is_found: bool) -> None:
    found = beside_the_reference(course_of(*[gained_us] * 3, hours=3))
    assert [(one.kind, one.change_us) for one in found] == ([("drift", gained_us * 8)] if is_found else [])


@pytest.mark.parametrize(("gains", "is_found"), [(2, False), (3, True), (4, True)])
def test_a_drift_shows_in_three_measured_hours_or_more(gains: int, *, is_found: bool) -> None:
    assert bool(beside_the_reference(course_of(*[30_000] * gains))) is is_found


@pytest.mark.parametrize(("error_us", "is_found"), [(45_001, False), (45_000, False), (44_999, True)])
def test_a_drift_is_no_drift_while_errors_of_both_ends_could_explain_it(error_us: int, *, is_found: bool) -> None:
    assert bool(beside_the_reference(course_of(*[30_000] * 3, error_us=error_us))) is is_found


def test_a_drift_is_said_of_its_first_hour_with_the_largest_error_of_its_hours_taken_to_a_day() -> None:
    course = course_of(*[30_000] * 3, error_us=100, first=7)
    [found] = beside_the_reference(course | {10: (90_000, 700)})
    assert found == ClockFinding(B, "drift", 7 * HOUR_US, 720_000, (100 + 700) * 8, f"the clock of {A}")


def test_what_is_found_is_said_against_those_that_were_there_at_first() -> None:
    courses: dict[str, dict[int, tuple[int, int]]] = {name: course_of(0, 0, 0) for name in (A, C)}
    courses |= {B: course_of(30_000, 30_000, 30_000), D: course_of(0)}
    assert [one.against for one in clock_findings(measured_of(courses))] == ["the median of 4 clocks"]


def test_three_clocks_judge_by_their_median_and_no_less_doubt_than_is_usual_among_them() -> None:
    courses = {A: course_of(0, 0, 0, error_us=900), C: course_of(0, 0, 0, error_us=900)}
    [found] = clock_findings(measured_of(courses | {B: course_of(*[30_000] * 3, error_us=100)}))
    assert (found.against, found.error_us) == ("the median of 3 clocks", 1_800 * 8)


@pytest.mark.parametrize(
    ("gains_us", "found"),
    [
        ([0, 0, 0, 100_000 + 1_000], [("drift", 6 * 101_000)]),
        ([0, 0, 0, 100_000 + 1_001], [("step", 101_001)]),
        ([0, 0, 0, 0, 100, 101_020], []),
        ([0, 0, 0, 0, 100, 101_021], [("step", 101_001)]),
        ([0, 0, 0, -101_001], [("step", -101_001)]),
    ],
)
def test_a_clock_was_set_if_it_gained_more_than_100_ms_and_the_error(
    gains_us: list[int], found: list[tuple[str, int]]
) -> None:
    assert [(one.kind, one.change_us) for one in beside_the_reference(course_of(*gains_us))] == found


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


def test_the_error_of_a_finding_is_said_in_milliseconds() -> None:
    assert "± 999 ms" in finding_line(ClockFinding(B, "drift", 0, 864_000, 999_400, "x"), "2026-03-02")
