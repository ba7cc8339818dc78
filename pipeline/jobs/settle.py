"""The job that writes statements: by hour as a working paper, by day as something that is signed off once.

A day is `draft` until the manifests of all nodes of our domain prove that nothing of it is missing, with some grace.
It is `final` once. When later data changes a final day, it is `restated` under the next version, and only when somebody
says so. Drafts are replaced, everything else is kept: the statements of a day are one partition, and each change of it
is one commit that names the versions that it was made from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.completeness import NOTHING, Completeness
from pipeline.hours import RECORD
from pipeline.jobs.proofs import GRACE_S, proved_completeness
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.local_rows import local_frame
from pipeline.schemas import INT, LONG, SILVER_MDR, STATEMENT_BOOK, STATEMENT_DAILY, TEXT, TRAFFIC_HOURLY
from pipeline.set_digests import MEMBER, WHOSE
from pipeline.statements import canonical_statements
from pipeline.tables import Lake
from pipeline.transforms.settle import SET_DIGEST, set_digests, settle_daily, settle_hourly

_WHOSE: Final = pa.schema(dict.fromkeys(WHOSE, pa.string()))
_KEY: Final = ("our_domain", "src_domain", "dst_domain", "role", "dt")


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest version of one domain's statements of one day, and whether today's records say something else."""

    our_domain: str
    day: str
    status: str | None
    version: int
    complete_until_us: int
    is_changed: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one domain's statements of one day."""

    our_domain: str
    day: str
    status: str
    version: int


def run(
    lake: Lake,
    spark: SparkSession,
    *,
    day: str | None = None,
    restate: bool = False,
    grace_s: int = GRACE_S,
    declared: Mapping[str, int] | None = None,
) -> JobResult:
    """Write the statements of one day, or of all days whose records have changed or whose proofs have grown.

    Args:
        lake: Reads `silver_mdr` and `segments`; writes `traffic_hourly` and `statement_daily`.
        spark: The session.
        day: `YYYY-MM-DD`, UTC.
        restate: Whether a final day that has changed gets a new version; otherwise it is a finding.
        grace_s: How far beyond midnight proofs must reach before a day is final.
        declared: Until when the operator vouches for a node that is silent, in µs.

    Returns:
        Ends with FINDINGS when a final day has changed and was not restated, with INCOMPLETE when the day that was
        asked for stays a draft or has no records.

    Raises:
        LakeError: As the lake does.
    """
    result = JobResult("settle")
    silver_version = lake.version(SILVER_MDR)
    result.versions[SILVER_MDR.name] = silver_version
    inputs = _files_by_day(lake, silver_version)
    days = sorted(inputs) if day is None else [one for one in (day,) if one in inputs]
    if not days:
        result.warnings.append(f"no records of {day}" if day else "no records")
        result.exit_code = ExitCode.INCOMPLETE
        return result
    with result.timed("hourly"):
        stale = {one: inputs[one] for one in days if _settled_files(lake).get(one) != inputs[one]}
        if stale:
            silver = lake.read_in_workers(SILVER_MDR, silver_version, columns=RECORD, partitions=stale)
            meta = {"input_version": silver_version, "inputs": stale}
            done = lake.commit(settle_hourly(silver), TRAFFIC_HOURLY, "replace_partitions", partitions=stale, meta=meta)
            result.wrote(done.table, done.rows, done.version)
    with result.timed("proofs"):
        proved = proved_completeness(lake, silver_version=silver_version, declared=declared)
    with result.timed("daily"):
        _settle_days(lake, spark, result, days, proved, restate=restate, grace_s=grace_s)
    if day is not None and result.details["draft"]:
        result.exit_code = max(result.exit_code, ExitCode.INCOMPLETE)
    return result


