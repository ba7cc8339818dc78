"""Job `transfers`: which labelled data left our domains, for the records that data protection asks for.

Rules give labels to what they permit to leave (`docs/policies.md`); records of messages have them.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta
from typing import Final

from pipeline.core.utc_days import checked_day
from pipeline.jobs.result import JobResult
from pipeline.lake.tables import Lake
from pipeline.schemas import SILVER_MDR
from pipeline.transforms.transfers import COLUMNS, transfers
from protofly.errors import SettingsError

APP: Final = "transfers"
ROWS_MAX: Final = 100_000


def days_between(first: str, last: str) -> Collection[str] | None:
    """The UTC days from one to another, both included; None for all. Raises SettingsError."""
    if not first and not last:
        return None
    begin, end = (date.fromisoformat(checked_day(day or other)) for day, other in ((first, last), (last, first)))
    if end < begin:
        raise SettingsError(f"the last day, {end}, is before the first, {begin}: exchange them")
    if (end - begin).days > 3_660:
        raise SettingsError("that is more than ten years: name fewer days")
    return [(begin + timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]


def run(lake: Lake, *, days: Collection[str] | None = None, peer: str = "") -> JobResult:
    """Report labelled data that left, by day, partner, label, purpose and basis.

    `details` has `transfers`: rows with the columns of `pipeline.transforms.transfers`.

    Args:
        lake: Reads `silver_mdr`.
        days: Only these UTC days; None: all.
        peer: Only what left for this domain.

    Raises:
        LakeError: As the lake does.
        SettingsError: There are too many rows for one report.
    """
    result = JobResult(APP, versions={SILVER_MDR.name: lake.version(SILVER_MDR)})
    files = [file for file in lake.files(SILVER_MDR) if days is None or file.partition["dt"] in days]
    found = transfers(lake.read_files(SILVER_MDR, files))
    if peer:
        found = found.where(found["peer_domain"] == peer)
    rows = [row.asDict() for row in found.orderBy(*COLUMNS[:6]).limit(ROWS_MAX + 1).collect()]
    if len(rows) > ROWS_MAX:
        raise SettingsError(f"there are more than {ROWS_MAX:,} rows: name fewer days, or one partner")
    result.details["transfers"] = rows
    kept_back = sum(row["kept_back"] for row in rows)
    result.outcome = f"{len(rows):,} kinds of transfers"
    if kept_back:
        result.warnings.append(f"{kept_back:,} labels of messages were kept back for want of consent")
    return result
