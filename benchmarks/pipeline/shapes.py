"""What is measured, on which engine; each in a process of its own, so that none warms up or starves another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb
from duckdb import DuckDBPyConnection
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.pipeline.kernel_jobs import (
    days_in_kernel,
    days_in_sql,
    messages_in_kernel,
    messages_in_sql,
    senders_in_kernel,
    senders_in_sql,
)
from benchmarks.pipeline.oracle import answer, numbers, open_oracle, statement
from benchmarks.pipeline.spools import (
    IN_COLUMNS,
    IN_LINES,
    INGESTED,
    INGESTED_LINES,
    ingest_lines_on_spark,
    ingest_on_duckdb,
    ingest_on_spark,
    replay_on_spark,
)
from benchmarks.process_time import process_tree
from pipeline.columns.hours import RECORD
from pipeline.columns.stub_hours import RECORD as STUB_RECORD
from pipeline.columns.usual import TRAFFIC
from pipeline.core.case_classes import CASES
from pipeline.jobs import reconcile, settle
from pipeline.lake.tables import Change, Lake
from pipeline.lake.worker_rows import WorkerRows
from pipeline.schemas import DOMAIN_BASELINE, SILVER_MDR, STUB_HOURLY, TRAFFIC_HOURLY, Table
from pipeline.spark.session import FOR_SQL, start_session
from pipeline.transforms.abuse import usual_hours
from pipeline.transforms.settle import settle_hourly
from pipeline.transforms.stubs import stub_hourly

REFINED: Final = "lake"
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class Figures(Struct, frozen=True, kw_only=True):
    """One shape on one engine. CPU seconds are those of the whole process tree while the job ran."""

    shape: str
    engine: str
    rows: int
    cpu_s: float
    wall_s: float
    peak_mib: int
    answer: dict[str, int]
    """What came out: both engines must say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of work.

    Attributes:
        bar_cpu_s: For 10 M records (of each side).
        spark: What Spark does with a lake.
        duckdb: What DuckDB does, on its silver records, or with the folder of everything; None where SQL has no answer.
        roles: Records that DuckDB looks at.
        lake: Which lake it is about.
        is_sql: Whether Spark's own engine does the work.
        after: What has to have run before, on the same lake.
        spools: What each engine reads, by its name.
    """

    name: str
    bar_cpu_s: float | None
    spark: Callable[[Lake], dict[str, int]]
    duckdb: Callable[[DuckDBPyConnection], dict[str, int]] | None = None
    duckdb_on_files: Callable[[DuckDBPyConnection, Path], dict[str, int]] | None = None
    roles: tuple[str, ...] = ("in", "out")
    lake: str = REFINED
    is_sql: bool = False
    after: str = ""
    spools: Mapping[str, str] = field(default_factory=dict)

    def engines(self, *, is_alone: bool = False) -> tuple[str, ...]:
        """Engines that can compute this shape, in the order of measuring; `is_alone`: Spark only."""
        has_other = not is_alone and (self.duckdb or self.duckdb_on_files)
        return ("duckdb", "spark") if has_other else ("spark",)


def measure(shape: Shape, engine: str, folder: Path, *, rows: int, memory: str, threads: int) -> Figures:
    """Run one shape on one engine, in this process. `folder` is that of the lakes."""
    if engine == "spark":
        more = FOR_SQL if shape.is_sql else None
        spark = start_session(f"local[{threads}]", memory=memory, more=more)
        # Everybody's first action loads classes: that is not what this work costs.
        spark.range(1000).groupBy((F.col("id") % 7).alias("part")).count().collect()
        lake = Lake(folder / shape.lake, spark)
        with timed() as spent:
            answered = shape.spark(lake)
        spark.stop()
    elif shape.duckdb_on_files is not None:
        files = duckdb.connect(config={"threads": threads, "memory_limit": f"{memory}B"})
        with timed() as spent:
            answered = shape.duckdb_on_files(files, folder)
    else:
        assert shape.duckdb is not None
        roles = f"role IN {shape.roles}"
        silver = folder / shape.lake / SILVER_MDR.name
        connection = open_oracle(silver, roles=roles, threads=threads, memory=f"{memory}B")
        with timed() as spent:
            answered = shape.duckdb(connection)
    return Figures(
        shape=shape.name,
        engine=engine,
        rows=rows,
        answer=answered,
        cpu_s=round(spent.cpu_s, 2),
        wall_s=round(spent.wall_s, 2),
        peak_mib=spent.peak_mib,
    )


@dataclass(slots=True)
class Spent:
    """The time and memory of a piece of work, of the whole process tree."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_mib: int = 0


