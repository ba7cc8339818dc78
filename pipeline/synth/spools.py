"""The spools of all nodes: records go in, sealed and signed segments come out, as a node would have left them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pipeline.synth.world import Domain
from protofly.limits import RECORD_FRAME_RECORDS, SEGMENT_BYTES
from protofly.record_segments import (
    MANIFEST_SUFFIX,
    SEALED_SUFFIX,
    SegmentFacts,
    SegmentFile,
    SegmentName,
    Signer,
    by_pair,
    encode_manifest,
    frame_compressor,
    make_manifest,
    sign_manifest,
)
from protofly.records import RECORD_TYPES, Closure, Kind, MessageRecord, Record, SegmentManifest, hash_address

FRAME_RECORDS: Final = RECORD_FRAME_RECORDS
_CLOSING_US: Final = 200_000

_encode_lines = msgspec.json.Encoder().encode_lines
_compress = frame_compressor().compress
_ts_us, _policy_rev, _stub_ver = attrgetter("ts_us"), attrgetter("policy_rev"), attrgetter("stub_ver")


class Entry(NamedTuple):
    """What has to be known about one message record if its segment is going to be damaged."""

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
    def manifest_path(self) -> Path:
        """The file that vouches for it."""
        return self.path.with_name(self.path.name.removesuffix(SEALED_SUFFIX) + MANIFEST_SUFFIX)


class _Stream:
    """Segments of one kind of one node."""

    def __init__(self, spool: NodeSpool, kind: Kind) -> None:
        self._spool = spool
        self._name = SegmentName(kind, spool.domain.node, spool.domain.boot, 0)
        self._seq = 0
        self._prev_sha256 = ""
        self._waiting: list[Record] = []
        self._facts: SegmentFacts | None = None
        self._path = spool.folder
        self._sha256, self._size_bytes, self._raw_bytes = hashlib.sha256(), 0, 0
        members = RECORD_TYPES[kind].__struct_fields__
        self._has_policy, self._has_stub = "policy_rev" in members, "stub_ver" in members

    def append(self, record: Record) -> None:
        self._waiting.append(record)
        if len(self._waiting) >= FRAME_RECORDS:
            self._write_frame()
            if self._raw_bytes >= SEGMENT_BYTES:
                self.seal("size", 0)

    def _open(self, now_us: int) -> SegmentFacts:
        self._name = self._name._replace(segno=self._name.segno + 1)
        self._path = self._spool.folder / f"{self._name}{SEALED_SUFFIX}"
        self._sha256, self._size_bytes, self._raw_bytes = hashlib.sha256(), 0, 0
        return SegmentFacts(self._seq + 1, now_us)

    def _write_frame(self) -> None:
        records, self._waiting = self._waiting, []
        if self._facts is None:
            self._facts = self._open(records[0].ts_us)
        if self._name.kind is Kind.MESSAGE:
            records.sort(key=by_pair)
        domain, seq = self._spool.domain, self._seq
        for record in records:
            seq += 1
            record.v, record.node, record.boot, record.seq = 1, domain.node, self._name.boot, seq
        self._seq = seq
        if domain.hash_key is not None:
            self._spool.hash_addresses(records)
        lines = _encode_lines(records)
        frame = _compress(lines)
        with self._path.open("ab") as file:
            file.write(frame)
        self._sha256.update(frame)
        self._size_bytes += len(frame)
        self._raw_bytes += len(lines)
        self._facts.add(
            map(_ts_us, records),
            set(map(_policy_rev, records)) if self._has_policy else (),
            set(map(_stub_ver, records)) if self._has_stub else (),
        )

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
        self._seq = 0


class NodeSpool:
    """All that one node writes down.

    Args:
        folder: Of this node alone.
        is_tracked: Whether entries and segments are kept, for damage later.
    """

    def __init__(self, domain: Domain, folder: Path, *, is_tracked: bool) -> None:
        self.domain = domain
        self.folder = folder
        self.signer = Signer(domain.key.key_id, domain.key.sign)
        self.segments: list[Sealed] = []
        self.written: Counter[str] = Counter()
        """Records by kind."""
        self._is_tracked = is_tracked
        self._entries: list[Entry] = []
        self._streams: dict[type[Record], _Stream] = {}
        self._hashes: dict[str, str] = {}
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
        if self._is_tracked and segment.manifest.kind is Kind.MESSAGE:
            segment.entries, self._entries = self._entries, []
            self.segments.append(segment)
        return segment

    def hash_addresses(self, records: list[Record]) -> None:
        """What a node does whose operator asked for it."""
        key = self.domain.hash_key
        assert key is not None
        for record in records:
            for member in record.address_members:
                address = getattr(record, member)
                if address is None:
                    continue
                if address not in self._hashes:
                    self._hashes[address] = hash_address(address, key)
                setattr(record, member, self._hashes[address])
