"""The course of clocks over the hours of days: what is known between measured hours.

An hour may say nothing about a clock: no traffic both ways, or the clock was set in that hour. Between two measured
hours a clock is taken to have gone straight from one offset to the other, with an error that covers both ends, so a
clock that was set in between is inside of it. Before the first measured hour and after the last one the error grows by
what two bad quartz clocks may part in that time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pipeline.columns.clock_graph import ClockGraph, Delay, Offset
from pipeline.columns.clock_tables import HOUR_US
from pipeline.columns.groups import column

_MOST_DRIFT: Final = 200e-6
"""Two plain quartz clocks, one fast and one slow."""
_NEARLY: Final = 0.8


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


def as_seen_from(
    measured: Mapping[int, Sequence[Offset]], references: Collection[str]
) -> Iterator[tuple[int, list[Offset]]]:
    """Offsets of another day, by hour, relative to the references of this one, as far as they were measured then."""
    for hour_us, offsets in measured.items():
        seen = []
        by_domain = {one.domain: one for one in offsets}
        for zero in (by_domain[name] for name in sorted(references) if name in by_domain):
            seen += [
                replace(
                    one,
                    offset_us=one.offset_us - zero.offset_us,
                    error_us=one.error_us + zero.error_us if one is not zero else 0,
                    reference=zero.domain,
                )
                for one in offsets
                if one.reference == zero.reference
            ]
        yield hour_us, seen


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


_Course = list[tuple[int, Offset]]


def _courses(measured: Mapping[int, Sequence[Offset]]) -> dict[str, _Course]:
    courses = defaultdict[str, _Course](list)
    for hour_us in sorted(measured):
        for offset in measured[hour_us]:
            courses[offset.domain].append((hour_us, offset))
    return dict(courses)


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
