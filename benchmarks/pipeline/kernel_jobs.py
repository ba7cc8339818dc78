"""Parts of jobs by themselves, in the kernel and in Spark's own SQL: what each costs says in what they are written.

Days out of hours, senders who did too much, and messages of both sides. Each is written into a table of its own, or
counted where hardly anything comes out.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from benchmarks.pipeline.oracle import statement
from pipeline.columns.clock_tables import ClockTables
from pipeline.columns.days import HOUR
from pipeline.columns.message_classes import CLASSES, COUNTED, Judging
from pipeline.columns.packed import places_for
from pipeline.columns.senders import MESSAGE
from pipeline.columns.side_records import ALL
from pipeline.columns.side_totals import BUCKET_COUNTS
from pipeline.core.completeness import Completeness
from pipeline.core.thresholds import FAN_OUT_RECIPIENTS, SCAN_ATTEMPTS, SCAN_RECIPIENTS, SCAN_SHARE
from pipeline.jobs.reconcile import entries_of_days
from pipeline.lake.tables import Change, Lake
from pipeline.lake.worker_rows import PACKED, WorkerRows, rows_of
from pipeline.schemas import (
    CLOCK_OFFSET,
    PAIR_DELAY,
    RECON_BUCKET,
    RECON_PAIR,
    SILVER_MDR,
    STATEMENT,
    TRAFFIC_HOURLY,
    Table,
)
from pipeline.transforms.abuse import SUSPECTS, suspects
from pipeline.transforms.reconcile import equal_totals, judged, pair_counts
from pipeline.transforms.settle import daily_parts, settle_daily

DAYS: Final = Table("measured_days", STATEMENT, ("dt",), ("our_domain", "src_domain", "dst_domain", "role"))
PAIRS: Final = Table("measured_pairs", RECON_PAIR.schema, ("dt",), RECON_PAIR.key)
LIMITS: Final = {
    "fan_out_recipients": FAN_OUT_RECIPIENTS,
    "scan_attempts": SCAN_ATTEMPTS,
    "scan_recipients": SCAN_RECIPIENTS,
    "scan_share": SCAN_SHARE,
}
UNTIL_US: Final = 4_102_444_800_000_000
"""Until when everybody's records are taken for complete: proofs are not what is measured."""


def days_in_kernel(lake: Lake) -> dict[str, int]:
    """Daily statements out of hours, as `settle` adds them up, without their versions and digests."""
    hourly = lake.read_in_workers(TRAFFIC_HOURLY, columns=HOUR)
    return _days_written(lake, settle_daily(daily_parts(hourly, -(-places_for(hourly.records) // 8)).frame(PACKED)))


def days_in_sql(lake: Lake) -> dict[str, int]:
    """The same days in SQL."""
    lake.read(TRAFFIC_HOURLY).createOrReplaceTempView("traffic")
    return _days_written(lake, lake.spark.sql(statement("days_spark")))


def _days_written(lake: Lake, rows: WorkerRows | DataFrame) -> dict[str, int]:
    done = lake.commit(rows, DAYS, Change("overwrite"))
    [messages, middle_us] = lake.read(DAYS).agg(F.sum("messages"), F.sum("p50_us")).first() or (0, 0)
    return {"days": done.rows, "messages": messages or 0, "p50_us": middle_us or 0}


def senders_in_kernel(lake: Lake) -> dict[str, int]:
    """Senders who did too much in an hour, as `abuse` counts them, without their evidence."""
    return _suspects(suspects(lake.read_in_workers(SILVER_MDR, columns=MESSAGE)).frame(SUSPECTS))


def senders_in_sql(lake: Lake) -> dict[str, int]:
    """The same senders in SQL."""
    lake.read(SILVER_MDR).createOrReplaceTempView("records")
    return _suspects(suspects_in_sql(lake.spark))


def suspects_in_sql(spark: SparkSession) -> DataFrame:
    """Rows of `SUSPECTS`, out of the view `records`."""
    return spark.sql(statement("senders_spark"), args=LIMITS)


def _suspects(found: DataFrame) -> dict[str, int]:
    rows = found.toArrow()
    return {"suspects": rows.num_rows, "attempts": sum(rows.column("attempts").to_pylist())}


def messages_in_kernel(lake: Lake) -> dict[str, int]:
    """Every message of both sides gets its class, as level two of `reconcile` does it, but clocks and proofs."""
    version = lake.version(SILVER_MDR)
    days = {file.partition["dt"] for file in lake.files(SILVER_MDR)}
    domains = {one for [one] in lake.read(SILVER_MDR).select("our_domain").distinct().collect()}
    entries = entries_of_days(lake, version, days, columns=ALL, domains=domains)
    return _pairs_written(lake, pairs_in_kernel(lake.spark, entries, days, domains))


def pairs_in_kernel(spark: SparkSession, entries: WorkerRows, days: set[str], domains: set[str]) -> WorkerRows:
    """Rows of `recon_pair`, all of level two: no clock says anything, and everybody's records are complete."""
    known = dict.fromkeys(domains, Completeness(0, UNTIL_US, proof="the benchmark"))
    clocks = ClockTables(*(to_arrow_schema(one).empty_table() for one in (PAIR_DELAY, CLOCK_OFFSET.schema)))
    found = judged(entries, Judging(frozenset(days), clocks, known, 0, 0))
    schema = [field for field in RECON_BUCKET.schema.fields if field.name in BUCKET_COUNTS]
    nothing = spark.createDataFrame([], type(RECON_BUCKET.schema)(schema))
    return pair_counts(found, equal_totals(rows_of(nothing, BUCKET_COUNTS)), known)


def messages_in_sql(lake: Lake) -> dict[str, int]:
    """The same messages in SQL, which does somewhat less."""
    lake.read(SILVER_MDR).createOrReplaceTempView("records")
    return _pairs_written(lake, pairs_in_sql(lake.spark))


def pairs_in_sql(spark: SparkSession) -> DataFrame:
    """Rows of `recon_pair`, out of the view `records`."""
    return spark.sql(statement("messages_spark"), args={"until_us": UNTIL_US})


def _pairs_written(lake: Lake, rows: WorkerRows | DataFrame) -> dict[str, int]:
    lake.commit(rows, PAIRS, Change("overwrite"))
    sums = lake.read(PAIRS).agg(*(F.sum(name) for name in COUNTED)).first() or ()
    found = dict(zip(COUNTED, sums, strict=False))
    return {name: found[name] for name in ("sent", "received", *CLASSES) if found.get(name)}
