"""`trapezoid records` reads segments in columns as it reads lines, and leaves out blocks that are none."""

from __future__ import annotations

from pathlib import Path

from protofly.block_encoding import encode_blocks
from protofly.record_blocks import BLOCK_MAGIC
from protofly.record_segments import BLOCKS_SUFFIX, OPEN_SUFFIX, SegmentName, frame_compressor
from protofly.records import RecordKind
from tests.pipeline.spools import message
from trapezoid.spool_reading import Remarks, lines_of, segments_in

NAME = SegmentName(RecordKind.MESSAGE, "mn-1.a.example", 7, 1)


def frame(first_seq: int, records: int) -> bytes:
    found = [message(number) for number in range(first_seq, first_seq + records)]
    encoded = encode_blocks(found, node=NAME.node, boot=NAME.boot, first_seq=first_seq)
    return b"".join(frame_compressor().compress(one.content) for one in encoded)


def test_records_of_blocks_are_read_and_a_block_that_is_none_costs_its_frame(tmp_path: Path) -> None:
    spoilt = frame_compressor().compress(BLOCK_MAGIC + b"nonsense")
    (tmp_path / f"{NAME}{BLOCKS_SUFFIX}").write_bytes(frame(1, 3) + spoilt + frame(4, 2))
    growing = NAME._replace(segno=2)
    (tmp_path / f"{growing}{OPEN_SUFFIX}").write_bytes(frame(6, 1) + frame(7, 9)[:-1])
    remarks = Remarks()
    segments = segments_in(tmp_path, frozenset({RecordKind.MESSAGE}))
    lines = [line for segment in segments for _, line in lines_of(segment, remarks)]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert {(line["v"], line["node"], line["role"]) for line in lines} == {(2, NAME.node, "out")}
    assert remarks.texts() == [f"{NAME}{BLOCKS_SUFFIX}: damaged block"]
