"""Records of one kind on their way into numbered segments. Blocking; belongs to the writer's thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msg_node.records.recovery import Chain
from msg_node.records.segment import OpenSegment
from protofly.record_encoding import Encoding
from protofly.record_runs import Recorded
from protofly.record_segments import SegmentFacts, SegmentName, Signer
from protofly.records import Closure


class Stream:
    """Numbers records, writes them into the open segment, and keeps account of those that were lost.

    Args:
        spool: Folder for segments.
        name: Of the segment before the first one.
        encoding: How frames are written.
    """

    def __init__(self, spool: Path, name: SegmentName, encoding: Encoding) -> None:
        self.kind = name.kind
        self.encoding = encoding
        self.segment: OpenSegment | None = None
        self.opened_at = 0.0
        self._sealed_at = time.monotonic()
        self._closing: Closure | None = None
        self._name = name
        self._spool = spool
        self._next_seq = 1
        self._lost_before = 0

    @property
    def is_closing(self) -> bool:
        """Sealing began and failed; it has to succeed before anything else is written."""
        return self._closing is not None

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last segment was sealed; 0 while one is open."""
        return time.monotonic() - self._sealed_at if self.segment is None else 0.0

    @property
    def has_unreported_losses(self) -> bool:
        """Records were lost, and no manifest will say so unless a segment is opened for it."""
        return self._lost_before > 0

    def write(self, recorded: Sequence[Recorded]) -> int:
        """Number and write records, all or none; returns how many. Raises OSError (repeat it) or an ENCODING_ERRORS."""
        segment = self.open_segment()
        encoded = self.encoding.encode(recorded, self._next_seq)
        segment.write_frames(*[one.content for one in encoded])
        for one in encoded:
            segment.facts.add(one.times_us, one.policy_revs, one.stub_vers)
        count = sum([len(one.times_us) for one in encoded])
        self._next_seq += count
        return count

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
            first_seq, lost = self._next_seq - self._lost_before, self._lost_before
            facts = SegmentFacts(first_seq, _now_us(), self.encoding.version, lost_records=lost)
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


def _now_us() -> int:
    return time.time_ns() // 1000
