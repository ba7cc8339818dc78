"""What the ledger of a lake proves about the completeness of its records, in the form that transforms take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.completeness import Completeness, SegmentFact, completeness_of_domain, completeness_of_nodes
from pipeline.core.findings import Finding, Verdict
from pipeline.core.groups import codes, column
from pipeline.jobs.nodes import declared_until
from pipeline.schemas import SEGMENTS, SILVER_MDR, TEXT
from pipeline.schemas.columns import columns
from pipeline.tables import Lake
from pipeline.worker_rows import Batches
from protofly.errors import SettingsError
from protofly.records import Kind

_OWNERS: Final = ("our_domain", "node")
_COUNTED_PAIRS: Final = 1 << 18
"""Up to so many pairs of words counting each is less than sorting the rows."""
_OWNERSHIP: Final = columns(our_domain=TEXT, node=TEXT)
_FACTS: Final = (
    "node",
    "kind",
    "boot",
    "segno",
    "sha256",
    "prev_sha256",
    "opened_us",
    "closed_us",
    "lost_records",
    "rows_quarantined",
    "uncertain_from_us",
    "uncertain_until_us",
    "verdict",
    "findings",
)


def proved_completeness(
    lake: Lake, *, silver_version: int, declared: Mapping[str, int] | None = None
) -> dict[str, Completeness]:
    """From when until when the records of each domain in the lake are complete.

    Args:
        lake: Its `segments`, `node_declaration` and `silver_mdr` are read.
        silver_version: Which nodes belong to which domain is taken from this version; nodes of which nothing was
            accepted belong to the domain in their name.
        declared: Until when the operator vouches for a node, in µs, besides what `node_declaration` has; see
            `pipeline.core.completeness`.

    Raises:
        SettingsError: The operator vouches for a node that has not written anything.
        LakeError: As the lake does.
    """
    ledger = lake.read_small(SEGMENTS, columns=_FACTS).to_pylist()
    declared = declared or {}
    unknown = sorted(declared.keys() - {row["node"] for row in ledger})
    if unknown:
        raise SettingsError(f"nobody can vouch for {unknown[0]}: nothing that this node wrote is in the lake")
    rows = [row for row in ledger if row["kind"] == Kind.MESSAGE.value and not _has(row, Finding.SIGNATURE)]
    entered = declared_until(lake)
    words = {node: max(each.get(node, 0) for each in (entered, declared)) for node in entered.keys() | declared.keys()}
    proved = completeness_of_nodes(_accepted(rows), words)
    nodes = defaultdict[str, list[str]](list)
    silver = lake.read_in_workers(SILVER_MDR, silver_version, columns=_OWNERS)
    owners = {(row.our_domain, row.node) for row in silver.then(_different).frame(_OWNERSHIP).collect()}
    for domain, node in sorted(owners):
        nodes[domain].append(node)
    for silent in {row["node"] for row in rows} - {node for its in nodes.values() for node in its}:
        domain = silent.partition(".")[2]
        if domain in nodes:
            nodes[domain].append(silent)
    return {domain: completeness_of_domain(its, proved) for domain, its in sorted(nodes.items())}


def _different(batches: Batches) -> Batches:
    found: set[tuple[str | None, str | None]] = set()
    for batch in batches:
        (domains, domain), (nodes, node) = (codes(column(batch, name)) for name in _OWNERS)
        pairs = domain * len(nodes) + node
        is_cheap = len(domains) * len(nodes) <= _COUNTED_PAIRS
        for pair in (np.flatnonzero(np.bincount(pairs)) if is_cheap else np.unique(pairs)).tolist():
            found.add((domains[pair // len(nodes)], nodes[pair % len(nodes)]))
    rows = [dict(zip(_OWNERS, pair, strict=True)) for pair in found]
    yield from pa.Table.from_pylist(rows, schema=to_arrow_schema(_OWNERSHIP)).to_batches()


def _accepted(rows: Sequence[Mapping[str, Any]]) -> list[SegmentFact]:
    disputed = {_number(row) for row in rows if _has(row, Finding.REUSED)}
    return [
        SegmentFact(
            node=row["node"],
            boot=row["boot"],
            segno=row["segno"],
            sha256=row["sha256"],
            prev_sha256=row["prev_sha256"],
            opened_us=row["opened_us"],
            closed_us=row["closed_us"],
            missing=(row["lost_records"] or 0) + (row["rows_quarantined"] or 0),
            is_disputed=_number(row) in disputed,
            uncertain_us=(row["uncertain_from_us"] or 0, row["uncertain_until_us"] or 0),
        )
        for row in rows
        if row["verdict"] == Verdict.ACCEPTED.value
    ]


def _has(row: Mapping[str, Any], finding: Finding) -> bool:
    return finding.code in (row["findings"] or ())


def _number(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["node"], row["boot"], row["segno"]
