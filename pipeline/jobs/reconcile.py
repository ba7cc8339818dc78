"""The job that compares the records of two sides: all of a lake, or our own and what a partner has sent us.

Clocks come first, from a sample of matched messages; then totals per domain pair and 5 minutes; then records, only
where totals differ. A day is done again while messages of it are pending, when its records have changed, or when some
of it are unprovable and more is proved now.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.clock_course import clock_findings, filled, finding_line, offsets_by_hour
from pipeline.core.clock_graph import Delay
from pipeline.core.clock_tables import HOUR_US, TIMES, ClockTables
from pipeline.core.completeness import GRACE_S, Completeness
from pipeline.core.conditions import Condition
from pipeline.core.findings import Verdict
from pipeline.core.groups import words
from pipeline.core.message_classes import CASES, Judging, Spans
from pipeline.core.side_records import ALL, BUCKET_US, DAY_US, FEW, Chosen, entries_of, of_others
from pipeline.core.side_totals import BUCKET_COUNTS, PAIR
from pipeline.core.utc_days import end_us
from pipeline.day_state import done_inputs, inputs_by_day, note_done
from pipeline.file_pieces import Reading
from pipeline.jobs.proofs import proved_completeness
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.schemas import (
    CLOCK_FINDING,
    CLOCK_OFFSET,
    PAIR_DELAY,
    RECON_BUCKET,
    RECON_CASE,
    RECON_PAIR,
    SEGMENTS,
    SILVER_MDR,
    Table,
)
from pipeline.stages import StagedFile
from pipeline.tables import Change, Lake
from pipeline.transforms.clocks import pair_delays, sampled
from pipeline.transforms.reconcile import (
    DIFFERENT,
    ENTRY,
    both_totals,
    cases,
    compared,
    disputed,
    equal_totals,
    in_few_buckets,
    judged,
    pair_counts,
)
from pipeline.worker_rows import Batches, WorkerRows, rows_in_files, rows_of
from protofly.records import Kind

APP: Final = "reconcile"
SKEW_MS: Final = 1_000
"""Ten times what clocks that follow NTP over the internet differ by, and less than anybody would overlook."""
CLOCK_SAMPLE: Final = 400_000
"""Records of a day above which clocks are judged by a sample of about this size."""
PROOF_DAYS: Final = 7
"""How long after a message a missing proof is waited for, by the newest segment: then its day is closed."""
_OPEN: Final = ("pending", "unprovable")
"""Classes that blame nobody."""
FEW_BUCKETS: Final = 200_000
"""So many keys of buckets, some 30 MB, every worker can hold."""
_ONE_DOMAIN: Final = (
    "the lake has records of one domain only: ingest a partner's spool, or exchange extracts (`export`, `import`)"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What reconciliation allows for."""

    grace_us: int
    skew_us: int


