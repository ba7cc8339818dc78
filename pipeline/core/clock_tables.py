"""Clocks in workers: what the times of two sides' records usually differ by, and how that is measured.

The same as `pipeline.transforms.clocks` says; there is also why it is done so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.core.groups import (
    Numbers,
    Rows,
    codes,
    column,
    from_zero,
    group_numbers,
    is_word,
    lengths_of,
    numbers,
    runs,
    starts_of,
)
from pipeline.core.hashing import xxhash64
from pipeline.core.packed import places_of
from pipeline.core.side_records import DAY_US, DELIVERED

LOW_QUANTILE: Final = 0.05
PAIR: Final = ("src_domain", "dst_domain")
TIMES: Final = ("src_domain", "dst_domain", "msg_id", "ts_us", "outcome", "role")
"""Columns of `silver_mdr` that clocks are judged by."""


class Usual(NamedTuple):
    """What is usual for each of some rows; 0 where nothing is known."""

    is_known: NDArray[np.bool_]
    usual_us: Numbers
    doubt_us: Numbers


@dataclass(frozen=True)
class ClockTables:
    """What is known about the times of two sides.

    Attributes:
        delays: Rows of `schemas.PAIR_DELAY`.
        offsets: Rows of `clock_offset`.
    """

    delays: pa.Table
    offsets: pa.Table

    def __getstate__(self) -> dict[str, pa.Table]:
        """What travels to workers."""
        return {"delays": self.delays, "offsets": self.offsets}

    @cached_property
    def _pairs(self) -> Rows:
        return Rows(*(column(self.delays, name) for name in (*PAIR, "dt")))

    @cached_property
    def _domains(self) -> Rows:
        return Rows(*(column(self.offsets, name) for name in ("domain", "dt")))

    def usual(self, src_domain: pa.Array, dst_domain: pa.Array, dt: pa.Array) -> Usual:
        """What is usual for rows of these pairs and days.

        Where both clocks are known that is their difference, and the doubt is the sum of their error bounds; otherwise
        it is the pair's own low quantile, where there is one.
        """
        ours, theirs = self._domains.find(src_domain, dt), self._domains.find(dst_domain, dt)
        pair = self._pairs.find(src_domain, dst_domain, dt)
        component, offset_us, error_us = (
            _and_none(numbers(self.offsets, name)) for name in ("component", "offset_us", "error_us")
        )
        both = (ours >= 0) & (theirs >= 0) & (component[ours] == component[theirs])
        low_us = _and_none(numbers(self.delays, "low_us"))[pair]
        return Usual(
            both | (pair >= 0),
            np.where(both, offset_us[theirs] - offset_us[ours], low_us),
            np.where(both, error_us[theirs] + error_us[ours], 0),
        )


def _and_none(values: Numbers) -> Numbers:
    """With a 0 at the end, which is what -1 finds."""
    return np.append(values, 0)


def sampled(records: pa.Table, one_in: int) -> pa.Table:
    """Records of delivered messages, of one in so many, chosen by a hash of the id: so the same ones on both sides."""
    is_chosen = xxhash64(column(records, "msg_id")) % one_in == 0
    return records.filter(pa.array(is_chosen & is_word(column(records, "outcome"), DELIVERED)))


def places_of_times(times: pa.Table, places: int) -> Numbers:
    """Where both records of a message meet."""
    return places_of(times, [*PAIR, "msg_id"], np.zeros(times.num_rows, np.int64), places)


def delays_of(times: pa.Table) -> pa.Table:
    """How much later the receiver's first record of a message is than the sender's: pair, `day`, `delay_us`.

    Args:
        times: All of the messages in question.
    """
    keys = [codes(column(times, name)) for name in PAIR]
    ids = np.asarray(column(times, "msg_id").dictionary_encode().indices).astype(np.int64)
    group, _ = group_numbers([*((places, len(found)) for found, places in keys), from_zero(ids)])
    order, starts = runs(group)
    is_out = np.asarray(column(times, "is_out"))[order]
    ts_us, sent_us = numbers(times, "ts_us")[order], numbers(times, "sent_us")[order]
    never = np.iinfo(np.int64).max
    out_us, in_us, first_us = (
        np.minimum.reduceat(np.where(chosen, values, never), starts)
        for chosen, values in ((is_out, ts_us), (~is_out, ts_us), (is_out, sent_us))
    )
    both = np.flatnonzero((out_us < never) & (in_us < never))
    one = pa.array(order[starts[both]])
    return pa.table(
        {
            **{name: column(times, name).take(one) for name in PAIR},
            "day": first_us[both] // DAY_US,
            "delay_us": in_us[both] - out_us[both],
        }
    )


def places_of_delays(delays: pa.Table, places: int) -> Numbers:
    """Where the delays of a pair and day meet."""
    return places_of(delays, PAIR, numbers(delays, "day"), places)


def low_delays(delays: pa.Table) -> pa.Table:
    """The low quantile of each pair and day, between two values in proportion: pair, `day`, `low_us`, `messages`."""
    keys = [codes(column(delays, name)) for name in PAIR]
    delay_us = numbers(delays, "delay_us")
    group, _ = group_numbers([*((places, len(found)) for found, places in keys), from_zero(numbers(delays, "day"))])
    order = np.lexsort((delay_us, group))
    starts = starts_of(group[order])
    lengths = lengths_of(starts, len(order))
    place = (lengths - 1) * LOW_QUANTILE
    low, high = np.floor(place), np.ceil(place)
    ascending = delay_us[order]
    below, above = (ascending[starts + side.astype(np.int64)].astype(np.float64) for side in (low, high))
    low_us = np.where(below == above, below, (high - place) * below + (place - low) * above)
    one = pa.array(order[starts])
    return pa.table(
        {
            **{name: column(delays, name).take(one) for name in (*PAIR, "day")},
            "low_us": (np.sign(low_us) * np.floor(np.abs(low_us) + 0.5)).astype(np.int64),
            "messages": lengths,
        }
    )
