"""Clocks: how Spark brings the times of both sides' records together. Judging: `pipeline.columns.clock_tables`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.columns.clock_tables import HOUR_US, delays_of, lines_of, places_of_delays, places_of_times
from pipeline.columns.clock_tables import sampled as sampled_records
from pipeline.columns.packed import places_for
from pipeline.lake.worker_rows import Batches, WorkerRows
from pipeline.schemas import PAIR_DELAY

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
    """Compute the difference of the times of both records, per ordered pair and hour; rows of `PAIR_DELAY`.

    Quantiles are exact, so the same messages give the same figures on every run.

    Args:
        entries: Of both sides, from `side_records.entries_of`, of delivered messages.
    """
    places = places_for(entries.records)
    times = entries.to_places(places_of_times, places, of=_times).of_places(delays_of)
    return times.to_places(places_of_delays, places).of_places(lines_of)


def _sample(one_in: int, batches: Batches) -> Batches:
    for records in batches:
        yield from sampled_records(pa.Table.from_batches([records]), one_in).to_batches()


def _times(entries: pa.Table) -> pa.Table:
    return entries.select(_TIMES)


def typical_delays(in_totals: DataFrame) -> DataFrame:
    """The same out of the receiver's totals alone, for partners who exchange no more; rows of `schemas.PAIR_DELAY`.

    Per 5 minutes the shortest time between a message's id, made by the sender's clock to the millisecond, and its
    arrival; per pair and hour the median of these. Coarser than `pair_delays`, and too long where traffic is sparse.
    """
    hour_us = F.col("bucket_us") - F.col("bucket_us") % HOUR_US
    low_us = F.round(F.percentile("lag_min_us", F.lit(0.5))).cast("long")
    timed = in_totals.where(F.col("lag_min_us").isNotNull())
    delays = timed.groupBy(*_PAIR, hour_us.alias("hour_us")).agg(
        low_us.alias("low_us"), F.lit(0).cast("long").alias("drift_ppb"), F.sum("messages").alias("messages")
    )
    return delays.select(*PAIR_DELAY.fieldNames())
