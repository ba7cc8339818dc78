"""What is measured beside the kernel in Spark's own SQL gives the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.testing import assertDataFrameEqual

from benchmarks.pipeline.oracle import statement
from pipeline.columns.stub_hours import RECORD
from pipeline.columns.usual import TRAFFIC
from pipeline.lake.worker_rows import rows_of
from pipeline.schemas import DOMAIN_BASELINE, SILVER_MDR, STUB_HOURLY, TRAFFIC_HOURLY, Table
from pipeline.transforms.abuse import usual_hours
from pipeline.transforms.stubs import stub_hourly
from tests.pipeline.rows import HOUR_US, MONDAY_US

pytestmark = [pytest.mark.spark, pytest.mark.endurance]
ROWS = 3_000


def some(rng: np.random.Generator, *values: Any) -> list[Any]:
    return [values[place] for place in rng.integers(0, len(values), ROWS).tolist()]


def columns_of(table: Table, names: tuple[str, ...], values: dict[str, list[Any]]) -> pa.Table:
    fields = to_arrow_schema(table.schema)
    return pa.table(values, pa.schema([fields.field(name) for name in values])).select(list(names))


def test_hours_of_stubs_in_sparks_own_sql_are_those_of_the_kernel(spark: SparkSession) -> None:
    rng = np.random.default_rng(1)
    values = {
        "our_domain": some(rng, "a.example", "b.example"),
        "peer_domain": some(rng, "c.example", "ä.example"),
        "stub_ver": some(rng, "1", "2", None),
        "msg_type": some(rng, "create", "read", None),
        "role": some(rng, "in", "out", "out"),
        "ts_us": (MONDAY_US + rng.integers(0, 30 * HOUR_US, ROWS)).tolist(),
        "size_in": some(rng, None, 0, 1, 15, 16, 1000, 2**31 - 1),
        "outcome": some(rng, "delivered", "denied", "timeout", "trapped"),
        "trap": some(rng, None, None, "fuel"),
        "d_stub_us": some(rng, None, None, -1, 0, 1, 15, 16, 17, 999, 2**31 - 1),
        "d_total_us": some(rng, None, 5, 10**6),
        "fuel": some(rng, None, 0, 7, 12345, 2**62),
    }
    records = spark.createDataFrame(columns_of(SILVER_MDR, RECORD, values))
    records.createOrReplaceTempView("records")
    in_sql = spark.sql(statement("stub_hourly_spark")).select(STUB_HOURLY.schema.names)
    kernel = stub_hourly(rows_of(records, RECORD, records=ROWS)).frame(STUB_HOURLY.schema)
    assertDataFrameEqual(in_sql, kernel)


def test_what_is_usual_in_sparks_own_sql_is_what_the_kernel_says(spark: SparkSession) -> None:
    rng = np.random.default_rng(2)
    values = {
        "our_domain": some(rng, "a.example", "b.example"),
        "src_domain": some(rng, *(f"{letter}.example" for letter in "cdef"), "rare.example"),
        "role": some(rng, "in", "in", "in", "out"),
        "hour_us": (MONDAY_US + rng.integers(-50, 900, ROWS) * HOUR_US).tolist(),
        "messages": rng.integers(1, 1000, ROWS).tolist(),
    }
    few = [number for number, name in enumerate(values["src_domain"]) if name == "rare.example"][9:]
    for number in few:
        values["role"][number] = "out"
    traffic = spark.createDataFrame(columns_of(TRAFFIC_HOURLY, TRAFFIC, values))
    traffic.createOrReplaceTempView("traffic")
    in_sql = spark.sql(statement("baselines_spark")).select(DOMAIN_BASELINE.schema.names)
    kernel = usual_hours(rows_of(traffic, TRAFFIC, records=ROWS)).frame(DOMAIN_BASELINE.schema)
    assertDataFrameEqual(in_sql, kernel)
