"""The course of clocks over the hours of days: what is known between measured hours, and which clocks go wrong.

An hour may say nothing about a clock: no traffic both ways, or the clock was set in that hour. Between two measured
hours a clock is taken to have gone straight from one offset to the other, with an error that covers both ends, so a
clock that was set in between is inside of it. Before the first measured hour and after the last one the error grows by
what two bad quartz clocks may part in that time.

Findings. Between two measured hours every clock of a component gains or loses something against the reference; against
the median of all clocks it has gained what it drifts, and much more than usual only if it was set. With two clocks
nobody can say which of them it is; then it is said of the one that is not the reference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median, median_low
from typing import Final

import pyarrow as pa

from pipeline.columns.clock_graph import ClockGraph, Delay, Offset
from pipeline.columns.clock_tables import HOUR_US
from pipeline.columns.groups import column

DRIFT_DAY_US: Final = 50_000
"""A clock that follows others (NTP) does not go wrong by as much in a day."""
STEP_US: Final = 100_000
_MOST_DRIFT: Final = 200e-6
"""Two plain quartz clocks, one fast and one slow."""
_LEAST_HOURS: Final = 3
_CLOCKS_THAT_JUDGE: Final = 3
_NEARLY: Final = 0.8
_DAY_HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class ClockFinding:
    """A clock that drifts, or was set, on a day.

    Attributes:
        domain: Whose clock.
        kind: `drift` or `step`.
        hour_us: The hour in which a drift was first seen, or the one before which a clock had been set.
        change_us: What it gains in a day, or what it was set forward by.
        error_us: How far the truth may be away from that.
        against: What it is compared with, for people.
    """

    domain: str
    kind: str
    hour_us: int
    change_us: int
    error_us: int
    against: str


def delays_by_hour(delays: pa.Table) -> Iterator[tuple[int, Delay]]:
    """Rows of `schemas.PAIR_DELAY` as what `offsets_by_hour` takes."""
    names = ("src_domain", "dst_domain", "low_us", "messages", "drift_ppb")
    columns = (column(delays, name).to_pylist() for name in names)
    return zip(column(delays, "hour_us").to_pylist(), map(Delay, *columns), strict=True)


def offsets_by_hour(delays: Iterable[tuple[int, Delay]]) -> dict[int, list[Offset]]:
    """Offsets of the hours of one day, as far as they can be said against one reference; hours ascend.

    Domains that are connected in some hours are a component of the day. Its reference is the first by name of those
    with traffic in (nearly) as many hours as any; hours in which a domain is not connected with it are left out.

    Args:
        delays: Hour, and what was measured in it; all of one day.
    """
    of_hour = defaultdict[int, list[Delay]](list)
    for hour_us, delay in delays:
        of_hour[hour_us].append(delay)
    graphs = {hour_us: ClockGraph(of_hour[hour_us]) for hour_us in sorted(of_hour)}
    references = _references([graph.components for graph in graphs.values()])
    found: dict[int, list[Offset]] = {}
    for hour_us, graph in graphs.items():
        found[hour_us] = [
            replace(one, component=references.index(one.reference))
            for one in graph.offsets(references)
            if one.reference in references
        ]
    return found


def _references(hours: Iterable[Iterable[set[str]]]) -> list[str]:
    """A reference for each set of domains that are connected in any hours.

    Args:
        hours: The components of each.
    """
    parts: list[set[str]] = []
    coverage = Counter[str]()
    for joined in (component for components in hours for component in components):
        coverage.update(joined)
        apart = [part for part in parts if part.isdisjoint(joined)]
        parts = [*apart, joined.union(*(part for part in parts if not part.isdisjoint(joined)))]
    return sorted(
        min(domain for domain in part if coverage[domain] >= _NEARLY * max(coverage[one] for one in part))
        for part in parts
    )


def filled(measured: Mapping[int, Sequence[Offset]], first_us: int, last_us: int) -> list[tuple[int, Offset]]:
    """An offset for every hour from `first_us` to `last_us`, of all domains with one in any hour.

    Args:
        measured: From `offsets_by_hour`, of one day.
        first_us: Start of the first hour.
        last_us: Start of the last one.
    """
    found: list[tuple[int, Offset]] = []
    for course in _courses(measured).values():
        known = dict(course)
        hours = sorted(known)
        for hour_us in range(first_us, last_us + 1, HOUR_US):
            before = max((one for one in hours if one <= hour_us), default=None)
            after = min((one for one in hours if one >= hour_us), default=None)
            if hour_us in known:
                offset = known[hour_us]
            elif before is None or after is None:
                nearest = hours[0] if before is None else hours[-1]
                offset = _later(known[nearest], hour_us - nearest)
            else:
                offset = _between(known[before], known[after], (hour_us - before) / (after - before), after - before)
            found.append((hour_us, offset))
    return found


def clock_findings(measured: Mapping[int, Sequence[Offset]]) -> list[ClockFinding]:
    """Clocks that drift by more than `DRIFT_DAY_US` a day or were set by more than `STEP_US`, beyond doubt."""
    courses = _courses(measured)
    gains = _gains(courses)
    found = []
    for domain, course in sorted(courses.items()):
        own = gains.get(domain, [])
        if not own:
            continue
        usual = median(gain.rate for gain in own)
        smooth = [gain for gain in own if abs(gain.rate - usual) * gain.span_us <= STEP_US + gain.error_us]
        span_us = sum(gain.span_us for gain in smooth)
        rate = sum(gain.rate * gain.span_us for gain in smooth) / span_us
        against, error_us = own[0].against, max(gain.error_us for gain in smooth)
        change_us = round(rate * _DAY_HOURS * HOUR_US)
        if len(own) >= _LEAST_HOURS and abs(change_us) > DRIFT_DAY_US and abs(rate * span_us) > error_us:
            day_error_us = round(error_us * _DAY_HOURS * HOUR_US / span_us)
            found.append(ClockFinding(domain, "drift", course[0][0], change_us, day_error_us, against))
        for gain in own:
            step_us = round((gain.rate - rate) * gain.span_us)
            if abs(step_us) > STEP_US + gain.error_us:
                found.append(ClockFinding(domain, "step", gain.hour_us, step_us, gain.error_us, against))
    return found


def finding_line(finding: ClockFinding, day: str) -> str:
    """The finding for people."""
    ahead = "fast" if finding.change_us > 0 else "slow"
    change_ms, error_ms = abs(finding.change_us) / 1e3, finding.error_us / 1e3
    if finding.kind == "drift":
        parts = abs(finding.change_us) / (_DAY_HOURS * HOUR_US) * 1e6
        what = f"drifts, {change_ms:,.0f} ms a day {ahead} ({parts:,.1f} ppm, ± {error_ms:,.0f} ms)"
    else:
        at = f"{finding.hour_us // HOUR_US % _DAY_HOURS:02d}:00"
        what = f"was set by {change_ms:,.0f} ms (± {error_ms:,.0f} ms) to be {ahead} before {at}"
    return f"clock of {finding.domain} on {day}: {what} against {finding.against}; let it follow NTP"


@dataclass(frozen=True, slots=True)
class _Gain:
    """What a clock gained on others from one measured hour to the next, which begins at `hour_us`."""

    hour_us: int
    span_us: int
    rate: float
    error_us: int
    against: str


_Course = list[tuple[int, Offset]]


def _courses(measured: Mapping[int, Sequence[Offset]]) -> dict[str, _Course]:
    courses = defaultdict[str, _Course](list)
    for hour_us in sorted(measured):
        for offset in measured[hour_us]:
            courses[offset.domain].append((hour_us, offset))
    return dict(courses)


def _gains(courses: Mapping[str, _Course]) -> dict[str, list[_Gain]]:
    """Gains of each domain against the median of those that were measured in the same two hours."""
    spans = defaultdict[tuple[int, int, str], list[tuple[str, float, int]]](list)
    for domain, course in courses.items():
        for (before_us, before), (after_us, after) in pairwise(course):
            rate = (after.offset_us - before.offset_us) / (after_us - before_us)
            error_us = before.error_us + after.error_us
            spans[before_us, after_us, after.reference].append((domain, rate, error_us))
    gains = defaultdict[str, list[_Gain]](list)
    for (before_us, after_us, reference), group in sorted(spans.items()):
        are_many = len(group) >= _CLOCKS_THAT_JUDGE
        usual = median(rate for _, rate, _ in group) if are_many else 0.0
        usual_error_us = median_low(error_us for _, _, error_us in group)
        against = f"the median of {len(group)} clocks" if are_many else f"the clock of {reference}"
        for domain, rate, error_us in group:
            if are_many or domain != reference:
                doubt_us = max(error_us, usual_error_us)
                gains[domain].append(_Gain(after_us, after_us - before_us, rate - usual, doubt_us, against))
    return dict(gains)


def _later(offset: Offset, after_us: int) -> Offset:
    gained_us = round(offset.drift_ppb * after_us / 1e9)
    error_us = offset.error_us + round(_MOST_DRIFT * abs(after_us))
    return replace(offset, offset_us=offset.offset_us + gained_us, error_us=error_us, messages=0)


def _between(before: Offset, after: Offset, share: float, span_us: int) -> Offset:
    gained_us = after.offset_us - before.offset_us
    return replace(
        after,
        offset_us=before.offset_us + round(share * gained_us),
        error_us=max(before.error_us, after.error_us) + abs(gained_us),
        messages=0,
        drift_ppb=round(gained_us / span_us * 1e9),
    )
