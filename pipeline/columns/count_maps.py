"""Columns of maps with counts, by word or by bucket, as long columns of entries: added up in numpy, inside a worker.

An entry has the number of its row, what is counted, and how often. Entries of equal row and word are added up, and what
comes out is ascending, so equal inputs give equal maps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.columns.groups import Numbers, runs, sums, words
from pipeline.columns.histogram import HIGHEST, middle_of, rank
from protofly.log_linear import NEGATIVE

BUCKETS: Final = HIGHEST - NEGATIVE + 2
"""How many buckets there are, and one, the last, for what is not known."""
_MIDDLES: Final = np.array([middle_of(bucket) for bucket in range(NEGATIVE, HIGHEST + 1)], np.int64)


def texts_of(found: list[str | None], places: Numbers) -> pa.Array:
    """Words at these places as a column; the inverse of `groups.words`."""
    return pa.array(found, pa.string()).take(pa.array(places))


def word_entries(index: Numbers, maps: pa.MapArray) -> tuple[Numbers, list[str | None], Numbers, Numbers]:
    """The entries of maps by word, one after the other: row, words, place in these, count.

    Args:
        index: The number of the row that each map is to count for.
        maps: A map for each.
    """
    row, keys, counts = _entries(index, maps)
    found, place = words(keys)
    return row, found, place, counts


def bucket_entries(index: Numbers, maps: pa.MapArray) -> tuple[Numbers, Numbers, Numbers]:
    """The same of histograms: row, bucket counted from 0, count."""
    row, keys, counts = _entries(index, maps)
    return row, np.asarray(keys).astype(np.int64) - NEGATIVE, counts


def word_counts(row: Numbers, found: list[str | None], place: Numbers, counts: Numbers, *, rows: int) -> pa.MapArray:
    """A map by word for each of `rows` rows, out of such entries."""
    of_row, places, added = added_up(row, place, len(found), counts)
    return _maps(of_row, texts_of(found, places), added, rows=rows)


def bucket_counts(row: Numbers, bucket: Numbers, counts: Numbers, *, rows: int) -> pa.MapArray:
    """A histogram for each of `rows` rows, out of such entries."""
    of_row, buckets, added = added_up(row, bucket, BUCKETS, counts)
    return _maps(of_row, pa.array((buckets + NEGATIVE).astype(np.int32)), added, rows=rows)


def added_up(row: Numbers, place: Numbers, places: int, counts: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Counts of the same row and place added up, ascending by both."""
    number = row * places + place
    order, starts = runs(number)
    different = number[order[starts]]
    return different // places, different % places, sums(counts[order], starts)


def quantiles(histograms: pa.MapArray, per_mille: int) -> pa.Array:
    """`histogram.quantile` of each; null for an empty one. Histograms are ascending, as `bucket_counts` gives them."""
    row, bucket, counts = bucket_entries(np.arange(len(histograms)), histograms)
    totals = np.zeros(len(histograms), np.int64)
    np.add.at(totals, row, counts)
    wanted = [rank(total, per_mille) for total in totals.tolist()]
    before = np.cumsum(totals) - totals
    place = np.searchsorted(np.cumsum(counts), before + np.array(wanted, np.int64))
    is_empty = totals == 0
    found = _MIDDLES[bucket[np.where(is_empty, 0, place)]] if len(bucket) else np.zeros(len(totals), np.int64)
    return pa.array(found, mask=is_empty)


def _entries(index: Numbers, maps: pa.MapArray) -> tuple[Numbers, pa.Array, Numbers]:
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    row = np.repeat(index, np.diff(np.asarray(maps.offsets)))
    return row, maps.keys[first:last], np.asarray(maps.items[first:last])


def _maps(of_row: Numbers, keys: pa.Array, counts: Numbers, *, rows: int) -> pa.MapArray:
    offsets = np.searchsorted(of_row, np.arange(rows + 1)).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, pa.array(counts))
