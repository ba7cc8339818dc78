"""Parts of equal keys brought together for the workers that add them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PLACE: Final = "place"
"""A hash of the key. Equal keys have equal places; different ones may, so whoever adds up still looks at keys."""


def together(parts: DataFrame, key: Sequence[str]) -> DataFrame:
    """The same rows with `place`, in as many parts as the session shuffles into, sorted by it.

    So a worker sees parts of one sum one after the other and need not hold what it was given; and one number is
    shuffled by and sorted by several times faster than a key of texts.
    """
    return parts.withColumn(PLACE, F.xxhash64(*key)).repartition(PLACE).sortWithinPartitions(PLACE)
