"""What a job says when it is done; the command line prints it as text or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import Any


class ExitCode(IntEnum):
    """Exit code of a job. Of several jobs the first of FAILURE, INCOMPLETE, FINDINGS that any of them has is taken."""

    FINE = 0
    FINDINGS = 1
    """More findings than the threshold allows: differences, flips, regressions, alerts."""
    FAILURE = 2
    INCOMPLETE = 3
    """The input does not reach as far as was asked for."""


@dataclass(slots=True)
class JobResult:
    """Outcome of one job.

    Attributes:
        job: Its name, as on the command line.
        outcome: What came out, in a few words for people; empty: the rows say it.
        rows: Rows written, by table.
        versions: Version of every table that was read or written, after the job.
        timings_s: Seconds of wall time by step, in order.
        findings: How many things someone should look at.
        warnings: One line each, for people.
        exit_code: What the command should end with.
        details: Job-specific figures for people and reports; JSON values only.
    """

    job: str
    outcome: str = ""
    rows: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    timings_s: dict[str, float] = field(default_factory=dict)
    findings: int = 0
    warnings: list[str] = field(default_factory=list)
    exit_code: ExitCode = ExitCode.FINE
    details: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the wall time of the block to `timings_s[step]`."""
        start = perf_counter()
        try:
            yield
        finally:
            self.timings_s[step] = self.timings_s.get(step, 0.0) + perf_counter() - start

    def wrote(self, table: str, rows: int, version: int) -> None:
        """Note that rows went into a table."""
        self.rows[table] = self.rows.get(table, 0) + rows
        self.versions[table] = version

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, times rounded to milliseconds."""
        members = asdict(self)
        members["exit_code"] = int(self.exit_code)
        members["timings_s"] = {step: round(seconds, 3) for step, seconds in self.timings_s.items()}
        return members
