"""Rows for tests: what a test does not say is unremarkable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.lake.local_rows import local_frame
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import NODE_OWNER, SEGMENTS, SILVER_MDR

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
MONDAY_US = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp()) * 1_000_000

_numbers = count(1)


def day_of(ts_us: int) -> str:
    return datetime.fromtimestamp(ts_us / 1e6, tz=UTC).strftime("%Y-%m-%d")


def silver_row(**members: Any) -> dict[str, Any]:
    """One record of a.example's about a message from b.example, delivered."""
    number = next(_numbers)
    row: dict[str, Any] = {
        "node": "runtime://a.example/mn-1",
        "boot": 1,
        "seq": number,
        "ts_us": MONDAY_US + number,
        "role": "in",
        "msg_id": number.to_bytes(16, "big"),
        "attempt": 1,
        "src_domain": "b.example",
        "dst_domain": "a.example",
        "src_key": "hyperty://b.example/h-1",
        "dst_key": "hyperty://a.example/h-1",
        "msg_type": "create",
        "size_in": 200,
        "size_wire": 210,
        "digest": number.to_bytes(16, "big"),
        "outcome": "delivered",
        "decision": "permit",
        "policy_rev": "0123456789abcdef",
        "d_total_us": 1500,
    }
    row.update(members)
    ours, theirs = ("src_domain", "dst_domain") if row["role"] == "out" else ("dst_domain", "src_domain")
    row.setdefault("our_domain", row[ours])
    row.setdefault("peer_domain", row[theirs])
    row.setdefault("dt", day_of(row["ts_us"]))
    return row


def silver(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """A `silver_mdr` of rows as `silver_row` makes them."""
    names = SILVER_MDR.schema.names
    return local_frame(spark, [tuple(row.get(name) for name in names) for row in rows], SILVER_MDR.schema)


def commit_ledger(lake: Lake, segments: Sequence[Mapping[str, Any]]) -> None:
    """Enter segments, and whose nodes there are, as ingest and refine would."""
    usual = {"entered": "2026-03-01", "batch": lake.version(SEGMENTS) + 2, "first_seq": 1, "last_seq": 0}
    times = [{"min_ts_us": one.get("opened_us"), "max_ts_us": one.get("closed_us")} for one in segments]
    rows = [usual | time | dict(one) for one, time in zip(segments, times, strict=True)]
    columns = {name: [row.get(name) for row in rows] for name in SEGMENTS.schema.names}
    lake.commit(pa.table(columns, schema=to_arrow_schema(SEGMENTS.schema)), SEGMENTS)
    note_owners(lake)


def note_owners(lake: Lake) -> None:
    """Enter whose nodes there are, as refine would."""
    owners = lake.read_small(SILVER_MDR, NODE_OWNER.schema.names).group_by(NODE_OWNER.schema.names).aggregate([])
    lake.commit(owners.cast(to_arrow_schema(NODE_OWNER.schema)), NODE_OWNER, Change("overwrite"))


def worked_out(frame: DataFrame) -> DataFrame:
    """The same rows, as often as they are asked for: what they come from is run once."""
    return frame.sparkSession.createDataFrame(frame.toArrow(), schema=frame.schema)
