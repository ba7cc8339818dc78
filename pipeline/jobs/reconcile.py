"""The job that holds two books against each other: all of a lake, or our own and what a partner has sent us.

Clocks come first, from a sample of matched messages; then totals per domain pair and 5 minutes; then records, only
where totals differ. A day is done again while messages of it are pending, or when its records have changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.book_totals import BUCKET_US
from pipeline.clock_graph import Delay, solve_offsets
from pipeline.jobs.proofs import GRACE_S, completeness_frame, proved_completeness
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.local_rows import local_frame
from pipeline.schemas import (
    CLOCK_OFFSET,
    PAIR_DELAY,
    RECON_BUCKET,
    RECON_CASE,
    RECON_PAIR,
    SEGMENTS,
    SILVER_MDR,
    Table,
)
from pipeline.tables import Lake
from pipeline.transforms.books import book, may_be_sent_between
from pipeline.transforms.clocks import Clocks, matched_times, pair_delays
from pipeline.transforms.evidence import cases_with_evidence
from pipeline.transforms.reconcile import (
    CASES,
    PAIR,
    both_totals,
    compare,
    disputed,
    judge,
    message_by_message,
    pair_counts,
)

SKEW_MS: Final = 1_000
"""Ten times what clocks that follow NTP over the internet differ by, and less than anybody would overlook."""
CLOCK_SAMPLE: Final = 400_000
"""Records of a day above which clocks are judged by a sample of about this size."""
FEW_BUCKETS: Final = 200_000
"""So many keys of buckets, some 30 MB, every worker can hold."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What reconciliation allows for."""

    grace_us: int
    skew_us: int


@dataclass(frozen=True, slots=True)
class Books:
    """Two sides, whatever they come from. `sides` are the totals of both, see `transforms.reconcile`."""

    out_book: DataFrame
    in_book: DataFrame
    sides: DataFrame
    completeness: DataFrame


