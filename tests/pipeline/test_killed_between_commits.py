"""Jobs ended by SIGKILL before and after each of their commits: the next run comes to what an undisturbed one has.

`tests.pipeline.kill_points` ends ingest and refine, at any step.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs.retention import PERSONAL
from pipeline.lake.tables import Lake
from tests.pipeline.commit_kills import JOBS, Begin, found_in, run_child

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


class Begun:
    """What jobs start from, made once for all of them."""

    def __init__(self, home: Path, spark: SparkSession) -> None:
        self.home = home
        self.spark = spark

    def copy(self, begin: Begin, to: Path) -> Path:
        """What a function makes, in a folder of its own."""
        made = self.home / begin.__name__
        if not made.exists():
            begin(made, self.spark)
        shutil.copytree(made, to)
        return to


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Begun:
    return Begun(tmp_path_factory.mktemp("begun"), spark)


def repeated(name: str, begun: Begun, home: Path, *, kill_at: int) -> dict[str, Any]:
    """Kill a job at a moment, and run it again; what it comes to."""
    begin, job = JOBS[name]
    there = begun.copy(begin, home / f"killed-{kill_at}")
    assert run_child(name, there, begun.spark, kill_at) == -1
    lake = Lake(there / "lake", begun.spark)
    job(lake, there)
    if name == "retention":
        assert [path for table in PERSONAL if lake.has(table) for path, _ in lake.unnamed(table)] == []
    return found_in(there)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(JOBS.keys() - {"exchange"}))
def test_a_job_that_is_killed_after_its_first_commit_is_completed_by_the_next_run(
    begun: Begun, tmp_path: Path, name: str
) -> None:
    begin, job = JOBS[name]
    whole = begun.copy(begin, tmp_path / "whole")
    job(Lake(whole / "lake", begun.spark), whole)
    assert repeated(name, begun, tmp_path, kill_at=2) == found_in(whole)


@pytest.mark.endurance
@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_is_killed_before_or_after_any_commit_is_completed_by_the_next_run(
    begun: Begun, tmp_path: Path, name: str
) -> None:
    whole = begun.copy(JOBS[name][0], tmp_path / "whole")
    moments = run_child(name, whole, begun.spark, 0)
    expected = found_in(whole)
    assert moments >= 2
    for kill_at in range(1, moments + 1):
        assert repeated(name, begun, tmp_path, kill_at=kill_at) == expected, f"moment {kill_at} of {moments}"