def export_statements(lake: Lake, day: str, *, version: int | None = None) -> bytes:
    """The statements of a day as sorted JSON lines: the newest of each domain, or those of one version."""
    rows = lake.read(STATEMENT_DAILY).where(F.col("dt") == day)
    if version is None:
        newest = rows.groupBy(*WHOSE).agg(F.max("version").alias("version"))
        rows = rows.join(newest, on=[*WHOSE, "version"], how="left_semi")
    else:
        rows = rows.where(F.col("version") == version)
    return canonical_statements(row.asDict() for row in rows.collect())


def decide(standing: Standing, *, until_us: int, grace_s: int, restate: bool) -> Decision | None:
    """What is to be written for one domain and day; None leaves it as it is.

    Args:
        standing: What is written now.
        until_us: Until when the domain's book is proved complete.
        grace_s: How far beyond midnight that must be.
        restate: Whether a final statement may get a successor.
    """
    decision = partial(Decision, standing.our_domain, standing.day)
    if standing.status is None or standing.status == "draft":
        if until_us >= _end_us(standing.day) + grace_s * 1_000_000:
            return decision("final", 1)
        is_stale = standing.is_changed or standing.complete_until_us != until_us
        return decision("draft", 1) if is_stale else None
    if standing.is_changed and restate:
        return decision("restated", standing.version + 1)
    return None


def _settle_days(
    lake: Lake,
    spark: SparkSession,
    result: JobResult,
    days: Collection[str],
    proved: Mapping[str, Completeness],
    *,
    restate: bool,
    grace_s: int,
) -> None:
    base_version, hourly_version = lake.version(STATEMENT_DAILY), lake.version(TRAFFIC_HOURLY)
    is_asked = F.col("dt").isin(*days)
    books = settle_daily(lake.read(TRAFFIC_HOURLY, hourly_version).where(is_asked)).persist()
    kept = lake.read(STATEMENT_DAILY, base_version).where(is_asked)
    standings = _standings(books, kept)
    decisions = []
    for one in standings:
        until_us = proved.get(one.our_domain, NOTHING).until_us
        decision = decide(one, until_us=until_us, grace_s=grace_s, restate=restate)
        if decision is not None:
            decisions.append(decision)
        elif one.is_changed:
            result.findings += 1
            result.warnings.append(
                f"{one.our_domain} {one.day}: the records have changed since the statement was {one.status} "
                f"(version {one.version}); look at `audit`, then settle this day with --restate"
            )
    if decisions:
        rows = _statements(lake, spark, books, decisions, proved, silver_version=result.versions[SILVER_MDR.name])
        replaced = local_frame(spark, [(one.our_domain, one.day, one.version) for one in decisions], _VERSION_OF)
        unchanged = kept.join(F.broadcast(replaced), on=[*WHOSE, "version"], how="left_anti")
        affected = sorted({one.day for one in decisions})
        done = lake.commit(
            unchanged.where(F.col("dt").isin(*affected)).unionByName(rows),
            STATEMENT_DAILY,
            "replace_partitions",
            partitions=affected,
            base_version=base_version if base_version >= 0 else None,
            meta={
                "input_versions": {
                    SILVER_MDR.name: result.versions[SILVER_MDR.name],
                    TRAFFIC_HOURLY.name: hourly_version,
                },
                "days": affected,
                "restated": sorted({one.day for one in decisions if one.status == "restated"}),
            },
        )
        result.wrote(done.table, done.rows, done.version)
    books.unpersist()
    _tell_states(result, standings, decisions)


def _tell_states(result: JobResult, standings: Collection[Standing], decisions: Collection[Decision]) -> None:
    status = {(one.our_domain, one.day): one.status for one in standings}
    status |= {(one.our_domain, one.day): one.status for one in decisions}
    for word in ("draft", "final", "restated"):
        result.details[word] = sum(one == word for one in status.values())
    if result.findings:
        result.exit_code = ExitCode.FINDINGS


