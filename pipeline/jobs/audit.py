"""Audit: what segments say about their completeness, node by node, checked against what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.findings import Finding, Verdict
from pipeline.core.groups import column, from_zero, group_numbers, lengths_of, numbers, runs, words
from pipeline.core.side_records import DAY_US
from pipeline.core.stretches import Stretch, missing_numbers, unaccounted_records
from pipeline.core.utc_days import end_us
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.retention import kept_from
from pipeline.ledger import read_stretches
from pipeline.schemas import LONG, SEGMENTS, TEXT, bronze_table
from pipeline.schemas.columns import columns
from pipeline.segment_summary import missing_line
from pipeline.tables import Lake
from pipeline.worker_rows import Batches
from protofly.records import Kind

_WARNINGS_SHOWN: Final = 50
_SEGMENT: Final = ("node", "boot", "segno")
_ROWS_OF_SEGMENT: Final = columns(node=TEXT, boot=LONG, segno=LONG, rows=LONG)
_COLUMNS: Final = ("node", "kind", "boot", "segno", "verdict", "findings", "rows_good", "min_ts_us")


def run(lake: Lake) -> JobResult:
    """Look for gaps, losses, breaks and rejections in the ledger, and count what is stored against it.

    `details` has, by node and kind: `gaps` (segments that are not here), `lost_records` (by the node's own count),
    `unaccounted_records` (between segments that follow each other), `quarantined_rows`, `rejected_segments` and
    `findings` by code. Every line of `warnings` is one thing to look at.

    Args:
        lake: Reads `segments` and the bronze tables; writes nothing.

    Raises:
        LakeError: The lake cannot be read.
    """
    result = JobResult("audit", versions={SEGMENTS.name: lake.version(SEGMENTS)})
    with result.timed("books"):
        nodes = {key: _chain_facts(key, stretches, result) for key, stretches in read_stretches(lake).chains().items()}
        rows = lake.read_small(SEGMENTS, _COLUMNS)
        _add_findings(nodes, rows)
    for (node, kind), facts in sorted(nodes.items()):
        _warn(f"{node}: {kind}", facts, result)
    with result.timed("stored"):
        _compare_with_stored(lake, rows, result)
    result.details = {"books": [{"node": node, "kind": kind, **facts} for (node, kind), facts in sorted(nodes.items())]}
    result.findings = len(result.warnings)
    result.outcome = f"{len(nodes)} chains of segments"
    if len(result.warnings) > _WARNINGS_SHOWN:
        result.warnings[_WARNINGS_SHOWN:] = [f"{len(result.warnings) - _WARNINGS_SHOWN} more; --json has all"]
    if any(facts["gaps"] for facts in nodes.values()):
        result.exit_code = ExitCode.INCOMPLETE
    elif result.findings:
        result.exit_code = ExitCode.FINDINGS
    return result


def _empty() -> dict[str, Any]:
    return {
        "segments": 0,
        "gaps": [],
        "lost_records": 0,
        "unaccounted_records": 0,
        "quarantined_rows": 0,
        "rejected_segments": 0,
        "findings": {},
    }


def _chain_facts(key: tuple[str, str], stretches: Sequence[Stretch], result: JobResult) -> dict[str, Any]:
    facts = _empty() | {
        "segments": sum(one.segments for one in stretches),
        "unaccounted_records": unaccounted_records(stretches),
        "lost_records": sum(one.lost_records for one in stretches),
        "quarantined_rows": sum(one.quarantined_rows for one in stretches),
    }
    for boot, first, last in missing_numbers(stretches):
        facts["gaps"].append({"boot": boot, "first": first, "last": last})
        result.warnings.append(missing_line(*key, boot, first, last))
    return facts


def _add_findings(nodes: dict[tuple[str, str], dict[str, Any]], rows: pa.Table) -> None:
    """Add what the ledger says about segments, whatever became of them."""
    findings = rows.column("findings").combine_chunks()
    whose = rows.select(["node", "kind"])
    found = whose.take(pc.list_parent_indices(findings)).append_column("finding", pc.list_flatten(findings))
    for row in _counted(found, ["node", "kind", "finding"]):
        _of(nodes, row)["findings"][row["finding"]] = row["count_all"]
    for row in _counted(rows.filter(pc.equal(rows.column("verdict"), Verdict.REJECTED.value)), ["node", "kind"]):
        _of(nodes, row)["rejected_segments"] = row["count_all"]
    for facts in nodes.values():
        facts["findings"] = dict(sorted(facts["findings"].items()))


def _counted(rows: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    counted: list[dict[str, Any]] = rows.group_by(names).aggregate([([], "count_all")]).to_pylist()
    return counted


def _of(nodes: dict[tuple[str, str], dict[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    return nodes.setdefault((row["node"] or "?", row["kind"] or "?"), _empty())


def _warn(chain: str, facts: Mapping[str, Any], result: JobResult) -> None:
    meanings = {
        "lost_records": "records were lost by the node before it wrote them",
        "unaccounted_records": "records between segments are unaccounted for",
        "quarantined_rows": "lines are in quarantine",
        "rejected_segments": "segments were rejected: `trapezoid pipeline show segments --where verdict=rejected`",
    }
    result.warnings += [f"{chain}: {facts[name]} {text}" for name, text in meanings.items() if facts[name]]
    for finding in (Finding.CHAIN_BREAK, Finding.CHAIN_START, Finding.CLOCK, Finding.VANISHED):
        count = facts["findings"].get(finding.code)
        if count:
            result.warnings.append(f"{chain}: {count} segments: {finding.meaning}: {finding.advice}")


def _compare_with_stored(lake: Lake, rows: pa.Table, result: JobResult) -> None:
    """Rows of bronze per segment against what the ledger says was stored; segments of dropped days aside."""
    kept = kept_from(lake)
    kept_us = end_us(kept) - DAY_US if kept else 0
    rows = rows.filter(pc.equal(rows.column("verdict"), Verdict.ACCEPTED.value))
    for kind in Kind:
        table = bronze_table(kind)
        if not lake.has(table):
            continue
        stored = lake.read_in_workers(table, columns=_SEGMENT).then(_count).frame(_ROWS_OF_SEGMENT).toArrow()
        stored = stored.group_by(list(_SEGMENT)).aggregate([("rows", "sum")])
        of_kind = rows.filter(pc.equal(rows.column("kind"), kind.value)).select([*_SEGMENT, "rows_good", "min_ts_us"])
        both = of_kind.join(stored, list(_SEGMENT), join_type="full outer")
        said, found = (both.column(name).fill_null(0) for name in ("rows_good", "rows_sum"))
        is_kept = pc.greater_equal(both.column("min_ts_us").fill_null(kept_us), kept_us)
        wrong = both.filter(pc.and_(is_kept, pc.not_equal(said, found)))
        for row in wrong.sort_by([(name, "ascending") for name in _SEGMENT]).to_pylist():
            result.warnings.append(
                f"{row['node']}: {kind.value} boot {row['boot']} segment {row['segno']} has {row['rows_sum'] or 0} "
                f"rows in {table.name}, the ledger says {row['rows_good'] or 0}: restore the lake, or ingest anew"
            )


def _count(batches: Batches) -> Batches:
    for batch in batches:
        (nodes, node), boot, segno = (words(column(batch, "node")), *(numbers(batch, name) for name in _SEGMENT[1:]))
        order, starts = runs(group_numbers([(node, len(nodes)), from_zero(boot), from_zero(segno)])[0])
        segments = pa.Table.from_batches([batch]).take(pa.array(order[starts]))
        yield from segments.append_column("rows", pa.array(lengths_of(starts, len(order)))).to_batches()
