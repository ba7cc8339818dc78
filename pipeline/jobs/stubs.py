"""Job `stubs`: health of stub versions, and whether the newest one is worse than the one before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.jobs.result import ExitCode, JobResult
from pipeline.regression import SMALLEST_EFFECT, HourOfStub, compare
from pipeline.schemas import BRONZE_STUB_EVENT, SILVER_MDR, STUB_HOURLY, STUB_LIFE, STUB_REGRESSION
from pipeline.tables import Lake
from pipeline.transforms.stubs import stub_hourly, stub_life

APP: Final = "stubs"


def run(
    lake: Lake,
    spark: SparkSession,
    *,
    baseline: str = "",
    candidate: str = "",
    smallest_effect: float = SMALLEST_EFFECT,
) -> JobResult:
    """Refresh the health tables and compare versions.

    Args:
        lake: The lake, with refined records.
        spark: The session of the lake.
        baseline: Beginning of the version to compare with; empty: the version before the candidate.
        candidate: Beginning of the version to judge; empty: the one that was seen first most recently, of each peer.
        smallest_effect: Relative difference that matters.
    """
    del spark  # the lake has it; every job is called alike
    result = JobResult(APP)
    silver_version = lake.version(SILVER_MDR)
    meta = {"input": {SILVER_MDR.name: silver_version}}
    with result.timed("health"):
        hourly = lake.commit(stub_hourly(lake.read(SILVER_MDR)), STUB_HOURLY, "overwrite", meta=meta)
        result.wrote(STUB_HOURLY.name, hourly.rows, hourly.version)
        life = lake.commit(stub_life(lake.read(BRONZE_STUB_EVENT)), STUB_LIFE, "overwrite", meta=meta)
        result.wrote(STUB_LIFE.name, life.rows, life.version)
    with result.timed("compare"):
        rows = list(_comparisons(lake, baseline, candidate, smallest_effect))
        table = pa.Table.from_pylist(rows, schema=to_arrow_schema(STUB_REGRESSION.schema))
        written = lake.commit(table, STUB_REGRESSION, "overwrite", meta=meta)
        result.wrote(STUB_REGRESSION.name, written.rows, written.version)
    worse = [row for row in rows if row["verdict"] == "worse"]
    result.findings = len(worse)
    result.warnings += [
        f"{row['peer_domain']}: version {str(row['candidate'])[:10]} is worse than {str(row['baseline'])[:10]} in "
        f"{row['measure']}, {row['ratio']:.2f} times ({row['low']:.2f} to {row['high']:.2f})"
        for row in worse
    ]
    if (baseline or candidate) and not rows:
        result.warnings.append("no peer has carried messages with both versions")
        result.exit_code = ExitCode.INCOMPLETE
    elif worse:
        result.exit_code = ExitCode.FINDINGS
    return result


def _comparisons(lake: Lake, baseline: str, candidate: str, effect: float) -> Iterator[dict[str, object]]:
    """One row per peer and measure."""
    days = F.max("dt").alias("dt")
    peers = lake.read(STUB_HOURLY).groupBy("peer_domain", "stub_ver").agg(F.min("hour_us").alias("first"), days)
    by_peer: dict[str, list[tuple[int, str, str]]] = {}
    for row in peers.orderBy("peer_domain", "first", "stub_ver").collect():
        by_peer.setdefault(row["peer_domain"], []).append((row["first"], row["stub_ver"], row["dt"]))
    for peer_domain, versions in by_peer.items():
        pair = _pair([version for _, version, _ in versions], baseline, candidate)
        if pair is None:
            continue
        for found in compare(_hours(lake, peer_domain, pair), *pair, smallest_effect=effect):
            yield {
                "peer_domain": peer_domain,
                "baseline": pair[0],
                "candidate": pair[1],
                "measure": found.measure,
                "baseline_value": found.baseline_value,
                "candidate_value": found.candidate_value,
                "ratio": found.ratio,
                "low": found.low,
                "high": found.high,
                "strata": found.strata,
                "messages": found.messages,
                "verdict": found.verdict,
                "dt": max(dt for _, _, dt in versions),
            }


def _pair(versions: list[str], baseline: str, candidate: str) -> tuple[str, str] | None:
    """Baseline and candidate among versions in the order in which they were first seen."""
    new = next((version for version in reversed(versions) if version.startswith(candidate)), None)
    if new is None:
        return None
    older = [version for version in versions if version != new and version.startswith(baseline)]
    if not baseline:
        older = [version for version in older if versions.index(version) < versions.index(new)]
    return (older[-1], new) if older else None


def _hours(lake: Lake, peer_domain: str, pair: Iterable[str]) -> Iterator[HourOfStub]:
    """What both versions met, over all our nodes."""
    rows = lake.read(STUB_HOURLY).where((F.col("peer_domain") == peer_domain) & F.col("stub_ver").isin(*pair))
    for row in rows.orderBy("stub_ver", "hour_us", "msg_type", "size_class", "our_domain").toLocalIterator():
        yield HourOfStub(
            stub_ver=row["stub_ver"],
            hour_us=row["hour_us"],
            stratum=(row["msg_type"] or "", row["size_class"] or 0),
            messages=row["messages"],
            failed=row["failed"],
            traps=row["traps"],
            latency=row["latency"] or {},
            fuel=row["fuel"] or {},
        )
