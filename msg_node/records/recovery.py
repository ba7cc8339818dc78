"""Recovery of a spool after a crash: torn segments are cut to their last whole frame and sealed.

Source: pipeline study, section 8.1.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import zstandard
from msgspec import Struct

from msg_node.records.segment import FILE_MODE, FOLDER_MODE, publish_segment, replace_file, sync_folder
from protofly.errors import PeerError, SettingsError
from protofly.record_segments import (
    MANIFEST_SUFFIX,
    OPEN_SUFFIX,
    SEALED_SUFFIX,
    TEMPORARY_SUFFIX,
    SegmentFacts,
    SegmentFile,
    SegmentName,
    Signer,
    make_manifest,
    sign_manifest,
)
from protofly.records import Kind, SegmentManifest, decode_manifest, frame_end

LOCK_NAME = ".lock"
CHAIN_NAME = "chain.json"
FRAME_BYTES_MAX = 64 << 20
"""More than any frame of ours holds; keeps a spoilt frame header from asking for all memory."""


class ChainLink(Struct, frozen=True, kw_only=True):
    """The newest sealed segment of a kind."""

    boot: int
    segno: int
    last_seq: int
    sha256: str


@dataclass(slots=True)
class Chain:
    """The newest sealed segment of every kind, remembered in `chain.json` after a pipeline has taken the files away."""

    links: dict[Kind, ChainLink] = field(default_factory=dict)

    def prev_sha256(self, kind: Kind) -> str:
        """Hash that the next manifest of this kind names."""
        link = self.links.get(kind)
        return link.sha256 if link else ""

    def follow(self, manifest: SegmentManifest) -> None:
        """Take in a sealed segment, if it is newer."""
        link = self.links.get(manifest.kind)
        if link is None or (link.boot, link.segno) < (manifest.boot, manifest.segno):
            self.links[manifest.kind] = ChainLink(
                boot=manifest.boot, segno=manifest.segno, last_seq=manifest.last_seq, sha256=manifest.sha256
            )

    def save(self, spool: Path) -> None:
        """Write it down. Raises OSError."""
        links = {kind.value: link for kind, link in self.links.items()}
        replace_file(spool / CHAIN_NAME, msgspec.json.encode(links) + b"\n")

    @staticmethod
    def load(spool: Path) -> Chain:
        """Read the stored chain, and bring it up to date with the manifests that exist. Raises OSError."""
        chain = Chain()
        try:
            links = msgspec.json.decode((spool / CHAIN_NAME).read_bytes(), type=dict[str, ChainLink])
            chain.links = {Kind(name): link for name, link in links.items()}
        except (FileNotFoundError, msgspec.DecodeError, ValueError):
            pass  # lost or spoilt: the manifests still say most of it, and a new chain begins otherwise
        for path in spool.glob(f"*{MANIFEST_SUFFIX}"):
            try:
                chain.follow(decode_manifest(path.read_bytes()))
            except PeerError:
                continue  # not for us to repair: readers see the gap
        return chain


def lock_spool(spool: Path) -> int:
    """Make the folder and take its lock, which the descriptor keeps. Raises SettingsError, also when it is taken."""
    try:
        spool.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = os.open(spool / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as exc:
        raise SettingsError(f"records spool {spool}: {exc.strerror}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(descriptor)
        raise SettingsError(f"records spool {spool} is in use by another node") from exc
    return descriptor


def newest_boot(spool: Path) -> int:
    """Highest boot number that any file in the spool carries, 0 for none. Raises OSError."""
    return max((name.boot for _, name in _segments(spool)), default=0)


def recover(spool: Path, *, signer: Signer | None) -> tuple[Chain, list[SegmentManifest]]:
    """Seal everything that an earlier run left unfinished, oldest first. Raises OSError; may be repeated."""
    for path in spool.glob(f"*{TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)
    chain = Chain.load(spool)
    sealed: list[SegmentManifest] = []
    unfinished = [(name, path) for path, name in _segments(spool) if _is_unfinished(path, name)]
    for name, path in sorted(unfinished, key=lambda item: item[0][2:]):
        manifest = _seal_recovered(spool, path, name, chain, signer)
        if manifest is not None:
            chain.follow(manifest)
            sealed.append(manifest)
    chain.save(spool)
    return chain, sealed


def _segments(spool: Path) -> Iterator[tuple[Path, SegmentName]]:
    for path in spool.iterdir():
        for suffix in (OPEN_SUFFIX, SEALED_SUFFIX, MANIFEST_SUFFIX):
            name = SegmentName.parse(path.name.removesuffix(suffix)) if path.name.endswith(suffix) else None
            if name is not None:
                yield path, name


def _is_unfinished(path: Path, name: SegmentName) -> bool:
    if path.name.endswith(OPEN_SUFFIX):
        return True
    return path.name.endswith(SEALED_SUFFIX) and not path.with_name(f"{name}{MANIFEST_SUFFIX}").exists()


def _seal_recovered(
    spool: Path, path: Path, name: SegmentName, chain: Chain, signer: Signer | None
) -> SegmentManifest | None:
    data = path.read_bytes()
    whole_bytes, lines = _whole_frames(data)
    if not lines:
        path.unlink()
        sync_folder(spool)
        return None
    if whole_bytes < len(data):
        _cut(path, whole_bytes)
    unsigned = make_manifest(
        name,
        _facts(lines, chain.links.get(name.kind), name),
        file=SegmentFile(
            size_bytes=whole_bytes,
            sha256=hashlib.sha256(data[:whole_bytes]).hexdigest(),
            prev_sha256=chain.prev_sha256(name.kind),
        ),
        closure="recovered",
        closed_us=time.time_ns() // 1000,
    )
    manifest = sign_manifest(unsigned, signer)
    publish_segment(spool, name, manifest)
    return manifest


class _Line(Struct):
    seq: int
    ts_us: int
    policy_rev: str | None = None
    stub_ver: str | None = None


_decode_lines = msgspec.json.Decoder(_Line).decode_lines


def _whole_frames(data: bytes) -> tuple[int, list[_Line]]:
    """Length of the undamaged beginning, and its lines. A frame counts only when its checksum and lines are good."""
    decompressor = zstandard.ZstdDecompressor()
    position, lines = 0, []
    while (end := frame_end(data, position)) is not None:
        frame = data[position:end]
        try:
            if zstandard.frame_content_size(frame) > FRAME_BYTES_MAX:
                break
            lines += _decode_lines(decompressor.decompress(frame))
        except (zstandard.ZstdError, msgspec.DecodeError):
            break
        position = end
    return position, lines


def _facts(lines: list[_Line], before: ChainLink | None, name: SegmentName) -> SegmentFacts:
    """Summarize the lines of a segment. A gap before it or inside it counts as lost."""
    follows = before is not None and before.boot == name.boot and before.segno == name.segno - 1
    first_seq = before.last_seq + 1 if before is not None and follows else lines[0].seq
    facts = SegmentFacts(first_seq=first_seq, opened_us=lines[0].ts_us)
    facts.add([line.ts_us for line in lines], {line.policy_rev for line in lines}, {line.stub_ver for line in lines})
    facts.lost_records = max(0, lines[-1].seq - first_seq + 1 - len(lines))
    return facts


def _cut(path: Path, size_bytes: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
