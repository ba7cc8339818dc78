"""What is usual: medians and spreads of each peer's hours, and how far from them an alarm begins.

The week has 168 hours, and traffic at the same hour of different weeks is compared. Records that are too young for that
are compared by the hour of the day, younger ones by all their hours; a peer with fewer hours than that has no
baseline, and nothing is said about it. Median and median absolute deviation (MAD) are used because one flood among
the hours hardly moves them.

Source: pipeline study, section 8.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns.groups import (
    Numbers,
    column,
    from_zero,
    group_numbers,
    is_word,
    lengths_of,
    numbers,
    run_of_rows,
    runs,
    starts_of,
    sums,
    words,
)
from pipeline.columns.packed import places_of

Doubles = NDArray[np.float64]

HOUR_US: Final = 3_600_000_000
HOURS_PER_WEEK: Final = 168
HOURS_PER_DAY: Final = 24
EPOCH_HOUR_OF_WEEK: Final = 72
"""1 January 1970 was a Thursday; the week begins on Monday."""

SAMPLES_PER_WEEKHOUR: Final = 4
SAMPLES_PER_DAYHOUR: Final = 3
SAMPLES_AT_ALL: Final = 12

SIGMAS: Final = 6.0
MAD_TO_SIGMA: Final = 1.4826
"""MAD of a normal distribution times this is its standard deviation."""
LEAST_FACTOR: Final = 3.0
"""What is not at least this many times the usual is no alarm, however regular the peer."""
LEAST_MESSAGES: Final = 100.0
"""Nor is anything below this many messages in an hour."""

TRAFFIC: Final = ("our_domain", "src_domain", "role", "hour_us", "messages")
"""Columns of `traffic_hourly` that peers are judged by."""
_PAIR: Final = ("our_domain", "src_domain")

Missing: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""By domain, from when until when records of it are missing, in µs."""
_NOTHING: Final[Missing] = {}


