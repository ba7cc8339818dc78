"""The job that compares the records of two sides: all of a lake, or our own and what a partner has sent us.

Clocks come first, from a sample of matched messages; then totals per domain pair and 5 minutes; then records, only
where totals differ. All that a run finds becomes visible in one commit. A day is done again when its records, or those
of a day beside it, have changed. If some of its messages are pending or unprovable, it is also done again when
something else is proved about it than before, and when the time has come to give up waiting. The oldest day that
retention has left stays as it is: records of its messages may have been on the day before, which is gone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.clock_course import as_seen_from, delays_by_hour, filled, offsets_by_hour
from pipeline.columns.clock_findings import clock_findings, clock_jumps, finding_line
from pipeline.columns.clock_graph import Delay, Offset
from pipeline.columns.clock_tables import HOUR_US, TIMES, ClockTables
from pipeline.columns.conditions import Condition
from pipeline.columns.groups import words
from pipeline.columns.message_classes import Judging, Spans
from pipeline.columns.side_records import ALL, BUCKET_US, DAY_US, FEW, Chosen, entries_of, of_others
from pipeline.columns.side_totals import BUCKET_COUNTS, PAIR
from pipeline.core.case_classes import BLAMELESS, CASES
from pipeline.core.completeness import GRACE_S, Completeness
from pipeline.core.findings import SegmentVerdict
from pipeline.core.tolerance import Tolerance
from pipeline.core.utc_days import end_us
from pipeline.jobs.proofs import proved_completeness
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.retention import kept_from
from pipeline.lake import storage
from pipeline.lake.day_state import done_inputs, inputs_by_day, note_done
from pipeline.lake.file_pieces import Reading
from pipeline.lake.stages import StagedFile
from pipeline.lake.tables import Change, Lake
from pipeline.lake.worker_rows import Batches, WorkerRows, rows_in_files, rows_of
from pipeline.schemas import (
    CLOCK_FINDING,
    CLOCK_OFFSET,
    PAIR_DELAY,
    PEER_EXTRACT,
    RECON_BUCKET,
    RECON_CASE,
    RECON_PAIR,
    SEGMENTS,
    SILVER_MDR,
    Table,
)
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
from protofly.records import RecordKind

APP: Final = "reconcile"
PROOFS: Final = "reconcile-proofs"
"""By what was proved about each domain the days were judged; kept in `day_state` like their records."""
SKEW_MS: Final = 1_000
"""Ten times what clocks that follow NTP over the internet differ by, and less than anybody would overlook."""
CLOCK_SAMPLE: Final = 400_000
"""Records of a day above which clocks are judged by a sample of about this size."""
CLOCK_DAYS: Final = 7
"""How far back the last hours with traffic may be that clocks are compared with: over a weekend, or a holiday."""
PROOF_DAYS: Final = 7
"""How long after a message a missing proof is waited for, by the newest segment: then its day is closed."""
NO_TOLERANCE: Final = Tolerance()
FEW_BUCKETS: Final = 200_000
"""So many keys of buckets, some 30 MB, every worker can hold."""
ONE_DOMAIN: Final = (
    "the lake has records of one domain only: ingest a partner's spool, or exchange extracts (`export`, `import`)"
)
"""What to do about a lake in which nothing can be compared, unless extracts are exchanged already."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The tolerances of reconciliation."""

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
    """Inputs of a reconciliation, and its bounds.

    Attributes:
        both: What is compared.
        clocks: What the records' times usually differ by.
        days: Only messages of these, each `YYYY-MM-DD`.
        bounds: What is allowed for.
        domains: Only pairs of these; what the tables hold about others stays.
        beside: Rows of further tables that replace those of the days: what was found out about clocks.
    """

    both: BothSides
    clocks: ClockTables
    days: Collection[str]
    bounds: Bounds
    domains: Collection[str]
    beside: tuple[tuple[Table, pa.Table], ...] = ()


