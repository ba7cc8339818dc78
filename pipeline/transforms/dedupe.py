"""Every record once. Pure.

Segments make sure of most of it: numbers of records that another segment has are refused with the whole segment. This
is the second line, for a number that comes twice within one, and for whatever comes to light later.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

KEY: Final = ("node", "boot", "seq")


def first_of_each(bronze: DataFrame) -> DataFrame:
    """One row for each (node, boot, seq): of the lowest segment, and there the same one on every run."""
    content = F.xxhash64(*[F.col(name) for name in bronze.columns if name != "errors"])
    order = Window.partitionBy(*KEY).orderBy("segno", content)
    return bronze.withColumn("_place", F.row_number().over(order)).where(F.col("_place") == 1).drop("_place")


def without_known(new: DataFrame, known: DataFrame) -> DataFrame:
    """The rows of `new` whose (node, boot, seq) is not in `known`."""
    return new.join(known.select(*KEY), on=list(KEY), how="left_anti")
