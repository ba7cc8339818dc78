"""Reconciliation: does what one side says it handed over agree with what the other says it got.

Two levels, as between operators of telephone networks: first totals per domain pair and 5 minutes, then records, only
of those 5 minutes in which the totals differ. Every message of these gets one class.

What is compared. `delivered` at the sender is a claim: "your node took this". It is compared with the records of the
receiver: whatever became of the message there, its node took it. Only `duplicate` is none, by which a receiver says
that it ignored a further copy. So several attempts that ended in one delivery are one claim; a message that our gate
stopped claims nothing; and what the partner's gate denied is matched, because both sides say that it came. A message
that its sender repeated under its own trace has one id and several records on either side, and both agree.

The class of a message depends on its own records alone: 5 minutes whose totals say less than its records would are
left to level two, with all that is in them.

    sender        receiver                then
    delivered     any but duplicate       agreed; counted as `refused` too where the receiver did not deliver it
    delivered     only duplicate          outcome: of the first copy, which it is said to repeat, there is no record
    delivered     no record               lost, or pending
    denied        any                     outcome: it was never sent, and yet it is there
    other         delivered               outcome: the sender gave it up, the receiver delivered it
    other         not delivered, or none  agreed: undelivered, counted apart
    no record     any                     orphan, or pending

Lost and orphan are said only where the manifests of the side without a record prove that it would be there by now;
until then the message is pending.

A message on both sides has the first class that holds: outcome, altered, duplicated, size, skewed, matched. Contents
and sizes are compared only where both sides say that the message crossed: a record of one that did not cross has its
content as it was before, and no size on the link. Clocks come last. Source: pipeline study, section 8.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.clock_tables import ClockTables
from pipeline.columns.message_classes import COUNTED as COUNTED_MESSAGES
from pipeline.columns.message_classes import Judging, Messages, pair_rows, places_of_messages, places_of_pairs
from pipeline.columns.packed import PIECE, PLACE, packed, places_for, together, unpacked
from pipeline.columns.side_records import Buckets
from pipeline.columns.side_totals import (
    COUNTED,
    PAIR,
    compare,
    equal_counts,
    places_of_totals,
    side_by_side,
    totals_of,
    whole_totals,
)
from pipeline.core.completeness import Completeness
from pipeline.lake.worker_rows import PACKED, Batches, WorkerRows, pieces_by_place, rows_of
from pipeline.schemas import FLAG, LONG, SIDE_RECORD, TEXT
from pipeline.schemas.columns import columns, extended

BUCKET: Final = (*PAIR, "bucket_us")
_SIDE_BY_SIDE: Final = tuple(f"{side}_{name}" for side in ("out", "in") for name in COUNTED)
ENTRY: Final = extended(SIDE_RECORD, is_out=FLAG)
"""Records of both sides."""
SIDES: Final = columns(
    src_domain=TEXT,
    dst_domain=TEXT,
    bucket_us=LONG,
    **dict.fromkeys((*_SIDE_BY_SIDE, "in_delivered", "undelivered", "repeats", "lag_min_us", "lag_max_us"), LONG),
)
"""Totals of both sides in one row."""
DIFFERENT: Final = columns(
    src_domain=TEXT, dst_domain=TEXT, **dict.fromkeys(("bucket_us", "out_messages", "in_messages", "undelivered"), LONG)
)
JUDGED: Final = extended(PACKED, is_case=FLAG)
"""Pieces of cases, and of counts per pair and day."""
_COUNTS: Final = columns(src_domain=TEXT, dst_domain=TEXT, dt=TEXT, **dict.fromkeys(COUNTED_MESSAGES, LONG))
_PLACES_OF_PAIRS: Final = 16


def totals(entries: WorkerRows) -> WorkerRows:
    """Level one: claims and answers added up per side, domain pair and 5 minutes.

    Rows of `schemas.SIDE_TOTAL` with `is_out`.

    Args:
        entries: Records of both sides, with `is_out`.
    """
    return _parts(entries).of_places(whole_totals)


def both_totals(entries: WorkerRows) -> WorkerRows:
    """Level one where the records of both sides are at hand: totals of both in one pass; rows of `SIDES`."""
    return _parts(entries).of_places(_put_side_by_side)


def _parts(entries: WorkerRows) -> WorkerRows:
    return entries.to_places(places_of_totals, places_for(entries.records), of=totals_of)


def _put_side_by_side(parts: pa.Table) -> pa.Table:
    return side_by_side(whole_totals(parts))


def joined_totals(out_totals: DataFrame, in_totals: DataFrame) -> DataFrame:
    """The same out of totals of which the other side has shown no more."""

    def side(side_totals: DataFrame, name: str, *more: Column) -> DataFrame:
        sums = (F.col(one).alias(f"{name}_{one}") for one in COUNTED)
        return side_totals.select(*BUCKET, *sums, *more)

    of_sender = (F.col("undelivered"), F.col("repeats").alias("out_repeats"))
    of_receiver = (F.col("delivered").alias("in_delivered"), F.col("repeats").alias("in_repeats"))
    lags = (F.col("lag_min_us"), F.col("lag_max_us"))
    sides = side(out_totals, "out", *of_sender).join(
        side(in_totals, "in", *of_receiver, *lags), on=list(BUCKET), how="full"
    )
    counted = (*_SIDE_BY_SIDE, "in_delivered", "undelivered", "out_repeats", "in_repeats")
    sides = sides.withColumns({name: F.coalesce(name, F.lit(0)) for name in counted})
    return sides.withColumn("repeats", F.col("out_repeats") + F.col("in_repeats"))


def compared(sides: WorkerRows, clocks: ClockTables, *, skew_us: int) -> WorkerRows:
    """Level one: which totals are the same; rows of `recon_bucket`. See `side_totals.compare`.

    Args:
        sides: From `both_totals`, or rows of `joined_totals`.
        clocks: What is usual.
        skew_us: How much more or less is not.
    """
    return sides.in_tables(partial(compare, clocks=clocks, skew_us=skew_us))


def equal_totals(buckets: WorkerRows) -> WorkerRows:
    """Add up equal buckets per pair and day, in parts; see `side_totals.equal_counts`."""
    return buckets.in_tables(equal_counts)


def in_few_buckets(entries: WorkerRows, different: pa.Table, *, days: int) -> WorkerRows:
    """Level two: entries of any outcome in those buckets in which the totals differ, if these are few.

    Args:
        entries: Of so many days.
        different: Rows of `DIFFERENT`.
        days: How many.
    """
    # Ignored copies are not counted there. However many these are: a worker gets eight times the usual.
    names = ("out_messages", "in_messages", "undelivered")
    counted = sum(pc.sum(different.column(name)).as_py() or 0 for name in names)
    records = max(2 * counted // days, entries.records // 8)
    return replace(entries.then(partial(_keep_disputed, different)), records=min(records, entries.records))


def _keep_disputed(different: pa.Table, batches: Batches) -> Batches:
    buckets = Buckets(different)
    for entries in batches:
        yield from buckets.of(pa.Table.from_batches([entries])).to_batches()


def disputed(entries: DataFrame, different: DataFrame) -> DataFrame:
    """Level two: the same of any frame of entries, however many buckets there are."""
    return entries.join(different.select(*BUCKET), on=list(BUCKET), how="left_semi").select(*entries.columns)


def judged(entries: WorkerRows, by: Judging) -> DataFrame:
    """Level two: every message gets its one class; rows of `JUDGED`, for `cases` and `pair_counts`.

    Args:
        entries: From `in_few_buckets`, or rows of `disputed`.
        by: What messages are judged by.
    """
    places = places_for(entries.records * len(by.days))
    return entries.to_places(places_of_messages, places).then(partial(_judge, by)).frame(JUDGED)


def cases(found: DataFrame) -> WorkerRows:
    """Messages on which the sides differ, with what proves it; rows of `recon_case`."""
    return rows_of(found.where("is_case"), [PIECE]).then(_unpack)


def pair_counts(found: DataFrame, equal: WorkerRows, completeness: Mapping[str, Completeness]) -> WorkerRows:
    """Both levels added up per domain pair and day; rows of `recon_pair`.

    `sent` counts messages that the sender claims, `received` those that the receiver has, each once; the classes add
    up to all messages of either side. `refused` are those of `matched` that went no further.

    Args:
        found: From `judged`.
        equal: From `equal_totals`.
        completeness: What is proved about each domain's records.
    """
    counted = equal.packed(places_of_pairs, _PLACES_OF_PAIRS)
    pieces = found.where("NOT is_case").select(PLACE, PIECE).unionByName(counted.frame(PACKED))
    return pieces_by_place(pieces).then(partial(_add_up_pairs, completeness))


def _judge(by: Judging, batches: Batches) -> Batches:
    messages = Messages(together(batches), by)
    found, counts = messages.cases(), messages.counts()
    for is_case, pieces in (
        (True, packed(found, np.zeros(found.num_rows, np.int64))),
        (False, packed(counts, places_of_pairs(counts, _PLACES_OF_PAIRS))),
    ):
        yield pieces.append_column("is_case", pa.array([is_case] * pieces.num_rows, pa.bool_()))


def _unpack(batches: Batches) -> Batches:
    for table in unpacked(batches):
        yield from table.to_batches()


def _add_up_pairs(completeness: Mapping[str, Completeness], batches: Batches) -> Batches:
    yield from pair_rows(together(batches, to_arrow_schema(_COUNTS)), completeness).to_batches()
