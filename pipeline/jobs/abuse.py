"""Job `abuse`: what is usual for each peer, and who behaved badly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from datetime import date
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.senders import EVENT, EVIDENCE, EVIDENT, MESSAGE, SPOOFED, Suspect
from pipeline.columns.usual import TRAFFIC, Missing
from pipeline.core import alerts
from pipeline.core.stretches import missing_times
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.day_state import HOURLY, done_inputs, inputs_by_day, note_done
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.tables import Change, Lake
from pipeline.lake.worker_rows import WorkerRows
from pipeline.schemas import ALERT, BRONZE_LINK_EVENT, DOMAIN_BASELINE, NODE_OWNER, SILVER_MDR, TRAFFIC_HOURLY
from pipeline.segments.ledger import read_stretches
from pipeline.transforms.abuse import (
    CLAIMED,
    FIRSTS,
    FLOODS,
    SUSPECTS,
    false_names,
    firsts,
    flooded_hours,
    suspects,
    usual_hours,
)
from protofly.records import RecordKind

APP: Final = "abuse"
WATCH: Final = "watch-abuse"
_USUAL_DAYS: Final = 56
"""So many days before: twice the weeks from which on hours of the week are compared."""
_ORDER: Final = [(name, "ascending") for name in ALERT.key]


def run(
    lake: Lake, *, days: Collection[str] | None = None, allowed: int = 0, is_settled_later: bool = False
) -> JobResult:
    """Refresh baselines and alerts from settled and refined records.

    Args:
        lake: The lake.
        days: Only alerts of these UTC days, `YYYY-MM-DD`; those of others stay. What is usual is then judged by them
            and the eight weeks before. None: alerts of all days, what is usual by all that there is.
        allowed: Alerts that are no reason to end with FINDINGS.
        is_settled_later: Whether who calls settles by itself; then hours that are not there yet are no gap.
    """
    result = JobResult(APP)
    meta = {"input": {table.name: lake.version(table) for table in (SILVER_MDR, BRONZE_LINK_EVENT, TRAFFIC_HOURLY)}}
    traffic = lake.read_in_workers(TRAFFIC_HOURLY, columns=TRAFFIC, partitions=_with_weeks_before(days))
    with result.timed("baselines"):
        missing = missing_records(lake)
        usual = lake.commit(usual_hours(traffic, missing), DOMAIN_BASELINE, Change("overwrite", meta=meta))
        result.wrote(DOMAIN_BASELINE.name, usual.rows, usual.version)
    with result.timed("alerts"):
        silver = partial(lake.read_in_workers, SILVER_MDR, where=[[("role", "==", "in")]], partitions=days)
        found = of_senders(silver(columns=MESSAGE), silver(columns=EVIDENT)) + of_floods(traffic, missing)
        if lake.has(BRONZE_LINK_EVENT):
            events = lake.read_in_workers(
                BRONZE_LINK_EVENT, columns=EVENT, where=[[("event", "==", SPOOFED)]], partitions=days
            )
            found += of_claims(events, owners_of_nodes(lake))
        found = [alert for alert in found if days is None or alert["dt"] in days]
        table = pa.Table.from_pylist(found, schema=to_arrow_schema(ALERT.schema)).sort_by(_ORDER)
        whole = Change("overwrite" if days is None else "replace_partitions", partitions=days, meta=meta)
        written = lake.commit(table, ALERT, whole)
        result.wrote(ALERT.name, written.rows, written.version)
    counts = Counter(alert["pattern"] for alert in found)
    result.details["alerts"] = dict(sorted(counts.items()))
    result.findings = written.rows
    result.outcome = f"{usual.rows:,} baselines"
    result.warnings += [f"{count} × {pattern}" for pattern, count in sorted(counts.items())]
    if written.rows > allowed:
        result.exit_code = ExitCode.FINDINGS
    if not is_settled_later and not lake.has(TRAFFIC_HOURLY):
        result.warnings.append("nothing is settled yet, so floods cannot be judged: run `settle` first")
        result.exit_code = ExitCode.INCOMPLETE
    return result


def watch(lake: Lake, *, allowed: int = 0, is_settled_later: bool = False) -> JobResult:
    """Look for abuse on the days whose records or hours have changed since; alerts of others stay. Raises LakeError.

    Args:
        lake: As for `run`; says in `day_state` which days were looked at.
        allowed: Alerts of these days that are no reason to end with FINDINGS.
        is_settled_later: As for `run`.
    """
    hours, done = done_inputs(lake, HOURLY), done_inputs(lake, WATCH)
    inputs = inputs_by_day(lake, lake.version(SILVER_MDR))
    whole = {day: f"{input_}; hours of {hours.get(day, 'none')}" for day, input_ in inputs.items()}
    days = {day: input_ for day, input_ in whole.items() if done.get(day) != input_}
    if not days:
        return JobResult(APP)
    result = run(lake, days=days, allowed=allowed, is_settled_later=is_settled_later)
    note_done(lake, WATCH, days)
    return result


def _with_weeks_before(days: Collection[str] | None) -> Collection[str] | None:
    """Days by which it is judged what is usual on some of them."""
    if days is None:
        return None
    first, last = (date.fromisoformat(day).toordinal() for day in (min(days), max(days)))
    return {date.fromordinal(day).isoformat() for day in range(first - _USUAL_DAYS, last + 1)}


def of_senders(messages: WorkerRows, evident: WorkerRows) -> list[dict[str, Any]]:
    """Alerts about single senders, from the columns `MESSAGE` and `EVIDENT` of `silver_mdr`."""
    found = suspects(messages).frame(SUSPECTS).toArrow().to_pylist()
    if not found:
        return []
    named = {Suspect(*(row[name] for name in Suspect._fields)) for row in found}
    evidence = firsts(evident, named).frame(FIRSTS).toArrow().to_pylist()
    return list(alerts.of_senders(found, alerts.evidence_of(evidence, EVIDENCE)))


def of_claims(events: WorkerRows, owners: Mapping[str, str]) -> list[dict[str, Any]]:
    """Alerts about messages in a false name, which never become message records, from `EVENT` of link events."""
    found = false_names(events, owners).frame(CLAIMED).toArrow().to_pylist()
    return [alerts.spoofing(row | {"peer_domain": row["domain"] or ""}) for row in found]


def of_floods(traffic: WorkerRows, missing: Missing | None = None) -> list[dict[str, Any]]:
    """Alerts about whole peers, from `TRAFFIC` of `traffic_hourly`; and when records of a domain are missing."""
    return [alerts.flood(row) for row in flooded_hours(traffic, missing).frame(FLOODS).toArrow().to_pylist()]


def missing_records(lake: LakeFiles) -> Missing:
    """Find the periods in which segments of a node are missing, by the node's domain. Raises LakeError."""
    owners = owners_of_nodes(lake)
    found = defaultdict[str, list[tuple[int, int]]](list)
    for (node, kind), stretches in read_stretches(lake).chains().items():
        if kind == RecordKind.MESSAGE.value and node in owners:
            found[owners[node]] += missing_times(stretches)
    return {domain: tuple(periods) for domain, periods in sorted(found.items()) if periods}


def owners_of_nodes(lake: LakeFiles) -> dict[str, str]:
    """Read the domain of each node. Raises LakeError."""
    return dict(sorted((row["node"], row["our_domain"]) for row in lake.read_small(NODE_OWNER).to_pylist()))
