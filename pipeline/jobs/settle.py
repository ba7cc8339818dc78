"""The job that writes statements: by hour as a working paper, by day as something that is signed off once.

A day is `draft` until the manifests of all nodes of our domain prove that nothing of it is missing, with some grace.
It is `final` once. When later data changes a final day, it is `restated` under the next version, and only when somebody
says so. Drafts are replaced, everything else is kept: the statements of a day are one partition, and each change of it
is one commit that names the versions that it was made from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.columns.days import HOUR, Version
from pipeline.columns.groups import MASK
from pipeline.columns.hours import RECORD
from pipeline.columns.packed import places_for
from pipeline.columns.set_digests import MEMBER, WHOSE
from pipeline.core.completeness import GRACE_S, NOTHING, Completeness
from pipeline.core.utc_days import end_us, moment
from pipeline.jobs.proofs import proved_completeness
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.day_state import DAILY, HOURLY, QUARTER_HOURLY, done_inputs, inputs_by_day, note_done
from pipeline.lake.tables import Change, Commit, Lake
from pipeline.lake.worker_rows import PACKED, Batches, WorkerRows
from pipeline.schemas import SILVER_MDR, STATEMENT_DAILY, TRAFFIC_HOURLY, TRAFFIC_QUARTER_HOURLY, Table
from pipeline.transforms.settle import (
    FOLDS,
    FOLDS_NOW,
    SAID,
    daily_parts,
    folds,
    folds_now,
    hashes_of_members,
    settle_daily,
    settle_hourly,
    settle_quarters,
    statements,
)

_DRAFTS_SHOWN: Final = 10


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
    """The decision about one domain's statements of one day."""

    our_domain: str
    day: str
    status: str
    version: int


def run(
    lake: Lake,
    *,
    day: str | None = None,
    restate: bool = False,
    grace_s: int = GRACE_S,
    declared: Mapping[str, int] | None = None,
    quarters: bool = False,
) -> JobResult:
    """Write the statements of one day, or of all days whose records have changed or whose proofs have grown.

    Args:
        lake: Reads `silver_mdr` and `segments`; writes `traffic_hourly` and `statement_daily`.
        day: `YYYY-MM-DD`, UTC.
        restate: Whether a final day that has changed gets a new version; otherwise it is a finding.
        grace_s: How far beyond midnight proofs must reach before a day is final.
        declared: Until when the operator vouches for a node that is silent, in µs.
        quarters: Keep traffic by quarters of an hour, too; where it is kept already, it is kept on.

    Returns:
        Ends with FINDINGS when a final day has changed and was not restated, with INCOMPLETE when the day that was
        asked for stays a draft or has no records.

    Raises:
        LakeError: As the lake does.
    """
    result = JobResult("settle")
    silver_version = lake.version(SILVER_MDR)
    result.versions[SILVER_MDR.name] = silver_version
    inputs = inputs_by_day(lake, silver_version)
    days = sorted(inputs) if day is None else [one for one in (day,) if one in inputs]
    if not days:
        result.warnings.append(f"no records of {day}" if day else "no records")
        result.exit_code = ExitCode.INCOMPLETE
        return result
    with result.timed("hourly"):
        of_days = {one: inputs[one] for one in days}
        _add_up(lake, result, of_days, HOURLY)
        if quarters or lake.has(TRAFFIC_QUARTER_HOURLY):
            _add_up(lake, result, of_days, QUARTER_HOURLY)
    with result.timed("proofs"):
        proved = proved_completeness(lake, declared=declared)
    with result.timed("daily"):
        newest = _newest(lake, days)
        said = done_inputs(lake, DAILY)
        drafts = {day for (_, day), status in newest.items() if status == "draft"}
        open_days = {one: inputs[one] for one in days if one in drafts or said.get(one) != inputs[one]}
        written, changed = _settle_days(lake, result, open_days, proved, restate=restate, grace_s=grace_s)
        newest |= {(one.our_domain, one.day): one.status for one in written}
        note_done(lake, DAILY, {one: open_days[one] for one in open_days.keys() - changed})
    _report_states(result, newest, proved, grace_s=grace_s)
    if day is not None and result.details["draft"]:
        result.exit_code = max(result.exit_code, ExitCode.INCOMPLETE)
    return result


_ADDED_UP: Final[dict[str, tuple[Table, Callable[[WorkerRows], WorkerRows]]]] = {
    HOURLY: (TRAFFIC_HOURLY, settle_hourly),
    QUARTER_HOURLY: (TRAFFIC_QUARTER_HOURLY, settle_quarters),
}


