"""What the pipeline's commands say: a line for each job on standard error, the outcome on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from pipeline.core.harmless import harmless

if TYPE_CHECKING:
    from pipeline.jobs.result import JobResult

FAILURE = 2
NAME_CHARS = 10


class Terminal:
    """Reports progress on standard error and the result on standard output."""

    def __init__(self, *, as_json: bool) -> None:
        from rich.console import Console

        self._as_json = as_json
        self._console = Console(stderr=True, highlight=False)
        self.results: list[JobResult] = []

    def job(self, name: str, work: Callable[[], JobResult]) -> JobResult:
        """Run one job under its name."""
        begun = time.monotonic()
        with self._console.status(name):
            result = work()
        self.results.append(result)
        self.line(name, _summary(result), time.monotonic() - begun)
        for warning in result.warnings:
            self._console.print(f"{'':{NAME_CHARS}} {harmless(warning)}", style="yellow", markup=False, soft_wrap=True)
        return result

    def line(self, name: str, text: str, seconds: float) -> None:
        """One line for something that is done."""
        self._console.print(f"{name:{NAME_CHARS}} {harmless(text)}  {seconds:.1f} s", markup=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """One line for people."""
        self._console.print(harmless(text), markup=False, soft_wrap=True)

    def end(self, **more: Any) -> None:
        """Print the outcome and leave with the exit code of all jobs. Raises typer.Exit."""
        from pipeline.jobs.whole import combined

        code = int(combined(self.results))
        if self._as_json:
            jobs = [result.to_dict() for result in self.results]
            sys.stdout.write(json.dumps({"exit_code": code, **more, "jobs": jobs}, indent=2) + "\n")
        else:
            for name, value in more.items():
                self._console.print(f"{name:{NAME_CHARS}} {harmless(str(value))}", markup=False, soft_wrap=True)
        raise typer.Exit(code)


def _summary(result: JobResult) -> str:
    """One line about a job."""
    rows = (
        result.outcome
        or ", ".join(f"{name} {count:,}" for name, count in result.rows.items() if count)
        or "nothing new"
    )
    return f"{rows}; {result.findings:,} to look at" if result.findings else rows
