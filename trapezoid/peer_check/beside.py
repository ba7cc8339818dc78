"""A check for a running node: the same steps in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

from protofly.errors import SettingsError
from trapezoid.beside import run_beside

_WORDS_CHARS = 500


async def check_beside(config: Path, domain: str) -> dict[str, object]:
    """The report of a check that runs no stub, by a settings file as it is now; changes and remembers nothing.

    Raises:
        SettingsError: The settings cannot be used, or the process did not get as far as a report.
    """
    done = await run_beside(["peer", "check", "--json", "--config", str(config), "--", domain])
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {}
    if isinstance(report, dict) and "verdict" in report:
        return report
    error = report.get("error") if isinstance(report, dict) else None
    detail = error.get("detail") if isinstance(error, dict) else done.stderr.decode(errors="replace")[-_WORDS_CHARS:]
    raise SettingsError(f"the check ended without a report: {detail}")
