"""Books: what one side wrote down about the messages of a domain pair, in the form in which two sides are compared.

A book is made from silver, or read from a partner's file; nothing after this module knows which. The out-book of a
pair is the originating domain's, the in-book the receiving one's.

The time of a message is the one inside its id: the originating node gives every message a UUIDv7, and both books hold
the same id. So a message falls into the same 5 minutes in both books however wrong a clock is. Ids that were not made
that way (a foreign trace was taken over), or whose time is more than a day from the record's own, tell nothing; then
the record's own time counts, and the two books may disagree about the bucket, which reconciliation allows for.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.schemas import BOOK

BUCKET_US: Final = 300_000_000
DAY_US: Final = 86_400_000_000
ID_TIME_TRUST_US: Final = DAY_US
"""Farther than this from the record's own time an id's time is not believed."""
DELIVERED: Final = "delivered"
DUPLICATE: Final = "duplicate"


def book(silver: DataFrame, role: str) -> DataFrame:
    """The book of one role: a row per record, columns of `schemas.BOOK`.

    Args:
        silver: Rows of `silver_mdr`, of any number of nodes and days.
        role: `out` or `in`.
    """
    records = silver.where(F.col("role") == role)
    return records.select(
        "src_domain",
        "dst_domain",
        "msg_id",
        message_time_us(F.col("msg_id"), F.col("ts_us")).alias("sent_us"),
        "ts_us",
        "digest",
        F.coalesce("size_wire", "size_in").alias("size"),
        "outcome",
        F.col("d_total_us").alias("span_us"),
        "node",
        "boot",
        "seq",
    ).select(*BOOK.fieldNames())


def message_time_us(msg_id: Column, ts_us: Column) -> Column:
    """Time of a message in µs: from its UUIDv7 where that can be believed, else `ts_us`. Source: RFC 9562, 5.7."""
    head = F.hex(F.substring(msg_id, 1, 9))
    is_uuid7 = (F.substring(head, 13, 1) == "7") & F.substring(head, 17, 1).isin("8", "9", "A", "B")
    time_us = F.conv(F.substring(head, 1, 12), 16, 10).cast("long") * 1000
    is_near = F.abs(time_us - ts_us) <= ID_TIME_TRUST_US
    return F.when(is_uuid7 & is_near, time_us).otherwise(ts_us)


def bucket_us(time_us: Column) -> Column:
    """Start of the 5 minutes that a time in µs lies in."""
    return time_us - F.pmod(time_us, F.lit(BUCKET_US))


def day_of(time_us: Column) -> Column:
    """UTC day of a time in µs, `YYYY-MM-DD`."""
    return F.date_format(F.timestamp_micros(time_us), "yyyy-MM-dd")
