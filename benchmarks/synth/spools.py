"""The spools of all nodes: records go in, sealed and signed segments come out, as a node would have left them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.synth.world import Domain
from protofly.limits import RECORD_FRAME_RECORDS, SEGMENT_BYTES
from protofly.record_encoding import Encoding, encoding_of
from protofly.record_segments import (
    MANIFEST_SUFFIX,
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
from protofly.records import RECORD_TYPES, Closure, MessageRecord, Record, RecordKind, SegmentManifest, hash_address

FRAME_RECORDS: Final = RECORD_FRAME_RECORDS
_CLOSING_US: Final = 200_000

_compress = frame_compressor().compress


class Entry(NamedTuple):
    """The facts about one message record that are needed to damage its segment."""

    msg_id: str
    role: str
    outcome: str
    src_domain: str
    dst_domain: str
    is_paired: bool
    """The other side has a record of this message."""
    flip: tuple[str, str, str, str] | None
    """Old and new decision, old and new rule."""
    size_bytes: int


@dataclass(slots=True)
class Sealed:
    """One sealed segment of a tracked node, with the entries of its records."""

    path: Path
    manifest: SegmentManifest
    entries: list[Entry] = field(default_factory=list)

    @property
    def name(self) -> SegmentName:
        """The stem of the names of both its files."""
        manifest = self.manifest
        return SegmentName(manifest.kind, manifest.node, manifest.boot, manifest.segno)

    @property
    def manifest_path(self) -> Path:
        """The file that vouches for it."""
        return self.path.with_name(f"{self.name}{MANIFEST_SUFFIX}")


class _Stream:
    """Segments of one kind of one node."""

    def __init__(self, spool: NodeSpool, kind: RecordKind) -> None:
        self._spool = spool
        self._name = SegmentName(kind, spool.domain.node, spool.domain.boot, 0)
        self._encoding = spool.encoding(self._name)
        self._seq = 0
        self._prev_sha256 = ""
        self._waiting: list[Record] = []
        self._facts: SegmentFacts | None = None
        self._path = spool.folder
        self._sha256, self._size_bytes, self._raw_bytes = hashlib.sha256(), 0, 0

    def append(self, record: Record) -> None:
        self._waiting.append(record)
        if len(self._waiting) >= FRAME_RECORDS:
            self._write_frame()
            if self._raw_bytes >= SEGMENT_BYTES:
                self.seal("size", 0)

    def _open(self, now_us: int) -> SegmentFacts:
        self._name = self._name._replace(segno=self._name.segno + 1)
        self._path = self._spool.folder / f"{self._name}{sealed_suffix(self._encoding.version)}"
        self._sha256, self._size_bytes, self._raw_bytes = hashlib.sha256(), 0, 0
        return SegmentFacts(self._seq + 1, now_us, self._encoding.version)

    def _write_frame(self) -> None:
        records, self._waiting = self._waiting, []
        if self._facts is None:
            self._facts = self._open(records[0].ts_us)
        self._encoding.prepare(records)
        for one in self._encoding.encode(records, self._seq + 1):
            frame = _compress(one.content)
            with self._path.open("ab") as file:
                file.write(frame)
            self._sha256.update(frame)
            self._size_bytes += len(frame)
            self._raw_bytes += len(one.content)
            self._facts.add(one.times_us, one.policy_revs, one.stub_vers)
        self._seq += len(records)

    def seal(self, closure: Closure, now_us: int) -> Sealed | None:
        """Seal what is open; `now_us` is the clock of the node, 0 for just after the last record."""
        if self._waiting:
            self._write_frame()
        facts = self._facts
        if facts is None:
            return None
        closed_us = max(now_us, facts.max_ts_us) + _CLOSING_US
        manifest = make_manifest(
            self._name,
            facts,
            file=SegmentFile(
                size_bytes=self._size_bytes, sha256=self._sha256.hexdigest(), prev_sha256=self._prev_sha256
            ),
            closure=closure,
            closed_us=closed_us,
        )
        manifest = sign_manifest(manifest, self._spool.signer)
        self._prev_sha256, self._facts = manifest.sha256, None
        sealed = Sealed(self._path, manifest)
        sealed.manifest_path.write_bytes(encode_manifest(manifest))
        return self._spool.sealed(sealed)

    def restart(self, boot: int) -> None:
        self._name = self._name._replace(boot=boot, segno=0)
        self._encoding = self._spool.encoding(self._name)
        self._seq = 0


class NodeSpool:
    """All that one node writes down.

    Args:
        folder: Of this node alone.
        is_tracked: Whether entries and segments are kept, for damage later.
        has_blocks: Whether messages are written in columns.
    """

    def __init__(self, domain: Domain, folder: Path, *, is_tracked: bool, has_blocks: bool = True) -> None:
        self.domain = domain
        self.folder = folder
        self.signer = Signer(domain.key.key_id, domain.key.sign)
        self.segments: list[Sealed] = []
        self.written: Counter[str] = Counter()
        """Records by kind."""
        self._is_tracked = is_tracked
        self._has_blocks = has_blocks
        self._entries: list[Entry] = []
        self._streams: dict[type[Record], _Stream] = {}
        self._hash = None
        if domain.hash_key is not None:  # what a node does unless its operator says otherwise
            self._hash = lru_cache(maxsize=None)(partial(hash_address, key=domain.hash_key))
        folder.mkdir(parents=True)
        for kind, record_type in RECORD_TYPES.items():
            self._streams[record_type] = _Stream(self, kind)
        self._append_message: Callable[[Record], None] = self._streams[MessageRecord].append

    def append(self, record: Record) -> None:
        """Write one record down."""
        self._streams[record.__class__].append(record)

    def append_message(self, record: MessageRecord, entry: Entry | None) -> None:
        """Write a message record down; with an entry if this node is tracked."""
        if entry is not None:
            self._entries.append(entry)
        self._append_message(record)

    def seal_messages(self, now_us: int) -> None:
        """Seal the segment of message records, as a node does from time to time."""
        self._streams[MessageRecord].seal("time", now_us)

    def close(self, now_us: int) -> None:
        """The node stops, or restarts."""
        for stream in self._streams.values():
            stream.seal("shutdown", now_us)

    def restart(self, now_us: int) -> None:
        """Stop and start again: everything is numbered anew, the chain of hashes goes on."""
        self.close(now_us)
        for stream in self._streams.values():
            stream.restart(now_us // 1000)

    def sealed(self, segment: Sealed) -> Sealed:
        """Keep a segment of a tracked node."""
        self.written[segment.manifest.kind.value] += segment.manifest.records
        if self._is_tracked and segment.manifest.kind is RecordKind.MESSAGE:
            segment.entries, self._entries = self._entries, []
            self.segments.append(segment)
        return segment

    def encoding(self, name: SegmentName) -> Encoding:
        """Encoding of segments of this kind and run."""
        return encoding_of(name, has_blocks=self._has_blocks, hashed=self._hash)
