"""Segments as they lie in a spool: found, read and verified one by one. No Spark, and nothing here is believed.

A spool may be a partner's, so names, manifests and content are hostile until proven otherwise: links are not followed,
and every size is bounded.

Whether a segment fits to the others of its node is decided afterwards, in `pipeline.segments.chains`.

Source: pipeline study, sections 4 and 8.1.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import logging
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from pipeline.core.findings import SIGNATURE_FINDINGS, Finding, SegmentVerdict, Severity
from pipeline.lake import storage
from pipeline.lake.store_path import Location, StorePath, location
from pipeline.segments.content import MACHINE_ERRORS, ContentError, check_file, contents_of, failure, trace
from pipeline.segments.node_keys import Trust
from protofly.errors import PeerError
from protofly.record_segments import (
    ERASED_SUFFIX,
    LINES_VERSION,
    MANIFEST_SUFFIX,
    SegmentName,
    known_versions,
    sealed_suffix,
)
from protofly.records import SegmentManifest, decode_manifest
from protofly.signatures import verify_signature

MANIFEST_BYTES_MAX: Final = 256 << 10
SEGMENT_BYTES_MAX: Final = 256 << 20
"""Of the file. Nodes seal at 64 MiB before compression."""
CLOCK_SLACK_US: Final = 86_400_000_000
"""A record waits for its segment, and a segment for its seal; not for days."""
TIME_MIN_US: Final = 1_577_836_800_000_000
TIME_MAX_US: Final = 4_102_444_800_000_000
"""Years 2020 to 2099: what else a clock may say is wrong."""

_log = logging.getLogger(__name__)
_INTEGER_MAX: Final = (1 << 63) - 1
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Location of a manifest: path relative to its spool, with size and time to detect changes."""

    spool: str
    path: str
    size_bytes: int
    mtime_us: int

    @property
    def manifest_path(self) -> Location:
        """Location of the manifest."""
        return location(self.spool) / self.path

    @property
    def segment_paths(self) -> Sequence[Location]:
        """Possible locations of its segment, likeliest first; the schema version in the manifest decides."""
        name = SegmentName.parse(self.stem)
        versions = (LINES_VERSION,) if name is None else reversed(known_versions(name.kind))
        return [self.segment_path(version) for version in versions]

    def segment_path(self, version: int) -> Location:
        """Location of its segment if the manifest says this schema version."""
        return location(self.spool) / (self.path.removesuffix(MANIFEST_SUFFIX) + sealed_suffix(version))

    @property
    def erased_path(self) -> Location:
        """Location of the file that `erase` leaves in place of the segment."""
        return location(self.spool) / (self.path.removesuffix(MANIFEST_SUFFIX) + ERASED_SUFFIX)

    @property
    def stem(self) -> str:
        """The stem of the names of both files."""
        return PurePosixPath(self.path).name.removesuffix(MANIFEST_SUFFIX)


