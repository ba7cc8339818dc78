"""The whole way from spools to the report: every job in its order, each reported when it begins and when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.columns.replaying import GateSettings
from pipeline.core.tolerance import Tolerance
from pipeline.jobs import abuse, audit, ingest, reconcile, refine, replay, report, settle, stubs
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.store_path import Location
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_MDR
from pipeline.segments.node_keys import Trust

Job: TypeAlias = Callable[[], JobResult]

_GRAVEST_FIRST = (ExitCode.FAILURE, ExitCode.INCOMPLETE, ExitCode.FINDINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """Terms of a run of all jobs.

    Attributes:
        spools: Where segments lie.
        trust: Whose signatures count.
        deployed: What the gates decided by, for a replay.
        proposed: A policy to try; None leaves the replay out.
        out: The report.
        declared: Until when the operator vouches for a node that is silent, in µs.
        allowed: Findings of each kind that are no reason to end with FINDINGS.
    """

    spools: Sequence[Location]
    trust: Trust
    deployed: GateSettings | None
    proposed: GateSettings | None
    out: Location
    declared: Mapping[str, int] = field(default_factory=dict)
    allowed: int = 0


def jobs(lake: Lake, what: WholeRun) -> Iterator[tuple[str, Job]]:
    """Name and call of each job, in order; to be called one by one. Without any message in the lake, ingest is all."""
    yield "ingest", lambda: ingest.run(lake, what.spools, trust=what.trust)
    if not lake.has(BRONZE_MDR):
        return
    yield "refine", lambda: refine.run(lake)
    yield "settle", lambda: settle.run(lake, declared=what.declared)
    yield "reconcile", lambda: reconcile.run(lake, declared=what.declared, tolerance=Tolerance(what.allowed))
    deployed, proposed = what.deployed, what.proposed
    if deployed is not None and proposed is not None:
        yield "replay", lambda: replay.run(lake, deployed, proposed, allowed=what.allowed)
    yield "stubs", lambda: stubs.run(lake)
    yield "abuse", lambda: abuse.watch(lake, allowed=what.allowed)
    yield "audit", lambda: audit.run(lake)
    yield "report", lambda: report.run(lake, out=what.out)


def combined(results: Sequence[JobResult]) -> ExitCode:
    """With what a run of several jobs ends: the gravest of their ends."""
    codes = {result.exit_code for result in results}
    return next((code for code in _GRAVEST_FIRST if code in codes), ExitCode.FINE)
