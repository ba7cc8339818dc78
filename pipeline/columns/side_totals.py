"""Level one of reconciliation in a worker: records of both sides added up per domain pair and 5 minutes.

As with hours (`columns.hours`), a worker adds up what it reads, and parts that have met are added up once more.
A row is one side's total of one bucket, `schemas.SIDE_TOTAL` with `is_out`, until both sides are put beside each other.

Sums count records, statements of a pair count messages. Both are the same where every message has one record on either
side, so totals say how many records are beyond that (`repeats`), and such a bucket is left to level two. Finding an id
twice takes all ids of a bucket in one place, so parts of totals carry the hashes of their ids. Those of the sender
suffice: where the folds of both sides are equal, the receiver has the same ones.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.columns.clock_tables import ClockTables
from pipeline.columns.groups import (
    Numbers,
    codes,
    column,
    from_zero,
    group_numbers,
    is_word,
    lengths_of,
    numbers,
    run_of_rows,
    runs,
    starts_of,
    sums,
    sums_modulo,
    words,
    xors,
)
from pipeline.columns.hashing import xxhash64
from pipeline.columns.hours import days_of
from pipeline.columns.packed import places_of
from pipeline.columns.side_records import BUCKET_US, DAY_US, DELIVERED, are_compared

PAIR: Final = ("src_domain", "dst_domain")
KEY: Final = (*PAIR, "bucket_us")
COUNTED: Final = ("messages", "bytes", "set_xor", "set_sum")
"""What is held against each other."""
BUCKET_COUNTS: Final = (*PAIR, "dt", "out_messages", "in_messages", "in_delivered", "undelivered", "is_equal")
"""Columns of `recon_bucket` that are counted."""
_ADDED: Final = ("messages", "delivered", "bytes", "undelivered", "repeats")
_NEVER: Final = np.iinfo(np.int64)


def totals_of(entries: pa.Table) -> pa.Table:
    """Records added up, in parts for `whole_totals`; at most one row for each side and bucket.

    The folds are over `xxhash64(msg_id, digest, size)` of claims and answers, which is everything that is compared and
    not a clock. Lags are those of messages whose id has a time. `ids` are the hashes of the sender's ids, of any
    outcome.

    Args:
        entries: From `side_records.entries_of`, or columns of `schemas.SIDE_RECORD` with `is_out`.
    """
    order, starts, key = _groups(entries)
    is_out = np.asarray(column(entries, "is_out"))[order]
    is_compared = are_compared(entries)[order]
    sent_us = numbers(entries, "sent_us")
    lag_us = (numbers(entries, "ts_us") - sent_us)[order]
    # Of ids without a time few are in the 5 minutes of the record's own.
    is_timed = is_compared & (sent_us - sent_us % BUCKET_US == numbers(entries, "bucket_us"))[order]
    is_delivered = is_word(column(entries, "outcome"), DELIVERED)[order]
    id_hash = xxhash64(column(entries, "msg_id"))
    member = xxhash64(column(entries, "digest"), column(entries, "size"), after=id_hash)[order]
    member = np.where(is_compared, member, 0)
    own = np.flatnonzero(is_out)
    ends = np.append(0, np.cumsum(is_out))[np.append(starts, len(order))]
    ids = id_hash[order[own]]
    return pa.table(
        {
            **key,
            "messages": sums(is_compared.astype(np.int64), starts),
            "delivered": sums((is_compared & is_delivered).astype(np.int64), starts),
            "bytes": sums(np.where(is_compared, numbers(entries, "size", null=0)[order], 0), starts),
            "undelivered": sums((is_out & ~is_compared).astype(np.int64), starts),
            "repeats": sums((~is_out & ~is_compared).astype(np.int64), starts),
            "set_xor": xors(member, starts),
            "set_sum": sums_modulo(member, starts),
            **_bounds(np.where(is_timed, lag_us, _NEVER.max), np.where(is_timed, lag_us, _NEVER.min), starts),
            "ids": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(ids)),
        }
    )


def places_of_totals(totals: pa.Table, places: int) -> Numbers:
    """Partition totals, or parts of them, for adding up: equal keys share one of the `places` of their day."""
    return places_of(totals, KEY, numbers(totals, "bucket_us") // DAY_US, places)


def whole_totals(parts: pa.Table) -> pa.Table:
    """Parts of totals added up to whole ones, ascending by key, the receiver before the sender.

    Lags are null where no id has a time.
    """
    order, starts, key = _groups(parts)
    added = {name: sums(numbers(parts, name)[order], starts) for name in _ADDED}
    added["repeats"] += _repeats(column(parts, "ids"), run_of_rows(order, starts), len(starts))
    lags = _bounds(numbers(parts, "lag_min_us")[order], numbers(parts, "lag_max_us")[order], starts)
    return pa.table(
        {
            **key,
            **added,
            "set_xor": xors(numbers(parts, "set_xor")[order], starts),
            "set_sum": sums_modulo(numbers(parts, "set_sum")[order], starts),
            **{name: pa.array(lag_us, mask=lags["lag_min_us"] == _NEVER.max) for name, lag_us in lags.items()},
        }
    )


def _repeats(ids: pa.ListArray, group: Numbers, groups: int) -> Numbers:
    """How many ids each group has beyond the first of their kind. Different ids may be taken for the same one.

    Group and hash are sorted as one number, so the more groups there are the less is kept of a hash: with 19 bits of
    groups 44 remain, with which one bucket of 6,000 messages in a million is taken for one with repeats. It is then
    judged message by message, which gives the same counts.
    """
    lengths = np.diff(np.asarray(ids.offsets))
    bits = 63 - max(1, (groups - 1).bit_length())
    low = np.asarray(ids.flatten()) & ((1 << bits) - 1)
    numbered = np.repeat(group, lengths) << bits | low
    numbered.sort()
    again = numbered[1:][numbered[1:] == numbered[:-1]] >> bits
    return np.bincount(again, minlength=groups)


def side_by_side(totals: pa.Table) -> pa.Table:
    """Whole totals, both sides of a bucket in one row: `out_…`, `in_…`, `in_delivered` and the lags of the receiver.

    Where a side has nothing its sums are 0, and lags are null where the receiver has none.
    """
    is_out = np.asarray(column(totals, "is_out"))
    bucket = group_numbers(_key(totals, numbers(totals, "bucket_us") // BUCKET_US))[0]
    starts = starts_of(bucket)
    index = np.repeat(np.arange(len(starts)), lengths_of(starts, len(bucket)))

    where = {True: np.flatnonzero(is_out), False: np.flatnonzero(~is_out)}

    def side(name: str, *, of_sender: bool) -> Numbers:
        found = np.zeros(len(starts), np.int64)
        chosen = where[of_sender]
        found[index[chosen]] = numbers(totals, name, null=0)[chosen]
        return found

    rows = pa.array(starts)
    has_lag = np.zeros(len(starts), bool)
    has_lag[index[where[False]]] = np.asarray(column(totals, "lag_min_us").is_valid())[where[False]]
    return pa.table(
        {
            **{name: column(totals, name).take(rows) for name in KEY},
            **{f"out_{name}": side(name, of_sender=True) for name in COUNTED},
            **{f"in_{name}": side(name, of_sender=False) for name in COUNTED},
            "in_delivered": side("delivered", of_sender=False),
            "undelivered": side("undelivered", of_sender=True),
            "repeats": side("repeats", of_sender=True) + side("repeats", of_sender=False),
            **{name: pa.array(side(name, of_sender=False), mask=~has_lag) for name in ("lag_min_us", "lag_max_us")},
        }
    )


def compare(sides: pa.Table, clocks: ClockTables, *, skew_us: int) -> pa.Table:
    """Compare the totals of both sides; returns rows of `recon_bucket`, with `is_equal`.

    A bucket also counts as different when a message in it took `skew_us` longer, or less, than is usual: otherwise a
    clock that jumps would go unseen where the sides agree. And when a message has more than one record on a side.

    Args:
        sides: From `side_by_side`.
        clocks: What is usual.
        skew_us: How much more or less is not.
    """
    is_equal = numbers(sides, "repeats", null=0) == 0
    for name in COUNTED:
        is_equal &= numbers(sides, f"out_{name}", null=0) == numbers(sides, f"in_{name}", null=0)
    days = days_of(numbers(sides, "bucket_us"))
    middle_us = numbers(sides, "bucket_us") + BUCKET_US // 2
    source, target = (column(sides, name) for name in PAIR)
    usual = clocks.usual(source, target, middle_us, spread_us=BUCKET_US // 2)
    lag_min_us, lag_max_us = (numbers(sides, name, null=0) for name in ("lag_min_us", "lag_max_us"))
    low_us = np.where(usual.is_known, usual.usual_us, lag_min_us)
    allowed_us = usual.doubt_us + skew_us
    is_usual = (lag_max_us - low_us <= allowed_us) & (low_us - lag_min_us <= allowed_us)
    is_equal &= is_usual | np.asarray(column(sides, "lag_min_us").is_null())
    short = {f"{side}_set_{fold}": f"{side}_{fold}" for side in ("out", "in") for fold in ("xor", "sum")}
    names = [short.get(name, name) for name in sides.column_names]
    return sides.rename_columns(names).append_column("is_equal", pa.array(is_equal)).append_column("dt", days)


def equal_counts(buckets: pa.Table) -> pa.Table:
    """Add up equal buckets per pair and day: `sent`, `received`, `matched`, `refused`, `undelivered`.

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
            "undelivered": added(numbers(buckets, "undelivered")),
        }
    )


def _key(rows: pa.Table, bucket: Numbers) -> list[tuple[Numbers, int]]:
    texts = (words(column(rows, name)) for name in PAIR)
    return [*((places, len(found)) for found, places in texts), from_zero(bucket)]


def _groups(rows: pa.Table) -> tuple[Numbers, Numbers, dict[str, pa.Array]]:
    """The order that brings rows of a side and bucket together, where each of these begins, and its key.

    Args:
        rows: Entries, or parts of totals.
    """
    is_out = np.asarray(column(rows, "is_out"))
    bucket = numbers(rows, "bucket_us") // BUCKET_US
    group, _ = group_numbers([*_key(rows, bucket), (is_out.astype(np.int64), 2)])
    order, starts = runs(group)
    one = order[starts]
    texts = {name: column(rows, name).take(pa.array(one)) for name in PAIR}
    return order, starts, {**texts, "bucket_us": pa.array(bucket[one] * BUCKET_US), "is_out": pa.array(is_out[one])}


def _bounds(lowest: Numbers, highest: Numbers, starts: Numbers) -> dict[str, Numbers]:
    return {"lag_min_us": np.minimum.reduceat(lowest, starts), "lag_max_us": np.maximum.reduceat(highest, starts)}
