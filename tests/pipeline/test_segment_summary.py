"""What a terminal says of segments: everything that someone should look at, in few lines."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pipeline.core.findings import Finding, SegmentVerdict, Severity
from pipeline.segments.spool import Place, Segment
from pipeline.segments.summary import LINES, FindingSummary, missing_line


def segment(number: int, finding: Finding | None = None, remark: str = "", node: str = "mn-1.a.example") -> Segment:
    place = Place("/spool", f"mdr-{node}-1-{number:06d}.manifest.json", 10, 1)
    made = Segment(place, verdict=SegmentVerdict.ACCEPTED)
    if finding is not None:
        made.find(finding, remark)
        made.verdict = SegmentVerdict.REJECTED if made.is_fatal else SegmentVerdict.ACCEPTED
    return made


def lines_of(segments: Iterable[Segment]) -> list[str]:
    shown = FindingSummary()
    for one in segments:
        shown.add([one])
    return shown.lines()


@pytest.mark.parametrize(
    "finding", [one for one in Finding if one.severity >= Severity.WARNING and one is not Finding.GAP]
)
def test_every_finding_above_fine_is_reported_with_what_to_do(finding: Finding) -> None:
    [line] = lines_of([segment(7, finding)])
    assert line.startswith("mn-1.a.example: mdr segment ")
    assert f"{finding.code}: {finding.meaning}" in line
    assert finding.advice in line
    assert ("rejected" in line) == (finding.severity is Severity.FATAL)
    assert "mdr-mn-1.a.example-1-000007.manifest.json" in line


def test_what_is_fine_is_left_out_and_gaps_are_reported_for_the_chain_as_it_is_in_the_end() -> None:
    assert lines_of([segment(1), segment(2, Finding.COPY), segment(3, Finding.GAP)]) == []


def test_segments_of_one_chain_with_the_same_finding_share_a_line_and_the_gravest_come_first() -> None:
    lines = lines_of(
        [segment(1, Finding.UNKNOWN_KEY), segment(2, Finding.UNKNOWN_KEY), segment(3, Finding.TORN, "5 of 9 bytes")]
    )
    assert lines == [
        "mn-1.a.example: mdr segment rejected, torn: the segment ends within a frame (5 of 9 bytes); fetch manifest "
        "and segment again from the node's spool and ingest again [mdr-mn-1.a.example-1-000003.manifest.json]",
        "mn-1.a.example: 2 mdr segments accepted, but unknown-key: signed by an untrusted key; add it "
        "to --keys if it is correct [first: mdr-mn-1.a.example-1-000001.manifest.json]",
    ]


def test_a_missing_signature_is_reported_as_a_rejection_where_it_is_required() -> None:
    strict = Segment(Place("/spool", "mdr-n.example-1-000001.manifest.json", 1, 1), is_strict=True)
    strict.find(Finding.UNSIGNED)
    assert "rejected, unsigned" in lines_of([strict])[0]


def test_however_many_nodes_there_are_the_lines_are_bounded_and_the_rest_is_counted() -> None:
    lines = lines_of(segment(1, Finding.HASH, node=f"mn-{number}.a.example") for number in range(LINES + 5))
    assert len(lines) == LINES + 1
    assert lines[-1].startswith("5 more kinds of findings")


def test_a_manifest_that_says_nothing_is_reported_by_its_path() -> None:
    nameless = Segment(Place("/spool", "odd.manifest.json", 1, 1))
    nameless.find(Finding.MALFORMED)
    [line] = lines_of([nameless])
    assert line.startswith("segment rejected, malformed: ")
    assert line.endswith("[odd.manifest.json]")


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [(2, 2, "mdr segment 2 of"), (2, 5, "mdr segments 2…5 of"), (4, 0, "segments 4 and behind")],
)
def test_missing_numbers_are_reported_without_saying_why_they_are_missing(first: int, last: int, shown: str) -> None:
    line = missing_line("mn-1.a.example", "mdr", 1, first, last)
    assert shown in line
    assert "did not come or w" in line
    assert "rejected: fetch" in line
