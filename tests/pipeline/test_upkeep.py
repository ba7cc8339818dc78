"""Audit, compaction, retention: what is there is reported, rearranged, or dropped, and nothing else."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.jobs import audit, compact, ingest, refine, retention, settle
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import (
    BRONZE_MDR,
    DAY_STATE,
    QUARANTINE,
    SEGMENTS,
    SILVER_MDR,
    STATEMENT_DAILY,
    TABLES,
    TRAFFIC_HOURLY,
)
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import NODE, SECOND_US, START_US, SegmentWriter, message

pytestmark = pytest.mark.spark
DAY_US = 86_400 * SECOND_US
FORGOTTEN_MEMBERS = {"src_key", "dst_key", "runtime_key", "subject", "msg_id", "line", "arguments"}
"""Columns that name people or single messages."""


def take_in(lake: Lake, writer: SegmentWriter) -> None:
    ingest.run(lake, [writer.spool])
    refine.run(lake)


def test_audit_of_whole_chains_finds_nothing(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1), message(2)])
    writer.seal([message(3)])
    take_in(lake, writer)
    result = audit.run(lake)
    assert (result.exit_code, result.findings, result.warnings) == (ExitCode.FINE, 0, [])
    [facts] = result.details["books"]
    assert (facts["node"], facts["segments"], facts["lost_records"]) == (NODE, 2, 0)


def test_audit_reports_gaps_losses_breaks_and_rejections(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    for number in range(1, 7):
        writer.seal([message(number)], lost=5 if number == 1 else 0)
    for path in writer.spool.glob("*-000003.*"):
        path.unlink()
    [torn] = writer.spool.glob("*-000005.jsonl.zst")
    torn.write_bytes(torn.read_bytes()[:-3])
    writer.prev_sha256 = "0" * 64
    writer.seal([message(7)])
    writer.seal_lines(b"{}\n")
    take_in(lake, writer)

    result = audit.run(lake)

    [facts] = result.details["books"]
    assert facts["gaps"] == [{"boot": 1, "first": 3, "last": 3}, {"boot": 1, "first": 5, "last": 5}]
    assert (facts["lost_records"], facts["rejected_segments"], facts["quarantined_rows"]) == (5, 1, 1)
    assert (facts["findings"]["chain-break"], facts["findings"]["torn"]) == (1, 1)
    assert result.exit_code is ExitCode.INCOMPLETE
    assert f"{NODE}: mdr: 5 records were lost by the node before it wrote them" in result.warnings


def test_audit_notices_rows_that_the_ledger_does_not_know(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1), message(2)])
    take_in(lake, writer)
    lake.commit(lake.read(BRONZE_MDR).where("seq = 1"), BRONZE_MDR, Change("overwrite"))
    result = audit.run(lake)
    assert result.exit_code is ExitCode.FINDINGS
    assert "segment 1 has 1 rows in bronze_mdr, the ledger says 2" in result.warnings[0]


def test_an_audit_compares_what_has_changed_since_the_last_one_and_all_of_it_when_asked(
    lake: Lake, tmp_path: Path
) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    midnight_us = START_US - START_US % DAY_US + DAY_US
    writer.seal([message(1, ts_us=midnight_us - SECOND_US), message(2, ts_us=midnight_us + SECOND_US)])
    take_in(lake, writer)
    assert audit.run(lake).exit_code is ExitCode.FINE
    versions = {table: lake.version(table) for table in (BRONZE_MDR, SEGMENTS, DAY_STATE)}
    assert audit.run(lake).exit_code is ExitCode.FINE
    assert {table: lake.version(table) for table in versions} == versions

    # A file that is another one behind the back of the log is seen when it is opened.
    [first, _] = sorted(lake.files(BRONZE_MDR), key=lambda file: file.path)
    path = on_disk(lake.folder) / BRONZE_MDR.name / first.path
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert audit.run(lake).exit_code is ExitCode.FINE
    [line] = audit.run(lake, is_full=True).warnings
    assert "segment 1 has 1 rows in bronze_mdr, the ledger says 2" in line

    # And so it is when something comes about the day beside it.
    writer.seal([message(3, ts_us=midnight_us + 2 * SECOND_US)])
    take_in(lake, writer)
    assert audit.run(lake).warnings == [line]


@pytest.mark.parametrize("is_audited_before", [False, True])
def test_an_audit_notices_rows_that_came_twice_and_days_that_have_gone(
    lake: Lake, tmp_path: Path, is_audited_before: bool
) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    for day in range(4):
        writer.seal([message(day, ts_us=START_US + day * DAY_US)])
    take_in(lake, writer)
    if is_audited_before:
        assert audit.run(lake).exit_code is ExitCode.FINE
    days = sorted(file.partition["dt"] for file in lake.files(BRONZE_MDR))
    lake.adopt([], BRONZE_MDR, Change("replace_partitions", partitions=days[:1]))
    lake.commit(lake.read(BRONZE_MDR).where(f"dt = '{days[2]}'"), BRONZE_MDR)
    for _ in range(2):  # what is wrong is not taken as compared
        warnings = audit.run(lake).warnings
        assert [line.partition("segment ")[2][:10] for line in warnings] == ["1 has 0 ro", "3 has 2 ro"]


def test_compaction_changes_files_and_no_rows_and_refine_does_not_see_them_again(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    for number in range(1, 4):
        writer.seal([message(number)])
        ingest.run(lake, [writer.spool])
    refine.run(lake)
    rows = sorted(lake.read(BRONZE_MDR).collect())

    result = compact.run(lake, tables=["bronze_mdr", "segments"], files_min=2)

    assert [len(lake.files(table)) for table in (BRONZE_MDR, SEGMENTS)] == [1, 1]
    assert result.rows == {"bronze_mdr": 3, "segments": 3}
    assert result.outcome == "rewritten: bronze_mdr 3, segments 3; 0 files removed"
    assert compact.run(lake).outcome == "nothing to rewrite; 0 files removed"
    assert sorted(lake.read(BRONZE_MDR).collect()) == rows
    writer.seal([message(4)])
    ingest.run(lake, [writer.spool])
    again = refine.run(lake)
    assert (again.details["bronze_rows"], again.rows, again.findings) == (1, {"silver_mdr": 1}, 0)
    assert audit.run(lake).exit_code is ExitCode.FINE


def test_who_follows_a_spool_leaves_no_more_small_files_of_a_day_than_is_allowed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "FILES_MAX", 3)
    writer = SegmentWriter(tmp_path / "spool")
    numbers = iter(range(1, 8))

    def has_more() -> bool:
        number = next(numbers, None)
        if number is not None:
            writer.seal([message(number)])
        return number is not None

    files = [len(lake.files(BRONZE_MDR)) for _ in ingest.follow(lake, [writer.spool], wait=has_more)]
    assert files == [0, 1, 2, 3, 2, 3, 2, 3]
    assert sorted(row["seq"] for row in lake.read_small(BRONZE_MDR).to_pylist()) == list(range(1, 8))
    assert audit.run(lake).exit_code is ExitCode.FINE


def test_large_files_are_not_merged_again(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(number) for number in range(1, 400)])
    ingest.run(lake, [writer.spool])
    [large] = lake.files(BRONZE_MDR)
    monkeypatch.setattr(compact, "SMALL_BYTES", large.size_bytes)
    for number in range(400, 403):
        writer.seal([message(number)])
        ingest.run(lake, [writer.spool])
    assert compact.run(lake, tables=["bronze_mdr"], files_min=3).rows == {"bronze_mdr": 3}
    assert len(lake.files(BRONZE_MDR)) == 2
    assert large in lake.files(BRONZE_MDR)


def test_old_days_are_gone_from_every_table_and_from_the_disk(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    for day in range(3):
        writer.seal([message(day, ts_us=START_US + day * DAY_US)])
    writer.seal_lines(b"{}\n")
    take_in(lake, writer)

    result = retention.run(lake, today=date(2026, 3, 4), keep_days=2, vacuum_after_s=0)

    assert result.details["oldest_day"] == "2026-03-02"
    assert result.outcome == "dropped 2026-03-01 from 3 tables; 3 files removed"
    for table in (BRONZE_MDR, SILVER_MDR):
        assert sorted(row["dt"] for row in lake.read(table).collect()) == ["2026-03-02", "2026-03-03"]
        assert not list((on_disk(lake.folder) / table.name / "dt=2026-03-01").glob("*.parquet"))
    assert lake.read(QUARANTINE).count() == 0
    again = retention.run(lake, today=date(2026, 3, 4), keep_days=2, vacuum_after_s=0)
    assert again.outcome == "nothing is older than 2026-03-02; 0 files removed"
    assert len(lake.read_small(SEGMENTS)) == 4
    assert ingest.run(lake, [writer.spool]).rows == {}
    assert refine.run(lake).rows == {}
    assert audit.run(lake).exit_code is ExitCode.FINDINGS  # of the line in quarantine, and no other
    # Days that are still here are compared with the ledger as before.
    lake.commit(lake.read(BRONZE_MDR).where("dt = '2026-03-03'"), BRONZE_MDR)
    [stored] = [line for line in audit.run(lake).warnings if BRONZE_MDR.name in line]
    assert "segment 3 has 2 rows in bronze_mdr, the ledger says 1" in stored


def test_records_that_come_after_their_day_was_dropped_do_not_take_its_place(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    for number, day in enumerate((0, 0, 1, 2)):
        writer.seal([message(number, ts_us=START_US + day * DAY_US + number * SECOND_US)])
    (tmp_path / "late").mkdir()
    for path in writer.spool.glob("*-000002.*"):
        path.rename(tmp_path / "late" / path.name)
    take_in(lake, writer)
    settle.run(lake)
    shown = [sorted(lake.read(table).collect()) for table in (TRAFFIC_HOURLY, STATEMENT_DAILY)]
    retention.run(lake, today=date(2026, 3, 4), keep_days=2)

    for path in (tmp_path / "late").iterdir():
        path.rename(writer.spool / path.name)
    assert ingest.run(lake, [writer.spool]).rows == {"bronze_mdr": 1, "segments": 1}
    result = refine.run(lake)

    assert (result.rows, result.findings, result.exit_code) == ({}, 0, ExitCode.FINE)
    assert result.warnings[0].startswith("1 records are of days before 2026-03-02, which retention has dropped")
    assert refine.run(lake).warnings == []
    settle.run(lake, restate=True)
    days = [row["dt"] for row in lake.read(SILVER_MDR).collect()]
    assert sorted(days) == ["2026-03-02", "2026-03-03"]
    hourly = [row for row in lake.read(TRAFFIC_HOURLY).collect() if row["dt"] == "2026-03-01"]
    statement = [row for row in lake.read(STATEMENT_DAILY).collect() if row["dt"] == "2026-03-01"]
    assert [hourly, statement] == [[row for row in rows if row["dt"] == "2026-03-01"] for rows in shown]
    retention.run(lake, today=date(2026, 3, 4), keep_days=2)
    assert "2026-03-01" not in {row["dt"] for row in lake.read(BRONZE_MDR).collect()}


def test_retention_reaches_every_table_that_names_people_or_messages() -> None:
    personal = {table.name for table in retention.PERSONAL}
    assert personal == {table.name for table in TABLES.values() if FORGOTTEN_MEMBERS & set(table.schema.names)}
    assert {table.partition for table in retention.PERSONAL} == {("dt",), ("extract",)}
