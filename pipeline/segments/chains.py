"""Whether a segment fits to the others of its node: numbers, chain, copies. Pure.

The first to come under a number keeps it. The same content again is a copy and is ignored; other content is rejected;
a number higher than expected is accepted, and the gap is reported until what is missing comes. Of several that come at
once under one number, the signed ones are judged first, and of these the one that the segment behind it names.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.core.completeness import GRACE_S
from pipeline.core.findings import GONE, SIGNATURE_FINDINGS, Finding, SegmentVerdict
from pipeline.core.stretches import Accepted
from pipeline.segments.spool import Segment, moment
from protofly.records import SegmentManifest

_Named: TypeAlias = tuple[str, str, str, bool]
"""Node, kind, hash, and whether to be named by a segment whose signature is not known to be good is enough."""


@dataclass(slots=True)
class SegmentChain:
    """Accepted segments of one node and kind, in their order."""

    entries: list[Accepted] = field(default_factory=list)

    def at(self, boot: int, segno: int) -> Accepted | None:
        """The segment with this number."""
        index = bisect_left(self.entries, (boot, segno), key=_number)
        if index < len(self.entries) and _number(self.entries[index]) == (boot, segno):
            return self.entries[index]
        return None

    def around(self, boot: int, segno: int) -> tuple[Accepted | None, Accepted | None]:
        """The known segments right before and right behind this number, of whichever boot."""
        index = bisect_left(self.entries, (boot, segno), key=_number)
        before = self.entries[index - 1] if index else None
        behind = self.entries[index] if index < len(self.entries) else None
        return before, behind

    def add(self, manifest: SegmentManifest) -> None:
        """Remember an accepted one."""
        insort(
            self.entries,
            Accepted(
                manifest.boot,
                manifest.segno,
                manifest.first_seq,
                manifest.last_seq,
                manifest.sha256,
                manifest.prev_sha256,
                manifest.opened_us,
                manifest.closed_us,
            ),
        )


class SegmentChains:
    """The chains of all nodes, begun with what the ledger says.

    Args:
        accepted: Node, kind and entry of segments accepted earlier: at least the ends of all stretches, and those
            whose numbers come again.
    """

    def __init__(self, accepted: Iterable[tuple[str, str, Accepted]] = ()) -> None:
        self._chains: dict[tuple[str, str], SegmentChain] = {}
        for node, kind, entry in accepted:
            self._chains.setdefault((node, kind), SegmentChain()).entries.append(entry)
        for chain in self._chains.values():
            chain.entries.sort()

    def judge(self, segments: Iterable[Segment]) -> list[Segment]:
        """Give every segment its verdict, and take the accepted ones into the chains. Returns them in judged order."""
        arrived = list(segments)
        named = self._named(arrived)
        ordered = sorted(arrived, key=lambda segment: _order(segment, named))
        for segment in ordered:
            self._judge(segment)
        return ordered

    def _named(self, arrived: Iterable[Segment]) -> set[_Named]:
        """Which content the segments behind name, for good signatures and for bad ones.

        A damaged segment counts as well: the chain stands in its manifest.
        """
        named = {
            (node, kind, entry.prev_sha256, is_weak)
            for (node, kind), chain in self._chains.items()
            for entry in chain.entries
            for is_weak in (False, True)
        }
        for segment in arrived:
            manifest = segment.manifest
            if manifest is not None and Finding.SIGNATURE not in segment.findings:
                for is_weak in {True, _is_weakly_signed(segment)}:
                    named.add((manifest.node, manifest.kind.value, manifest.prev_sha256, is_weak))
        return named

    def _judge(self, segment: Segment) -> None:
        manifest = segment.manifest
        segment.verdict = SegmentVerdict.REJECTED
        is_gone = not GONE.isdisjoint(segment.findings)
        if manifest is None or (segment.is_fatal and not is_gone):
            return
        chain = self._chains.setdefault((manifest.node, manifest.kind.value), SegmentChain())
        same = chain.at(manifest.boot, manifest.segno)
        if same is not None and same.sha256 == manifest.sha256:
            segment.findings = [finding for finding in segment.findings if finding not in GONE]
            segment.find(Finding.COPY)
            segment.verdict = SegmentVerdict.COPY
            return
        if is_gone:
            return
        before, behind = chain.around(manifest.boot, manifest.segno)
        if same is not None:
            segment.find(Finding.REUSED, f"accepted earlier with SHA-256 {same.sha256[:16]}…")
            return
        if _overlaps(manifest, before, behind):
            segment.find(Finding.OVERLAP, f"records {manifest.first_seq}…{manifest.last_seq}")
            return
        _compare_with_predecessor(segment, manifest, before)
        _compare_with_successor(segment, manifest, behind)
        _compare_clocks(segment, manifest, before, behind)
        if before is None and behind is None and (manifest.segno > 1 or manifest.prev_sha256):
            segment.find(Finding.FIRST)
        segment.verdict = SegmentVerdict.ACCEPTED
        chain.add(manifest)


def _number(entry: Accepted) -> tuple[int, int]:
    return entry.boot, entry.segno


def _order(segment: Segment, named: Collection[_Named]) -> tuple[object, ...]:
    name, manifest, is_weak = segment.name, segment.manifest, _is_weakly_signed(segment)
    numbers = (name.kind.value, name.node, name.boot, name.segno) if name else ("~", "", 0, 0)
    is_named = manifest is not None and (manifest.node, manifest.kind.value, manifest.sha256, is_weak) in named
    return (*numbers, is_weak, not is_named, manifest.closed_us if manifest else 0, segment.place)


def _is_weakly_signed(segment: Segment) -> bool:
    return bool(SIGNATURE_FINDINGS & set(segment.findings))


def _overlaps(manifest: SegmentManifest, before: Accepted | None, behind: Accepted | None) -> bool:
    # In one boot records are numbered as segments are, so looking at both neighbours is enough.
    if before is not None and before.boot == manifest.boot and manifest.first_seq <= before.last_seq:
        return True
    return behind is not None and behind.boot == manifest.boot and behind.first_seq <= manifest.last_seq


def _compare_with_predecessor(segment: Segment, manifest: SegmentManifest, before: Accepted | None) -> None:
    if before is None:
        return
    if before.boot == manifest.boot:
        if before.segno < manifest.segno - 1:
            segment.find(Finding.GAP, f"numbers {before.segno + 1}…{manifest.segno - 1}")
            return
        if before.sha256 != manifest.prev_sha256:
            segment.find(Finding.CHAIN_BREAK)
        if manifest.first_seq != before.last_seq + 1:
            segment.find(Finding.SEQUENCE_BREAK, f"{manifest.first_seq - before.last_seq - 1} records")
    elif manifest.segno > 1:
        segment.find(Finding.GAP, f"numbers 1…{manifest.segno - 1}")
    elif not manifest.prev_sha256:
        segment.find(Finding.CHAIN_START)
    elif manifest.prev_sha256 != before.sha256:
        segment.find(Finding.GAP, f"segments of boot {before.boot} behind number {before.segno}")


def _compare_clocks(
    segment: Segment, manifest: SegmentManifest, before: Accepted | None, behind: Accepted | None
) -> None:
    """A node opens a segment after it has closed the one before, by its own clock; records may be a little older."""
    slack_us = GRACE_S * 1_000_000
    if (
        before is not None
        and manifest.prev_sha256 == before.sha256
        and manifest.opened_us < before.closed_us - slack_us
    ):
        times = f"opened {moment(manifest.opened_us)}, the one before it closed {moment(before.closed_us)}"
        segment.find(Finding.CLOCK, times)
    if (
        behind is not None
        and behind.prev_sha256 == manifest.sha256
        and behind.opened_us < manifest.closed_us - slack_us
    ):
        times = f"closed {moment(manifest.closed_us)}, the one behind it opened {moment(behind.opened_us)}"
        segment.find(Finding.CLOCK, times)


def _compare_with_successor(segment: Segment, manifest: SegmentManifest, behind: Accepted | None) -> None:
    if behind is None:
        return
    segment.find(Finding.LATE)
    is_next = behind.segno == manifest.segno + 1 if behind.boot == manifest.boot else behind.segno == 1
    if is_next and behind.boot == manifest.boot and behind.prev_sha256 != manifest.sha256:
        segment.find(Finding.CHAIN_BREAK, "the one behind it names another")
