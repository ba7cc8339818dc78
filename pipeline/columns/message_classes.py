"""Level two of reconciliation in a worker: disputed records of both sides, message by message.

`pipeline.transforms.reconcile` says what the classes are and which comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns.clock_tables import ClockTables
from pipeline.columns.groups import (
    Numbers,
    codes,
    column,
    dense,
    from_zero,
    group_numbers,
    is_word,
    numbers,
    runs,
    starts_of,
    sums,
    words,
)
from pipeline.columns.hours import days_of
from pipeline.columns.packed import places_of
from pipeline.columns.side_records import DAY_US, DELIVERED, DUPLICATE, id_times_of
from pipeline.columns.side_totals import PAIR
from pipeline.core.case_classes import CASES
from pipeline.core.completeness import Completeness

Flags = NDArray[np.bool_]

CLASSES: Final = ("matched", *CASES, "undelivered")
COUNTED: Final = ("sent", "received", "refused", *CLASSES)
_IN_ORDER: Final = (
    *("undelivered", "unprovable", "lost", "pending", "unprovable", "orphan", "pending", "undelivered"),
    *("outcome", "altered", "duplicated", "size", "skewed"),
)
_DENIED: Final = "denied"
_SENDER_SLACK_US: Final = 1_000_000
_SIDES: Final = ("out", "in")


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Number ranges of the segments of one boot of a node: first and last record, ascending, and segment number."""

    first_seq: Numbers
    last_seq: Numbers
    segno: Numbers

    def holder(self, seq: int) -> int | None:
        """The segment that has a record."""
        place = int(np.searchsorted(self.first_seq, seq, side="right")) - 1
        return int(self.segno[place]) if place >= 0 and seq <= self.last_seq[place] else None


@dataclass(frozen=True, slots=True)
class Judging:
    """Inputs of the classification of messages.

    Attributes:
        days: Only messages of these.
        clocks: What the records' times usually differ by.
        completeness: What is proved about each domain's records; nothing about others.
        grace_us: How long after its own time a message may still be recorded by the other side.
        skew_us: Skewed is a message whose times differ by this much more than usual and than the time that the sender
            waited for its answer, or by this much less than usual.
        segments: Those that are accepted, by node and boot.
    """

    days: Collection[str]
    clocks: ClockTables
    completeness: Mapping[str, Completeness]
    grace_us: int
    skew_us: int
    segments: Mapping[tuple[str, int], Spans] = field(default_factory=dict)
    given_up_us: int = 0
    """Of messages sent before, what is not proved by now never will be."""

    def is_proven(self, domain: str, sent_us: int) -> bool:
        """True if manifests prove that the domain would have recorded the message by now."""
        known = self.completeness.get(domain)
        if known is None or not known.from_us <= sent_us <= known.until_us - self.grace_us:
            return False
        return _near(known.holes, sent_us, self.grace_us) is None

    def doubt(self, domain: str, sent_us: int, *, is_sender: bool) -> str:
        """Explain why it can never be known if the domain had a record of the message; "" if it can.

        A sender's record has the time of the message, one of the receiver's comes up to the grace later.
        """
        known = self.completeness.get(domain)
        slack_us = _SENDER_SLACK_US if is_sender else self.grace_us
        crash = _near(known.crashes, sent_us, slack_us) if known is not None else None
        if crash is not None:
            return f"crash between {_second(crash[0])} and {_second(crash[1])}"
        if sent_us >= self.given_up_us or self.is_proven(domain, sent_us):
            return ""
        hole = _near(known.holes, sent_us, self.grace_us) if known is not None else None
        if hole is not None:
            return f"records lost or in quarantine between {_second(hole[0])} and {_second(hole[1])}"
        return "too long ago, and its records were never proved complete"


def _near(spans: Iterable[tuple[int, int]], time_us: int, slack_us: int) -> tuple[int, int] | None:
    low_us, high_us = time_us - slack_us, time_us + slack_us
    return next((span for span in spans if span[0] <= high_us and low_us <= span[1]), None)


