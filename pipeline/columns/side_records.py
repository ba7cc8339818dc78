"""Records of two sides as they are compared: when messages were sent, and in which 5 minutes they are.

Records come from silver, or from a partner's file; nothing after this module knows which. `out` is the originating
domain of a pair, `in` the receiving one.

The time of a message is the one inside its id: the originating node gives every message a UUIDv7, and both sides hold
the same id. So a message falls into the same 5 minutes on both sides however wrong a clock is. An id that was derived
from the sender's own trace has no time, and is repeated when the sender repeats its request. The record's own time then
says the day, and a hash of the id says which 5 minutes of that day. So both sides agree here too, but around midnight,
and all messages of a day with one id are in the same 5 minutes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.columns.conditions import Condition
from pipeline.columns.groups import Numbers, codes, column, is_word, numbers
from pipeline.columns.hashing import binary_rows, xxhash64

DAY_US: Final = 86_400_000_000
ID_TIME_TRUST_US: Final = DAY_US
"""Farther than this from the record's own time an id's time is not believed."""
BUCKET_US: Final = 300_000_000
DELIVERED: Final = "delivered"
DUPLICATE: Final = "duplicate"

FEW: Final = (
    *("role", "src_domain", "dst_domain", "msg_id", "ts_us", "digest", "size_wire", "size_in", "outcome", "channel"),
)
"""Columns of `silver_mdr` that say what is compared."""
ALL: Final = (*FEW, "d_total_us", "node", "boot", "seq")
"""The same with those that evidence names."""
_OWN_NAMES: Final = ("digest", "node", "boot", "seq")
_PAIR: Final = ("src_domain", "dst_domain")
_GUEST: Final = "guest"
_BUCKETS_OF_DAY: Final = DAY_US // BUCKET_US
_HEAD_BYTES: Final = 9
_HINT_BITS: Final = 22
_HINT: Final = (1 << _HINT_BITS) - 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """Selection of records: messages sent from `first_us` to `last_us`, between domains that have records."""

    first_us: int
    last_us: int
    domains: Collection[str]

    def condition(self) -> Condition:
        """Condition for reading files that every record of such a message meets; some other records meet it as well."""
        low, high = (max(0, time_us // 1000).to_bytes(6, "big") for time_us in (self.first_us, self.last_us + 1000))
        own = [("ts_us", ">=", self.first_us), ("ts_us", "<=", self.last_us)]
        return [[("msg_id", ">=", low), ("msg_id", "<", high)], own]

    def of(self, entries: pa.Table) -> pa.Table:
        """Those of them that are meant."""
        sent_us = numbers(entries, "sent_us")
        chosen = (self.first_us <= sent_us) & (sent_us <= self.last_us)
        for name in _PAIR:
            chosen &= _are_among(column(entries, name), self.domains)
        return entries if chosen.all() else entries.filter(pa.array(chosen))


def entries_of(silver: pa.Table) -> pa.Table:
    """Records of both sides, `schemas.SIDE_RECORD` with `is_out`: those of its columns that `silver` allows.

    Without those of guests (runtimes of the other domain with a session here): no node of theirs sees their messages.
    """
    there = set(silver.column_names)
    if "channel" in there:
        is_guest = is_word(column(silver, "channel"), _GUEST)
        silver = silver.filter(pa.array(~is_guest)) if is_guest.any() else silver
    sent_us, bucket_us = times_of(column(silver, "msg_id"), numbers(silver, "ts_us"))
    found = {
        **{name: column(silver, name) for name in ("src_domain", "dst_domain", "msg_id")},
        "sent_us": pa.array(sent_us),
        "bucket_us": pa.array(bucket_us),
        **{name: column(silver, name) for name in ("ts_us", "outcome", *_OWN_NAMES) if name in there},
        "is_out": pa.array(is_word(column(silver, "role"), "out")),
    }
    if "size_wire" in there:
        found["size"] = pc.coalesce(column(silver, "size_wire"), column(silver, "size_in")).cast(pa.int64())
    if "d_total_us" in there:
        found["span_us"] = column(silver, "d_total_us").cast(pa.int64())
    return pa.table(found)


def times_of(msg_id: pa.Array, ts_us: Numbers) -> tuple[Numbers, Numbers]:
    """Compute when each message was sent, and the start of the 5 minutes in which it is compared; both in µs.

    The time is that of the id if it can be believed, else the record's own, `ts_us`.
    """
    id_us = id_times_of(msg_id)
    is_timed = (id_us >= 0) & (np.abs(id_us - ts_us) <= ID_TIME_TRUST_US)
    sent_us = np.where(is_timed, id_us, ts_us)
    bucket_us = sent_us - sent_us % BUCKET_US
    others = np.flatnonzero(~is_timed)
    if len(others):
        place = xxhash64(msg_id.take(pa.array(others))).view(np.uint64) % np.uint64(_BUCKETS_OF_DAY)
        bucket_us[others] = ts_us[others] - ts_us[others] % DAY_US + place.astype(np.int64) * BUCKET_US
    return sent_us, bucket_us


def id_times_of(msg_id: pa.Array) -> Numbers:
    """Times inside UUIDv7, in µs; -1 for other ids. Source: RFC 9562, section 5.7."""
    times = np.full(len(msg_id), -1)
    for chosen, rows in binary_rows(msg_id):
        if rows.shape[1] < _HEAD_BYTES:
            continue
        head = np.ascontiguousarray(rows[:, :8]).view(">u8")[:, 0].astype(np.uint64)
        is_7 = ((head >> np.uint64(12)) & np.uint64(15) == 7) & (rows[:, 8] >> 6 == 2)
        times[chosen] = np.where(is_7, (head >> np.uint64(16)).astype(np.int64) * 1000, -1)
    return times


def are_compared(entries: pa.Table) -> NDArray[np.bool_]:
    """Mask of the records that both sides compare: deliveries of the sender, and all but duplicates of the receiver."""
    outcome = column(entries, "outcome")
    is_out = np.asarray(column(entries, "is_out"))
    return np.where(is_out, is_word(outcome, DELIVERED), ~is_word(outcome, DUPLICATE))


class Buckets:
    """Pairs and 5 minutes, to find the entries that are in one of them.

    Args:
        keys: `src_domain`, `dst_domain`, `bucket_us`.
    """

    def __init__(self, keys: pa.Table) -> None:
        bucket = numbers(keys, "bucket_us") // BUCKET_US
        self._first = int(bucket.min()) if len(bucket) else 0
        self._count = int(bucket.max()) - self._first + 1 if len(bucket) else 0
        self._places: list[dict[str | None, int]] = []
        number = np.zeros(keys.num_rows, np.int64)
        for name in _PAIR:
            words, of_key = codes(column(keys, name))
            self._places.append({word: place for place, word in enumerate(words) if word is not None})
            number = number * len(words) + of_key
        self._numbers = np.unique(number * self._count + bucket - self._first)
        # Most entries are in none of them: one look at a small table says so.
        self._maybe = np.zeros(1 << _HINT_BITS, bool)
        self._maybe[self._numbers & _HINT] = True

    def of(self, entries: pa.Table) -> pa.Table:
        """Entries in one of them."""
        bucket = numbers(entries, "bucket_us") // BUCKET_US - self._first
        is_in = (bucket >= 0) & (bucket < self._count)
        number = np.zeros(entries.num_rows, np.int64)
        for name, places in zip(_PAIR, self._places, strict=True):
            words, code = codes(column(entries, name))
            place = np.array([places.get(word, -1) for word in words], np.int64)[code]
            is_in &= place >= 0
            number = number * (len(places) + 1) + place
        number = number * self._count + bucket
        chosen = np.flatnonzero(is_in & self._maybe[number & _HINT])
        chosen = chosen[np.isin(number[chosen], self._numbers, kind="sort")]
        return entries.take(pa.array(chosen))


def of_others(rows: pa.Table, domains: Collection[str]) -> pa.Table:
    """Rows of pairs of which not both are among these domains."""
    both = np.ones(rows.num_rows, bool)
    for name in _PAIR:
        both &= _are_among(column(rows, name), domains)
    return rows.filter(pa.array(~both))


def _are_among(texts: pa.Array, wanted: Collection[str]) -> NDArray[np.bool_]:
    found, places = codes(texts)
    return np.array([word in wanted for word in found], bool)[places]
