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

from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.book_entries import DELIVERED, DUPLICATE, in_buckets
from pipeline.book_totals import (
    COUNTED,
    PAIR,
    compare,
    equal_counts,
    places_of_totals,
    side_by_side,
    totals_of,
    whole_totals,
)
from pipeline.clock_tables import ClockTables
from pipeline.groups import RECORDS_AT_ONCE, in_pieces
from pipeline.packed import packed, places_for, unpacked
from pipeline.schemas import BOOK, BOOK_TOTAL, FLAG, LONG, RECON_PAIR, TEXT
from pipeline.schemas.columns import columns, extended
from pipeline.transforms.books import bucket_us, day_of
from pipeline.transforms.clocks import with_usual
from pipeline.worker_rows import Batches, WorkerRows

CASES: Final = ("pending", "lost", "orphan", "duplicated", "altered", "size", "outcome", "skewed")
"""Classes of messages on which the books do not agree (yet)."""
BUCKET: Final = (*PAIR, "bucket_us")
_MESSAGE: Final = (*PAIR, "msg_id")
_DAILY: Final = (*PAIR, "dt")
_CLASSES: Final = ("matched", *CASES, "undelivered")
_SIDE_BY_SIDE: Final = tuple(f"{side}_{name}" for side in ("out", "in") for name in COUNTED)
ENTRY: Final = extended(BOOK, is_out=FLAG)
"""Records of both books."""
SIDE_TOTAL: Final = extended(BOOK_TOTAL, is_out=FLAG)
"""Totals of both books."""
SIDES: Final = columns(
    src_domain=TEXT,
    dst_domain=TEXT,
    bucket_us=LONG,
    **dict.fromkeys((*_SIDE_BY_SIDE, "in_delivered", "lag_min_us", "lag_max_us"), LONG),
)
"""Totals of both books side by side."""
DIFFERENT: Final = columns(src_domain=TEXT, dst_domain=TEXT, bucket_us=LONG)
EQUAL_COUNTS: Final = columns(
    src_domain=TEXT, dst_domain=TEXT, dt=TEXT, **dict.fromkeys(("sent", "received", "matched", "refused"), LONG)
)
_FACTS: Final = ("ts_us", "node", "boot", "seq", "sent_us", "digest", "size", "outcome", "span_us")
"""What is kept of the record that stands for a message; the first four decide between equals."""


def totals(entries: WorkerRows) -> WorkerRows:
    """Level one: claims and answers added up per side, domain pair and 5 minutes; rows of `SIDE_TOTAL`.

    Args:
        entries: Of books, with `is_out`.
    """
    return _parts(entries).by_place().then(_add_up_parts)


def both_totals(entries: WorkerRows) -> WorkerRows:
    """Level one of two books that are both at hand: totals of either side by side, in one pass; rows of `SIDES`."""
    return _parts(entries).by_place().then(_put_side_by_side)


def _parts(entries: WorkerRows) -> WorkerRows:
    return entries.then(partial(_add_up_entries, places_for(entries.records)))


def _add_up_entries(places: int, batches: Batches) -> Batches:
    for entries in in_pieces(batches, RECORDS_AT_ONCE):
        parts = totals_of(entries)
        yield packed(parts, places_of_totals(parts, places))


def _add_up_parts(batches: Batches) -> Batches:
    yield from whole_totals(pa.concat_tables(unpacked(batches))).to_batches()


def _put_side_by_side(batches: Batches) -> Batches:
    yield from side_by_side(whole_totals(pa.concat_tables(unpacked(batches)))).to_batches()


def joined_totals(out_totals: DataFrame, in_totals: DataFrame) -> DataFrame:
    """The same out of totals of which the other side has shown no more."""

    def side(book_totals: DataFrame, name: str, *more: Column) -> DataFrame:
        sums = (F.col(one).alias(f"{name}_{one}") for one in COUNTED)
        return book_totals.select(*BUCKET, *sums, *more)

    of_receiver = (F.col("delivered").alias("in_delivered"), F.col("lag_min_us"), F.col("lag_max_us"))
    sides = side(out_totals, "out").join(side(in_totals, "in", *of_receiver), on=list(BUCKET), how="full")
    counted = (*_SIDE_BY_SIDE, "in_delivered")
    return sides.withColumns({name: F.coalesce(name, F.lit(0)) for name in counted})


