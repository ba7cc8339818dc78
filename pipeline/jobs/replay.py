"""Job `replay`: what a proposed policy would have done with the traffic that was recorded."""

from __future__ import annotations

import hashlib
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.jobs.result import ExitCode, JobResult
from pipeline.replaying import GateSettings, unreplayable_rules
from pipeline.schemas import REPLAY_FLIP, REPLAY_RUN, SILVER_MDR
from pipeline.tables import Lake
from pipeline.transforms.replay import READ, checks, flips, judged, replayed
from pipeline.worker_rows import WorkerRows
from policy.core.engine import compile_canonical

APP: Final = "replay"
WARM_UP_US: Final = 60_000_000
"""So much traffic before the range is shown to the gates, so that their rates stand as they stood."""


def run(
    lake: Lake,
    spark: SparkSession,
    deployed: GateSettings,
    proposed: GateSettings,
    *,
    domain: str = "",
    from_us: int | None = None,
    until_us: int | None = None,
    allowed: int = 0,
) -> JobResult:
    """Replay recorded decisions, check the deployed policy against the books, and count what would change.

    Args:
        lake: The lake, with refined records.
        spark: The session of the lake.
        deployed: What was in force.
        proposed: What is to be tried.
        domain: Only the books of this domain; empty: all.
        from_us: Begin of the range; None: of the books.
        until_us: End of the range, exclusive; None: of the books.
        allowed: Changed decisions that are no reason to end with FINDINGS.
    """
    del spark  # the lake has it; every job is called alike
    result = JobResult(APP)
    old, new = compile_canonical(deployed.canonical), compile_canonical(proposed.canonical)
    version = lake.version(SILVER_MDR)
    name = f"{old.canonical!r}{new.canonical!r}{deployed}{proposed}{domain}{from_us}{until_us}"
    run_id = f"{max(version, 0):08d}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    records = judged(_range(lake, version, domain, from_us, until_us))
    with result.timed("decide"):
        parts = replayed(records, deployed, proposed, count_from_us=from_us or 0).persist()
        checked = checks(parts).first()
        assert checked is not None
    cells = flips(parts).withColumn("run", F.lit(run_id))
    with result.timed("write"):
        once, meta = (f"{APP}:{run_id}", 1), {"input": {SILVER_MDR.name: version}}
        written = lake.commit(cells, REPLAY_FLIP, txn=once, meta=meta)
        result.wrote(REPLAY_FLIP.name, written.rows, written.version)
    changed = F.when(F.col("old_decision") != F.col("new_decision"), F.col("messages")).otherwise(F.lit(0))
    total = cells.agg(F.sum("messages").alias("messages"), F.sum(changed).alias("changed")).first()
    assert total is not None
    parts.unpersist()
    rules = sorted(set(unreplayable_rules(new, old, is_hashed=False)))
    is_valid = checked["differed"] == 0 and checked["agreed"] > 0
    row = {
        "run": run_id,
        "old_rev": old.revision,
        "new_rev": new.revision,
        "from_us": from_us,
        "until_us": until_us,
        "messages": total["messages"] or 0,
        "self_check_agreed": checked["agreed"],
        "self_check_differed": checked["differed"],
        "not_replayable": checked["not_replayable"],
        "unreplayable_rules": rules,
        "is_valid": is_valid,
        "input_version": version,
    }
    table = pa.Table.from_pylist([row], schema=to_arrow_schema(REPLAY_RUN.schema))
    noted = lake.commit(table, REPLAY_RUN, txn=once, meta=meta)
    result.wrote(REPLAY_RUN.name, noted.rows, noted.version)
    result.findings = total["changed"] or 0
    result.outcome = f"{row['messages']:,} decisions, {result.findings:,} would change"
    result.details = {**row, "changed": result.findings, "other_revision": checked["other_revision"]}
    result.details["unchecked"] = checked["unchecked"]
    _judge(result, checked["agreed"], checked["differed"], checked["other_revision"], checked["differing"], allowed)
    if rules:
        result.warnings.append(
            f"rules that read what is not recorded, so that {checked['not_replayable']:,} messages could not be "
            f"replayed: {', '.join(rules)}"
        )
    return result


def _range(lake: Lake, version: int, domain: str, from_us: int | None, until_us: int | None) -> WorkerRows:
    where: list[tuple[str, str, object]] = []
    if domain:
        where.append(("our_domain", "==", domain))
    if from_us is not None:
        where.append(("ts_us", ">=", from_us - WARM_UP_US))
    if until_us is not None:
        where.append(("ts_us", "<", until_us))
    return lake.read_in_workers(SILVER_MDR, version, columns=(*READ, "our_domain"), where=[where] if where else None)


def _judge(
    result: JobResult, agreed: int, differed: int, other_revision: int, differing: list[str], allowed: int
) -> None:
    """Say how far the replay can be believed."""
    if other_revision:
        result.warnings.append(
            f"{other_revision:,} messages were decided under another policy than the deployed one that was given"
        )
    if differed:
        result.warnings.append(
            f"the deployed policy, asked again, differs from the books on {differed:,} messages, such as "
            f"{', '.join(differing[:3])}: do not rely on this replay"
        )
        result.exit_code = ExitCode.FAILURE
    elif not agreed:
        result.warnings.append("no recorded decision could be checked against the deployed policy")
        result.exit_code = ExitCode.INCOMPLETE
    elif result.findings > allowed:
        result.exit_code = ExitCode.FINDINGS
