"""Clocks: how far apart two domains' clocks are, seen from the messages that went between them.

A message from a to b that leaves at a's time and arrives at b's time shows delay + offset(b) − offset(a); one the other
way shows delay − the same difference. The fastest messages of each direction waited for nothing but the line, so a low
quantile stands for the line; half the difference of the two directions is the difference of the clocks. It is wrong by
half of what the two lines differ by, and that is at most half the sum of both: no line is faster than nothing.
Source: pipeline study, section 8.3; RFC 5905, section 8 (the same argument).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.core.clock_tables import (
    delays_of,
    low_delays,
    places_of_delays,
    places_of_times,
)
from pipeline.core.clock_tables import sampled as sampled_records
from pipeline.core.groups import numbers
from pipeline.core.hours import days_of
from pipeline.core.packed import places_for
from pipeline.core.side_records import DAY_US
from pipeline.schemas import PAIR_DELAY
from pipeline.worker_rows import Batches, WorkerRows

_PAIR: Final = ("src_domain", "dst_domain")
_TIMES: Final = (*_PAIR, "msg_id", "is_out", "ts_us", "sent_us")


def sampled(records: WorkerRows, *, one_in: int) -> WorkerRows:
    """Records of delivered messages that clocks are judged by, if one in so many is enough.

    Args:
        records: Of silver, or entries.
        one_in: Look at one of so many messages, chosen by a hash of the id, so the same ones on both sides.
    """
    return replace(records.then(partial(_sample, one_in)), records=records.records // one_in)


def pair_delays(entries: WorkerRows) -> WorkerRows:
    """The low quantile of the time between both records, per ordered pair and day; rows of `schemas.PAIR_DELAY`.

    The quantile is exact, so the same messages give the same figure on every run.

    Args:
        entries: Of both sides, from `side_records.entries_of`, of delivered messages.
    """
    places = places_for(entries.records)
    times = entries.to_places(places_of_times, places, of=_times).of_places(delays_of)
    return times.to_places(places_of_delays, places).of_places(_low_delays)


def _sample(one_in: int, batches: Batches) -> Batches:
    for records in batches:
        yield from sampled_records(pa.Table.from_batches([records]), one_in).to_batches()


def _times(entries: pa.Table) -> pa.Table:
    return entries.select(_TIMES)


def _low_delays(delays: pa.Table) -> pa.Table:
    found = low_delays(delays)
    day = days_of(numbers(found, "day") * DAY_US)
    return found.drop_columns(["day"]).append_column("dt", day)


def typical_delays(in_totals: DataFrame) -> DataFrame:
    """The same out of the receiver's totals alone, for partners who exchange no more; rows of `schemas.PAIR_DELAY`.

    Per 5 minutes the shortest time between a message's id, made by the sender's clock to the millisecond, and its
    arrival; per pair and day the median of these. Coarser than `pair_delays`, and too long where traffic is sparse.
    """
    low_us = F.percentile("lag_min_us", F.lit(0.5))
    day = F.date_format(F.timestamp_micros("bucket_us"), "yyyy-MM-dd")
    timed = in_totals.where(F.col("lag_min_us").isNotNull())
    delays = timed.groupBy(*_PAIR, day.alias("dt")).agg(
        F.round(low_us).cast("long").alias("low_us"), F.sum("messages").alias("messages")
    )
    return delays.select(*PAIR_DELAY.fieldNames())
