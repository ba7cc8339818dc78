"""Prints the report of a check: a line per step for a terminal, or JSON."""

from __future__ import annotations

import sys

from protofly.printable import escaped
from trapezoid.output import FOUND_WANTING, print_json
from trapezoid.peer_check.report import Outcome, PeerVerdict, Report, StepResult

_MARKS = {Outcome.OK: "ok", Outcome.WARNING: "warning", Outcome.FAILED: "FAILED", Outcome.SKIPPED: "-"}


def print_report(report: Report, *, as_json: bool) -> int:
    """Print a report; returns the exit code: 1 if federation is broken."""
    if as_json:
        print_json({"domain": report.domain, "verdict": report.verdict.value, "steps": report.results})
    else:
        for result in report.results:
            sys.stdout.write("\n".join(escaped(line) for line in _lines(result)) + "\n")
        sys.stdout.write(f"\n{escaped(report.domain)}: {report.verdict.value}\n")
    return FOUND_WANTING if report.verdict is PeerVerdict.BROKEN else 0


def _lines(result: StepResult) -> list[str]:
    code = "" if result.code in ("ok", "") else f" [{result.code}]"
    spent = "" if result.outcome is Outcome.SKIPPED else f" ({result.milliseconds:.0f} ms)"
    said = ": ".join(filter(None, (result.subject, result.observed)))
    lines = [f"{_MARKS[result.outcome]:8}{result.step:15} {said}{code}{spent}"]
    if result.hint:
        lines.append(f"{'':8}{'':15} → {result.hint}")
    return lines
