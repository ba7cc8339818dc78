"""`trapezoid pipeline statements` over a small lake: what it shows, writes and ends with; without Spark."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from pipeline.cli.program import app
from pipeline.jobs import statements as job
from pipeline.jobs.settle import run as settle
from pipeline.lake.store_path import Location
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import SILVER_MDR, TRAFFIC_HOURLY
from tests.pipeline.on_disk import on_disk
from tests.pipeline.rows import DAY_US, MONDAY_US, commit_ledger, silver, silver_row

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).resolve().parents[2]
NODE = "runtime://a.example/mn-1"
MONDAY, TUESDAY = "2026-03-02", "2026-03-03"

Statements = Callable[..., Result]


def records() -> list[dict[str, Any]]:
    """Monday with two partners in both directions, Tuesday with one."""
    out = {"role": "out", "src_domain": "a.example"}
    return [
        *(silver_row(node=NODE) for _ in range(4)),
        silver_row(node=NODE, outcome="denied", decision="deny", rule_id="rule-7", d_total_us=None),
        *(silver_row(node=NODE, dst_domain="b.example", **out) for _ in range(2)),
        silver_row(node=NODE, dst_domain="c.example", **out, outcome="timeout", d_total_us=None),
        silver_row(node=NODE, ts_us=MONDAY_US + DAY_US + 5),
    ]


def settled(folder: Path, spark: SparkSession, batches: Sequence[Sequence[dict[str, Any]]]) -> Lake:
    """A lake into which records came in these batches; its only node proves Monday, and not Tuesday."""
    lake = Lake(folder, spark)
    for batch in batches:
        lake.commit(silver(spark, batch), SILVER_MDR)
    facts = {
        "node": NODE,
        "kind": "mdr",
        "boot": 1,
        "segno": 1,
        "sha256": "hash",
        "prev_sha256": "",
        "opened_us": MONDAY_US,
        "closed_us": MONDAY_US + DAY_US + 200_000_000,
        "lost_records": 0,
        "verdict": "accepted",
    }
    commit_ledger(lake, [facts])
    assert settle(lake).details == {"draft": 1, "final": 1, "restated": 0}
    return lake


@pytest.fixture(scope="module")
def small_lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    return settled(tmp_path_factory.mktemp("statements") / "lake", spark, [records()])


@pytest.fixture
def statements(small_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Statements:
    """The command, in which nobody may start Spark."""

    def start(*_: object, **__: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("pipeline.spark.session.start_session", start)

    def run(*arguments: object, lake: Location = small_lake.folder) -> Result:
        return CliRunner().invoke(app, ["statements", "--lake", str(lake), *(str(argument) for argument in arguments)])

    return run


def test_signed_off_days_are_shown_and_drafts_are_named_and_left_out(statements: Statements) -> None:
    done = statements()
    assert done.exit_code == 0, done.output
    heading, head, *lines = done.stdout.splitlines()
    assert (
        heading == "a.example on 2026-03-02: final, version 1; our records are complete until 2026-03-03 00:03:20 UTC"
    )
    assert head.split()[:6] == ["partner", "way", "messages", "delivered", "denied", "failed"]
    assert [line.split()[:6] for line in lines[:3]] == [
        ["b.example", "out", "2", "2", "0", "0"],
        ["b.example", "in", "5", "4", "1", "0"],
        ["c.example", "out", "1", "0", "0", "1"],
    ]
    assert lines[3:5] == ["  b.example in denied by: rule-7 1", "  c.example out failed: timeout 1"]
    assert "left out as drafts: a.example 2026-03-03" in done.stderr
    assert "--drafts" in done.stderr


def test_a_draft_that_was_asked_for_is_incomplete_input_unless_drafts_are_wanted(statements: Statements) -> None:
    left_out = statements("--day", TUESDAY)
    assert (left_out.exit_code, left_out.stdout) == (3, "")
    assert "left out as drafts: a.example 2026-03-03" in left_out.stderr
    taken = statements("--day", TUESDAY, "--drafts")
    assert taken.exit_code == 0
    assert "a.example on 2026-03-03: DRAFT" in taken.stdout


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--day", "2026-03-04"), "no statements of a.example for 2026-03-04"),
        (("--from", "2026-02-20", "--until", "2026-03-09", "--drafts"), "for 2026-03-04 to 2026-03-09"),
        (("--from", MONDAY, "--until", "2026-03-09", "--drafts"), "2026-03-04 to 2026-03-09"),
        (("--version", 2), "a.example 2026-03-02 has no version 2; the newest is 1"),
        (("--domain", "z.example"), "no statements of z.example; there are those of a.example"),
        (("--peer", "z.example"), "no statements with z.example on any day; there are those with b.example, c.example"),
    ],
)
def test_what_was_asked_for_and_is_not_there_is_reported(
    statements: Statements, arguments: Sequence[object], shown: str
) -> None:
    done = statements(*arguments)
    assert done.exit_code == 3
    assert shown in done.stderr


@pytest.mark.parametrize("zone", [(), ("--zone", "Europe/Berlin")])
@pytest.mark.parametrize(
    ("month", "code"), [("2026-02", 0), ("2026-03", 3)], ids=["proved to be silent", "not proved to its end"]
)
def test_a_month_ends_alike_in_utc_and_in_a_zone(
    statements: Statements, month: str, code: int, zone: tuple[str, ...]
) -> None:
    done = statements("--month", month, *zone)
    assert done.exit_code == code, done.output


def test_days_that_are_proved_to_be_without_traffic_are_named_and_no_gap(statements: Statements) -> None:
    silent = statements("--day", "2026-03-01")
    assert (silent.exit_code, silent.stdout) == (0, "")
    assert "a.example had no traffic: 2026-03-01" in silent.stderr
    beside = statements("--from", "2026-02-20", "--until", MONDAY)
    assert (beside.exit_code, "no traffic" in beside.stderr) == (0, False)


def test_a_known_partner_without_traffic_on_a_day_is_no_gap(statements: Statements) -> None:
    done = statements("--peer", "c.example", "--day", TUESDAY, "--drafts")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing was exchanged with c.example" in done.stderr


def test_the_file_has_the_bytes_whose_hash_is_reported(statements: Statements, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    done = statements("--peer", "b.example", "--day", MONDAY, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    [job] = shown["jobs"]
    content = out.read_bytes()
    assert (job["details"]["sha256"], job["details"]["bytes"]) == (sha256(content).hexdigest(), len(content))
    written = [json.loads(line) for line in content.splitlines()]
    assert {(row["role"], row["dst_domain"], row["messages"]) for row in written} == {
        ("out", "b.example", 2),
        ("in", "a.example", 5),
    }
    for row in job["details"]["statements"]:
        assert row.pop("complete_until_us") == MONDAY_US + DAY_US + 200_000_000
        assert row in written
    assert sha256(content).hexdigest() in statements("--peer", "b.example", "--day", MONDAY).stderr


def test_days_are_added_up_with_their_latency(statements: Statements) -> None:
    done = statements("--drafts", "--json")
    [job] = json.loads(done.stdout)["jobs"]
    totals = {(row["src_domain"], row["dst_domain"]): row for row in job["details"]["totals"]}
    both = totals["b.example", "a.example"]
    assert (both["messages"], both["delivered"], sum(both["latency"].values())) == (6, 5, 5)
    assert both["p50_us"] == 1503


def test_nothing_is_written_where_nothing_was_selected(statements: Statements, tmp_path: Path) -> None:
    assert statements("--day", TUESDAY, "--out", tmp_path / "none.jsonl").exit_code == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--day", "2026-3-2"), "YYYY-MM-DD"),
        (("--day", MONDAY, "--from", MONDAY), "--from"),
        (("--out", "nowhere/at/all"), "nowhere"),
        (("--version", 0), "--version"),
    ],
)
def test_a_wrong_call_ends_with_1(statements: Statements, arguments: Sequence[object], shown: str) -> None:
    done = statements(*arguments)
    assert done.exit_code == 2
    assert shown in done.stderr
    assert "Traceback" not in done.output


def test_more_statements_than_one_can_hold_are_refused(
    statements: Statements, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(job, "ROWS_MAX", 2)
    done = statements("--out", tmp_path / "all.jsonl")
    assert done.exit_code == 2
    assert "these are more than 2 statements: name days, --domain or --peer" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert statements("--peer", "b.example").exit_code == 0


def test_a_folder_without_a_lake_is_refused_and_stays_as_it_was(statements: Statements, tmp_path: Path) -> None:
    done = statements(lake=tmp_path / "typo")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {tmp_path / 'typo'} is no lake")
    assert list(tmp_path.iterdir()) == []


def test_a_lake_in_which_nothing_was_settled_says_so(
    statements: Statements, tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path / "lake", spark)
    done = statements(lake=lake.folder)
    assert done.exit_code == 3
    assert "there are no statements yet" in done.stderr


def test_a_signed_off_day_whose_hours_say_something_else_by_now_is_a_finding(
    small_lake: Lake, statements: Statements, tmp_path: Path, spark: SparkSession
) -> None:
    shutil.copytree(on_disk(small_lake.folder), tmp_path / "lake")
    lake = Lake(tmp_path / "lake", spark)
    hours = lake.read_small(TRAFFIC_HOURLY, partitions=[MONDAY])
    more = hours.set_column(hours.schema.get_field_index("bytes_in"), "bytes_in", pa.array([999] * hours.num_rows))
    lake.commit(more, TRAFFIC_HOURLY, Change("replace_partitions"))
    done = statements(lake=lake.folder)
    assert done.exit_code == 1
    assert "a.example 2026-03-02: the records have changed since the statement was final (version 1)" in done.stderr
    assert "a.example on 2026-03-02: final" in done.stdout


def test_records_that_came_after_settling_are_reported(
    small_lake: Lake, statements: Statements, tmp_path: Path, spark: SparkSession
) -> None:
    shutil.copytree(on_disk(small_lake.folder), tmp_path / "lake")
    lake = Lake(tmp_path / "lake", spark)
    lake.commit(lake.read_small(SILVER_MDR, partitions=[MONDAY]).slice(0, 1), SILVER_MDR)
    done = statements(lake=lake.folder)
    assert done.exit_code == 0
    assert "records of 2026-03-02 came or were rewritten since" in done.stderr


def test_two_operators_with_equal_records_have_equal_bytes(
    small_lake: Lake, statements: Statements, tmp_path: Path, spark: SparkSession
) -> None:
    rows = small_lake.read(SILVER_MDR).collect()
    random.Random(7).shuffle(rows)
    other = settled(
        tmp_path / "other", spark, [[row.asDict() for row in rows[::2]], [row.asDict() for row in rows[1::2]]]
    )
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    here = statements("--out", files[0], "--drafts")
    elsewhere = subprocess.run(
        [
            sys.executable,
            "-m",
            "pipeline",
            "statements",
            "--lake",
            on_disk(other.folder),
            "--out",
            files[1],
            "--drafts",
        ],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert (here.exit_code, elsewhere.returncode) == (0, 0), elsewhere.stderr
    assert files[0].read_bytes() == files[1].read_bytes() != b""
    digest = sha256(files[0].read_bytes()).hexdigest()
    assert digest in here.stderr
    assert digest in elsewhere.stderr
