"""Records of one kind on their way into numbered segments. Blocking; belongs to the writer's thread."""

from __future__ import annotations

import time
from operator import attrgetter
from pathlib import Path

import msgspec

from msg_node.records.recovery import Chain
from msg_node.records.segment import OpenSegment
from protofly.record_segments import SegmentFacts, SegmentName, Signer, by_pair
from protofly.records import RECORD_TYPES, Closure, Kind, Record

ENCODING_ERRORS = (UnicodeEncodeError, msgspec.EncodeError, TypeError)
"""What `write` raises for a record that is not JSON: a text with half a surrogate pair, or our own mistake."""

_encoder = msgspec.json.Encoder()
_ts_us, _policy_rev, _stub_ver = attrgetter("ts_us"), attrgetter("policy_rev"), attrgetter("stub_ver")


class Stream:
    """Numbers records, writes them into the open segment, and keeps account of those that were lost."""

    def __init__(self, kind: Kind, spool: Path, node: str, boot: int) -> None:
        self.kind = kind
        self.segment: OpenSegment | None = None
        self.opened_at = 0.0
        self._sealed_at = time.monotonic()
        self._closing: Closure | None = None
        self._name = SegmentName(kind, node, boot, 0)
        self._spool = spool
        self._next_seq = 1
        self._lost_before = 0
        members = RECORD_TYPES[kind].__struct_fields__
        self._has_policy = "policy_rev" in members
        self._has_stub = "stub_ver" in members

    @property
    def is_closing(self) -> bool:
        """Sealing began and failed; it has to succeed before anything else is written."""
        return self._closing is not None

    @property
    def idle_seconds(self) -> float:
        """How long there has been no segment; 0 while there is one."""
        return time.monotonic() - self._sealed_at if self.segment is None else 0.0

    @property
    def has_unreported_losses(self) -> bool:
        """Records were lost, and no manifest will say so unless a segment is opened for it."""
        return self._lost_before > 0

    def write(self, records: list[Record]) -> None:
        """Number and write one frame, whole or not at all. Raises OSError (repeat it) or one of ENCODING_ERRORS."""
        segment = self.open_segment()
        if self.kind is Kind.MESSAGE:
            records.sort(key=by_pair)
        seq = self._next_seq
        for record in records:
            record.seq = seq
            seq += 1
        segment.write_frame(_encoder.encode_lines(records))
        segment.facts.add(
            map(_ts_us, records),
            set(map(_policy_rev, records)) if self._has_policy else (),
            set(map(_stub_ver, records)) if self._has_stub else (),
        )
        self._next_seq = seq

    def lose(self, records: int) -> None:
        """Count records that will never come. They take their numbers with them."""
        if self.segment is None:
            self._lost_before += records
        else:
            self.segment.facts.lost_records += records
        self._next_seq += records

    def open_segment(self) -> OpenSegment:
        """The segment to write to, a new one when there is none. Raises OSError."""
        if self.segment is None:
            facts = SegmentFacts(self._next_seq - self._lost_before, _now_us(), lost_records=self._lost_before)
            name = self._name._replace(segno=self._name.segno + 1)
            self.segment = OpenSegment(self._spool, name, facts)
            self._name, self._lost_before, self.opened_at = name, 0, time.monotonic()
        return self.segment

    def seal(self, closure: Closure, chain: Chain, signer: Signer | None) -> None:
        """Seal what is open and note it in the chain. Raises OSError; may be repeated."""
        if self.segment is None:
            return
        self._closing = self._closing or closure
        manifest = self.segment.seal(
            self._closing, prev_sha256=chain.prev_sha256(self.kind), closed_us=_now_us(), signer=signer
        )
        chain.follow(manifest)
        self.segment, self._closing = None, None
        self._sealed_at = time.monotonic()
        chain.save(self._spool)


def encodable(records: list[Record]) -> list[Record]:
    """Those that can be written; for the rare frame that cannot be encoded as a whole."""
    return [record for record in records if _is_encodable(record)]


def _is_encodable(record: Record) -> bool:
    try:
        _encoder.encode(record)
    except ENCODING_ERRORS:
        return False
    return True


def _now_us() -> int:
    return time.time_ns() // 1000
