"""The report of transfers: which labelled data left, and what was kept back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.jobs import transfers
from pipeline.jobs.transfers import days_between
from pipeline.lake.tables import Lake
from pipeline.schemas import SILVER_MDR
from protofly.errors import SettingsError
from tests.pipeline.rows import DAY_US, MONDAY_US, silver, silver_row

OUT = {"role": "out", "src_domain": "a.example", "dst_domain": "b.example"}
PERSONAL = json.dumps({"viaLength": 1, "labels": ["personal"], "purpose": "care", "basis": "contract"})
BOTH = json.dumps({"labels": ["health", "personal"]})


@pytest.mark.spark
def test_messages_count_for_each_of_their_labels_by_day_and_partner(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, spark)
    denied = {"outcome": "denied", "outcome_code": "consent", "decision": "deny", "size_wire": None}
    rows = [
        silver_row(**OUT, facts=PERSONAL),
        silver_row(**OUT, facts=PERSONAL, size_wire=90),
        silver_row(**OUT, facts=BOTH, **denied),
        silver_row(**OUT, facts=BOTH, ts_us=MONDAY_US + DAY_US),
        silver_row(**OUT, facts=PERSONAL, outcome="expired"),
        silver_row(**OUT, facts='{"resource":"\\"labels\\""}'),
        silver_row(**OUT),
        silver_row(facts=PERSONAL),
        silver_row(**(OUT | {"dst_domain": "c.example"}), facts=PERSONAL),
    ]
    lake.commit(silver(spark, rows), SILVER_MDR)

    result = transfers.run(lake, peer="b.example")

    monday, tuesday = "2026-03-02", "2026-03-03"
    found = [tuple(row.values()) for row in result.details["transfers"]]
    assert found == [
        (monday, "a.example", "b.example", "health", "", "", 0, 0, 1),
        (monday, "a.example", "b.example", "personal", "", "", 0, 0, 1),
        (monday, "a.example", "b.example", "personal", "care", "contract", 2, 300, 0),
        (tuesday, "a.example", "b.example", "health", "", "", 1, 210, 0),
        (tuesday, "a.example", "b.example", "personal", "", "", 1, 210, 0),
    ]
    assert len(result.warnings) == 1
    assert len(transfers.run(lake, days=days_between(tuesday, "")).details["transfers"]) == 2
    assert transfers.run(lake, days=days_between("2020-01-01", "2020-01-02")).details["transfers"] == []


@pytest.mark.parametrize(
    "days", [("2026-03-02", "2026-03-01"), ("x", ""), ("", "2026-02-30"), ("1000-01-01", "2026-01-01")]
)
def test_days_that_make_no_sense_are_refused(days: tuple[str, str]) -> None:
    with pytest.raises(SettingsError):
        days_between(*days)
