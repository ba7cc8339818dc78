"""What operators say about silent nodes is kept, with who and why, and counts for the proofs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.core.utc_days import end_us
from pipeline.jobs.nodes import enter, listed
from pipeline.jobs.proofs import proved_completeness
from pipeline.lake.tables import Lake
from pipeline.schemas import SILVER_MDR
from pipeline.segments.declarations import Declaration, declared_until
from protofly.errors import SettingsError
from tests.pipeline.rows import HOUR_US, MONDAY_US, commit_ledger, note_owners, silver, silver_row

pytestmark = pytest.mark.spark
NODE, DAY = "mn-1.a.example", "2026-03-02"
SEGMENT = {
    "node": NODE,
    "kind": "mdr",
    "boot": 1,
    "segno": 1,
    "first_seq": 1,
    "last_seq": 9,
    "sha256": "x",
    "prev_sha256": "",
    "opened_us": MONDAY_US,
    "closed_us": MONDAY_US + HOUR_US,
    "verdict": "accepted",
}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """With one segment of one node."""
    found = Lake(tmp_path / "lake", spark)
    commit_ledger(found, [SEGMENT])
    return found


def test_the_newest_declaration_counts_and_all_are_kept_with_who_and_why(lake: Lake) -> None:
    enter(lake, NODE, Declaration.VOUCHED, why="in repair", day=DAY)
    assert declared_until(lake, ()) == {NODE: end_us(DAY) + 120_000_000}
    enter(lake, NODE, Declaration.RETIRED, why="replaced by mn-3")
    assert declared_until(lake, ())[NODE] > end_us("2099-01-01")
    enter(lake, NODE, Declaration.WITHDRAWN, why="it runs again")
    assert declared_until(lake, ()) == {}
    words = listed(lake).details["declarations"]
    assert [(row["declaration"], row["why"]) for row in words] == [
        ("vouched", "in repair"),
        ("retired", "replaced by mn-3"),
        ("withdrawn", "it runs again"),
    ]
    assert all("@" in row["who"] for row in words)
    for node, why, problem in ((NODE, " ", "say why"), ("mn-9.a.example", "gone", "nothing that mn-9.a.example wrote")):
        with pytest.raises(SettingsError, match=problem):
            enter(lake, node, Declaration.RETIRED, why=why)


def test_a_retired_node_holds_up_no_proof_and_the_evidence_says_that_it_was_declared(
    lake: Lake, spark: SparkSession
) -> None:
    lake.commit(silver(spark, [silver_row(node=NODE)]), SILVER_MDR)
    note_owners(lake)
    assert proved_completeness(lake)["a.example"].until_us == MONDAY_US + HOUR_US
    enter(lake, NODE, Declaration.RETIRED, why="replaced by mn-3")
    known = proved_completeness(lake, declared={NODE: 5})["a.example"]
    assert known.until_us > end_us("2099-01-01")
    assert known.proof == f"node {NODE} boot 1 segment 1, then by the operator's word"


def test_a_retired_node_that_writes_again_is_retired_no_more_until_somebody_says_so_anew(
    lake: Lake, spark: SparkSession
) -> None:
    lake.commit(silver(spark, [silver_row(node=NODE)]), SILVER_MDR)
    note_owners(lake)
    enter(lake, NODE, Declaration.RETIRED, why="replaced by mn-3")
    later_us = end_us("2030-01-01")
    commit_ledger(lake, [SEGMENT | {"boot": 2, "prev_sha256": "x", "sha256": "y", "closed_us": later_us}])
    known = proved_completeness(lake)["a.example"]
    assert known.until_us == later_us
    assert "boot 2 segment 1 (it has written since it was retired: `pipeline nodes withdraw` it)" in known.proof
    enter(lake, NODE, Declaration.RETIRED, why="now it is gone")
    assert proved_completeness(lake)["a.example"].until_us > end_us("2099-01-01")
