"""Partial sums on their way between workers: whole tables in a few rows of bytes, which Spark passes on as they are.

A sum is at home in one place, which its key says: a number out of the day and a hash. A worker sorts what it has added
up by place and packs the rows of each place into one piece. Spark brings the pieces of a place together, and the task
that gets them sees everything about its sums and nothing of others.

How many places there are is said beforehand, by how many records there are: so that what meets in one is bounded, and
so is what a worker holds, however the keys are distributed. Where keys are many, hashes are even; where they are few,
there is at most one partial sum of each in a piece of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.columns.groups import Numbers, codes, column, in_order, lengths_of, starts_of
from pipeline.columns.hashing import xxhash64

PLACE: Final = "place"
PIECE: Final = "piece"
RECORDS_IN_PLACE: Final = 1 << 18
"""About how many records of a day add up to what meets in one place."""
_MOST_PLACES: Final = 1 << 20
_WRITING: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def places_for(records: int) -> int:
    """Compute the number of places for a day with so many records; from 2 to `_MOST_PLACES`."""
    return min(_MOST_PLACES, max(2, -(-records // RECORDS_IN_PLACE)))


def places_of(table: pa.Table, key: Sequence[str], day: Numbers, places: int) -> Numbers:
    """Assign each row to one of the `places` of its day; rows of a day with equal keys get equal places.

    Args:
        table: The rows.
        key: Columns of texts, bytes or whole numbers.
        day: Number of the day of each row, from 1970-01-01.
        places: How many for each day.
    """
    hashes = hashes_of(table, key)
    return day * _MOST_PLACES + (hashes.view(np.uint64) % np.uint64(places)).astype(np.int64)


def hashes_of(table: pa.Table, key: Sequence[str]) -> Numbers:
    """A hash of each row's key: columns of texts, bytes or whole numbers."""
    return xxhash64(*(_as_numbers(column(table, name)) for name in key))


def packed(table: pa.Table, place: Numbers) -> pa.RecordBatch:
    """The rows of each place as one piece: columns `place` and `piece`."""
    order, ascending = in_order(place)
    starts = starts_of(ascending)
    rows = _with_short_lists(table.combine_chunks(), len(starts)).take(pa.array(order)).combine_chunks()
    pieces = [
        _to_bytes(rows.slice(start, length))
        for start, length in zip(starts.tolist(), lengths_of(starts, len(order)).tolist(), strict=True)
    ]
    return pa.record_batch({PLACE: pa.array(ascending[starts]), PIECE: pa.array(pieces, pa.binary())})


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The tables that were packed, one for each piece."""
    for batch in batches:
        for piece in batch.column(PIECE):
            yield _with_lists(pa.ipc.open_stream(piece.as_buffer()).read_all())


def together(batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None) -> pa.Table:
    """All that was packed as one table, each column in one piece.

    Args:
        batches: Pieces; at least one, if there is no schema.
        schema: Columns that there are, null where a piece does not have them; None: those that all pieces have.
    """
    nothing = [] if schema is None else [_with_lists(schema.empty_table())]
    return in_one([*nothing, *unpacked(batches)])


def in_one(tables: Iterable[pa.Table]) -> pa.Table:
    """Unpacked tables as one, each column in one piece, null where a table does not have it."""
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()


def _with_short_lists(table: pa.Table, pieces: int) -> pa.Table:
    """Texts as numbers in a list of words only where the list is short: every piece has it."""
    fields = [
        field.with_type(field.type.value_type)
        if pa.types.is_dictionary(field.type) and len(column(table, field.name).dictionary) * pieces > table.num_rows
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _with_lists(table: pa.Table) -> pa.Table:
    """All texts as numbers in a list of words: pieces of different functions may meet, and words are looked up."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(place, field.name, table.column(place).dictionary_encode())
    return table


def _to_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_WRITING) as writer:
        writer.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _as_numbers(values: pa.Array) -> pa.Array | Numbers:
    if pa.types.is_binary(values.type) or pa.types.is_integer(values.type):
        return values
    found, places = codes(values)
    return xxhash64(pa.array(found, pa.string()).cast(pa.binary()))[places]
