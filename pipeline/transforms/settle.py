"""Settlement: what we exchanged with whom, by hour and by day, to the message and to the byte.

Everything in a statement is a sum of whole numbers, a set fold or a histogram with fixed buckets, so the same records
give the same statement whatever their order, split or partitioning.

Hours are added up by `pipeline.hours` in Python workers, in numpy: once where the records are read, so that only hours
are shuffled, and once where their parts have met. Source: pipeline study, sections 1.2 and 8.2; docs/adr/0016 and 0018.
"""

from __future__ import annotations

from functools import partial
from typing import Final, get_args, get_type_hints

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.groups import RECORDS_AT_ONCE, Rows, column, in_pieces
from pipeline.histogram import quantile_column
from pipeline.hours import hours_of, places_of_hours, whole_hours
from pipeline.packed import packed, places_for, together
from pipeline.schemas import STATEMENT_BOOK, TEXT
from pipeline.schemas.columns import columns
from pipeline.set_digests import BOOK_OF_DAY, WHOSE, bucket_hashes, members_of, places_of_buckets, places_of_members
from pipeline.set_digests import set_digests as digests_of_days
from pipeline.worker_rows import Batches, WorkerRows
from protofly.records import MessageRecord

OUTCOMES: Final[tuple[str, ...]] = tuple(sorted(get_args(get_type_hints(MessageRecord)["outcome"])))
"""Every outcome that a record may have, sorted."""
SET_DIGEST: Final = columns(**dict.fromkeys((*BOOK_OF_DAY, "set_digest"), TEXT))
"""Digests of sets by domain, pair, role and day."""
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
    sums = hourly.groupBy(*BOOK_OF_DAY).agg(*(F.sum(name).alias(name) for name in _SUMS))
    days = sums.join(_maps_added_up(hourly), on=list(BOOK_OF_DAY), how="inner")
    quantiles = {f"p{share // 10}_us": quantile_column(F.col("latency"), share) for share in (500, 950, 990)}
    return days.withColumns(quantiles).select(*STATEMENT_BOOK.fieldNames())


def _maps_added_up(hourly: DataFrame) -> DataFrame:
    """The maps of the hours added up key by key, in one pass over all three."""
    entries = F.concat(_entries("outcomes", word=True), _entries("denials", word=True), _entries("latency", word=False))
    tall = hourly.select(*BOOK_OF_DAY, F.explode(entries).alias("entry")).select(*BOOK_OF_DAY, "entry.*")
    counted = tall.groupBy(*BOOK_OF_DAY, "name", "word", "bucket").agg(F.sum("count").alias("messages"))
    return counted.groupBy(*BOOK_OF_DAY).agg(
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


def set_digests(silver: WorkerRows, signed_off: pa.Table) -> WorkerRows:
    """SHA-256 over the delivered messages of each pair, role and day; rows of `SET_DIGEST`. See `pipeline.set_digests`.

    A worker holds the messages of some pairs in 5 minutes: of one with 1,000 a second that is some 20 MB.

    Args:
        silver: The columns `MEMBER` of `silver_mdr`.
        signed_off: Domains and days in question, the columns `set_digests.WHOSE`.
    """
    places = places_for(silver.records)
    buckets = silver.then(partial(_bring_members_together, signed_off, places)).by_place()
    # Of a book and day there are at most some hundred hashes: they need fewer places than messages do.
    return buckets.then(partial(_hash_buckets, -(-places // 8))).by_place().then(_hash_days)


def _bring_members_together(signed_off: pa.Table, places: int, batches: Batches) -> Batches:
    wanted = Rows(*(column(signed_off, name) for name in WHOSE))
    for records in in_pieces(batches, RECORDS_AT_ONCE):
        members = members_of(records, wanted)
        yield packed(members, places_of_members(members, places))


def _hash_buckets(places: int, batches: Batches) -> Batches:
    hashes = bucket_hashes(together(batches))
    yield packed(hashes, places_of_buckets(hashes, places))


def _hash_days(batches: Batches) -> Batches:
    yield from digests_of_days(together(batches)).to_batches()


def _map_of(key: str, *, of: str) -> Column:
    """Counts by `key`, ascending, where `name` is `of`. Keys must be unique in the group."""
    entry = F.struct(F.col(key).alias("key"), F.col("messages").alias("value"))
    return F.map_from_entries(F.sort_array(F.collect_list(F.when(F.col("name") == of, entry))))
