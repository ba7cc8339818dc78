"""Stretches: accepted segments of one start of a node that follow each other, by number and by hash. Pure.

A node that runs for a year writes millions of segments. What matters of a stretch of them is how it begins, how it
ends, and what is missing in between: a gap, a fork or another start begins a new one. So completeness is proved, gaps
are listed and the next segment is judged from a few stretches, however many segments there are.

A segment enters as a stretch of its own, which is then joined to its neighbours; so the order in which segments come
changes nothing, and one that is in there already changes nothing either.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

from pipeline.core.findings import SIGNATURE_FINDINGS, Finding, SegmentVerdict

Period: TypeAlias = tuple[int, int]
Chain: TypeAlias = tuple[str, str]
"""Node and kind."""

_ENDS: Final = ("segno", "first_seq", "last_seq", "sha256", "prev_sha256", "opened_us", "closed_us")
_FIRST: Final = ("first_segno", "first_seq", "first_last_seq", *(f"first_{name}" for name in _ENDS[3:]))
_LAST: Final = ("last_segno", "last_first_seq", "last_seq", *(f"last_{name}" for name in _ENDS[3:]))
_SAME: Final = (
    *("before_last_closed_us", "segments", "is_disputed", "lost_records", "quarantined_rows"),
    *("unaccounted_records", "unchecked_segments", "newest_closed_us"),
)
ENTRY: Final = (
    *("node", "kind", "boot", *_ENDS, "verdict", "findings", "lost_records", "rows_quarantined"),
    *("uncertain_from_us", "uncertain_until_us"),
)
"""Columns of the ledger that stretches are made of."""


@dataclass(frozen=True, slots=True, order=True)
class Accepted:
    """The facts that are kept of an accepted segment."""

    boot: int
    segno: int
    first_seq: int
    last_seq: int
    sha256: str
    prev_sha256: str
    opened_us: int
    closed_us: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Segments of one node, kind and start that follow each other.

    Attributes:
        first, last: Its ends; the same one when there is only one.
        before_last_closed_us: End of the segment before the last; None when there is only one.
        segments: How many there are.
        is_disputed: Other content came under the number of the last one.
        lost_records, quarantined_rows: Added up.
        unaccounted_records: Numbers of records between segments that none of them has.
        unchecked_segments: Segments without a signature that was found to be good.
        newest_closed_us: The latest end of any of them.
        first_uncertain_us: As the first segment says it: where a crash may have taken records; zeros for no crash.
        holes: Beginning and end of segments with missing records.
        crashes: The same as `first_uncertain_us` of all others, not reaching behind the segment before.
    """

    node: str
    kind: str
    first: Accepted
    last: Accepted
    _: KW_ONLY
    before_last_closed_us: int | None = None
    segments: int = 1
    is_disputed: bool = False
    lost_records: int
    quarantined_rows: int
    unaccounted_records: int = 0
    unchecked_segments: int
    newest_closed_us: int
    first_uncertain_us: Period
    holes: tuple[Period, ...]
    crashes: tuple[Period, ...] = ()

    @property
    def boot(self) -> int:
        """Number of the boot of the node."""
        return self.first.boot

    def has(self, boot: int, segno: int) -> bool:
        """True if the segment with this number is one of them."""
        return self.boot == boot and self.first.segno <= segno <= self.last.segno

    def precedes(self, other: Stretch) -> bool:
        """True if the other one goes on where this one ends."""
        return (self.boot, self.last.segno + 1) == (
            other.boot,
            other.first.segno,
        ) and other.first.prev_sha256 == self.last.sha256

    def with_next(self, other: Stretch) -> Stretch:
        """Both as one; `precedes` holds. That there is a next one settles a dispute about the last."""
        crash = clipped(other.first_uncertain_us, self.last.closed_us)
        return replace(
            self,
            last=other.last,
            before_last_closed_us=self.last.closed_us if other.segments == 1 else other.before_last_closed_us,
            segments=self.segments + other.segments,
            is_disputed=other.is_disputed,
            lost_records=self.lost_records + other.lost_records,
            quarantined_rows=self.quarantined_rows + other.quarantined_rows,
            unaccounted_records=self.unaccounted_records
            + other.unaccounted_records
            + (other.first.first_seq - self.last.last_seq - 1),
            unchecked_segments=self.unchecked_segments + other.unchecked_segments,
            newest_closed_us=max(self.newest_closed_us, other.newest_closed_us),
            holes=self.holes + other.holes,
            crashes=self.crashes + crash + other.crashes,
        )

    def row(self) -> dict[str, Any]:
        """Its row of `segment_stretch`."""
        return {
            **{column: getattr(self.first, name) for column, name in zip(_FIRST, _ENDS, strict=True)},
            **{column: getattr(self.last, name) for column, name in zip(_LAST, _ENDS, strict=True)},
            "node": self.node,
            "kind": self.kind,
            "boot": self.boot,
            "first_uncertain_from_us": self.first_uncertain_us[0],
            "first_uncertain_until_us": self.first_uncertain_us[1],
            "holes": [list(one) for one in self.holes],
            "crashes": [list(one) for one in self.crashes],
            **{name: getattr(self, name) for name in _SAME},
        }


def stretch_of(row: Mapping[str, Any]) -> Stretch:
    """A stretch from its row."""
    boot = row["boot"]
    return Stretch(
        row["node"],
        row["kind"],
        Accepted(boot, *(row[name] for name in _FIRST)),
        Accepted(boot, *(row[name] for name in _LAST)),
        first_uncertain_us=(row["first_uncertain_from_us"], row["first_uncertain_until_us"]),
        holes=_periods(row["holes"]),
        crashes=_periods(row["crashes"]),
        **{name: row[name] for name in _SAME},
    )


