"""What one side has recorded about the messages of a domain pair, in the form in which two sides are compared.

A side's records come from silver, or from a partner's file; nothing after this module knows which. `out` is the
originating domain of a pair, `in` the receiving one.

The time of a message is the one inside its id: the originating node gives every message a UUIDv7, and both sides hold
the same id. So a message falls into the same 5 minutes on both sides however wrong a clock is. Ids that were not made
that way (a foreign trace was taken over), or whose time is more than a day from the record's own, say nothing; then
the record's own time counts, and the two sides may disagree about the bucket, which reconciliation allows for.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.core.side_records import BUCKET_US, ID_TIME_TRUST_US
from pipeline.schemas import SIDE_RECORD


def side_records(silver: DataFrame, role: str) -> DataFrame:
    """The records of one role: a row per record, columns of `schemas.SIDE_RECORD`.

    Args:
        silver: Rows of `silver_mdr`, of any number of nodes and days.
        role: `out` or `in`.
    """
    # A projection of its own: what is used more than once is then not computed more than once.
    records = silver.where(F.col("role") == role).withColumn("id_us", _id_time_us(F.col("msg_id")))
    return records.select(
        "src_domain",
        "dst_domain",
        "msg_id",
        _believed(F.col("id_us"), F.col("ts_us")).alias("sent_us"),
        "ts_us",
        "digest",
        F.coalesce("size_wire", "size_in").alias("size"),
        "outcome",
        F.col("d_total_us").alias("span_us"),
        "node",
        "boot",
        "seq",
    ).select(*SIDE_RECORD.fieldNames())


def _id_time_us(msg_id: Column) -> Column:
    """Time inside a UUIDv7, in µs; null for other ids. Source: RFC 9562, section 5.7."""
    is_version_7 = F.substring(msg_id, 7, 1).between(F.lit(b"\x70"), F.lit(b"\x7f"))
    is_variant = F.substring(msg_id, 9, 1).between(F.lit(b"\x80"), F.lit(b"\xbf"))
    time_ms = F.conv(F.hex(F.substring(msg_id, 1, 6)), 16, 10).cast("long")
    return F.when(is_version_7 & is_variant, time_ms * 1000)


def _believed(id_us: Column, ts_us: Column) -> Column:
    return F.when(F.abs(id_us - ts_us) <= ID_TIME_TRUST_US, id_us).otherwise(ts_us)


def may_be_sent_between(first_us: int, last_us: int) -> Column:
    """Whether a record of silver may be of a message sent then: true for all that are, and for some others.

    Ids are compared as the bytes that they are, which costs a tenth of reading the time out of them.
    """
    low, high = (max(0, time_us // 1000).to_bytes(6, "big") for time_us in (first_us, last_us + 1000))
    is_inside = (F.col("msg_id") >= F.lit(low)) & (F.col("msg_id") < F.lit(high))
    return is_inside | F.col("ts_us").between(first_us, last_us)


def bucket_us(time_us: Column) -> Column:
    """Start of the 5 minutes that a time in µs lies in."""
    return time_us - F.pmod(time_us, F.lit(BUCKET_US))


def day_of(time_us: Column) -> Column:
    """UTC day of a time in µs, `YYYY-MM-DD`."""
    return F.date_format(F.timestamp_micros(time_us), "yyyy-MM-dd")
