"""Job `report`: one HTML file about the newest days that the lake holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipeline.jobs.result import JobResult
from pipeline.lake import storage
from pipeline.lake.store_path import Location
from pipeline.lake.tables import Lake
from pipeline.report.gather import gather
from pipeline.report.page import render
from pipeline.report.recent import RecentDays

APP: Final = "report"
DAYS: Final = 31


def run(lake: Lake, *, out: Location, days: int = DAYS) -> JobResult:
    """Write the report.

    Args:
        lake: The lake; the page names parts whose job has not run.
        out: The file; replaced as a whole.
        days: So many of the newest days.

    Raises:
        LakeError: The lake cannot be read.
        OSError: The file cannot be written.
    """
    result = JobResult(APP)
    with result.timed("gather"):
        recent = RecentDays(lake, days)
        facts = gather(recent)
    with result.timed("draw"):
        page = render(facts)
    if isinstance(out, Path):
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(out.name + ".tmp")
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(out)
    else:
        storage.write_bytes(out, page.encode())
    result.versions = dict(facts.versions)
    result.outcome = f"{len(page.encode()) // 1024:,} KiB"
    result.details = {"path": str(out.absolute()), "bytes": len(page.encode()), "first_day": recent.first_day}
    return result
