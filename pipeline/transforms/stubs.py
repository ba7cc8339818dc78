"""Health of protostubs by version: what messages met, and how often the stub had to be started again.

Everything is kept by type and size of the messages, because two versions may only be compared within such a stratum:
a version that happens to carry smaller messages is not faster. Source: pipeline study, section 8.3.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.groups import RECORDS_AT_ONCE, in_pieces
from pipeline.core.packed import packed, places_for, together
from pipeline.core.stub_hours import places_of_stub_hours, stub_hours_of, whole_stub_hours
from pipeline.core.stub_versions import Versions, places_of_peers, regressions
from pipeline.core.usual import HOUR_US
from pipeline.schemas import STUB_LIFE, STUB_REGRESSION
from pipeline.worker_rows import Batches, WorkerRows

_HOURS_AT_ONCE: Final = 1 << 16
_PLACES_OF_PEERS: Final = 64


def stub_hourly(silver: WorkerRows) -> WorkerRows:
    """Messages that a stub of known version carried, by hour, type and size class; rows of `stub_hourly`.

    Args:
        silver: The columns `RECORD` of `silver_mdr`.
    """
    parts = silver.then(partial(_add_up_records, places_for(silver.records)))
    return parts.by_place().then(_add_up_parts)


def _add_up_records(places: int, batches: Batches) -> Batches:
    for records in in_pieces(batches, RECORDS_AT_ONCE):
        hours = stub_hours_of(records)
        yield packed(hours, places_of_stub_hours(hours, places))


def _add_up_parts(batches: Batches) -> Batches:
    yield from whole_stub_hours(together(batches)).to_batches()


def stub_regressions(hourly: WorkerRows, wanted: Versions) -> WorkerRows:
    """Versions of each peer's stub held against each other; rows of `stub_regression`.

    Args:
        hourly: The columns `HOUR` of `stub_hourly`.
        wanted: Which versions.
    """
    return hourly.then(_by_peer).by_place().then(partial(_compare, wanted))


def _by_peer(batches: Batches) -> Batches:
    for hours in in_pieces(batches, _HOURS_AT_ONCE):
        yield packed(hours, places_of_peers(hours, _PLACES_OF_PEERS))


def _compare(wanted: Versions, batches: Batches) -> Batches:
    rows = list(regressions(together(batches), wanted))
    yield from pa.Table.from_pylist(rows, to_arrow_schema(STUB_REGRESSION.schema)).to_batches()


def stub_life(events: DataFrame) -> DataFrame:
    """Starts and faults of stubs, by hour, from `bronze_stub_event`."""

    def times(*names: str) -> Column:
        return F.count_if(F.col("event").isin(*names))

    return (
        events.where(F.col("domain").isNotNull())
        .withColumn("hour_us", _hour(F.col("ts_us")))
        .groupBy("node", F.col("domain").alias("peer_domain"), "stub_ver", "hour_us")
        .agg(
            times("started").alias("starts"),
            times("fault").alias("faults"),
            times("killed").alias("kills"),
            times("quarantined").alias("quarantines"),
            times("circuit").alias("circuits"),
        )
        .withColumn("dt", F.date_format(F.timestamp_micros("hour_us"), "yyyy-MM-dd"))
        .select(*STUB_LIFE.schema.names)
    )


def _hour(ts_us: Column) -> Column:
    return ts_us - ts_us % F.lit(HOUR_US)
