"""What is usual: medians and spreads of each peer's hours, and how far from them an alarm begins.

The week has 168 hours, and traffic at the same hour of different weeks is compared. Books that are too young for that
are compared by the hour of the day, younger ones by all their hours; a peer with fewer hours than that has no
baseline, and nothing is said about it. Median and median absolute deviation (MAD) are used because one flood among
the hours hardly moves them.

Source: pipeline study, section 8.3.
"""

from __future__ import annotations

import math
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.schemas import DOMAIN_BASELINE

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


def hour_of_week(hour_us: int) -> int:
    """Hour of the week of a time, 0 being Monday 00:00 UTC."""
    return (hour_us // HOUR_US + EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK


def hour_of_week_column(hour_us: Column) -> Column:
    """The same as a Column."""
    hours = F.floor(hour_us / F.lit(HOUR_US)).cast("long")
    return ((hours + F.lit(EPOCH_HOUR_OF_WEEK)) % F.lit(HOURS_PER_WEEK)).cast("int")


def alarm_level(median: float, mad: float) -> float:
    """From where on an hour is alarming: far outside the spread, several times the usual, and not a handful.

    The spread is at least that of chance alone, the square root of the median.
    """
    sigma = max(MAD_TO_SIGMA * mad, math.sqrt(median))
    return max(median + SIGMAS * sigma, LEAST_FACTOR * median, LEAST_MESSAGES)


def alarm_level_column(median: Column, mad: Column) -> Column:
    """The same as a Column."""
    sigma = F.greatest(F.lit(MAD_TO_SIGMA) * mad, F.sqrt(median))
    return F.greatest(median + F.lit(SIGMAS) * sigma, F.lit(LEAST_FACTOR) * median, F.lit(LEAST_MESSAGES))


def hourly_incoming(traffic: DataFrame) -> DataFrame:
    """Messages that each peer sent us, hour by hour, from `traffic_hourly`; silent hours between count as zero.

    Returns:
        `our_domain peer_domain hour_us messages`.
    """
    seen = (
        traffic.where(F.col("role") == "in")
        .groupBy("our_domain", F.col("src_domain").alias("peer_domain"), "hour_us")
        .agg(F.sum("messages").alias("messages"))
    )
    every_hour = (
        seen.groupBy("our_domain", "peer_domain")
        .agg(F.min("hour_us").alias("first"), F.max("hour_us").alias("last"))
        .select("our_domain", "peer_domain", F.explode(F.sequence("first", "last", F.lit(HOUR_US))).alias("hour_us"))
    )
    return every_hour.join(seen, ["our_domain", "peer_domain", "hour_us"], "left").select(
        "our_domain", "peer_domain", "hour_us", F.coalesce("messages", F.lit(0)).cast("double").alias("messages")
    )


def baselines(hourly: DataFrame) -> DataFrame:
    """Usual messages of each peer for each hour of the week, from `hourly_incoming`."""
    marked = hourly.withColumn("hour_of_week", hour_of_week_column(F.col("hour_us"))).withColumn(
        "hour_of_day", F.col("hour_of_week") % F.lit(HOURS_PER_DAY)
    )
    pair = ["our_domain", "peer_domain"]
    weekly = _spread(marked, [*pair, "hour_of_week"], SAMPLES_PER_WEEKHOUR, "week")
    daily = _spread(marked, [*pair, "hour_of_day"], SAMPLES_PER_DAYHOUR, "day")
    overall = _spread(marked, pair, SAMPLES_AT_ALL, "all")
    return (
        marked.select(*pair, "hour_of_week", "hour_of_day")
        .distinct()
        .join(weekly, [*pair, "hour_of_week"], "left")
        .join(daily, [*pair, "hour_of_day"], "left")
        .join(overall, pair, "left")
        .select(
            *pair,
            "hour_of_week",
            F.lit("messages").alias("measure"),
            F.coalesce("median_week", "median_day", "median_all").alias("median"),
            F.coalesce("mad_week", "mad_day", "mad_all").alias("mad"),
            F.coalesce("hours_week", "hours_day", "hours_all").cast("int").alias("hours"),
        )
        .where(F.col("median").isNotNull())
        .select(*DOMAIN_BASELINE.schema.names)
    )


def _spread(hourly: DataFrame, keys: list[str], samples: int, suffix: str) -> DataFrame:
    """Median and MAD of the groups that have enough hours."""
    medians = hourly.groupBy(*keys).agg(F.median("messages").alias("median"), F.count("*").alias("hours"))
    enough = medians.where(F.col("hours") >= samples)
    return (
        hourly.join(enough, keys, "inner")
        .groupBy(*keys, "median", "hours")
        .agg(F.median(F.abs(F.col("messages") - F.col("median"))).alias("mad"))
        .select(
            *keys,
            F.col("median").alias(f"median_{suffix}"),
            F.col("mad").alias(f"mad_{suffix}"),
            F.col("hours").alias(f"hours_{suffix}"),
        )
    )
