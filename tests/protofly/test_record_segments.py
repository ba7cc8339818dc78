"""Sealed segments: names of their files, and what is collected for their manifests."""

from __future__ import annotations

import pytest

from protofly.record_segments import SegmentFacts, SegmentName
from protofly.records import RecordKind


@pytest.mark.parametrize("kind", RecordKind)
def test_a_name_is_read_as_it_was_written(kind: RecordKind) -> None:
    name = SegmentName(kind, "mn-1.a.example", 7, 12)
    assert str(name).endswith("-mn-1.a.example-7-000012")
    assert SegmentName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text", ["", "mdr", "mdr-mn-1", "mdr-mn-7-x", "mdr--7-1", "xyz-mn-7-1", "MDR-mn-7-1", "mdr-mn-7-1.tmp"]
)
def test_what_names_no_segment_is_none(text: str) -> None:
    assert SegmentName.parse("mdr-mn-7-1") == SegmentName(RecordKind.MESSAGE, "mn", 7, 1)
    assert SegmentName.parse(text) is None


def test_facts_cover_all_frames_and_leave_out_what_is_empty() -> None:
    facts = SegmentFacts(first_seq=5, opened_us=1)
    facts.add([20, 10, 30], ["r2", None, ""], [None, "1.0", ""])
    facts.add([], [], [])
    facts.add([15, 40], ["r1", "r2"], ["1.0", None])
    assert (facts.records, facts.min_ts_us, facts.max_ts_us) == (5, 10, 40)
    assert (facts.policy_revs, facts.stub_vers) == ({"r1", "r2"}, {"1.0"})
    facts.lost_records = 2
    assert facts.last_seq == 11
