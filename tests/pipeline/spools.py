"""Genuine segments for tests, written by the node's own code."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from msg_node.records.segment import OpenSegment
from protofly.block_encoding import encode_blocks
from protofly.record_segments import (
    BLOCKS_VERSION,
    LINES_VERSION,
    MANIFEST_SUFFIX,
    SegmentFacts,
    SegmentName,
    Signer,
    encode_manifest,
    sealed_suffix,
    sign_manifest,
)
from protofly.records import (
    RECORD_TYPES,
    Closure,
    DecisionRecord,
    LinkEvent,
    MessageRecord,
    Record,
    RecordKind,
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
        self,
        spool: Path,
        *,
        node: str = NODE,
        boot: int = 1,
        kind: RecordKind = RecordKind.MESSAGE,
        signer: Signer | None = SIGNER,
        version: int = LINES_VERSION,
    ) -> None:
        spool.mkdir(parents=True, exist_ok=True)
        self.spool = spool
        self.node = node
        self.boot = boot
        self.kind = kind
        self.signer = signer
        self.version = version
        self.prev_sha256 = ""
        self.segno = 0
        self.seq = 0

    def seal(self, records: Sequence[Record], *, closure: Closure = "time", lost: int = 0) -> SegmentManifest:
        """One segment with these records."""
        self.segno += 1
        name = SegmentName(self.kind, self.node, self.boot, self.segno)
        times = [record.ts_us for record in records] or [START_US]
        facts = SegmentFacts(self.seq + 1, min(times), self.version, lost_records=lost)
        if self.version == BLOCKS_VERSION:
            messages = [record for record in records if isinstance(record, MessageRecord)]
            blocks = encode_blocks(messages, node=self.node, boot=self.boot, first_seq=self.seq + 1)
            self.seq += len(records) + lost
            return self._write(name, facts, [one.content for one in blocks], times if records else [], closure)
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
        half = lines.find(b"\n", len(lines) // 2) + 1
        return self._write(name, facts, [lines[:half], lines[half:]], times, closure)

    def seal_frames(self, frames: bytes, records: int) -> SegmentManifest:
        """One segment of this content, well signed, whatever is in it."""
        manifest = self.seal([message(self.seq + number) for number in range(1, records + 1)])
        name = SegmentName(self.kind, self.node, self.boot, self.segno)
        (self.spool / f"{name}{sealed_suffix(self.version)}").write_bytes(frames)
        manifest = msgspec.structs.replace(
            manifest, size_bytes=len(frames), sha256=sha256(frames).hexdigest(), signature=""
        )
        manifest = sign_manifest(manifest, self.signer)
        (self.spool / f"{name}{MANIFEST_SUFFIX}").write_bytes(encode_manifest(manifest))
        self.prev_sha256 = manifest.sha256
        return manifest

    def _write(
        self, name: SegmentName, facts: SegmentFacts, frames: Sequence[bytes], times: Sequence[int], closure: Closure
    ) -> SegmentManifest:
        segment = OpenSegment(self.spool, name, facts)
        segment.write_frames(*frames)
        facts.add(times, (), ())
        closed_us = max(times, default=START_US) + SECOND_US
        manifest = segment.seal(closure, prev_sha256=self.prev_sha256, closed_us=closed_us, signer=self.signer)
        self.prev_sha256 = manifest.sha256
        return manifest
