"""Parquet files of a table, read and written by Spark's Python workers themselves, without the JVM in between.

What is read is what Spark would read of the same files: the columns of the table in its types, null where a file does
not have one, partition values from the log, rows where a condition holds. Texts come as dictionaries, as they are in
the files. Row groups in which the condition cannot hold are not read; of others a worker holds some
hundred thousand rows.

What is written does not count until the driver adopts it: only files that a finished task has named are taken, so a
task that was started twice, or died, leaves litter in the stage and no rows twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.columns.conditions import Condition, held
from pipeline.columns.groups import column, lengths_of, runs, words
from pipeline.lake import storage
from pipeline.lake.store_path import Location, location

TASK_BYTES: Final = 32 << 20
"""So much of compressed files is at most one task's: some 300,000 records with all columns."""
_TASK_BYTES_AT_LEAST: Final = 1 << 20
_TASKS: Final = 16
"""So many there are at least, if there is enough to do."""
_BATCH_ROWS: Final = 1 << 17
_TEXT: Final = pa.dictionary(pa.int32(), pa.string())

_WRITTEN: Final = pa.schema({"path": pa.string(), "rows": pa.int64(), "partition": pa.string()})
"""What a worker says of each file that it has written."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """The row groups of a file that begin in a range of its bytes."""

    path: str
    begin: int
    end: int
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """Columns and rows to read from files.

    Attributes:
        columns: Names and types.
        where: Which rows, by these columns; None for all.
    """

    columns: pa.Schema
    where: Condition | None = None


def tasks_of(files: Iterable[tuple[str, int, Mapping[str, str]]]) -> list[tuple[FilePiece, ...]]:
    """Files, each with its size and partition, cut into portions for tasks, in their order."""
    files = list(files)
    total = sum(size_bytes for _, size_bytes, _ in files)
    portion = min(TASK_BYTES, max(_TASK_BYTES_AT_LEAST, total // _TASKS))
    tasks: list[list[FilePiece]] = []
    room = 0
    for path, size_bytes, partition in files:
        begin = 0
        while begin < size_bytes:
            if room <= 0:
                tasks.append([])
                room = portion
            # A last bit that is smaller than half a portion is not worth a task.
            end = size_bytes if size_bytes - begin <= room + portion // 2 else begin + room
            tasks[-1].append(FilePiece(path, begin, end, partition))
            room -= end - begin
            begin = end
    return [tuple(task) for task in tasks]


def read_tasks(
    tasks: Sequence[Sequence[FilePiece]], reading: Reading, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of tasks whose numbers come in the first column."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for piece in tasks[number]:
                yield from read_piece(piece, reading)


def read_piece(piece: FilePiece, reading: Reading) -> Iterator[pa.RecordBatch]:
    """The rows of one piece. Raises OSError, ArrowException."""
    wanted = reading.columns
    known = {name: (value, value) for name, value in piece.partition.items()}
    path = location(piece.path)
    metadata = storage.parquet_metadata(path)
    has = set(metadata.schema.to_arrow_schema().names) - set(known)
    there = [name for name in wanted.names if name in has]
    texts = [name for name in there if pa.types.is_string(wanted.field(name).type)]
    with storage.open_parquet(path, metadata=metadata, read_dictionary=texts, pre_buffer=False) as file:
        for number in range(file.num_row_groups):
            if not _is_in(piece, file, number):
                continue
            holds = True if reading.where is None else held(reading.where, _ranges(file, number) | known)
            if holds is False:
                continue
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=there, use_threads=False):
                rows = pa.Table.from_batches([batch])
                rows = pa.table([_column(rows, field, piece.partition) for field in wanted], names=wanted.names)
                yield from (rows if holds else rows.filter(pq.filters_to_expression(reading.where))).to_batches()


def write_files(
    folder: Location, partition: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows as Parquet files, one for each value of the partition column, and say which: `WRITTEN`.

    Args:
        folder: Where to; it is there.
        partition: A column of texts, which is not in the files but in the names of their folders; empty: none.
        schema: Columns and types of the rows.
        batches: The rows, with these columns in any order.
    """
    name = f"part-{uuid4().hex}.parquet"
    # Lists of words pay where words repeat. Most numbers do not: looking for it took longer than writing them.
    texts = [word for field in schema if field.name != partition for word in _texts_in(field)]
    schema = pa.schema([field.with_type(_TEXT) if pa.types.is_string(field.type) else field for field in schema])
    paths: dict[str, Location] = {}
    writers: dict[str, pq.ParquetWriter] = {}
    rows: Counter[str] = Counter()
    with ExitStack() as open_files:
        tables = (pa.Table.from_batches([batch]).select(schema.names).cast(schema) for batch in batches)
        for value, part in (parts for table in tables for parts in _parts(table, partition)):
            if value not in writers:
                inside = folder / f"{partition}={quote(value, safe='')}" if partition else folder
                storage.make_folder(inside)
                paths[value] = inside / name
                writers[value] = open_files.enter_context(
                    storage.parquet_writer(
                        paths[value], part.schema, compression="zstd", use_dictionary=texts, store_schema=False
                    )
                )
            writers[value].write_table(part)
            rows[value] += part.num_rows
    written = [{"path": str(path), "rows": rows[value], "partition": value} for value, path in paths.items()]
    yield pa.RecordBatch.from_pylist(written, schema=_WRITTEN)


