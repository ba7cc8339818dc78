"""Audit: what segments say about their completeness, node by node, checked against what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from pipeline.core.findings import Finding, Verdict
from pipeline.core.groups import column, from_zero, group_numbers, lengths_of, numbers, runs, words
from pipeline.core.side_records import DAY_US
from pipeline.core.utc_days import end_us
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.retention import kept_from
from pipeline.ledger import Ledger
from pipeline.schemas import LONG, SEGMENTS, TEXT, bronze_table
from pipeline.schemas.columns import columns
from pipeline.segment_chains import Accepted, missing_numbers
from pipeline.segment_summary import missing_line
from pipeline.tables import Lake
from pipeline.worker_rows import Batches
from protofly.records import Kind

_WARNINGS_SHOWN: Final = 50
_SEGMENT: Final = ("node", "boot", "segno")
_ROWS_OF_SEGMENT: Final = columns(node=TEXT, boot=LONG, segno=LONG, rows=LONG)
_COLUMNS: Final = (
    "node",
    "kind",
    "boot",
    "segno",
    "verdict",
    "findings",
    "lost_records",
    "rows_good",
    "rows_quarantined",
    "min_ts_us",
)


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
    rows = lake.read_small(SEGMENTS, _COLUMNS).to_pylist()
    chains = Ledger(lake).accepted()
    with result.timed("books"):
        nodes: dict[tuple[str, str], dict[str, Any]] = {
            key: _chain_facts(key, entries, result) for key, entries in chains.items()
        }
        for row in rows:
            _add_row(nodes.setdefault((row["node"] or "?", row["kind"] or "?"), _empty()), row)
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


def _chain_facts(key: tuple[str, str], entries: list[Accepted], result: JobResult) -> dict[str, Any]:
    facts = {**_empty(), "segments": len(entries)}
    for boot, first, last in missing_numbers(entries):
        facts["gaps"].append({"boot": boot, "first": first, "last": last})
        result.warnings.append(missing_line(*key, boot, first, last))
    previous: Accepted | None = None
    for entry in entries:
        if previous is not None and previous.boot == entry.boot and previous.segno + 1 == entry.segno:
            facts["unaccounted_records"] += entry.first_seq - previous.last_seq - 1
        previous = entry
    return facts


def _add_row(facts: dict[str, Any], row: Mapping[str, Any]) -> None:
    codes = Counter(facts["findings"])
    codes.update(row["findings"] or ())
    facts["findings"] = dict(sorted(codes.items()))
    if row["verdict"] == Verdict.ACCEPTED.value:
        facts["lost_records"] += row["lost_records"] or 0
        facts["quarantined_rows"] += row["rows_quarantined"] or 0
    elif row["verdict"] == Verdict.REJECTED.value:
        facts["rejected_segments"] += 1


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


def _compare_with_stored(lake: Lake, rows: list[dict[str, Any]], result: JobResult) -> None:
    """Rows of bronze per segment against what the ledger says was stored; segments of dropped days aside."""
    kept = kept_from(lake)
    kept_us = end_us(kept) - DAY_US if kept else 0
    for kind in Kind:
        table = bronze_table(kind)
        if not lake.has(table):
            continue
        counted = lake.read_in_workers(table, columns=_SEGMENT).then(_count).frame(_ROWS_OF_SEGMENT).collect()
        of_kind = [row for row in rows if row["verdict"] == Verdict.ACCEPTED.value and row["kind"] == kind.value]
        expected = Counter({_segment(row): row["rows_good"] for row in of_kind if row["min_ts_us"] >= kept_us})
        dropped = {_segment(row) for row in of_kind if row["min_ts_us"] < kept_us}
        found: Counter[tuple[Any, ...]] = Counter()
        for *segment, rows_stored in counted:
            if tuple(segment) not in dropped:
                found[tuple(segment)] += rows_stored
        for key in sorted(key for key in expected.keys() | found.keys() if expected[key] != found[key]):
            node, boot, segno = key
            result.warnings.append(
                f"{node}: {kind.value} boot {boot} segment {segno} has {found[key]} rows in {table.name}, "
                f"the ledger says {expected[key]}: restore the lake, or ingest anew"
            )


def _segment(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _SEGMENT)


def _count(batches: Batches) -> Batches:
    for batch in batches:
        (nodes, node), boot, segno = (words(column(batch, "node")), *(numbers(batch, name) for name in _SEGMENT[1:]))
        order, starts = runs(group_numbers([(node, len(nodes)), from_zero(boot), from_zero(segno)])[0])
        segments = pa.Table.from_batches([batch]).take(pa.array(order[starts]))
        yield from segments.append_column("rows", pa.array(lengths_of(starts, len(order)))).to_batches()
