"""`trapezoid pipeline show`: tables and rows for people and programs, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner, Result

from pipeline.cli.program import app
from pipeline.cli.row_text import rows_text, tables_text
from pipeline.lake.store_path import Location
from pipeline.lake.tables import Lake
from pipeline.schemas import RECON_CASE, SEGMENTS, TRAFFIC_HOURLY
from tests.pipeline.rows import MONDAY_US

Show = Callable[..., Result]

MONDAY, TUESDAY = "2026-03-02", "2026-03-03"


@pytest.fixture(scope="module")
def small_lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """A lake with cases of two days, hours with maps, and a segment with several findings."""
    lake = Lake(tmp_path_factory.mktemp("show") / "lake", spark)
    cases = [
        {"src_domain": "a.example", "msg_id": bytes([number] * 16), "case_class": word, "copies_out": number, "dt": day}
        for number, word, day in [(1, "lost", MONDAY), (2, "lost", TUESDAY), (3, "orphan", TUESDAY)]
    ]
    lake.commit(pa.Table.from_pylist(cases, to_arrow_schema(RECON_CASE.schema)), RECON_CASE)
    hour = {"hour_us": MONDAY_US, "denials": [("r\x1b[1m", 2)], "latency": [(7, 3)], "dt": MONDAY}
    lake.commit(pa.Table.from_pylist([hour], to_arrow_schema(TRAFFIC_HOURLY.schema)), TRAFFIC_HOURLY)
    segment = {"node": "mn-1.a.example", "segno": 4, "findings": ["torn", "lost"], "entered": MONDAY}
    lake.commit(pa.Table.from_pylist([segment], to_arrow_schema(SEGMENTS.schema)), SEGMENTS)
    return lake


@pytest.fixture
def show(small_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Show:
    def start(*_: object, **__: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("pipeline.spark.session.start_session", start)

    def run(*arguments: object, lake: Location = small_lake.folder) -> Result:
        return CliRunner().invoke(app, ["show", "--lake", str(lake), *(str(argument) for argument in arguments)])

    return run


@pytest.mark.spark
def test_without_a_table_all_are_listed_with_rows_version_and_days(show: Show) -> None:
    done = show()
    assert done.exit_code == 0, done.output
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["table", "rows", "version", "days"],
        ["segments", "1", "1"],
        ["traffic_hourly", "1", "1", MONDAY],
        ["recon_case", "3", "1", MONDAY, "to", TUESDAY],
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (("recon_case",), [1, 2, 3]),
        (("recon_case", "--day", TUESDAY), [2, 3]),
        (("recon_case", "--day", "2026-04-01"), []),
        (("recon_case", "--where", "case_class=lost"), [1, 2]),
        (("recon_case", "--where", "case_class=lost", "--where", f"dt={TUESDAY}"), [2]),
        (("recon_case", "--where", f"msg_id={'03' * 16}"), [3]),
        (("recon_case", "--where", "copies_out=2"), [2]),
        (("segments", "--where", "findings=lost"), [None]),
        (("segments", "--where", "findings=los"), []),
    ],
)
def test_rows_are_narrowed_down_by_day_and_by_values(
    show: Show, arguments: Sequence[object], numbers: list[int | None]
) -> None:
    done = show(*arguments, "--json")
    assert done.exit_code == 0, done.output
    [job] = json.loads(done.stdout)["jobs"]
    assert sorted((row.get("copies_out") for row in job["details"]["rows"]), key=str) == numbers
    assert not job["details"]["more"]


@pytest.mark.spark
def test_that_there_is_more_than_shown_is_reported(show: Show) -> None:
    done = show("recon_case", "--limit", 2)
    assert done.exit_code == 0
    assert done.stdout.count("case_class") == 2
    assert "there is more: these are the first 2" in done.stderr
    assert "there is more" not in show("recon_case", "--limit", 3).stderr


@pytest.mark.spark
def test_maps_times_and_bytes_are_reported_for_people_and_do_not_steer_the_terminal(show: Show) -> None:
    hour = show("traffic_hourly").stdout
    assert f"{MONDAY_US} (2026-03-02 00:00:00.000000 UTC)" in hour
    assert "denials  r·[1m: 2\n" in hour
    assert "latency  7: 3\n" in hour
    assert f"msg_id      {'01' * 16}\n" in show("recon_case").stdout


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (("nope",), 2, "there is no table nope: choose from alert"),
        (("segments", "--day", MONDAY), 2, "not kept by day"),
        (("recon_case", "--day", "2026-3-2"), 2, "YYYY-MM-DD"),
        (("recon_case", "--where", "nope=1"), 2, "no column nope; it has src_domain"),
        (("recon_case", "--where", "copies_out=many"), 2, "copies_out cannot be 'many'"),
        (("recon_case", "--where", "msg_id=zz"), 2, "msg_id cannot be 'zz'"),
        (("recon_case", "--where", "case_class"), 2, "COLUMN=VALUE"),
        (("alert",), 3, "table alert was not written yet"),
    ],
)
def test_what_cannot_be_shown_is_reported(show: Show, arguments: Sequence[object], code: int, shown: str) -> None:
    done = show(*arguments)
    assert done.exit_code == code
    assert shown in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.spark
def test_a_folder_without_a_lake_stays_as_it_was(show: Show, tmp_path: Path) -> None:
    assert show(lake=tmp_path / "typo").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_text_of_several_lines_stays_below_its_name_and_empty_members_are_left_out() -> None:
    row = {
        "name": "x",
        "empty": None,
        "none": [],
        "policy": "one\ntwo\x07\n",
        "share": 1 / 3,
        "list": ["a", "b"],
        "zero": 0,
    }
    assert rows_text([row, {"name": "y"}]).splitlines() == [
        "name    x",
        "policy  one",
        "        two·",
        "share   0.333333",
        "list    a, b",
        "zero    0",
        "",
        "name  y",
    ]
    assert rows_text([]) == ""


def test_an_empty_lake_is_a_heading() -> None:
    assert tables_text([]) == "table  rows  version  days\n"