def _add_up(lake: Lake, result: JobResult, inputs: Mapping[str, str], job: str) -> None:
    """Write traffic of those days whose records are others than those that it was made from."""
    settled = done_inputs(lake, job)
    stale = {day: input_ for day, input_ in inputs.items() if settled.get(day) != input_}
    if not stale:
        return
    table, added_up = _ADDED_UP[job]
    version = result.versions[SILVER_MDR.name]
    silver = lake.read_in_workers(SILVER_MDR, version, columns=RECORD, partitions=stale)
    change = Change("replace_partitions", partitions=stale, meta={"input_version": version})
    done = lake.commit(added_up(silver), table, change)
    result.wrote(done.table, done.rows, done.version)
    note_done(lake, job, stale)


def decide(standing: Standing, *, until_us: int, grace_s: int, restate: bool) -> Decision | None:
    """Decide under which status and version one domain and day is written; None leaves it as it is.

    Args:
        standing: What is written now.
        until_us: Until when the domain's records are proved complete.
        grace_s: How far beyond midnight that must be.
        restate: Whether a final statement may get a successor.
    """
    decision = partial(Decision, standing.our_domain, standing.day)
    if standing.status is None or standing.status == "draft":
        if until_us >= end_us(standing.day) + grace_s * 1_000_000:
            return decision("final", 1)
        is_stale = standing.is_changed or standing.complete_until_us != until_us
        return decision("draft", 1) if is_stale else None
    if standing.is_changed and restate:
        return decision("restated", standing.version + 1)
    return None


def _newest(lake: Lake, days: Collection[str]) -> dict[tuple[str, str], str]:
    """The status of the newest version of each domain and day that has a statement."""
    names = ("our_domain", "dt", "version", "status")
    heads = lake.read_small(STATEMENT_DAILY, names, partitions=set(days)).group_by(list(names)).aggregate([])
    ordered = heads.select(list(names)).sort_by([("version", "ascending")]).to_pylist()
    return {(row["our_domain"], row["dt"]): row["status"] for row in ordered}


