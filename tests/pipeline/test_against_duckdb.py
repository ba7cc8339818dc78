"""DuckDB answers the same questions with SQL that shares nothing with the Spark code; every row must be the same.

The traffic has planted faults whose number is known, so both could not be wrong in the same way either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from benchmarks.pipeline.oracle import answer, numbers, open_oracle, statement
from benchmarks.pipeline.traffic import Plan, Planted, fill_lake
from pipeline.columns.histogram import quantile
from pipeline.core.case_classes import CASES
from pipeline.jobs import reconcile, settle
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.tables import Lake
from pipeline.schemas import CLOCK_OFFSET, RECON_CASE, SILVER_MDR, STATEMENT_DAILY, TRAFFIC_HOURLY
from tests.pipeline.on_disk import on_disk
from tests.pipeline.xxhash import MASK, plain_xxhash64

pytestmark = [pytest.mark.spark, pytest.mark.endurance]

PLAN = Plan(messages=6_000, domains=8, pairs=40, days=2, faults=20.0)


@dataclass(frozen=True)
class Settled:
    """Both answers to the same records."""

    lake: Lake
    planted: Planted
    oracle: duckdb.DuckDBPyConnection
    settle: JobResult
    reconcile: JobResult


@pytest.fixture(scope="module")
def settled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settled]:
    lake = Lake(tmp_path_factory.mktemp("oracle") / "lake", spark)
    planted = fill_lake(lake, PLAN)
    jobs = settle.run(lake), reconcile.run(lake)
    with open_oracle(on_disk(lake.folder) / SILVER_MDR.name, member="0::BIGINT") as oracle:
        answer(oracle, "hourly", "daily", "messages", "delays", "classes")
        yield Settled(lake, planted, oracle, *jobs)


def rows_of(connection: duckdb.DuckDBPyConnection, table: str) -> list[dict[str, Any]]:
    found = connection.execute(f"FROM {table}")
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def keyed(
    rows: list[dict[str, Any]], *key: str, without: tuple[str, ...] = ()
) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {}
    for row in rows:
        said = {name: value for name, value in row.items() if name not in {*key, *without}}
        found[tuple(row[name] for name in key)] = {
            name: (value or {}) if name in {"outcomes", "denials", "latency"} else value for name, value in said.items()
        }
    assert len(found) == len(rows)
    return found


def test_hourly_statements_are_those_of_duckdb_row_for_row(settled: Settled) -> None:
    key = ("our_domain", "src_domain", "dst_domain", "role", "msg_type", "hour_us")
    folds = ("set_xor", "set_sum")
    spark_rows = [row.asDict() for row in settled.lake.read(TRAFFIC_HOURLY).collect()]
    ours = keyed(spark_rows, *key, without=(*folds, "dt"))
    assert ours == keyed(rows_of(settled.oracle, "hourly"), *key, without=folds)
    assert sum(row["messages"] for row in ours.values()) == settled.planted.records


def test_daily_statements_are_those_of_duckdb_row_for_row(settled: Settled) -> None:
    key = ("our_domain", "src_domain", "dst_domain", "role", "dt")
    theirs = keyed(rows_of(settled.oracle, "daily"), *key)
    for row in theirs.values():
        for name, per_mille in (("p50_us", 500), ("p95_us", 950), ("p99_us", 990)):
            row[name] = quantile(row["latency"], per_mille)
    spark_rows = [row.asDict() for row in settled.lake.read(STATEMENT_DAILY).collect()]
    assert {row["status"] for row in spark_rows} == {"final"}
    versions = ("status", "version", "complete_until_us", "input_version", "set_digest")
    assert keyed(spark_rows, *key, without=versions) == theirs


def test_set_folds_are_those_of_another_implementation_of_the_hash(settled: Settled) -> None:
    query = (
        "SELECT our_domain, src_domain, dst_domain, role, msg_type, hour_us, list(msg_id || digest) AS members FROM "
        "(SELECT *, ts_us - ts_us % 3600000000 AS hour_us FROM records WHERE outcome = 'delivered') GROUP BY ALL"
    )
    folds: dict[tuple[Any, ...], tuple[int, int]] = {}
    for *key, members in settled.oracle.execute(query).fetchall():
        xor = total = 0
        for member in members:
            hashed = plain_xxhash64(member[16:], plain_xxhash64(member[:16], 42))
            xor, total = xor ^ hashed, total + hashed & MASK
        folds[tuple(key)] = xor, total
    found = {
        (row.our_domain, row.src_domain, row.dst_domain, row.role, row.msg_type, row.hour_us): (
            row.set_xor & MASK,
            row.set_sum & MASK,
        )
        for row in settled.lake.read(TRAFFIC_HOURLY).collect()
        if row.delivered
    }
    assert found == folds


def test_cases_are_those_of_duckdb_message_by_message(settled: Settled) -> None:
    query = "FROM classes WHERE case_class NOT IN ('matched', 'undelivered')"
    theirs = {(src, dst, bytes(msg_id), word) for src, dst, msg_id, word in settled.oracle.execute(query).fetchall()}
    cases = settled.lake.read(RECON_CASE).collect()
    ours = {(row.src_domain, row.dst_domain, bytes(row.msg_id), row.case_class) for row in cases}
    assert ours == theirs
    assert len(cases) == len(ours)


def test_two_levels_give_the_classes_of_one_join_from_few_records(settled: Settled) -> None:
    query = "FROM classes WHERE case_class NOT IN ('matched', 'undelivered')"
    with open_oracle(on_disk(settled.lake.folder) / SILVER_MDR.name) as oracle:
        answer(oracle, "levels", "messages", "classes", "counted")
        assert set(oracle.execute(query).fetchall()) == set(settled.oracle.execute(query).fetchall())
        assert numbers(oracle, "SELECT count(*) FROM judged") < numbers(oracle, "SELECT count(*) FROM records")
        counts = dict(oracle.execute("FROM counted").fetchall())
    details = settled.reconcile.details
    assert counts == {word: details[word] for word in ("matched", *CASES, "undelivered") if details[word]}


def test_planted_faults_are_found_exactly(settled: Settled) -> None:
    cases = Counter(row.case_class for row in settled.lake.read(RECON_CASE).collect())
    assert cases == settled.planted.cases
    assert all(count > 0 for count in cases.values())
    details = settled.reconcile.details
    assert settled.reconcile.exit_code == ExitCode.FINDINGS
    assert settled.reconcile.findings == sum(settled.planted.cases.values())
    assert details["sent"] == settled.planted.sent
    [matched] = settled.oracle.execute("SELECT count(*) FROM classes WHERE case_class = 'matched'").fetchone() or (
        None,
    )
    assert details["matched"] == matched


def test_clocks_are_found_within_their_bounds_the_wrong_one_too(settled: Settled) -> None:
    true_us = settled.planted.offsets_us
    offsets = [row for row in settled.lake.read(CLOCK_OFFSET).collect() if row.dt == "2026-03-02"]
    assert {row.domain for row in offsets} == set(true_us)
    wrong_us = [abs(row.offset_us - (true_us[row.domain] - true_us[row.reference])) for row in offsets]
    assert all(wrong <= row.error_us for wrong, row in zip(wrong_us, offsets, strict=True))
    assert max(wrong_us) < 10_000
    assert max(abs(row.offset_us) for row in offsets) > 2_000_000


def test_hours_in_sparks_own_sql_are_those_of_the_kernel_row_for_row(settled: Settled, spark: SparkSession) -> None:
    """The statement that the benchmark measures beside the kernel."""
    settled.lake.read(SILVER_MDR).createOrReplaceTempView("records")
    in_sql = spark.sql(statement("hourly_spark")).select(TRAFFIC_HOURLY.schema.names)
    assertDataFrameEqual(in_sql, settled.lake.read(TRAFFIC_HOURLY))
