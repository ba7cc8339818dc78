"""Evidence: which records, in which signed segments, prove a case; written for the people who will argue about it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.schemas import RECON_CASE
from pipeline.transforms.reconcile import CASES

_SECOND = "yyyy-MM-dd'T'HH:mm:ss'Z'"


def cases_with_evidence(judged: DataFrame, segments: DataFrame) -> DataFrame:
    """The messages on which the books differ, with what proves it; rows of `recon_case`.

    Args:
        judged: From `reconcile.judge`.
        segments: The ledger, `schemas.SEGMENTS`. Records whose segment is not in it (a partner's) are named by number.
    """
    cases = judged.where(F.col("case_class").isin(*CASES))
    for side in ("out", "in"):
        cases = cases.join(F.broadcast(_places(segments, side)), on=_is_in_segment(side), how="left")
    facts = ("ts_us", "node", "size", "outcome")
    return cases.select(
        "src_domain",
        "dst_domain",
        "msg_id",
        "case_class",
        *(F.coalesce(f"{side}.copies", F.lit(0)).alias(f"copies_{side}") for side in ("out", "in")),
        *(F.col(f"{side}.{name}").alias(f"{side}_{name}") for side in ("out", "in") for name in facts),
        F.col("out.digest").alias("out_digest"),
        _differing_digest().alias("in_digest"),
        _evidence().alias("evidence"),
        "dt",
    ).select(*RECON_CASE.schema.fieldNames())


def _places(segments: DataFrame, side: str) -> DataFrame:
    accepted = segments.where((F.col("kind") == "mdr") & (F.col("verdict") == "accepted"))
    names = ("node", "boot", "segno", "first_seq", "last_seq")
    return accepted.select(*(F.col(name).alias(f"{side}_{name}") for name in names))


def _is_in_segment(side: str) -> Column:
    seq = F.col(f"{side}.seq")
    return (
        (F.col(f"{side}.node") == F.col(f"{side}_node"))
        & (F.col(f"{side}.boot") == F.col(f"{side}_boot"))
        & seq.between(F.col(f"{side}_first_seq"), F.col(f"{side}_last_seq"))
    )


def _differing_digest() -> Column:
    """The in-book's digest; where it has several, one that is not the out-book's."""
    others = F.filter("in.digests", lambda digest: digest != F.col("out.digest"))
    return F.coalesce(F.get(others, F.lit(0)), F.col("in.digest"))


def _evidence() -> Column:
    return F.concat_ws("; ", _record("out", "src_domain"), _record("in", "dst_domain"))


def _record(side: str, domain: str) -> Column:
    place = F.concat_ws(
        " ",
        F.concat(F.col(domain), F.lit(":"), F.lit(" node"), F.lit(" "), F.col(f"{side}.node")),
        F.concat(F.lit("boot "), F.col(f"{side}.boot").cast("string")),
        F.concat(F.lit("segment "), F.col(f"{side}_segno").cast("string")),
        F.concat(F.lit("record "), F.col(f"{side}.seq").cast("string")),
    )
    until = F.date_format(F.timestamp_micros(f"{side}_until_us"), _SECOND)
    nothing = F.concat_ws(
        " ",
        F.concat(F.col(domain), F.lit(": no record,")),
        F.coalesce(F.concat(F.lit("complete until "), until), F.lit("completeness unknown")),
        F.concat(F.lit("by "), F.col(f"{side}_proof")),
    )
    return F.when(F.col(side).isNotNull(), place).otherwise(nothing)
