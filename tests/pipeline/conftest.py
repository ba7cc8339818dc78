from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.tables import Lake
from pipeline.spark.session import start_session
from tests.pipeline.object_store import ObjectStore, azure_environment, azure_store, environment, object_store, reserved

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xmn300m",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Hundreds of queries over a few rows each: compiling them would take most of the time. `./run endurance` compiles."""


@pytest.fixture(scope="session")
def store_port() -> Iterator[int]:
    """The port of the object store. Where it is and how to get in is in the environment, which workers inherit."""
    with reserved() as held, pytest.MonkeyPatch.context() as patch:
        port = int(held.getsockname()[1])
        for name, value in environment(port).items():
            patch.setenv(name, value)
        yield port


@pytest.fixture(scope="session")
def store(store_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The one object store of all tests, started when the first one needs it."""
    with object_store(tmp_path_factory.mktemp("store"), store_port) as running:
        yield running


@pytest.fixture(scope="session")
def azure_port() -> Iterator[int]:
    """The same for the store of Azure's kind."""
    with reserved() as held, pytest.MonkeyPatch.context() as patch:
        port = int(held.getsockname()[1])
        for name, value in azure_environment(port).items():
            patch.setenv(name, value)
        yield port


@pytest.fixture(scope="session")
def azure(azure_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The one emulator of Azure, started when the first test needs it."""
    with azure_store(tmp_path_factory.mktemp("azure"), azure_port) as running:
        yield running


@pytest.fixture(scope="session")
def spark(store_port: int, azure_port: int) -> Iterator[SparkSession]:
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
