from __future__ import annotations

import hashlib
import random
from typing import Any, get_args, get_type_hints

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.columns.days import HOUR, Version
from pipeline.columns.hours import RECORD
from pipeline.columns.set_digests import MEMBER
from pipeline.lake.worker_rows import PACKED, rows_of
from pipeline.partners.statements import canonical_statements
from pipeline.schemas import STATEMENT, STATEMENT_DAILY, TRAFFIC_HOURLY
from pipeline.transforms.settle import daily_parts, hashes_of_members, settle_daily, settle_hourly
from pipeline.transforms.settle import statements as written_down
from protofly.log_linear import bucket_of
from protofly.records import MessageRecord
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, silver, silver_row, worked_out
from tests.pipeline.side_rows import uuid7

OUTCOMES = sorted(get_args(get_type_hints(MessageRecord)["outcome"]))
pytestmark = pytest.mark.spark


def traffic(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Some of everything, in both roles, over two days."""
    rng = random.Random(seed)
    rows = []
    for number in range(1, count + 1):
        ts_us = MONDAY_US + rng.randrange(2 * DAY_US)
        outcome = rng.choice(("delivered", "delivered", "delivered", *OUTCOMES))
        role = rng.choice(("in", "out"))
        domains = {"src_domain": rng.choice(("b.example", "c.example")), "dst_domain": "a.example"}
        if role == "out":
            domains = {"src_domain": domains["dst_domain"], "dst_domain": domains["src_domain"]}
        rows.append(
            silver_row(
                seq=number,
                ts_us=ts_us,
                role=role,
                **domains,
                msg_type=rng.choice(("create", "read")),
                msg_id=uuid7(ts_us, number),
                outcome=outcome,
                rule_id=rng.choice((None, "closed", "too-large")),
                size_in=rng.randrange(5000),
                size_wire=rng.choice((None, 300)),
                d_total_us=rng.choice((None, rng.randrange(1, 10**7))),
            )
        )
    return rows


def hours_of(rows: DataFrame) -> DataFrame:
    return settle_hourly(rows_of(rows, RECORD)).frame(TRAFFIC_HOURLY.schema)


def days_of(hours: DataFrame) -> DataFrame:
    parts = daily_parts(rows_of(hours, HOUR), 2).frame(PACKED)
    return settle_daily(parts).frame(STATEMENT)


def statements(rows: DataFrame) -> bytes:
    daily = days_of(hours_of(rows))
    extra = {"status": "draft", "version": 1, "set_digest": None}
    return canonical_statements(row.asDict() | extra for row in daily.collect())


def test_an_hour_is_added_up_to_the_message_and_to_the_byte(spark: SparkSession) -> None:
    one = {"msg_type": "create", "ts_us": MONDAY_US + HOUR_US}
    rows = [
        silver_row(**one, size_in=100, size_wire=110, d_total_us=1_000),
        silver_row(**one, size_in=200, size_wire=None, d_total_us=1_001),
        silver_row(**one, outcome="denied", rule_id="closed", size_in=1, size_wire=2, d_total_us=5),
        silver_row(**one, outcome="denied", rule_id="closed", size_in=1, size_wire=2),
        silver_row(**one, outcome="denied", rule_id=None, size_in=1, size_wire=2),
        silver_row(**one, outcome="undeliverable", rule_id="open", size_in=1, size_wire=2, d_total_us=7),
        silver_row(**one | {"ts_us": MONDAY_US + HOUR_US - 1}),
    ]
    hours = hours_of(silver(spark, rows)).orderBy("hour_us").collect()
    assert [row.hour_us for row in hours] == [MONDAY_US, MONDAY_US + HOUR_US]
    found = hours[1].asDict()
    assert {
        name: found[name] for name in ("messages", "delivered", "denied", "failed", "bytes_in", "bytes_wire", "dt")
    } == {
        "messages": 6,
        "delivered": 2,
        "denied": 3,
        "failed": 1,
        "bytes_in": 304,
        "bytes_wire": 118,
        "dt": "2026-03-02",
    }
    assert found["outcomes"] == {"delivered": 2, "denied": 3, "undeliverable": 1}
    assert found["denials"] == {"": 1, "closed": 2}
    assert found["latency"] == {bucket_of(1_000): 2}


def test_folds_are_those_of_delivered_messages_in_any_order(spark: SparkSession) -> None:
    rows = [silver_row() for _ in range(50)]
    denied = silver_row(outcome="denied", rule_id="closed")
    random.Random(3).shuffle(rows)
    [one] = hours_of(silver(spark, rows)).collect()
    [other] = hours_of(silver(spark, [denied, *reversed(rows)])).collect()
    hashes = [
        row.member for row in silver(spark, rows).select(F.xxhash64("msg_id", "digest").alias("member")).collect()
    ]
    xor = 0
    for member in hashes:
        xor ^= member
    modulus = 2**64
    assert one.set_xor == other.set_xor == xor
    assert one.set_sum == other.set_sum
    assert one.set_sum % modulus == sum(hashes) % modulus


def test_days_add_up_their_hours(spark: SparkSession) -> None:
    hourly = worked_out(hours_of(silver(spark, traffic(400))))
    assert [field.name for field in hourly.schema] == TRAFFIC_HOURLY.schema.names
    daily = days_of(hourly)
    assert daily.schema.simpleString() == STATEMENT.simpleString()
    hours, days = hourly.collect(), daily.collect()
    assert len(days) == 8
    for name in ("messages", "delivered", "denied", "failed", "bytes_in", "bytes_wire"):
        assert sum(row[name] for row in hours) == sum(row[name] for row in days)
    for row in days:
        assert sum(row.outcomes.values()) == row.messages
        assert sum(row.denials.values()) == row.denied
        assert row.messages == row.delivered + row.denied + row.failed
        assert row.p50_us <= row.p95_us <= row.p99_us


@pytest.fixture(scope="module")
def three_hundred(spark: SparkSession) -> tuple[list[dict[str, Any]], bytes]:
    """Records, and their statements."""
    rows = traffic(300)
    return rows, statements(silver(spark, rows).coalesce(1))


@pytest.mark.parametrize("seed", range(3))
def test_statements_are_the_same_bytes_for_any_order_and_split_of_the_records(
    spark: SparkSession, three_hundred: tuple[list[dict[str, Any]], bytes], seed: int
) -> None:
    rows, expected = three_hundred
    rows = list(rows)
    rng = random.Random(seed)
    rng.shuffle(rows)
    cut = rng.randrange(len(rows))
    parts = silver(spark, rows[:cut]).unionByName(silver(spark, rows[cut:])).repartition(rng.randrange(1, 6))
    assert statements(parts) == expected
    assert expected.count(b"\n") == 8


def test_the_digest_of_a_day_can_be_made_by_hand(spark: SparkSession) -> None:
    minute_us = 60_000_000
    times = [0, minute_us, 6 * minute_us]
    rows = [
        silver_row(seq=number, ts_us=MONDAY_US + time_us, msg_id=uuid7(MONDAY_US + time_us, number))
        for number, time_us in enumerate(times)
    ]
    lines = [f"{row['msg_id'].hex()} {row['digest'].hex()}" for row in rows]
    first = hashlib.sha256("\n".join(sorted(lines[:2])).encode()).hexdigest()
    second = hashlib.sha256(lines[2].encode()).hexdigest()
    buckets = f"{MONDAY_US:020} {first}\n{MONDAY_US + 5 * minute_us:020} {second}"
    others = [silver_row(outcome="denied"), silver_row(src_domain="c.example", outcome="denied")]
    records = silver(spark, [*rows[::-1], *others, silver_row(ts_us=MONDAY_US + DAY_US)])
    parts = daily_parts(rows_of(hours_of(records), HOUR), 2).frame(PACKED)
    digests = hashes_of_members(rows_of(records, MEMBER), {("a.example", "2026-03-02")}, 2).frame(PACKED)
    versions = {
        ("a.example", "2026-03-02"): Version(1, "final", 7),
        ("a.example", "2026-03-03"): Version(2, "draft", 8),
    }
    found = written_down(parts.unionByName(digests), versions, input_version=5).frame(STATEMENT_DAILY.schema).collect()
    shown = {
        (row.src_domain, row.dt): (row.status, row.version, row.complete_until_us, row.set_digest) for row in found
    }
    assert shown == {
        ("b.example", "2026-03-02"): ("final", 1, 7, hashlib.sha256(buckets.encode()).hexdigest()),
        ("c.example", "2026-03-02"): ("final", 1, 7, hashlib.sha256(b"").hexdigest()),
        ("b.example", "2026-03-03"): ("draft", 2, 8, None),
    }
    assert {row.input_version for row in found} == {5}


def test_no_records_make_no_statements(spark: SparkSession) -> None:
    assert statements(silver(spark, [])) == b""