def run(
    lake: Lake,
    *,
    day: str | None = None,
    grace_s: int = GRACE_S,
    skew_ms: int = SKEW_MS,
    declared: Mapping[str, int] | None = None,
    tolerance: Tolerance = NO_TOLERANCE,
) -> JobResult:
    """Reconcile all pairs of domains if the lake has records of both.

    Args:
        lake: Reads `silver_mdr` and `segments`; writes `recon_bucket`, `recon_case`, `recon_pair`, `clock_offset` and
            `clock_finding`.
        day: `YYYY-MM-DD`, UTC; None takes every day for which there is a reason; see above.
        grace_s: How long after its own time a message may be recorded by the other side.
        skew_ms: How far beyond the usual the times of both records may be apart.
        declared: Until when the operator vouches for a node that is silent, in µs.
        tolerance: Cases that are no reason to end with FINDINGS.

    Returns:
        `findings` counts cases without pending and unprovable ones. Ends with INCOMPLETE when the day that was asked
        for has no records, or messages pending.

    Raises:
        ConflictError: Another reconciliation has committed meanwhile; nothing was written.
        LakeError: As the lake does.
    """
    result = JobResult("reconcile")
    silver_version = lake.version(SILVER_MDR)
    result.versions[SILVER_MDR.name] = silver_version
    inputs = _inputs_by_day(lake, silver_version)
    with result.timed("proofs"):
        proved = proved_completeness(lake, declared=declared) if inputs else {}
    proofs = {one: proof_of_day(proved, one, grace_s=grace_s) for one in inputs}
    chosen = {day} if day is not None else _changed(lake, inputs) | _to_judge_again(lake, proofs, proved)
    days = [one for one in inputs if one in chosen]
    if not days:
        return _without_days(lake, result, day)
    with result.timed("clocks"):
        one_in = max(1, _rows_of(lake, silver_version, days) // (CLOCK_SAMPLE * len(days)))
        times = entries_of_days(lake, silver_version, days, columns=TIMES, domains=proved, one_in=one_in)
        delays = pair_delays(times).frame(PAIR_DELAY).toArrow()
        clocks, beside = clocks_of_days(lake, result, delays, days)
    compared_of = entries_of_days(lake, silver_version, days, columns=FEW, domains=proved)
    entries = entries_of_days(lake, silver_version, days, columns=ALL, domains=proved)
    both = BothSides(entries, both_totals(compared_of), proved)
    comparison = Comparison(both, clocks, days, Bounds(grace_s * 1_000_000, skew_ms * 1_000), proved, beside)
    hold_together(lake, result, comparison, {"input_versions": {SILVER_MDR.name: silver_version}})
    note_done(lake, PROOFS, {one: proofs[one] for one in days})
    note_done(lake, APP, {one: inputs[one] for one in days})  # last: a day counts as changed until then
    conclude(result, day=day, tolerance=tolerance)
    if len(proved) < 2:
        result.outcome = "nothing to compare with"
        result.warnings += [] if lake.has(PEER_EXTRACT) else [ONE_DOMAIN]
    return result


def _without_days(lake: Lake, result: JobResult, day: str | None) -> JobResult:
    """The result of a run that has no day to compare, although this one was asked for."""
    result.details = {"days": [], **dict.fromkeys(CASES, 0)}
    if day is not None:
        cut = f"records of the day before {day} were dropped by retention: it stays as it was reconciled"
        result.warnings.append(cut if day == kept_from(lake) else f"no records of {day}")
        result.exit_code = ExitCode.INCOMPLETE
    return result


def hold_together(lake: Lake, result: JobResult, of: Comparison, meta: Mapping[str, object]) -> None:
    """Compare at both levels, write the findings into the lake in one commit with `meta`, add them to the result."""
    both, clocks, days, bounds = of.both, of.clocks, of.days, of.bounds
    parts: list[tuple[Table, list[StagedFile]]] = []
    base_version = lake.version(RECON_PAIR)

    def staged(rows: WorkerRows, table: Table, names: str) -> list[StagedFile]:
        others = lake.read_in_workers(table, base_version, columns=table.schema.names, partitions=days)
        kept = others.then(partial(_of_others, frozenset(of.domains)))
        found = lake.write(rows, stage.of(table, names), table)
        files = [file for file in found if file.partition["dt"] in days]
        parts.append((table, files + lake.write(kept, stage.of(table, f"other-{names}"), table)))
        return found

    with lake.stage() as stage:
        with result.timed("totals"):
            # Also of 5 minutes before and after the days: no rows of the table, but they may name disputed records.
            sides = compared(both.sides, clocks, skew_us=bounds.skew_us)
            buckets = staged(sides, RECON_BUCKET, "buckets")
            ours = [file for file in buckets if file.partition["dt"] in days]
        with result.timed("records"):
            segments = _accepted_segments(lake, days)
            by = Judging(
                frozenset(days),
                clocks,
                both.completeness,
                bounds.grace_us,
                bounds.skew_us,
                segments,
                given_up_us=_given_up_us(both.completeness),
            )
            found = judged(_disputed(lake, both.entries, buckets, days=len(days)), by).persist()
            equal = equal_totals(_rows_in(lake, ours, BUCKET_COUNTS))
            staged(cases(found), RECON_CASE, "cases")
            staged(pair_counts(found, equal, both.completeness), RECON_PAIR, "pairs")
            found.unpersist()
        parts += [(table, lake.write(rows, stage.of(table, table.name), table)) for table, rows in of.beside]
        # What others have written since the rows that stay were read would be lost.
        change = Change("replace_partitions", partitions=days, meta=meta, base_version=max(base_version, 0))
        for done in lake.adopt_together(parts, change):
            result.wrote(done.table, done.rows, done.version)
    result.details |= {"days": sorted(days)} | _sums(lake, days, of.domains)


def _rows_in(
    lake: Lake, files: Collection[StagedFile], names: Collection[str], where: Condition | None = None
) -> WorkerRows:
    """Rows of `recon_bucket` in files that are still on their way."""
    schema = to_arrow_schema(RECON_BUCKET.schema)
    reading = Reading(pa.schema([schema.field(name) for name in names]), where)
    return rows_in_files(
        lake.spark, [(str(one.path), storage.size_of(one.path), one.partition) for one in files], reading
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
    rows = rows.filter(pc.field("kind") == RecordKind.MESSAGE.value).filter(
        pc.field("verdict") == SegmentVerdict.ACCEPTED.value
    )
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


def clocks_of_days(
    lake: Lake, result: JobResult, delays: pa.Table, days: Collection[str]
) -> tuple[ClockTables, tuple[tuple[Table, pa.Table], ...]]:
    """Solve the clocks of each day hour by hour, and warn of what is wrong with them.

    A clock may be set at midnight, or in an hour that says nothing about it: so each day is compared with the one
    before it too, at most `CLOCK_DAYS` back, as it is in the lake if it is none of these days.

    Returns:
        The clocks, and rows of `clock_offset` and `clock_finding`.
    """
    of_day: dict[str, list[tuple[int, Delay]]] = {day: [] for day in sorted(days)}
    day_of = cache(_day_of)
    for hour_us, delay in delays_by_hour(delays):
        if day_of(hour_us) in of_day:
            of_day[day_of(hour_us)].append((hour_us, delay))
    measured_of = {day: offsets_by_hour(hours) for day, hours in of_day.items()}
    stored = {file.partition["dt"] for file in lake.files(CLOCK_OFFSET)} - measured_of.keys()
    offsets: list[tuple[int, Offset]] = []
    known: list[tuple[int, Offset]] = []
    findings = []
    for day, measured in measured_of.items():
        begin_us = _micros(_midnight(day))
        offsets += [(hour_us, one) for hour_us in measured for one in measured[hour_us]]
        known += filled(measured, begin_us, begin_us + DAY_US - HOUR_US)
        earlier = stored | {one for one, hours in measured_of.items() if any(hours.values())}
        last = max((one for one in earlier if _beside(day, -CLOCK_DAYS) <= one < day), default=None)
        before = {} if last is None else measured_of[last] if last in measured_of else _stored_offsets(lake, last)
        references = {one.reference for ones in measured.values() for one in ones}
        found = clock_findings(dict(as_seen_from(before, references)) | measured, from_us=begin_us)
        found += clock_jumps(of_day[day], found)
        findings += [asdict(one) | {"dt": day} for one in found]
        result.warnings += [finding_line(one, day) for one in found]
    result.details["clocks"] = findings
    found_rows = pa.Table.from_pylist(findings, schema=to_arrow_schema(CLOCK_FINDING.schema))
    return ClockTables(delays, _offset_rows(known)), (
        (CLOCK_OFFSET, _offset_rows(offsets)),
        (CLOCK_FINDING, found_rows),
    )


def _stored_offsets(lake: Lake, day: str) -> dict[int, list[Offset]]:
    """The rows of `clock_offset` of a day, by hour."""
    names = [field.name for field in fields(Offset)]
    by_hour: dict[int, list[Offset]] = {}
    for row in lake.read_small(CLOCK_OFFSET, columns=["hour_us", *names], partitions=[day]).to_pylist():
        by_hour.setdefault(row.pop("hour_us"), []).append(Offset(**row))
    return by_hour


def _offset_rows(hours: Sequence[tuple[int, Offset]]) -> pa.Table:
    """Rows of `clock_offset`, out of offsets and their hours."""
    day_of = cache(_day_of)
    known = {field.name: [getattr(one, field.name) for _, one in hours] for field in fields(Offset)}
    known |= {"hour_us": [hour_us for hour_us, _ in hours], "dt": [day_of(hour_us) for hour_us, _ in hours]}
    schema = to_arrow_schema(CLOCK_OFFSET.schema)
    return pa.table({name: known[name] for name in schema.names}, schema=schema)


def conclude(result: JobResult, *, day: str | None, tolerance: Tolerance) -> None:
    """Count findings and choose the exit code."""
    result.findings = sum(result.details[word] for word in CASES if word not in BLAMELESS)
    counts = [("matched", result.details["matched"]), *((word, result.details[word]) for word in CASES)]
    result.outcome = ", ".join(f"{count:,} {word}" for word, count in counts if count or word in {"matched", "lost"})
    if tolerance.is_exceeded(result.details):
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
    rows = lake.read_small(RECON_PAIR, columns=[*names, *PAIR], partitions=days).to_pylist()
    meant = [row for row in rows if {row["src_domain"], row["dst_domain"]} <= set(domains)]
    return {name: sum(row[name] or 0 for row in meant) for name in names}


def _inputs_by_day(lake: Lake, silver_version: int) -> dict[str, str]:
    """For each day with records which these are, and those of the days beside it; without days beside dropped ones."""
    inputs = inputs_by_day(lake, silver_version)
    oldest = kept_from(lake)
    near = {day: (_beside(day, -1), day, _beside(day, 1)) for day in inputs if day > oldest}
    return {day: "; ".join(inputs.get(one, "none") for one in its) for day, its in near.items()}


def _beside(day: str, days: int) -> str:
    return (_midnight(day) + timedelta(days=days)).strftime("%Y-%m-%d")


def _changed(lake: Lake, inputs: Mapping[str, str]) -> set[str]:
    """Days whose records have changed since they were reconciled."""
    done = done_inputs(lake, APP)
    return {day for day, input_ in inputs.items() if done.get(day) != input_}


def _to_judge_again(lake: Lake, proofs: Mapping[str, str], proved: Mapping[str, Completeness]) -> set[str]:
    """Days with messages that another proof, or the end of waiting for one, gives another class.

    A segment that has turned up may hold no record of the day, so that nothing else shows it. Pairs with a partner
    whose records are not here wait for `reconcile --peer`.
    """
    done, given_up_us = done_inputs(lake, PROOFS), _given_up_us(proved)
    files = [file for file in lake.files(RECON_PAIR) if any(file.may_have(word, 1, 1 << 62) for word in BLAMELESS)]
    found = set()
    for row in lake.read_files_small(RECON_PAIR, files, (*PAIR, "dt", *BLAMELESS)).to_pylist():
        if all(row[name] in proved for name in PAIR):
            day = row["dt"]
            is_given_up = row["pending"] and end_us(day) <= given_up_us
            if is_given_up or (any(row[word] for word in BLAMELESS) and proofs.get(day) != done.get(day)):
                found.add(day)
    return found


def _given_up_us(proved: Mapping[str, Completeness]) -> int:
    """Of messages sent before, what is not proved by now never will be."""
    seen_us = max((known.seen_us for known in proved.values()), default=0)
    newest_us = min(seen_us, time.time_ns() // 1000)  # a clock that is years ahead closes no days
    return newest_us - PROOF_DAYS * DAY_US


def proof_of_day(proved: Mapping[str, Completeness], day: str, *, grace_s: int) -> str:
    """Hash the proofs of completeness around a day: while it is equal, no message of the day can be judged anew.

    Args:
        proved: By domain.
        day: `YYYY-MM-DD`, UTC.
        grace_s: How long after its own time a message may be recorded.
    """
    slack_us = 2 * grace_s * 1_000_000
    low_us, high_us = end_us(day) - DAY_US - slack_us, end_us(day) + slack_us

    def near(spans: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(max(low_us, begin), min(high_us, end)) for begin, end in spans if begin <= high_us and end >= low_us]

    known = [
        (
            domain,
            min(max(one.from_us, low_us), high_us),
            min(max(one.until_us, low_us), high_us),
            near(one.holes),
            near(one.crashes),
        )
        for domain, one in sorted(proved.items())
    ]
    return sha256(repr(known).encode()).hexdigest()


def _rows_of(lake: Lake, version: int, days: Collection[str]) -> int:
    return sum(file.rows for file in lake.files(SILVER_MDR, version) if file.partition["dt"] in days)


def _day_of(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d")


def _midnight(day: str) -> datetime:
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
