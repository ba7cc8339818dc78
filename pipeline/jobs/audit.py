"""Audit: what segments say about their completeness, node by node, checked against what is stored.

Chains are read from what they add up to. What is stored is compared with the ledger where either has changed since an
audit that found it right, so that an audit costs what came, not what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.findings import Finding, SegmentVerdict, Severity
from pipeline.core.stretches import Stretch, missing_numbers, unaccounted_records
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.stored import wrong_segments
from pipeline.lake.tables import Lake
from pipeline.schemas import SEGMENTS
from pipeline.segments.ledger import read_stretches
from pipeline.segments.summary import missing_line

_WARNINGS_SHOWN: Final = 50
_COLUMNS: Final = ("node", "kind", "verdict", "severity", "findings")


def run(lake: Lake, *, is_full: bool = False) -> JobResult:
    """Look for gaps, losses, breaks and rejections in the ledger, and count what is stored against it.

    `details` has, by node and kind: `gaps` (segments that are not here), `lost_records` (by the node's own count),
    `unaccounted_records` (between segments that follow each other), `quarantined_rows`, `rejected_segments` and
    `findings` by code, as far as they are warnings or worse. Every line of `warnings` is one thing to look at.

    Args:
        lake: Reads `segments` and the bronze tables; notes in `day_state` what was found to be stored as it should be.
        is_full: Compare also what has not changed since it was found right.

    Raises:
        LakeError: The lake cannot be read or written.
    """
    result = JobResult("audit", versions={SEGMENTS.name: lake.version(SEGMENTS)})
    with result.timed("books"):
        nodes = {key: _chain_facts(key, stretches, result) for key, stretches in read_stretches(lake).chains().items()}
        _add_findings(nodes, _conspicuous(lake))
    for (node, kind), facts in sorted(nodes.items()):
        _warn(f"{node}: {kind}", facts, result)
    with result.timed("stored"):
        result.warnings += wrong_segments(lake, is_full=is_full)
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


def _conspicuous(lake: Lake) -> pa.Table:
    """Rows of the ledger with findings that are more than fine; files that cannot have any are not opened."""
    words = [severity.word for severity in Severity if severity is not Severity.FINE]
    files = [file for file in lake.files(SEGMENTS) if any(file.may_have("severity", word, word) for word in words)]
    rows = lake.read_files_small(SEGMENTS, files, _COLUMNS)
    return rows.filter(pc.is_in(rows.column("severity"), pa.array(words)))


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
    codes = [finding.code for finding in Finding if finding.severity is not Severity.FINE]
    found = found.filter(pc.is_in(found.column("finding"), pa.array(codes)))
    for row in _counted(found, ["node", "kind", "finding"]):
        _of(nodes, row)["findings"][row["finding"]] = row["count_all"]
    for row in _counted(rows.filter(pc.equal(rows.column("verdict"), SegmentVerdict.REJECTED.value)), ["node", "kind"]):
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