def clipped(uncertain_us: Period, written_us: int) -> tuple[Period, ...]:
    """Shorten the period in which a crash may have taken records by what was sealed before; none if it is empty."""
    from_us, until_us = max(uncertain_us[0], written_us), uncertain_us[1]
    return ((from_us, until_us),) if until_us > from_us else ()


class Stretches:
    """The stretches of all nodes and kinds.

    Args:
        known: What there is already.
    """

    def __init__(self, known: Iterable[Stretch] = ()) -> None:
        self._chains: dict[Chain, list[Stretch]] = {}
        for one in sorted(known, key=in_order):
            self._chains.setdefault((one.node, one.kind), []).append(one)

    def __iter__(self) -> Iterator[Stretch]:
        """All, by node and kind and in their order."""
        for chain in sorted(self._chains):
            yield from self._chains[chain]

    def chains(self) -> Mapping[Chain, Sequence[Stretch]]:
        """The stretches of each node and kind, in their order."""
        return dict(sorted(self._chains.items()))

    def of(self, node: str, kind: str) -> Sequence[Stretch]:
        """Those of one node and kind, in their order."""
        return self._chains.get((node, kind), ())

    def holder(self, node: str, kind: str, boot: int, segno: int) -> Stretch | None:
        """The one that has the segment with this number."""
        chain = self.of(node, kind)
        place = bisect_right(chain, (boot, segno), key=_number) - 1
        return chain[place] if place >= 0 and chain[place].has(boot, segno) else None

    def enter(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in rows of the ledger, of the columns `ENTRY`; those of accepted segments, and disputes about them."""
        disputes = []
        for row in rows:
            findings = frozenset(row["findings"] or ())
            if row["verdict"] == SegmentVerdict.ACCEPTED.value:
                self._add(_stretch_of_entry(row, findings))
            elif Finding.REUSED.code in findings and Finding.SIGNATURE.code not in findings:
                disputes.append((row["node"], row["kind"], row["boot"], row["segno"]))
        for dispute in disputes:
            self._dispute(*dispute)

    def _add(self, one: Stretch) -> None:
        if self.holder(one.node, one.kind, one.boot, one.first.segno) is not None:
            return
        chain = self._chains.setdefault((one.node, one.kind), [])
        place = bisect_left(chain, _number(one), key=_number)
        if place and chain[place - 1].precedes(one):
            place -= 1
            one = chain.pop(place).with_next(one)
        if place < len(chain) and one.precedes(chain[place]):
            one = one.with_next(chain.pop(place))
        chain.insert(place, one)

    def _dispute(self, node: str, kind: str, boot: int, segno: int) -> None:
        one = self.holder(node, kind, boot, segno)
        if one is not None and one.last.segno == segno:
            chain = self._chains[node, kind]
            chain[chain.index(one)] = replace(one, is_disputed=True)


def missing_numbers(stretches: Sequence[Stretch]) -> list[tuple[int, int, int]]:
    """Holes in the chain of one node and kind: boot, first and last missing number, oldest first.

    Numbers of a boot start at 1. What is missing at the end of an earlier boot shows in the chain: the first segment
    of the next boot then names one that is not here; that hole is boot, next number, 0 (how many is not known).
    """
    holes = []
    for before, one in pairwise(stretches):
        is_same_boot = before.boot == one.boot
        expected = before.last.segno + 1 if is_same_boot else 1
        if not is_same_boot and one.first.segno == 1 and one.first.prev_sha256 not in {"", before.last.sha256}:
            holes.append((before.boot, before.last.segno + 1, 0))
        if one.first.segno > expected:
            holes.append((one.boot, expected, one.first.segno - 1))
    return holes


def missing_times(stretches: Sequence[Stretch]) -> list[Period]:
    """From when until when those holes are, by the clock of the node."""
    between = ((before.last.closed_us, one.first.opened_us, [before, one]) for before, one in pairwise(stretches))
    return [(begin_us, end_us) for begin_us, end_us, both in between if begin_us < end_us and missing_numbers(both)]


def unaccounted_records(stretches: Sequence[Stretch]) -> int:
    """Count the record numbers that no segment has: between segments with consecutive numbers, and inside stretches."""
    between = sum(
        one.first.first_seq - before.last.last_seq - 1
        for before, one in pairwise(stretches)
        if (before.boot, before.last.segno + 1) == (one.boot, one.first.segno)
    )
    return between + sum(one.unaccounted_records for one in stretches)


def _stretch_of_entry(row: Mapping[str, Any], findings: frozenset[str]) -> Stretch:
    only = Accepted(row["boot"], *(row[name] for name in _ENDS))
    lost, quarantined = row["lost_records"] or 0, row["rows_quarantined"] or 0
    return Stretch(
        row["node"],
        row["kind"],
        only,
        only,
        lost_records=lost,
        quarantined_rows=quarantined,
        unchecked_segments=int(not findings.isdisjoint(one.code for one in SIGNATURE_FINDINGS)),
        newest_closed_us=only.closed_us,
        first_uncertain_us=(row["uncertain_from_us"] or 0, row["uncertain_until_us"] or 0),
        holes=((only.opened_us, only.closed_us),) if lost + quarantined else (),
    )


def _periods(values: Iterable[Sequence[int]] | None) -> tuple[Period, ...]:
    return tuple((begin, end) for begin, end in values or ())


def _number(one: Stretch) -> tuple[int, int]:
    return one.boot, one.first.segno


def in_order(one: Stretch) -> tuple[str, str, int, int]:
    """Sorts stretches as their segments were written."""
    return one.node, one.kind, one.boot, one.first.segno
