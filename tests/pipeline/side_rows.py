"""Rows of two sides for tests: what a test does not say is unremarkable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.columns.clock_tables import ClockTables
from pipeline.columns.side_records import BUCKET_US
from pipeline.core.completeness import Completeness
from pipeline.schemas import CLOCK_OFFSET, PAIR_DELAY
from pipeline.transforms.reconcile import ENTRY
from tests.pipeline.rows import MONDAY_US, day_of

NOON_US = MONDAY_US + 12 * 3_600_000_000
MINUTE_US = 60_000_000
TRANSIT_US = 10_000
DAY = day_of(NOON_US)
HOURS_US = range(MONDAY_US, MONDAY_US + 24 * 3_600_000_000, 3_600_000_000)


def uuid7(time_us: int, number: int) -> bytes:
    """An id as the originating node makes it."""
    return (time_us // 1000 << 80 | 0x7 << 76 | 0b10 << 62 | number).to_bytes(16, "big")


def side_row(number: int, role: str, **members: Any) -> dict[str, Any]:
    """Message `number` from a.example to b.example, sent at noon, as the one or the other has recorded it."""
    owner = "a.example" if role == "out" else "b.example"
    row: dict[str, Any] = {
        "src_domain": "a.example",
        "dst_domain": "b.example",
        "msg_id": uuid7(NOON_US, number),
        "sent_us": NOON_US,
        "ts_us": NOON_US if role == "out" else NOON_US + TRANSIT_US,
        "digest": number.to_bytes(16, "big"),
        "size": 210,
        "outcome": "delivered",
        "span_us": 2 * TRANSIT_US,
        "node": f"mn-1.{owner}",
        "boot": 1,
        "seq": number,
    }
    row |= members
    return {"bucket_us": row["sent_us"] - row["sent_us"] % BUCKET_US} | row


def entries(out_rows: Iterable[Mapping[str, Any]], in_rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Records of both sides, `reconcile.ENTRY`."""
    rows = [dict(row) | {"is_out": True} for row in out_rows] + [dict(row) | {"is_out": False} for row in in_rows]
    return pa.Table.from_pylist([{name: row[name] for name in ENTRY.names} for row in rows], to_arrow_schema(ENTRY))


def both(spark: SparkSession, out_rows: Iterable[Mapping[str, Any]], in_rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """The same as a frame."""
    return spark.createDataFrame(entries(out_rows, in_rows), schema=ENTRY)


def completeness(**known: Completeness) -> dict[str, Completeness]:
    """Both domains are complete for the whole day unless something else is said of `a` or `b`."""
    whole = Completeness(0, MONDAY_US + 24 * 60 * MINUTE_US, proof="its segments")
    return {f"{name}.example": known.get(name, whole) for name in ("a", "b")}


def clocks(
    low_us: int = TRANSIT_US, *, offsets: Iterable[tuple[str, int, int]] = (), drift_ppb: int = 0
) -> ClockTables:
    """What is usual between both domains; `offsets` are domain, offset and error in µs; b's clock drifts."""
    known = [
        (domain, hour_us, offset_us, drift_ppb * (domain == "b.example"), error_us, "a.example", 1, 100, 0, DAY)
        for domain, offset_us, error_us in offsets
        for hour_us in HOURS_US
    ]
    return ClockTables(delays(low_us), arrow_table(known, CLOCK_OFFSET.schema))


def delays(low_us: int = TRANSIT_US, sources: Iterable[str] = ("a.example",)) -> pa.Table:
    """What is usual from each of these domains to b.example."""
    rows = [(source, "b.example", hour_us, low_us, 0, 100) for source in sources for hour_us in HOURS_US]
    return arrow_table(rows, PAIR_DELAY)


def arrow_table(rows: Iterable[tuple[Any, ...]], schema: StructType) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], to_arrow_schema(schema))
