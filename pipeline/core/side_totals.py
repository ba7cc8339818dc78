"""Level one of reconciliation in a worker: records of both sides added up per domain pair and 5 minutes.

As with hours (`core.hours`), a worker adds up what it reads, and parts that have met are added up once more. A row
is one side's total of one bucket, `schemas.SIDE_TOTAL` with `is_out`, until both sides are put beside each other.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.core.clock_tables import ClockTables
from pipeline.core.groups import (
    Numbers,
    codes,
    column,
    from_zero,
    group_numbers,
    is_word,
    lengths_of,
    numbers,
    runs,
    starts_of,
    sums,
    sums_modulo,
    words,
    xors,
)
from pipeline.core.hashing import xxhash64
from pipeline.core.hours import days_of
from pipeline.core.packed import places_of
from pipeline.core.side_records import BUCKET_US, DAY_US, DELIVERED, are_compared

PAIR: Final = ("src_domain", "dst_domain")
KEY: Final = (*PAIR, "bucket_us")
COUNTED: Final = ("messages", "bytes", "set_xor", "set_sum")
"""What is held against each other."""
BUCKET_COUNTS: Final = (*PAIR, "dt", "out_messages", "in_messages", "in_delivered", "is_equal")
"""Columns of `recon_bucket` that are counted."""


def totals_of(entries: pa.Table) -> pa.Table:
    """Claims and answers added up; at most one row for each side and bucket.

    The folds are over `xxhash64(msg_id, digest, size)`, which is everything that is compared and not a clock.

    Args:
        entries: From `side_records.entries_of`, or columns of `schemas.SIDE_RECORD` with `is_out`.
    """
    chosen = np.flatnonzero(are_compared(entries))
    sent_us = numbers(entries, "sent_us")
    order, starts, key = _groups(entries, sent_us // BUCKET_US, chosen)
    lag_us = (numbers(entries, "ts_us") - sent_us)[order]
    is_delivered = is_word(column(entries, "outcome"), DELIVERED)[order].astype(np.int64)
    member = xxhash64(*(column(entries, name) for name in ("msg_id", "digest", "size")))[order]
    return pa.table(
        {
            **key,
            "messages": lengths_of(starts, len(order)),
            "delivered": sums(is_delivered, starts),
            "bytes": sums(numbers(entries, "size", null=0)[order], starts),
            "set_xor": xors(member, starts),
            "set_sum": sums_modulo(member, starts),
            **_bounds(lag_us, lag_us, starts),
        }
    )


def places_of_totals(totals: pa.Table, places: int) -> Numbers:
    """Where totals, or parts of them, are added up: each at one of so many places of its day."""
    return places_of(totals, KEY, numbers(totals, "bucket_us") // DAY_US, places)


def whole_totals(parts: pa.Table) -> pa.Table:
    """Parts of totals added up to whole ones, ascending by key, the receiver before the sender."""
    order, starts, key = _groups(parts, numbers(parts, "bucket_us") // BUCKET_US)
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
    """Whole totals, both sides of a bucket in one row: `out_…`, `in_…`, `in_delivered` and the lags of the receiver.

    Where a side has nothing its sums are 0, and lags are null where the receiver has nothing.
    """
    is_out = np.asarray(column(totals, "is_out"))
    bucket = group_numbers(_key(totals, numbers(totals, "bucket_us") // BUCKET_US))[0]
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


def compare(sides: pa.Table, clocks: ClockTables, *, skew_us: int) -> pa.Table:
    """Which totals are the same; rows of `recon_bucket`.

    A bucket also counts as different when a message in it took `skew_us` longer, or less, than is usual: otherwise a
    clock that jumps would go unseen where the sides agree.

    Args:
        sides: From `side_by_side`.
        clocks: What is usual.
        skew_us: How much more or less is not.
    """
    is_equal = np.ones(sides.num_rows, bool)
    for name in COUNTED:
        is_equal &= numbers(sides, f"out_{name}", null=0) == numbers(sides, f"in_{name}", null=0)
    days = days_of(numbers(sides, "bucket_us"))
    usual = clocks.usual(column(sides, "src_domain"), column(sides, "dst_domain"), days)
    lag_min_us, lag_max_us = (numbers(sides, name, null=0) for name in ("lag_min_us", "lag_max_us"))
    low_us = np.where(usual.is_known, usual.usual_us, lag_min_us)
    allowed_us = usual.doubt_us + skew_us
    is_equal &= (lag_max_us - low_us <= allowed_us) & (low_us - lag_min_us <= allowed_us)
    is_equal &= np.asarray(column(sides, "lag_min_us").is_valid())
    short = {f"{side}_set_{fold}": f"{side}_{fold}" for side in ("out", "in") for fold in ("xor", "sum")}
    names = [short.get(name, name) for name in sides.column_names]
    return sides.rename_columns(names).append_column("is_equal", pa.array(is_equal)).append_column("dt", days)


def equal_counts(buckets: pa.Table) -> pa.Table:
    """What equal totals say, added up per pair and day: its keys, `sent`, `received`, `matched`, `refused`.

    Args:
        buckets: Rows of `recon_bucket`, the columns `BUCKET_COUNTS`.
    """
    keys = [codes(column(buckets, name)) for name in ("src_domain", "dst_domain", "dt")]
    group, _ = group_numbers((places, len(found)) for found, places in keys)
    order, starts = runs(group)
    one = pa.array(order[starts])
    is_equal = np.asarray(column(buckets, "is_equal"))[order]

    def added(values: Numbers) -> Numbers:
        return sums(np.where(is_equal, values[order], 0), starts)

    out, got = numbers(buckets, "out_messages"), numbers(buckets, "in_messages")
    return pa.table(
        {
            **{name: column(buckets, name).take(one) for name in ("src_domain", "dst_domain", "dt")},
            "sent": added(out),
            "received": added(got),
            "matched": added(out),
            "refused": added(got - numbers(buckets, "in_delivered")),
        }
    )


def _key(rows: pa.Table, bucket: Numbers) -> list[tuple[Numbers, int]]:
    texts = (words(column(rows, name)) for name in PAIR)
    return [*((places, len(found)) for found, places in texts), from_zero(bucket)]


def _groups(
    rows: pa.Table, bucket: Numbers, chosen: Numbers | None = None
) -> tuple[Numbers, Numbers, dict[str, pa.Array]]:
    """The order that brings rows of a side and bucket together, where each of these begins, and its key.

    Args:
        rows: Entries, or totals.
        bucket: Number of the 5 minutes that each is of.
        chosen: Which rows are meant; None: all.
    """
    is_out = np.asarray(column(rows, "is_out"))
    group, _ = group_numbers([*_key(rows, bucket), (is_out.astype(np.int64), 2)])
    order, starts = runs(group if chosen is None else group[chosen])
    order = order if chosen is None else chosen[order]
    one = order[starts]
    texts = {name: column(rows, name).take(pa.array(one)) for name in PAIR}
    return order, starts, {**texts, "bucket_us": pa.array(bucket[one] * BUCKET_US), "is_out": pa.array(is_out[one])}


def _bounds(lowest: Numbers, highest: Numbers, starts: Numbers) -> dict[str, Numbers]:
    return {"lag_min_us": np.minimum.reduceat(lowest, starts), "lag_max_us": np.maximum.reduceat(highest, starts)}
