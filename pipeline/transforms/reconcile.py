"""Reconciliation: does what one side says it handed over agree with what the other says it got.

Two levels, as between operators of telephone networks: first totals per domain pair and 5 minutes, then records, only
of those 5 minutes in which the totals differ. Every message of these gets one class.

What is compared. `delivered` in an out-book is a claim: "your node took this". Held against it are the records of the
in-book: whatever became of the message there, its node took it. Only `duplicate` is none, by which a receiver says
that it ignored a further copy. So several attempts that ended in one delivery are one claim; a message that our gate
stopped claims nothing; and what the partner's gate denied is matched, because both books say that it came.

    out-book      in-book                 then
    delivered     any but duplicate       agreed; counted as `refused` too where the receiver did not deliver it
    delivered     only duplicate          outcome: of the first copy, which it is said to repeat, there is no record
    delivered     no record               lost, or pending
    denied        any                     outcome: it was never sent, and yet it is there
    other         delivered               outcome: the sender gave it up, the receiver delivered it
    other         not delivered, or none  agreed: undelivered, counted apart
    no record     any                     orphan, or pending

Lost and orphan are said only where the manifests of the side without a record prove that it would be there by now;
until then the message is pending.

A message in both books has the first class that holds: altered, duplicated, size, outcome, skewed, matched. What was
said comes before how often, how often before how much, and clocks come last. Source: pipeline study, section 8.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.book_totals import COUNTED, side_by_side, totals_of, whole_totals
from pipeline.groups import RECORDS_AT_ONCE, SUMS_AT_ONCE, in_batches, in_pieces, in_whole_groups
from pipeline.schemas import BOOK, BOOK_TOTAL, FLAG, LONG, RECON_BUCKET, RECON_PAIR, TEXT
from pipeline.schemas.columns import columns, extended
from pipeline.transforms.books import DELIVERED, DUPLICATE, bucket_us, day_of
from pipeline.transforms.clocks import Clocks, with_usual
from pipeline.transforms.together import PLACE, together

CASES: Final = ("pending", "lost", "orphan", "duplicated", "altered", "size", "outcome", "skewed")
"""Classes of messages on which the books do not agree (yet)."""
PAIR: Final = ("src_domain", "dst_domain")
_BUCKET: Final = (*PAIR, "bucket_us")
_MESSAGE: Final = (*PAIR, "msg_id")
_DAILY: Final = (*PAIR, "dt")
_CLASSES: Final = ("matched", *CASES, "undelivered")
_SIDE_BY_SIDE: Final = tuple(f"{side}_{name}" for side in ("out", "in") for name in COUNTED)
_PART: Final = extended(BOOK_TOTAL, is_out=FLAG)
_SIDES: Final = columns(
    src_domain=TEXT,
    dst_domain=TEXT,
    bucket_us=LONG,
    **dict.fromkeys((*_SIDE_BY_SIDE, "in_delivered", "lag_min_us", "lag_max_us"), LONG),
)
_FACTS: Final = ("ts_us", "node", "boot", "seq", "sent_us", "digest", "size", "outcome", "span_us")
"""What is kept of the record that stands for a message; the first four decide between equals."""


def claims(out_book: DataFrame) -> DataFrame:
    """Records of the out-book that say that the other side took the message."""
    return out_book.where(F.col("outcome") == DELIVERED)


def answers(in_book: DataFrame) -> DataFrame:
    """Records of the in-book that are held against claims."""
    return in_book.where(F.col("outcome") != DUPLICATE)


def totals(entries: DataFrame) -> DataFrame:
    """Level one: claims or answers added up per domain pair and 5 minutes; rows of `schemas.BOOK_TOTAL`.

    The folds are over `xxhash64(msg_id, digest, size)`, which is everything that is compared and not a clock.
    """
    parts = _members(entries, is_out=False).mapInArrow(_add_up_records, _PART)
    whole = together(parts, _BUCKET).mapInArrow(_add_up_parts, _PART)
    return whole.select(*BOOK_TOTAL.fieldNames())


def both_totals(out_book: DataFrame, in_book: DataFrame) -> DataFrame:
    """Level one of two books that are both at hand: totals of either side by side, in one pass and without a join."""
    members = _members(claims(out_book), is_out=True).unionByName(_members(answers(in_book), is_out=False))
    parts = members.mapInArrow(_add_up_records, _PART)
    return together(parts, _BUCKET).mapInArrow(_put_side_by_side, _SIDES)


def _add_up_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for entries in in_pieces(batches, RECORDS_AT_ONCE):
        yield from in_batches(totals_of(entries), to_arrow_schema(_PART))


def _add_up_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for parts in in_whole_groups(batches, PLACE, SUMS_AT_ONCE):
        yield from in_batches(whole_totals(parts), to_arrow_schema(_PART))


def _put_side_by_side(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for parts in in_whole_groups(batches, PLACE, SUMS_AT_ONCE):
        yield from in_batches(side_by_side(whole_totals(parts)), to_arrow_schema(_SIDES))


def joined_totals(out_totals: DataFrame, in_totals: DataFrame) -> DataFrame:
    """The same out of totals of which the other side has shown no more."""

    def side(book_totals: DataFrame, name: str, *more: Column) -> DataFrame:
        sums = (F.col(one).alias(f"{name}_{one}") for one in COUNTED)
        return book_totals.select(*_BUCKET, *sums, *more)

    of_receiver = (F.col("delivered").alias("in_delivered"), F.col("lag_min_us"), F.col("lag_max_us"))
    sides = side(out_totals, "out").join(side(in_totals, "in", *of_receiver), on=list(_BUCKET), how="full")
    counted = (*_SIDE_BY_SIDE, "in_delivered")
    return sides.withColumns({name: F.coalesce(name, F.lit(0)) for name in counted})


def compare(sides: DataFrame, clocks: Clocks, *, skew_us: int) -> DataFrame:
    """Level one: which totals are the same; rows of `recon_bucket`.

    A bucket also counts as different when a message in it took `skew_us` longer, or less, than is usual: otherwise a
    clock that jumps would go unseen where the books agree.

    Args:
        sides: From `both_totals` or `joined_totals`.
        clocks: What is usual.
        skew_us: How much more or less is not.
    """
    short = {f"{side}_set_{fold}": f"{side}_{fold}" for side in ("out", "in") for fold in ("xor", "sum")}
    is_same = F.lit(True)
    for name in COUNTED:
        is_same &= F.col(f"out_{name}") == F.col(f"in_{name}")
    low_us, allowed_us = F.coalesce("usual_us", "lag_min_us"), F.col("doubt_us") + skew_us
    is_punctual = (F.col("lag_max_us") - low_us <= allowed_us) & (low_us - F.col("lag_min_us") <= allowed_us)
    return (
        with_usual(sides.withColumn("dt", day_of(F.col("bucket_us"))), clocks)
        .withColumn("is_equal", F.coalesce(is_same & is_punctual, F.lit(False)))
        .withColumnsRenamed(short)
        .select(*RECON_BUCKET.schema.fieldNames())
    )


def _members(entries: DataFrame, *, is_out: bool) -> DataFrame:
    return entries.select(
        *PAIR,
        bucket_us(F.col("sent_us")).alias("bucket_us"),
        F.lit(is_out).alias("is_out"),
        (F.col("outcome") == DELIVERED).alias("is_delivered"),
        F.coalesce("size", F.lit(0)).alias("size"),
        F.xxhash64("msg_id", "digest", "size").alias("member"),
        (F.col("ts_us") - F.col("sent_us")).alias("lag_us"),
    )


def disputed(entries: DataFrame, buckets: DataFrame, *, are_few: bool = False) -> DataFrame:
    """Level two: records of a book, of any outcome, in those buckets in which the totals differ.

    Args:
        entries: Records of `schemas.BOOK`.
        buckets: From `compare`.
        are_few: Whether the different ones fit into every worker's memory; then no record is shuffled for them.
    """
    different = buckets.where(~F.col("is_equal")).select(*_BUCKET)
    return (
        entries.withColumn("bucket_us", bucket_us(F.col("sent_us")))
        .join(F.broadcast(different) if are_few else different, on=list(_BUCKET), how="left_semi")
        .select(*BOOK.fieldNames())
    )


def message_by_message(out_book: DataFrame, in_book: DataFrame) -> DataFrame:
    """Level two: both books side by side, one row per message, with structs `out` and `in`, null where there is none.

    A message stands for its best record: delivered before anything else, ignored duplicates last, then the earliest.
    `copies` counts claims and answers; `digests` are those of all records but ignored duplicates.
    """
    is_delivered, is_duplicate = F.col("outcome") == DELIVERED, F.col("outcome") == DUPLICATE
    place = F.when(is_delivered, 0).when(is_duplicate, 2).otherwise(1)
    best = F.struct(place.alias("place"), *_FACTS)

    def side(name: str, is_side: Column, is_counted: Column) -> list[Column]:
        return [
            F.min(F.when(is_side, best)).alias(f"{name}_best"),
            F.count_if(is_side & is_counted).cast("int").alias(f"{name}_copies"),
            F.array_sort(F.collect_set(F.when(is_side & ~is_duplicate, F.col("digest")))).alias(f"{name}_digests"),
        ]

    def seen(name: str) -> Column:
        facts = (f"{name}_best.{fact}" for fact in ("place", *_FACTS))
        told = F.struct(*facts, F.col(f"{name}_copies").alias("copies"), F.col(f"{name}_digests").alias("digests"))
        return F.when(F.col(f"{name}_best").isNotNull(), told).alias(name)

    # One grouping of both books: a join of two would sort both.
    both = out_book.withColumn("is_out", F.lit(True)).unionByName(in_book.withColumn("is_out", F.lit(False)))
    is_out = F.col("is_out")
    sides = (*side("out", is_out, is_delivered), *side("in", ~is_out, ~is_duplicate))
    return both.groupBy(*_MESSAGE).agg(*sides).select(*_MESSAGE, seen("out"), seen("in"))


def judge(messages: DataFrame, clocks: Clocks, completeness: DataFrame, *, grace_us: int, skew_us: int) -> DataFrame:
    """Level two: give every message its one class.

    Args:
        messages: From `message_by_message`.
        clocks: What the records' times usually differ by.
        completeness: `schemas.COMPLETENESS` of the domains.
        grace_us: How long after its own time a message may still get into the other side's book.
        skew_us: Skewed is a message whose times differ by this much more than usual and than the time that the sender
            waited for its answer, or by this much less than usual.

    Returns:
        The columns of `messages` with `case_class`, which is also `matched` or `undelivered`, `sent_us`, `dt`, and
        from, until and proof of both sides' completeness.
    """
    known = (
        messages.withColumn("sent_us", F.coalesce("out.sent_us", "in.sent_us"))
        .withColumn("dt", day_of(F.col("sent_us")))
        .join(F.broadcast(_completeness_of(completeness, "src_domain", "out")), on="src_domain", how="left")
        .join(F.broadcast(_completeness_of(completeness, "dst_domain", "in")), on="dst_domain", how="left")
    )
    return with_usual(known, clocks).withColumn("case_class", _case_class(grace_us, skew_us))


def _completeness_of(completeness: DataFrame, domain: str, side: str) -> DataFrame:
    names = ("from_us", "until_us", "holes", "proof")
    return completeness.select(F.col("domain").alias(domain), *(F.col(name).alias(f"{side}_{name}") for name in names))


def _case_class(grace_us: int, skew_us: int) -> Column:
    is_out, is_in = F.col("out").isNotNull(), F.col("in").isNotNull()
    is_claimed = F.col("out.outcome") == DELIVERED
    is_stopped = F.col("out.outcome") == "denied"
    is_held = F.coalesce(F.col("in.outcome") == DELIVERED, F.lit(False))
    do_outcomes_differ = F.when(is_claimed, F.col("in.copies") == 0).otherwise(is_stopped | is_held)
    return (
        F.when(~is_in & ~is_claimed, "undelivered")
        .when(~is_in, F.when(_is_proven("in", grace_us), "lost").otherwise("pending"))
        .when(~is_out, F.when(_is_proven("out", grace_us), "orphan").otherwise("pending"))
        .when(~is_claimed & ~do_outcomes_differ, "undelivered")
        .when(F.size(F.array_union("out.digests", "in.digests")) > 1, "altered")
        .when((F.col("out.copies") > 1) | (F.col("in.copies") > 1), "duplicated")
        .when(~F.col("out.size").eqNullSafe(F.col("in.size")), "size")
        .when(do_outcomes_differ, "outcome")
        .when(_is_skewed(skew_us), "skewed")
        .otherwise("matched")
    )


def _is_proven(side: str, grace_us: int) -> Column:
    """Whether a side's manifests prove that a record of the message would be in its book by now, if it had one."""
    sent_us = F.col("sent_us")
    is_inside = (F.col(f"{side}_from_us") <= sent_us) & (sent_us + grace_us <= F.col(f"{side}_until_us"))
    is_in_hole = F.exists(
        f"{side}_holes", lambda hole: (hole["from_us"] <= sent_us + grace_us) & (sent_us - grace_us <= hole["until_us"])
    )
    return F.coalesce(is_inside & ~is_in_hole, F.lit(False))


