"""Clocks that go wrong: drifts and steps by hours that say much or little, at midnight, and within an hour."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import pyarrow as pa
import pytest

from pipeline.columns.clock_course import delays_by_hour, offsets_by_hour
from pipeline.columns.clock_findings import ClockFinding, clock_findings, clock_jumps, finding_line
from pipeline.columns.clock_graph import Delay, Offset
from pipeline.columns.clock_tables import HOUR_US, lines_of

A, B, C, D = "a.example", "b.example", "c.example", "d.example"
TWO, THREE = ((A, B),), ((A, B), (A, C), (B, C))
DAY = 24
WANDER_US = 10_000

Ahead = Callable[[float], float]
"""By how many µs a clock is ahead at an hour."""


def set_at(*steps: tuple[float, float]) -> Ahead:
    """A clock that is set at these hours by these µs."""
    return lambda hour: sum(by_us for at, by_us in steps if hour >= at)


def quartz(ppm: float) -> Ahead:
    return lambda hour: ppm * 1e-6 * hour * HOUR_US


def traffic(
    clocks: Mapping[str, Ahead],
    pairs: Collection[tuple[str, str]],
    each_way: int,
    hours: Collection[int],
    seed: int = 7,
) -> list[tuple[int, Delay]]:
    """What is measured of so many messages each way in an hour, which take 5 ms and by chance some 20 ms more."""
    draws = np.random.default_rng(seed)

    def ahead_us(domain: str, hour: float) -> float:
        return clocks.get(domain, quartz(0))(hour)

    rows = []
    for low, high in pairs:
        for hour in (each + part for each in hours for part in draws.uniform(0, 1, each_way)):
            for is_up, (src, dst) in ((True, (low, high)), (False, (high, low))):
                delay_us = 5_000 + draws.exponential(20_000)
                sent_us = hour * HOUR_US + ahead_us(src, hour)
                got_us = hour * HOUR_US + delay_us + ahead_us(dst, hour + delay_us / HOUR_US)
                rows.append((low, high, is_up, int(sent_us), int(got_us - sent_us)))
    names = ("low_domain", "high_domain", "is_up", "sent_us", "delay_us")
    found = delays_by_hour(lines_of(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))))
    return [(hour_us, delay) for hour_us, delay in found if hour_us // HOUR_US in hours]


def reported(delays: list[tuple[int, Delay]], *, from_hour: int = 0) -> list[ClockFinding]:
    found = clock_findings(offsets_by_hour(delays), from_us=from_hour * HOUR_US)
    return found + clock_jumps([one for one in delays if one[0] >= from_hour * HOUR_US], found)


@pytest.mark.parametrize("each_way", [1, 2, 20])
@pytest.mark.parametrize("pairs", [TWO, THREE])
def test_a_clock_that_was_set_is_the_only_finding_however_few_messages_there_are(
    pairs: tuple[tuple[str, str], ...], each_way: int
) -> None:
    for at in (10.03, 10.5):
        for by_us in (2_000_000, -2_000_000, 3_600_000_000):
            [found] = reported(traffic({B: set_at((at, by_us))}, pairs, each_way, range(DAY)))
            assert (found.domain, found.kind) == (B, "step")
            assert abs(found.change_us - by_us) <= found.error_us < 300_000
            assert found.hour_us // HOUR_US in {10, 11, 12}  # by the sender's clock


@pytest.mark.parametrize("each_way", [1, 20])
@pytest.mark.parametrize("pairs", [TWO, THREE])
def test_plain_quartz_drifts_and_nothing_else(pairs: tuple[tuple[str, str], ...], each_way: int) -> None:
    for ppm in (46, -46, 2):
        [found] = reported(traffic({B: quartz(ppm)}, pairs, each_way, range(-DAY, DAY)), from_hour=0)
        assert (found.domain, found.kind, found.hour_us) == (B, "drift", 0)
        assert abs(found.change_us - ppm * 86_400) <= found.error_us < 110_000


@pytest.mark.parametrize("each_way", [1, 3, 20])
def test_a_quartz_of_which_the_first_hour_is_measured_alone_gives_no_finding(each_way: int) -> None:
    assert reported(traffic({B: quartz(46)}, THREE, each_way, [9])) == []


@pytest.mark.parametrize("at", [-0.5, 0.0, 0.5])
def test_a_clock_that_was_set_around_midnight_shows_beside_the_day_before(at: float) -> None:
    delays = traffic({B: set_at((at, 2_000_000))}, THREE, 10, range(-DAY, DAY))
    [found] = reported(delays, from_hour=0)
    assert (found.domain, found.kind, abs(found.change_us - 2_000_000) < found.error_us) == (B, "step", True)


def test_a_step_of_the_day_before_is_not_reported_again() -> None:
    delays = traffic({B: set_at((-5.5, 2_000_000))}, THREE, 10, range(-DAY, DAY))
    assert [one.kind for one in reported(delays, from_hour=-DAY)] == ["step"]
    assert reported(delays, from_hour=0) == []


def test_a_clock_that_drifts_since_the_night_is_reported_by_the_hours_of_the_day() -> None:
    delays = traffic({B: lambda hour: max(0.0, quartz(46)(hour))}, TWO, 20, range(-DAY, DAY))
    [found] = reported(delays, from_hour=0)
    assert (found.kind, abs(found.change_us - 46 * 86_400) <= found.error_us) == ("drift", True)


@pytest.mark.parametrize("pairs", [TWO, THREE])
def test_a_clock_that_was_set_there_and_back_within_an_hour_jumped(pairs: tuple[tuple[str, str], ...]) -> None:
    [found] = reported(traffic({B: set_at((10.5, 2_000_000), (10.8, -2_000_000))}, pairs, 40, range(DAY)))
    assert (found.domain, found.kind, found.hour_us) == (B, "jump", 10 * HOUR_US)
    assert 1_500_000 < found.change_us <= 2_000_000
    against = "the clock of a.example" if pairs == TWO else "the clocks of 2 others"
    assert finding_line(found, "2026-03-02") == (
        "clock of b.example on 2026-03-02: was set in the hour from 10:00, "
        f"by {found.change_us / 1e3:,.0f} ms or more, against {against}; let it follow NTP"
    )


def test_a_clock_that_was_set_in_the_last_hour_jumped_until_the_next_day_shows_by_how_much() -> None:
    delays = traffic({B: set_at((23.5, 2_000_000))}, THREE, 40, range(2 * DAY))
    [today] = reported([one for one in delays if one[0] < DAY * HOUR_US])
    assert (today.domain, today.kind, today.hour_us) == (B, "jump", 23 * HOUR_US)
    [tomorrow] = reported(delays, from_hour=DAY)
    assert (tomorrow.domain, tomorrow.kind, tomorrow.hour_us) == (B, "step", DAY * HOUR_US)


def contradiction(
    by_us: int, pair: tuple[str, str] = (A, B), hour: int = 3, messages: int = 21
) -> list[tuple[int, Delay]]:
    return [(hour * HOUR_US, Delay(*pair, 1_000, messages)), (hour * HOUR_US, Delay(*pair[::-1], -1_000 - by_us, 21))]


@pytest.mark.parametrize(("by_us", "is_found"), [(820_000, False), (820_001, True)])
def test_two_bad_quartz_clocks_contradict_each_other_within_an_hour_and_have_not_jumped(
    by_us: int, *, is_found: bool
) -> None:
    expected = [ClockFinding(B, "jump", 3 * HOUR_US, by_us, 0, f"the clock of {A}")]
    assert clock_jumps(contradiction(by_us), []) == (expected if is_found else [])


@pytest.mark.parametrize(("messages", "is_found"), [(20, False), (21, True)])
def test_a_message_that_was_timed_wrong_by_itself_is_no_jump(messages: int, *, is_found: bool) -> None:
    assert bool(clock_jumps(contradiction(2_000_000, messages=messages), [])) is is_found


@pytest.mark.parametrize(("hour", "is_reported"), [(2, False), (3, True), (4, True), (5, True), (6, False)])
def test_a_jump_that_a_step_explains_is_not_reported_twice(hour: int, *, is_reported: bool) -> None:
    step = ClockFinding(B, "step", hour * HOUR_US, 2_000_000, 0, "x")
    assert (clock_jumps(contradiction(2_000_000), [step]) == []) is is_reported


def test_of_two_clocks_that_contradict_each_other_the_one_with_a_step_has_jumped() -> None:
    step = ClockFinding(A, "step", 4 * HOUR_US, 2_000_000, 0, "x")
    assert clock_jumps(contradiction(2_000_000), [step]) == []


def test_several_clocks_that_jump_in_one_hour_are_separate_findings() -> None:
    pairs = [(A, B), (B, C), (B, D), (A, "e.example")]
    delays = [one for place, pair in enumerate(pairs) for one in contradiction(1_000_000 + place, pair)]
    found = clock_jumps(delays, [])
    assert [(one.domain, one.change_us, one.against) for one in found] == [
        (B, 1_000_002, "the clocks of 3 others"),
        ("e.example", 1_000_003, f"the clock of {A}"),
    ]


def measured_of(courses: Mapping[str, Mapping[int, tuple[int, int]]]) -> dict[int, list[Offset]]:
    """Offsets and errors of domains by hour, against the clock of a.example."""
    found: dict[int, list[Offset]] = {}
    for domain, course in courses.items():
        for hour, (offset_us, error_us) in course.items():
            offset = Offset(domain, offset_us, error_us, 1, 100, 0, reference=A)
            found.setdefault(hour * HOUR_US, []).append(offset)
    return found


def course_of(*ahead_us: int, error_us: int = 0, first: int = 0) -> dict[int, tuple[int, int]]:
    """A clock that is so far ahead in these hours."""
    return {first + place: (one, error_us) for place, one in enumerate(ahead_us)}


def beside_the_reference(course: Mapping[int, tuple[int, int]]) -> list[ClockFinding]:
    """Findings about b.example, whose clock goes so."""
    return clock_findings(measured_of({A: dict.fromkeys(course, (0, 0)), B: course}))


@pytest.mark.parametrize("wrong", [A, C])
@pytest.mark.parametrize("day_us", [-4_000_000, 60_000, 4_000_000])
def test_a_clock_that_drifts_is_found_also_if_it_is_the_reference(wrong: str, day_us: int) -> None:
    courses = {name: course_of(*[0] * DAY) for name in (A, B, C, D)}
    if wrong == A:
        courses |= {name: course_of(*[-day_us * hour // DAY for hour in range(DAY)]) for name in (B, C, D)}
    else:
        courses[wrong] = course_of(*[day_us * hour // DAY for hour in range(DAY)])
    [found] = clock_findings(measured_of(courses))
    assert (found.domain, found.kind, found.against) == (wrong, "drift", "the median of 4 clocks")
    assert abs(found.change_us - day_us) < 30


@pytest.mark.parametrize("wrong", [A, C])
def test_a_clock_that_was_set_is_found_also_if_it_is_the_reference(wrong: str) -> None:
    courses = {name: course_of(*[0] * DAY, error_us=2_000) for name in (A, B, C, D)}
    if wrong == A:
        courses |= {name: course_of(*[0] * 10, *[-700_000] * 14, error_us=2_000) for name in (B, C, D)}
    else:
        courses[wrong] = course_of(*[0] * 10, *[700_000] * 14, error_us=2_000)
    [found] = clock_findings(measured_of(courses))
    assert (found.domain, found.kind, found.hour_us, found.change_us) == (wrong, "step", 10 * HOUR_US, 700_000)
    assert finding_line(found, "2026-03-02") == (
        f"clock of {wrong} on 2026-03-02: was set by 700 ms (± {found.error_us / 1e3:.0f} ms) to be fast before 10:00 "
        "against the median of 4 clocks; let it follow NTP"
    )


def test_clocks_that_follow_each_other_give_no_findings() -> None:
    courses = {A: course_of(*[3_000 * (hour % 3) for hour in range(DAY)]), C: course_of(*[0] * DAY)}
    courses |= {B: course_of(*[1_500 * hour for hour in range(DAY)]), D: course_of(*[0] * DAY)}
    assert clock_findings(measured_of(courses)) == []


def test_of_two_clocks_the_one_that_is_not_the_reference_is_named_and_the_other_one_with_it() -> None:
    [found] = beside_the_reference(course_of(*[100_000 * hour for hour in range(DAY)]))
    assert (found.domain, found.against) == (B, f"the clock of {A}")
    assert "drifts, 2,400 ms a day fast (27.8 ppm" in finding_line(found, "2026-03-02")


def test_clocks_of_different_references_are_not_compared() -> None:
    drifting = measured_of({B: course_of(*[100_000 * hour for hour in range(DAY)])})
    apart = {
        hour_us: [*ones, Offset(D, 0, 0, 1, 1, 1, reference=C), Offset(C, 0, 0, 1, 1, 1, reference=C)]
        for hour_us, ones in drifting.items()
    }
    assert [(one.domain, one.against) for one in clock_findings(apart)] == [(B, f"the clock of {A}")]


@pytest.mark.parametrize(("day_us", "is_found"), [(50_000, False), (-50_000, False), (50_040, True), (-50_040, True)])
def test_a_drift_is_found_beyond_50_ms_a_day(day_us: int, *, is_found: bool) -> None:
    found = beside_the_reference({hour: (day_us * hour // 24, 0) for hour in range(0, 49, 3)})
    assert [(one.kind, one.change_us) for one in found] == ([("drift", day_us)] if is_found else [])


@pytest.mark.parametrize(("hours", "is_found"), [(3, False), (4, True), (5, True)])
def test_a_drift_shows_in_four_measured_hours_or_more(hours: int, *, is_found: bool) -> None:
    assert bool(beside_the_reference(course_of(*[30_000 * hour for hour in range(hours)]))) is is_found


@pytest.mark.parametrize(("error_us", "is_found"), [(35_001, False), (35_000, False), (34_999, True)])
def test_a_drift_is_no_drift_while_errors_of_both_ends_could_explain_it(error_us: int, *, is_found: bool) -> None:
    course = course_of(*[30_000 * hour for hour in range(4)], error_us=error_us)
    assert bool(beside_the_reference(course)) is is_found


def test_a_drift_is_said_of_its_first_hour_with_what_its_ends_leave_open() -> None:
    [found] = beside_the_reference(course_of(*[30_000 * hour for hour in range(4)], error_us=500, first=7))
    assert found == ClockFinding(B, "drift", 7 * HOUR_US, 720_000, 2 * 10_500 * 8, f"the clock of {A}")


def test_a_drift_in_fewer_than_half_of_the_hours_is_not_reported() -> None:
    steps = [hour // 2 * 400_000 for hour in range(12)]
    drift = [2_400_000 + 60_000 * hour for hour in range(11)]
    assert {one.kind for one in beside_the_reference(course_of(*steps, *drift))} == {"step"}


def test_three_clocks_judge_by_their_median_and_no_less_doubt_than_is_usual_among_them() -> None:
    courses = {name: course_of(0, 0, 0, 0, error_us=900) for name in (A, C)}
    courses[B] = course_of(*[30_000 * hour for hour in range(4)], error_us=100)
    [found] = clock_findings(measured_of(courses))
    assert (found.against, found.error_us) == ("the median of 3 clocks", 2 * 10_900 * 8)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("step_us", "is_found"), [(124_000, False), (124_001, True)])
def test_a_clock_was_set_if_it_gained_more_than_100_ms_and_the_error(
    step_us: int, sign: int, *, is_found: bool
) -> None:
    found = beside_the_reference(course_of(*[0] * 8, *[sign * step_us] * 8, error_us=500))
    expected = ClockFinding(B, "step", 8 * HOUR_US, sign * step_us, 24_000, f"the clock of {A}")
    assert found == ([expected] if is_found else [])


def test_a_clock_that_is_wrong_for_one_hour_was_set_twice() -> None:
    course = course_of(*[0] * 10, 2_000_000, *[0] * 13)
    found = [(one.kind, one.hour_us // HOUR_US, round(one.change_us / 1e6)) for one in beside_the_reference(course)]
    assert found == [("step", 10, 2), ("step", 11, -2)]


def test_an_hour_that_says_next_to_nothing_makes_no_finding_and_hides_none() -> None:
    course = course_of(*[0] * 10, *[3_600_000_000] * 14) | {10: (188_000_000, 720_000_000), 15: (0, 10**10)}
    [found] = beside_the_reference(course)
    assert (found.kind, found.hour_us // HOUR_US, found.change_us // 10**6) == ("step", 11, 3_600)


def test_a_clock_that_is_ahead_by_an_hour_after_a_day_was_set_and_drifts_by_nothing() -> None:
    [found] = beside_the_reference({0: (0, 0), 24: (3_600_000_000, 0)})
    assert (found.kind, found.change_us) == ("step", 3_600_000_000)


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


def test_the_error_of_a_finding_is_said_in_milliseconds() -> None:
    assert "± 999 ms" in finding_line(ClockFinding(B, "drift", 0, 864_000, 999_400, "x"), "2026-03-02")
