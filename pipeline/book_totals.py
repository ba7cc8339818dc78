"""Level one of reconciliation in a worker: records of books added up per domain pair and 5 minutes. No Spark in here.

As with hours (`pipeline.hours`), a worker adds up what it reads, and parts that have met are added up once more. A row
is one side's total of one bucket, `schemas.BOOK_TOTAL` with `is_out`, until both sides are put beside each other.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.groups import (
    Numbers,
    column,
    from_zero,
    group_numbers,
    lengths_of,
    numbers,
    starts_of,
    sums,
    sums_modulo,
    words,
    xors,
)

BUCKET_US: Final = 300_000_000
KEY: Final = ("src_domain", "dst_domain", "bucket_us")
COUNTED: Final = ("messages", "bytes", "set_xor", "set_sum")
"""What is held against each other."""


def totals_of(entries: pa.Table) -> pa.Table:
    """Records added up; at most one row for each side and bucket.

    Args:
        entries: `src_domain`, `dst_domain`, `bucket_us`, `is_out`, and of each record `is_delivered`, `size`, `member`,
            the hash that stands for it in folds, and `lag_us`; none is null.
    """
    order, starts, key = _groups(entries)
    lag_us = numbers(entries, "lag_us")[order]
    is_delivered = np.asarray(column(entries, "is_delivered"))[order].astype(np.int64)
    member = numbers(entries, "member")[order]
    return pa.table(
        {
            **key,
            "messages": lengths_of(starts, len(order)),
            "delivered": sums(is_delivered, starts),
            "bytes": sums(numbers(entries, "size")[order], starts),
            "set_xor": xors(member, starts),
            "set_sum": sums_modulo(member, starts),
            **_bounds(lag_us, lag_us, starts),
        }
    )


def whole_totals(parts: pa.Table) -> pa.Table:
    """Parts of totals added up to whole ones, ascending by key, the in-book before the out-book."""
    order, starts, key = _groups(parts)
    return pa.table(
        {
            **key,
            **{name: sums(numbers(parts, name)[order], starts) for name in ("messages", "delivered", "bytes")},
            "set_xor": xors(numbers(parts, "set_xor")[order], starts),
            "set_sum": sums_modulo(numbers(parts, "set_sum")[order], starts),
            **_bounds(numbers(parts, "lag_min_us")[order], numbers(parts, "lag_max_us")[order], starts),
        }
    )


def side_by_side(totals: pa.Table) -> pa.Table:
    """Whole totals, both sides of a bucket in one row: `out_…`, `in_…`, `in_delivered` and the lags of the in-book.

    Where a side has nothing its sums are 0, and lags are null where the in-book has nothing.
    """
    is_out = np.asarray(column(totals, "is_out"))
    bucket = group_numbers(_key(totals))[0]
    starts = starts_of(bucket)
    index = np.repeat(np.arange(len(starts)), lengths_of(starts, len(bucket)))

    def side(name: str, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Numbers:
        found = np.zeros(len(starts), np.int64)
        found[index[chosen]] = numbers(totals, name)[chosen]
        return found

    rows = pa.array(starts)
    is_missing = side("messages", ~is_out) == 0
    return pa.table(
        {
            **{name: column(totals, name).take(rows) for name in KEY},
            **{f"out_{name}": side(name, is_out) for name in COUNTED},
            **{f"in_{name}": side(name, ~is_out) for name in COUNTED},
            "in_delivered": side("delivered", ~is_out),
            **{name: pa.array(side(name, ~is_out), mask=is_missing) for name in ("lag_min_us", "lag_max_us")},
        }
    )


def _key(rows: pa.Table) -> list[tuple[Numbers, int]]:
    texts = (words(column(rows, name)) for name in ("src_domain", "dst_domain"))
    bucket_us = numbers(rows, "bucket_us")
    first_us = int(bucket_us.min()) if len(bucket_us) else 0
    return [*((places, len(found)) for found, places in texts), from_zero((bucket_us - first_us) // BUCKET_US)]


def _groups(rows: pa.Table) -> tuple[Numbers, Numbers, dict[str, pa.Array]]:
    """The order that brings rows of a side and bucket together, where each of these begins, and its key."""
    is_out = np.asarray(column(rows, "is_out")).astype(np.int64)
    group = group_numbers([*_key(rows), (is_out, 2)])[0]
    order = np.argsort(group, kind="stable")
    starts = starts_of(group[order])
    one = pa.array(order[starts])
    return order, starts, {name: column(rows, name).take(one) for name in (*KEY, "is_out")}


def _bounds(lowest: Numbers, highest: Numbers, starts: Numbers) -> dict[str, Numbers]:
    if not len(starts):
        return {"lag_min_us": lowest, "lag_max_us": highest}
    return {"lag_min_us": np.minimum.reduceat(lowest, starts), "lag_max_us": np.maximum.reduceat(highest, starts)}