def _is_skewed(skew_us: int) -> Column:
    unusual_us = F.col("in.ts_us") - F.col("out.ts_us") - F.col("usual_us")
    waited_us, allowed_us = F.coalesce("out.span_us", F.lit(0)), F.col("doubt_us") + skew_us
    return F.coalesce((unusual_us < -allowed_us) | (unusual_us > waited_us + allowed_us), F.lit(False))


def pair_counts(buckets: DataFrame, judged: DataFrame, completeness: DataFrame) -> DataFrame:
    """Both levels added up per domain pair and day; rows of `recon_pair`.

    `sent` counts messages that the out-book claims, `received` those that the in-book has, each once; the classes add
    up to all messages of either book without `undelivered`. `refused` are those of `matched` that went no further.
    """
    is_refused = (F.col("case_class") == "matched") & (F.col("in.outcome") != DELIVERED)
    of_records = judged.groupBy(*PAIR, "dt").agg(
        F.count_if(F.col("out.copies") > 0).alias("sent"),
        F.count_if(F.col("in.copies") > 0).alias("received"),
        F.count_if(is_refused).alias("refused"),
        *(F.count_if(F.col("case_class") == word).alias(word) for word in _CLASSES),
    )
    equal = F.when(F.col("is_equal"), F.col("out_messages")).otherwise(0)
    of_buckets = buckets.groupBy(*PAIR, "dt").agg(
        *(F.sum(equal).alias(name) for name in ("sent", "received", "matched")),
        F.sum(F.when(F.col("is_equal"), F.col("in_messages") - F.col("in_delivered")).otherwise(0)).alias("refused"),
        *(F.lit(0).cast("long").alias(word) for word in _CLASSES if word != "matched"),
    )
    counted = ("sent", "received", "refused", *_CLASSES)
    until = completeness.select("domain", "until_us")
    return (
        of_buckets.unionByName(of_records)
        .groupBy(*PAIR, "dt")
        .agg(*(F.sum(name).alias(name) for name in counted))
        .join(F.broadcast(until.toDF("src_domain", "out_until_us")), on="src_domain", how="left")
        .join(F.broadcast(until.toDF("dst_domain", "in_until_us")), on="dst_domain", how="left")
        .withColumn("complete_until_us", F.least("out_until_us", "in_until_us"))
        .select(*RECON_PAIR.schema.fieldNames())
    )
