"""A check for a running node: the same steps in a process of its own, so that no message of the node waits for them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import trio

from protofly.errors import SettingsError

_WORDS_CHARS = 500


async def check_beside(config: Path, domain: str) -> dict[str, object]:
    """The report of a check that runs no stub, by a settings file as it is now; changes and remembers nothing.

    Raises:
        SettingsError: The settings cannot be used, or the process did not get as far as a report.
    """
    words = ["-P", "-m", "trapezoid", "peer", "check", "--json", "--config", str(config), "--", domain]
    done = await trio.run_process([sys.executable, *words], capture_stdout=True, capture_stderr=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {}
    if isinstance(report, dict) and "verdict" in report:
        return report
    error = report.get("error") if isinstance(report, dict) else None
    detail = error.get("detail") if isinstance(error, dict) else done.stderr.decode(errors="replace")[-_WORDS_CHARS:]
    raise SettingsError(f"the check ended without a report: {detail}")
