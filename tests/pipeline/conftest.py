from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.session import start_session
from pipeline.tables import Lake

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xmn300m",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Hundreds of queries over a few rows each: compiling them would take most of the time. `./run endurance` compiles."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark of all tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session = start_session(
            "local[2]",
            app="tests",
            memory="1g",
            shuffle_partitions=2,
            input_bytes=0,
            more=SETTINGS,
        )
        yield session
        session.stop()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(tmp_path / "lake", spark)
