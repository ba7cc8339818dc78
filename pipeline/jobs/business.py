"""What was exchanged on the days of a business zone, and whether all of it is signed off.

A day of a zone is made of hours of two days of UTC, whose statements say how far it can be relied on; or of quarters
of an hour, where its midnight is within an hour of UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.days import HOUR, days_added_up, with_quantiles
from pipeline.core.business_time import BusinessDays
from pipeline.core.statement_choice import DRAFT, Standing, Wanted, choose
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.statements import outdated, outdated_line, silent_until, standings_of, totals_of
from pipeline.lake.day_state import HOURLY, QUARTER_HOURLY, unsettled_days
from pipeline.lake.lake_files import LakeFiles
from pipeline.partners.statements import partner_of, plain_statement
from pipeline.schemas import NODE_OWNER, STATEMENT_DAILY, TRAFFIC_HOURLY, TRAFFIC_QUARTER_HOURLY

_DAYS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Statements of a domain added up by business day.

    Attributes:
        days: Rows of `schemas.STATEMENT`, in which `dt` is the business day.
        versions: By UTC day, which version of its statements is in there.
        open_days: UTC days about which something is missing yet, each with what; those with statements first.
        changed: What to do about days whose records are others than those that were signed off.
    """

    days: pa.Table
    versions: dict[str, int] = field(default_factory=dict)
    open_days: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


def exchanged(lake: LakeFiles, of: BusinessDays, domain: str) -> Exchanged:
    """Add up the statements of a domain by business day. Raises LakeError."""
    utc_days = of.utc_days()
    version = lake.version(STATEMENT_DAILY)
    wanted = Wanted(from_day=utc_days[0], until_day=utc_days[-1], domain=domain, drafts=True)
    standings, known = standings_of(lake, wanted, version)
    newest = {one.day: one for one in choose(standings, wanted, known).taken}
    signed = {day: one for day, one in newest.items() if one.status != DRAFT}
    changed: list[str] = []
    for day, one in signed.items():
        of_day = lake.read_small(STATEMENT_DAILY, version=version, partitions=[day])
        is_its = pc.and_(pc.equal(of_day.column("our_domain"), domain), pc.equal(of_day.column("version"), one.version))
        changed += map(outdated_line, outdated(lake, of_day.filter(is_its), [one]))
    proved = silent_until(lake, domain, utc_days[-1], max(signed, default=""), known, version)
    behind = unsettled_days(lake, HOURLY)
    uncut = set() if of.is_of_whole_hours else _without_quarters(lake, set(newest))
    open_days = [
        f"{day} ({reason})"
        for day in sorted(utc_days, key=lambda day: (day not in newest, day))
        if (
            reason := _reason(
                newest.get(day), is_proved=day <= proved, is_settled=day not in behind, is_cut=day not in uncut
            )
        )
    ]
    return Exchanged(_days(lake, of, domain), {day: one.version for day, one in newest.items()}, open_days, changed)


def _reason(newest: Standing | None, *, is_proved: bool, is_settled: bool, is_cut: bool) -> str:
    """Why a day is not finished; empty if it is."""
    if not is_settled:
        return "records came since: settle"
    if newest is None:
        return "" if is_proved else "no statements"
    if newest.status == DRAFT:
        return "a draft"
    return "" if is_cut else "no quarters of hours: settle --quarter-hours"


def _without_quarters(lake: LakeFiles, days: set[str]) -> set[str]:
    """Those of these days whose traffic is not kept by quarters of an hour, or was before records came."""
    there = {file.partition["dt"] for file in lake.files(TRAFFIC_QUARTER_HOURLY)}
    return days - there | unsettled_days(lake, QUARTER_HOURLY)


def _days(lake: LakeFiles, of: BusinessDays, domain: str) -> pa.Table:
    table, begin = (TRAFFIC_HOURLY, "hour_us") if of.is_of_whole_hours else (TRAFFIC_QUARTER_HOURLY, "quarter_us")
    hours = lake.read_small(table, (*HOUR, begin), partitions=of.utc_days())
    hours = hours.filter(pc.equal(hours.column("our_domain"), domain))
    day = pa.array(of.day_of(hours.column(begin).to_pylist()), pa.string())
    hours = hours.set_column(hours.schema.get_field_index("dt"), "dt", day).select(list(HOUR))
    hours = hours.filter(pc.not_equal(hours.column("dt"), ""))
    return with_quantiles(days_added_up(hours)) if hours.num_rows else hours


def run(lake: LakeFiles, of: BusinessDays, *, domain: str = "", peer: str = "") -> JobResult:
    """Add up the statements of business days by partner.

    `details` has `statements`, by business day and without version, and `totals`.

    Args:
        lake: Reads statements and hours.
        of: Which days.
        domain: Whose; empty: of every domain.
        peer: With whom; empty: with everybody.

    Returns:
        Ends with FINDINGS when records have changed since they were signed off, with INCOMPLETE when days are drafts,
        not settled, or without statements.

    Raises:
        LakeError: The lake cannot be read.
    """
    result = JobResult("statements")
    owners = lake.read_small(NODE_OWNER, ["our_domain"]).column("our_domain").to_pylist()
    rows: list[dict[str, Any]] = []
    totals: list[dict[str, Any]] = []
    for one in [domain] if domain else sorted(set(owners)):
        found = exchanged(lake, of, one)
        result.warnings += found.changed
        result.findings += len(found.changed)
        status = DRAFT if found.open_days or found.changed else "signed off"
        if found.open_days:
            result.warnings.append(f"{one}: not signed off yet: {open_line(found)}")
            result.exit_code = ExitCode.INCOMPLETE
        of_peer = [row for row in found.days.to_pylist() if peer in {"", partner_of(row)}]
        rows += [plain_statement(row) | {"status": status} for row in of_peer]
        if of_peer:
            totals += totals_of(pa.Table.from_pylist(of_peer, found.days.schema))
    if result.findings and result.exit_code is ExitCode.FINE:
        result.exit_code = ExitCode.FINDINGS
    result.details |= {"statements": rows, "totals": totals}
    result.outcome = f"{of.first} to {of.last} in {of.zone}"
    return result


def open_line(found: Exchanged) -> str:
    """Word the days that are not finished, for people: consecutive days with one reason as a stretch."""
    stretches: list[tuple[str, str, str]] = []
    for day, _, why in (one.partition(" ") for one in found.open_days):
        first, last, reason = stretches[-1] if stretches else ("", "", "")
        if reason == why and date.fromisoformat(last).toordinal() + 1 == date.fromisoformat(day).toordinal():
            stretches[-1] = first, day, why
        else:
            stretches.append((day, day, why))
    shown = [f"{first} {why}" if first == last else f"{first} to {last} {why}" for first, last, why in stretches]
    more = len(shown) - _DAYS_SHOWN
    return ", ".join(shown[:_DAYS_SHOWN]) + (f" and {more} more" if more > 0 else "")
