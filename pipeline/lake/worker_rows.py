"""Rows in Spark's Python workers: what is still to be done with them is composed, and done in one go.

Two functions after each other in `mapInArrow` would bring every row into the JVM and back in between. So functions are
put together first, and Spark is given one. A function takes record batches and gives record batches; it does not know
whether these come out of a frame, out of files (`pipeline.lake.file_pieces`) or from other workers.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.columns.groups import RECORDS_AT_ONCE, Numbers, in_pieces
from pipeline.columns.packed import PIECE, PLACE, packed, together
from pipeline.lake.file_pieces import Reading, read_tasks, tasks_of
from pipeline.schemas.columns import BYTES, LONG, TEXT, columns

Batches: TypeAlias = Iterator[pa.RecordBatch]
Work: TypeAlias = Callable[[Batches], Batches]
Make: TypeAlias = Callable[[pa.Table], pa.Table]
PlacesOf: TypeAlias = Callable[[pa.Table, int], Numbers]
"""Out of a table, and how many places there are, the place of each row."""

PACKED = columns(**{PLACE: LONG, PIECE: BYTES})
"""Rows of `pipeline.columns.packed`."""
WRITTEN = columns(path=TEXT, rows=LONG, partition=TEXT)
"""What workers say of files that they have written, see `pipeline.lake.file_pieces`."""

_modules_kept_out = 0


@dataclass(frozen=True, slots=True)
class WorkerRows:
    """Rows that workers have.

    Attributes:
        run: Makes a frame of what a function gives; the schema is what the function gives.
        work: What is done with the rows so far.
        records: About how many records of one day this is made of.
    """

    run: Callable[[Work, StructType], DataFrame]
    work: tuple[Work, ...]
    records: int

    def then(self, work: Work) -> WorkerRows:
        """Let workers do something more."""
        return replace(self, work=(*self.work, work))

    def frame(self, schema: StructType) -> DataFrame:
        """As a frame with these columns, which the last function gives in any order, texts as dictionaries too."""
        return self.run(_one_after_the_other((*self.work, partial(_as_said, to_arrow_schema(schema)))), schema)

    def in_tables(self, make: Make, rows: int = RECORDS_AT_ONCE) -> WorkerRows:
        """Let workers make tables out of tables of about so many rows."""
        return self.then(partial(_in_tables, make, rows))

    def to_places(
        self, place: PlacesOf, places: int, *, of: Make | None = None, rows: int = RECORDS_AT_ONCE
    ) -> WorkerRows:
        """Bring rows of equal place together, for `of_places`.

        Args:
            place: Where each row of a table is at home.
            places: How many places there are.
            of: What is made of the rows first, of about so many at a time; None: they go as they are.
            rows: How many.
        """
        return self.packed(place, places, of=of, rows=rows).by_place()

    def packed(
        self, place: PlacesOf, places: int, *, of: Make | None = None, rows: int = RECORDS_AT_ONCE
    ) -> WorkerRows:
        """The same before they are brought together: rows of `PACKED`."""
        return self.then(partial(_packed, place, places, of, rows))

    def of_places(self, make: Make) -> WorkerRows:
        """Let workers make tables out of all rows of one place."""
        return self.then(partial(_of_place, make))

    def by_place(self) -> WorkerRows:
        """Pieces of `pipeline.columns.packed`, brought together: the next function gets those of a place at a time."""
        return pieces_by_place(self.frame(PACKED), records=self.records)


def pieces_by_place(pieces: DataFrame, *, records: int = 0) -> WorkerRows:
    """The same of a frame of `PACKED`."""
    grouped = pieces.groupBy(PLACE)

    def run(work: Work, schema: StructType) -> DataFrame:
        def of_place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work(batches)

        return grouped.applyInArrow(of_place, schema)

    return WorkerRows(run, (), records)


def rows_of(frame: DataFrame, columns: Collection[str], *, records: int = 0) -> WorkerRows:
    """Columns of any frame, in workers.

    Args:
        frame: The rows.
        columns: Which of its columns.
        records: About how many rows there are of one day, if there may be millions.
    """
    return WorkerRows(frame.select(*columns).mapInArrow, (), records)


def rows_in_files(
    spark: SparkSession, files: Collection[tuple[str, int, Mapping[str, str]]], reading: Reading, *, records: int = 0
) -> WorkerRows:
    """Rows of Parquet files, in the workers that read them.

    Args:
        spark: The session.
        files: Path, size and partition of each.
        reading: What is read of them.
        records: About how many records of one day are in them.
    """
    tasks = tasks_of(files)
    if not tasks:
        return WorkerRows(partial(_of_nothing, spark), (), 0)
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    return WorkerRows(numbers.mapInArrow, (partial(read_tasks, tasks, reading),), records)


def _of_nothing(spark: SparkSession, work: Work, schema: StructType) -> DataFrame:
    """The result of a function that gets nothing, which is worth no task."""
    rows = pa.Table.from_batches(work(iter(())), to_arrow_schema(schema))
    return spark.createDataFrame(rows, schema=schema)


def _in_tables(make: Make, rows: int, batches: Batches) -> Batches:
    for table in in_pieces(batches, rows):
        yield from make(table).to_batches()


def _packed(place: PlacesOf, places: int, of: Make | None, rows: int, batches: Batches) -> Batches:
    for table in in_pieces(batches, rows):
        made = table if of is None else of(table)
        yield packed(made, place(made, places))


def _of_place(make: Make, batches: Batches) -> Batches:
    yield from make(together(batches)).to_batches()


def _as_said(schema: pa.Schema, batches: Batches) -> Batches:
    for batch in batches:
        yield batch.select(schema.names).cast(schema)


def _one_after_the_other(works: Sequence[Work]) -> Work:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _keep_modules_out_of_collections()
        for one in works:
            batches = one(batches)
        return batches

    return work


def _keep_modules_out_of_collections() -> None:
    """What is there before a task will be there after it.

    Spark's worker collects garbage after every task, and looking at all that some hundred modules have made takes it 20
    to 40 ms: as long as many a task. Only after more modules have come, so that what tasks leave behind is collected.
    """
    global _modules_kept_out
    if TaskContext.get() is not None and len(sys.modules) != _modules_kept_out:
        _modules_kept_out = len(sys.modules)
        gc.freeze()
