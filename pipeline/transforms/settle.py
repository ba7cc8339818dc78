"""Settlement: what we exchanged with whom, by hour and by day, to the message and to the byte.

Everything in a statement is a sum of whole numbers, a set fold or a histogram with fixed buckets, so the same records
give the same statement whatever their order, split or partitioning.

Hours are added up by `pipeline.hours` in Python workers, in numpy: once where the records are read, so that only hours
are shuffled, and once where their parts have met. Source: pipeline study, sections 1.2 and 8.2; docs/adr/0016 and 0018.
"""

from __future__ import annotations

from functools import partial
from typing import Final, get_args, get_type_hints

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.book_entries import DELIVERED
from pipeline.groups import RECORDS_AT_ONCE, in_pieces
from pipeline.histogram import quantile_column
from pipeline.hours import hours_of, places_of_hours, whole_hours
from pipeline.packed import packed, places_for, together
from pipeline.schemas import STATEMENT_BOOK
from pipeline.transforms.books import bucket_us, message_time_us
from pipeline.worker_rows import Batches, WorkerRows
from protofly.records import MessageRecord

OUTCOMES: Final[tuple[str, ...]] = tuple(sorted(get_args(get_type_hints(MessageRecord)["outcome"])))
"""Every outcome that a record may have, sorted."""
_PAIR: Final = ("our_domain", "src_domain", "dst_domain", "role")
_DAILY: Final = (*_PAIR, "dt")
_SUMS: Final = ("messages", "delivered", "denied", "failed", "bytes_in", "bytes_wire")


def settle_hourly(silver: WorkerRows) -> WorkerRows:
    """Statements per hour, domain pair, role and message type; rows of `traffic_hourly`.

    Args:
        silver: The columns `RECORD` of `silver_mdr`.
    """
    parts = silver.then(partial(_add_up_records, places_for(silver.records)))
    return parts.by_place().then(_add_up_parts)


def _add_up_records(places: int, batches: Batches) -> Batches:
    for records in in_pieces(batches, RECORDS_AT_ONCE):
        hours = hours_of(records)
        yield packed(hours, places_of_hours(hours, places))


def _add_up_parts(batches: Batches) -> Batches:
    parts = together(batches)
    yield from whole_hours(parts).to_batches()


def settle_daily(hourly: DataFrame) -> DataFrame:
    """Statements per day, domain pair and role: the hours added up; rows of `schemas.STATEMENT_BOOK`."""
    sums = hourly.groupBy(*_DAILY).agg(*(F.sum(name).alias(name) for name in _SUMS))
    days = sums.join(_maps_added_up(hourly), on=list(_DAILY), how="inner")
    quantiles = {f"p{share // 10}_us": quantile_column(F.col("latency"), share) for share in (500, 950, 990)}
    return days.withColumns(quantiles).select(*STATEMENT_BOOK.fieldNames())


def _maps_added_up(hourly: DataFrame) -> DataFrame:
    """The maps of the hours added up key by key, in one pass over all three."""
    entries = F.concat(_entries("outcomes", word=True), _entries("denials", word=True), _entries("latency", word=False))
    tall = hourly.select(*_DAILY, F.explode(entries).alias("entry")).select(*_DAILY, "entry.*")
    counted = tall.groupBy(*_DAILY, "name", "word", "bucket").agg(F.sum("count").alias("messages"))
    return counted.groupBy(*_DAILY).agg(
        _map_of("word", of="outcomes").alias("outcomes"),
        _map_of("word", of="denials").alias("denials"),
        _map_of("bucket", of="latency").alias("latency"),
    )


def _entries(name: str, *, word: bool) -> Column:
    nobody, nothing = F.lit(None).cast("string"), F.lit(None).cast("int")

    def entry(pair: Column) -> Column:
        return F.struct(
            F.lit(name).alias("name"),
            (pair["key"] if word else nobody).alias("word"),
            (nothing if word else pair["key"]).alias("bucket"),
            pair["value"].alias("count"),
        )

    return F.transform(F.map_entries(name), entry)


def set_digests(silver: DataFrame) -> DataFrame:
    """SHA-256 over the delivered messages of each pair, role and day: its keys, dt and `set_digest`.

    Two levels, so that no list grows with the day. For every 5 minutes of message time the sorted lines
    `<msg_id> <digest>` (lower-case hex) joined by line feeds are hashed; then the sorted lines `<bucket_us> <hash>` of
    the day, where `bucket_us` has twenty digits. Anyone who has the records can check it with `sort` and `sha256sum`.
    A list holds the messages of one pair in 5 minutes: at 1,000 a second some 20 MB.
    """
    delivered = silver.where(F.col("outcome") == DELIVERED)
    members = delivered.select(
        *_DAILY,
        bucket_us(message_time_us(F.col("msg_id"), F.col("ts_us"))).alias("bucket_us"),
        F.lower(F.concat_ws(" ", F.hex("msg_id"), F.hex("digest"))).alias("line"),
    )
    buckets = members.groupBy(*_DAILY, "bucket_us").agg(_hash_of_lines(F.col("line")).alias("hash"))
    # Twenty digits sort like the numbers that they are.
    line = F.concat_ws(" ", F.lpad(F.col("bucket_us").cast("string"), 20, "0"), "hash")
    return buckets.groupBy(*_DAILY).agg(_hash_of_lines(line).alias("set_digest")).select(*_DAILY, "set_digest")


def _hash_of_lines(line: Column) -> Column:
    return F.sha2(F.array_join(F.sort_array(F.collect_list(line)), "\n"), 256)


def _map_of(key: str, *, of: str) -> Column:
    """Counts by `key`, ascending, where `name` is `of`. Keys must be unique in the group."""
    entry = F.struct(F.col(key).alias("key"), F.col("messages").alias("value"))
    return F.map_from_entries(F.sort_array(F.collect_list(F.when(F.col("name") == of, entry))))
