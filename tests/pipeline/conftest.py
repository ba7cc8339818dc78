from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.session import start_session
from pipeline.tables import Lake

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Tests are over before a better compiler or collector would pay."""


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
            more={"spark.driver.extraJavaOptions": JVM_OPTIONS, "spark.default.parallelism": "2"},
        )
        yield session
        session.stop()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(tmp_path / "lake", spark)
