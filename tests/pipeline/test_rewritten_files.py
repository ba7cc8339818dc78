"""Another program may rewrite the files of every table at any moment: no result changes, and nothing is done again."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.jobs import audit, ingest, reconcile, refine, settle, stubs
from pipeline.lake.tables import Lake
from pipeline.schemas import (
    BRONZE_MDR,
    RECON_PAIR,
    SILVER_MDR,
    STATEMENT_DAILY,
    STUB_HOURLY,
    STUB_REGRESSION,
    TABLES,
    TRAFFIC_HOURLY,
)
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import START_US, SegmentWriter, message

DAY_US = 86_400_000_000
RESULTS = (SILVER_MDR, TRAFFIC_HOURLY, STATEMENT_DAILY, RECON_PAIR)


def optimize(lake: Lake) -> int:
    """OPTIMIZE of every table by delta-rs; returns how many files it has replaced."""
    replaced = 0
    for folder in {table.folder for table in TABLES.values() if lake.has(table)}:
        replaced += int(DeltaTable(on_disk(lake.folder) / folder).optimize.compact()["numFilesRemoved"])
    return replaced


def rows_of(lake: Lake) -> list[list[dict[str, object]]]:
    return [sorted(lake.read_small(table).to_pylist(), key=repr) for table in RESULTS]


def files_of_day(lake: Lake, day: str) -> set[str]:
    return {file.path for file in lake.files(STUB_HOURLY) if file.partition["dt"] == day}


@pytest.mark.spark
def test_optimize_between_any_two_jobs_changes_no_result_and_makes_no_work(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    for number in range(4):
        writer.seal([message(number, ts_us=START_US + number % 2 * DAY_US, stub_ver="1")])
        ingest.run(lake, [writer.spool])
    assert optimize(lake) >= 4
    assert refine.run(lake).rows == {SILVER_MDR.name: 4}
    settle.run(lake)
    reconcile.run(lake)
    assert stubs.run(lake).rows == {STUB_HOURLY.name: 2, STUB_REGRESSION.name: 0}
    shown, later = rows_of(lake), files_of_day(lake, "2026-03-02")

    writer.seal([message(9, ts_us=START_US, stub_ver="1")])
    ingest.run(lake, [writer.spool])
    assert optimize(lake) >= 2  # rows that silver has, and one that it does not have, are in one file now
    assert len([file for file in lake.files(BRONZE_MDR) if file.partition["dt"] == "2026-03-01"]) == 1
    again = refine.run(lake)
    assert (again.details["bronze_rows"], again.rows, again.findings) == (1, {SILVER_MDR.name: 1}, 0)
    assert settle.run(lake).rows[TRAFFIC_HOURLY.name] == 1  # the other day is not touched
    assert reconcile.run(lake).details["days"]
    stubs.run(lake)
    assert sum(row["messages"] for row in lake.read_small(STUB_HOURLY).to_pylist()) == 5
    assert files_of_day(lake, "2026-03-02") == later

    settled = rows_of(lake)
    assert settled != shown
    optimize(lake)
    assert [job.run(lake).rows for job in (refine, settle, stubs)] == [{}, {}, {STUB_REGRESSION.name: 0}]
    assert ingest.run(lake, [writer.spool]).rows == {}
    assert rows_of(lake) == settled
    assert not [line for line in audit.run(lake).warnings if "the ledger says" in line]