def run(
    lake: Lake,
    spark: SparkSession,
    *,
    day: str | None = None,
    grace_s: int = GRACE_S,
    skew_ms: int = SKEW_MS,
    declared: Mapping[str, int] | None = None,
    allowed: int = 0,
) -> JobResult:
    """Reconcile all pairs of domains of both of which the lake has books.

    Args:
        lake: Reads `silver_mdr` and `segments`; writes `recon_bucket`, `recon_case`, `recon_pair`, `clock_offset`.
        spark: The session.
        day: `YYYY-MM-DD`, UTC; None takes every day that has changed or has messages pending.
        grace_s: How long after its own time a message may get into the other side's book.
        skew_ms: How far beyond the usual the times of both records may be apart.
        declared: Until when the operator vouches for a node that is silent, in µs.
        allowed: Cases, without pending ones, that are no reason to end with FINDINGS.

    Returns:
        `findings` counts cases without pending ones. Ends with INCOMPLETE when the day that was asked for has no
        records, or messages pending.

    Raises:
        LakeError: As the lake does.
    """
    result = JobResult("reconcile")
    silver_version = lake.version(SILVER_MDR)
    result.versions[SILVER_MDR.name] = silver_version
    inputs = _inputs_by_day(lake, silver_version)
    days = [one for one in inputs if one == day] if day is not None else _unsettled(lake, inputs)
    if not days:
        result.details = {"days": [], **dict.fromkeys(CASES, 0)}
        if day is not None:
            result.warnings.append(f"no records of {day}")
            result.exit_code = ExitCode.INCOMPLETE
        return result
    with result.timed("proofs"):
        proved = proved_completeness(lake, silver_version=silver_version, declared=declared)
    silver = lake.read(SILVER_MDR, silver_version)
    out_book, in_book = (book_of_days(silver, role, days, domains=proved) for role in ("out", "in"))
    with result.timed("clocks"):
        one_in = max(1, _rows_of(lake, silver_version, days) // (CLOCK_SAMPLE * len(days)))
        clocks = write_clocks(lake, spark, result, pair_delays(matched_times(out_book, in_book, one_in=one_in)), days)
    sides = of_days(both_totals(out_book, in_book), days)
    books = Books(out_book, in_book, sides, completeness_frame(spark, proved))
    meta = {"input_versions": {SILVER_MDR.name: silver_version}, "inputs": {one: inputs[one] for one in days}}
    bounds = Bounds(grace_s * 1_000_000, skew_ms * 1_000)
    hold_together(lake, result, books, clocks, days, bounds, meta=meta, domains=proved)
    conclude(result, day=day, allowed=allowed)
    return result


def hold_together(
    lake: Lake,
    result: JobResult,
    books: Books,
    clocks: Clocks,
    days: Collection[str],
    bounds: Bounds,
    *,
    meta: Mapping[str, object],
    domains: Collection[str],
) -> None:
    """Both levels, and what they find into the lake. What is there about pairs of other `domains` stays."""

    def write(rows: DataFrame, table: Table) -> None:
        is_other = ~(F.col("src_domain").isin(*domains) & F.col("dst_domain").isin(*domains))
        version = lake.version(table)
        kept = lake.read(table, version).where(F.col("dt").isin(*days) & is_other)
        replace_days(lake, result, rows.unionByName(kept), table, days, meta)

    with result.timed("totals"):
        buckets = compare(books.sides, clocks, skew_us=bounds.skew_us).persist()
        ours = F.col("dt").isin(*days)
        write(buckets.where(ours), RECON_BUCKET)
    with result.timed("records"):
        are_few = buckets.where(~F.col("is_equal")).count() <= FEW_BUCKETS
        out_records, in_records = (disputed(one, buckets, are_few=are_few) for one in (books.out_book, books.in_book))
        messages = message_by_message(out_records, in_records)
        judged = judge(messages, clocks, books.completeness, grace_us=bounds.grace_us, skew_us=bounds.skew_us).where(
            ours
        )
        judged = judged.persist()
        write(cases_with_evidence(judged, lake.read(SEGMENTS)), RECON_CASE)
        # Last, because it says of which records this is the outcome.
        write(pair_counts(buckets.where(ours), judged, books.completeness), RECON_PAIR)
    judged.unpersist()
    buckets.unpersist()
    result.details |= {"days": sorted(days)} | _sums(lake, days, domains)


def write_clocks(
    lake: Lake, spark: SparkSession, result: JobResult, delays: DataFrame, days: Collection[str]
) -> Clocks:
    """Solve each day's clocks and write them."""
    rows = [row.asDict() for row in delays.collect()]
    offsets = []
    for day in sorted(days):
        of_day = [
            Delay(row["src_domain"], row["dst_domain"], row["low_us"], row["messages"])
            for row in rows
            if row["dt"] == day
        ]
        offsets += [(*astuple(offset), day) for offset in solve_offsets(of_day)]
    frame = local_frame(spark, offsets, CLOCK_OFFSET.schema)
    replace_days(lake, result, frame, CLOCK_OFFSET, days, {})
    known = local_frame(spark, [tuple(row[name] for name in PAIR_DELAY.names) for row in rows], PAIR_DELAY)
    return Clocks(known, frame)


def conclude(result: JobResult, *, day: str | None, allowed: int) -> None:
    """Count findings and choose the exit code."""
    result.findings = sum(result.details[word] for word in CASES if word != "pending")
    told = [("matched", result.details["matched"]), *((word, result.details[word]) for word in CASES)]
    result.outcome = ", ".join(f"{count:,} {word}" for word, count in told if count or word in {"matched", "lost"})
    if result.findings > allowed:
        result.exit_code = ExitCode.FINDINGS
    if day is not None and result.details["pending"]:
        result.exit_code = ExitCode.INCOMPLETE
        result.warnings.append(f"{result.details['pending']} messages are pending: a book is not proved complete yet")


def replace_days(
    lake: Lake, result: JobResult, rows: DataFrame, table: Table, days: Collection[str], meta: Mapping[str, object]
) -> None:
    """One commit that replaces these days of a table."""
    done = lake.commit(rows, table, "replace_partitions", partitions=days, meta=meta)
    result.wrote(done.table, done.rows, done.version)


def book_of_days(silver: DataFrame, role: str, days: Collection[str], *, domains: Collection[str]) -> DataFrame:
    """The book of messages of these days, 5 minutes before and after, and some others, between domains with books.

    A record may stand under the day before or after that of its message: clocks are wrong and messages wait. A message
    whose id tells no time may fall into neighbouring buckets of the two books, hence the 5 minutes.
    """
    first, last = _midnight(min(days)), _midnight(max(days)) + timedelta(days=1)
    near = [(first + timedelta(days=number)).strftime("%Y-%m-%d") for number in range(-1, (last - first).days + 1)]
    has_books = F.col("src_domain").isin(*domains) & F.col("dst_domain").isin(*domains)
    is_near = may_be_sent_between(_micros(first) - BUCKET_US, _micros(last) + BUCKET_US - 1)
    return book(silver.where(F.col("dt").isin(*near) & is_near & has_books), role)


def of_days(totals: DataFrame, days: Collection[str]) -> DataFrame:
    """Totals of these days, and of 5 minutes before and after."""
    first, last = _midnight(min(days)), _midnight(max(days)) + timedelta(days=1)
    return totals.where(F.col("bucket_us").between(_micros(first) - BUCKET_US, _micros(last)))


def _sums(lake: Lake, days: Collection[str], domains: Collection[str]) -> dict[str, int]:
    names = ("sent", "received", "matched", "refused", *CASES, "undelivered")
    rows = lake.read_small(RECON_PAIR, columns=[*names, *PAIR, "dt"]).to_pylist()
    meant = [row for row in rows if row["dt"] in days and {row["src_domain"], row["dst_domain"]} <= set(domains)]
    return {name: sum(row[name] for row in meant) for name in names}


def _inputs_by_day(lake: Lake, silver_version: int) -> dict[str, str]:
    """For each day with records a fingerprint of the files with records of it and of the days beside it."""
    paths: dict[str, list[str]] = {}
    for file in lake.files(SILVER_MDR, silver_version):
        paths.setdefault(file.partition["dt"], []).append(file.path)
    prints = {}
    for day in sorted(paths):
        near = [(_midnight(day) + timedelta(days=number)).strftime("%Y-%m-%d") for number in (-1, 0, 1)]
        files = sorted(path for one in near for path in paths.get(one, ()))
        prints[day] = sha256("\n".join(files).encode()).hexdigest()
    return prints


def _unsettled(lake: Lake, inputs: Mapping[str, str]) -> list[str]:
    """Days whose records have changed since they were reconciled, or with messages that were pending then."""
    done: dict[str, str] = {}
    for note in lake.history(RECON_PAIR):
        done = note.meta.get("inputs", {}) | done
    pending = {
        row["dt"] for row in lake.read_small(RECON_PAIR, columns=["dt", "pending"]).to_pylist() if row["pending"]
    }
    return [day for day, files in inputs.items() if done.get(day) != files or day in pending]


def _rows_of(lake: Lake, version: int, days: Collection[str]) -> int:
    return sum(file.rows for file in lake.files(SILVER_MDR, version) if file.partition["dt"] in days)


def _midnight(day: str) -> datetime:
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
