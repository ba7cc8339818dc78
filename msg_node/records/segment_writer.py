"""Writes batches of records into the segments of a spool. Blocking; belongs to the writer's thread.

A batch is cut into frames, which wait here until the disk has taken them: `write_next` raises OSError as often as the
disk fails, and no frame is written twice or out of order. Records that are lost keep their numbers: the manifest of
their segment says how many they are.

Source: pipeline study, section 8.1.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from msg_node.records.recovery import Chain, last_crash, newest_boot, note_run, note_written, recover
from msg_node.records.stream import Stream
from protofly import limits
from protofly.errors import MisuseError, SettingsError
from protofly.record_encoding import ENCODING_ERRORS, encodable, encoding_of
from protofly.record_runs import MessageRun, Recorded, count_records
from protofly.record_segments import SegmentName, Signer
from protofly.records import RECORD_TYPES, Closure, MessageRecord, Record, RecordKind, hash_address
from protofly.remembered import remembered

logger = logging.getLogger("msg_node.records")

_CACHED_HASHES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """Settings of segments. Sizes in raw bytes before compression, times in seconds."""

    segment_bytes: int = limits.SEGMENT_BYTES
    segment_seconds: float = limits.SEGMENT_SECONDS
    idle_seconds: float = limits.RECORD_IDLE_SECONDS
    """After so long without messages an empty segment says that there were none."""
    has_blocks: bool = True
    """Messages are written in columns (version 2), which pipelines from before cannot read."""
    address_key: bytes | None = None
    """Secret for `hash_address`, 16 to 64 bytes; None writes addresses, and texts of others, as they are."""


class SegmentWriter:
    """The open segments of one spool, one for each kind of record.

    Args:
        spool: Folder for segments.
        node: Name of this node, unique among all domains.
        signer: Signs manifests; without it they are unsigned.
        options: Sizes and times.
    """

    def __init__(self, spool: Path, node: str, signer: Signer | None, options: SegmentOptions) -> None:
        self.spool = spool
        self.written = self.sealed = self.recovered = self.sealed_bytes = self.removed = 0
        self._node = node
        self._signer = signer
        self._options = options
        self._boot = time.time_ns() // 1_000_000
        self._streams: dict[type[Record], Stream] = {}
        self._frames: deque[tuple[Stream, Sequence[Recorded]]] = deque()
        self._chain: Chain | None = None
        self._hash = remembered(_CACHED_HASHES)(partial(hash_address, key=options.address_key or b""))

    def bound(self, segment_bytes: int, segment_seconds: float) -> None:
        """Seal segments at another size and age, those that are open as well."""
        self._options = replace(self._options, segment_bytes=segment_bytes, segment_seconds=segment_seconds)

    def prepare(self) -> None:
        """Take numbers above all that the spool has, which the caller has locked. Called once, before all others.

        Raises:
            SettingsError: The folder cannot be read.
        """
        if self._streams:
            raise MisuseError("a records writer runs once")
        try:
            self._boot = max(self._boot, newest_boot(self.spool) + 1)
        except OSError as exc:
            raise SettingsError(f"records spool {self.spool}: {exc.strerror}") from exc
        for kind, record_type in RECORD_TYPES.items():
            name = SegmentName(kind, self._node, self._boot, 0)
            hashed = None if self._options.address_key is None else self._hash
            encoding = encoding_of(name, has_blocks=self._options.has_blocks, hashed=hashed)
            self._streams[record_type] = Stream(self.spool, name, encoding)

    def seconds_until_due(self) -> float:
        """Time until a segment has to be sealed for its age; infinite without one."""
        opened = [stream.opened_at for stream in self._streams.values() if stream.segment is not None]
        if not opened:
            return inf
        return max(0.0, min(opened) + self._options.segment_seconds - time.monotonic())

    def recover(self) -> None:
        """Seal what an earlier process left open. Does nothing after it has succeeded once. Raises OSError."""
        if self._chain is None:
            crash = last_crash(self.spool, self._node)
            self._chain, sealed = recover(self.spool, signer=self._signer, crash=crash)
            self.recovered = len(sealed)
            note_run(self.spool, self._boot, is_running=True)
            self.note_written(self._boot * 1_000_000)  # records wait since the start

    def note_written(self, time_ns: int) -> None:
        """Note that all records up to this time, in ns since the Unix epoch, are on the disk. Raises OSError."""
        note_written(self.spool, time_ns)

    def note_end(self) -> None:
        """Note that this run ends in order: everything is written and sealed. Raises OSError."""
        note_run(self.spool, self._boot, is_running=False)

    def take(self, batch: list[Recorded]) -> None:
        """Cut a batch into frames, which wait for `write_next`."""
        by_type: dict[type[Recorded], list[Recorded]] = {record_type: [] for record_type in self._streams}
        by_type[MessageRun] = by_type[MessageRecord]
        for one in batch:
            by_type[one.__class__].append(one)
        for record_type, stream in self._streams.items():
            for frame in _frames(stream.encoding.prepare(by_type[record_type])):
                self._frames.append((stream, frame))

    def write_next(self) -> tuple[type[Record], int, int] | None:
        """Write the oldest frame that waits.

        Returns:
            Its type of record, how many were written, and how many can never be, because they are not JSON; the others
            of such a frame wait on. None when no frame waits.

        Raises:
            OSError: The frame waits on.
        """
        if not self._frames:
            return None
        stream, recorded = self._frames[0]
        segment = stream.segment
        if segment is not None and (stream.is_closing or segment.raw_bytes >= self._options.segment_bytes):
            self._seal(stream, "size")
        try:
            written = stream.write(recorded)
        except ENCODING_ERRORS as exc:
            sound = _without_broken(recorded, exc)
            self._frames[0] = (stream, sound)
            return RECORD_TYPES[stream.kind], 0, count_records(recorded) - len(sound)
        self._frames.popleft()
        self.written += written
        return RECORD_TYPES[stream.kind], written, 0

    def lose(self, record_type: type[Record], records: int) -> None:
        """Count records of this type that will never come, for the manifest."""
        self._streams[record_type].lose(records)

    def settle(self, *, is_stopping: bool) -> None:
        """Sync what was written, and seal segments by size and age, or all of them when stopping. Raises OSError."""
        for stream in self._streams.values():
            is_idle = stream.kind is RecordKind.MESSAGE and stream.idle_seconds >= self._options.idle_seconds
            if (is_stopping and stream.has_unreported_losses) or is_idle:
                stream.open_segment().write_frames(b"")
                if is_idle:
                    self._seal(stream, "time")
            segment = stream.segment
            if segment is None:
                continue
            if is_stopping:
                self._seal(stream, "shutdown")
            elif segment.raw_bytes >= self._options.segment_bytes:
                self._seal(stream, "size")
            elif stream.is_closing or time.monotonic() - stream.opened_at >= self._options.segment_seconds:
                self._seal(stream, "time")
            else:
                segment.sync()

    def abandon(self) -> dict[type[Record], int]:
        """Close the files as they are. Returns the number of records that waited, by type."""
        waiting = dict.fromkeys(self._streams, 0)
        for stream, recorded in self._frames:
            waiting[RECORD_TYPES[stream.kind]] += count_records(recorded)
        self._frames.clear()
        for stream in self._streams.values():
            if stream.segment is not None:
                stream.segment.abandon()
        return waiting

    def _seal(self, stream: Stream, closure: Closure) -> None:
        assert self._chain is not None
        size_bytes = stream.segment.whole_bytes if stream.segment else 0
        stream.seal(closure, self._chain, self._signer)
        self.sealed += 1
        self.sealed_bytes += size_bytes


def _frames(recorded: Sequence[Recorded]) -> Iterator[Sequence[Recorded]]:
    """Cut what is written into frames of at most `RECORD_FRAME_RECORDS`; a longer run is a frame of its own."""
    most = limits.RECORD_FRAME_RECORDS
    if count_records(recorded) == len(recorded):
        yield from (recorded[start : start + most] for start in range(0, len(recorded), most))
        return
    frame, count = list[Recorded](), 0
    for one in recorded:
        more = len(one) if isinstance(one, MessageRun) else 1
        if frame and count + more > most:
            yield frame
            frame, count = [], 0
        frame.append(one)
        count += more
    if frame:
        yield frame


def _without_broken(recorded: Sequence[Recorded], exc: Exception) -> Sequence[Recorded]:
    """The records of a frame that can be encoded; none if that is not what failed, so as not to try for ever."""
    count, sound = count_records(recorded), encodable(recorded)
    if len(sound) == count:
        sound = []
    logger.error("%d records are not JSON and are dropped: %s", count - len(sound), exc)
    return sound