def _standings(books: DataFrame, kept: DataFrame) -> list[Standing]:
    """How what is written compares with what the records say now, for each domain and day of either."""
    newest = kept.groupBy(*WHOSE).agg(
        F.max_by(F.struct("version", "status", "complete_until_us"), "version").alias("newest")
    )
    latest = kept.join(newest, on=list(WHOSE), how="inner").where(F.col("version") == F.col("newest.version"))
    sides = _fingerprints(books, "now").join(_fingerprints(latest, "then"), on=list(_KEY), how="full")
    changed = sides.groupBy(*WHOSE).agg(F.max(~F.col("now").eqNullSafe(F.col("then"))).alias("is_changed"))
    rows = changed.join(newest, on=list(WHOSE), how="left").select(*WHOSE, "is_changed", "newest.*").collect()
    found = [
        Standing(row.our_domain, row.dt, row.status, row.version or 0, row.complete_until_us or 0, row.is_changed)
        for row in rows
    ]
    return sorted(found, key=lambda one: (one.day, one.our_domain))


def _fingerprints(books: DataFrame, name: str) -> DataFrame:
    """One hash over everything that each statement says; maps in the order of their keys."""
    maps = {"outcomes", "denials", "latency"}
    said = (
        (F.array_sort(F.map_entries(one)) if one in maps else F.col(one)).alias(one)
        for one in STATEMENT_BOOK.fieldNames()
    )
    return books.select(*_KEY, F.sha2(F.to_json(F.struct(*said)), 256).alias(name))


_VERSION_OF: Final = StructType([StructField("our_domain", TEXT), StructField("dt", TEXT), StructField("version", INT)])
_DECISION: Final = StructType([*_VERSION_OF, StructField("status", TEXT), StructField("complete_until_us", LONG)])


def _statements(
    lake: Lake,
    spark: SparkSession,
    books: DataFrame,
    decisions: Collection[Decision],
    proved: Mapping[str, Completeness],
    *,
    silver_version: int,
) -> DataFrame:
    told = [
        (one.our_domain, one.day, one.version, one.status, proved.get(one.our_domain, NOTHING).until_us)
        for one in decisions
    ]
    rows = books.join(F.broadcast(local_frame(spark, told, _DECISION)), on=list(WHOSE), how="inner")
    signed_off = [(one.our_domain, one.day) for one in decisions if one.status != "draft"]
    days = {day for _, day in signed_off}
    records = lake.read_in_workers(SILVER_MDR, silver_version, columns=MEMBER, partitions=days)
    theirs = pa.Table.from_pylist([dict(zip(WHOSE, one, strict=True)) for one in signed_off], schema=_WHOSE)
    digests = set_digests(records, theirs).frame(SET_DIGEST)
    digest = F.when(F.col("status") != "draft", F.coalesce("set_digest", F.lit(sha256(b"").hexdigest())))
    return (
        rows.join(digests, on=list(_KEY), how="left")
        .withColumn("set_digest", digest)
        .withColumn("input_version", F.lit(silver_version))
        .select(*STATEMENT_DAILY.schema.fieldNames())
    )


def _files_by_day(lake: Lake, silver_version: int) -> dict[str, str]:
    """For each day with records a fingerprint of the files that hold them."""
    paths: dict[str, list[str]] = {}
    for file in lake.files(SILVER_MDR, silver_version):
        paths.setdefault(file.partition["dt"], []).append(file.path)
    return {day: sha256("\n".join(sorted(its)).encode()).hexdigest() for day, its in paths.items()}


def _settled_files(lake: Lake) -> dict[str, str]:
    """For each day the fingerprint of the files that its hourly statements were made from."""
    settled: dict[str, str] = {}
    for note in lake.history(TRAFFIC_HOURLY):
        settled = note.meta.get("inputs", {}) | settled
    return settled


def _end_us(day: str) -> int:
    """Midnight after a day, in µs."""
    midnight = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    return int(midnight.timestamp()) * 1_000_000
