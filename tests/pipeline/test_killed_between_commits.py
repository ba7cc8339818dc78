"""Jobs that make several commits, ended after each of them: the next run comes to the same tables.

`tests.pipeline.kill_points` ends ingest and refine by SIGKILL, at any step. What the others leave behind depends only
on which of their commits have happened, so here an exception that nobody catches ends them, within one process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.jobs import abuse, audit, compact, ingest, reconcile, refine, retention, settle, stubs
from pipeline.lake_files import LakeFiles
from pipeline.schemas import DAY_STATE, SILVER_MDR, TABLES, TRAFFIC_HOURLY
from pipeline.tables import Change, Lake
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import SECOND_US, START_US, SegmentWriter, message

pytestmark = [pytest.mark.spark, pytest.mark.long]

DAY_US = 86_400 * SECOND_US
LATER = {"version", "input_version", "entered_us"}
"""Columns that say which commit a row came of; another one, when a job was begun twice."""

Job = Callable[[Lake], object]
JOBS: dict[str, Job] = {
    "settle": settle.run,
    "settle --restate": lambda lake: settle.run(lake, restate=True),
    "reconcile": reconcile.run,
    "reconcile all": reconcile.run,
    "stubs": stubs.run,
    "abuse": abuse.run,
    "retention": lambda lake: retention.run(lake, today=date(2026, 3, 4), keep_days=2, vacuum_after_s=0),
    "compact": lambda lake: compact.run(lake, files_min=2, keep_s=0),
    "audit": audit.run,
}


class Killed(BaseException):
    """The end of a process."""


@contextmanager
def killed_after(commits: int) -> Iterator[list[int]]:
    """End after so many commits; the list has how many there were."""
    original = Lake._move_and_publish
    made = [0]

    def stepped(self: Lake, *args: Any) -> Any:
        done = original(self, *args)
        made[0] += 1
        if made[0] == commits:
            raise Killed
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "_move_and_publish", stepped)
        yield made


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A lake of three days, of which one was signed off before more records of it came."""
    home = tmp_path_factory.mktemp("between")
    writer = SegmentWriter(home / "spool")
    lake = Lake(home / "lake", spark)
    for day in range(3):
        for half in range(2):
            first = START_US + day * DAY_US + half * 3600 * SECOND_US
            writer.seal(
                [message(10 * day + 5 * half + number, ts_us=first + number * SECOND_US) for number in range(4)]
            )
        ingest.run(lake, [writer.spool])
        refine.run(lake)
    settle.run(lake)
    reconcile.run(lake)
    late = lake.read_small(SILVER_MDR, partitions=["2026-03-01"]).slice(0, 1)
    again = late.set_column(late.schema.get_field_index("seq"), "seq", pa.array([999], pa.int64()))
    lake.commit(again, SILVER_MDR)
    return on_disk(lake.folder)


def content(lake: LakeFiles) -> dict[str, list[str]]:
    """Rows of all tables, in an order."""
    found = {}
    for name in sorted(TABLES):
        rows = lake.read_small(name)
        rows = rows.select([column for column in rows.column_names if column not in LATER or name == "statement_daily"])
        if "input_version" in rows.column_names:
            rows = rows.drop_columns(["input_version"])
        found[name] = sorted(map(repr, rows.to_pylist()))
    return found


@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_ends_between_two_commits_is_completed_by_the_next_run(
    begun: Path, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    def copied(to: str) -> Lake:
        shutil.copytree(begun, tmp_path / to)
        lake = Lake(tmp_path / to, spark)
        if name in {"compact", "retention", "audit"}:
            return lake
        if name == "reconcile all":
            lake.commit(lake.read_small(DAY_STATE).slice(0, 0), DAY_STATE, Change("overwrite"))
        if name != "settle --restate":
            lake.commit(lake.read_small(TRAFFIC_HOURLY).slice(0, 0), TRAFFIC_HOURLY, Change("overwrite"))
        return lake

    whole = copied("whole")
    with killed_after(0) as made:
        JOBS[name](whole)
    expected = content(whole)
    assert made[0] >= 1
    for commits in range(1, made[0] + 1):
        lake = copied(f"after-{commits}")
        with killed_after(commits), pytest.raises(Killed):
            JOBS[name](lake)
        JOBS[name](Lake(lake.folder, spark))
        assert content(LakeFiles.of(lake.folder)) == expected, f"after commit {commits} of {made[0]}"
