"""Job `replay`: what a proposed policy would have done with the traffic that was recorded."""

from __future__ import annotations

import hashlib
from typing import Final

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.replaying import GateSettings, unreplayable_rules
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.tables import Change, Lake
from pipeline.lake.worker_rows import WorkerRows
from pipeline.schemas import REPLAY_FLIP, REPLAY_RUN, SILVER_MDR
from pipeline.transforms.replay import READ, checks, flips, judged, replayed
from policy.core.engine import compile_canonical

APP: Final = "replay"


def run(
    lake: Lake,
    deployed: GateSettings,
    proposed: GateSettings,
    *,
    domain: str = "",
    allowed: int = 0,
) -> JobResult:
    """Replay recorded decisions, check the deployed policy against the records, and count what would change.

    Args:
        lake: The lake, with refined records.
        deployed: What was in force.
        proposed: What is to be tried.
        domain: Only the records of this domain; empty: all.
        allowed: Changed decisions that are no reason to end with FINDINGS.
    """
    result = JobResult(APP)
    old, new = compile_canonical(deployed.canonical), compile_canonical(proposed.canonical)
    version = lake.version(SILVER_MDR)
    name = f"{old.canonical!r}{new.canonical!r}{deployed}{proposed}{domain}"
    run_id = f"{max(version, 0):08d}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    records = judged(_records(lake, version, domain))
    with result.timed("decide"):
        parts = replayed(records, deployed, proposed).persist()
        checked = checks(parts).first()
        assert checked is not None
    cells = flips(parts).withColumn("run", F.lit(run_id))
    with result.timed("write"):
        once, meta = (f"{APP}:{run_id}", 1), {"input": {SILVER_MDR.name: version}}
        written = lake.commit(cells, REPLAY_FLIP, Change(txn=once, meta=meta))
        result.wrote(REPLAY_FLIP.name, written.rows, written.version)
    changed = F.when(F.col("old_decision") != F.col("new_decision"), F.col("messages")).otherwise(F.lit(0))
    total = cells.agg(F.sum("messages").alias("messages"), F.sum(changed).alias("changed")).first()
    assert total is not None
    parts.unpersist()
    rules = sorted(set(unreplayable_rules(new, old, is_hashed=False)))
    row = {
        "run": run_id,
        "old_rev": old.revision,
        "new_rev": new.revision,
        "from_us": None,
        "until_us": None,
        "messages": total["messages"] or 0,
        "self_check_agreed": checked["agreed"],
        "self_check_differed": checked["differed"],
        "not_replayable": checked["not_replayable"],
        "unreplayable_rules": rules,
        "is_valid": checked["differed"] == 0 and checked["agreed"] > 0,
        "input_version": version,
    }
    table = pa.Table.from_pylist([row], schema=to_arrow_schema(REPLAY_RUN.schema))
    noted = lake.commit(table, REPLAY_RUN, Change(txn=once, meta=meta))
    result.wrote(REPLAY_RUN.name, noted.rows, noted.version)
    result.findings = total["changed"] or 0
    result.outcome = f"{row['messages']:,} decisions, {result.findings:,} would change"
    result.details = {**row, "changed": result.findings, "other_revision": checked["other_revision"]}
    result.details["unchecked"] = checked["unchecked"]
    _judge(result, checked, rules, allowed=allowed)
    return result


def _records(lake: Lake, version: int, domain: str) -> WorkerRows:
    where = [[("our_domain", "==", domain)]] if domain else None
    return lake.read_in_workers(SILVER_MDR, version, columns=(*READ, "our_domain"), where=where)


def _judge(result: JobResult, checked: Row, rules: list[str], *, allowed: int) -> None:
    """Set warnings and the exit code by how far the replay can be trusted. `rules` could not be replayed."""
    if checked["other_revision"]:
        result.warnings.append(
            f"{checked['other_revision']:,} messages were decided under another policy than the deployed one that was "
            "given"
        )
    if checked["differed"]:
        result.warnings.append(
            f"the deployed policy, asked again, differs from the records on {checked['differed']:,} messages, such as "
            f"{', '.join(checked['differing'][:3])}: do not rely on this replay"
        )
        result.exit_code = ExitCode.FAILURE
    elif not checked["agreed"]:
        result.warnings.append("no recorded decision could be checked against the deployed policy")
        result.exit_code = ExitCode.INCOMPLETE
    elif result.findings > allowed:
        result.exit_code = ExitCode.FINDINGS
    if rules:
        result.warnings.append(
            f"rules that read what is not recorded, so that {checked['not_replayable']:,} messages could not be "
            f"replayed: {', '.join(rules)}"
        )
    elif checked["not_replayable"]:
        result.warnings.append(
            f"{checked['not_replayable']:,} messages could not be replayed: their records lack what policies "
            "read (hashes in place of addresses, the message inside a forward), or a gate for a time decided"
        )
