from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.core.statement_choice import Wanted
from pipeline.jobs import statements
from pipeline.jobs.result import ExitCode
from pipeline.jobs.settle import Standing, decide, run
from pipeline.lake.tables import Lake
from pipeline.schemas import SILVER_MDR, STATEMENT_DAILY
from protofly.errors import SettingsError
from tests.pipeline.on_disk import on_disk
from tests.pipeline.rows import DAY_US, MONDAY_US, commit_ledger, silver, silver_row

MONDAY = "2026-03-02"
NODE = "runtime://a.example/mn-1"
MIDNIGHT_US = MONDAY_US + DAY_US
GRACE_US = 120_000_000


def sealed(segno: int, closed_us: int, **members: Any) -> dict[str, Any]:
    """One accepted segment of message records of the only node."""
    fact = {
        "node": NODE,
        "kind": "mdr",
        "boot": 1,
        "segno": segno,
        "sha256": f"hash {segno}",
        "prev_sha256": f"hash {segno - 1}" if segno > 1 else "",
        "opened_us": MONDAY_US,
        "closed_us": closed_us,
        "lost_records": 0,
        "verdict": "accepted",
    }
    return fact | members


def enter(lake: Lake, spark: SparkSession, rows: list[dict[str, Any]], segments: list[Mapping[str, Any]]) -> None:
    """What ingest and refine would have put into the lake."""
    if rows:
        lake.commit(silver(spark, rows), SILVER_MDR)
    commit_ledger(lake, segments)


def written(lake: Lake, version: int | None = None) -> list[tuple[str, str, int, int]]:
    rows = lake.read(STATEMENT_DAILY, version).collect()
    return sorted((row.src_domain, row.status, row.version, row.messages) for row in rows)


def exported(lake: Lake, version: int | None = None) -> bytes:
    """Monday's statements as they are handed out."""
    out = on_disk(lake.folder).parent / "statements.jsonl"
    statements.run(lake, Wanted(from_day=MONDAY, until_day=MONDAY, version=version), out=out)
    return out.read_bytes()


@pytest.mark.parametrize(
    ("status", "version", "is_changed", "until_us", "restate", "expected"),
    [
        (None, 0, True, 0, False, ("draft", 1)),
        (None, 0, True, MIDNIGHT_US + GRACE_US, False, ("final", 1)),
        ("draft", 1, True, MIDNIGHT_US, False, ("draft", 1)),
        ("draft", 1, False, 7, False, None),
        ("draft", 1, False, 8, False, ("draft", 1)),
        ("draft", 1, False, MIDNIGHT_US + GRACE_US, False, ("final", 1)),
        ("final", 1, False, MIDNIGHT_US + GRACE_US, True, None),
        ("final", 1, True, MIDNIGHT_US + GRACE_US, False, None),
        ("final", 1, True, MIDNIGHT_US + GRACE_US, True, ("restated", 2)),
        ("restated", 2, True, MIDNIGHT_US + GRACE_US, True, ("restated", 3)),
        ("restated", 2, False, 0, True, None),
    ],
)
def test_what_becomes_of_a_statement(
    status: str | None, version: int, is_changed: bool, until_us: int, restate: bool, expected: tuple[str, int] | None
) -> None:
    standing = Standing("a.example", MONDAY, status, version, 7, is_changed)
    decision = decide(standing, until_us=until_us, grace_s=120, restate=restate)
    assert (decision and (decision.status, decision.version)) == expected


