"""Which clocks go wrong, out of the offsets of all of them, hour by hour: those that drift, and those that were set.

An hour says between what a clock was, not where: the fewer messages, the wider. So no two hours are compared. The hours
of a clock are cut into stretches through which one straight line goes, the longest first; their slopes are drifts, and
where two of them meet at different heights the clock was set. All that the hours allow counts: a line is known much
better by many wide hours than by any of them, and an hour that says little stands in nobody's way. Lines are exact: one
goes through intervals `low ≤ a + b·t ≤ high` if and only if the largest slope that two of them demand is at most the
smallest one that two of them allow.

Offsets are relative to one clock, which may be the one that goes wrong. With three clocks or more, what the median of
them gains is taken off first: its slope, and those of its jumps that are larger than the errors of their hours (smaller
ones would add up to a random walk). With two clocks nobody can say which of them it is; then it is said of the one that
is not the reference.

A clock that is set and set back within an hour leaves no such trace; but no line fits that hour.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, median_low
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.columns.clock_graph import Delay, Offset
from pipeline.columns.clock_tables import HOUR_US

DRIFT_DAY_US: Final = 50_000
"""A clock that follows others (NTP) does not go wrong by as much in a day."""
STEP_US: Final = 100_000
WANDER_US: Final = 10_000
"""So far from a straight line clocks go that nobody has set: temperatures change, and NTP pulls."""
_MOST_SLOPE: Final = 1e-3
"""No clock that runs goes wrong by so much; one that seems to is set again and again."""
_LEAST_HOURS: Final = 4
"""Of a stretch whose drift is reported."""
_LEAST_OF_LINE: Final = 3
"""Between two hours there is always a line."""
_CLOCKS_THAT_JUDGE: Final = 3
_DAY_HOURS: Final = 24
_MOST_DRIFT_HOUR_US: Final = 720_000
"""What two plain quartz clocks, one fast and one slow, part in an hour whose messages do not show how fast they go."""

_LEAST_EACH_WAY: Final = 21
"""Messages of an hour with a jump: of so many no single one decides, which may be timed wrong by itself."""

Figures = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClockFinding:
    """A clock that drifts, or was set, on a day.

    Attributes:
        domain: Whose clock.
        kind: `drift`, `step`, or `jump`: it was set within an hour, perhaps there and back.
        hour_us: The hour in which a drift was first seen or a jump happened, or the one before which a clock was set.
        change_us: What it gains in a day, or what it was set forward by; of a jump at least, either way.
        error_us: How far the truth may be away from that.
        against: What it is compared with, for people.
    """

    domain: str
    kind: str
    hour_us: int
    change_us: int
    error_us: int
    against: str


def clock_findings(measured: Mapping[int, Sequence[Offset]], *, from_us: int = 0) -> list[ClockFinding]:
    """Clocks that drift by more than `DRIFT_DAY_US` a day or were set by more than `STEP_US`, beyond doubt.

    Args:
        measured: Offsets by hour. Those of one reference are compared with each other.
        from_us: Hours before are only what later ones are compared with.
    """
    found = []
    for course in sorted(_against_others(_courses(measured)), key=lambda one: one.domain):
        stretches = _stretches(course)
        found += [*_drift(course, stretches, from_us), *_steps(course, stretches, from_us)]
    return found


def clock_jumps(delays: Iterable[tuple[int, Delay]], known: Collection[ClockFinding]) -> list[ClockFinding]:
    """Clocks that were set within an hour: its times contradict each other, and drifts do not explain it.

    Args:
        delays: As for `offsets_by_hour`.
        known: Their steps are not reported again.
    """
    of_hour = defaultdict[int, dict[tuple[str, str], Delay]](dict)
    for hour_us, delay in delays:
        of_hour[hour_us][delay.src_domain, delay.dst_domain] = delay
    reported = {
        (one.domain, one.hour_us - hours * HOUR_US) for one in known if one.kind == "step" for hours in (0, 1, 2)
    }
    found = []
    for hour_us, pairs in sorted(of_hour.items()):
        contradictions = {
            pair: -there.low_us - pairs[pair[::-1]].low_us
            for pair, there in sorted(pairs.items())
            if pair[0] < pair[1] and pair[::-1] in pairs and _are_enough(there, pairs[pair[::-1]])
        }
        left = {pair: by_us for pair, by_us in contradictions.items() if by_us > STEP_US + _MOST_DRIFT_HOUR_US}
        while left:
            counts = Counter(domain for pair in left for domain in pair)
            domain = max(sorted(counts), key=lambda one: (counts[one], (one, hour_us) in reported, one))
            beside = [*({*pair} - {domain} for pair in left if domain in pair)]
            change_us = max(by_us for pair, by_us in left.items() if domain in pair)
            left = {pair: by_us for pair, by_us in left.items() if domain not in pair}
            if (domain, hour_us) not in reported:
                against = f"the clocks of {len(beside)} others" if len(beside) > 1 else f"the clock of {min(beside[0])}"
                found.append(ClockFinding(domain, "jump", hour_us, change_us, 0, against))
    return found


def finding_line(finding: ClockFinding, day: str) -> str:
    """The finding for people."""
    ahead = "fast" if finding.change_us > 0 else "slow"
    change_ms, error_ms = abs(finding.change_us) / 1e3, finding.error_us / 1e3
    at = f"{finding.hour_us // HOUR_US % _DAY_HOURS:02d}:00"
    if finding.kind == "drift":
        parts = abs(finding.change_us) / (_DAY_HOURS * HOUR_US) * 1e6
        what = f"drifts, {change_ms:,.0f} ms a day {ahead} ({parts:,.1f} ppm, ± {error_ms:,.0f} ms)"
    elif finding.kind == "jump":
        what = f"was set in the hour from {at}, by {change_ms:,.0f} ms or more,"
    else:
        what = f"was set by {change_ms:,.0f} ms (± {error_ms:,.0f} ms) to be {ahead} before {at}"
    return f"clock of {finding.domain} on {day}: {what} against {finding.against}; let it follow NTP"


def _are_enough(there: Delay, back: Delay) -> bool:
    return min(there.messages, back.messages) >= _LEAST_EACH_WAY


@dataclass(frozen=True)
class _Course:
    """A clock in the hours in which it was measured, relative to `against`."""

    domain: str
    reference: str
    against: str
    hour_us: NDArray[np.int64]
    ahead_us: Figures
    error_us: Figures


class _Stretch(NamedTuple):
    """Hours from one place of a course to another, which is included, and the line through them."""

    first: int
    last: int
    slope: float
    doubt: float

    @property
    def hours(self) -> int:
        return self.last + 1 - self.first

    def at(self, time_us: float, course: _Course) -> tuple[float, float]:
        """Where the line is at a time, and how far from there it may be."""
        of = slice(self.first, self.last + 1)
        since_us = time_us - course.hour_us[of]
        middle = course.ahead_us[of] + self.slope * since_us
        far = course.error_us[of] + self.doubt * np.abs(since_us)
        low, high = float((middle - far).max()), float((middle + far).min())
        return (low + high) / 2, (high - low) / 2


def _courses(measured: Mapping[int, Sequence[Offset]]) -> list[_Course]:
    """The course of each clock against its reference."""
    rows = defaultdict[tuple[str, str], list[tuple[int, int, int]]](list)
    for hour_us in sorted(measured):
        for one in measured[hour_us]:
            rows[one.reference, one.domain].append((hour_us, one.offset_us, one.error_us))
    courses = []
    for (reference, domain), row in rows.items():
        hour, ahead, error = (np.array(each) for each in zip(*row, strict=True))
        against = f"the clock of {reference}"
        courses.append(_Course(domain, reference, against, hour, ahead.astype(float), error + float(WANDER_US)))
    return courses


def _against_others(courses: list[_Course]) -> Iterator[_Course]:
    """Each course against the median of those of its reference, if there are enough."""
    by_reference = defaultdict[str, list[_Course]](list)
    for course in courses:
        by_reference[course.reference].append(course)
    for reference, group in by_reference.items():
        if len(group) < _CLOCKS_THAT_JUDGE:
            yield from (course for course in group if course.domain != reference)
            continue
        slope = median(max(_stretches(course), key=lambda one: one.hours).slope for course in group)
        steps, errors = _of_the_median(group, slope)
        hours = np.array(sorted(steps), np.int64)
        moved = np.cumsum([steps[hour_us] for hour_us in hours.tolist()])
        for one in group:
            place = np.searchsorted(hours, one.hour_us)
            ahead_us = one.ahead_us - slope * (one.hour_us - hours[0]) - moved[place]
            error_us = np.maximum(one.error_us, [errors[hour_us] for hour_us in one.hour_us.tolist()])
            against = f"the median of {len(group)} clocks"
            yield _Course(one.domain, reference, against, one.hour_us, ahead_us, error_us)


def _of_the_median(group: Sequence[_Course], slope: float) -> tuple[dict[int, float], dict[int, float]]:
    """By hour what the median of the clocks was set by since the hour before, and the error that is usual in it."""
    by_hour = defaultdict[int, dict[str, tuple[float, float]]](dict)
    for one in group:
        for hour_us, ahead_us, error_us in zip(one.hour_us.tolist(), one.ahead_us, one.error_us, strict=True):
            by_hour[hour_us][one.domain] = float(ahead_us) - slope * hour_us, float(error_us)
    hours = sorted(by_hour)
    steps = dict.fromkeys(hours, 0.0)
    for before_us, hour_us in pairwise(hours):
        before, after = by_hour[before_us], by_hour[hour_us]
        both = before.keys() & after.keys()
        if len(both) >= _CLOCKS_THAT_JUDGE:
            gained_us = median(after[domain][0] - before[domain][0] for domain in both)
            doubt_us = median_low(after[domain][1] + before[domain][1] for domain in both)
            steps[hour_us] = gained_us if abs(gained_us) > doubt_us else 0.0
    return steps, {hour_us: median_low(error_us for _, error_us in by_hour[hour_us].values()) for hour_us in hours}


def _drift(course: _Course, stretches: Sequence[_Stretch], from_us: int) -> list[ClockFinding]:
    """By the longest stretch that ends in the hours in question, if it has half of these.

    Where hours say little, a short line goes over a small step as well.
    """
    recent = [one for one in stretches if course.hour_us[one.last] >= from_us]
    longest = max(recent, key=lambda one: one.hours, default=None)
    if longest is None or longest.hours < _LEAST_HOURS or abs(longest.slope) <= longest.doubt:
        return []
    in_question = course.hour_us >= from_us
    if 2 * in_question[longest.first : longest.last + 1].sum() < in_question.sum():
        return []
    change_us, error_us = (round(each * _DAY_HOURS * HOUR_US) for each in (longest.slope, longest.doubt))
    if abs(change_us) <= DRIFT_DAY_US:
        return []
    hours = course.hour_us[longest.first : longest.last + 1]
    first_us = int(hours[hours >= from_us][0])
    return [ClockFinding(course.domain, "drift", first_us, change_us, error_us, course.against)]


def _steps(course: _Course, stretches: Sequence[_Stretch], from_us: int) -> Iterator[ClockFinding]:
    for before, after in pairwise(stretches):
        last_us, hour_us = int(course.hour_us[before.last]), int(course.hour_us[after.first])
        was, is_now = (each.at((last_us + hour_us) / 2, course) for each in _as_fast(before, after))
        step_us, error_us = round(is_now[0] - was[0]), round(is_now[1] + was[1])
        if hour_us >= from_us and abs(step_us) > STEP_US + error_us:
            yield ClockFinding(course.domain, "step", hour_us, step_us, error_us, course.against)


def _as_fast(one: _Stretch, other: _Stretch) -> tuple[_Stretch, _Stretch]:
    """Both with the slopes that both may have: who sets a clock does not change how fast it goes."""
    least = max(one.slope - one.doubt, other.slope - other.doubt)
    most = min(one.slope + one.doubt, other.slope + other.doubt)
    if least > most:
        return one, other
    slope, doubt = (least + most) / 2, (most - least) / 2
    return one._replace(slope=slope, doubt=doubt), other._replace(slope=slope, doubt=doubt)


def _stretches(course: _Course) -> list[_Stretch]:
    """All hours of a course, in stretches."""
    return _cut(course, _Lines(course), 0, len(course.hour_us) - 1, None)


class _Lines:
    """The slopes of the lines through the hours of a course from any one to any other one.

    `least[d][p]` and `most[d][p]` are those from place p to place p + d; no line goes there if the first is larger.
    """

    def __init__(self, course: _Course) -> None:
        time, ahead, error = course.hour_us.astype(float), course.ahead_us, course.error_us
        any_slope = np.full(len(time), _MOST_SLOPE)
        self.least, self.most = [-any_slope], [any_slope]
        for d in range(1, len(time)):
            span, gain, doubt = time[d:] - time[:-d], ahead[d:] - ahead[:-d], error[d:] + error[:-d]
            least, most = self.least[-1], self.most[-1]
            self.least.append(np.maximum.reduce([least[:-1], least[1:], (gain - doubt) / span]))
            self.most.append(np.minimum.reduce([most[:-1], most[1:], (gain + doubt) / span]))

    def longest(self, first: int, last: int) -> _Stretch | None:
        """The longest stretch of several hours between two places; the first of these."""
        for d in range(last - first, 0, -1):
            of = slice(first, last + 1 - d)
            fits = np.flatnonzero(self.least[d][of] <= self.most[d][of])
            if fits.size:
                place = first + int(fits[0])
                least, most = float(self.least[d][place]), float(self.most[d][place])
                return _Stretch(place, place + d, (least + most) / 2, (most - least) / 2)
        return None


def _cut(course: _Course, lines: _Lines, first: int, last: int, beside: _Stretch | None) -> list[_Stretch]:
    """Stretches from one place to another; few hours go as fast as those beside them."""
    if last < first:
        return []
    longest = lines.longest(first, last)
    is_whole = longest is not None and longest.hours == last + 1 - first and beside is None
    if longest is None or (longest.hours < _LEAST_OF_LINE and not is_whole):
        slope, doubt = (beside.slope, beside.doubt) if beside is not None else (0.0, 0.0)
        return _level(course, first, last, slope, doubt)
    before = _cut(course, lines, first, longest.first - 1, longest)
    return [*before, longest, *_cut(course, lines, longest.last + 1, last, longest)]


def _level(course: _Course, first: int, last: int, slope: float, doubt: float) -> list[_Stretch]:
    """Stretches of a slope that is known, each as long as may be."""
    found = [_Stretch(first, first, slope, doubt)]
    for place in range(first + 1, last + 1):
        longer = found[-1]._replace(last=place)
        if longer.at(float(course.hour_us[place]), course)[1] >= 0:
            found[-1] = longer
        else:
            found.append(_Stretch(place, place, slope, doubt))
    return found
