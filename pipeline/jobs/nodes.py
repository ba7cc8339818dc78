"""What operators say about nodes that are silent: kept in the lake, with who said it and why."""

from __future__ import annotations

import time

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.completeness import GRACE_S
from pipeline.core.utc_days import end_us, moment
from pipeline.jobs.operator_word import OperatorWord
from pipeline.jobs.result import JobResult
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.tables import Lake
from pipeline.schemas import NODE_DECLARATION
from pipeline.segments.declarations import Declaration
from pipeline.segments.ledger import read_stretches
from pipeline.segments.spool import TIME_MAX_US
from protofly.errors import SettingsError


def enter(lake: Lake, node: str, declaration: Declaration, *, why: str, day: str = "") -> JobResult:
    """Enter what the operator says about a node; the account and the machine are entered with it.

    Args:
        lake: Writes `node_declaration`.
        node: A node that has written something.
        declaration: What is said.
        why: The reason, for those who read the evidence later.
        day: With VOUCHED: `YYYY-MM-DD`, the last day that it covers.

    Raises:
        SettingsError: No such node, or no reason.
        LakeError: As the lake does.
    """
    result = JobResult("nodes")
    word = OperatorWord.now(why)
    seen_us = max((one.newest_closed_us for one in read_stretches(lake) if one.node == node), default=None)
    if seen_us is None:
        raise SettingsError(f"nothing that {node} wrote is in the lake: `show segment_stretch` lists the nodes")
    until_us = {Declaration.RETIRED: TIME_MAX_US, Declaration.WITHDRAWN: None}.get(declaration)
    if declaration is Declaration.VOUCHED:
        until_us = end_us(day) + GRACE_S * 1_000_000
    row = {
        "node": node,
        "declaration": declaration.value,
        "until_us": until_us,
        "who": word.who,
        "why": word.why,
        "entered_us": time.time_ns() // 1000,
        "seen_us": seen_us,
    }
    done = lake.commit(pa.Table.from_pylist([row], to_arrow_schema(NODE_DECLARATION.schema)), NODE_DECLARATION)
    result.wrote(done.table, done.rows, done.version)
    result.outcome = f"{node} is {declaration.value}" + (f" until the end of {day}" if day else "")
    result.details = {name: row[name] for name in ("node", "declaration", "until_us", "who", "why")}
    return result


def listed(lake: LakeFiles) -> JobResult:
    """List the declarations about nodes, the newest last."""
    rows = sorted(lake.read_small(NODE_DECLARATION).to_pylist(), key=lambda row: int(row["entered_us"]))
    lines = [
        f"{moment(row['entered_us'])}: {row['node']} {row['declaration']}"
        + (f" until {moment(row['until_us'])}" if row["declaration"] == Declaration.VOUCHED.value else "")
        + f" by {row['who']}: {row['why']}"
        for row in rows
    ]
    return JobResult(
        "nodes",
        outcome=f"{len(rows)} declaration{'' if len(rows) == 1 else 's'} about nodes",
        warnings=lines,
        details={"declarations": rows},
    )
