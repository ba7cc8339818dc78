"""What happens to segments on their way from a node to a pipeline: torn, spoilt, forged, doubled, lost.

Works on sealed files. A fault that a node itself could make (a manifest that lies, another number) is signed with the
node's key; one that happens to files is not.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from benchmarks.synth.spools import Entry, NodeSpool, Sealed
from benchmarks.synth.truth import Case, Flip, SegmentFault, Truth
from protofly.record_blocks import lines_in
from protofly.record_encoding import encoding_of
from protofly.record_segments import (
    BLOCKS_VERSION,
    OPEN_SUFFIX,
    encode_manifest,
    frame_compressor,
    sealed_suffix,
    sign_manifest,
)
from protofly.records import MessageRecord, Record, RecordKind, SegmentManifest, frame_end

UNKNOWN_VERSION: Final = 99
_LIE_RECORDS: Final = 3


@dataclass(frozen=True, slots=True)
class _Job:
    """One segment, the one after it, and the spool that both are in."""

    spool: NodeSpool
    segment: Sealed
    following: Sealed | None
    root: Path

    def sign(self, segment: Sealed, **changes: object) -> None:
        """Give a segment another manifest, signed by its node."""
        manifest = msgspec.structs.replace(segment.manifest, **changes)
        segment.manifest = sign_manifest(manifest, self.spool.signer)
        segment.manifest_path.write_bytes(encode_manifest(segment.manifest))

    def beside(self, word: str) -> Path:
        """Another spool of the same node."""
        folder = self.root / f"{self.spool.domain.name}.{word}"
        folder.mkdir(exist_ok=True)
        return folder


def _tear(job: _Job) -> Path:
    data = job.segment.path.read_bytes()
    job.segment.path.write_bytes(data[: len(data) * 2 // 3 - 1])
    return job.segment.path


def _truncate(job: _Job) -> Path:
    """Cut behind a whole frame, so that nothing looks torn."""
    data = job.segment.path.read_bytes()
    ends = [0]
    while (end := frame_end(data, ends[-1])) is not None:
        ends.append(end)
    job.segment.path.write_bytes(data[: ends[-2]])
    return job.segment.path


def _flip_bit(job: _Job) -> Path:
    data = bytearray(job.segment.path.read_bytes())
    data[len(data) // 2] ^= 0x08
    job.segment.path.write_bytes(data)
    return job.segment.path


def _remove(job: _Job) -> Path:
    job.segment.path.unlink()
    job.segment.manifest_path.unlink()
    return job.segment.path


def _spoil_signature(job: _Job) -> Path:
    manifest = job.segment.manifest
    signature = bytearray(base64.urlsafe_b64decode(manifest.signature + "=="))
    signature[10] ^= 0x01
    text = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    job.segment.manifest_path.write_bytes(encode_manifest(msgspec.structs.replace(manifest, signature=text)))
    return job.segment.path


def _lie(job: _Job) -> Path:
    manifest = job.segment.manifest
    job.sign(job.segment, records=manifest.records + _LIE_RECORDS, last_seq=manifest.last_seq + _LIE_RECORDS)
    return job.segment.path


def _age(job: _Job) -> Path:
    """A node from the future: another schema version, well signed."""
    job.sign(job.segment, schema_version=UNKNOWN_VERSION)
    return job.segment.path


def _copy(job: _Job) -> Path:
    folder = job.beside("again")
    for path in (job.segment.path, job.segment.manifest_path):
        shutil.copyfile(path, folder / path.name)
    return folder / job.segment.path.name


def _reuse_number(job: _Job) -> Path:
    """Another file under a number that was given: half of the records, written anew under other message ids."""
    path = job.beside("reused") / job.segment.path.name
    records: list[Record] = list(map(_decode_message, _lines_of(job.segment.path)))
    kept = records[: max(1, len(records) // 2)]
    for record in kept:
        assert isinstance(record, MessageRecord)
        record.msg_id = "f" + record.msg_id[1:]
    forged = Sealed(path, job.segment.manifest)
    first_seq = forged.manifest.first_seq
    encoding = encoding_of(forged.name, has_blocks=forged.manifest.schema_version == BLOCKS_VERSION)
    data = b"".join(frame_compressor().compress(one.content) for one in encoding.encode(kept, first_seq))
    path.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    last_seq = first_seq + len(kept) - 1
    job.sign(forged, sha256=sha256, size_bytes=len(data), records=len(kept), last_seq=last_seq)
    return path


def _renumber(job: _Job) -> Path:
    """The same content once more, as the next segment of the node."""
    last = job.spool.segments[-1]
    name = last.name
    path = last.path.with_name(f"{name._replace(segno=name.segno + 1)}{sealed_suffix(last.manifest.schema_version)}")
    shutil.copyfile(job.segment.path, path)
    again = Sealed(path, job.segment.manifest)
    job.sign(again, segno=name.segno + 1, boot=name.boot, prev_sha256=last.manifest.sha256)
    return path


_DESTRUCTIVE: Final[dict[str, Callable[[_Job], Path]]] = {
    "torn": _tear,
    "truncated": _truncate,
    "bit-flipped": _flip_bit,
    "gap": _remove,
    "bad-signature": _spoil_signature,
    "lying-manifest": _lie,
    "unknown-version": _age,
}
_HARMLESS: Final[dict[str, Callable[[_Job], Path]]] = {
    "copy": _copy,
    "reused-number": _reuse_number,
    "renumbered": _renumber,
}


def damage(wards: list[NodeSpool], late: list[NodeSpool], root: Path, truth: Truth) -> None:
    """Strike the segments of the wards one by one, withhold the last of those who are late, and correct the truth."""
    unreadable: list[Entry] = []
    free = {spool.domain.name: _targets(spool) for spool in wards}
    for number, (fault, strike) in enumerate((_HARMLESS | _DESTRUCTIVE).items()):
        spool = wards[number % len(wards)]
        if not free[spool.domain.name]:
            continue
        # Harmless faults first: they need a whole segment. A gap shows only when something follows.
        index = free[spool.domain.name].pop(0)
        following = spool.segments[index + 1] if index + 1 < len(spool.segments) else None
        job = _Job(spool, spool.segments[index], following, root)
        is_readable = fault in _HARMLESS
        manifest = job.segment.manifest
        path = strike(job)
        truth.segments.append(_fault_of(fault, path, manifest, root, is_readable=is_readable))
        if not is_readable:
            unreadable += job.segment.entries
    for spool in late:
        for segment in spool.segments[-1:]:
            segment.path.rename(segment.path.with_name(f"{segment.name}{OPEN_SUFFIX}"))
            segment.manifest_path.unlink()
            truth.segments.append(_fault_of("late", segment.path, segment.manifest, root, is_readable=False))
            unreadable += segment.entries
    _correct(truth, unreadable)


def _targets(spool: NodeSpool) -> list[int]:
    """Which segments to strike: not the first, not the last, the largest ones in between, in their order."""
    inner = range(1, len(spool.segments) - 1)
    return sorted(sorted(inner, key=lambda index: -spool.segments[index].manifest.records)[:10])


def _fault_of(fault: str, path: Path, manifest: SegmentManifest, root: Path, *, is_readable: bool) -> SegmentFault:
    return SegmentFault(
        fault,
        str(path.relative_to(root)),
        manifest.node,
        manifest.kind.value,
        manifest.boot,
        manifest.segno,
        manifest.records,
        is_readable,
    )


def _correct(truth: Truth, entries: list[Entry]) -> None:
    """Take out of the truth what can no longer be read; what the other side still has becomes pending."""
    paired = Counter(entry.msg_id for entry in entries if entry.is_paired)
    truth.matched -= len(paired)
    for entry in entries:
        truth.roles[entry.role] -= 1
        truth.outcomes[f"{entry.role} {entry.outcome}"] -= 1
        truth.decisions -= 1
        truth.records[RecordKind.MESSAGE.value] -= 1
        if entry.is_paired and paired[entry.msg_id] == 1:
            truth.case_list.append(Case("pending", entry.msg_id, entry.src_domain, entry.dst_domain))
    _unflip(truth, entries)


def _unflip(truth: Truth, entries: list[Entry]) -> None:
    messages: Counter[tuple[str, ...]] = Counter()
    size_bytes: Counter[tuple[str, ...]] = Counter()
    for entry in entries:
        if entry.flip is not None:
            key = (entry.role, entry.src_domain, entry.dst_domain, *entry.flip)
            messages[key] += 1
            size_bytes[key] += entry.size_bytes
    left = []
    for flip in truth.flips:
        *cell, count, total = astuple(flip)
        key = tuple(cell)
        left.append(Flip(*key, count - messages[key], total - size_bytes[key]))
    truth.flips = [flip for flip in left if flip.messages]


_decode_message = msgspec.json.Decoder(MessageRecord).decode


def _lines_of(path: Path) -> Iterator[bytes]:
    data, position = path.read_bytes(), 0
    while (end := frame_end(data, position)) is not None:
        yield from lines_in(zstandard.ZstdDecompressor().decompress(data[position:end]))
        position = end
