"""Rows become Parquet files of a table, in folders by day, as a stage wants them. No Spark in here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import chain
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.columns.words import as_texts
from pipeline.lake import storage
from pipeline.lake.store_path import Location
from pipeline.schemas.columns import INDEXED
from pipeline.segments.rows import DAY, DAY_US

GROUP_ROWS: Final = 1 << 17
GROUP_BYTES: Final = 64 << 20
"""Rows are held back until they are so many or so much, to be written together."""
_OPEN_MAX: Final = 8
_EPOCH: Final = date(1970, 1, 1).toordinal()
_ALL_DIFFERENT: Final = frozenset({"msg_id", "digest", "seq", "ts_us", "line", "d_peer_us", "d_total_us"})
"""Of columns in which nearly no value comes twice a dictionary is made for nothing."""
_ASCENDING: Final = ("seq", "ts_us")
_RANDOM: Final = ("msg_id", "digest")
"""Compressing these takes longer than anything else, at both ends, and saves next to nothing."""
_SOUGHT: Final = INDEXED | {"msg_id"}
"""By the bounds of these columns readers leave out rows; those of others would be found out for nobody."""


class PartFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written: where, how many rows, of which day."""

    path: str
    rows: int
    day: str


class PartFiles:
    """Writes rows of one table below a folder; a context, at whose end the files are whole.

    Args:
        folder: Gets a folder for each day.
        schema: Columns of the files. Rows may have texts with a dictionary, too.
    """

    def __init__(self, folder: Location, schema: pa.Schema) -> None:
        self.written: list[PartFile] = []
        self._folder = folder
        self._schema = schema
        self._waiting: dict[str, list[pa.Table]] = {}
        self._waiting_rows = self._waiting_bytes = 0
        self._open: dict[str, _Part] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
            for day in list(self._open):
                self._close(day)
            return
        for part in self._open.values():
            with suppress(OSError):
                part.writer.close()

    def add(self, rows: pa.Table, day: str | None = None) -> None:
        """Add rows to a day; None goes by their `ts_us`, which is from 1970 on."""
        if not rows.num_rows:
            return
        for of_day, part in _by_day(rows).items() if day is None else [(day, rows)]:
            self._waiting.setdefault(of_day, []).append(part)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        for day, parts in self._waiting.items():
            rows = _together(parts)
            part = self._part(day, rows.schema)
            part.writer.write_table(rows, row_group_size=rows.num_rows)
            part.rows += rows.num_rows
        self._waiting.clear()
        self._waiting_rows = self._waiting_bytes = 0

    def _part(self, day: str, schema: pa.Schema) -> _Part:
        """The open file of a day. Whether texts have a dictionary cannot change within one."""
        part = self._open.get(day)
        if part is not None and part.writer.schema != schema:
            self._close(day)
            part = None
        if part is None:
            if len(self._open) >= _OPEN_MAX:
                self._close(next(iter(self._open)))
            if _stored(schema) != self._schema:
                raise TypeError(f"these are no rows of the table: {schema}")
            folder = self._folder / f"{DAY}={day}"
            storage.make_folder(folder)
            path = folder / f"part-{uuid4().hex}.parquet"  # a task that is repeated must not meet what it has left
            part = self._open[day] = _Part(path, schema)
        return part

    def _close(self, day: str) -> None:
        part = self._open.pop(day)
        part.writer.close()
        self.written.append(PartFile(path=str(part.path), rows=part.rows, day=day))


def record_writer(path: Location, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of files of records, with what is known about their columns. Spark, DuckDB and pyarrow read them."""
    names = schema.names
    random = [name for name in _RANDOM if name in names and pa.types.is_binary(schema.field(name).type)]
    encoding = {name: "DELTA_BINARY_PACKED" for name in _ASCENDING if name in names}
    return storage.parquet_writer(
        path,
        schema,
        compression={name: "none" if name in random else "zstd" for name in _leaves(schema)},
        use_dictionary=[name for name in names if name not in _ALL_DIFFERENT],
        column_encoding=encoding | dict.fromkeys(random, "DELTA_LENGTH_BYTE_ARRAY"),
        write_statistics=[name for name in names if name in _SOUGHT],
        store_schema=False,
    )


def _leaves(schema: pa.Schema) -> Iterator[str]:
    """Columns as Parquet names them: those of lists by their elements."""
    for field in schema:
        path, type_ = field.name, field.type
        while pa.types.is_list(type_):
            path, type_ = f"{path}.list.element", type_.value_type
        yield path


class _Part:
    def __init__(self, path: Location, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self.writer = record_writer(path, schema)


def _stored(schema: pa.Schema) -> pa.Schema:
    """As it is read again: texts are texts."""
    return pa.schema(
        [field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema]
    )


def _together(parts: Sequence[pa.Table]) -> pa.Table:
    """One table; a column of texts has a dictionary when it has one in all parts."""
    columns = {}
    for name in parts[0].schema.names:
        chunks = list(chain.from_iterable(part.column(name).chunks for part in parts))
        has_words = [pa.types.is_dictionary(chunk.type) for chunk in chunks]
        column = pa.chunked_array(chunks if all(has_words) else [as_texts(chunk) for chunk in chunks])
        columns[name] = column.unify_dictionaries() if all(has_words) else column
    return pa.table(columns)


def _by_day(rows: pa.Table) -> Mapping[str, pa.Table]:
    days = np.asarray(rows["ts_us"]) // DAY_US
    if days.min() == days.max():
        return {_name(days[0]): rows}
    order = np.argsort(days, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    found, starts, counts = np.unique(days[order], return_index=True, return_counts=True)
    return {
        _name(day): sorted_rows.slice(start, count) for day, start, count in zip(found, starts, counts, strict=True)
    }


def _name(day: np.int64) -> str:
    return date.fromordinal(_EPOCH + int(day)).isoformat()
