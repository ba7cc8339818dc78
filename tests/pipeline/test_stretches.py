"""Stretches of accepted segments: where they begin and end, what they add up, and that no order changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.stretches import ENTRY, Stretch, Stretches, clipped, missing_times, stretch_of, unaccounted_records

SECOND_US = 1_000_000


def entry(segno: int, *, boot: int = 1, **changes: object) -> dict[str, Any]:
    """A row of the ledger: a signed segment of ten records and ten seconds that names the one before it."""
    row = {
        "node": "n1",
        "kind": "mdr",
        "boot": boot,
        "segno": segno,
        "first_seq": segno * 10 - 9,
        "last_seq": segno * 10,
        "sha256": f"{boot}-{segno}",
        "prev_sha256": f"{boot}-{segno - 1}",
        "opened_us": segno * 10 * SECOND_US,
        "closed_us": (segno * 10 + 10) * SECOND_US,
        "verdict": "accepted",
        "findings": None,
        "lost_records": None,
        "rows_quarantined": None,
        "uncertain_from_us": None,
        "uncertain_until_us": None,
    }
    assert set(row) == set(ENTRY)
    return row | changes


def dispute(segno: int, *findings: str, boot: int = 1) -> dict[str, Any]:
    """Other content that came under a number."""
    return entry(segno, boot=boot, verdict="rejected", findings=list(findings), sha256="other")


def entered(*rows: Mapping[str, Any]) -> list[Stretch]:
    stretches = Stretches()
    stretches.enter(rows)
    return list(stretches)


def test_a_segment_is_a_stretch_of_its_own_in_which_nothing_is_missing() -> None:
    [one] = entered(entry(3))
    assert one.first == one.last
    assert (one.boot, one.first.segno, one.segments, one.before_last_closed_us) == (1, 3, 1, None)
    assert (one.lost_records, one.quarantined_rows, one.unaccounted_records, one.unchecked_segments) == (0, 0, 0, 0)
    assert (one.is_disputed, one.holes, one.crashes, one.first_uncertain_us) == (False, (), (), (0, 0))
    assert one.newest_closed_us == one.last.closed_us == 40 * SECOND_US


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1), (1, 3, 2)])
def test_segments_that_follow_each_other_add_up_in_any_order(order: tuple[int, int, int]) -> None:
    rows = {
        1: entry(1, lost_records=4, findings=["unsigned"], closed_us=90 * SECOND_US),
        2: entry(2, rows_quarantined=2, first_seq=13),  # two numbers are missing before it
        3: entry(3, lost_records=1, rows_quarantined=1, findings=["unchecked", "late"], first_seq=24),
    }
    [one] = entered(*(rows[number] for number in order))
    assert (one.first.segno, one.last.segno, one.segments) == (1, 3, 3)
    assert (one.lost_records, one.quarantined_rows, one.unaccounted_records) == (5, 3, 5)
    assert one.unchecked_segments == 2
    assert one.before_last_closed_us == 30 * SECOND_US
    assert one.newest_closed_us == 90 * SECOND_US
    assert one.holes == tuple((row["opened_us"], row["closed_us"]) for row in rows.values())


@pytest.mark.parametrize(
    ("second", "is_next"),
    [
        (entry(2), True),
        (entry(3, prev_sha256="1-1"), False),
        (entry(2, prev_sha256="1-0"), False),
        (entry(2, boot=2, prev_sha256="1-1"), False),
        (entry(2, node="n2"), False),
        (entry(2, kind="edr"), False),
    ],
    ids=["next", "number left out", "names another", "after a start", "of another node", "of another kind"],
)
def test_a_stretch_goes_on_with_the_next_number_that_names_its_end(second: dict[str, Any], is_next: bool) -> None:
    assert len(entered(entry(1), second)) == (1 if is_next else 2)
    assert entered(second, entry(1)) == entered(entry(1), second)


def test_stretches_are_found_by_the_numbers_in_them_and_by_no_others() -> None:
    stretches = Stretches()
    stretches.enter([entry(2), entry(3), entry(5), entry(2, boot=2), entry(1, node="n2")])
    has = {
        (boot, segno): None if one is None else (one.first.segno, one.last.segno)
        for boot in (0, 1, 2, 3)
        for segno in range(1, 7)
        for one in [stretches.holder("n1", "mdr", boot, segno)]
    }
    assert {number: found for number, found in has.items() if found} == {
        (1, 2): (2, 3),
        (1, 3): (2, 3),
        (1, 5): (5, 5),
        (2, 2): (2, 2),
    }
    assert stretches.holder("n3", "mdr", 1, 2) is None
    assert [(one.node, one.boot, one.first.segno) for one in stretches] == [
        *[("n1", 1, 2), ("n1", 1, 5), ("n1", 2, 2)],
        ("n2", 1, 1),
    ]
    assert list(stretches.chains()) == [("n1", "mdr"), ("n2", "mdr")]


@pytest.mark.parametrize(
    ("findings", "is_disputed"),
    [(["reused"], True), (["late", "reused"], True), (["reused", "signature"], False), (["hash"], False), ([], False)],
)
def test_well_signed_other_content_disputes_the_last_segment(findings: list[str], is_disputed: bool) -> None:
    assert [one.is_disputed for one in entered(entry(1), dispute(1, *findings))] == [is_disputed]
    assert [one.is_disputed for one in entered(dispute(1, *findings), entry(1))] == [is_disputed]


def test_a_next_segment_settles_a_dispute_and_a_new_one_is_about_the_last_only() -> None:
    stretches = Stretches(entered(entry(1), dispute(1, "reused")))
    stretches.enter([entry(2)])
    assert [one.is_disputed for one in stretches] == [False]
    stretches.enter([dispute(1, "reused"), dispute(7, "reused")])
    assert [one.is_disputed for one in stretches] == [False]
    stretches.enter([dispute(2, "reused")])
    assert [one.is_disputed for one in stretches] == [True]


def test_a_dispute_about_one_stretch_leaves_the_others_of_its_node_alone() -> None:
    found = entered(entry(1), entry(5), entry(9), dispute(5, "reused"))
    assert [(one.first.segno, one.is_disputed) for one in found] == [(1, False), (5, True), (9, False)]


@pytest.mark.parametrize(
    ("uncertain_us", "written_us", "expected"),
    [
        ((0, 0), 0, ()),
        ((10, 20), 0, ((10, 20),)),
        ((10, 20), 15, ((15, 20),)),
        ((10, 20), 19, ((19, 20),)),
        ((10, 20), 20, ()),
        ((10, 20), 30, ()),
    ],
)
def test_a_crash_takes_nothing_of_what_was_sealed_before(
    uncertain_us: tuple[int, int], written_us: int, expected: tuple[tuple[int, int], ...]
) -> None:
    assert clipped(uncertain_us, written_us) == expected


def test_a_crash_before_the_first_segment_is_kept_apart_from_those_between() -> None:
    [one] = entered(
        entry(1, uncertain_from_us=1, uncertain_until_us=5),
        entry(2, uncertain_from_us=7, uncertain_until_us=21 * SECOND_US),
        entry(3),
    )
    assert (one.first_uncertain_us, one.crashes) == ((1, 5), ((20 * SECOND_US, 21 * SECOND_US),))


def test_records_between_segments_are_unaccounted_for_within_and_between_stretches() -> None:
    forked = entry(3, prev_sha256="other", first_seq=25)  # four numbers after the second are missing
    found = entered(entry(1), entry(2, first_seq=12), forked, entry(5), entry(6, boot=2))
    assert len(found) == 4
    assert unaccounted_records(found) == 1 + 4
    assert unaccounted_records(found[1:]) == 0
    assert unaccounted_records([]) == 0


counts = st.none() | st.integers(0, 3)
ledgers = st.lists(
    st.builds(
        entry,
        st.integers(1, 6),
        boot=st.integers(1, 2),
        node=st.sampled_from(["n1", "n2"]),
        lost_records=counts,
        rows_quarantined=counts,
        findings=st.sampled_from([None, [], ["unsigned"], ["signature"]]),
        uncertain_from_us=st.integers(0, 70).map(lambda seconds: seconds * SECOND_US),
        uncertain_until_us=st.integers(0, 70).map(lambda seconds: seconds * SECOND_US),
    ),
    max_size=12,
    unique_by=lambda row: (row["node"], row["boot"], row["segno"]),
)


@given(rows=ledgers, data=st.data())
def test_order_repetition_and_being_kept_in_between_change_no_stretch(
    rows: Sequence[Mapping[str, Any]], data: st.DataObject
) -> None:
    expected = entered(*rows)
    kept: list[Stretch] = []
    for row in [*data.draw(st.permutations(rows)), *rows[:3]]:
        stretches = Stretches(stretch_of(one.row()) for one in reversed(kept))
        stretches.enter([row])
        kept = list(stretches)
    assert kept == expected
    assert sum(one.segments for one in expected) == len(rows)
    assert sum(one.lost_records for one in expected) == sum(row["lost_records"] or 0 for row in rows)


def test_records_are_missing_between_the_ends_of_what_is_there() -> None:
    first, later = entry(1), entry(4)
    next_boot = entry(1, boot=2, prev_sha256="1-4", opened_us=90 * SECOND_US, closed_us=99 * SECOND_US)
    assert missing_times(entered(first, later)) == [(first["closed_us"], later["opened_us"])]
    assert missing_times(entered(first, entry(2), entry(3), later, next_boot)) == []
    at_once = entry(4, opened_us=first["closed_us"], closed_us=99 * SECOND_US)
    assert missing_times(entered(first, at_once)) == [], "no time to be missing"
    before_a_jump_back = entry(4, opened_us=0, closed_us=SECOND_US)
    assert missing_times(entered(first, before_a_jump_back)) == []