@dataclass(frozen=True, slots=True)
class BothSides:
    """Two sides, whatever they come from.

    Attributes:
        entries: Records of both sides, of any outcome, at least of the days in question.
        sides: Totals of both, see `transforms.reconcile`.
        completeness: What is proved about each domain's records.
    """

    entries: WorkerRows
    sides: WorkerRows
    completeness: Mapping[str, Completeness]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared, and by which bounds.

    Attributes:
        both: What is compared.
        clocks: What the records' times usually differ by.
        days: Only messages of these, each `YYYY-MM-DD`.
        bounds: What is allowed for.
        domains: Only pairs of these; what the tables hold about others stays.
    """

    both: BothSides
    clocks: ClockTables
    days: Collection[str]
    bounds: Bounds
    domains: Collection[str]


def run(
    lake: Lake,
    *,
    day: str | None = None,
    grace_s: int = GRACE_S,
    skew_ms: int = SKEW_MS,
    declared: Mapping[str, int] | None = None,
    allowed: int = 0,
) -> JobResult:
    """Reconcile all pairs of domains if the lake has records of both.

    Args:
        lake: Reads `silver_mdr` and `segments`; writes `recon_bucket`, `recon_case`, `recon_pair`, `clock_offset` and
            `clock_finding`.
        day: `YYYY-MM-DD`, UTC; None takes every day that has changed, has messages pending, or has unprovable ones and
            is proved further now.
        grace_s: How long after its own time a message may be recorded by the other side.
        skew_ms: How far beyond the usual the times of both records may be apart.
        declared: Until when the operator vouches for a node that is silent, in µs.
        allowed: Cases, without pending and unprovable ones, that are no reason to end with FINDINGS.

    Returns:
        `findings` counts cases without pending and unprovable ones. Ends with INCOMPLETE when the day that was asked
        for has no records, or messages pending.

    Raises:
        LakeError: As the lake does.
    """
    result = JobResult("reconcile")
    silver_version = lake.version(SILVER_MDR)
    result.versions[SILVER_MDR.name] = silver_version
    inputs = _inputs_by_day(lake, silver_version)
    with result.timed("proofs"):
        proved = proved_completeness(lake, declared=declared) if inputs else {}
    chosen = {day} if day is not None else _unsettled(lake, inputs) | _proved_since(lake, proved)
    days = [one for one in inputs if one in chosen]
    if not days:
        result.details = {"days": [], **dict.fromkeys(CASES, 0)}
        if day is not None:
            result.warnings.append(f"no records of {day}")
            result.exit_code = ExitCode.INCOMPLETE
        return result
    with result.timed("clocks"):
        one_in = max(1, _rows_of(lake, silver_version, days) // (CLOCK_SAMPLE * len(days)))
        times = entries_of_days(lake, silver_version, days, columns=TIMES, domains=proved, one_in=one_in)
        delays = pair_delays(times).frame(PAIR_DELAY).toArrow()
        clocks = write_clocks(lake, result, delays, days)
    compared_of = entries_of_days(lake, silver_version, days, columns=FEW, domains=proved)
    entries = entries_of_days(lake, silver_version, days, columns=ALL, domains=proved)
    both = BothSides(entries, both_totals(compared_of), proved)
    meta = {"input_versions": {SILVER_MDR.name: silver_version}}
    bounds = Bounds(grace_s * 1_000_000, skew_ms * 1_000)
    hold_together(lake, result, Comparison(both, clocks, days, bounds, proved), meta)
    note_done(lake, APP, {one: inputs[one] for one in days})
    conclude(result, day=day, allowed=allowed)
    if len(proved) < 2:
        result.outcome = "nothing to compare with"
        result.warnings.append(_ONE_DOMAIN)
    return result


def hold_together(lake: Lake, result: JobResult, of: Comparison, meta: Mapping[str, object]) -> None:
    """Compare at both levels, write the findings into the lake with `meta`, and add them to the result."""
    both, clocks, days, bounds = of.both, of.clocks, of.days, of.bounds
    files: dict[str, list[StagedFile]] = {}

    def staged(rows: WorkerRows, table: Table, names: str) -> list[StagedFile]:
        others = lake.read_in_workers(table, columns=table.schema.names, partitions=days)
        kept = others.then(partial(_of_others, frozenset(of.domains)))
        found = lake.write(rows, folder / names, table)
        files[table.name] = [file for file in found if file.partition["dt"] in days]
        files[table.name] += lake.write(kept, folder / f"other-{names}", table)
        return found

    with lake.stage() as folder:
        with result.timed("totals"):
            # Also of 5 minutes before and after the days: no rows of the table, but they may name disputed records.
            sides = compared(both.sides, clocks, skew_us=bounds.skew_us)
            buckets = staged(sides, RECON_BUCKET, "buckets")
            ours = [file for file in buckets if file.partition["dt"] in days]
        with result.timed("records"):
            segments = _accepted_segments(lake, days)
            seen_us = max((known.seen_us for known in both.completeness.values()), default=0)
            newest_us = min(seen_us, time.time_ns() // 1000)  # a clock that is years ahead closes no days
            by = Judging(
                frozenset(days),
                clocks,
                both.completeness,
                bounds.grace_us,
                bounds.skew_us,
                segments,
                given_up_us=newest_us - PROOF_DAYS * DAY_US,
            )
            found = judged(_disputed(lake, both.entries, buckets, days=len(days)), by).persist()
            equal = equal_totals(_rows_in(lake, ours, BUCKET_COUNTS))
            staged(cases(found), RECON_CASE, "cases")
            staged(pair_counts(found, equal, both.completeness), RECON_PAIR, "pairs")
            found.unpersist()
        # Pairs last, because they say of which records this is the outcome.
        for table in (RECON_BUCKET, RECON_CASE, RECON_PAIR):
            done = lake.adopt(files[table.name], table, Change("replace_partitions", partitions=days, meta=meta))
            result.wrote(done.table, done.rows, done.version)
    result.details |= {"days": sorted(days)} | _sums(lake, days, of.domains)


def _rows_in(
    lake: Lake, files: Collection[StagedFile], names: Collection[str], where: Condition | None = None
) -> WorkerRows:
    """Rows of `recon_bucket` in files that are still on their way."""
    schema = to_arrow_schema(RECON_BUCKET.schema)
    reading = Reading(pa.schema([schema.field(name) for name in names]), where)
    return rows_in_files(
        lake.spark, [(str(one.path), one.path.stat().st_size, one.partition) for one in files], reading
    )


def _accepted_segments(lake: Lake, days: Collection[str]) -> dict[tuple[str, int], Spans]:
    """By node and boot, which records of these days and those beside them are in which segment."""
    near = _days_near(days)
    low_us, high_us = _micros(_midnight(min(near))), _micros(_midnight(max(near))) + DAY_US
    files = [
        file
        for file in lake.files(SEGMENTS)
        if file.may_have("max_ts_us", low_us, 1 << 62) and file.may_have("min_ts_us", 0, high_us)
    ]
    numbers = ("boot", "first_seq", "last_seq", "segno")
    rows = lake.read_files_small(SEGMENTS, files, ("node", "kind", "verdict", "min_ts_us", "max_ts_us", *numbers))
    rows = rows.filter(pc.field("kind") == Kind.MESSAGE.value).filter(pc.field("verdict") == Verdict.ACCEPTED.value)
    rows = rows.filter(pc.field("max_ts_us") >= low_us).filter(pc.field("min_ts_us") < high_us)
    if not rows.num_rows:
        return {}
    rows = rows.sort_by([(name, "ascending") for name in ("node", "boot", "first_seq")])
    nodes, node = words(rows.column("node").combine_chunks().dictionary_encode())
    boot, first, last, segno = (np.asarray(rows.column(name)) for name in numbers)
    starts = np.flatnonzero(np.diff(node, prepend=-1) | np.diff(boot, prepend=-1))
    ends = [*starts[1:].tolist(), len(boot)]
    return {
        (str(nodes[node[start]]), int(boot[start])): Spans(first[start:end], last[start:end], segno[start:end])
        for start, end in zip(starts.tolist(), ends, strict=True)
    }


def _disputed(lake: Lake, entries: WorkerRows, buckets: Collection[StagedFile], *, days: int) -> WorkerRows:
    """Level two: records in those 5 minutes in which totals differ."""
    where = [[("is_equal", "==", False)]]
    different = _rows_in(lake, buckets, (*DIFFERENT.names, "is_equal"), where).frame(DIFFERENT)
    few = different.limit(FEW_BUCKETS + 1).toArrow()
    if few.num_rows <= FEW_BUCKETS:
        return in_few_buckets(entries, few, days=days)
    return rows_of(disputed(entries.frame(ENTRY), different), ENTRY.names, records=entries.records)


def _of_others(domains: Collection[str], batches: Batches) -> Batches:
    for batch in batches:
        yield from of_others(pa.Table.from_batches([batch]), domains).to_batches()


def write_clocks(lake: Lake, result: JobResult, delays: pa.Table, days: Collection[str]) -> ClockTables:
    """Solve the clocks of each day hour by hour, write them and what is wrong with them, and warn of that."""
    of_day: dict[str, list[tuple[int, Delay]]] = {day: [] for day in sorted(days)}
    for row in delays.to_pylist():
        hour_us = row.pop("hour_us")
        day = _day_of(hour_us)
        if day in of_day:
            of_day[day].append((hour_us, Delay(**row)))
    offsets, known, findings = [], [], []
    for day, hours in of_day.items():
        measured = offsets_by_hour(hours)
        begin_us = _micros(_midnight(day))
        offsets += [asdict(one) | {"hour_us": hour_us, "dt": day} for hour_us in measured for one in measured[hour_us]]
        course = filled(measured, begin_us, begin_us + DAY_US - HOUR_US)
        known += [asdict(one) | {"hour_us": hour_us, "dt": day} for hour_us, one in course]
        found = clock_findings(measured)
        findings += [asdict(one) | {"dt": day} for one in found]
        result.warnings += [finding_line(one, day) for one in found]
    result.details["clocks"] = findings
    for table, rows in ((CLOCK_OFFSET, offsets), (CLOCK_FINDING, findings)):
        written = pa.Table.from_pylist(rows, schema=to_arrow_schema(table.schema))
        done = lake.commit(written, table, Change("replace_partitions", partitions=days, meta={}))
        result.wrote(done.table, done.rows, done.version)
    return ClockTables(delays, pa.Table.from_pylist(known, schema=to_arrow_schema(CLOCK_OFFSET.schema)))


def conclude(result: JobResult, *, day: str | None, allowed: int) -> None:
    """Count findings and choose the exit code."""
    result.findings = sum(result.details[word] for word in CASES if word not in _OPEN)
    counts = [("matched", result.details["matched"]), *((word, result.details[word]) for word in CASES)]
    result.outcome = ", ".join(f"{count:,} {word}" for word, count in counts if count or word in {"matched", "lost"})
    if result.findings > allowed:
        result.exit_code = ExitCode.FINDINGS
    if day is not None and result.details["pending"]:
        result.exit_code = ExitCode.INCOMPLETE
        result.warnings.append(f"{result.details['pending']} messages are pending: records are not proved complete yet")


def entries_of_days(
    lake: Lake,
    version: int,
    days: Collection[str],
    *,
    columns: Collection[str],
    domains: Collection[str],
    one_in: int | None = None,
) -> WorkerRows:
    """Records of both sides, of messages of these days, 5 minutes before and after, between these domains.

    A record may be stored under the day before or after that of its message: clocks are wrong and messages wait. One
    whose id has no time may be on different days on the two sides, hence the 5 minutes. With `one_in` only delivered
    ones, and of these one in so many.
    """
    first, last = _midnight(min(days)), _midnight(max(days)) + timedelta(days=1)
    chosen = Chosen(_micros(first) - BUCKET_US, _micros(last) + BUCKET_US - 1, frozenset(domains))
    silver = lake.read_in_workers(
        SILVER_MDR, version, columns=columns, partitions=_days_near(days), where=chosen.condition()
    )
    records = silver if one_in is None else sampled(silver, one_in=one_in)
    return records.then(partial(_entries, chosen))


def _entries(chosen: Chosen, batches: Batches) -> Batches:
    for batch in batches:
        yield from chosen.of(entries_of(pa.Table.from_batches([batch]))).to_batches()


def _days_near(days: Collection[str]) -> set[str]:
    return {_beside(day, number) for day in days for number in (-1, 0, 1)}


def _sums(lake: Lake, days: Collection[str], domains: Collection[str]) -> dict[str, int]:
    names = ("sent", "received", "matched", "refused", *CASES, "undelivered")
    rows = lake.read_small(RECON_PAIR, columns=[*names, *PAIR, "dt"]).to_pylist()
    meant = [row for row in rows if row["dt"] in days and {row["src_domain"], row["dst_domain"]} <= set(domains)]
    return {name: sum(row[name] or 0 for row in meant) for name in names}


def _inputs_by_day(lake: Lake, silver_version: int) -> dict[str, str]:
    """For each day with records which these are, and those of the days beside it."""
    inputs = inputs_by_day(lake, silver_version)
    near = {day: (_beside(day, -1), day, _beside(day, 1)) for day in inputs}
    return {day: "; ".join(inputs.get(one, "none") for one in its) for day, its in near.items()}


def _beside(day: str, days: int) -> str:
    return (_midnight(day) + timedelta(days=days)).strftime("%Y-%m-%d")


def _unsettled(lake: Lake, inputs: Mapping[str, str]) -> set[str]:
    """Days whose records have changed since they were reconciled, or with messages that were pending then."""
    done = done_inputs(lake, APP)
    pending = {
        row["dt"] for row in lake.read_small(RECON_PAIR, columns=["dt", "pending"]).to_pylist() if row["pending"]
    }
    return pending | {day for day, files in inputs.items() if done.get(day) != files}


def _proved_since(lake: Lake, proved: Mapping[str, Completeness]) -> set[str]:
    """Closed days with unprovable messages of which more is proved now: a segment that was withheld has turned up.

    It may hold no record of the day, so that nothing else shows it.
    """
    names = (*PAIR, "dt", "unprovable", "complete_until_us")
    found = set()
    for row in lake.read_small(RECON_PAIR, columns=names).to_pylist():
        if row["unprovable"] and all(row[name] in proved for name in PAIR):
            known_us = min(proved[row[name]].until_us for name in PAIR)
            needed_us = end_us(row["dt"]) + GRACE_S * 1_000_000
            if (row["complete_until_us"] or 0) < min(known_us, needed_us):
                found.add(row["dt"])
    return found


def _rows_of(lake: Lake, version: int, days: Collection[str]) -> int:
    return sum(file.rows for file in lake.files(SILVER_MDR, version) if file.partition["dt"] in days)


def _day_of(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d")


def _midnight(day: str) -> datetime:
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
