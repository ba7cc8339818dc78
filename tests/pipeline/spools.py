"""Genuine segments for tests, written by the node's own code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from msg_node.records.segment import OpenSegment
from protofly.record_segments import SegmentFacts, SegmentName, Signer
from protofly.records import (
    RECORD_TYPES,
    Closure,
    DecisionRecord,
    Kind,
    LinkEvent,
    MessageRecord,
    Record,
    SegmentManifest,
    StubEvent,
)
from protofly.signatures import SigningKey

START_US = 1_772_323_200_000_000
"""2026-03-01T00:00:00Z."""
SECOND_US = 1_000_000
NODE = "mn-1.a.example"
KEY = SigningKey.from_seed("node-1", bytes(range(32)))
SIGNER = Signer(KEY.key_id, KEY.sign)


def message(number: int, **members: object) -> MessageRecord:
    """A good record of a message; the same number gives the same one."""
    record = MessageRecord(
        ts_us=START_US + number * SECOND_US,
        role="out",
        msg_id=f"{number:032x}",
        attempt=1,
        src_domain="a.example",
        dst_domain="b.example",
        src_key="alice",
        dst_key="bob",
        msg_type="text/plain",
        size_in=100 + number,
        digest=f"{number * 7:032x}",
        outcome="delivered",
        d_total_us=1500,
        decision="permit",
    )
    for name, value in members.items():
        setattr(record, name, value)
    return record


def link_event(number: int) -> LinkEvent:
    return LinkEvent(ts_us=START_US + number * SECOND_US, domain="b.example", event="up")


def stub_event(number: int) -> StubEvent:
    return StubEvent(ts_us=START_US + number * SECOND_US, domain="b.example", event="started")


def decision(number: int) -> DecisionRecord:
    return DecisionRecord(
        ts_us=START_US + number * SECOND_US,
        hook="out",
        effect="deny",
        permitted=False,
        policy_rev="r1",
        src_domain="a.example",
        dst_domain="b.example",
        shadow=("s1",),
    )


class SegmentWriter:
    """Writes the segments of one node and kind, one after the other."""

    def __init__(
        self, spool: Path, *, node: str = NODE, boot: int = 1, kind: Kind = Kind.MESSAGE, signer: Signer | None = SIGNER
    ) -> None:
        spool.mkdir(parents=True, exist_ok=True)
        self.spool = spool
        self.node = node
        self.boot = boot
        self.kind = kind
        self.signer = signer
        self.prev_sha256 = ""
        self.segno = 0
        self.seq = 0

    def reboot(self) -> None:
        """Begin to number anew."""
        self.boot += 1
        self.segno = self.seq = 0

    def seal(self, records: Sequence[Record], *, closure: Closure = "time", lost: int = 0) -> SegmentManifest:
        """One segment with these records."""
        self.segno += 1
        name = SegmentName(self.kind, self.node, self.boot, self.segno)
        times = [record.ts_us for record in records] or [START_US]
        facts = SegmentFacts(self.seq + 1, min(times), lost_records=lost)
        for record in records:
            self.seq += 1
            record.v = RECORD_TYPES[self.kind].schema_version
            record.node, record.boot, record.seq = self.node, self.boot, self.seq
        self.seq += lost
        return self.write(name, facts, msgspec.json.Encoder().encode_lines(records), times if records else [], closure)

    def seal_lines(self, lines: bytes) -> SegmentManifest:
        """One segment with these lines, whatever they are; numbers and times are as if they were good records."""
        self.segno += 1
        count = lines.count(b"\n")
        name = SegmentName(self.kind, self.node, self.boot, self.segno)
        facts = SegmentFacts(self.seq + 1, START_US)
        self.seq += count
        return self.write(name, facts, lines, [START_US] * (count - 1) + [START_US + 3600 * SECOND_US], "time")

    def write(
        self, name: SegmentName, facts: SegmentFacts, lines: bytes, times: Sequence[int], closure: Closure
    ) -> SegmentManifest:
        segment = OpenSegment(self.spool, name, facts)
        half = lines.find(b"\n", len(lines) // 2) + 1
        for frame in (lines[:half], lines[half:]):
            segment.write_frame(frame)
        facts.add(times, (), ())
        closed_us = max(times, default=START_US) + SECOND_US
        manifest = segment.seal(closure, prev_sha256=self.prev_sha256, closed_us=closed_us, signer=self.signer)
        self.prev_sha256 = manifest.sha256
        return manifest
