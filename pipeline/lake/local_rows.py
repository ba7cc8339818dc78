"""Rows of this process as a frame that Spark's planner sees through.

What is made from a list of tuples is an opaque data set to Spark: read in a job of its own, shuffled where it is
joined. As an Arrow table it is part of the plan, and small ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def local_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType) -> DataFrame:
    """A frame of the given rows, each with a value per column, in the order of the schema.

    Raises:
        pyarrow.ArrowException: A value that is not of its column's type.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    fields = to_arrow_schema(schema)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.table(arrays, schema=fields), schema=schema)
