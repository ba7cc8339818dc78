"""Rows with equal keys, added up: whole columns at a time, in numpy, inside a Spark worker.

A group is a run of equal numbers once the rows are sorted by them, so every sum is one `reduceat`. Only whole numbers
are added, so results are exact and do not depend on the order in which rows came.

Folds are two numbers that stand for a whole set of messages. Each member is hashed to 64 bits; the set has the
exclusive or of all hashes, and their sum modulo 2⁶⁴. Equal sets have equal folds. Different sets almost never do by
accident, but the hash is no secret: somebody who wants two sets to fold alike can make them. Against that there are
signed manifests and, in final statements, SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

MASK: Final = (1 << 64) - 1
RECORDS_AT_ONCE: Final = 1 << 19
"""What a worker adds up before it passes sums on: some 100 MB of records."""
_MOST_CODES: Final = 1 << 62
_MOST_SUM: Final = 9.2e18
"""A little below 2⁶³, so that rounding in the check cannot hide an overflow."""


def codes(column: pa.Array) -> tuple[list[str | None], Numbers]:
    """The different values of a text column, null last, and for each row the place of its value."""
    encoded = column.dictionary_encode()
    indices = encoded.indices
    found = [*encoded.dictionary.to_pylist(), None]
    if indices.null_count:
        indices = indices.fill_null(len(found) - 1)
    return found, np.asarray(indices).astype(np.int64, copy=False)


def words(column: pa.Array) -> tuple[list[str | None], Numbers]:
    """The same with the values ascending."""
    with_null, places = codes(column)
    found = cast("list[str]", with_null[:-1])
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(found) + 1, np.int64)
    rank[order] = np.arange(len(found))
    rank[-1] = len(found)
    return [*(found[place] for place in order), None], rank[places]


def is_word(column: pa.Array, word: str) -> NDArray[np.bool_]:
    """Mask of the rows of a text column that equal this word; null never does."""
    found, places = codes(column)
    return np.array([one == word for one in found], bool)[places]


def group_numbers(keys: Iterable[tuple[Numbers, int]]) -> tuple[Numbers, int]:
    """One number for each row out of several key columns: equal where all are equal, ascending as they are.

    Args:
        keys: For each column its numbers, from 0, and how many different ones there may be.

    Returns:
        The numbers, and how many different ones there may be.
    """
    numbers, count = np.zeros(1, np.int64), 1
    for column, many in keys:
        if count * many > _MOST_CODES:
            numbers, count = dense(numbers)
        if count * many > _MOST_CODES:
            column, many = dense(column)
        numbers, count = numbers * many + column, count * many
    return numbers, count


def dense(numbers: Numbers) -> tuple[Numbers, int]:
    """Ranks of the numbers, from 0 and without gaps, and how many different ones there are."""
    order, starts = runs(numbers)
    return run_of_rows(order, starts), len(starts)


def from_zero(numbers: Numbers) -> tuple[Numbers, int]:
    """The same numbers less the lowest, and how many there may be; for `group_numbers`."""
    if not len(numbers):
        return numbers, 1
    low, high = int(numbers.min()), int(numbers.max())
    return (numbers - low, high - low + 1) if high - low < 1 << 40 else dense(numbers)


class Rows:
    """Rows of a table by text columns, to be found for many others at once.

    Args:
        columns: The key: of equal ones the last row is found.

    Raises:
        OverflowError: So many different words that keys made of them have no number of 64 bits.
    """

    def __init__(self, *columns: pa.Array) -> None:
        self._places: list[dict[str | None, int]] = []
        number = np.zeros(len(columns[0]), np.int64)
        for values in columns:
            found, code = codes(values)
            self._places.append({word: place for place, word in enumerate(found)})
            number = number * len(found) + code
        if prod(len(places) for places in self._places) > _MOST_CODES:
            raise OverflowError("the words of a key are too many")
        self._order, self._numbers = in_order(number)

    def find(self, *columns: pa.Array) -> Numbers:
        """For each row of these columns the row with that key; -1 for none."""
        number = np.zeros(len(columns[0]), np.int64)
        is_known = np.ones(len(columns[0]), bool)
        for values, places in zip(columns, self._places, strict=True):
            found, code = codes(values)
            place = np.array([places.get(word, -1) for word in found], np.int64)[code]
            is_known &= place >= 0
            number = number * len(places) + place
        at = np.searchsorted(self._numbers, number, side="right") - 1  # -1 finds what is put at the end
        is_known &= np.append(self._numbers, -1)[at] == number
        return np.where(is_known, np.append(self._order, -1)[at], -1)


def in_order(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The order that brings rows into ascending order of their numbers, equal ones as they come; and the numbers in it.

    Where a number and its place fit into 64 bits both are sorted as one, which takes an eighth of a stable `argsort`.
    """
    bits = (len(numbers) - 1).bit_length()
    largest = 1 << (63 - bits)
    if not len(numbers) or int(numbers.max()) >= largest or int(numbers.min()) < -largest:
        order = np.argsort(numbers, kind="stable")
        return order, numbers[order]
    both = numbers << bits
    both |= np.arange(len(numbers))
    both.sort()
    return both & ((1 << bits) - 1), both >> bits


