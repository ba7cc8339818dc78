"""Entries of books out of records, whole columns at a time: when the message was sent, and what is held against what.

The same as `pipeline.transforms.books` says in Columns, for workers; tests hold both against each other. No Spark here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.file_pieces import Condition
from pipeline.groups import Numbers, codes, column, numbers
from pipeline.hashing import binary_rows

DAY_US: Final = 86_400_000_000
ID_TIME_TRUST_US: Final = DAY_US
"""Farther than this from the record's own time an id's time is not believed."""
BUCKET_US: Final = 300_000_000
DELIVERED: Final = "delivered"
DUPLICATE: Final = "duplicate"

FEW: Final = ("role", "src_domain", "dst_domain", "msg_id", "ts_us", "digest", "size_wire", "size_in", "outcome")
"""Columns of `silver_mdr` that say what is compared."""
ALL: Final = (*FEW, "d_total_us", "node", "boot", "seq")
"""The same with those that evidence names."""
_OWN_NAMES: Final = ("digest", "node", "boot", "seq")
_HEAD_BYTES: Final = 9


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which entries are meant: of messages sent from `first_us` to `last_us`, between domains that have books."""

    first_us: int
    last_us: int
    domains: Collection[str]

    def condition(self) -> Condition:
        """What holds for every record of such a message, and for some others; cheap to look at in files."""
        low, high = (max(0, time_us // 1000).to_bytes(6, "big") for time_us in (self.first_us, self.last_us + 1000))
        own = [("ts_us", ">=", self.first_us), ("ts_us", "<=", self.last_us)]
        return [[("msg_id", ">=", low), ("msg_id", "<", high)], own]

    def of(self, entries: pa.Table) -> pa.Table:
        """Those of them that are meant."""
        sent_us = numbers(entries, "sent_us")
        chosen = (self.first_us <= sent_us) & (sent_us <= self.last_us)
        for name in ("src_domain", "dst_domain"):
            chosen &= _are_among(column(entries, name), self.domains)
        return entries if chosen.all() else entries.filter(pa.array(chosen))


def entries_of(silver: pa.Table) -> pa.Table:
    """Entries of books, `schemas.BOOK` with `is_out`: as many of its columns as come of those that there are."""
    there = set(silver.column_names)
    found = {
        **{name: column(silver, name) for name in ("src_domain", "dst_domain", "msg_id")},
        "sent_us": pa.array(sent_us_of(column(silver, "msg_id"), numbers(silver, "ts_us"))),
        **{name: column(silver, name) for name in ("ts_us", "outcome", *_OWN_NAMES) if name in there},
        "is_out": pc.equal(column(silver, "role"), "out"),
    }
    if "size_wire" in there:
        found["size"] = pc.coalesce(column(silver, "size_wire"), column(silver, "size_in")).cast(pa.int64())
    if "d_total_us" in there:
        found["span_us"] = column(silver, "d_total_us").cast(pa.int64())
    return pa.table(found)


def sent_us_of(msg_id: pa.Array, ts_us: Numbers) -> Numbers:
    """Times of messages: out of UUIDv7 where that can be believed, else the record's own. Source: RFC 9562, 5.7."""
    times = ts_us.copy()
    for chosen, rows in binary_rows(msg_id):
        if rows.shape[1] < _HEAD_BYTES:
            continue
        is_7 = (rows[:, 6] >> 4 == 7) & (rows[:, 8] >> 6 == 2)
        wide = np.zeros((len(rows), 8), np.uint8)
        wide[:, 2:] = rows[:, :6]
        id_us = wide.view(">u8")[:, 0].astype(np.int64) * 1000
        own_us = ts_us[chosen]
        is_believed = is_7 & (np.abs(id_us - own_us) <= ID_TIME_TRUST_US)
        times[chosen] = np.where(is_believed, id_us, own_us)
    return times


def bucket_us_of(sent_us: Numbers) -> Numbers:
    """Start of the 5 minutes in which each of these times is."""
    return sent_us - sent_us % BUCKET_US


def compared(entries: pa.Table) -> pa.Table:
    """Claims and answers: what is held against each other of both books."""
    outcome = column(entries, "outcome")
    is_out = column(entries, "is_out")
    return entries.filter(pc.if_else(is_out, pc.equal(outcome, DELIVERED), pc.not_equal(outcome, DUPLICATE)))


def in_buckets(entries: pa.Table, keys: pa.Table) -> pa.Table:
    """Entries of those pairs and 5 minutes that the keys name: `src_domain`, `dst_domain`, `bucket_us`, none twice."""
    number, wanted = np.zeros(entries.num_rows, np.int64), np.zeros(keys.num_rows, np.int64)
    is_known = np.ones(entries.num_rows, bool)
    for name in ("src_domain", "dst_domain"):
        known, of_key = codes(column(keys, name))
        place = {word: at for at, word in enumerate(known)}
        found, places = codes(column(entries, name))
        here = np.array([place.get(word, -1) for word in found], np.int64)[places]
        is_known &= here >= 0
        number, wanted = number * len(known) + here, wanted * len(known) + of_key
    times, of_key = np.unique(numbers(keys, "bucket_us"), return_inverse=True)
    bucket_us = bucket_us_of(numbers(entries, "sent_us"))
    at = np.minimum(np.searchsorted(times, bucket_us), max(len(times) - 1, 0))
    if not len(times):
        return entries.slice(0, 0)
    is_known &= times[at] == bucket_us
    chosen = is_known & np.isin(number * len(times) + at, wanted * len(times) + of_key)
    return entries.filter(pa.array(chosen))


def of_others(rows: pa.Table, domains: Collection[str]) -> pa.Table:
    """Rows of pairs of which not both are among these domains."""
    both = np.ones(rows.num_rows, bool)
    for name in ("src_domain", "dst_domain"):
        both &= _are_among(column(rows, name), domains)
    return rows.filter(pa.array(~both))


def _are_among(texts: pa.Array, wanted: Collection[str]) -> NDArray[np.bool_]:
    found, places = codes(texts)
    return np.array([word in wanted for word in found], bool)[places]