@dataclass(slots=True)
class Segment:
    """One manifest, what was found out about it, and what became of it."""

    place: Place
    manifest_sha256: str = ""
    manifest: SegmentManifest | None = None
    findings: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    is_strict: bool = False
    verdict: SegmentVerdict = SegmentVerdict.REJECTED
    rows_good: int = 0
    rows_quarantined: int = 0

    def find(self, finding: Finding, remark: str = "") -> None:
        """Note a finding, once."""
        if finding not in self.findings:
            self.findings.append(finding)
            self.remarks += [remark] if remark else []

    def severity_of(self, finding: Finding) -> Severity:
        """Severity of a finding in this segment: findings of signatures are fatal if signatures are required."""
        return Severity.FATAL if self.is_strict and finding in SIGNATURE_FINDINGS else finding.severity

    @property
    def severity(self) -> Severity:
        """The worst of all findings."""
        return max((self.severity_of(finding) for finding in self.findings), default=Severity.FINE)

    @property
    def is_fatal(self) -> bool:
        """True if it cannot be accepted."""
        return self.severity is Severity.FATAL

    @property
    def name(self) -> SegmentName | None:
        """Name of the segment: from its manifest, or if that is unreadable from the file name; None if invalid."""
        if self.manifest is not None:
            return SegmentName(self.manifest.kind, self.manifest.node, self.manifest.boot, self.manifest.segno)
        name = SegmentName.parse(self.place.stem)
        return name if name is not None and max(name.boot, name.segno) <= _INTEGER_MAX else None

    @property
    def day(self) -> str:
        """UTC day of its last record, for what has no better one."""
        times = (self.manifest.max_ts_us, self.manifest.closed_us) if self.manifest else ()
        time_us = next((time for time in times if TIME_MIN_US <= time < TIME_MAX_US), 0)
        return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d")

    def row(self, batch: int) -> dict[str, Any]:
        """Its row in the ledger."""
        by_severity = sorted(self.findings, key=lambda finding: -self.severity_of(finding))
        reasons = [f"{finding.meaning}: {finding.advice}" for finding in by_severity]
        name, manifest = self.name, self.manifest
        members: dict[str, Any] = {} if manifest is None else msgspec.structs.asdict(manifest)
        for dropped in ("format", "signature", "kind", "node", "boot", "segno"):
            members.pop(dropped, None)
        for time in ("uncertain_from_us", "uncertain_until_us"):
            members[time] = members.get(time) or None
        for texts in ("policy_revs", "stub_vers"):
            members[texts] = list(members.get(texts, ()))
        return {
            **members,
            "kind": name.kind.value if name else None,
            "node": name.node if name else None,
            "boot": name.boot if name else None,
            "segno": name.segno if name else None,
            "spool": self.place.spool,
            "path": self.place.path,
            "manifest_sha256": self.manifest_sha256,
            "manifest_mtime_us": self.place.mtime_us,
            "verdict": self.verdict.value,
            "severity": self.severity.word,
            "findings": [finding.code for finding in by_severity],
            "detail": "; ".join(reasons + self.remarks),
            "rows_good": self.rows_good,
            "rows_quarantined": self.rows_quarantined,
            "batch": batch,
        }


def find_manifests(spools: Iterable[Location]) -> Iterator[Place]:
    """Every manifest in and below these folders; links to folders are not followed.

    Raises:
        OSError: A folder cannot be listed.
    """
    for spool in spools:
        yield from _manifests_on_disk(spool) if isinstance(spool, Path) else _manifests_in_store(spool)


def _manifests_in_store(spool: StorePath) -> Iterator[Place]:
    for file in storage.files_below(spool, MANIFEST_SUFFIX):
        if not PurePosixPath(file.path).name.startswith("."):
            yield Place(str(spool), *file)


