"""Blocks become the rows that their lines would become, and what is no block costs its segment and nothing else."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.columns import words
from pipeline.core.findings import Finding
from pipeline.segments import rows as segment_rows
from pipeline.segments.claims import Source
from pipeline.segments.content import ContentError
from pipeline.segments.node_keys import Trust
from pipeline.segments.rows import SegmentReader
from pipeline.segments.spool import examine, find_manifests
from protofly.block_encoding import encode_blocks
from protofly.record_blocks import BLOCK_MAGIC, BLOCK_RECORDS_MAX, read_block
from protofly.record_segments import frame_compressor
from protofly.records import MessageRecord, RecordKind, SegmentManifest
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import NODE, SECOND_US, START_US, SegmentWriter, message
from tests.support.message_records import message_records

HIGHEST = 1000


def manifest_of(records: int, *, version: int) -> SegmentManifest:
    return SegmentManifest(
        kind=RecordKind.MESSAGE,
        node=NODE,
        boot=1,
        segno=7,
        first_seq=1,
        last_seq=HIGHEST,
        records=records,
        lost_records=HIGHEST - records,
        size_bytes=0,
        sha256="",
        prev_sha256="",
        min_ts_us=START_US,
        max_ts_us=START_US + 3600 * SECOND_US,
        opened_us=START_US,
        closed_us=START_US + 3600 * SECOND_US,
        closure="time",
        schema_version=version,
    )


def blocks_of(records: Sequence[MessageRecord], first_seq: int = 1) -> list[bytes]:
    return [one.content for one in encode_blocks(records, node=NODE, boot=1, first_seq=first_seq)]


def framed(contents: Sequence[bytes]) -> bytes:
    return b"".join(map(frame_compressor().compress, contents))


def rows_of(segments: Sequence[tuple[bytes, SegmentManifest]]) -> list[tuple[list[Any], list[Any]]]:
    """Good rows, and the errors and lines of bad ones, of segments that are read one after the other."""
    reader = SegmentReader(RecordKind.MESSAGE)
    sources = [(content, Source(manifest, "2026-03-01")) for content, manifest in segments]
    found = [*chain.from_iterable(reader.read(content, source) for content, source in sources), *reader.rest()]
    good = [{**row, "v": None} for rows in found for row in rows.good.to_pylist()]
    bad = [row for rows in found for _, table in rows.bad for row in table.to_pylist()]
    return [(good, [(sorted(row["errors"]), row["seq"], without_version(row["line"])) for row in bad])]


def without_version(line: str) -> Any:
    return {**json.loads(line), "v": None}


def as_lines(blocks: Sequence[bytes]) -> list[bytes]:
    """The content of a segment of version 1 with the same records."""
    lines = [line for block in blocks for line in read_block(block).lines()]
    return [b"".join(line.replace(b'{"v":2', b'{"v":1', 1) + b"\n" for line in lines)]


@given(
    parts=st.lists(message_records(), min_size=1, max_size=3),
    sound=st.booleans(),
    words_max=st.sampled_from([2, 5, words.WORDS_MAX]),
    unit_lines=st.integers(1, 30),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_in_columns_become_the_rows_that_version_1_becomes(
    parts: list[list[MessageRecord]],
    sound: bool,
    words_max: int,
    unit_lines: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(words, "WORDS_MAX", words_max)
    monkeypatch.setattr(segment_rows, "UNIT_LINES", unit_lines)
    blocks: list[bytes] = []
    first_seq = 1
    for records in parts:
        for number, record in enumerate(records):
            if sound:
                record.ts_us, record.role, record.outcome = START_US + number, "out", "delivered"
                record.msg_id, record.attempt = f"{number:032x}", 1 + number % 2
        blocks += blocks_of(records, first_seq)
        first_seq += len(records)
    count = first_seq - 1
    in_columns = rows_of([(framed(blocks), manifest_of(count, version=2))])
    in_lines = rows_of([(framed(as_lines(blocks)), manifest_of(count, version=1))])
    assert in_columns == in_lines


def test_segments_of_both_versions_are_judged_together_each_by_its_own() -> None:
    records = [message(number) for number in range(1, 9)]
    lines = framed(as_lines(blocks_of(records)))
    mixed = [
        (lines, manifest_of(8, version=1)),
        (framed(blocks_of(records)), manifest_of(8, version=2)),
        (lines, manifest_of(8, version=1)),
    ]
    [(good, bad)] = rows_of(mixed)
    assert (len(good), bad) == (24, [])
    assert [row["seq"] for row in good] == [*range(1, 9)] * 3
    assert {row["v"] for row in good_rows(mixed[1])} == {2}


def good_rows(segment: tuple[bytes, SegmentManifest]) -> list[dict[str, Any]]:
    reader = SegmentReader(RecordKind.MESSAGE)
    found = [*reader.read(segment[0], Source(segment[1], "2026-03-01")), *reader.rest()]
    return [row for rows in found for row in rows.good.to_pylist()]


def test_lines_of_the_other_version_are_none_of_their_segment() -> None:
    blocks = blocks_of([message(1), message(2)])
    lines = [line + b"\n" for block in blocks for line in read_block(block).lines()]
    [(good, bad)] = rows_of([(framed(lines), manifest_of(2, version=1))])
    assert (good, [errors for errors, _, _ in bad]) == ([], [["schema"], ["schema"]])


def header_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(content[4:8], "little")
    return json.loads(content[8:end]), content[end:]


def changed(content: bytes, **members: Any) -> bytes:
    header, data = header_of(content)
    encoded = json.dumps(header | members).encode()
    return BLOCK_MAGIC + len(encoded).to_bytes(4, "little") + encoded + data


def with_column(content: bytes, name: str, **column: Any) -> bytes:
    header, _ = header_of(content)
    columns = [one for one in header["columns"] if one["name"] != name]
    return changed(content, columns=[*columns, {"name": name, **column}])


@pytest.mark.parametrize(
    ("name", "column", "error"),
    [
        ("attempt", {"form": "same", "values": [1 << 31]}, "not-a-record"),
        ("attempt", {"form": "same", "values": ["one"]}, "not-a-record"),
        ("role", {"form": "same", "values": [7]}, "not-a-record"),
        ("role", {"form": "same", "values": ["aside"]}, "word:role"),
        ("role", {"form": "same", "values": [None]}, "missing:role"),
        ("fuel", {"form": "same", "values": [-(1 << 63)]}, "not-a-record"),
        ("fuel", {"form": "same", "values": [-1]}, "negative"),
        ("facts", {"form": "same", "values": ["text"]}, "object:facts"),
        ("channel", {"form": "each", "values": ["stub", 1, None]}, "not-a-record"),
    ],
)
def test_a_value_that_is_none_of_its_member_costs_its_records_and_not_the_segment(
    name: str, column: dict[str, Any], error: str
) -> None:
    [block] = blocks_of([message(number) for number in range(1, 4)])
    [(good, bad)] = rows_of([(framed([with_column(block, name, **column)]), manifest_of(3, version=2))])
    assert {one for errors, _, _ in bad for one in errors} == {error}
    assert len(good) + len(bad) == 3
    assert len(good) == (2 if name == "channel" else 0)


def test_a_member_that_nobody_knows_yet_is_passed_over() -> None:
    [block] = blocks_of([message(1)])
    later = with_column(block, "later", form="same", values=[{"a": [1]}])
    [(good, bad)] = rows_of([(framed([later]), manifest_of(1, version=2))])
    assert (len(good), bad) == (1, [])


BLOCK = blocks_of([message(number) for number in range(1, 4)])[0]
compress = frame_compressor().compress
HOSTILE_FRAMES = {
    "no block": (compress(b"{}\n"), Finding.FRAME),
    "two blocks in a frame": (compress(BLOCK + BLOCK), Finding.FRAME),
    "a word that there is not": (
        compress(with_column(BLOCK, "x", form="words", values=["a"]) + b"\1\1\1"),
        Finding.FRAME,
    ),
    "a column twice": (
        compress(changed(BLOCK, columns=[{"name": "x", "form": "same", "values": [1]}] * 2)),
        Finding.FRAME,
    ),
    "fewer records": (compress(blocks_of([message(1)])[0]), Finding.COUNT),
    "more records": (compress(BLOCK) * 2, Finding.COUNT),
    "a torn end": (compress(BLOCK) + compress(BLOCK)[:-1], Finding.TORN),
    "a flipped bit": (compress(BLOCK)[:-1] + b"?", Finding.FRAME),
    "a bomb of zeros": (compress(BLOCK_MAGIC + bytes(1 << 28)), Finding.TOO_LARGE),
    "a size that is not said": (
        zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(write_checksum=True, write_content_size=False)
        ).compress(BLOCK),
        Finding.FRAME,
    ),
    "a bomb of one word": (
        compress(
            changed(
                BLOCK[: 8 + int.from_bytes(BLOCK[4:8], "little")],
                records=BLOCK_RECORDS_MAX,
                columns=[{"name": "src_key", "form": "same", "values": ["x" * 100_000]}],
            )
        ),
        Finding.FRAME,
    ),
}


@pytest.mark.parametrize("name", HOSTILE_FRAMES)
def test_a_hostile_block_makes_its_segment_rejected_in_little_memory_and_the_next_one_is_read(
    name: str, tmp_path: Path
) -> None:
    frames, finding = HOSTILE_FRAMES[name]
    writer = SegmentWriter(tmp_path, version=2)
    manifest = writer.seal_frames(frames, records=3)
    writer.seal([message(4)])
    hostile, sound = [examine(place, Trust()) for place in find_manifests([tmp_path])]
    assert finding in hostile.findings
    assert hostile.is_fatal
    assert not sound.is_fatal
    tracemalloc.start()
    try:
        with pytest.raises(ContentError):
            rows_of([(frames, manifest)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_a_segment_of_a_version_that_is_not_known_says_so(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, version=2)
    manifest = msgspec.structs.replace(writer.seal([message(1)]), schema_version=3)
    [place] = find_manifests([tmp_path])
    on_disk(place.manifest_path).write_bytes(msgspec.json.encode(manifest))
    assert Finding.SCHEMA in examine(place, Trust()).findings
