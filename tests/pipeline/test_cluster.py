"""The same jobs on a real cluster, one executor killed amid them, leave the same tables as on this machine alone.

`./run endurance` runs it; it takes minutes, so the suite does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

import pipeline.__main__
from pipeline.schemas import TABLES
from pipeline.synth.run import synth
from pipeline.synth.world import SynthOptions
from tests.pipeline.clusters import HOME, cluster

pytestmark = [pytest.mark.endurance]

PROGRAM = str(Path(pipeline.__main__.__file__))
INCOMPLETE = 3


def arguments(traffic: Path, lake: Path) -> list[str]:
    policies = ["--deployed", str(traffic / "policy/deployed.toml"), "--policy", str(traffic / "policy/proposed.toml")]
    return [
        "run",
        "--spool",
        str(traffic / "spool"),
        "--keys",
        str(traffic / "keys.json"),
        "--lake",
        str(lake),
        *policies,
    ]


def run(command: list[str], *, on_line: Callable[[str], None] = lambda _: None) -> None:
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
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


def tables(lake: Path) -> dict[str, list[str]]:
    """Every row of every table, in an order of its own."""
    found = {}
    for name in TABLES:
        if (lake / name).is_dir():
            rows = DeltaTable(lake / name).to_pyarrow_table().to_pylist()
            found[name] = sorted(repr(sorted(row.items())) for row in rows)
    return found


def test_a_cluster_that_loses_an_executor_leaves_the_same_tables_as_this_machine_alone(tmp_path: Path) -> None:
    traffic = tmp_path / "traffic"
    synth(SynthOptions(rows=8_000, domains=8, days=2), traffic)
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    run([sys.executable, PROGRAM, *arguments(traffic, alone), "--master", "local[2]"])
    killed = []
    with cluster(tmp_path / "cluster") as running:

        def kill_amid(line: str) -> None:
            # The jobs behind `refine` find one executor gone that they have already used.
            if line.startswith("refine"):
                killed.append(running.kill_executor())

        submit = [str(HOME / "bin" / "spark-submit"), "--master", running.master, "--driver-memory", "1g"]
        loopback = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=1g"]
        run([*submit, *loopback, PROGRAM, *arguments(traffic, shared)], on_line=kill_amid)
        assert len(killed) == 1
        assert running.executors_started() >= 3
    here, there = tables(alone), tables(shared)
    assert set(here) == set(there)
    for name, rows in here.items():
        assert there[name] == rows, name
    assert {"traffic_hourly", "statement_daily", "recon_case", "replay_flip", "stub_regression", "alert"} <= set(here)
    assert all(here[name] for name in ("traffic_hourly", "statement_daily", "recon_case", "replay_flip"))
