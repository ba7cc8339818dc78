"""Read records from a spool, line by line, while the node may be writing it.

Other files in the folder are ignored. Damage is reported, and costs only what it touches: a frame with a wrong checksum
its own lines, a torn end the lines after it. Every size is bounded before anything is decompressed.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

from protofly.errors import PeerError, SettingsError
from protofly.record_blocks import lines_in
from protofly.record_segments import MANIFEST_SUFFIX, OPEN_SUFFIX, SEALED_SUFFIXES, SegmentName
from protofly.records import RecordKind, decode_manifest, frame_end

SEGMENT_BYTES_MAX: Final = 1 << 30
FRAME_BYTES_MAX: Final = 64 << 20
WINDOW_BYTES_MAX: Final = 8 << 20
MANIFEST_BYTES_MAX: Final = 4 << 20

_ORDER: Final = {kind: number for number, kind in enumerate(RecordKind)}

Line = Mapping[str, Any]
_decode_line = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(slots=True)
class Remarks:
    """Counts of what was read and what could not be. `damaged` counts by file and reason."""

    segments: int = 0
    damaged: Counter[str] = field(default_factory=Counter)

    def note(self, path: Path, what: str) -> None:
        """Count one piece of a file that was skipped."""
        self.damaged[f"{path.name}: {what}"] += 1

    def texts(self) -> list[str]:
        """One line for each file and reason."""
        return [text if number == 1 else f"{text} ({number} times)" for text, number in sorted(self.damaged.items())]


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of the spool, sealed or still growing."""

    name: SegmentName
    path: Path

    @property
    def is_open(self) -> bool:
        """True while the node writes it."""
        return self.path.name.endswith(OPEN_SUFFIX)

    def newest_us(self) -> int | None:
        """Time of its newest record in µs since the Unix epoch, from its manifest; None if that cannot be read."""
        manifest = self.path.with_name(f"{self.name}{MANIFEST_SUFFIX}")
        try:
            return decode_manifest(_regular_bytes(manifest, MANIFEST_BYTES_MAX)).max_ts_us
        except (OSError, PeerError):
            return None


def segments_in(spool: Path, kinds: frozenset[RecordKind]) -> list[Segment]:
    """List the segments of some kinds, oldest first.

    Raises:
        SettingsError: The folder cannot be read.
    """
    found: dict[SegmentName, Path] = {}
    try:
        names = sorted(path.name for path in spool.iterdir())
    except OSError as exc:
        raise SettingsError(f"records spool {spool}: {exc.strerror}") from exc
    for text in names:
        for suffix in (OPEN_SUFFIX, *SEALED_SUFFIXES):  # sealed wins: the other name may be gone by now
            name = SegmentName.parse(text.removesuffix(suffix)) if text.endswith(suffix) else None
            if name is not None and name.kind in kinds:
                found[name] = spool / text
    in_order = sorted(found, key=lambda name: (name.boot, name.segno, _ORDER[name.kind], name.node))
    return [Segment(name, found[name]) for name in in_order]


def lines_of(segment: Segment, remarks: Remarks, *, start: int = 0) -> Iterator[tuple[int, Line]]:
    """Yield the lines of a segment from a byte position on, each with the end of its frame, where to continue."""
    remarks.segments += 1
    path = segment.path
    try:
        data = _regular_bytes(path, SEGMENT_BYTES_MAX)
    except FileNotFoundError:  # sealed in this moment: the same bytes under its final name
        sealed = [path.with_name(f"{segment.name}{suffix}") for suffix in SEALED_SUFFIXES]
        path = next((one for one in sealed if one.exists()), sealed[0])
        try:
            data = _regular_bytes(path, SEGMENT_BYTES_MAX)
        except OSError as exc:
            remarks.note(segment.path, exc.strerror or "cannot be read")
            return
    except OSError as exc:
        remarks.note(path, exc.strerror or "cannot be read")
        return
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    position = start
    while (end := frame_end(data, position)) is not None:
        try:
            raw = _decompressed(decompressor, data[position:end])
        except zstandard.ZstdError:
            remarks.note(path, "damaged frame")
            raw = b""
        position = end
        for text in _lines_in(raw, path, remarks):
            line = _line_in(text)
            if line is None:
                remarks.note(path, "a line is not a record")
            else:
                yield position, line
    if position < len(data) and not segment.is_open:
        remarks.note(path, f"torn at byte {position}")


def _lines_in(raw: bytes, path: Path, remarks: Remarks) -> Iterator[bytes]:
    try:
        yield from lines_in(raw)
    except PeerError:
        remarks.note(path, "damaged block")


def _decompressed(decompressor: zstandard.ZstdDecompressor, frame: bytes) -> bytes:
    if zstandard.frame_content_size(frame) > FRAME_BYTES_MAX:
        raise zstandard.ZstdError("a frame that is too large")
    return decompressor.decompress(frame, max_output_size=FRAME_BYTES_MAX)


def _line_in(text: bytes) -> Line | None:
    try:
        line = _decode_line(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    times = line.get("ts_us")
    is_record = isinstance(times, int) and not isinstance(times, bool) and isinstance(line.get("node"), str)
    return line if is_record else None


def _regular_bytes(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file. Never blocks on anything else. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(0, "not a regular file")
        if facts.st_size > most_bytes:
            raise OSError(0, f"longer than {most_bytes} bytes")
        return file.read(most_bytes)