def compared(sides: WorkerRows, clocks: ClockTables, *, skew_us: int) -> WorkerRows:
    """Level one: which totals are the same; rows of `recon_bucket`. See `book_totals.compare`.

    Args:
        sides: From `both_totals`, or rows of `joined_totals`.
        clocks: What is usual.
        skew_us: How much more or less is not.
    """
    return sides.then(partial(_compare, clocks, skew_us))


def _compare(clocks: ClockTables, skew_us: int, batches: Batches) -> Batches:
    for sides in batches:
        yield from compare(pa.Table.from_batches([sides]), clocks, skew_us=skew_us).to_batches()


def equal_totals(buckets: WorkerRows) -> WorkerRows:
    """What equal buckets say per pair and day, in parts; rows of `EQUAL_COUNTS`, of the columns `BUCKET_COUNTS`."""
    return buckets.then(_count_equal)


def _count_equal(batches: Batches) -> Batches:
    for buckets in in_pieces(batches, RECORDS_AT_ONCE):
        yield from equal_counts(buckets).to_batches()


def in_few_buckets(entries: WorkerRows, different: pa.Table) -> WorkerRows:
    """Level two: entries of any outcome in those buckets in which the totals differ, if these are few."""
    return entries.then(partial(_keep_disputed, different))


def _keep_disputed(different: pa.Table, batches: Batches) -> Batches:
    for entries in batches:
        yield from in_buckets(pa.Table.from_batches([entries]), different).to_batches()


def disputed(entries: DataFrame, different: DataFrame) -> DataFrame:
    """Level two: the same of any frame of entries, however many buckets there are."""
    keyed = entries.withColumn("bucket_us", bucket_us(F.col("sent_us")))
    return keyed.join(different.select(*BUCKET), on=list(BUCKET), how="left_semi").drop("bucket_us")


def message_by_message(entries: DataFrame) -> DataFrame:
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

    is_out = F.col("is_out")
    sides = (*side("out", is_out, is_delivered), *side("in", ~is_out, ~is_duplicate))
    return entries.groupBy(*_MESSAGE).agg(*sides).select(*_MESSAGE, seen("out"), seen("in"))


def judge(
    messages: DataFrame, clocks: ClockTables, completeness: DataFrame, *, grace_us: int, skew_us: int
) -> DataFrame:
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


def pair_counts(equal: DataFrame, judged: DataFrame, completeness: DataFrame) -> DataFrame:
    """Both levels added up per domain pair and day; rows of `recon_pair`.

    `sent` counts messages that the out-book claims, `received` those that the in-book has, each once; the classes add
    up to all messages of either book without `undelivered`. `refused` are those of `matched` that went no further.

    Args:
        equal: From `equal_totals`.
        judged: From `judge`.
        completeness: `schemas.COMPLETENESS` of the domains.
    """
    is_refused = (F.col("case_class") == "matched") & (F.col("in.outcome") != DELIVERED)
    of_records = judged.groupBy(*PAIR, "dt").agg(
        F.count_if(F.col("out.copies") > 0).alias("sent"),
        F.count_if(F.col("in.copies") > 0).alias("received"),
        F.count_if(is_refused).alias("refused"),
        *(F.count_if(F.col("case_class") == word).alias(word) for word in _CLASSES),
    )
    none = {word: F.lit(0).cast("long") for word in _CLASSES if word != "matched"}
    counted = ("sent", "received", "refused", *_CLASSES)
    until = completeness.select("domain", "until_us")
    return (
        equal.withColumns(none)
        .unionByName(of_records)
        .groupBy(*PAIR, "dt")
        .agg(*(F.sum(name).alias(name) for name in counted))
        .join(F.broadcast(until.toDF("src_domain", "out_until_us")), on="src_domain", how="left")
        .join(F.broadcast(until.toDF("dst_domain", "in_until_us")), on="dst_domain", how="left")
        .withColumn("complete_until_us", F.least("out_until_us", "in_until_us"))
        .select(*RECON_PAIR.schema.fieldNames())
    )
