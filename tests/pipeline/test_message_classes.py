"""Which of several records of one message stands for it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.completeness import Completeness
from pipeline.core.message_classes import COUNTED, Judging, Messages, Span, pair_rows
from pipeline.schemas import RECON_PAIR
from tests.pipeline.rows import day_of
from tests.pipeline.side_rows import MINUTE_US, NOON_US, TRANSIT_US, clocks, completeness, entries, side_row

Row = dict[str, Any]


def case_of(out: list[Row], in_: list[Row]) -> Row:
    """The judgement of one message of which both sides have these records."""
    by = Judging({day_of(NOON_US)}, clocks(), completeness(), 2 * MINUTE_US, 1_000_000)
    rows = ([side_row(1, "out", **one) for one in out], [side_row(1, "in", **one) for one in in_])
    [case] = Messages(entries(*rows), by).cases().to_pylist()
    return dict(case)


def pair(first: str, second: str) -> list[list[Row]]:
    """Two records in both orders."""
    return [[{"outcome": first, "seq": one}, {"outcome": second, "seq": 11 - one}] for one in (5, 6)]


@pytest.mark.parametrize("refused", ["denied", "undeliverable", "timeout"])
def test_a_refusal_stands_for_its_message_before_an_ignored_duplicate(refused: str) -> None:
    for rows in pair(refused, "duplicate"):
        assert case_of([], rows)["in_outcome"] == refused
        assert case_of(rows, [{}])["out_outcome"] == refused


@pytest.mark.parametrize("other", ["denied", "duplicate"])
def test_a_delivery_stands_for_its_message_before_everything_else(other: str) -> None:
    for rows in pair("delivered", other):
        assert case_of([], rows)["in_outcome"] == "delivered"
        assert case_of(rows, [])["out_outcome"] == "delivered"


def test_of_equal_records_the_earliest_stands_for_its_message() -> None:
    early, late = {"outcome": "denied", "seq": 6}, {"outcome": "denied", "seq": 5, "ts_us": NOON_US + 1}
    for rows in ([early, late], [late, early]):
        assert case_of(rows, [{}])["out_ts_us"] == NOON_US


counts = st.fixed_dictionaries(
    {
        **dict.fromkeys(("src_domain", "dst_domain"), st.sampled_from(["a.example", "b.example", "c.example"])),
        "dt": st.sampled_from(["2026-03-01", "2026-03-02"]),
        **dict.fromkeys(COUNTED, st.none() | st.integers(0, 9)),
    }
)


@given(rows=st.lists(counts, max_size=12))
def test_a_pair_has_the_counts_of_both_levels_and_is_complete_until_the_first_side_ends(rows: list[Row]) -> None:
    until_us = {"a.example": 70, "b.example": 30}
    known = {name: Completeness(0, until) for name, until in until_us.items()}
    schema = to_arrow_schema(RECON_PAIR.schema)
    parts = pa.Table.from_pylist(
        rows, pa.schema([schema.field(name) for name in ("src_domain", "dst_domain", "dt", *COUNTED)])
    )
    expected: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = (row["src_domain"], row["dst_domain"], row["dt"])
        pair = expected.setdefault(key, dict.fromkeys(COUNTED, 0))
        pair |= {name: pair[name] + (row[name] or 0) for name in COUNTED}
        ends = [until_us[name] for name in key[:2] if name in until_us]
        pair["complete_until_us"] = min(ends, default=None)
    found = pair_rows(parts, known)
    assert set(found.column_names) == set(RECON_PAIR.schema.names)
    assert [
        (tuple(row.pop(name) for name in ("src_domain", "dst_domain", "dt")), row) for row in found.to_pylist()
    ] == [*sorted(expected.items())]


@pytest.mark.parametrize(
    ("sent_us", "is_proven"),
    [(99, False), (100, True), (389, True), (390, False), (510, False), (511, True), (990, True), (991, False)],
)
def test_a_time_is_proven_the_grace_away_from_holes_and_from_the_end(sent_us: int, is_proven: bool) -> None:
    known = {"a.example": Completeness(100, 1_000, holes=((400, 500),))}
    by = Judging((), clocks(), known, 10, 0)
    assert by.is_proven("a.example", sent_us) is is_proven
    assert not by.is_proven("unknown.example", sent_us)


@pytest.mark.parametrize(
    ("offsets", "usual_us", "doubt_us"),
    [((), TRANSIT_US, 0), ((("a.example", 3_000, 70), ("b.example", 5_000, 30)), 2_000, 100)],
    ids=["by the usual delay", "by known clocks"],
)
def test_a_message_is_skewed_beyond_the_skew_the_doubt_and_the_time_its_sender_waited(
    offsets: tuple[tuple[str, int, int], ...], usual_us: int, doubt_us: int
) -> None:
    by = Judging({day_of(NOON_US)}, clocks(offsets=offsets), completeness(), 2 * MINUTE_US, 1_000_000)
    earliest_us = NOON_US + usual_us - 1_000_000 - doubt_us
    latest_us = NOON_US + usual_us + 2 * TRANSIT_US + 1_000_000 + doubt_us
    for ts_us, is_skewed in (
        (earliest_us - 1, True),
        (earliest_us, False),
        (latest_us, False),
        (latest_us + 1, True),
    ):
        messages = Messages(entries([side_row(1, "out")], [side_row(1, "in", ts_us=ts_us)]), by)
        assert messages.classes.tolist() == ["skewed" if is_skewed else "matched"]


@pytest.mark.parametrize(
    ("seq", "place"),
    [(0, ""), (1, "segment 7 "), (5, "segment 7 "), (6, "segment 8 "), (9, "segment 8 "), (10, "")],
)
def test_evidence_names_the_segment_in_whose_numbers_a_record_is(seq: int, place: str) -> None:
    spans = (Span(1, 5, 7), Span(6, 9, 8))
    segments = {("mn-1.a.example", 1): spans}
    by = Judging({day_of(NOON_US)}, clocks(), completeness(), 2 * MINUTE_US, 1_000_000, segments)
    [case] = Messages(entries([side_row(1, "out", seq=seq)], []), by).cases().to_pylist()
    assert case["evidence"].startswith(f"a.example: node mn-1.a.example boot 1 {place}record {seq}; b.example: no")


def test_without_a_sender_the_digest_is_that_of_the_receivers_best_record() -> None:
    best, other = {"digest": b"9" * 16}, {"digest": b"1" * 16, "outcome": "denied"}
    assert case_of([], [other, best])["in_digest"] == b"9" * 16
    assert case_of([{"digest": b"9" * 16}], [other, best])["in_digest"] == b"1" * 16
