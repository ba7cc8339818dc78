"""The same jobs on a real cluster, one executor killed amid them, leave the same tables as on this machine alone.

Once over a disk that all share, and over an object store of each kind and nothing else that is shared.

`./run endurance` runs it; it takes minutes, so the suite does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

import pipeline.__main__
from benchmarks.synth.run import synth
from benchmarks.synth.world import SynthOptions
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.store_path import Location
from pipeline.schemas import TABLES
from pipeline.spark.pack import pack
from tests.pipeline.clusters import HOME, cluster
from tests.pipeline.object_store import ObjectStore

pytestmark = [pytest.mark.endurance]

PROGRAM = str(Path(pipeline.__main__.__file__))
INCOMPLETE = 3
_WHERE_AND_WHEN = {"segments": ("spool", "manifest_mtime_us", "entered"), "ingest_plan": ("plan",)}


def arguments(traffic: Path, spool: Location, lake: Location) -> list[str]:
    policies = ["--deployed", str(traffic / "policy/deployed.toml"), "--policy", str(traffic / "policy/proposed.toml")]
    return [
        "run",
        "--spool",
        str(spool),
        "--keys",
        str(traffic / "keys.json"),
        "--lake",
        str(lake),
        *policies,
    ]


def run(
    command: list[str], more: Mapping[str, str] = MappingProxyType({}), on_line: Callable[[str], None] = lambda _: None
) -> None:
    here = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment = {**os.environ, **here, **more}
    shown = []
    # What a submitted program says on its standard error, `spark-submit` says on its standard output.
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            shown.append(line)
            on_line(line)
    # Of segments that the traffic lacks, the run says that its input is incomplete.
    assert process.returncode == INCOMPLETE, "".join(shown[-50:])


def tables(folder: Location) -> dict[str, list[str]]:
    """Every row of every table, in an order of its own, but for columns that say where and when."""
    lake = LakeFiles.of(folder)
    found = {}
    for name, table in TABLES.items():
        if lake.has(table):
            columns = [one for one in table.schema.names if one not in _WHERE_AND_WHEN.get(name, ())]
            found[name] = sorted(repr(sorted(row.items())) for row in lake.read_small(table, columns).to_pylist())
    return found


@pytest.mark.parametrize("over", ["disk", "store", "azure"])
def test_a_cluster_that_loses_an_executor_leaves_the_same_tables_as_this_machine_alone(
    tmp_path: Path, request: pytest.FixtureRequest, over: str
) -> None:
    store: ObjectStore | None = None if over == "disk" else request.getfixturevalue(over)
    traffic = tmp_path / "traffic"
    synth(SynthOptions(rows=8_000, domains=8, days=2), traffic)
    alone = tmp_path / "alone"
    run([sys.executable, PROGRAM, *arguments(traffic, traffic / "spool", alone), "--master", "local[2]"])
    home: Location = traffic if store is None else store.bucket / "cluster"
    if store is not None:
        store.upload(traffic / "spool", store.bucket / "cluster" / "spool")
    shared = home / "lake"
    killed: list[int] = []
    archive: list[str] = []
    environment = {"PYSPARK_PYTHON": sys.executable}
    bare = tmp_path / "bare"
    if store is not None:  # and nothing but a Python, found on their path, on the machines of the executors
        venv.create(bare, symlinks=True)
        pack(tmp_path / "pipeline.tar.gz")
        archive = ["--archive", str(tmp_path / "pipeline.tar.gz")]
        environment = {}
    with cluster(tmp_path / "cluster", bare / "bin") as running:

        def kill_amid(line: str) -> None:
            # The jobs behind `refine` find one executor gone that they have already used.
            if line.startswith("refine"):
                killed.append(running.kill_executor())

        submit = [str(HOME / "bin" / "spark-submit"), "--master", running.master, "--driver-memory", "1g"]
        loopback = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=1g"]
        run(
            [*submit, *loopback, PROGRAM, *arguments(traffic, home / "spool", shared), *archive], environment, kill_amid
        )
        assert len(killed) == 1
        assert running.executors_started() >= 3
    here, there = tables(alone), tables(shared)
    assert set(here) == set(there)
    for name, rows in here.items():
        assert there[name] == rows, name
    assert {"traffic_hourly", "statement_daily", "recon_case", "replay_flip", "stub_regression", "alert"} <= set(here)
    assert all(here[name] for name in ("traffic_hourly", "statement_daily", "recon_case", "replay_flip"))
