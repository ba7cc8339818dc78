"""Hourly statements added up in a worker: records to hours, and parts of hours to whole ones.

Records reach a worker a few hundred thousand at a time. What it can add up there it does, so that only parts of hours
are shuffled, and these are added up once more, which is all that a statement needs: everything in it is a sum. A part
is as small as it can be: `others` are outcomes without delivered and denied, and `latency` is a number for each bucket.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.count_maps import BUCKETS, added_up, bucket_counts, texts_of, word_counts, word_entries
from pipeline.columns.groups import (
    Numbers,
    column,
    from_zero,
    group_numbers,
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
from pipeline.columns.histogram import buckets_of
from pipeline.columns.packed import places_of
from pipeline.core.business_time import QUARTER_US
from protofly.log_linear import NEGATIVE

DELIVERED: Final = "delivered"
DENIED: Final = "denied"
HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
WORDS: Final = ("our_domain", "src_domain", "dst_domain", "role", "msg_type")
KEY: Final = (*WORDS, "hour_us")
RECORD: Final = (
    *WORDS,
    "outcome",
    "rule_id",
    "ts_us",
    "d_total_us",
    "size_in",
    "size_wire",
    "msg_id",
    "digest",
)
"""Columns of `silver_mdr` that hours are made of."""
_SUMS: Final = ("messages", "delivered", "denied", "failed", "bytes_in", "bytes_wire")
_COUNT_BITS: Final = 53
_ENTRY_BYTES: Final = 8


def hours_of(records: pa.Table, unit_us: int = HOUR_US) -> pa.Table:
    """Records added up by hour; at most one row for each hour of a domain, pair, role and message type.

    Bytes count messages of every outcome. Folds and latencies are those of delivered messages only: what was delivered
    is what two domains owe each other, and the 100 µs of a denial say nothing about how fast messages travel.

    Args:
        records: The columns `RECORD` of `silver_mdr`; texts may be dictionaries.
        unit_us: How long an "hour" is; it divides a day.
    """
    texts = {name: words(column(records, name)) for name in WORDS}
    hour = numbers(records, "ts_us") // unit_us
    keys = [(places, len(found)) for found, places in texts.values()]
    group, _ = group_numbers([*keys, from_zero(hour)])
    outcomes, outcome = words(column(records, "outcome"))
    is_delivered, is_denied = (np.array([one == word for one in outcomes])[outcome] for word in (DELIVERED, DENIED))
    rules, rule = words(column(records, "rule_id").fill_null(""))
    rule = rule * is_denied  # that of others is not looked at

    # Of each hour the records of one outcome, rule and bucket stand together: a part.
    bucket = np.where(is_delivered, _buckets(column(records, "d_total_us")), 0)
    part, _ = group_numbers([from_zero(group), (outcome, len(outcomes)), (rule, len(rules)), (bucket, BUCKETS)])
    order, at = runs(part)
    counts = lengths_of(at, len(order))
    one = order[at]  # a record of each part
    begin = starts_of(group[one])
    rows = one[begin]
    starts = at[begin]
    index = np.repeat(np.arange(len(begin)), lengths_of(begin, len(one)))

    delivered, denied = (sums(np.where(chosen[one], counts, 0), begin) for chosen in (is_delivered, is_denied))
    messages = sums(counts, begin)
    hashes = xxhash64(column(records, "msg_id"), column(records, "digest"))
    member = np.where(is_delivered, hashes, 0)[order]
    is_other = ~is_delivered[one] & ~is_denied[one]
    has_rule, has_time = is_denied[one], is_delivered[one] & (bucket[one] < BUCKETS - 1)
    return _rows(
        key={name: texts_of(found, places[rows]) for name, (found, places) in texts.items()},
        hour_us=hour[rows] * unit_us,
        added={
            "messages": messages,
            "delivered": delivered,
            "denied": denied,
            "failed": messages - delivered - denied,
            "bytes_in": sums(numbers(records, "size_in", null=0)[order], starts),
            "bytes_wire": sums(numbers(records, "size_wire", null=0)[order], starts),
        },
        maps={
            "others": word_counts(index[is_other], outcomes, outcome[one][is_other], counts[is_other], rows=len(begin)),
            "denials": word_counts(index[has_rule], rules, rule[one][has_rule], counts[has_rule], rows=len(begin)),
            "latency": _packed(index[has_time], bucket[one][has_time], counts[has_time], rows=len(begin)),
        },
        folds={"set_xor": xors(member, starts), "set_sum": sums_modulo(member, starts)},
    )


def places_of_hours(hours: pa.Table, places: int) -> Numbers:
    """Partition hours, or parts of them, for adding up: equal keys share one of the `places` of their day."""
    return places_of(hours, KEY, numbers(hours, "hour_us") // DAY_US, places)


def whole_hours(parts: pa.Table, unit_us: int = HOUR_US) -> pa.Table:
    """Parts of hours added up to whole ones, ascending by key, with `dt`."""
    key = [words(column(parts, name)) for name in WORDS]
    hour = numbers(parts, "hour_us") // unit_us
    group, _ = group_numbers([*((places, len(found)) for found, places in key), from_zero(hour)])
    order, starts = runs(group)
    rows = order[starts]
    index = run_of_rows(order, starts)
    added = {name: sums(numbers(parts, name)[order], starts) for name in _SUMS}
    of_part, bucket, counts = _unpacked(column(parts, "latency"))
    maps = {
        "outcomes": _outcomes(index, column(parts, "others"), added),
        "denials": word_counts(*word_entries(index, column(parts, "denials")), rows=len(starts)),
        "latency": bucket_counts(index[of_part], bucket, counts, rows=len(starts)),
    }
    hours = _rows(
        key={name: texts_of(found, places[rows]) for name, (found, places) in zip(WORDS, key, strict=True)},
        hour_us=hour[rows] * unit_us,
        added=added,
        maps=maps,
        folds={
            "set_xor": xors(numbers(parts, "set_xor")[order], starts),
            "set_sum": sums_modulo(numbers(parts, "set_sum")[order], starts),
        },
    )
    return hours.append_column("dt", days_of(numbers(hours, "hour_us")))


def days_of(time_us: Numbers) -> pa.DictionaryArray:
    """UTC days of times in µs, `YYYY-MM-DD`."""
    order, starts = runs(time_us // DAY_US)
    begin_us = time_us[order[starts]] // DAY_US * DAY_US
    names = pc.strftime(pa.array(begin_us).cast(pa.timestamp("us")), "%Y-%m-%d")
    return pa.DictionaryArray.from_arrays(pa.array(run_of_rows(order, starts), pa.int32()), names)


def whole_quarters(parts: pa.Table) -> pa.Table:
    """Parts of quarters of an hour, which `hours_of` has made, added up to whole ones; their begin is `quarter_us`."""
    rows = whole_hours(parts, QUARTER_US)
    return rows.rename_columns(["quarter_us" if name == "hour_us" else name for name in rows.column_names])


def _buckets(times_us: pa.Array) -> Numbers:
    """Buckets counted from 0, those without a time behind all others."""
    known = buckets_of(np.asarray(times_us.fill_null(0))) - NEGATIVE
    return np.where(np.asarray(times_us.is_null()), BUCKETS - 1, known)


def _outcomes(index: Numbers, others: pa.MapArray, added: dict[str, Numbers]) -> pa.MapArray:
    """Counts by every outcome."""
    of_row, found, place, counts = word_entries(index, others)
    known = [word for word in found if word is not None]
    names: list[str | None] = [*sorted({DELIVERED, DENIED, *known})]
    rank = np.array([*map(names.index, known)], np.int64)
    entries = [(of_row, rank[place], counts)]
    for name in (DELIVERED, DENIED):
        rows = np.flatnonzero(added[name])
        entries.append((rows, np.full(len(rows), names.index(name)), added[name][rows]))
    of_row, place, counts = (np.concatenate(columns) for columns in zip(*entries, strict=True))
    return word_counts(of_row, names, place, counts, rows=len(added[DELIVERED]))


def _packed(row: Numbers, bucket: Numbers, counts: Numbers, *, rows: int) -> pa.Array:
    """Entries of histograms as bytes, which Spark passes on as they are; a count is below 2⁵³ by far."""
    of_row, buckets, added = added_up(row, bucket, BUCKETS, counts)
    offsets = np.searchsorted(of_row, np.arange(rows + 1)).astype(np.int32) * _ENTRY_BYTES
    entries = np.ascontiguousarray(buckets << _COUNT_BITS | added)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(entries)])


def _unpacked(histograms: pa.BinaryArray) -> tuple[Numbers, Numbers, Numbers]:
    """The same as rows, buckets and counts."""
    lengths = np.asarray(pc.binary_length(histograms)).astype(np.int64) // _ENTRY_BYTES
    entries = np.frombuffer(b"".join(histograms.to_pylist()), np.int64)
    row = np.repeat(np.arange(len(lengths)), lengths)
    return row, entries >> _COUNT_BITS, entries & ((1 << _COUNT_BITS) - 1)


def _rows(
    *,
    key: dict[str, pa.Array],
    hour_us: Numbers,
    added: dict[str, Numbers],
    maps: dict[str, pa.Array],
    folds: dict[str, Numbers],
) -> pa.Table:
    return pa.table({**key, "hour_us": hour_us, **added, **maps, **folds})
