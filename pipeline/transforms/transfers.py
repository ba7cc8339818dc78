"""Data with labels that left our domains: what went where, why, and what was kept back for want of consent."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

COLUMNS: Final = ("day", "our_domain", "peer_domain", "label", "purpose", "basis", "messages", "bytes", "kept_back")
_SAID: Final = "labels array<string>, purpose string, basis string"
_KEPT_BACK: Final = "consent"


def transfers(silver: DataFrame) -> DataFrame:
    """Messages and bytes per UTC day, pair of domains, label, purpose and basis; columns `COLUMNS`.

    A message with several labels counts for each of them. `messages` and `bytes` are those that the other domain has
    accepted, `kept_back` those that our gate denied for want of consent.

    Args:
        silver: Rows of `silver_mdr`; only records of what left are looked at.
    """
    left = silver.where((F.col("role") == "out") & F.col("facts").contains('"labels"'))
    said = left.withColumn("said", F.from_json("facts", _SAID))
    labelled = said.withColumn("label", F.explode(F.array_distinct("said.labels")))
    is_delivered = F.col("outcome") == "delivered"
    size = F.when(is_delivered, F.coalesce("size_wire", "size_in", F.lit(0))).otherwise(0)
    keys = (
        F.col("dt").alias("day"),
        F.col("our_domain"),
        F.col("peer_domain"),
        F.col("label"),
        F.coalesce("said.purpose", F.lit("")).alias("purpose"),
        F.coalesce("said.basis", F.lit("")).alias("basis"),
    )
    return (
        labelled.groupBy(*keys)
        .agg(
            F.count_if(is_delivered).alias("messages"),
            F.sum(size).alias("bytes"),
            F.count_if(F.col("outcome_code") == _KEPT_BACK).alias("kept_back"),
        )
        .select(*COLUMNS)
    )
