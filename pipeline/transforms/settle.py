"""Settlement: what we exchanged with whom, by hour and by day, to the message and to the byte.

Everything in a statement is a sum of whole numbers, a set fold or a histogram with fixed buckets, so the same records
give the same statement whatever their order, split or partitioning.

The work is done in the tall form: first one row per pair, hour, outcome, rule and latency bucket, which Spark can add
up before it shuffles; only then the maps. Source: pipeline study, sections 1.2 and 8.2.
"""

from __future__ import annotations

from typing import Final, get_args, get_type_hints

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.histogram import bucket_column, quantile_column
from pipeline.schemas import STATEMENT_BOOK, TRAFFIC_HOURLY
from pipeline.transforms.books import DELIVERED, bucket_us, day_of, message_time_us
from pipeline.transforms.folds import fold_columns, set_sum
from protofly.records import MessageRecord

DENIED: Final = "denied"
OUTCOMES: Final[tuple[str, ...]] = tuple(sorted(get_args(get_type_hints(MessageRecord)["outcome"])))
"""Every outcome that a record may have, sorted."""
HOUR_US: Final = 3_600_000_000
_PAIR: Final = ("our_domain", "src_domain", "dst_domain", "role")
_HOURLY: Final = (*_PAIR, "msg_type", "hour_us")
_DAILY: Final = (*_PAIR, "dt")
_SUMS: Final = ("messages", "delivered", "denied", "failed", "bytes_in", "bytes_wire")


def settle_hourly(silver: DataFrame) -> DataFrame:
    """Statements per hour, domain pair, role and message type; rows of `traffic_hourly`.

    Bytes count messages of every outcome. Folds and latencies are those of delivered messages only: what was delivered
    is what two domains owe each other, and the 100 µs of a denial say nothing about how fast messages travel.
    """
    is_delivered = F.col("outcome") == DELIVERED
    records = silver.select(
        *_PAIR,
        "msg_type",
        (F.col("ts_us") - F.pmod("ts_us", F.lit(HOUR_US))).alias("hour_us"),
        "outcome",
        F.when(F.col("outcome") == DENIED, F.coalesce("rule_id", F.lit(""))).alias("rule"),
        F.when(is_delivered, bucket_column(F.col("d_total_us"))).alias("bucket"),
        F.coalesce("size_in", F.lit(0)).alias("size_in"),
        F.coalesce("size_wire", F.lit(0)).alias("size_wire"),
        F.when(is_delivered, F.xxhash64("msg_id", "digest")).alias("member"),
    )
    # One exchange serves both aggregations: rows of an hour are together, so those of its parts are, too.
    tall = (
        records.repartition(*_HOURLY)
        .groupBy(*_HOURLY, "outcome", "rule", "bucket")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum("size_in").alias("bytes_in"),
            F.sum("size_wire").alias("bytes_wire"),
            *fold_columns(F.col("member")),
        )
    )
    hours = tall.groupBy(*_HOURLY).agg(
        F.sum("messages").alias("messages"),
        F.sum(_if(F.col("outcome") == DELIVERED, "messages")).alias("delivered"),
        F.sum(_if(F.col("outcome") == DENIED, "messages")).alias("denied"),
        F.sum("bytes_in").alias("bytes_in"),
        F.sum("bytes_wire").alias("bytes_wire"),
        F.bit_xor("set_xor").alias("set_xor"),
        F.sum("sum_low").alias("sum_low"),
        F.sum("sum_high").alias("sum_high"),
        _counts(F.col("bucket").isNotNull(), "bucket").alias("latency"),
        _counts(F.col("rule").isNotNull(), "rule").alias("denials"),
        _counts(~F.col("outcome").isin(DELIVERED, DENIED), "outcome").alias("others"),
    )
    return (
        hours.withColumn("failed", F.col("messages") - F.col("delivered") - F.col("denied"))
        .withColumns({"outcomes": _outcomes(), "denials": _as_map("denials"), "latency": _as_map("latency")})
        .withColumn("set_sum", set_sum(F.col("sum_low"), F.col("sum_high")))
        .withColumn("dt", day_of(F.col("hour_us")))
        .select(*TRAFFIC_HOURLY.schema.fieldNames())
    )


def _if(condition: Column, name: str) -> Column:
    return F.when(condition, F.col(name)).otherwise(0)


def _counts(is_meant: Column, key: str) -> Column:
    """Counts by a value that stands in one part of an hour each. Lists, because most hours have none or few."""
    return F.collect_list(F.when(is_meant, _entry(F.col(key), F.col("messages"))))


def _as_map(entries: str) -> Column:
    return F.map_from_entries(F.sort_array(entries))


def _outcomes() -> Column:
    """Counts by outcome, ascending. Delivered and denied ones are in many parts, every other outcome is in one."""
    often = F.array(*(_entry(F.lit(word), F.col(word)) for word in (DELIVERED, DENIED)))
    seen = F.filter(often, lambda entry: entry["value"] > 0)
    mixed = F.map_from_entries(F.sort_array(F.concat(seen, "others")))
    # Nearly every hour: one map of one entry, without lists.
    is_plain = F.col("messages") == F.col("delivered")
    return F.when(is_plain, F.create_map(F.lit(DELIVERED), F.col("delivered"))).otherwise(mixed)


def _entry(key: Column, value: Column) -> Column:
    return F.struct(key.alias("key"), value.alias("value"))


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


def _map_of(key: str, *, of: str | None = None) -> Column:
    """Counts by `key`, ascending, where `key` is not null and `name` is `of`. Keys must be unique in the group."""
    entry = F.struct(F.col(key).alias("key"), F.col("messages").alias("value"))
    is_member = F.col(key).isNotNull() if of is None else F.col("name") == of
    return F.map_from_entries(F.sort_array(F.collect_list(F.when(is_member, entry))))