@pytest.mark.endurance
@pytest.mark.spark
def test_a_day_is_draft_then_final_then_restated_and_every_version_stays_readable(
    lake: Lake, spark: SparkSession
) -> None:
    rows = [silver_row(node=NODE) for _ in range(3)]
    enter(lake, spark, rows, [sealed(1, MIDNIGHT_US)])
    first = run(lake, day=MONDAY)
    assert (first.exit_code, first.details) == (ExitCode.INCOMPLETE, {"draft": 1, "final": 0, "restated": 0})
    assert written(lake) == [("b.example", "draft", 1, 3)]

    enter(lake, spark, [silver_row(node=NODE)], [sealed(2, MIDNIGHT_US + GRACE_US)])
    second = run(lake, day=MONDAY)
    assert (second.exit_code, written(lake)) == (ExitCode.FINE, [("b.example", "final", 1, 4)])
    final = exported(lake)
    assert b'"set_digest":"' in final
    final_version = lake.version(STATEMENT_DAILY)

    again = run(lake, day=MONDAY)
    assert (again.exit_code, lake.version(STATEMENT_DAILY)) == (ExitCode.FINE, final_version)

    enter(lake, spark, [silver_row(node=NODE, src_domain="c.example")], [sealed(3, MIDNIGHT_US + DAY_US)])
    changed = run(lake)
    assert (changed.exit_code, changed.findings) == (ExitCode.FINDINGS, 1)
    assert "--restate" in changed.warnings[0]
    assert exported(lake) == final

    restated = run(lake, day=MONDAY, restate=True)
    assert restated.details == {"draft": 0, "final": 0, "restated": 1}
    assert written(lake) == [
        ("b.example", "final", 1, 4),
        ("b.example", "restated", 2, 4),
        ("c.example", "restated", 2, 1),
    ]
    assert exported(lake, version=1) == final
    assert exported(lake).count(b"restated") == 2
    assert written(lake, final_version) == [("b.example", "final", 1, 4)]
    note = lake.history(STATEMENT_DAILY)[0].meta
    assert note["restated"] == [MONDAY]
    assert note["input_versions"]["silver_mdr"] == lake.version(SILVER_MDR)


@pytest.mark.spark
def test_the_operators_word_makes_the_day_of_a_silent_node_final(lake: Lake, spark: SparkSession) -> None:
    enter(lake, spark, [silver_row(node=NODE)], [sealed(1, MIDNIGHT_US - 1)])
    result = run(lake, day=MONDAY, declared={NODE: MIDNIGHT_US + GRACE_US})
    assert (result.exit_code, written(lake)) == (ExitCode.FINE, [("b.example", "final", 1, 1)])


@pytest.mark.spark
def test_who_vouches_for_a_node_that_nobody_has_seen_is_reported(lake: Lake, spark: SparkSession) -> None:
    enter(lake, spark, [silver_row(node=NODE)], [sealed(1, MIDNIGHT_US - 1)])
    with pytest.raises(SettingsError) as caught:
        run(lake, declared={"mn-9.a.example": MIDNIGHT_US})
    assert "mn-9.a.example" in caught.value.detail
    assert not lake.has(STATEMENT_DAILY)


@pytest.mark.spark
def test_a_draft_says_which_node_holds_it_up(lake: Lake, spark: SparkSession) -> None:
    other = "runtime://a.example/mn-2"
    rows = [silver_row(node=NODE), silver_row(node=other)]
    enter(lake, spark, rows, [sealed(1, MIDNIGHT_US + GRACE_US), sealed(1, MIDNIGHT_US - 1_000_000, node=other)])
    [shown] = run(lake).warnings
    assert shown.startswith(
        "a.example: 2026-03-02 draft, because its records are proved complete until 2026-03-02 23:59:59"
    )
    assert f"by node {other} boot 1 segment 1" in shown
    assert NODE not in shown


@pytest.mark.spark
def test_a_day_that_nobody_has_got_beyond_is_a_draft_without_a_word(lake: Lake, spark: SparkSession) -> None:
    enter(lake, spark, [silver_row(node=NODE)], [sealed(1, MIDNIGHT_US + GRACE_US - 1)])
    result = run(lake)
    assert (result.details["draft"], result.warnings) == (1, [])


@pytest.mark.spark
def test_a_day_without_records_is_incomplete_input_and_changes_nothing(lake: Lake, spark: SparkSession) -> None:
    result = run(lake, day="2026-03-05")
    assert result.exit_code == ExitCode.INCOMPLETE
    assert result.warnings == ["no records of 2026-03-05"]
    assert not lake.has(STATEMENT_DAILY)
