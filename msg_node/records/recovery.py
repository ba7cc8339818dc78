"""Recovery of a spool after a crash: torn segments are cut to their last whole frame and sealed.

Records that were not on the disk yet are gone, uncounted. So that nobody takes them for records that never were, the
lock file says which boot is running, and its time of change up to when everything was written. A boot that did not end
in order ends with a segment of messages, an empty one if need be, whose manifest names the time from then until the
next start as uncertain.

Source: pipeline study, section 8.1.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import zstandard
from msgspec import Struct

from msg_node.records.segment import FILE_MODE, FOLDER_MODE, publish_segment, replace_file, sync_folder
from protofly.errors import PeerError, SettingsError
from protofly.record_blocks import BLOCK_MAGIC, read_block
from protofly.record_segments import (
    BLOCKS_SUFFIX,
    BLOCKS_VERSION,
    LINES_VERSION,
    MANIFEST_SUFFIX,
    OPEN_SUFFIX,
    SEALED_SUFFIXES,
    TEMPORARY_SUFFIX,
    SegmentFacts,
    SegmentFile,
    SegmentName,
    Signer,
    frame_compressor,
    make_manifest,
    sign_manifest,
    with_crash,
)
from protofly.records import RecordKind, SegmentManifest, decode_manifest, frame_end

LOCK_NAME = ".lock"
CHAIN_NAME = "chain.json"
_RUNNING, _ENDED = "running", "ended"
FRAME_BYTES_MAX = 64 << 20
"""More than any frame of ours holds; keeps a spoilt frame header from asking for all memory."""


@dataclass(frozen=True, slots=True)
class Crash:
    """A run that did not end in order.

    Attributes:
        node: Name of the node.
        boot: The run.
        from_us: Up to here everything was written, in µs since the Unix epoch.
    """

    node: str
    boot: int
    from_us: int


def last_crash(spool: Path, node: str) -> Crash | None:
    """Find the crash that ended the last run with this spool; None: it ended in order, or unknown. Raises OSError."""
    path = spool / LOCK_NAME
    try:
        word, _, boot = path.read_text(encoding="ascii", errors="replace").strip().partition(" ")
        if word != _RUNNING or not boot.isdecimal():
            return None
        return Crash(node, int(boot), path.stat().st_mtime_ns // 1000)
    except FileNotFoundError:
        return None


def note_run(spool: Path, boot: int, *, is_running: bool) -> None:
    """Note that this run begins, or has ended in order. Raises OSError."""
    (spool / LOCK_NAME).write_text(f"{_RUNNING if is_running else _ENDED} {boot}\n", encoding="ascii")


def note_written(spool: Path, time_ns: int) -> None:
    """Note that everything up to this time is on the disk. Raises OSError."""
    os.utime(spool / LOCK_NAME, ns=(time_ns, time_ns))


class ChainLink(Struct, frozen=True, kw_only=True):
    """The newest sealed segment of a kind."""

    boot: int
    segno: int
    last_seq: int
    sha256: str


@dataclass(slots=True)
class Chain:
    """The newest sealed segment of every kind, remembered in `chain.json` after a pipeline has taken the files away."""

    links: dict[RecordKind, ChainLink] = field(default_factory=dict)

    def prev_sha256(self, kind: RecordKind) -> str:
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
            chain.links = {RecordKind(name): link for name, link in links.items()}
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
        raise SettingsError(
            f"records spool {spool} is in use by another node: stop it, or name another records.spool_dir"
        ) from exc
    return descriptor


def newest_boot(spool: Path) -> int:
    """Highest boot number that any file in the spool carries, 0 for none. Raises OSError."""
    return max((name.boot for _, name in _segments(spool)), default=0)


def recover(spool: Path, *, signer: Signer | None, crash: Crash | None = None) -> tuple[Chain, list[SegmentManifest]]:
    """Seal everything that an earlier run left unfinished, oldest first. Raises OSError; may be repeated.

    After a crash the last segment of messages says which time is uncertain.
    """
    for path in spool.glob(f"*{TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)
    chain = Chain.load(spool)
    sealed: list[SegmentManifest] = []
    unfinished = [(name, path) for path, name in _segments(spool) if _is_unfinished(path, name)]
    last = None
    if crash is not None:
        own = [name for name, _ in unfinished if (name.kind, name.boot) == (RecordKind.MESSAGE, crash.boot)]
        last = max(own, default=_next_name(crash, chain), key=lambda name: name.segno)
        if not own:
            unfinished.append((last, spool / f"{last}{OPEN_SUFFIX}"))
    for name, path in sorted(unfinished, key=lambda item: item[0][2:]):
        manifest = _seal_recovered(spool, path, name, chain, _Sealing(signer, crash if name == last else None))
        if manifest is not None:
            chain.follow(manifest)
            sealed.append(manifest)
    chain.save(spool)
    return chain, sealed


def _segments(spool: Path) -> Iterator[tuple[Path, SegmentName]]:
    for path in spool.iterdir():
        for suffix in (OPEN_SUFFIX, *SEALED_SUFFIXES, MANIFEST_SUFFIX):
            name = SegmentName.parse(path.name.removesuffix(suffix)) if path.name.endswith(suffix) else None
            if name is not None:
                yield path, name


def _is_unfinished(path: Path, name: SegmentName) -> bool:
    if path.name.endswith(OPEN_SUFFIX):
        return True
    return path.name.endswith(SEALED_SUFFIXES) and not path.with_name(f"{name}{MANIFEST_SUFFIX}").exists()


@dataclass(frozen=True, slots=True)
class _Sealing:
    """Who signs, and which crash the segment ends with."""

    signer: Signer | None
    crash: Crash | None


def _next_name(crash: Crash, chain: Chain) -> SegmentName:
    """The segment of messages that the run would have opened next."""
    link = chain.links.get(RecordKind.MESSAGE)
    segno = link.segno + 1 if link is not None and link.boot == crash.boot else 1
    return SegmentName(RecordKind.MESSAGE, crash.node, crash.boot, segno)


def _seal_recovered(
    spool: Path, path: Path, name: SegmentName, chain: Chain, sealing: _Sealing
) -> SegmentManifest | None:
    crash, now_us = sealing.crash, time.time_ns() // 1000
    data = path.read_bytes() if path.exists() else b""
    whole_bytes, frames = _whole_frames(data)
    if not frames and crash is None:
        path.unlink()
        sync_folder(spool)
        return None
    if not frames:
        data = frame_compressor().compress(b"")
        whole_bytes = len(data)
        replace_file(path, data)
    elif whole_bytes < len(data):
        _cut(path, whole_bytes)
    opened_us = frames[0].times_us[0] if frames or crash is None else min(crash.from_us, now_us)
    unsigned = make_manifest(
        name,
        _facts(frames, chain.links.get(name.kind), name, SegmentFacts(1, opened_us, _version(path, frames))),
        file=SegmentFile(
            size_bytes=whole_bytes,
            sha256=hashlib.sha256(data[:whole_bytes]).hexdigest(),
            prev_sha256=chain.prev_sha256(name.kind),
        ),
        closure="recovered",
        closed_us=now_us,
    )
    if crash is not None:
        unsigned = with_crash(unsigned, (min(crash.from_us, now_us), now_us))
    manifest = sign_manifest(unsigned, sealing.signer)
    publish_segment(spool, name, manifest)
    return manifest


class _Line(Struct):
    seq: int
    ts_us: int
    policy_rev: str | None = None
    stub_ver: str | None = None


_decode_lines = msgspec.json.Decoder(_Line).decode_lines


@dataclass(frozen=True, slots=True)
class _Frame:
    """The contents of a frame that is not empty."""

    version: int
    first_seq: int
    last_seq: int
    times_us: Sequence[int]
    policy_revs: Collection[str | None]
    stub_vers: Collection[str | None]


def _frame_of(content: bytes) -> _Frame | None:
    """None for one without records. Raises msgspec.DecodeError, PeerError: it is damaged."""
    if content.startswith(BLOCK_MAGIC):
        block = read_block(content)
        first, records = block.header.first_seq, block.header.records
        words = block.words("policy_rev"), block.words("stub_ver")
        return _Frame(BLOCKS_VERSION, first, first + records - 1, block.numbers("ts_us"), *words)
    lines = _decode_lines(content)
    if not lines:
        return None
    revisions, versions = {line.policy_rev for line in lines}, {line.stub_ver for line in lines}
    times_us = [line.ts_us for line in lines]
    return _Frame(LINES_VERSION, lines[0].seq, lines[-1].seq, times_us, revisions, versions)


def _whole_frames(data: bytes) -> tuple[int, list[_Frame]]:
    """Length of the undamaged beginning, and its frames. One counts only when its checksum and content are good."""
    decompressor = zstandard.ZstdDecompressor()
    position, frames = 0, list[_Frame]()
    while (end := frame_end(data, position)) is not None:
        frame = data[position:end]
        try:
            if zstandard.frame_content_size(frame) > FRAME_BYTES_MAX:
                break
            found = _frame_of(decompressor.decompress(frame))
        except (zstandard.ZstdError, msgspec.DecodeError, PeerError):
            break
        if found is not None and frames and found.version != frames[0].version:
            break
        frames += [found] if found is not None else []
        position = end
    return position, frames


def _version(path: Path, frames: list[_Frame]) -> int:
    """Schema version of a segment; of an empty one as its file is named."""
    if frames:
        return frames[0].version
    return BLOCKS_VERSION if path.name.endswith(BLOCKS_SUFFIX) else LINES_VERSION


def _facts(frames: list[_Frame], before: ChainLink | None, name: SegmentName, facts: SegmentFacts) -> SegmentFacts:
    """Add the records of a segment to its facts. A gap before it or inside it counts as lost."""
    follows = before is not None and before.boot == name.boot and before.segno == name.segno - 1
    own_seq = frames[0].first_seq if frames else 1
    first_seq = before.last_seq + 1 if before is not None and follows else own_seq
    facts.first_seq = first_seq
    if not frames:
        return facts
    for frame in frames:
        facts.add(frame.times_us, frame.policy_revs, frame.stub_vers)
    facts.lost_records = max(0, frames[-1].last_seq - first_seq + 1 - facts.records)
    return facts


def _cut(path: Path, size_bytes: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
