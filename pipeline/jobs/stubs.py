"""Job `stubs`: health of stub versions, and whether the newest one is worse than the one before it."""

from __future__ import annotations

from typing import Final

from pipeline.columns.regression import SMALLEST_EFFECT
from pipeline.columns.stub_hours import RECORD
from pipeline.columns.stub_versions import HOUR, Versions
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.day_state import changed_days, note_done
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import BRONZE_STUB_EVENT, SILVER_MDR, STUB_HOURLY, STUB_LIFE, STUB_REGRESSION
from pipeline.transforms.stubs import stub_hourly, stub_life, stub_regressions

APP: Final = "stubs"
_LIVES: Final = "stub-lives"


def run(
    lake: Lake,
    *,
    baseline: str = "",
    candidate: str = "",
    smallest_effect: float = SMALLEST_EFFECT,
) -> JobResult:
    """Bring the health tables up to date, of days whose records have changed, and compare versions.

    Args:
        lake: The lake, with refined records.
        baseline: Beginning of the version to compare with; empty: the version before the candidate.
        candidate: Beginning of the version to judge; empty: the one that was seen first most recently, of each peer.
        smallest_effect: Relative difference that matters.
    """
    result = JobResult(APP)
    silver_version = lake.version(SILVER_MDR)
    meta = {"input": {SILVER_MDR.name: silver_version}}
    with result.timed("health"):
        days = changed_days(lake, APP, silver_version)
        if days:
            silver = lake.read_in_workers(SILVER_MDR, silver_version, columns=RECORD, partitions=days)
            hourly = lake.commit(
                stub_hourly(silver), STUB_HOURLY, Change("replace_partitions", partitions=days, meta=meta)
            )
            result.wrote(STUB_HOURLY.name, hourly.rows, hourly.version)
            note_done(lake, APP, days)
        _bring_lives(lake, result)
    with result.timed("compare"):
        hours = lake.read_in_workers(STUB_HOURLY, columns=HOUR)
        wanted = Versions(baseline, candidate, smallest_effect)
        table = stub_regressions(hours, wanted).frame(STUB_REGRESSION.schema).toArrow()
        rows = table.sort_by([(name, "ascending") for name in STUB_REGRESSION.key]).to_pylist()
        written = lake.commit(table, STUB_REGRESSION, Change("overwrite", meta=meta))
        result.wrote(STUB_REGRESSION.name, written.rows, written.version)
    worse = [row for row in rows if row["verdict"] == "worse"]
    result.findings = len(worse)
    result.warnings += [
        f"{row['peer_domain']}: version {str(row['candidate'])[:10]} is worse than {str(row['baseline'])[:10]} in "
        f"{row['measure']}, {row['ratio']:.2f} times ({row['low']:.2f} to {row['high']:.2f})"
        for row in worse
    ]
    if (baseline or candidate) and not rows:
        result.warnings.append("no peer has carried messages with both versions")
        result.exit_code = ExitCode.INCOMPLETE
    elif worse:
        result.exit_code = ExitCode.FINDINGS
    return result


def _bring_lives(lake: Lake, result: JobResult) -> None:
    """Write the events of stubs, of days with other events than before."""
    version = lake.version(BRONZE_STUB_EVENT)
    days = changed_days(lake, _LIVES, version, BRONZE_STUB_EVENT)
    if days:
        files = [file for file in lake.files(BRONZE_STUB_EVENT, version) if file.partition["dt"] in days]
        lives = stub_life(lake.read_files(BRONZE_STUB_EVENT, files))
        change = Change("replace_partitions", partitions=days, meta={"input": {BRONZE_STUB_EVENT.name: version}})
        done = lake.commit(lives, STUB_LIFE, change)
        result.wrote(STUB_LIFE.name, done.rows, done.version)
        note_done(lake, _LIVES, days)
