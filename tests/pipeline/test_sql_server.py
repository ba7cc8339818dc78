"""The SQL server, as a client of Spark Connect meets it: another process, over a socket, with a token or without."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs import settle
from pipeline.lake.sql_views import SqlViews
from pipeline.lake.tables import Lake
from pipeline.schemas import SILVER_MDR, TRAFFIC_HOURLY
from pipeline.spark.sql_server import may_change, token_of
from protofly.errors import SettingsError
from tests.pipeline.object_store import reserved
from tests.pipeline.rows import MONDAY_US, commit_ledger, silver, silver_row

ROOT = Path(__file__).parents[2]
QUERY = "SELECT dt, hour_time, role, sum(messages) AS messages FROM lake.traffic_hourly GROUP BY ALL ORDER BY ALL"
CLIENT = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
print(json.dumps([[str(value) for value in row] for row in spark.sql(sys.argv[2]).collect()]))
"""


@pytest.fixture
def settled(lake: Lake, spark: SparkSession) -> Lake:
    """Three messages of one hour, settled."""
    lake.commit(silver(spark, [silver_row(ts_us=MONDAY_US + number) for number in range(3)]), SILVER_MDR)
    commit_ledger(lake, [])
    settle.run(lake)
    return lake


@dataclass(frozen=True)
class Server:
    """One that listens."""

    port: int
    token: str
    said: str

    def ask(self, query: str, token: str) -> subprocess.CompletedProcess[str]:
        """What a client of its own process gets."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        url = f"sc://localhost:{self.port}/" + (f";token={token}" if token else "")
        command = [sys.executable, "-c", CLIENT, url, query]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture
def server(settled: Lake, tmp_path: Path) -> Iterator[Server]:
    token_file = tmp_path / "token"
    command = [sys.executable, "-m", "pipeline", "sql", "--lake", str(settled.folder), "--master", "local[1]"]
    options = ["--memory", "1g", "--port", "0", "--token-file", str(token_file)]
    with subprocess.Popen([*command, *options], cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = _read_until_listening(process.stderr)
            [port] = re.findall(r"sc://localhost:(\d+)/", said)
            yield Server(int(port), token_file.read_text().strip(), said)
        finally:
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
    assert process.returncode == 0, rest


def _read_until_listening(stream: IO[str]) -> str:
    said = ""
    for line in stream:
        said += line
        if "sc://" in line:
            return said
    raise AssertionError(said)


@pytest.mark.spark
@pytest.mark.long
def test_a_client_with_the_token_reads_settled_tables_by_sql_and_others_are_refused(server: Server) -> None:
    done = server.ask(QUERY, server.token)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["2026-03-02", "2026-03-02 00:00:00", "in", "3"]]
    assert server.token not in server.said
    refused = server.ask(QUERY, "x" * 43)
    assert refused.returncode != 0
    assert "UNAUTHENTICATED" in refused.stderr
    assert "UNAUTHENTICATED" in server.ask(QUERY, "").stderr


@pytest.mark.spark
@pytest.mark.long
def test_a_client_that_comes_as_soon_as_somebody_listens_sees_the_views(settled: Lake, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token = token_of(token_file)
    with closing(reserved()) as held:
        port = held.getsockname()[1]
        command = [sys.executable, "-m", "pipeline", "sql", "--lake", str(settled.folder), "--master", "local[1]"]
        options = ["--memory", "1g", "--port", str(port), "--token-file", str(token_file)]
        with subprocess.Popen([*command, *options], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for(port, process)
                done = Server(port, token, "").ask(QUERY, token)
            finally:
                process.send_signal(signal.SIGTERM)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["2026-03-02", "2026-03-02 00:00:00", "in", "3"]]


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until somebody listens on a port, or the process has ended."""
    while process.poll() is None and not _is_listening(port):
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)


def _is_listening(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.spark
def test_views_are_made_anew_for_newer_versions_only(settled: Lake, spark: SparkSession) -> None:
    views = SqlViews(settled)
    assert {"traffic_hourly", "statement_daily", "silver_mdr"} <= set(views.refresh())
    assert views.refresh() == []
    database = spark.conf.get("spark.sql.globalTempDatabase")
    count = f"SELECT sum(messages) AS n FROM {database}.traffic_hourly"
    assert spark.sql(count).collect()[0].n == 3
    more = settled.read_small(TRAFFIC_HOURLY)
    settled.commit(more, TRAFFIC_HOURLY)
    assert views.refresh() == ["traffic_hourly"]
    assert spark.sql(count).collect()[0].n == 6
    types = dict(spark.sql(f"SELECT dt, ts_time, msg_id FROM {database}.silver_mdr").dtypes)
    assert types == {"dt": "date", "ts_time": "timestamp", "msg_id": "string"}


def test_a_missing_token_is_made_for_its_owner_only_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = token_of(path)
    assert (len(token) >= 32, path.stat().st_mode & 0o777, token_of(path)) == (True, 0o600, token)


@pytest.mark.parametrize(
    ("content", "mode", "shown"), [("t" * 40, 0o644, "chmod 600"), ("short", 0o600, "32 printable characters")]
)
def test_a_token_that_others_know_or_could_guess_is_refused(
    tmp_path: Path, content: str, mode: int, shown: str
) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(SettingsError, match=shown):
        token_of(path)


@pytest.mark.spark
def test_a_user_that_can_write_to_the_lake_is_warned(lake: Lake) -> None:
    assert may_change(lake) is os.access(str(lake.folder), os.W_OK)
