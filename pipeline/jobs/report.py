"""Job `report`: one HTML file about everything that the lake holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipeline.jobs.result import JobResult
from pipeline.report.gather import gather
from pipeline.report.page import render
from pipeline.tables import Lake

APP: Final = "report"


def run(lake: Lake, *, out: Path) -> JobResult:
    """Write the report.

    Args:
        lake: The lake; the page names parts whose job has not run.
        out: The file; replaced as a whole.

    Raises:
        LakeError: The lake cannot be read.
        OSError: The file cannot be written.
    """
    result = JobResult(APP)
    with result.timed("gather"):
        facts = gather(lake)
    with result.timed("draw"):
        page = render(facts)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(out.name + ".tmp")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(out)
    result.versions = dict(facts.versions)
    result.outcome = f"{len(page.encode()) // 1024:,} KiB"
    result.details = {"path": str(out.absolute()), "bytes": len(page.encode())}
    return result
