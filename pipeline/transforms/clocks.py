"""Clocks: how far apart two domains' clocks are, seen from the messages that went between them.

A message from a to b that leaves at a's time and arrives at b's time shows delay + offset(b) − offset(a); one the other
way shows delay − the same difference. The fastest messages of each direction waited for nothing but the line, so a low
quantile stands for the line; half the difference of the two directions is the difference of the clocks. It is wrong by
half of what the two lines differ by, and that is at most half the sum of both: no line is faster than nothing.
Source: pipeline study, section 8.3; the same argument as in RFC 5905, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.schemas import PAIR_DELAY
from pipeline.transforms.books import DELIVERED, day_of

LOW_QUANTILE: Final = 0.05
_MESSAGE: Final = ("src_domain", "dst_domain", "msg_id")
_PAIR: Final = ("src_domain", "dst_domain")


def matched_times(out_book: DataFrame, in_book: DataFrame, *, one_in: int = 1) -> DataFrame:
    """Both times of messages that both books call delivered, of copies the first: pair, msg_id, dt and both ts_us.

    Args:
        out_book: Records of `schemas.BOOK`.
        in_book: The same of the other side.
        one_in: Look at one of so many messages, chosen by a hash of the id, so the same ones in both books.
    """
    is_chosen = F.pmod(F.xxhash64("msg_id"), F.lit(one_in)) == 0

    def times(entries: DataFrame, *, is_out: bool) -> DataFrame:
        chosen = entries.where((F.col("outcome") == DELIVERED) & is_chosen)
        return chosen.select(*_MESSAGE, "ts_us", "sent_us", F.lit(is_out).alias("is_out"))

    is_out = F.col("is_out")
    # One grouping of both books: a join of two would sort both.
    both = times(out_book, is_out=True).unionByName(times(in_book, is_out=False))
    earliest = both.groupBy(*_MESSAGE).agg(
        F.min(F.when(is_out, F.col("ts_us"))).alias("out_ts_us"),
        F.min(F.when(~is_out, F.col("ts_us"))).alias("in_ts_us"),
        F.min(F.when(is_out, F.col("sent_us"))).alias("sent_us"),
    )
    matched = earliest.where(F.col("out_ts_us").isNotNull() & F.col("in_ts_us").isNotNull())
    return matched.select(*_MESSAGE, "out_ts_us", "in_ts_us", day_of(F.col("sent_us")).alias("dt"))


def pair_delays(matched: DataFrame) -> DataFrame:
    """The low quantile of the time between both records, per ordered pair and day; rows of `schemas.PAIR_DELAY`.

    The quantile is exact, so the same messages give the same figure on every run.
    """
    low_us = F.percentile(F.col("in_ts_us") - F.col("out_ts_us"), F.lit(LOW_QUANTILE))
    delays = matched.groupBy(*_PAIR, "dt").agg(
        F.round(low_us).cast("long").alias("low_us"), F.count(F.lit(1)).alias("messages")
    )
    return delays.select(*PAIR_DELAY.fieldNames())


def typical_delays(in_totals: DataFrame) -> DataFrame:
    """The same out of the in-book's totals alone, for partners who exchange no more; rows of `schemas.PAIR_DELAY`.

    Per 5 minutes the shortest time between a message's id, made by the sender's clock to the millisecond, and its
    arrival; per pair and day the median of these. Coarser than `pair_delays`, and too long where traffic is sparse.
    """
    low_us = F.percentile("lag_min_us", F.lit(0.5))
    delays = in_totals.groupBy(*_PAIR, day_of(F.col("bucket_us")).alias("dt")).agg(
        F.round(low_us).cast("long").alias("low_us"), F.sum("messages").alias("messages")
    )
    return delays.select(*PAIR_DELAY.fieldNames())


@dataclass(frozen=True, slots=True)
class Clocks:
    """What is known about the times of two books.

    Attributes:
        delays: `schemas.PAIR_DELAY`.
        offsets: Rows of `clock_offset`.
    """

    delays: DataFrame
    offsets: DataFrame


def with_usual(rows: DataFrame, clocks: Clocks) -> DataFrame:
    """Add what the times of a message's two records usually differ by, `usual_us`, and the doubt about that.

    Where both clocks are known that is their difference, and the doubt is the sum of their error bounds: a pair with
    few messages cannot tell what is usual, all pairs together can. Otherwise it is the pair's own low quantile, and
    null where there is none.

    Args:
        rows: Anything with a pair and `dt`.
        clocks: What is known.
    """
    usual = rows.join(F.broadcast(clocks.delays.select(*_PAIR, "dt", "low_us")), on=[*_PAIR, "dt"], how="left")
    for side in ("src", "dst"):
        named = {"offset_us": f"{side}_offset_us", "error_us": f"{side}_error_us", "component": f"{side}_component"}
        offsets = clocks.offsets.select(F.col("domain").alias(f"{side}_domain"), "dt", *named).withColumnsRenamed(named)
        usual = usual.join(F.broadcast(offsets), on=[f"{side}_domain", "dt"], how="left")
    is_known = F.col("src_component") == F.col("dst_component")
    apart_us = F.when(is_known, F.col("dst_offset_us") - F.col("src_offset_us"))
    doubt_us = F.when(is_known, F.col("src_error_us") + F.col("dst_error_us")).otherwise(0)
    return usual.withColumns({"usual_us": F.coalesce(apart_us, "low_us"), "doubt_us": doubt_us}).drop(
        "low_us", *(f"{side}_{name}" for side in ("src", "dst") for name in ("offset_us", "error_us", "component"))
    )