def _second(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def places_of_messages(entries: pa.Table, places: int) -> Numbers:
    """Partition so that all records of a message come to one place."""
    return places_of(entries, [*PAIR, "msg_id"], np.zeros(entries.num_rows, np.int64), places)


class _Contents:
    """Digests and sizes of messages as they crossed the border.

    Both sides may have a message more than once, if its sender repeated it under its own trace. They agree if each
    record of the one side has a record like it on the other one.

    Args:
        entries: The records.
        message: The message of each record, as a number.
        crossed: Which records say that the message crossed; the others have it as it was before.
        count: How many messages there are.
    """

    def __init__(self, entries: pa.Table, message: Numbers, crossed: Flags, count: int) -> None:
        self._digests = column(entries, "digest")
        self._message = message
        is_out = np.asarray(column(entries, "is_out"))
        self._is_received = crossed & ~is_out & np.asarray(self._digests.is_valid())
        digest = _codes_of_bytes(self._digests)
        size = numbers(entries, "size", null=-1)
        out, in_ = (np.flatnonzero(crossed & side) for side in (is_out, ~is_out))
        sent, received = (np.bincount(message[rows], minlength=count) for rows in (out, in_))
        is_even = sent == received
        # As often on both sides: one beside the other in the order of what they hold.
        ordered = [rows[is_even[message[rows]]] for rows in (out, in_)]
        ours, theirs = (rows[np.lexsort((size[rows], digest[rows], message[rows]))] for rows in ordered)
        is_known = (digest[ours] >= 0) & (digest[theirs] >= 0)
        self.differ: Flags = np.zeros(count, bool)
        """Messages of which the receiver has a digest that the sender does not have."""
        self.differ[message[ours[is_known & (digest[ours] != digest[theirs])]]] = True
        self.differ_in_size: Flags = np.zeros(count, bool)
        """Messages with another size, where both sides have as many records."""
        self.differ_in_size[message[ours[size[ours] != size[theirs]]]] = True
        # Otherwise each digest of the receiver's has to be one of the sender's, if these are known.
        known, shown = (rows[~is_even[message[rows]] & (digest[rows] >= 0)] for rows in (out, in_))
        has_any = np.bincount(message[known], minlength=count) > 0
        pair, _ = group_numbers([from_zero(message), from_zero(digest)])
        foreign = shown[has_any[message[shown]] & ~np.isin(pair[shown], pair[known])]
        self.differ[message[foreign]] = True

    def of_other_side(self, chosen: Numbers, best_rows: Iterable[tuple[int, int]]) -> pa.Array:
        """The receiver's digests of messages; where there are several, the lowest that is not the sender's.

        Args:
            chosen: Numbers of the messages.
            best_rows: Best record of each at the sender and at the receiver; -1 for none.
        """
        received: dict[int, set[bytes]] = {}
        for row in np.flatnonzero(self._is_received & np.isin(self._message, chosen)).tolist():
            received.setdefault(int(self._message[row]), set()).add(self._digests[row].as_py())
        found: list[bytes | None] = []
        for number, rows in zip(chosen.tolist(), best_rows, strict=True):
            own, theirs = (None if row < 0 else self._digests[row].as_py() for row in rows)
            different = sorted(one for one in received.get(number, ()) if own is not None and one != own)
            found.append(different[0] if different else theirs)
        return pa.array(found, pa.binary())


class Messages:
    """Messages, each with its best record on either side and its one class.

    A message stands for its best record: delivered before anything else, ignored duplicates last, then the earliest.

    Args:
        entries: All records of these messages, columns of `schemas.SIDE_RECORD` with `is_out`.
        by: What they are judged by.
    """

    def __init__(self, entries: pa.Table, by: Judging) -> None:
        self._entries = entries
        self._by = by
        pairs = [codes(column(entries, name)) for name in PAIR]
        ids = _codes_of_bytes(column(entries, "msg_id"))
        outcome = column(entries, "outcome")
        is_delivered, is_copy, is_denied = (is_word(outcome, word) for word in (DELIVERED, DUPLICATE, _DENIED))
        is_out = np.asarray(column(entries, "is_out"))
        crossed = np.where(is_out, is_delivered, ~is_copy)
        message, _ = group_numbers([*((places, len(found)) for found, places in pairs), from_zero(ids)])
        message, self.count = _by_days(message, numbers(entries, "bucket_us") // DAY_US, is_out, crossed)
        rank = np.where(is_delivered, 0, np.where(is_copy, 2, 1))
        by_seq = (words(column(entries, "node"))[1], numbers(entries, "boot", null=0), numbers(entries, "seq", null=0))
        order = np.lexsort((*by_seq[::-1], numbers(entries, "ts_us"), rank, message))

        self._best: dict[str, Numbers] = {}
        """Row of the best record of each message on either side; -1 where it has none."""
        self.copies: dict[str, Numbers] = {}
        for side, is_side in zip(_SIDES, (is_out, ~is_out), strict=True):
            rows = order[is_side[order]]
            starts = starts_of(message[rows])
            self._best[side] = np.full(self.count, -1)
            self._best[side][message[rows[starts]]] = rows[starts]
            self.copies[side] = np.bincount(message[crossed & is_side], minlength=self.count)
        self._contents = _Contents(entries, message, crossed, self.count)

        self._outcome = {DELIVERED: is_delivered, _DENIED: is_denied}
        self._any = np.where(self._best["out"] >= 0, self._best["out"], self._best["in"])
        self.sent_us = numbers(entries, "sent_us")[self._any]
        self.dt = days_of(self.sent_us)
        self.classes = self._judged()
        days, day = codes(self.dt)
        self._is_meant = np.array([one in by.days for one in days], bool)[day]

    def counts(self) -> pa.Table:
        """Messages of the days in question by pair and day: its keys and `COUNTED`."""
        keys = {name: column(self._entries, name).take(pa.array(self._any)) for name in PAIR} | {"dt": self.dt}
        coded = [codes(texts) for texts in keys.values()]
        group, _ = group_numbers((places, len(found)) for found, places in coded)
        chosen = np.flatnonzero(self._is_meant)
        order, starts = runs(group[chosen])
        order = chosen[order]
        is_refused = (self.classes == "matched") & ~self._has("in", DELIVERED)
        flags = {"sent": self.copies["out"] > 0, "received": self.copies["in"] > 0, "refused": is_refused}
        flags |= {word: self.classes == word for word in CLASSES}
        one = pa.array(order[starts])
        return pa.table(
            {name: texts.take(one) for name, texts in keys.items()}
            | {name: np.add.reduceat(flag[order].astype(np.int64), starts) for name, flag in flags.items()}
        )

    def cases(self) -> pa.Table:
        """Messages of the days in question on which the sides differ, with what proves it; rows of `recon_case`."""
        chosen = np.flatnonzero(self._is_meant & np.isin(self.classes, CASES))
        records = {side: self._records(side, chosen) for side in _SIDES}
        common = self._entries.select([*PAIR, "msg_id"]).take(pa.array(self._any[chosen]))
        found: dict[str, Any] = {name: common.column(name) for name in common.column_names}
        found["case_class"] = pa.array(self.classes[chosen].tolist(), pa.string())
        found |= {f"copies_{side}": pa.array(self.copies[side][chosen], pa.int32()) for side in _SIDES}
        for side in _SIDES:
            for name in ("ts_us", "node", "size", "outcome"):
                found[f"{side}_{name}"] = records[side].column(name)
        found["out_digest"] = records["out"].column("digest")
        best_rows = zip(*(self._best[side][chosen].tolist() for side in _SIDES), strict=True)
        found["in_digest"] = self._contents.of_other_side(chosen, best_rows)
        found["evidence"] = pa.array(list(self._evidence(chosen, records)), pa.string())
        found["dt"] = self.dt.take(pa.array(chosen))
        return pa.table(found)

    def _has(self, side: str, word: str) -> Flags:
        best = self._best[side]
        found: Flags = (best >= 0) & self._outcome[word][best]
        return found

    def _judged(self) -> NDArray[np.str_]:
        is_out, is_in = (self._best[side] >= 0 for side in _SIDES)
        is_claimed, is_held = self._has("out", DELIVERED), self._has("in", DELIVERED)
        differ = np.where(is_claimed, self.copies["in"] == 0, self._has("out", _DENIED) | is_held)
        is_unclear = np.where(is_in, ~is_out, is_claimed)  # one side has it, the other one should
        proven, unprovable = self._proven(np.flatnonzero(is_unclear), is_in)
        return np.select(
            [
                ~is_in & ~is_claimed,
                ~is_in & unprovable,
                ~is_in & proven,
                ~is_in,
                ~is_out & unprovable,
                ~is_out & proven,
                ~is_out,
                ~is_claimed & ~differ,
                differ,
                # From here on both sides say that it crossed.
                self._contents.differ,
                self.copies["out"] != self.copies["in"],
                self._contents.differ_in_size,
                self._skewed(),
            ],
            [*_IN_ORDER],
            "matched",
        )

    def _proven(self, unclear: Numbers, is_in: Flags) -> tuple[Flags, Flags]:
        """Of which messages it is proved that a side has no record, and of which nobody will ever know."""
        proven, unprovable = np.zeros(self.count, bool), np.zeros(self.count, bool)
        rows = self._entries.select(PAIR).take(pa.array(self._any[unclear])).to_pylist()
        for number, row, sent_us in zip(unclear.tolist(), rows, self.sent_us[unclear].tolist(), strict=True):
            is_sender = bool(is_in[number])
            domain = row["src_domain" if is_sender else "dst_domain"]
            proven[number] = self._by.is_proven(domain, sent_us)
            unprovable[number] = bool(self._by.doubt(domain, sent_us, is_sender=is_sender))
        return proven, unprovable

    def _skewed(self) -> Flags:
        out, in_ = self._best["out"], self._best["in"]
        at = pa.array(self._any)
        source, target = (column(self._entries, name).take(at) for name in PAIR)
        usual = self._by.clocks.usual(source, target, self.sent_us)
        # By the time of the id, which is what totals know. Ids without one say nothing there, so they do not here.
        sent_us = numbers(self._entries, "sent_us")[out]
        is_timed = id_times_of(column(self._entries, "msg_id").take(pa.array(out, mask=out < 0))) == sent_us
        unusual_us = numbers(self._entries, "ts_us")[in_] - sent_us - usual.usual_us
        waited_us = numbers(self._entries, "span_us", null=0)[out]
        allowed_us = usual.doubt_us + self._by.skew_us
        is_unusual = (unusual_us < -allowed_us) | (unusual_us > waited_us + allowed_us)
        skewed: Flags = usual.is_known & is_timed & is_unusual
        return skewed

    def _records(self, side: str, chosen: Numbers) -> pa.Table:
        rows = self._best[side][chosen]
        return self._entries.take(pa.array(rows, mask=rows < 0))

    def _evidence(self, chosen: Numbers, records: Mapping[str, pa.Table]) -> Iterator[str]:
        pairs = self._entries.select(PAIR).take(pa.array(self._any[chosen])).to_pylist()
        sides = zip(*(records[side].select(["node", "boot", "seq"]).to_pylist() for side in _SIDES), strict=True)
        for pair, both, sent_us in zip(pairs, sides, self.sent_us[chosen].tolist(), strict=True):
            domains = pair["src_domain"], pair["dst_domain"]
            doubts = [self._by.doubt(one, sent_us, is_sender=one == domains[0]) for one in domains]
            places = map(self._place, domains, both, doubts)
            yield "; ".join(places)

    def _place(self, domain: str, row: Mapping[str, Any], doubt: str) -> str:
        if row["node"] is not None:
            spans = self._by.segments.get((row["node"], row["boot"]))
            holder = spans.holder(row["seq"]) if spans is not None else None
            segment = [f"segment {holder}"] if holder is not None else []
            return " ".join([f"{domain}: node {row['node']}", f"boot {row['boot']}", *segment, f"record {row['seq']}"])
        known = self._by.completeness.get(domain)
        if doubt:
            return f"{domain}: no record, unprovable ({doubt})"
        if known is None:
            return f"{domain}: no record, completeness unknown"
        return f"{domain}: no record, complete until {_second(known.until_us)} by {known.proof}"


def pair_rows(parts: pa.Table, completeness: Mapping[str, Completeness]) -> pa.Table:
    """Counts of both levels added up per pair and day; rows of `recon_pair`.

    Args:
        parts: From `side_totals.equal_counts` and `Messages.counts`; what one of them does not count is null.
        completeness: What is proved about each domain's records.
    """
    keys = [words(column(parts, name)) for name in (*PAIR, "dt")]
    group, _ = group_numbers((places, len(found)) for found, places in keys)
    order, starts = runs(group)
    rows = parts.select([*PAIR, "dt"]).take(pa.array(order[starts]))
    added = {name: sums(numbers(parts, name, null=0)[order], starts) for name in COUNTED}
    until_us = {domain: known.until_us for domain, known in completeness.items()}
    until = [
        min((until_us[row[name]] for name in PAIR if row[name] in until_us), default=None) for row in rows.to_pylist()
    ]
    return pa.table(
        {
            **{name: rows.column(name) for name in rows.column_names},
            **added,
            "complete_until_us": pa.array(until, pa.int64()),
        }
    )


def places_of_pairs(counts: pa.Table, places: int) -> Numbers:
    """Partition counts of a pair and day for adding up."""
    return places_of(counts, [*PAIR, "dt"], np.zeros(counts.num_rows, np.int64), places)


def _by_days(message: Numbers, day: Numbers, is_out: Flags, crossed: Flags) -> tuple[Numbers, int]:
    """Messages apart that have one id because their sender repeated it on another day.

    Those of a day in which both sides have equally many are messages of their own, as totals take them. The others
    are one: its records may be on both sides of a midnight.

    Returns:
        A number for the message of each record, from 0, and how many there are.
    """
    message, messages = dense(message)
    part, parts = dense(group_numbers([(message, messages), from_zero(day)])[0])
    if parts == messages:
        return message, messages
    sent, received = (np.bincount(part[crossed & side], minlength=parts) for side in (is_out, ~is_out))
    is_own = (sent == received) & (sent > 0)
    return dense(np.where(is_own[part], part, parts + message))


def _codes_of_bytes(values: pa.Array) -> Numbers:
    """A number for each different value; -1 for null."""
    indices = values.dictionary_encode().indices
    found: Numbers = np.asarray(indices.fill_null(-1) if indices.null_count else indices).astype(np.int64)
    return found
