"""One segment of record files: frames go in, a sealed file with its manifest comes out. Plain blocking file work.

Life: `<kind>-<node>-<boot>-<number>.open` grows by checksummed Zstandard frames → synced, hashed, renamed to
`.jsonl.zst` or `.blocks.zst`, folder synced → `.manifest.json` by temporary name, sync and rename, last. A file with
its final name never changes again; a segment without manifest is not finished. Every step can be repeated after a
failure.

Source: pipeline study, section 8.1.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from protofly.record_segments import (
    MANIFEST_SUFFIX,
    OPEN_SUFFIX,
    TEMPORARY_SUFFIX,
    SegmentFacts,
    SegmentFile,
    SegmentName,
    Signer,
    encode_manifest,
    frame_compressor,
    make_manifest,
    sealed_suffix,
    sign_manifest,
)
from protofly.records import Closure, SegmentManifest

FILE_MODE = 0o640
FOLDER_MODE = 0o750


class OpenSegment:
    """The file that frames are being appended to."""

    def __init__(self, spool: Path, name: SegmentName, facts: SegmentFacts) -> None:
        self.name = name
        self.facts = facts
        self.raw_bytes = 0
        self._spool = spool
        self._compressor = frame_compressor()
        self._sha256 = hashlib.sha256()
        self._whole_bytes = 0
        self._is_synced = True
        self._descriptor = os.open(
            spool / f"{name}{OPEN_SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE
        )

    @property
    def whole_bytes(self) -> int:
        """Size of the file up to its last whole frame."""
        return self._whole_bytes

    def write_frames(self, *contents: bytes) -> None:
        """Append a frame for each of these, all or none. Raises OSError; then the call may be repeated."""
        frames = b"".join(map(self._compressor.compress, contents))
        self._is_synced = False
        try:
            _write_at(self._descriptor, frames, self._whole_bytes)
        except OSError:
            os.ftruncate(self._descriptor, self._whole_bytes)
            raise
        self._sha256.update(frames)
        self._whole_bytes += len(frames)
        self.raw_bytes += sum(map(len, contents))

    def sync(self) -> None:
        """Put what was written on the disk. Raises OSError."""
        if not self._is_synced:
            os.fdatasync(self._descriptor)
            self._is_synced = True

    def seal(self, closure: Closure, *, prev_sha256: str, closed_us: int, signer: Signer | None) -> SegmentManifest:
        """Give the segment its final name and its manifest. Raises OSError; then the call may be repeated."""
        manifest = sign_manifest(
            make_manifest(
                self.name,
                self.facts,
                file=SegmentFile(
                    size_bytes=self._whole_bytes, sha256=self._sha256.hexdigest(), prev_sha256=prev_sha256
                ),
                closure=closure,
                closed_us=closed_us,
            ),
            signer,
        )
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        publish_segment(self._spool, self.name, manifest)
        return manifest

    def abandon(self) -> None:
        """Leave the file as it is, for the next start to recover."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def publish_segment(spool: Path, name: SegmentName, manifest: SegmentManifest) -> None:
    """Rename a synced segment to its final name, then write its manifest. Raises OSError; may be repeated."""
    open_path = spool / f"{name}{OPEN_SUFFIX}"
    if open_path.exists():
        open_path.rename(spool / f"{name}{sealed_suffix(manifest.schema_version)}")
        sync_folder(spool)
    replace_file(spool / f"{name}{MANIFEST_SUFFIX}", encode_manifest(manifest))


def replace_file(path: Path, content: bytes) -> None:
    """Write a whole file so that readers see the old one or the new one, also after a crash. Raises OSError."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        _write_at(descriptor, content, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_at(descriptor: int, content: bytes, position: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, position)
        position += written
        view = view[written:]
