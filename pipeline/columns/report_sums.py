"""What the report shows of tables by the hour, added up in workers: one pass over each table, whatever is shown of it.

A worker makes a few small tables out of what it reads, and puts them behind each other; `what` says which one a row is
of. Rows of equal key that have met are added up once more, by the same function: everything is a count or a histogram.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.count_maps import bucket_counts, bucket_entries, texts_of
from pipeline.columns.groups import (
    Numbers,
    column,
    from_zero,
    group_numbers,
    is_word,
    numbers,
    run_of_rows,
    runs,
    sums,
    words,
)
from pipeline.columns.packed import places_of

TRAFFIC: Final = ("our_domain", "src_domain", "dst_domain", "role", "hour_us", "messages", "denied", "latency")
"""Columns of `traffic_hourly` that are needed."""
STUBS: Final = ("peer_domain", "stub_ver", "messages", "latency", "fuel")
"""Columns of `stub_hourly` that are needed."""

PAIR: Final = "pair"
"""By ordered pair: `sent`, `received`, `denied`, `refused`, and in `senders` how many rows the sender's side has."""
HOUR: Final = "hour"
"""By role and hour: `latency`."""
PEER: Final = "peer"
"""Of one domain, what one peer has sent it: by hour, in `received`."""
VERSION: Final = "version"
"""By peer and version: `messages`, `latency`, `fuel`."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """By which columns rows are added up, and which of them are."""

    words: Sequence[str] = ()
    hours: Sequence[str] = ()
    counts: Sequence[str] = ()
    histograms: Sequence[str] = ()

    def of(self, rows: pa.Table) -> pa.Table:
        """Rows with equal keys as one, ascending by key."""
        texts = {name: words(column(rows, name)) for name in self.words}
        times = {name: numbers(rows, name) for name in self.hours}
        keys = [(places, len(found)) for found, places in texts.values()]
        group, _ = group_numbers([*keys, *map(from_zero, times.values())])
        order, starts = runs(group)
        first, index = order[starts], run_of_rows(order, starts)
        entries = {name: bucket_entries(index, column(rows, name)) for name in self.histograms}
        return pa.table(
            {
                **{name: texts_of(found, places[first]) for name, (found, places) in texts.items()},
                **{name: values[first] for name, values in times.items()},
                **{name: sums(numbers(rows, name)[order], starts) for name in self.counts},
                **{name: bucket_counts(*entry, rows=len(starts)) for name, entry in entries.items()},
            }
        )


_SUMS: Final[Mapping[str, _Sum]] = {
    PAIR: _Sum(("src_domain", "dst_domain"), (), ("sent", "received", "denied", "refused", "senders")),
    HOUR: _Sum(("role",), ("hour_us",), (), ("latency",)),
    PEER: _Sum((), ("hour_us",), ("received",)),
    VERSION: _Sum(("peer_domain", "stub_ver"), (), ("messages",), ("latency", "fuel")),
}


def traffic_sums(shown: tuple[str, str] | None, traffic: pa.Table) -> pa.Table:
    """Traffic by `PAIR`, `HOUR` and `PEER`.

    Args:
        shown: A domain and its peer, for `PEER`.
        traffic: The columns `TRAFFIC` of `traffic_hourly`.
    """
    is_out = is_word(column(traffic, "role"), "out")
    sides = traffic.select(["src_domain", "dst_domain", "hour_us"])
    for name, counted, side in (
        ("sent", "messages", is_out),
        ("received", "messages", ~is_out),
        ("denied", "denied", is_out),
        ("refused", "denied", ~is_out),
    ):
        sides = sides.append_column(name, pa.array(np.where(side, numbers(traffic, counted, null=0), 0)))
    sides = sides.append_column("senders", pa.array(is_out.astype(np.int64)))
    parts = {PAIR: sides, HOUR: traffic}
    if shown is not None:
        is_shown = is_word(column(traffic, "our_domain"), shown[0]) & is_word(column(traffic, "src_domain"), shown[1])
        parts[PEER] = sides.filter(pa.array(is_shown & is_word(column(traffic, "role"), "in")))
    return _put_together((what, _SUMS[what].of(rows)) for what, rows in parts.items())


def stub_sums(hours: pa.Table) -> pa.Table:
    """Rows of `stub_hourly` by `VERSION`, those without a version left out; the columns `STUBS`."""
    known = hours.filter(pa.array(~np.asarray(column(hours, "stub_ver").is_null())))
    return _put_together([(VERSION, _SUMS[VERSION].of(known))])


def places_of_sums(rows: pa.Table, places: int) -> Numbers:
    """Partition rows of `traffic_sums` for adding up once more."""
    return places_of(rows, ("src_domain", "dst_domain", "hour_us"), np.zeros(rows.num_rows, np.int64), places)


def places_of_versions(rows: pa.Table, places: int) -> Numbers:
    """The same of `stub_sums`: versions of a peer meet."""
    return places_of(rows, ("peer_domain",), np.zeros(rows.num_rows, np.int64), places)


def whole_traffic(most: int, rows: pa.Table) -> pa.Table:
    """Rows of `traffic_sums` with equal keys as one; of pairs only so many that have the most messages."""
    whole = _again(rows, (PAIR, HOUR, PEER))
    is_pair = is_word(column(whole, "what"), PAIR)
    pairs = whole.filter(pa.array(is_pair))
    order = pc.sort_indices(
        pairs.select(["src_domain", "dst_domain"]).append_column("messages", pa.array(messages_of_pairs(pairs))),
        sort_keys=[("messages", "descending"), ("src_domain", "ascending"), ("dst_domain", "ascending")],
    )
    return pa.concat_tables([pairs.take(order[:most]), whole.filter(pa.array(~is_pair))])


def whole_versions(rows: pa.Table) -> pa.Table:
    """Rows of `stub_sums` with equal keys as one."""
    return _again(rows, (VERSION,))


def messages_of_pairs(pairs: pa.Table) -> Numbers:
    """The sender's count of messages, where its side is there, else the receiver's; of whole rows of `PAIR`."""
    return np.where(numbers(pairs, "senders") > 0, numbers(pairs, "sent"), numbers(pairs, "received"))


def _again(rows: pa.Table, whats: Sequence[str]) -> pa.Table:
    found = column(rows, "what")
    return _put_together((what, _SUMS[what].of(rows.filter(pa.array(is_word(found, what))))) for what in whats)


def _put_together(parts: Iterable[tuple[str, pa.Table]]) -> pa.Table:
    rows = [part.append_column("what", pa.repeat(pa.scalar(what), part.num_rows)) for what, part in parts]
    return pa.concat_tables(rows, promote_options="default")
