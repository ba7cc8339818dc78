"""Job `abuse`: what is usual for each peer, and who behaved badly."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.jobs.result import ExitCode, JobResult
from pipeline.schemas import ALERT, BRONZE_LINK_EVENT, DOMAIN_BASELINE, SILVER_MDR, TRAFFIC_HOURLY
from pipeline.tables import Lake
from pipeline.transforms.abuse import alerts
from pipeline.transforms.baselines import baselines, hourly_incoming

APP: Final = "abuse"


def run(lake: Lake, spark: SparkSession, *, allowed: int = 0) -> JobResult:
    """Refresh baselines and alerts from settled and refined records.

    Args:
        lake: The lake.
        spark: The session of the lake.
        allowed: Alerts that are no reason to end with FINDINGS.
    """
    del spark  # the lake has it; every job is called alike
    result = JobResult(APP)
    meta = {"input": {table.name: lake.version(table) for table in (SILVER_MDR, BRONZE_LINK_EVENT, TRAFFIC_HOURLY)}}
    hourly = hourly_incoming(lake.read(TRAFFIC_HOURLY))
    with result.timed("baselines"):
        usual = lake.commit(baselines(hourly), DOMAIN_BASELINE, "overwrite", meta=meta)
        result.wrote(DOMAIN_BASELINE.name, usual.rows, usual.version)
    with result.timed("alerts"):
        events = lake.read(BRONZE_LINK_EVENT)
        found = alerts(lake.read(SILVER_MDR), events, hourly, lake.read(DOMAIN_BASELINE))
        written = lake.commit(found, ALERT, "overwrite", meta=meta)
        result.wrote(ALERT.name, written.rows, written.version)
    counts = lake.read(ALERT).groupBy("pattern").agg(F.count("*").alias("alerts")).orderBy("pattern").collect()
    result.details["alerts"] = {row["pattern"]: row["alerts"] for row in counts}
    result.findings = written.rows
    result.outcome = f"{usual.rows:,} baselines"
    result.warnings += [f"{row['alerts']} × {row['pattern']}" for row in counts]
    if written.rows > allowed:
        result.exit_code = ExitCode.FINDINGS
    if not lake.has(TRAFFIC_HOURLY):
        result.warnings.append("nothing is settled yet, so floods cannot be judged: run `settle` first")
        result.exit_code = ExitCode.INCOMPLETE
    return result
