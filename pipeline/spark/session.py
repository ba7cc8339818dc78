"""The only place that configures Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pipeline.lake.store_path import Location

DEFAULT_MASTER = "local[*]"
WORKER_PYTHON: Final = "spark.pyspark.python"
"""The interpreter of workers; the environment variable `PYSPARK_PYTHON` wins."""
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
SHUFFLE_PARTITIONS = 8
_WHOLE_STAGE: Final = "spark.sql.codegen.wholeStage"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_SETTINGS: dict[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A batch for Python ends at its 10,000 rows; to see whether it ends earlier, every row's whole batch was measured.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ansi.enabled": "true",
    # Where in Python every column was made is not worth several calls into the JVM for each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Workers take and give back large buffers all the time, which costs least with the C library's own allocator.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    # Files are named one by one: looking at each here takes less than a job in which workers do.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Rows of a few days go to as many open files; otherwise every write would sort all rows by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
}

_HERE: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
"""Where all of Spark is in this process, nobody else has to reach it; executors elsewhere have to."""
_ONE_COMPILATION: Final = "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
_LARGE: Final = {
    # Nearly all work is the Python workers'. The JVM plans and passes on bytes, and never long enough for a second,
    # better compilation, or for a program made of each plan, to be worth what it takes.
    "spark.driver.extraJavaOptions": f"{_ONE_COMPILATION} -XX:+UseParallelGC",
    _WHOLE_STAGE: "false",
}
FOR_SQL: Final = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC", _WHOLE_STAGE: "true"}
"""Further settings where Spark's own engine does the work: there both pay."""
_STORE_NAMES: Final = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR", "AZURITE_BLOB_STORAGE_URL"),
)

_PARTS_MAX: Final = 200
_PORTION_BYTES: Final = 64 << 20
SMALL_BYTES: Final = 16 << 20
"""Compressed input of about a quarter of a million records: up to here, adapting plans costs more than it saves."""
_SMALL: Final = {
    "spark.driver.extraJavaOptions": f"{_ONE_COMPILATION} -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    _WHOLE_STAGE: "false",
    _SHUFFLE_PARTITIONS: "2",
}


def start_session(
    master: str | None = None,
    *,
    app: str = "trapezoid-pipeline",
    memory: str = "2g",
    shuffle_partitions: int = SHUFFLE_PARTITIONS,
    input_bytes: int | None = None,
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or take the session that `spark-submit` prepared.

    Args:
        master: Any Spark master; None leaves it to `spark-submit`, and is `local[*]` without one.
        app: Name that the cluster shows.
        memory: Heap of the driver, which is the whole of Spark with a local master; `spark-submit` has its own option.
        shuffle_partitions: Parts of a shuffle with a local master; a few per core. A cluster has its own settings.
        input_bytes: About how much will be read; None when nobody knows. Little input on this machine is not worth
            the preparations that pay with much: this changes how long it takes, nothing else.
        more: Further settings, which win.

    Raises:
        Exception: Whatever Spark says when the master cannot be reached.
    """
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    is_local = not is_submitted and is_this_process(master or DEFAULT_MASTER)
    builder = SparkSession.builder.appName(app)
    settings = dict(_SETTINGS)
    if not is_submitted:
        builder = builder.master(master or DEFAULT_MASTER)
        settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        settings["spark.driver.memory"] = memory
    elif master is not None:
        builder = builder.master(master)
    # Executors get the address of the store from here, and credentials from their own role or environment.
    settings |= {f"spark.executorEnv.{name}": os.environ[name] for name in _STORE_NAMES if name in os.environ}
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {**_HERE, _SHUFFLE_PARTITIONS: str(shuffle_partitions)}
        settings |= _SMALL if input_bytes is not None and input_bytes <= SMALL_BYTES else _LARGE
    settings |= more or {}
    if is_local:
        settings.pop(WORKER_PYTHON, None)
    # Without an archive workers run this very interpreter: another one on the path would not know this package.
    os.environ.setdefault("PYSPARK_PYTHON", settings.get(WORKER_PYTHON, sys.executable))
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def is_this_process(master: str) -> bool:
    """Return True if all of Spark runs in this process; `local-cluster[…]` has executors of its own."""
    return master.partition("[")[0] == "local"


def spread(session: SparkSession, input_bytes: int | None) -> None:
    """Set into how many parts a cluster shuffles, by what is read; not where the operator has said it.

    Pieces of sums are shuffled, a tenth of what they are made of at most: a part for each portion of input, and one for
    each core, is plenty. Spark's own number is 200, and each part costs a task.
    """
    context = session.sparkContext
    if not context.getConf().contains(_SHUFFLE_PARTITIONS):
        portions = _PARTS_MAX if input_bytes is None else -(-input_bytes // _PORTION_BYTES)
        session.conf.set(_SHUFFLE_PARTITIONS, str(min(_PARTS_MAX, max(context.defaultParallelism, portions))))


def bytes_in(folders: Collection[Location]) -> int | None:
    """Add up the sizes of the files below these folders; unreadable ones count 0. None: a folder is in a store."""
    here = [folder for folder in folders if isinstance(folder, Path)]
    if len(here) < len(folders):
        return None  # counting takes as long as the work on a little would
    total = 0
    for root, _, files in chain.from_iterable(map(os.walk, here)):
        for name in files:
            with suppress(OSError):
                total += Path(root, name).lstat().st_size
    return total
