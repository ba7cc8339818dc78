"""What is measured beside the kernel in Spark's own SQL gives the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.testing import assertDataFrameEqual

from benchmarks.pipeline.kernel_jobs import DAYS, PAIRS, pairs_in_kernel, pairs_in_sql, suspects_in_sql
from benchmarks.pipeline.oracle import statement
from pipeline.columns.days import HOUR
from pipeline.columns.senders import MESSAGE
from pipeline.columns.side_records import ALL, entries_of
from pipeline.columns.stub_hours import RECORD
from pipeline.columns.usual import TRAFFIC
from pipeline.lake.worker_rows import PACKED, rows_of
from pipeline.schemas import DOMAIN_BASELINE, SILVER_MDR, STUB_HOURLY, TRAFFIC_HOURLY, Table
from pipeline.transforms.abuse import SUSPECTS, suspects, usual_hours
from pipeline.transforms.settle import daily_parts, settle_daily
from pipeline.transforms.stubs import stub_hourly
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US

pytestmark = [pytest.mark.spark, pytest.mark.endurance]
ROWS = 3_000


def some(rng: np.random.Generator, *values: Any) -> list[Any]:
    return [values[place] for place in rng.integers(0, len(values), ROWS).tolist()]


def columns_of(table: Table, names: tuple[str, ...], values: dict[str, list[Any]]) -> pa.Table:
    fields = to_arrow_schema(table.schema)
    return pa.table(values, pa.schema([fields.field(name) for name in values])).select(list(names))


def test_hours_of_stubs_in_sparks_own_sql_are_those_of_the_kernel(spark: SparkSession) -> None:
    rng = np.random.default_rng(1)
    values = {
        "our_domain": some(rng, "a.example", "b.example"),
        "peer_domain": some(rng, "c.example", "ä.example"),
        "stub_ver": some(rng, "1", "2", None),
        "msg_type": some(rng, "create", "read", None),
        "role": some(rng, "in", "out", "out"),
        "ts_us": (MONDAY_US + rng.integers(0, 30 * HOUR_US, ROWS)).tolist(),
        "size_in": some(rng, None, 0, 1, 15, 16, 1000, 2**31 - 1),
        "outcome": some(rng, "delivered", "denied", "timeout", "trapped"),
        "trap": some(rng, None, None, "fuel"),
        "d_stub_us": some(rng, None, None, -1, 0, 1, 15, 16, 17, 999, 2**31 - 1),
        "d_total_us": some(rng, None, 5, 10**6),
        "fuel": some(rng, None, 0, 7, 12345, 2**62),
    }
    records = spark.createDataFrame(columns_of(SILVER_MDR, RECORD, values))
    records.createOrReplaceTempView("records")
    in_sql = spark.sql(statement("stub_hourly_spark")).select(STUB_HOURLY.schema.names)
    kernel = stub_hourly(rows_of(records, RECORD, records=ROWS)).frame(STUB_HOURLY.schema)
    assertDataFrameEqual(in_sql, kernel)


def test_what_is_usual_in_sparks_own_sql_is_what_the_kernel_says(spark: SparkSession) -> None:
    rng = np.random.default_rng(2)
    values = {
        "our_domain": some(rng, "a.example", "b.example"),
        "src_domain": some(rng, *(f"{letter}.example" for letter in "cdef"), "rare.example"),
        "role": some(rng, "in", "in", "in", "out"),
        "hour_us": (MONDAY_US + rng.integers(-50, 900, ROWS) * HOUR_US).tolist(),
        "messages": rng.integers(1, 1000, ROWS).tolist(),
    }
    few = [number for number, name in enumerate(values["src_domain"]) if name == "rare.example"][9:]
    for number in few:
        values["role"][number] = "out"
    traffic = spark.createDataFrame(columns_of(TRAFFIC_HOURLY, TRAFFIC, values))
    traffic.createOrReplaceTempView("traffic")
    in_sql = spark.sql(statement("baselines_spark")).select(DOMAIN_BASELINE.schema.names)
    kernel = usual_hours(rows_of(traffic, TRAFFIC, records=ROWS)).frame(DOMAIN_BASELINE.schema)
    assertDataFrameEqual(in_sql, kernel)


def test_days_in_sparks_own_sql_are_those_of_the_kernel(spark: SparkSession) -> None:
    rng = np.random.default_rng(3)
    buckets = [-2, -1, 0, 16, 49, 63, 64, 65, 100, 335, 495]

    def counts(*keys: Any) -> list[dict[Any, int]]:
        many = rng.integers(0, len(keys) + 1, ROWS).tolist()
        return [{key: int(rng.integers(1, 99)) for key in rng.permutation(keys)[:one].tolist()} for one in many]

    day = rng.integers(0, 3, ROWS)
    values = {
        "our_domain": some(rng, "a.example", "b.example"),
        "src_domain": some(rng, "a.example", "c.example"),
        "dst_domain": some(rng, "b.example", "ä.example", "idle.example"),
        "role": some(rng, "in", "out"),
        "dt": [f"2026-03-0{2 + one}" for one in day.tolist()],
        **{name: rng.integers(0, 2**40, ROWS).tolist() for name in ("messages", "delivered", "denied", "failed")},
        **{name: rng.integers(0, 2**40, ROWS).tolist() for name in ("bytes_in", "bytes_wire")},
        "outcomes": counts("delivered", "timeout", "denied"),
        "denials": counts("", "closed-domains"),
        "latency": counts(*buckets),
    }
    values["latency"] = [
        {} if name == "idle.example" else found
        for name, found in zip(values["dst_domain"], values["latency"], strict=True)
    ]
    maps = {name: [[*one.items()] for one in values[name]] for name in ("outcomes", "denials", "latency")}
    traffic = spark.createDataFrame(columns_of(TRAFFIC_HOURLY, HOUR, values | maps))
    traffic.createOrReplaceTempView("traffic")
    in_sql = spark.sql(statement("days_spark")).select(DAYS.schema.names)
    parts = daily_parts(rows_of(traffic, HOUR, records=ROWS), 2).frame(PACKED)
    assertDataFrameEqual(in_sql, settle_daily(parts).frame(DAYS.schema))


def test_senders_in_sparks_own_sql_are_those_of_the_kernel(spark: SparkSession) -> None:
    rng = np.random.default_rng(4)
    values = {
        "our_domain": ["a.example"] * ROWS,
        "peer_domain": ["c.example"] * ROWS,
        "src_key": some(rng, "eve", "eve", "mallory", "mallory", "ana", None),
        "role": some(rng, "in", "in", "in", "out"),
        "ts_us": (MONDAY_US + rng.integers(0, 2, ROWS) * HOUR_US + rng.integers(0, HOUR_US // 6, ROWS)).tolist(),
        "dst_key": some(rng, *(f"user-{number}" for number in range(400)), None),
        "msg_type": some(rng, "create", "create", "response", None),
        "outcome_code": some(rng, "no-such-service", "no-route", "not-registered", "timeout"),
    }
    of_ana = [row for row, name in enumerate(values["src_key"]) if name == "ana"]
    for row in of_ana[25:]:
        values["role"][row] = "out"
    for row, name in enumerate(values["src_key"]):
        values["outcome_code"][row] = None if name == "mallory" else values["outcome_code"][row]
    records = spark.createDataFrame(columns_of(SILVER_MDR, MESSAGE, values))
    records.createOrReplaceTempView("records")
    in_sql = suspects_in_sql(spark).select(SUSPECTS.names)
    kernel = suspects(rows_of(records, MESSAGE, records=ROWS)).frame(SUSPECTS)
    assert {(row["src_key"], row["is_scan"]) for row in kernel.collect()} == {
        ("eve", True),
        ("mallory", False),
        (None, True),
    }
    assertDataFrameEqual(in_sql, kernel)


def test_classes_of_messages_in_sparks_own_sql_are_those_of_the_kernel(spark: SparkSession) -> None:
    rng = np.random.default_rng(5)
    number = rng.integers(0, ROWS // 3, ROWS)
    sent_us = MONDAY_US + rng.integers(0, 2 * DAY_US // 1000, ROWS)[number] * 1000
    heads = [(one // 1000).to_bytes(6, "big") for one in sent_us.tolist()]
    kinds = rng.integers(0, 9, ROWS)[number].tolist()
    ids = [
        head + (b"\x70\x00\x80" if kind else b"\x40\x00\x80") + one.to_bytes(7, "big")
        for head, kind, one in zip(heads, kinds, number.tolist(), strict=True)
    ]
    domains = ["a.example", "b.example"]
    source = rng.integers(0, 2, ROWS)[number]
    values = {
        "role": some(rng, "in", "out"),
        "src_domain": [domains[one] for one in source.tolist()],
        "dst_domain": [domains[1 - one] for one in source.tolist()],
        "msg_id": ids,
        # Its own for each record, so that there is one best.
        "ts_us": (sent_us + np.arange(ROWS) % 1000).tolist(),
        "digest": [bytes([one % 7]) * 16 for one in (number + (rng.random(ROWS) < 0.05)).tolist()],
        "size_wire": (number + (rng.random(ROWS) < 0.05)).tolist(),
        "size_in": some(rng, 1, None),
        "outcome": some(rng, "delivered", "delivered", "delivered", "denied", "duplicate", "timeout"),
        "channel": some(rng, None, "link", "guest"),
        "d_total_us": some(rng, 5, None),
        "node": some(rng, "mn-1"),
        "boot": some(rng, 1),
        "seq": list(range(ROWS)),
    }
    # A side has a message once, or twice and alike.
    first: dict[tuple[Any, ...], int] = {}
    kept = []
    for row, side in enumerate(zip(number.tolist(), values["role"], strict=True)):
        like = first.setdefault(side, row)
        if like != row and row % 3:
            continue
        for name in ("digest", "size_wire", "size_in"):
            values[name][row] = values[name][like]
        kept.append(row)
    table = columns_of(SILVER_MDR, ALL, values).take(pa.array(kept))
    records = spark.createDataFrame(table)
    records.createOrReplaceTempView("records")
    in_sql = pairs_in_sql(spark).select(PAIRS.schema.names)
    entries = rows_of(records, ALL, records=ROWS).in_tables(entries_of)
    days = {f"2026-03-0{one}" for one in (2, 3, 4)}
    kernel = pairs_in_kernel(spark, entries, days, set(domains)).frame(PAIRS.schema)
    sums = kernel.groupBy().sum().collect()[0].asDict()
    words = ("lost", "orphan", "altered", "duplicated", "size", "outcome", "undelivered", "refused", "matched")
    assert all(sums[f"sum({word})"] for word in words)
    assertDataFrameEqual(in_sql, kernel)
