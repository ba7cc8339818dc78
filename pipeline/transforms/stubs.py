"""Health of protostubs by version: what messages met, and how often the stub had to be started again.

Everything is kept by type and size of the messages, because two versions may only be compared within such a stratum:
a version that happens to carry smaller messages is not faster. Source: pipeline study, section 8.3.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.histogram import bucket_column
from pipeline.schemas import STUB_HOURLY, STUB_LIFE
from pipeline.transforms.baselines import HOUR_US

_KEYS = ["our_domain", "peer_domain", "stub_ver", "hour_us", "msg_type", "size_class"]


def stub_hourly(silver: DataFrame) -> DataFrame:
    """Messages that a stub of known version carried, by hour, type and size class."""
    carried = silver.where((F.col("role") == "out") & F.col("stub_ver").isNotNull()).select(
        "our_domain",
        "peer_domain",
        "stub_ver",
        _hour(F.col("ts_us")).alias("hour_us"),
        "msg_type",
        (bucket_column(F.col("size_in")) / F.lit(16)).cast("int").alias("size_class"),
        (~F.col("outcome").isin("delivered", "denied")).alias("is_failed"),
        ((F.col("outcome") == "trapped") | F.col("trap").isNotNull()).alias("is_trapped"),
        bucket_column(F.coalesce("d_stub_us", "d_total_us")).alias("latency_bucket"),
        bucket_column(F.col("fuel")).alias("fuel_bucket"),
    )
    counts = carried.groupBy(*_KEYS).agg(
        F.count("*").alias("messages"), F.count_if("is_failed").alias("failed"), F.count_if("is_trapped").alias("traps")
    )
    return (
        counts.join(_histogram(carried, "latency_bucket", "latency"), _KEYS, "left")
        .join(_histogram(carried, "fuel_bucket", "fuel"), _KEYS, "left")
        .withColumn("dt", F.date_format(F.timestamp_micros("hour_us"), "yyyy-MM-dd"))
        .select(*STUB_HOURLY.schema.names)
    )


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


def _histogram(carried: DataFrame, bucket: str, name: str) -> DataFrame:
    """Counts by bucket as one map per group, ascending by bucket: equal inputs give equal maps."""
    counts = carried.where(F.col(bucket).isNotNull()).groupBy(*_KEYS, bucket).agg(F.count("*").alias("part"))
    entries = F.sort_array(F.collect_list(F.struct(bucket, "part")))
    return counts.groupBy(*_KEYS).agg(F.map_from_entries(entries).alias(name))


def _hour(ts_us: Column) -> Column:
    return ts_us - ts_us % F.lit(HOUR_US)
