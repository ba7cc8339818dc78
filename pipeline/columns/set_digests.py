"""SHA-256 over the delivered messages of a day in a worker, whole columns at a time.

Two levels, so that no list grows with the day. For every 5 minutes of message time the sorted lines `<msg_id> <digest>`
(lower-case hex) joined by line feeds are hashed; then the sorted lines `<bucket_us> <hash>` of the day, where
`bucket_us` has twenty digits. Anyone who has the records can check it with `sort` and `sha256sum`. Records without an
id or a digest have a line of what they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns.groups import (
    Numbers,
    Rows,
    codes,
    column,
    from_zero,
    group_numbers,
    in_order,
    is_word,
    lengths_of,
    numbers,
    run_of_rows,
    runs,
    starts_of,
)
from pipeline.columns.hashing import binary_rows
from pipeline.columns.packed import places_of
from pipeline.columns.side_records import BUCKET_US, DAY_US, DELIVERED, times_of

WHOSE: Final = ("our_domain", "dt")
STATEMENT_KEY: Final = ("our_domain", "src_domain", "dst_domain", "role", "dt")
MEMBER: Final = (*STATEMENT_KEY, "outcome", "ts_us", "msg_id", "digest")
"""Columns of `silver_mdr` that digests are made of."""
_NAMES: Final = ("msg_id", "digest")
_HEAD_BYTES: Final = 8
_HEX: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "<u2")

Bytes = NDArray[np.uint8]


def members_of(records: pa.Table, signed_off: Rows) -> pa.Table:
    """Delivered messages of the days in question, with the 5 minutes that they belong to.

    Args:
        records: The columns `MEMBER` of `silver_mdr`.
        signed_off: Keys `WHOSE`.
    """
    is_meant = signed_off.find(*(column(records, name) for name in WHOSE)) >= 0
    records = records.filter(pa.array(is_meant & is_word(column(records, "outcome"), DELIVERED)))
    sent_us, _ = times_of(column(records, "msg_id"), numbers(records, "ts_us"))
    bucket_us = pa.array(sent_us // BUCKET_US * BUCKET_US)
    return records.select([*STATEMENT_KEY, *_NAMES]).append_column("bucket_us", bucket_us)


def places_of_members(members: pa.Table, places: int) -> Numbers:
    """Partition so that all messages of a statement and 5 minutes come to one place."""
    return places_of(members, [*STATEMENT_KEY, "bucket_us"], numbers(members, "bucket_us") // DAY_US, places)


def bucket_hashes(members: pa.Table) -> pa.Table:
    """The first level: key, `bucket_us` and `hash`, of all messages of these."""
    group = _groups(members, from_zero(numbers(members, "bucket_us") // BUCKET_US))
    ids, digests = (_rows_of_bytes(column(members, name)) for name in _NAMES)
    if ids is not None and digests is not None:
        order, starts = _sorted_lines(group, ids, digests)
        lines = np.empty((len(group), 2 * (ids.shape[1] + digests.shape[1]) + 2), np.uint8)
        width = 2 * ids.shape[1]
        lines[:, :width] = _hex(ids[order])
        lines[:, width] = ord(" ")
        lines[:, width + 1 : -1] = _hex(digests[order])
        lines[:, -1] = ord("\n")
        hashes = _hashes_of_runs(lines, starts)
    else:
        order, starts = runs(group)
        hashes = list(_hashes_of_any(members, order, starts))
    one = pa.array(order[starts])
    key = {name: column(members, name).take(one) for name in (*STATEMENT_KEY, "bucket_us")}
    return pa.table({**key, "hash": pa.array(hashes, pa.binary())})


def places_of_days(rows: pa.Table, places: int) -> Numbers:
    """Partition so that all rows of a statement share one of the `places` of its day."""
    found, place = codes(column(rows, "dt"))
    day = np.array([*found[:-1], "1970-01-01"], "datetime64[D]").astype(np.int64)[place]
    return places_of(rows, STATEMENT_KEY, day, places)


def set_digests(hashes: pa.Table) -> pa.Table:
    """The second level: key and `set_digest`, of all 5 minutes of these statements."""
    bucket_us = numbers(hashes, "bucket_us")
    # Lines sort as texts do; twenty digits sort like the numbers that they are.
    by_time, first = runs(bucket_us)
    digits = [b"%b " % str(one).rjust(20, "0").encode() for one in bucket_us[by_time[first]].tolist()]
    bucket = run_of_rows(by_time, first)
    rank = np.argsort(np.argsort(np.array(digits, object))).astype(np.int64)
    group = _groups(hashes)
    order, _ = in_order(group_numbers([from_zero(group), from_zero(rank[bucket])])[0])
    starts = starts_of(group[order])
    text = np.frombuffer(b"".join(digits), np.uint8).reshape(-1, 21)
    _, content = next(binary_rows(column(hashes, "hash")))
    lines = np.empty((len(order), 21 + 64 + 1), np.uint8)
    lines[:, :21] = text[bucket[order]]
    lines[:, 21:-1] = _hex(content[order])
    lines[:, -1] = ord("\n")
    digests = [one.hex() for one in _hashes_of_runs(lines, starts)]
    one = pa.array(order[starts])
    return pa.table({name: column(hashes, name).take(one) for name in STATEMENT_KEY} | {"set_digest": digests})


def _groups(rows: pa.Table, *more: tuple[Numbers, int]) -> Numbers:
    coded = [codes(column(rows, name)) for name in STATEMENT_KEY]
    return group_numbers([*((places, len(found)) for found, places in coded), *more])[0]


def _rows_of_bytes(values: pa.Array) -> Bytes | None:
    """One row for each value if all are equally long and long enough to be sorted by their heads."""
    _, rows = next(binary_rows(values), (None, None))
    return rows if rows is not None and len(rows) == len(values) and rows.shape[1] >= _HEAD_BYTES else None


def _sorted_lines(group: Numbers, ids: Bytes, digests: Bytes) -> tuple[Numbers, Numbers]:
    """The order of the lines of each group, and where each group begins in it."""
    head = np.ascontiguousarray(ids[:, :_HEAD_BYTES]).view(">u8")[:, 0].astype(np.uint64)
    order = np.argsort(head)
    by_group, ascending = in_order(group[order])
    order, head = order[by_group], head[order[by_group]]
    is_tied = (ascending[1:] == ascending[:-1]) & (head[1:] == head[:-1])
    # Ids with equal heads are copies, or of the same millisecond: few.
    ends = np.flatnonzero(np.diff(np.concatenate([[False], is_tied, [False]]).astype(np.int8)))
    for first, last in ends.reshape(-1, 2).tolist():
        tied = order[first : last + 1].tolist()
        order[first : last + 1] = sorted(tied, key=lambda row: ids[row].tobytes() + digests[row].tobytes())
    return order, starts_of(ascending)


def _hex(rows: Bytes) -> Bytes:
    return _HEX[rows].view(np.uint8)


def _hashes_of_runs(lines: Bytes, starts: Numbers) -> list[bytes]:
    """SHA-256 of the lines of each run; the last line feed joins nothing."""
    content = lines.reshape(-1).data
    width = lines.shape[1]
    ends = starts + lengths_of(starts, len(lines))
    return [
        sha256(content[start:end]).digest()
        for start, end in zip((starts * width).tolist(), (ends * width - 1).tolist(), strict=True)
    ]


def _hashes_of_any(members: pa.Table, order: Numbers, starts: Numbers) -> Iterator[bytes]:
    """The same of any ids and digests."""
    ids, digests = (column(members, name).to_pylist() for name in _NAMES)
    for rows in _runs_of(order, starts):
        lines = [" ".join(part.hex() for part in (ids[row], digests[row]) if part is not None) for row in rows]
        yield sha256("\n".join(sorted(lines)).encode()).digest()


def _runs_of(order: Numbers, starts: Numbers) -> Iterator[Sequence[int]]:
    for start, length in zip(starts.tolist(), lengths_of(starts, len(order)).tolist(), strict=True):
        yield order[start : start + length].tolist()
