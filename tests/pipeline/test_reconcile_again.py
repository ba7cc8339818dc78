"""Closed days are opened again by what turns up later, and only by that."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs import reconcile
from pipeline.lake.tables import Lake
from pipeline.schemas import SILVER_MDR
from tests.pipeline.rows import HOUR_US, MONDAY_US, commit_ledger, silver, silver_row

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