@contextmanager
def timed() -> Iterator[Spent]:
    """Measure what is done inside; known afterwards."""
    spent = Spent()
    started, busy = time.perf_counter(), _tree_cpu_s()
    yield spent
    spent.cpu_s = _tree_cpu_s() - busy
    spent.wall_s = time.perf_counter() - started
    spent.peak_mib = _tree_peak_mib()


def _tree_cpu_s() -> float:
    """Of this process and all below it, threads that ended included."""
    ticks = 0
    for pid in process_tree(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])  # own and waited-for children, user and system
    return ticks / _TICKS_PER_SECOND


def _tree_peak_mib() -> int:
    kib = 0
    for pid in process_tree(os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return kib // 1024


# Settlement: the outbound records of everybody, by hour, written as a table.


def _settle_on_spark(lake: Lake) -> dict[str, int]:
    records = lake.read_in_workers(SILVER_MDR, columns=RECORD, where=[[("role", "==", "out")]])
    done = lake.commit(settle_hourly(records), TRAFFIC_HOURLY, Change("overwrite"))
    sums = lake.read(TRAFFIC_HOURLY).agg(F.sum("messages"), F.sum("bytes_wire")).collect()[0]
    return {"statements": done.rows, "messages": sums[0], "bytes": sums[1]}


def _settle_in_spark_sql(lake: Lake) -> dict[str, int]:
    lake.read(SILVER_MDR).where("role = 'out'").createOrReplaceTempView("records")
    done = lake.commit(lake.spark.sql(statement("hourly_spark")), TRAFFIC_HOURLY, Change("overwrite"))
    sums = lake.read(TRAFFIC_HOURLY).agg(F.sum("messages"), F.sum("bytes_wire")).collect()[0]
    return {"statements": done.rows, "messages": sums[0], "bytes": sums[1]}


def _settle_on_duckdb(connection: DuckDBPyConnection) -> dict[str, int]:
    answer(connection, "hourly")
    found = numbers(connection, "SELECT count(*), sum(messages), sum(bytes_wire) FROM hourly")
    return dict(zip(("statements", "messages", "bytes"), found, strict=True))


# Health of stub versions, and what is usual for a peer: plain aggregations too, in the kernel and in Spark's own SQL.


def _stub_hours_on_spark(lake: Lake) -> dict[str, int]:
    records = lake.read_in_workers(SILVER_MDR, columns=STUB_RECORD, where=[[("role", "==", "out")]])
    return _written(lake, stub_hourly(records), STUB_HOURLY, "messages")


def _stub_hours_in_spark_sql(lake: Lake) -> dict[str, int]:
    lake.read(SILVER_MDR).createOrReplaceTempView("records")
    return _written(lake, lake.spark.sql(statement("stub_hourly_spark")), STUB_HOURLY, "messages")


def _baselines_on_spark(lake: Lake) -> dict[str, int]:
    traffic = lake.read_in_workers(TRAFFIC_HOURLY, columns=TRAFFIC)
    return _written(lake, usual_hours(traffic), DOMAIN_BASELINE, "hours")


def _baselines_in_spark_sql(lake: Lake) -> dict[str, int]:
    lake.read(TRAFFIC_HOURLY).createOrReplaceTempView("traffic")
    return _written(lake, lake.spark.sql(statement("baselines_spark")), DOMAIN_BASELINE, "hours")


def _written(lake: Lake, rows: WorkerRows | DataFrame, table: Table, counted: str) -> dict[str, int]:
    done = lake.commit(rows, table, Change("overwrite"))
    [total] = lake.read(table).agg(F.sum(counted)).first() or (0,)
    return {"rows": done.rows, counted: total or 0}


# Everything that `settle` does: hourly, daily, folded, digested, final; records of both domains.


def _settle_job(lake: Lake) -> dict[str, int]:
    result = settle.run(lake)
    return {"hourly": result.rows["traffic_hourly"], "daily": result.rows["statement_daily"]}


def _settle_days_on_duckdb(connection: DuckDBPyConnection) -> dict[str, int]:
    answer(connection, "hourly", "daily")
    found = numbers(connection, "SELECT (SELECT count(*) FROM hourly), (SELECT count(*) FROM daily)")
    return dict(zip(("hourly", "daily"), found, strict=True))


# Reconciliation: the whole job, with clocks of each hour, evidence and tables; DuckDB does its two levels.


def _reconcile_on_spark(lake: Lake) -> dict[str, int]:
    details = reconcile.run(lake).details
    return {word: details[word] for word in ("matched", *CASES, "undelivered") if details[word]}


def _reconcile_on_duckdb(connection: DuckDBPyConnection) -> dict[str, int]:
    answer(connection, "levels", "messages", "classes", "counted")
    found = connection.execute("FROM counted").fetchall()
    return {str(word): int(count) for word, count in found}


SHAPES: Final = (
    Shape(name="settle-hourly", bar_cpu_s=15.0, spark=_settle_on_spark, duckdb=_settle_on_duckdb, roles=("out", "out")),
    # The same hours in Spark's own SQL: what the kernel saves.
    Shape(name="settle-hourly-sql", bar_cpu_s=None, spark=_settle_in_spark_sql, is_sql=True),
    Shape(name="settle", bar_cpu_s=None, spark=_settle_job, duckdb=_settle_days_on_duckdb),
    Shape(name="days", bar_cpu_s=None, spark=days_in_kernel, after="settle"),
    Shape(name="days-sql", bar_cpu_s=None, spark=days_in_sql, is_sql=True, after="settle"),
    Shape(name="baselines", bar_cpu_s=None, spark=_baselines_on_spark, after="settle"),
    Shape(name="baselines-sql", bar_cpu_s=None, spark=_baselines_in_spark_sql, is_sql=True, after="settle"),
    Shape(name="reconcile", bar_cpu_s=30.0, spark=_reconcile_on_spark, duckdb=_reconcile_on_duckdb),
    # All messages at level two, of which `reconcile` sees the disputed ones.
    Shape(name="messages", bar_cpu_s=None, spark=messages_in_kernel),
    Shape(name="messages-sql", bar_cpu_s=None, spark=messages_in_sql, is_sql=True),
    # Spark takes in columns, and DuckDB the same records in lines, which it can read.
    Shape(
        name="ingest",
        bar_cpu_s=40.0,
        spark=ingest_on_spark,
        duckdb_on_files=ingest_on_duckdb,
        lake=INGESTED,
        spools={"spark": IN_COLUMNS, "duckdb": IN_LINES},
    ),
    Shape(
        name="ingest-lines",
        bar_cpu_s=80.0,
        spark=ingest_lines_on_spark,
        lake=INGESTED_LINES,
        spools={"spark": IN_LINES},
    ),
    Shape(name="stub-hourly", bar_cpu_s=None, spark=_stub_hours_on_spark, lake=INGESTED, after="ingest"),
    Shape(
        name="stub-hourly-sql",
        bar_cpu_s=None,
        spark=_stub_hours_in_spark_sql,
        lake=INGESTED,
        is_sql=True,
        after="ingest",
    ),
    Shape(name="senders", bar_cpu_s=None, spark=senders_in_kernel, lake=INGESTED, after="ingest"),
    Shape(name="senders-sql", bar_cpu_s=None, spark=senders_in_sql, lake=INGESTED, is_sql=True, after="ingest"),
    # 20 M decisions at 200,000 in a second on a core.
    Shape(name="replay", bar_cpu_s=100.0, spark=replay_on_spark, lake=INGESTED, after="ingest"),
)
