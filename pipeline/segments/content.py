"""What is inside a segment's file: Zstandard frames with lines or blocks in them, as its manifest says. No Spark.

Content is hostile until proven otherwise: every size is bounded before it is decompressed, and a piece at a time.

Source: pipeline study, sections 1.3 and 4.
"""

from __future__ import annotations

import hashlib
import io
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import zstandard

from pipeline.core.findings import Finding
from protofly.errors import PeerError
from protofly.record_blocks import BLOCK_BYTES_MAX, Block, read_block
from protofly.record_segments import BLOCKS_VERSION
from protofly.records import SegmentManifest, frame_end

RAW_BYTES_MAX: Final = 1 << 30
"""Of all lines, or of all blocks, together."""
BLOCK_RECORDS_ALL_MAX: Final = 1 << 23
"""Of all blocks together: a record takes 16 bytes at least, and nodes seal at 64 MiB."""
LINE_BYTES_MAX: Final = 2 << 20
WINDOW_BYTES_MAX: Final = 8 << 20
"""What every Zstandard decoder must be able to hold. Source: RFC 8878, section 3.1.1.1.2."""
PIECE_BYTES: Final = 256 << 10
"""A few hundred lines: what is made of them stays in the processor's cache until it is columns."""
SEGMENT_DAYS_MAX: Final = 32
"""Different days of the good records of a segment: each takes a folder and a file. Nodes seal every minute, and a clock
that jumps makes few days of one."""
_FRAME_HEADER_BYTES: Final = 18
MACHINE_ERRORS: Final = (MemoryError, OSError)
"""Say something about this machine, whatever it was at work on; never a verdict on a segment."""


class ContentError(Exception):
    """The content is not what its manifest says; `finding` says how, `remark` in which figures."""

    def __init__(self, finding: Finding, remark: str = "") -> None:
        super().__init__(finding.code)
        self.finding = finding
        self.remark = remark


def failure(error: Exception) -> str:
    """Word an unexpected error by its type and place; the text repeats no input."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def trace(error: Exception) -> str:
    """Format the traceback of an error for developers; signs that could act on a terminal are replaced by `?`."""
    text = "".join(traceback.format_exception(error))
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def check_file(content: bytes, manifest: SegmentManifest) -> None:
    """Check size, hash and frames, without decompressing. Raises ContentError."""
    whole_bytes, is_usable = _walk_frames(content)
    if len(content) < manifest.size_bytes:
        is_torn = whole_bytes < len(content)
        finding = Finding.TORN if is_torn else Finding.TRUNCATED
        raise ContentError(finding, f"{len(content)} of {manifest.size_bytes} bytes")
    if len(content) > manifest.size_bytes:
        raise ContentError(Finding.OVERLONG, f"{len(content)} instead of {manifest.size_bytes} bytes")
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise ContentError(Finding.HASH)
    if whole_bytes < len(content):
        raise ContentError(Finding.TORN, f"whole up to byte {whole_bytes}")
    if not is_usable:
        raise ContentError(Finding.FRAME, "a frame needs a dictionary or too much memory")


def _unpacked(content: bytes) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    try:
        with decompressor.stream_reader(io.BytesIO(content), read_across_frames=True) as reader:
            while piece := reader.read(PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as exc:
        if "Allocation" in str(exc):  # says nothing about the segment
            raise MemoryError(str(exc)) from exc
        raise ContentError(Finding.FRAME, str(exc)[:100]) from exc


def pieces_of(content: bytes, manifest: SegmentManifest) -> Iterator[bytes]:
    """The lines of a segment, some `PIECE_BYTES` of whole ones at a time, in their order and with their ends.

    Raises:
        ContentError: A frame is damaged, there is too much in it, or not as many lines as the manifest says. What came
            before is not to be believed then.
        MemoryError: There is none left to decompress with.
    """
    lines = raw_bytes = 0
    rest = b""
    for piece in _unpacked(content):
        raw_bytes += len(piece)
        end = piece.rfind(b"\n") + 1
        found, rest = (rest + piece[:end], piece[end:]) if end else (b"", rest + piece)
        lines += found.count(b"\n")
        if raw_bytes > RAW_BYTES_MAX or len(rest) > LINE_BYTES_MAX:
            raise ContentError(Finding.TOO_LARGE, "more than a segment or a line may hold")
        if lines > manifest.records:
            raise ContentError(Finding.COUNT, f"more than {manifest.records} lines for {manifest.records} records")
        if found:
            yield found
    if lines != manifest.records or rest:
        raise ContentError(Finding.COUNT, f"{lines} lines for {manifest.records} records")


def contents_of(content: bytes, manifest: SegmentManifest) -> Iterator[bytes | Block]:
    """Yield the content of a segment of any schema version, in order: see `pieces_of` and `blocks_of`."""
    return blocks_of(content, manifest) if manifest.schema_version == BLOCKS_VERSION else pieces_of(content, manifest)


def blocks_of(content: bytes, manifest: SegmentManifest) -> Iterator[Block]:
    """The blocks of a segment, in their order.

    Raises:
        ContentError: A frame is damaged or no block, there is too much in it, or not as many records as the manifest
            says. What came before is not to be believed then.
        MemoryError: There is none left to decompress with.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    records = raw_bytes = position = 0
    while (end := frame_end(content, position)) is not None:
        raw = _block_content(decompressor, content[position:end])
        position = end
        raw_bytes += len(raw)
        if not raw:
            continue
        try:
            block = read_block(raw)
        except PeerError as exc:
            raise ContentError(Finding.FRAME, str(exc.detail)[:100]) from exc
        records += block.header.records
        if raw_bytes > RAW_BYTES_MAX or records > BLOCK_RECORDS_ALL_MAX:
            raise ContentError(Finding.TOO_LARGE, "more than a segment may hold")
        if records > manifest.records:
            raise ContentError(Finding.COUNT, f"more than {manifest.records} records in its blocks")
        yield block
    if position != len(content):
        raise ContentError(Finding.TORN, f"whole up to byte {position}")
    if records != manifest.records:
        raise ContentError(Finding.COUNT, f"{records} in its blocks for {manifest.records} records")


def _block_content(decompressor: zstandard.ZstdDecompressor, frame: bytes) -> bytes:
    """What is in a frame, whose header has to say how much that is. Raises ContentError, MemoryError."""
    try:
        size = zstandard.frame_content_size(frame)
        if size < 0:
            raise ContentError(Finding.FRAME, "a frame that does not say how much is in it")
        if size > BLOCK_BYTES_MAX:
            raise ContentError(Finding.TOO_LARGE, f"a block of more than {BLOCK_BYTES_MAX} bytes")
        return decompressor.decompress(frame)
    except zstandard.ZstdError as exc:
        if "Allocation" in str(exc):
            raise MemoryError(str(exc)) from exc
        raise ContentError(Finding.FRAME, str(exc)[:100]) from exc


def _walk_frames(content: bytes) -> tuple[int, bool]:
    """Length of the whole frames at the beginning, and whether every one is of a kind that nodes write."""
    position, is_usable = 0, True
    while (end := frame_end(content, position)) is not None:
        header = content[position : position + _FRAME_HEADER_BYTES]
        try:
            frame = zstandard.get_frame_parameters(header)
            is_usable &= frame.dict_id == 0 and frame.has_checksum and frame.window_size <= WINDOW_BYTES_MAX
        except zstandard.ZstdError:
            is_usable = False
        position = end
    return position, is_usable