def hour_of_week(hour_us: int) -> int:
    """Hour of the week of a time, 0 being Monday 00:00 UTC."""
    return (hour_us // HOUR_US + EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK


def alarm_level(median: float, mad: float) -> float:
    """From where on an hour is alarming: far outside the spread, several times the usual, and not a handful.

    The spread is at least that of chance alone, the square root of the median.
    """
    sigma = max(MAD_TO_SIGMA * mad, math.sqrt(median))
    return max(median + SIGMAS * sigma, LEAST_FACTOR * median, LEAST_MESSAGES)


def hours_of_peers(traffic: pa.Table) -> pa.Table:
    """Messages that each peer sent us, hour by hour; the columns `TRAFFIC`, so that parts can be added up once more."""
    traffic = traffic.filter(pa.array(is_word(column(traffic, "role"), "in")))
    keys = [words(column(traffic, name)) for name in _PAIR]
    hour = from_zero(numbers(traffic, "hour_us") // HOUR_US)
    group, _ = group_numbers([*((places, len(found)) for found, places in keys), hour])
    order, starts = runs(group)
    added = sums(numbers(traffic, "messages")[order], starts)
    rows = traffic.select([*_PAIR, "role", "hour_us"]).take(pa.array(order[starts]))
    return rows.append_column("messages", pa.array(added))


def places_of_peers(hours: pa.Table, places: int) -> Numbers:
    """Partition so that all hours of a pair of domains come to one place."""
    return places_of(hours, _PAIR, np.zeros(hours.num_rows, np.int64), places)


def baselines(hours: pa.Table, missing: Missing = _NOTHING) -> pa.Table:
    """Usual messages of each peer for each hour of the week, where there is anything to say; `DOMAIN_BASELINE`.

    Args:
        hours: Of `hours_of_peers`, all those of a peer. Silent hours between the first and the last count as zero,
            unless records of them are missing.
        missing: When records of a domain are missing.
    """
    pairs, pair, hour, messages = _every_hour(hours, missing)
    week = (hour + EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK
    median, mad, samples = _usual(pair, week, messages)
    order, starts = runs(pair * HOURS_PER_WEEK + week)
    rows = order[starts]
    rows = rows[samples[rows] > 0]
    return pa.table(
        {
            **_named(pairs, pair[rows]),
            "hour_of_week": week[rows].astype(np.int32),
            "measure": pa.array(["messages"] * len(rows), pa.string()),
            "median": median[rows],
            "mad": mad[rows],
            "hours": samples[rows].astype(np.int32),
        }
    )


def floods(hours: pa.Table, missing: Missing = _NOTHING) -> pa.Table:
    """Hours in which peers sent far more than is usual: `our_domain peer_domain hour_us messages median level hours`.

    Args:
        hours: As `baselines` takes them.
        missing: The same.
    """
    pairs, pair, hour, messages = _every_hour(hours, missing)
    median, mad, samples = _usual(pair, (hour + EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK, messages)
    # Below the least of all levels nothing is alarming: nearly all hours are.
    rows = np.flatnonzero((samples > 0) & (messages > LEAST_MESSAGES))
    usual = zip(median[rows].tolist(), mad[rows].tolist(), strict=True)
    level = np.array([alarm_level(*one) for one in usual], np.float64)
    rows, level = rows[messages[rows] > level], level[messages[rows] > level]
    return pa.table(
        {
            **_named(pairs, pair[rows]),
            "hour_us": hour[rows] * HOUR_US,
            "messages": messages[rows],
            "median": median[rows],
            "level": level,
            "hours": samples[rows],
        }
    )


def _every_hour(hours: pa.Table, missing: Missing) -> tuple[pa.Table, Numbers, Numbers, Doubles]:
    """Pairs; and for every hour from the first to the last of each: pair, number of the hour, messages.

    An hour with missing records and without a message says nothing, and is left out.
    """
    hours = hours_of_peers(hours)
    pairs = [words(column(hours, name)) for name in _PAIR]
    group, _ = group_numbers((places, len(found)) for found, places in pairs)
    at = numbers(hours, "hour_us") // HOUR_US
    # Of equal pairs hours ascend.
    order, starts = runs(group)
    pair_of_row = run_of_rows(order, starts)
    first, last = at[order[starts]], at[order[np.append(starts[1:], len(order))[: len(starts)] - 1]]
    many = last - first + 1
    pair = np.repeat(np.arange(len(starts)), many)
    begin = np.cumsum(many) - many
    hour = np.arange(len(pair)) - begin[pair] + first[pair]
    messages = np.zeros(len(pair))
    messages[begin[pair_of_row] + at - first[pair_of_row]] = numbers(hours, "messages")
    names = hours.select(list(_PAIR)).take(pa.array(order[starts]))
    says = (messages > 0) | ~_is_in(missing, column(names, "our_domain"), pair, hour)
    return names, pair[says], hour[says], messages[says]


def _is_in(missing: Missing, domains: pa.Array, pair: Numbers, hour: Numbers) -> NDArray[np.bool_]:
    """True if records of any part of the hour are missing, of the domain that the pair has."""
    found = np.zeros(len(pair), bool)
    for domain, periods in missing.items():
        is_its = is_word(domains, domain)[pair]
        for from_us, until_us in periods if is_its.any() else ():
            found |= is_its & (hour * HOUR_US < until_us) & ((hour + 1) * HOUR_US > from_us)
    return found


def _usual(pair: Numbers, week: Numbers, messages: Doubles) -> tuple[Doubles, Doubles, Numbers]:
    """Median and MAD for every hour, and of how many hours; of none where there are too few."""
    median, mad, samples = np.zeros(len(pair)), np.zeros(len(pair)), np.zeros(len(pair), np.int64)
    for group, least in (
        (pair, SAMPLES_AT_ALL),
        (pair * HOURS_PER_DAY + week % HOURS_PER_DAY, SAMPLES_PER_DAYHOUR),
        (pair * HOURS_PER_WEEK + week, SAMPLES_PER_WEEKHOUR),
    ):
        middle, many = _medians(group, messages)
        spread, _ = _medians(group, np.abs(messages - middle))
        is_enough = many >= least
        median, mad, samples = (
            np.where(is_enough, ours, theirs) for ours, theirs in ((middle, median), (spread, mad), (many, samples))
        )
    return median, mad, samples


def _medians(group: Numbers, values: Doubles) -> tuple[Doubles, Numbers]:
    """For each row the median of its group, and how many rows that has."""
    order = np.lexsort((values, group))
    starts = starts_of(group[order])
    many = lengths_of(starts, len(order))
    ascending = values[order]
    middle = (ascending[starts + (many - 1) // 2] + ascending[starts + many // 2]) / 2
    run = run_of_rows(order, starts)
    return middle[run], many[run]


def _named(pairs: pa.Table, pair: Numbers) -> dict[str, pa.Array]:
    rows = pairs.take(pa.array(pair))
    return {"our_domain": column(rows, "our_domain"), "peer_domain": column(rows, "src_domain")}