def file_bounds(path: Location, names: Collection[str]) -> dict[str, tuple[Any, Any]]:
    """Lowest and highest value in a file of each of these columns, where the file says it. Raises OSError."""
    metadata = storage.parquet_metadata(path)
    places = {name: place for place, name in enumerate(metadata.schema.names) if name in names}
    found: dict[str, tuple[Any, Any]] = {}
    for name, place in places.items():
        known = [metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)]
        if any(one is None or (not one.has_min_max and one.num_values) for one in known):
            continue
        ends = [(one.min, one.max) for one in known if one.has_min_max]
        if ends:
            found[name] = min(low for low, _ in ends), max(high for _, high in ends)
    return found


def _texts_in(field: pa.Field) -> list[str]:
    """Texts in a column, by their paths in the file."""
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.key"] if pa.types.is_string(field.type.key_type) else []
    return [field.name] if pa.types.is_string(field.type) else []


def _is_in(piece: FilePiece, file: pq.ParquetFile, number: int) -> bool:
    first = file.metadata.row_group(number).column(0)
    begin = first.data_page_offset
    if first.has_dictionary_page:
        begin = min(begin, first.dictionary_page_offset)
    return bool(piece.begin <= begin < piece.end)


def _ranges(file: pq.ParquetFile, number: int) -> dict[str, tuple[Any, Any]]:
    """Between which values the columns of a row group are, as far as the file says it."""
    group = file.metadata.row_group(number)
    found = {}
    for place in range(group.num_columns):
        column = group.column(place)
        known = column.statistics
        # Where a condition is asked, null is not yes: a column with nulls proves nothing.
        if known is not None and known.has_min_max and known.null_count == 0:
            found[column.path_in_schema] = known.min, known.max
    return found


def _column(rows: pa.Table, field: pa.Field, partition: Mapping[str, str]) -> pa.ChunkedArray:
    type_ = _TEXT if pa.types.is_string(field.type) else field.type
    if field.name in partition or field.name not in rows.column_names:
        value = pa.array([partition.get(field.name)], field.type)
        return pa.chunked_array([value.take(pa.array(np.zeros(rows.num_rows, np.int32))).cast(type_)])
    return rows.column(field.name).cast(type_)


def _parts(rows: pa.Table, partition: str) -> Collection[tuple[str, pa.Table]]:
    if not rows.num_rows:
        return []
    if not partition:
        return [("", rows)]
    found, places = words(column(rows, partition))
    content = rows.drop_columns([partition])
    order, starts = runs(places)
    if len(starts) == 1:
        return [(found[places[0]] or "", content)]
    content = content.take(pa.array(order))
    return [
        (found[places[order[start]]] or "", content.slice(start, length))
        for start, length in zip(starts.tolist(), lengths_of(starts, len(order)).tolist(), strict=True)
    ]