def runs(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The same order, and where in it each run of equal numbers begins."""
    order, ascending = in_order(numbers)
    return order, starts_of(ascending)


def run_of_rows(order: Numbers, starts: Numbers) -> Numbers:
    """The number of the run that each row is in, of what `runs` has found."""
    found = np.empty(len(order), np.int64)
    found[order] = np.repeat(np.arange(len(starts)), lengths_of(starts, len(order)))
    return found


def starts_of(ascending: Numbers) -> Numbers:
    """Indexes at which runs of equal numbers begin."""
    is_start = np.empty(len(ascending), bool)
    is_start[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=is_start[1:])
    return np.flatnonzero(is_start)


def lengths_of(starts: Numbers, rows: int) -> Numbers:
    """Lengths of the runs that begin at these indexes, in a column of so many rows."""
    return np.diff(np.append(starts, rows))


def sums(values: Numbers, starts: Numbers) -> Numbers:
    """Sums of the runs that begin there.

    Raises:
        OverflowError: One of them is beyond 64 bits.
    """
    if not len(starts):
        return np.zeros(0, np.int64)
    largest = max(int(values.max()), -int(values.min()))
    if largest > int(_MOST_SUM) // len(values) and (
        np.abs(np.add.reduceat(values.astype(np.float64), starts)).max() > _MOST_SUM
    ):
        raise OverflowError("the sum of a column is beyond 64 bits")
    return sums_modulo(values, starts)


def sums_modulo(values: Numbers, starts: Numbers) -> Numbers:
    """Sums of the runs modulo 2⁶⁴, as signed numbers of 64 bits; one of two folds."""
    # What is up to the end of a run less what is before it: where runs are short, half the work of `reduceat`.
    until = np.cumsum(values.view(np.uint64))[_ends(starts, len(values))]
    until[1:] -= until[:-1].copy()
    return until.view(np.int64)


def xors(values: Numbers, starts: Numbers) -> Numbers:
    """The exclusive or of each run; the other fold."""
    until = np.bitwise_xor.accumulate(values)[_ends(starts, len(values))]
    until[1:] ^= until[:-1].copy()
    return until


def _ends(starts: Numbers, rows: int) -> Numbers:
    """Places of the last rows of the runs that begin there; no run is empty."""
    return np.append(starts[1:], rows)[: len(starts)] - 1


def column(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """A column in one piece."""
    found = table.column(name)
    if not isinstance(found, pa.ChunkedArray):
        return found
    if found.num_chunks == 1:
        return found.chunk(0)
    return found.combine_chunks()


def numbers(table: pa.Table | pa.RecordBatch, name: str, *, null: int | None = None) -> Numbers:
    """A column of whole numbers; without nulls, unless it is said what they count for."""
    values = column(table, name)
    if null is not None and values.null_count:
        values = values.fill_null(null)
    found: Numbers = values.to_numpy().astype(np.int64, copy=False)
    return found


def in_pieces(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Batches put together to tables of about so many rows; what a worker holds is bounded by them."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)
