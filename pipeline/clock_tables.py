"""Clocks in workers: what the times of two books' records usually differ by, and how that is found out. No Spark here.

The same as `pipeline.transforms.clocks` says; there is also why it is done so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.book_entries import DAY_US, DELIVERED
from pipeline.groups import Numbers, codes, column, from_zero, group_numbers, lengths_of, numbers, starts_of
from pipeline.hashing import xxhash64
from pipeline.packed import places_of

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
    """What is known about the times of two books.

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
    def _low_us(self) -> dict[tuple[str, str, str], int]:
        rows = self.delays.to_pylist()
        return {(row["src_domain"], row["dst_domain"], row["dt"]): row["low_us"] for row in rows}

    @cached_property
    def _clocks(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        rows = self.offsets.to_pylist()
        return {(row["domain"], row["dt"]): (row["component"], row["offset_us"], row["error_us"]) for row in rows}

    def usual(self, src_domain: pa.Array, dst_domain: pa.Array, dt: pa.Array) -> Usual:
        """What is usual for rows of these pairs and days.

        Where both clocks are known that is their difference, and the doubt is the sum of their error bounds; otherwise
        it is the pair's own low quantile, where there is one.
        """
        keys = [codes(texts) for texts in (src_domain, dst_domain, dt)]
        group, _ = group_numbers((places, len(found)) for found, places in keys)
        _, first, which = np.unique(group, return_index=True, return_inverse=True)
        found = [self._usual(*(str(words[places[row]]) for words, places in keys)) for row in first.tolist()]
        is_known, usual_us, doubt_us = (np.array([one[at] for one in found], np.int64)[which] for at in range(3))
        return Usual(is_known.astype(bool), usual_us, doubt_us)

    def _usual(self, source: str, target: str, day: str) -> tuple[bool, int, int]:
        theirs, ours = self._clocks.get((target, day)), self._clocks.get((source, day))
        if theirs is not None and ours is not None and theirs[0] == ours[0]:
            return True, theirs[1] - ours[1], theirs[2] + ours[2]
        low_us = self._low_us.get((source, target, day))
        return low_us is not None, low_us or 0, 0


def chosen_times(entries: pa.Table, one_in: int) -> pa.Table:
    """Times of delivered messages, of one in so many, chosen by a hash of the id: so the same ones in both books."""
    is_chosen = xxhash64(column(entries, "msg_id")) % one_in == 0
    is_delivered = np.asarray(pc.equal(column(entries, "outcome"), DELIVERED).fill_null(fill_value=False))
    chosen = entries.filter(pa.array(is_chosen & is_delivered))
    return chosen.select([*PAIR, "msg_id", "is_out", "ts_us", "sent_us"])


def places_of_times(times: pa.Table, places: int) -> Numbers:
    """Where both records of a message meet."""
    return places_of(times, [*PAIR, "msg_id"], np.zeros(times.num_rows, np.int64), places)


def delays_of(times: pa.Table) -> pa.Table:
    """How much later the in-book's record is, of messages in both books, of copies the first: pair, `day`, `delay_us`.

    Args:
        times: All of the messages in question.
    """
    keys = [codes(column(times, name)) for name in PAIR]
    ids = np.asarray(column(times, "msg_id").dictionary_encode().indices).astype(np.int64)
    group, _ = group_numbers([*((places, len(found)) for found, places in keys), from_zero(ids)])
    order = np.argsort(group, kind="stable")
    starts = starts_of(group[order])
    is_out = np.asarray(column(times, "is_out"))[order]
    ts_us, sent_us = numbers(times, "ts_us")[order], numbers(times, "sent_us")[order]
    never = np.iinfo(np.int64).max
    if not len(starts):
        return _delays(times, order, starts, starts, starts)
    out_us, in_us, first_us = (
        np.minimum.reduceat(np.where(chosen, values, never), starts)
        for chosen, values in ((is_out, ts_us), (~is_out, ts_us), (is_out, sent_us))
    )
    both = np.flatnonzero((out_us < never) & (in_us < never))
    return _delays(times, order, starts[both], first_us[both], in_us[both] - out_us[both])


def _delays(times: pa.Table, order: Numbers, starts: Numbers, sent_us: Numbers, delay_us: Numbers) -> pa.Table:
    one = pa.array(order[starts])
    return pa.table(
        {
            **{name: column(times, name).take(one) for name in PAIR},
            "day": sent_us // DAY_US,
            "delay_us": delay_us,
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
