"""What nodes wrote, read with nothing but the schemas: the oracle against the generator's own truth."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from benchmarks.synth.truth import Truth
from interop.lab.spool import lines_of
from protofly.record_segments import sealed_suffix
from protofly.records import RECORD_TYPES, Record, RecordKind, SegmentManifest, decode_manifest


def manifests(spool: Path) -> list[tuple[Path, SegmentManifest]]:
    """Every manifest, with the file that it vouches for."""
    return [
        (path.with_name(path.name.replace(".manifest.json", sealed_suffix(min(manifest.schema_version, 2)))), manifest)
        for path in sorted(spool.rglob("*.manifest.json"))
        if (manifest := decode_manifest(path.read_bytes()))
    ]


def records_in(path: Path) -> list[bytes]:
    """The lines of one segment file, or those that its blocks stand for."""
    return list(lines_of(path))


def readable(spool: Path, kind: RecordKind, truth: Truth) -> list[Record]:
    """Records of one kind that the truth calls readable, each once."""
    spoilt = {fault.path for fault in truth.segments if not fault.is_readable}
    doubled = {fault.path for fault in truth.segments if fault.is_readable}
    decode = msgspec.json.Decoder(RECORD_TYPES[kind]).decode
    records: list[Record] = []
    for path, manifest in manifests(spool):
        name = str(path.relative_to(spool))
        if manifest.kind is kind and name not in spoilt and name not in doubled:
            records += map(decode, records_in(path))
    return records


def file_sha256(path: Path) -> str:
    """Hash of a whole file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
