"""The command line: what it says, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from pipeline.cli.program import app
from protofly.record_segments import MANIFEST_SUFFIX, SEALED_SUFFIX
from tests.pipeline.spools import KEY, NODE, SegmentWriter, message

REPOSITORY = Path(__file__).resolve().parents[2]


class Borrowed:
    """The session of all tests, which a command must not end."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def stop(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


@pytest.fixture
def borrowed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the session of all tests."""
    monkeypatch.setattr("pipeline.spark.session.start_session", lambda *_, **__: Borrowed(spark))


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Spark fails."""

    def start(*_: object, **__: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("pipeline.spark.session.start_session", start)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Two sound segments of one node."""
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(number) for number in range(1, 4)])
    writer.seal([message(number) for number in range(4, 6)])
    return writer.spool


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    record = msgspec.to_builtins(KEY.record())
    path.write_bytes(msgspec.json.encode({KEY.key_id: {"node": NODE, **record}}))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# Settings that are wrong are reported before Spark is started.


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("run", "--policy", "NONE.toml"), "NONE.toml"),
        (("run", "--keys", "NONE.json"), "NONE.json"),
        (("run", "--config", "NONE.toml"), "NONE.toml"),
        (("ingest", "--keys", "NONE.json"), "NONE.json"),
    ],
)
def test_a_file_that_is_missing_is_named_before_spark_is_started(
    tmp_path: Path, spool: Path, arguments: tuple[str, ...], shown: str
) -> None:
    done = run(*arguments, "--spool", spool, "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert shown in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.output
    assert not (tmp_path / "lake").exists()


@pytest.mark.usefixtures("no_spark")
def test_an_error_is_one_json_object_where_json_was_asked_for(tmp_path: Path, spool: Path) -> None:
    done = run("ingest", "--json", "--spool", spool, "--lake", tmp_path / "lake", "--keys", tmp_path / "none")
    assert done.exit_code == 2
    shown = json.loads(done.stdout)
    assert shown["error"]["code"] == "settings"
    assert "none" in shown["error"]["detail"]
    assert done.stderr == f"error: {shown['error']['detail']} [settings]\n"


@pytest.mark.usefixtures("no_spark")
def test_an_error_of_the_lake_has_a_code_too(tmp_path: Path) -> None:
    done = run("show", "--json", "--lake", tmp_path / "none")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["code"] == "lake"
    assert done.stderr.endswith("[lake]\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest", "--nonsense"),
        ("nonsense",),
        ("settle",),
        ("settle", "--lake", "nowhere"),
        ("settle", "--lake", "nowhere", "--day", "2026-3-2"),
        ("settle", "--lake", "nowhere", "--vouch", "mn-1.a.example"),
        ("reconcile", "--lake", "nowhere", "--peer", "b.example"),
        ("report", "--lake", "nowhere"),
        ("report", "--lake", "hdfs://nn/lake"),
        ("ingest", "--lake", "s3a://bucket/lake", "--spool", "."),
        ("ingest", "--lake", "lake", "--spool", "file:///var/spool"),
        ("show", "--lake", "abfss://c@a/lake"),
    ],
)
@pytest.mark.usefixtures("no_spark")
def test_a_wrong_call_ends_with_1_because_2_would_say_findings(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert list(tmp_path.iterdir()) == []


def test_the_commands_of_the_whole_program_end_alike() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trapezoid", "pipeline", "settle", "--nonsense"], capture_output=True, cwd=REPOSITORY
    )
    assert done.returncode == 2


# Exit codes.


@pytest.mark.spark
@pytest.mark.usefixtures("borrowed")
def test_sound_segments_end_with_0_and_one_json_object(tmp_path: Path, spool: Path, keys: Path) -> None:
    done = run("ingest", "--json", "--spool", spool, "--lake", tmp_path / "lake", "--keys", keys)
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["exit_code"] == 0
    [job] = shown["jobs"]
    assert (job["job"], job["rows"]["bronze_mdr"], job["warnings"]) == ("ingest", 5, [])


@pytest.mark.spark
@pytest.mark.usefixtures("borrowed")
def test_a_damaged_segment_is_a_finding_and_a_missing_one_leaves_the_input_incomplete(
    tmp_path: Path, spool: Path, keys: Path
) -> None:
    last = max(spool.glob(f"*{SEALED_SUFFIX}"))
    whole = last.read_bytes()
    last.write_bytes(whole[:-9])
    where = ("--spool", spool, "--lake", tmp_path / "lake", "--keys", keys)
    torn = run("ingest", *where)
    assert torn.exit_code == 1
    assert "1 to look at" in torn.stderr
    assert "mdr segment rejected, torn: the segment ends within a frame" in torn.stderr
    assert f"[{last.name.replace(SEALED_SUFFIX, MANIFEST_SUFFIX)}]" in torn.stderr
    last.write_bytes(whole)
    healed = run("ingest", *where)
    assert healed.exit_code == 0, healed.stderr
    writer = SegmentWriter(spool)
    writer.segno, writer.seq, writer.prev_sha256 = 5, 90, "0" * 64
    writer.seal([message(100)])
    gap = run("ingest", *where)
    assert gap.exit_code == 3
    assert "segments 3…5" in gap.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("borrowed")
def test_a_folder_that_is_no_lake_is_refused_with_1(tmp_path: Path, spool: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "diary.txt").write_text("dear diary")
    done = run("ingest", "--spool", spool, "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert done.stderr.startswith("error: ")


@pytest.mark.spark
@pytest.mark.usefixtures("borrowed")
def test_an_empty_spool_is_named_and_ends_with_3(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    done = run("run", "--spool", tmp_path / "spool", "--lake", tmp_path / "lake")
    assert done.exit_code == 3, done.output
    assert f"no segments in {tmp_path / 'spool'}" in done.stderr
    assert "refine" not in done.stderr
    assert "report" not in done.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("borrowed")
def test_a_spool_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = run("ingest", "--spool", tmp_path / "nowhere", "--lake", tmp_path / "lake")
    assert done.exit_code == 2
    assert "nowhere" in done.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("borrowed")
def test_nodes_are_declared_listed_and_refused_by_the_command_line(tmp_path: Path, spool: Path, keys: Path) -> None:
    lake = tmp_path / "lake"
    assert run("ingest", "--spool", spool, "--lake", lake, "--keys", keys).exit_code == 0
    for words in (
        ("retire", NODE, "--why", "replaced by mn-3"),
        ("vouch", NODE, "--day", "2026-03-31", "--why", "in repair"),
        ("withdraw", NODE, "--why", "it runs again"),
    ):
        assert run("nodes", *words, "--lake", lake).exit_code == 0
    for words, problem in (
        (("retire", "mn-9.a.example", "--why", "gone"), "nothing that mn-9.a.example wrote"),
        (("vouch", NODE, "--day", "yesterday", "--why", "gone"), "yesterday"),
        (("retire", NODE, "--why", " "), "--why"),
    ):
        refused = run("nodes", *words, "--lake", lake)
        assert (refused.exit_code, refused.stderr.startswith("error: ")) == (2, True)
        assert problem in refused.stderr
    listed = json.loads(run("nodes", "list", "--lake", lake, "--json").stdout)
    [job] = listed["jobs"]
    assert [(one["declaration"], one["why"]) for one in job["details"]["declarations"]] == [
        ("retired", "replaced by mn-3"),
        ("vouched", "in repair"),
        ("withdrawn", "it runs again"),
    ]


# As a program.


def test_the_package_is_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "pipeline", "--help"], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0
    jobs = ("run", "ingest", "refine", "settle", "reconcile", "export", "import", "replay", "stubs", "abuse")
    for job in (*jobs, "statements", "audit", "compact", "retention", "report"):
        assert job in done.stdout


_WITHOUT_PYSPARK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from pipeline.cli.program import app
app(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["run", "ingest"])
def test_who_has_no_pyspark_is_reported_how_to_get_it(tmp_path: Path, spool: Path, command: str) -> None:
    where = ["--spool", str(spool), "--lake", str(tmp_path / "lake")]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PYSPARK, command, *where], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 2
    advice = "`pip install 'trapezoid[pipeline]'` brings it"
    assert done.stderr == f"error: pyspark is not installed; {advice} [not-installed]\n"