def _manifests_on_disk(spool: Path) -> Iterator[Place]:
    root = os.fspath(spool.absolute())
    for path in _manifests_below(root):
        found = _stat(f"{root}{os.sep}{path}")
        if found is not None and _is_text(path):
            yield Place(root, path, found.st_size, found.st_mtime_ns // 1000)


def _manifests_below(root: str) -> Iterator[str]:
    """Paths of manifests, relative to `root`, in order."""
    for folder, folders, files in os.walk(root, onerror=_raise):
        folders.sort()
        inside = "" if folder == root else os.path.relpath(folder, root) + os.sep
        yield from (
            inside + name for name in sorted(files) if name.endswith(MANIFEST_SUFFIX) and not name.startswith(".")
        )


def _stat(path: str) -> os.stat_result | None:
    """What is known of a file; None when it has gone since its folder was listed."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def examine(place: Place, trust: Trust, *, reads_lines: bool = True) -> Segment:
    """Verify one segment by itself: files, manifest, signature, content. Never raises for what it finds in there.

    Args:
        place: Where its manifest lies.
        trust: Whose signatures count.
        reads_lines: False leaves out what takes decompressing: whether the frames are sound and how many lines there
            are, unless there are to be none. Decoding the lines finds that out; see `contents_of`.

    Raises:
        MemoryError, OSError: This machine failed.
    """
    segment = Segment(place, is_strict=trust.requires_signatures)
    try:
        _examine(segment, trust, reads_lines=reads_lines)
    except MACHINE_ERRORS:
        raise
    except Exception as exc:  # a defect of ours may cost this segment, never the run
        _log.error("segment %s: %s", ascii(place.stem), trace(exc))
        segment.find(Finding.FAILED, failure(exc))
    return segment


def _examine(segment: Segment, trust: Trust, *, reads_lines: bool) -> None:
    place = segment.place
    raw = _read(place.manifest_path, MANIFEST_BYTES_MAX, segment, too_large=Finding.MANIFEST_TOO_LARGE)
    if raw is None:
        return
    segment.manifest_sha256 = hashlib.sha256(raw).hexdigest()
    manifest = _decode(raw, segment)
    if manifest is None:
        return
    segment.manifest = manifest
    if str(segment.name) != place.stem:
        segment.find(Finding.NAME, f"the manifest calls for {segment.name}")
    _check_numbers(manifest, segment)
    _check_signature(manifest, trust, segment)
    if manifest.schema_version not in known_versions(manifest.kind):
        segment.find(Finding.SCHEMA, f"version {manifest.schema_version}")
    if segment.is_fatal:
        return
    path = place.segment_path(manifest.schema_version)
    content = _read(path, SEGMENT_BYTES_MAX, segment, too_large=Finding.TOO_LARGE)
    if Finding.MISSING in segment.findings and storage.exists(place.erased_path):
        segment.findings[segment.findings.index(Finding.MISSING)] = Finding.ERASED
    if content is not None:
        try:
            check_file(content, manifest)
            if reads_lines or not manifest.records:
                deque(contents_of(content, manifest), maxlen=0)
        except ContentError as exc:
            segment.find(exc.finding, exc.remark)


def verified_content(place: Place, manifest: SegmentManifest) -> bytes:
    """The file of a segment as its manifest says it is.

    Raises:
        ContentError: MISSING: it is not there. CHANGED: it is not what the manifest says, or not any more.
    """
    segment = Segment(place)
    path = place.segment_path(manifest.schema_version)
    content = _read(path, SEGMENT_BYTES_MAX, segment, too_large=Finding.TOO_LARGE)
    if Finding.MISSING in segment.findings:
        raise ContentError(Finding.MISSING)
    if content is None or hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise ContentError(Finding.CHANGED)
    return content


def _raise(error: OSError) -> None:
    raise error


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read(path: Location, limit: int, segment: Segment, *, too_large: Finding) -> bytes | None:
    content = _read_file(path, limit, segment) if isinstance(path, Path) else _read_object(path, limit, segment)
    if content is not None and len(content) > limit:
        segment.find(too_large, f"{path.name}: more than {limit} bytes")
        return None
    return content


def _read_object(path: Location, limit: int, segment: Segment) -> bytes | None:
    """As `_read_file`. Raises OSError: the store cannot be reached, which says nothing about the segment."""
    try:
        return storage.read_bytes(path, limit + 1)
    except FileNotFoundError:
        segment.find(Finding.MISSING, path.name)
    except OSError as exc:
        if _DENIED not in str(exc):
            raise
        segment.find(Finding.UNREADABLE, f"{path.name}: access denied")
    return None


def _read_file(path: Path, limit: int, segment: Segment) -> bytes | None:
    """The beginning of a file, with a byte beyond the limit if there is one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        segment.find(_OPEN_FAILURES.get(exc.errno or 0, Finding.UNREADABLE), f"{path.name}: {exc.strerror}")
        return None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        segment.find(Finding.NOT_A_FILE, path.name)
        return None
    try:
        with os.fdopen(descriptor, "rb") as file:
            return file.read(min(limit, found.st_size) + 1)  # room for all that it may be takes longer than a small one
    except OSError as exc:
        segment.find(Finding.UNREADABLE, f"{path.name}: {exc.strerror}")
        return None


_DENIED: Final = "ACCESS_DENIED"
"""What a store says of one object that is not for us."""
_OPEN_FAILURES = {errno.ELOOP: Finding.NOT_A_FILE, errno.ENXIO: Finding.NOT_A_FILE, errno.ENOENT: Finding.MISSING}


def _decode(raw: bytes, segment: Segment) -> SegmentManifest | None:
    try:
        manifest = decode_manifest(raw)
    except PeerError as exc:
        segment.find(Finding.MALFORMED, str(exc.detail)[:200])
        return None
    numbers = [value for value in msgspec.structs.asdict(manifest).values() if isinstance(value, int)]
    if not all(0 <= number <= _INTEGER_MAX for number in numbers) or manifest.schema_version > (1 << 31) - 1:
        segment.find(Finding.MALFORMED, "a number is out of range")
    elif not _NODE.fullmatch(manifest.node):
        segment.find(Finding.MALFORMED, "the node's name is none")
    elif not _SHA256.fullmatch(manifest.sha256) or not _SHA256.fullmatch(manifest.prev_sha256 or "0" * 64):
        segment.find(Finding.MALFORMED, "a hash is none")
    return None if segment.findings else manifest


def _check_numbers(manifest: SegmentManifest, segment: Segment) -> None:
    covered = manifest.last_seq - manifest.first_seq + 1
    if manifest.first_seq < 1 or manifest.segno < 1 or covered != manifest.records + manifest.lost_records:
        segment.find(
            Finding.NUMBERS,
            f"{manifest.records} records and {manifest.lost_records} lost in {manifest.first_seq}…{manifest.last_seq}",
        )
    if manifest.lost_records:
        segment.find(Finding.LOST, f"{manifest.lost_records} records")
    _check_crash(manifest, segment)
    times = [manifest.opened_us, manifest.closed_us]
    if manifest.records:
        times[1:1] = [manifest.min_ts_us, manifest.max_ts_us]
    is_odd = any(later < earlier - CLOCK_SLACK_US for earlier, later in pairwise(times))
    is_odd |= manifest.min_ts_us > manifest.max_ts_us or manifest.opened_us > manifest.closed_us
    if is_odd or not all(TIME_MIN_US <= time < TIME_MAX_US for time in times):
        segment.find(Finding.CLOCK, "opened, first, last, closed: " + ", ".join(moment(time) for time in times))


def _check_crash(manifest: SegmentManifest, segment: Segment) -> None:
    from_us, until_us = manifest.uncertain_from_us or 0, manifest.uncertain_until_us or 0
    if not from_us <= until_us <= manifest.closed_us:
        segment.find(Finding.NUMBERS, f"uncertain from {moment(from_us)} until {moment(until_us)}")
    elif until_us:
        segment.find(Finding.CRASH, f"uncertain from {moment(from_us)} until {moment(until_us)}")


def moment(time_us: int) -> str:
    """A time that a manifest claims, for people; whatever it is."""
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(time_us)


def _check_signature(manifest: SegmentManifest, trust: Trust, segment: Segment) -> None:
    if not manifest.signature:
        segment.find(Finding.UNSIGNED)
    elif trust.keys is None:
        segment.find(Finding.UNCHECKED)
    elif (key := trust.keys.get((manifest.node, manifest.key_id))) is None:
        segment.find(Finding.UNKNOWN_KEY, f"key {manifest.key_id[:64]} of {manifest.node}")
    elif not verify_signature(key, _signature_of(manifest), manifest.signed_bytes()):
        segment.find(Finding.SIGNATURE, f"key {manifest.key_id[:64]}")
    elif not key.is_valid_at(manifest.closed_us / 1e6):
        segment.find(Finding.KEY_EXPIRED, f"key {manifest.key_id[:64]}")


def _signature_of(manifest: SegmentManifest) -> bytes:
    try:
        return base64.b64decode(
            manifest.signature + "=" * (-len(manifest.signature) % 4), altchars=b"-_", validate=True
        )
    except (binascii.Error, ValueError):
        return b""
