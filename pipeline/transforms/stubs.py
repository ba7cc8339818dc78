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

from pipeline.columns.packed import places_for
from pipeline.columns.stub_hours import places_of_stub_hours, stub_hours_of, whole_stub_hours
from pipeline.columns.stub_versions import Versions, places_of_peers, regressions
from pipeline.columns.usual import HOUR_US
from pipeline.lake.worker_rows import WorkerRows
from pipeline.schemas import STUB_LIFE, STUB_REGRESSION

_HOURS_AT_ONCE: Final = 1 << 16
_PLACES_OF_PEERS: Final = 64


def stub_hourly(silver: WorkerRows) -> WorkerRows:
    """Messages that a stub of known version carried, by hour, type and size class; rows of `stub_hourly`.

    Args:
        silver: The columns `RECORD` of `silver_mdr`.
    """
    hours = silver.to_places(places_of_stub_hours, places_for(silver.records), of=stub_hours_of)
    return hours.of_places(whole_stub_hours)


def stub_regressions(hourly: WorkerRows, wanted: Versions) -> WorkerRows:
    """Versions of each peer's stub held against each other; rows of `stub_regression`.

    Args:
        hourly: The columns `HOUR` of `stub_hourly`.
        wanted: Which versions.
    """
    peers = hourly.to_places(places_of_peers, _PLACES_OF_PEERS, rows=_HOURS_AT_ONCE)
    return peers.of_places(partial(_compare, wanted))


def _compare(wanted: Versions, hours: pa.Table) -> pa.Table:
    return pa.Table.from_pylist(list(regressions(hours, wanted)), to_arrow_schema(STUB_REGRESSION.schema))


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
