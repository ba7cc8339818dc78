"""How segments of a node fit together: copies, reuse, gaps that heal, chains that break."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.findings import Finding, SegmentVerdict
from pipeline.core.stretches import Accepted, Stretch, missing_numbers
from pipeline.segments.chains import SegmentChains
from pipeline.segments.spool import Place, Segment
from protofly.record_segments import SegmentName
from protofly.records import RecordKind, SegmentManifest
from tests.pipeline.spools import NODE, SECOND_US, START_US

RECORDS = 10


def manifest(segno: int, *, boot: int = 1, prev: str | None = None, **changes: object) -> SegmentManifest:
    """As a node would have written it, number by number; `prev` is the one before in the same boot unless given."""
    made = SegmentManifest(
        kind=RecordKind.MESSAGE,
        node=NODE,
        boot=boot,
        segno=segno,
        first_seq=(segno - 1) * RECORDS + 1,
        last_seq=segno * RECORDS,
        records=RECORDS,
        lost_records=0,
        size_bytes=100,
        sha256=hash_of(boot, segno),
        prev_sha256=prev if prev is not None else hash_of(boot, segno - 1) if segno > 1 else "",
        min_ts_us=START_US,
        max_ts_us=START_US,
        opened_us=START_US,
        closed_us=START_US,
        closure="time",
        schema_version=1,
    )
    return msgspec.structs.replace(made, **changes)


def hash_of(boot: int, segno: int) -> str:
    return sha256(f"{boot} {segno}".encode()).hexdigest()


def segment(what: SegmentManifest, spool: str = "spool", *findings: Finding) -> Segment:
    name = SegmentName(what.kind, what.node, what.boot, what.segno)
    return Segment(Place(spool, f"{name}.manifest.json", 1, 1), "raw", what, list(findings))


def judge(chains: SegmentChains, *segments: Segment) -> list[tuple[str, set[Finding]]]:
    return [(one.verdict.value, set(one.findings)) for one in chains.judge(segments)]


def test_segments_in_a_row_fit() -> None:
    assert judge(SegmentChains(), *[segment(manifest(number)) for number in (1, 2, 3)]) == [("accepted", set())] * 3


def test_the_same_again_is_a_copy_and_other_content_is_refused() -> None:
    chains = SegmentChains()
    chains.judge([segment(manifest(1))])
    assert judge(chains, segment(manifest(1), "other")) == [("copy", {Finding.COPY})]
    assert judge(chains, segment(manifest(1, sha256="e" * 64))) == [("rejected", {Finding.REUSED})]


def test_a_signed_segment_goes_before_an_unsigned_one_with_its_number() -> None:
    forged = segment(manifest(1, sha256="e" * 64), "a-first-by-name", Finding.UNSIGNED)
    judged = SegmentChains().judge([forged, segment(manifest(1), "z")])
    assert [(one.place.spool, one.verdict) for one in judged] == [
        ("z", SegmentVerdict.ACCEPTED),
        ("a-first-by-name", SegmentVerdict.REJECTED),
    ]


@pytest.mark.parametrize("spools", [("a", "z"), ("z", "a")])
def test_of_two_well_signed_segments_with_one_number_the_one_that_the_next_names_is_taken(
    spools: tuple[str, str],
) -> None:
    true, forged = segment(manifest(2), spools[0]), segment(manifest(2, sha256="e" * 64), spools[1])
    torn = segment(manifest(3), "spool", Finding.TORN)
    verdicts = {one.place: one.verdict for one in SegmentChains().judge([forged, true, torn])}
    assert (verdicts[true.place], verdicts[forged.place]) == (SegmentVerdict.ACCEPTED, SegmentVerdict.REJECTED)


def test_what_the_ledger_knows_behind_a_number_shows_which_of_two_is_right() -> None:
    behind = manifest(3)
    known = entry(1, 3).first
    assert (known.sha256, known.prev_sha256) == (behind.sha256, behind.prev_sha256)
    true, forged = segment(manifest(2), "z"), segment(manifest(2, sha256="e" * 64), "a")
    SegmentChains([(NODE, RecordKind.MESSAGE.value, known)]).judge([forged, true])
    assert (true.verdict, forged.verdict) == (SegmentVerdict.ACCEPTED, SegmentVerdict.REJECTED)


@pytest.mark.parametrize("finding", [Finding.SIGNATURE, Finding.UNKNOWN_KEY])
def test_nobody_vouches_for_well_signed_content_without_a_good_signature(finding: Finding) -> None:
    true, forged = segment(manifest(2), "a"), segment(manifest(2, sha256="e" * 64), "z")
    liar = segment(manifest(3, prev="e" * 64), "spool", finding)
    SegmentChains().judge([forged, true, liar])
    assert (true.verdict, forged.verdict) == (SegmentVerdict.ACCEPTED, SegmentVerdict.REJECTED)


def test_a_damaged_segment_does_not_take_its_number() -> None:
    chains = SegmentChains()
    assert judge(chains, segment(manifest(1), "spool", Finding.TORN)) == [("rejected", {Finding.TORN})]
    assert judge(chains, segment(manifest(1))) == [("accepted", set())]


def test_a_gap_is_reported_and_heals() -> None:
    chains = SegmentChains()
    chains.judge([segment(manifest(1))])
    assert judge(chains, segment(manifest(4))) == [("accepted", {Finding.GAP})]
    assert judge(chains, segment(manifest(2))) == [("accepted", {Finding.LATE})]
    assert judge(chains, segment(manifest(3))) == [("accepted", {Finding.LATE})]


def test_record_numbers_of_another_segment_are_refused() -> None:
    chains = SegmentChains()
    chains.judge([segment(manifest(1)), segment(manifest(2))])
    renumbered = manifest(3, first_seq=1, last_seq=RECORDS, prev=hash_of(1, 2))
    assert judge(chains, segment(renumbered)) == [("rejected", {Finding.OVERLAP})]


def test_record_numbers_that_reach_into_the_next_segment_are_refused() -> None:
    chains = SegmentChains()
    chains.judge([segment(manifest(1)), segment(manifest(3))])
    assert judge(chains, segment(manifest(2, last_seq=3 * RECORDS))) == [("rejected", {Finding.OVERLAP})]


def test_a_chain_that_breaks_is_reported_from_both_sides() -> None:
    chains = SegmentChains()
    chains.judge([segment(manifest(1))])
    assert judge(chains, segment(manifest(2, prev="a" * 64))) == [("accepted", {Finding.CHAIN_BREAK})]
    chains.judge([segment(manifest(4, prev="b" * 64))])
    assert judge(chains, segment(manifest(3))) == [("accepted", {Finding.CHAIN_BREAK, Finding.LATE})]


def test_records_between_two_segments_are_missed() -> None:
    late_start = manifest(2, first_seq=RECORDS + 4, last_seq=2 * RECORDS)
    assert judge(SegmentChains(), segment(manifest(1)), segment(late_start))[1] == (
        "accepted",
        {Finding.SEQUENCE_BREAK},
    )


def test_the_chain_goes_on_over_a_boot() -> None:
    next_boot = manifest(1, boot=2, prev=hash_of(1, 1))
    assert judge(SegmentChains(), segment(manifest(1)), segment(next_boot)) == [("accepted", set())] * 2
    lost_memory = manifest(1, boot=2)
    assert judge(SegmentChains(), segment(manifest(1)), segment(lost_memory))[1] == ("accepted", {Finding.CHAIN_START})
    behind = manifest(1, boot=2, prev=hash_of(1, 3))
    assert judge(SegmentChains(), segment(manifest(1)), segment(behind))[1] == ("accepted", {Finding.GAP})


def test_a_chain_may_begin_in_the_middle() -> None:
    assert judge(SegmentChains(), segment(manifest(17))) == [("accepted", {Finding.FIRST})]


def entry(boot: int, segno: int, prev: str | None = None) -> Stretch:
    made = manifest(segno, boot=boot, prev=prev)
    numbers = (boot, segno, made.first_seq, made.last_seq)
    only = Accepted(*numbers, made.sha256, made.prev_sha256, made.opened_us, made.closed_us)
    return Stretch(
        *("n1", "mdr", only, only),
        lost_records=0,
        quarantined_rows=0,
        unchecked_segments=0,
        newest_closed_us=made.closed_us,
        first_uncertain_us=(0, 0),
        holes=(),
    )


@pytest.mark.parametrize(
    ("back_us", "is_reported"),
    [(0, False), (119 * SECOND_US, False), (121 * SECOND_US, True), (400 * 86_400 * SECOND_US, True)],
)
@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["in order", "the earlier one later"])
@pytest.mark.parametrize("boot", [1, 2], ids=["same boot", "next boot"])
def test_a_clock_that_went_back_between_two_segments_is_reported_and_costs_no_records(
    back_us: int, is_reported: bool, order: tuple[int, int], boot: int
) -> None:
    second = manifest(2) if boot == 1 else manifest(1, boot=2, prev=hash_of(1, 1))
    second = msgspec.structs.replace(second, opened_us=START_US - back_us, closed_us=START_US + SECOND_US)
    pair = {1: segment(manifest(1)), 2: segment(second)}
    chains = SegmentChains()
    for number in order:
        chains.judge([pair[number]])
    assert [one.verdict for one in pair.values()] == [SegmentVerdict.ACCEPTED] * 2
    shown = [remark for one in pair.values() for remark in one.remarks if "opened" in remark]
    assert len(shown) == is_reported == sum(Finding.CLOCK in one.findings for one in pair.values())


def test_a_clock_says_nothing_about_segments_that_do_not_follow_each_other() -> None:
    far = msgspec.structs.replace(manifest(5), opened_us=START_US - 86_400 * SECOND_US)
    assert Finding.CLOCK not in judge(SegmentChains(), segment(manifest(1)), segment(far))[1][1]


def test_holes_are_named_by_boot_and_number() -> None:
    whole = [entry(1, 1), entry(1, 2), entry(2, 1, hash_of(1, 2))]
    assert missing_numbers(whole) == []
    assert missing_numbers([entry(1, 5), entry(1, 7)]) == [(1, 6, 6)]
    assert missing_numbers([entry(1, 1), entry(2, 1, hash_of(1, 2))]) == [(1, 2, 0)]
    assert missing_numbers([entry(1, 1), entry(2, 3)]) == [(2, 1, 2)]


@given(order=st.permutations(range(1, 9)), cuts=st.sets(st.integers(1, 7)), again=st.lists(st.integers(1, 8)))
def test_any_split_order_or_repetition_accepts_the_same_segments(
    order: Sequence[int], cuts: set[int], again: list[int]
) -> None:
    chains = SegmentChains()
    accepted: list[int] = []
    arrivals = [segment(manifest(number)) for number in [*order, *again]]
    bounds = [0, *sorted(cuts), len(arrivals)]
    for first, last in pairwise(bounds):
        judged = chains.judge(arrivals[first:last])
        accepted += [one.manifest.segno for one in judged if one.manifest and one.verdict is SegmentVerdict.ACCEPTED]
        assert all(one.verdict is not SegmentVerdict.REJECTED for one in judged)
    assert sorted(accepted) == list(range(1, 9))
