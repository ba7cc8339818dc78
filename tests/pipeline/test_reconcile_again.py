"""Closed days are opened again by what turns up later, and only by that."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs import reconcile, retention
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Lake
from pipeline.schemas import SILVER_MDR
from tests.pipeline.rows import HOUR_US, MONDAY_US, commit_ledger, silver, silver_row
from tests.pipeline.side_rows import uuid7

pytestmark = pytest.mark.spark
A, B, DAY = "a.example", "b.example", "2026-03-02"
LATER_US = MONDAY_US + 8 * 24 * HOUR_US
_COUNTED = ("lost", "pending", "unprovable")


def segments(*those: tuple[str, int, int, int]) -> list[dict[str, object]]:
    """Rows of `segments`: domain, number, opened, closed; without records, but for the first of a node."""
    return [
        {
            "node": f"mn-1.{domain}",
            "kind": "mdr",
            "boot": 1,
            "segno": segno,
            "first_seq": 1 if segno == 1 else 10,
            "last_seq": 9,
            "records": 9 if segno == 1 else 0,
            "sha256": f"{domain} {segno}",
            "prev_sha256": f"{domain} {segno - 1}" if segno > 1 else "",
            "opened_us": opened_us,
            "closed_us": closed_us,
            "verdict": "accepted",
            "findings": [],
        }
        for domain, segno, opened_us, closed_us in those
    ]


def test_a_proof_withheld_for_longer_than_a_week_closes_the_day_until_it_turns_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake", spark)
    sent = {"role": "out", "src_domain": A, "dst_domain": B, "node": f"mn-1.{A}"}
    received = sent | {"role": "in", "node": f"mn-1.{B}"}
    both = {"msg_id": b"b" * 16, "digest": b"d" * 16}
    rows = [silver_row(**sent), silver_row(**sent, **both), silver_row(**received, **both)]
    lake.commit(silver(spark, rows), SILVER_MDR)
    until_us, soon_us = MONDAY_US + HOUR_US // 2, MONDAY_US + 30 * HOUR_US
    known = ((A, 1, MONDAY_US, soon_us), (B, 1, MONDAY_US - 1, MONDAY_US + 1), (B, 3, until_us, soon_us))
    commit_ledger(lake, segments(*known))

    waiting = reconcile.run(lake)
    assert [waiting.details[word] for word in _COUNTED] == [0, 1, 0]
    written = {"recon_bucket", "recon_case", "recon_pair", "clock_offset", "clock_finding"}
    assert waiting.rows.keys() == written
    assert {waiting.versions[name] for name in written} == {1}  # one commit: the next one after that of the empty log
    assert reconcile.run(lake).details["days"] == []  # nothing new is known: it costs nothing to wait
    commit_ledger(lake, segments((A, 2, soon_us, LATER_US), (B, 4, soon_us, LATER_US)))
    closed = reconcile.run(lake)
    assert [closed.details[word] for word in _COUNTED] == [0, 0, 1]
    assert {closed.versions[name] for name in written} == {2}
    assert reconcile.run(lake).details["days"] == []
    commit_ledger(lake, segments((B, 2, MONDAY_US + 1, until_us)))  # it has no records: nothing else changes
    opened = reconcile.run(lake)
    assert (opened.details["days"], [opened.details[word] for word in _COUNTED]) == ([DAY], [1, 0, 0])
    assert reconcile.run(lake).details["days"] == []


def one_each_way(hour: int, set_us: int) -> list[dict[str, object]]:
    """A message from a to b and one back, 10 ms each, in an hour after Monday's midnight; since then b is ahead."""
    rows = []
    for src, dst in ((A, B), (B, A)):
        sent_us = MONDAY_US + hour * HOUR_US + HOUR_US // 2
        ahead = {A: 0, B: set_us if hour >= 24 else 0}
        both = {"src_domain": src, "dst_domain": dst, "msg_id": uuid7(sent_us + ahead[src], hour), "digest": b"d" * 16}
        for role, at in (("out", src), ("in", dst)):
            ts_us = sent_us + ahead[at] + 10_000 * (role == "in")
            rows.append(silver_row(role=role, node=f"mn-1.{at}", ts_us=ts_us, size_wire=210, **both))
    return rows


def test_a_clock_that_was_set_at_midnight_is_found_whether_days_are_reconciled_together_or_one_by_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    set_us = 2_000_000
    rows = [row for hour in range(6, 42) for row in one_each_way(hour, set_us)]
    found = []
    for name, days in (("one-by-one", ("2026-03-02", "2026-03-03")), ("together", (None,))):
        lake = Lake(tmp_path / name, spark)
        lake.commit(silver(spark, rows), SILVER_MDR)
        whole = MONDAY_US + 3 * 24 * HOUR_US
        commit_ledger(lake, segments((A, 1, MONDAY_US, whole), (B, 1, MONDAY_US, whole)))
        warned = [warning for day in days for warning in reconcile.run(lake, day=day).warnings if "clock" in warning]
        found.append((warned, lake.read_small("clock_finding").sort_by("dt").to_pylist()))
    assert found[0] == found[1]
    [line], [finding] = found[0]
    assert line.startswith("clock of b.example on 2026-03-03: was set by 2,000 ms")
    assert (finding["dt"], finding["kind"], finding["change_us"]) == ("2026-03-03", "step", set_us)


def test_a_day_whose_neighbour_was_dropped_by_retention_stays_as_it_was_reconciled(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The record of a message just after midnight may be on the day before, by a clock that is behind."""
    lake = Lake(tmp_path / "lake", spark)
    midnight_us = MONDAY_US + 24 * HOUR_US
    both = {"src_domain": A, "dst_domain": B, "digest": b"d" * 16, "msg_id": uuid7(midnight_us + 5_000, 1)}
    rows = [
        silver_row(role="out", node=f"mn-1.{A}", ts_us=midnight_us + 5_000, **both),
        silver_row(role="in", node=f"mn-1.{B}", ts_us=midnight_us - 5_000, **both),
    ]
    lake.commit(silver(spark, rows), SILVER_MDR)
    whole_us = MONDAY_US + 3 * 24 * HOUR_US
    commit_ledger(lake, segments((A, 1, MONDAY_US, whole_us), (B, 1, MONDAY_US, whole_us)))
    assert reconcile.run(lake).details["matched"] == 1

    retention.run(lake, today=date(2026, 3, 4), keep_days=1)

    assert reconcile.run(lake).details["days"] == []
    asked = reconcile.run(lake, day="2026-03-03")
    assert (asked.details["days"], asked.exit_code) == ([], ExitCode.INCOMPLETE)
    assert "dropped by retention" in asked.warnings[0]
    assert [row["matched"] for row in lake.read_small("recon_pair").to_pylist()] == [1]