def _settle_days(
    lake: Lake,
    result: JobResult,
    days: Collection[str],
    proved: Mapping[str, Completeness],
    *,
    restate: bool,
    grace_s: int,
) -> tuple[list[Decision], set[str]]:
    """Write the statements of these days; returns what was written, and days that have changed and stay as they are."""
    base_version, hourly_version = lake.version(STATEMENT_DAILY), lake.version(TRAFFIC_HOURLY)
    silver_version = result.versions[SILVER_MDR.name]
    silver = lake.read_in_workers(SILVER_MDR, silver_version, columns=MEMBER, partitions=days)
    hourly = lake.read_in_workers(TRAFFIC_HOURLY, hourly_version, columns=HOUR, partitions=days)
    # A statement comes from some hundred hours, or hashes of members: they need fewer places than messages do.
    places = -(-places_for(silver.records) // 8)
    parts = daily_parts(hourly, places).frame(PACKED).persist()
    kept = lake.read_in_workers(STATEMENT_DAILY, base_version, columns=SAID, partitions=days)
    standings = _standings(parts, kept)
    decisions = []
    changed = set()
    for one in standings:
        until_us = proved.get(one.our_domain, NOTHING).until_us
        decision = decide(one, until_us=until_us, grace_s=grace_s, restate=restate)
        if decision is not None:
            decisions.append(decision)
        elif one.is_changed:
            changed.add(one.day)
            result.findings += 1
            result.warnings.append(
                f"{one.our_domain} {one.day}: the records have changed since the statement was {one.status} "
                f"(version {one.version}); look at `audit`, then settle this day with --restate"
            )
    if decisions:
        pieces = parts
        signed_off = {(one.our_domain, one.day) for one in decisions if one.status != "draft"}
        if signed_off:
            members = lake.read_in_workers(
                SILVER_MDR, silver_version, columns=MEMBER, partitions={day for _, day in signed_off}
            )
            pieces = parts.unionByName(hashes_of_members(members, signed_off, places).frame(PACKED))
        versions = {
            (one.our_domain, one.day): Version(one.version, one.status, proved.get(one.our_domain, NOTHING).until_us)
            for one in decisions
        }
        rows = statements(pieces, versions, input_version=silver_version)
        read = {SILVER_MDR.name: silver_version, TRAFFIC_HOURLY.name: hourly_version}
        done = _write(lake, rows, versions, base_version=base_version, input_versions=read)
        result.wrote(done.table, done.rows, done.version)
    parts.unpersist()
    return decisions, changed


def _write(
    lake: Lake,
    rows: WorkerRows,
    versions: Mapping[tuple[str, str], Version],
    *,
    base_version: int,
    input_versions: Mapping[str, int],
) -> Commit:
    """Commit statements of these versions; other versions of their days stay."""
    days = sorted({day for _, day in versions})
    names = STATEMENT_DAILY.schema.names
    with lake.stage() as stage:
        staged = lake.write(rows, stage.of(STATEMENT_DAILY, "rows"), STATEMENT_DAILY)
        before = lake.read_in_workers(STATEMENT_DAILY, base_version, columns=names, partitions=days)
        unchanged = before.then(partial(_without, {(*whose, one.number) for whose, one in versions.items()}))
        staged += lake.write(unchanged, stage.of(STATEMENT_DAILY, "unchanged"), STATEMENT_DAILY)
        return lake.adopt(
            staged,
            STATEMENT_DAILY,
            Change(
                "replace_partitions",
                partitions=days,
                base_version=max(base_version, 0),  # a table that does not exist is made empty first
                meta={
                    "input_versions": dict(input_versions),
                    "days": days,
                    "restated": sorted({day for (_, day), one in versions.items() if one.status == "restated"}),
                },
            ),
        )


def _without(replaced: Collection[tuple[str, str, int]], batches: Batches) -> Batches:
    """Statements but those of these domains, days and versions."""
    for batch in batches:
        whose = batch.select([*WHOSE, "version"]).to_pylist()
        yield batch.filter(pa.array([tuple(row.values()) not in replaced for row in whose], pa.bool_()))


def _report_states(
    result: JobResult, status: Mapping[tuple[str, str], str], proved: Mapping[str, Completeness], *, grace_s: int
) -> None:
    for word in ("draft", "final", "restated"):
        result.details[word] = sum(one == word for one in status.values())
    states = ", ".join(f"{result.details[word]:,} {word}" for word in ("final", "restated", "draft"))
    result.outcome = f"{result.rows.get(STATEMENT_DAILY.name, 0):,} rows of statements; days of domains: {states}"
    # A day beyond which nothing is recorded has not ended yet.
    seen_us = max((known.seen_us for known in proved.values()), default=0)
    drafts = defaultdict[str, list[str]](list)
    for (our_domain, day), one in sorted(status.items()):
        if one == "draft" and seen_us >= end_us(day) + grace_s * 1_000_000:
            drafts[our_domain].append(day)
    for our_domain, days in list(drafts.items())[:_DRAFTS_SHOWN]:
        known = proved.get(our_domain, NOTHING)
        period = days[0] if len(days) == 1 else f"{len(days)} days from {days[0]} to {days[-1]}"
        result.warnings.append(
            f"{our_domain}: {period} draft, because its records are proved complete until "
            f"{moment(known.until_us)} only, by {known.held_by or known.proof}; "
            "ingest later segments, or `pipeline nodes retire` one that was shut down for good"
        )
    if len(drafts) > _DRAFTS_SHOWN:
        result.warnings.append(
            f"{len(drafts) - _DRAFTS_SHOWN} more domains have drafts: `statements --drafts` shows them"
        )
    if result.findings:
        result.exit_code = ExitCode.FINDINGS


def _standings(parts: DataFrame, kept: WorkerRows) -> list[Standing]:
    """How what is written compares with what the records say now, for each domain and day of either."""
    now = _whole(folds_now(settle_daily(parts)).frame(FOLDS_NOW))
    then = _whole(folds(kept).frame(FOLDS))
    newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for our_domain, day, *version in sorted(then):
        newest[our_domain, day] = tuple(version)
    found = []
    for our_domain, day in sorted({*now, *newest}, key=lambda whose: whose[::-1]):
        version, status, until_us = newest.get((our_domain, day), (0, None, 0))
        is_changed = now.get((our_domain, day)) != then.get((our_domain, day, version, status, until_us))
        found.append(Standing(our_domain, day, status, version, until_us, is_changed))
    return found


def _whole(parts: DataFrame) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Folds added up, by the columns before them."""
    whole: dict[tuple[Any, ...], tuple[int, int]] = {}
    for *key, set_xor, set_sum in parts.collect():
        so_far = whole.get(tuple(key), (0, 0))
        whole[tuple(key)] = so_far[0] ^ set_xor, (so_far[1] + set_sum) & MASK
    return whole
