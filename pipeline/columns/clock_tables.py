"""Clocks in workers: by how much the times of two sides' records usually differ, hour by hour, and its measurement.

A message from a to b that leaves at a's time and arrives at b's time shows transit + D, where D is how far b's clock is
ahead of a's; one the other way shows transit − D. So D lies below all delays of the one direction, and above all
delays of the other one taken negative: no line is faster than nothing. Clocks drift (a plain quartz by 4 s a day), so
within an hour D is taken for a straight line, the one with the most room between both: a cloud of points above it and
one below. It is moved to the middle of that room, and what is left on either side is the error, a bound as far as D is
straight. Where it is not, single quarters of the hour have more room than the whole one, and then theirs counts; and
where a clock was set, no line goes between the clouds, and the pair says nothing about that hour.

Because a single record may be timed by a clock that jumped, a cloud ends at its outermost twentieth. (The idea of lines
between clouds is that of Moon, Skelly and Towsley, 1999.)
Source: pipeline study, section 8.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.columns.groups import (
    Numbers,
    Rows,
    codes,
    column,
    dense,
    from_zero,
    group_numbers,
    is_word,
    lengths_of,
    numbers,
    runs,
    starts_of,
)
from pipeline.columns.hashing import xxhash64
from pipeline.columns.packed import places_of
from pipeline.columns.side_records import DAY_US, DELIVERED

HOUR_US: Final = 3_600_000_000
LOW_QUANTILE: Final = 0.05
PAIR: Final = ("src_domain", "dst_domain")
TIMES: Final = ("src_domain", "dst_domain", "msg_id", "ts_us", "outcome", "role", "channel")
"""Columns of `silver_mdr` that clocks are judged by."""
_QUARTERS: Final = 4
_ROUNDS: Final = 2
_MANY: Final = 20
"""Messages each way that an hour needs for a slope of its own: between few, some wrong one always makes more room."""
_PPB_OF_HOUR: Final = HOUR_US / 1e9
"""µs in an hour that a drift of one part in a billion makes."""

Figures = NDArray[np.float64]


class Usual(NamedTuple):
    """Usual time difference for each of some rows, and its error bound, in µs; 0 where nothing is known."""

    is_known: NDArray[np.bool_]
    usual_us: Numbers
    doubt_us: Numbers


@dataclass(frozen=True)
class ClockTables:
    """Measured time differences between pairs of domains.

    Attributes:
        delays: Rows of `schemas.PAIR_DELAY`.
        offsets: Rows of `clock_offset`.
    """

    delays: pa.Table
    offsets: pa.Table

    def __getstate__(self) -> dict[str, pa.Table]:
        """Send the tables alone to workers."""
        return {"delays": self.delays, "offsets": self.offsets}

    @cached_property
    def _pairs(self) -> Rows:
        return Rows(*(column(self.delays, name) for name in (*PAIR, "hour_us")))

    @cached_property
    def _domains(self) -> Rows:
        return Rows(*(column(self.offsets, name) for name in ("domain", "hour_us")))

    def usual(self, src_domain: pa.Array, dst_domain: pa.Array, time_us: Numbers, *, spread_us: int = 0) -> Usual:
        """Look up the usual time difference for rows of these pairs and times.

        Where both clocks are known that is their difference, and the doubt is the sum of their error bounds; otherwise
        it is the pair's own low quantile of that hour, where there is one.

        Args:
            src_domain: The sender of each.
            dst_domain: The receiver of each.
            time_us: When each was sent.
            spread_us: How far from that time it may have been; what clocks may drift in that time is taken off the
                doubt, so that nothing unusual goes unseen.
        """
        hour_us = time_us - time_us % HOUR_US
        hour = pa.array(hour_us)
        ours, theirs = self._domains.find(src_domain, hour), self._domains.find(dst_domain, hour)
        pair = self._pairs.find(src_domain, dst_domain, hour)
        component, offset_us, error_us, drift_ppb = (
            _and_none(numbers(self.offsets, name)) for name in ("component", "offset_us", "error_us", "drift_ppb")
        )
        both = (ours >= 0) & (theirs >= 0) & (component[ours] == component[theirs])
        low_us = _and_none(numbers(self.delays, "low_us"))[pair]
        drift = drift_ppb[theirs] - drift_ppb[ours]
        # Not to even numbers: two times in `spread_us` of each other must not differ by more than `sure_us` says.
        since_us = np.floor(drift * ((time_us - hour_us - HOUR_US // 2) / 1e9) + 0.5).astype(np.int64)
        sure_us = np.ceil(np.abs(drift) * (spread_us / 1e9)).astype(np.int64)
        return Usual(
            both | (pair >= 0),
            np.where(both, offset_us[theirs] - offset_us[ours] + since_us, low_us),
            np.where(both, error_us[theirs] + error_us[ours] - sure_us, 0),
        )


def _and_none(values: Numbers) -> Numbers:
    """With a 0 at the end, which is what -1 finds."""
    return np.append(values, 0)


def sampled(records: pa.Table, one_in: int) -> pa.Table:
    """Records of delivered messages, of one in so many, chosen by a hash of the id: so the same ones on both sides."""
    is_chosen = xxhash64(column(records, "msg_id")) % one_in == 0
    return records.filter(pa.array(is_chosen & is_word(column(records, "outcome"), DELIVERED)))


def places_of_times(times: pa.Table, places: int) -> Numbers:
    """Partition so that both records of a message come to one place."""
    return places_of(times, [*PAIR, "msg_id"], np.zeros(times.num_rows, np.int64), places)


def delays_of(times: pa.Table) -> pa.Table:
    """Compute by how much the receiver's first record of each message is later than the sender's.

    Columns: `low_domain`, `high_domain` in the order of their names; `is_up` if it went from the first to the second;
    `sent_us`, `delay_us`.

    Args:
        times: All of the messages in question.
    """
    keys = [codes(column(times, name)) for name in PAIR]
    ids = np.asarray(column(times, "msg_id").dictionary_encode().indices).astype(np.int64)
    group, _ = group_numbers([*((places, len(found)) for found, places in keys), from_zero(ids)])
    order, starts = runs(group)
    is_out = np.asarray(column(times, "is_out"))[order]
    ts_us, sent_us = numbers(times, "ts_us")[order], numbers(times, "sent_us")[order]
    never = np.iinfo(np.int64).max
    out_us, in_us, first_us = (
        np.minimum.reduceat(np.where(chosen, values, never), starts)
        for chosen, values in ((is_out, ts_us), (~is_out, ts_us), (is_out, sent_us))
    )
    both = np.flatnonzero((out_us < never) & (in_us < never))
    one = pa.array(order[starts[both]])
    source, target = (column(times, name).take(one).cast(pa.string()) for name in PAIR)
    is_up = pc.less(source, target)
    return pa.table(
        {
            "low_domain": pc.if_else(is_up, source, target),
            "high_domain": pc.if_else(is_up, target, source),
            "is_up": is_up,
            "sent_us": first_us[both],
            "delay_us": in_us[both] - out_us[both],
        }
    )


def places_of_delays(delays: pa.Table, places: int) -> Numbers:
    """Partition so that the delays of two domains and a day, in both directions, come to one place."""
    return places_of(delays, ("low_domain", "high_domain"), numbers(delays, "sent_us") // DAY_US, places)


def lines_of(delays: pa.Table) -> pa.Table:
    """The hours of each pair: pair, `hour_us`, `low_us`, `drift_ppb`, `messages`.

    With traffic both ways half the difference of both `low_us` is the difference of the clocks in the middle of the
    hour, and half their sum its error; a negative sum says that no line fits. One way only, `low_us` is the low
    quantile.

    Args:
        delays: From `delays_of`, all of a pair and day.
    """
    hour, _ = from_zero(numbers(delays, "sent_us") // HOUR_US)
    names = [codes(column(delays, name)) for name in ("low_domain", "high_domain")]
    pair, pairs = group_numbers((places, len(found)) for found, places in names)
    group, count = dense(group_numbers([(pair, pairs), from_zero(hour)])[0])
    one = np.zeros(count, np.int64)
    one[group] = np.arange(len(group))
    clouds = _Clouds(delays, group, count)
    is_next = (np.diff(pair[one]) == 0) & (np.diff(hour[one]) == 1)
    slope, up, down = _with_most_room(clouds, _slopes(clouds, dense(pair[one])[0], is_next))
    middle, room = (up + down) / 2, (up - down) / 2
    error = np.where(room < 0, room, np.fmax(room, clouds.widest(slope, middle)) / clouds.spans())
    ways = []
    is_one_way = np.isnan(middle)
    for is_up, edge, sign in ((True, up, 1), (False, down, -1)):
        low = np.where(is_one_way, sign * edge, sign * middle + error)
        there = np.flatnonzero(~np.isnan(low))
        at = pa.array(one[there])
        domains = [column(delays, name).take(at) for name in ("low_domain", "high_domain")]
        source, target = domains[::sign]
        ways.append(
            pa.table(
                {
                    "src_domain": source,
                    "dst_domain": target,
                    "hour_us": numbers(delays, "sent_us")[one[there]] // HOUR_US * HOUR_US,
                    "low_us": np.ceil(np.round(low[there], 3)).astype(np.int64),
                    "drift_ppb": np.round(sign * slope[there] / _PPB_OF_HOUR).astype(np.int64),
                    "messages": clouds.messages(is_up=is_up)[there],
                }
            )
        )
    return pa.concat_tables(ways).combine_chunks()


class _Clouds:
    """Delays of the hours of pairs: those of the first domain's messages above, the others below, taken negative.

    Times are in hours from the middle of the hour, slopes in µs an hour; NaN stands for what there is not.

    Args:
        delays: From `delays_of`.
        group: Pair and hour of each, as a number.
        count: How many of these there are.
    """

    def __init__(self, delays: pa.Table, group: Numbers, count: int) -> None:
        is_up = np.asarray(column(delays, "is_up"))
        delay_us = numbers(delays, "delay_us").astype(np.float64)
        self.count = count
        self._group = group
        self._time = numbers(delays, "sent_us") % HOUR_US / HOUR_US - 0.5
        self._height = np.where(is_up, delay_us, -delay_us)
        self._rows = {True: np.flatnonzero(is_up), False: np.flatnonzero(~is_up)}

    def messages(self, *, is_up: bool) -> Numbers:
        """How many of each hour went this way."""
        return np.bincount(self._group[self._rows[is_up]], minlength=self.count)

    def edges(self, slope: Figures, parts: int = 1) -> tuple[Figures, Figures]:
        """Where the cloud above ends, and the one below, when seen along lines of these slopes; by part of the hour."""
        height = self._height - slope[self._group] * self._time
        return self._quantile(height, is_up=True, parts=parts, quantile=LOW_QUANTILE), self._quantile(
            height, is_up=False, parts=parts, quantile=1 - LOW_QUANTILE
        )

    def centres(self, slope: Figures, parts: int = 1) -> Figures:
        """The middle between the medians of both clouds along lines of these slopes; rough, and no outlier moves it."""
        height = self._height - slope[self._group] * self._time
        above, below = (self._quantile(height, is_up=is_up, parts=parts, quantile=0.5) for is_up in (True, False))
        return (above + below) / 2

    def spans(self) -> Figures:
        """The part of the hour that both clouds cover, a quarter at least: beyond it a line is less sure."""
        first, last = (
            [self._quantile(self._time, is_up=is_up, parts=1, quantile=end) for is_up in (True, False)]
            for end in (0.0, 1.0)
        )
        found: Figures = np.clip(np.nan_to_num(np.minimum(*last) - np.maximum(*first)), 1 / _QUARTERS, 1)
        return found

    def widest(self, slope: Figures, middle: Figures) -> Figures:
        """How far from these lines the true ones may be, in that quarter of the hour that says least about it."""
        up, down = (edge.reshape(-1, _QUARTERS) - middle[:, None] for edge in self.edges(slope, _QUARTERS))
        far: Figures = np.where(np.isnan(up + down), -np.inf, np.maximum(up, -down)).max(axis=1, initial=-np.inf)
        return far

    def _quantile(self, height: Figures, *, is_up: bool, parts: int, quantile: float) -> Figures:
        rows = self._rows[is_up]
        part = ((self._time[rows] + 0.5) * parts).astype(np.int64)  # no time is as late as the end of its hour
        return _quantiles(self._group[rows] * parts + part, height[rows], self.count * parts, quantile)


def _slopes(clouds: _Clouds, pair: Numbers, is_next: NDArray[np.bool_]) -> list[Figures]:
    """Slopes that the hours' lines may have: that of most hours of the pair's day; none, or their own, if many say so.

    Own ones are what the centre of the hour differs by from those before and after it, whichever is less, so that a set
    clock is no slope; and by what those of its halves differ.
    """
    of_day = np.zeros(clouds.count)
    for _ in range(_ROUNDS):  # the second time from messages of which the drift within the hour is known
        steps = np.where(is_next, np.diff(clouds.centres(of_day)), np.nan)
        known = np.flatnonzero(~np.isnan(steps))
        of_day = np.nan_to_num(_quantiles(pair[known], steps[known], clouds.count, 0.5)[pair])
    before, after = np.append(np.nan, steps), np.append(steps, np.nan)
    least = np.where(np.abs(after) < np.abs(before), after, before)
    least = np.where(before * after < 0, 0.0, np.where(np.isnan(least), of_day, least))
    halves = of_day + np.diff(clouds.centres(of_day, 2).reshape(-1, 2), axis=1)[:, 0] * 2
    are_many = np.minimum(clouds.messages(is_up=True), clouds.messages(is_up=False)) >= _MANY
    own = (np.where(are_many, np.nan_to_num(slope), of_day) for slope in (np.zeros(clouds.count), least, halves))
    return [of_day, *own]


def _with_most_room(clouds: _Clouds, slopes: list[Figures]) -> tuple[Figures, Figures, Figures]:
    """Of several slopes the one along which the clouds are farthest apart, and where both end then."""
    edges = [clouds.edges(slope) for slope in slopes]
    room = [np.nan_to_num(up - down, nan=-np.inf) for up, down in edges]
    best = np.argmax(room, axis=0)
    up, down = (np.choose(best, [each[side] for each in edges]) for side in (0, 1))
    return np.choose(best, slopes), up, down


def _quantiles(group: Numbers, values: Figures, count: int, quantile: float) -> Figures:
    """A quantile of each group's values, between two of them in proportion; NaN for groups without any."""
    found = np.full(count, np.nan)
    order = np.lexsort((values, group))
    ascending, starts = values[order], starts_of(group[order])
    place = (lengths_of(starts, len(order)) - 1) * quantile
    low = np.floor(place).astype(np.int64)
    below, above = ascending[starts + low], ascending[starts + np.ceil(place).astype(np.int64)]
    found[group[order][starts]] = below + (place - low) * (above - below)
    return found
