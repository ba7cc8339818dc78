"""Which of several records of one message stands for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.message_classes import CLASSES, COUNTED, Judging, Messages, Spans, pair_rows
from pipeline.columns.side_records import ALL, Buckets, entries_of
from pipeline.columns.side_totals import compare, equal_counts, side_by_side, totals_of, whole_totals
from pipeline.core.completeness import Completeness
from pipeline.schemas import RECON_PAIR, SILVER_MDR
from tests.pipeline.rows import DAY_US, day_of, silver_row
from tests.pipeline.side_rows import MINUTE_US, NOON_US, TRANSIT_US, clocks, completeness, entries, side_row, uuid7

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


@pytest.mark.parametrize("is_turned", [False, True])
def test_of_equal_records_of_one_time_node_start_and_number_of_the_record_decide_in_this_order(
    *, is_turned: bool
) -> None:
    names = ("node", "boot", "seq")
    places = [("mn-1.a.example", 1, 9), ("mn-1.a.example", 2, 8), ("mn-2.a.example", 0, 7), ("mn-2.a.example", 0, 8)]
    rows: list[Row] = [dict(zip(names, place, strict=True)) | {"outcome": "denied"} for place in places]
    for first in range(len(rows)):
        left = rows[first:][::-1] if is_turned else rows[first:]
        node, boot, seq = places[first]
        evidence = case_of(left, [{}])["evidence"]
        assert evidence.startswith(f"a.example: node {node} boot {boot} record {seq};"), evidence


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


HOUR_US = 60 * MINUTE_US
WHOLE_US = NOON_US + 12 * HOUR_US
CRASHED = Completeness(0, WHOLE_US, crashes=((NOON_US - 200_000, NOON_US + 3_000_000),))


@pytest.mark.parametrize(
    ("side", "after_us", "expected"),
    [
        ("out", 0, "unprovable"),
        ("out", 3_000_000, "unprovable"),
        ("out", 123_000_001, "lost"),
        ("out", -120_200_001, "lost"),
        ("in", 0, "unprovable"),
        ("in", 4_000_001, "orphan"),
        ("in", -1_200_001, "orphan"),
    ],
)
def test_what_falls_into_a_crash_is_neither_lost_nor_invented(side: str, after_us: int, expected: str) -> None:
    """A sender's record has the time of the message, the receiver's comes up to two minutes later."""
    sent_us = NOON_US + after_us
    row = side_row(1, side, sent_us=sent_us, ts_us=sent_us)
    known = completeness(b=CRASHED) if side == "out" else completeness(a=CRASHED)
    by = Judging({day_of(sent_us)}, clocks(), known, 2 * MINUTE_US, 1_000_000)
    messages = Messages(entries([row], []) if side == "out" else entries([], [row]), by)
    assert messages.classes.tolist() == [expected]
    [case] = messages.cases().to_pylist()
    crash = "no record, unprovable (crash between 2026-03-02T11:59:59Z and 2026-03-02T12:00:03Z)"
    assert (crash in case["evidence"]) == (expected == "unprovable")


@pytest.mark.parametrize(
    ("known", "evidence"),
    [
        (Completeness(0, NOON_US), "too long ago, and its records were never proved complete"),
        (
            Completeness(0, WHOLE_US, holes=((NOON_US, NOON_US + HOUR_US),)),
            "records lost or in quarantine between 2026-03-02T12:00:00Z and 2026-03-02T13:00:00Z",
        ),
    ],
    ids=["no proof", "hole"],
)
def test_what_was_not_proved_for_too_long_is_unprovable_and_no_longer_pending(
    known: Completeness, evidence: str
) -> None:
    for given_up_us, expected in ((NOON_US, "pending"), (NOON_US + 1, "unprovable")):
        rows = entries([side_row(1, "out")], [])
        by = Judging(
            {day_of(NOON_US)}, clocks(), completeness(b=known), 2 * MINUTE_US, 1_000_000, given_up_us=given_up_us
        )
        messages = Messages(rows, by)
        assert messages.classes.tolist() == [expected]
        assert (evidence in messages.cases().to_pylist()[0]["evidence"]) == (expected == "unprovable")


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
    not_measured_us = latest_us - 2 * TRANSIT_US
    for ts_us, waited_us, is_skewed in (
        (earliest_us - 1, 2 * TRANSIT_US, True),
        (earliest_us, 2 * TRANSIT_US, False),
        (latest_us, 2 * TRANSIT_US, False),
        (latest_us + 1, 2 * TRANSIT_US, True),
        (not_measured_us, None, False),
        (not_measured_us + 1, None, True),
    ):
        sent = side_row(1, "out", span_us=waited_us)
        messages = Messages(entries([sent], [side_row(1, "in", ts_us=ts_us)]), by)
        assert messages.classes.tolist() == ["skewed" if is_skewed else "matched"]


@given(
    drift_ppb=st.integers(-300_000, 300_000),
    at_ms=st.integers(0, 3_599_999),
    beyond_us=st.integers(-2, 2),
    is_late=st.booleans(),
)
def test_a_skewed_message_makes_its_five_minutes_differ_whatever_the_clocks_drift(
    drift_ppb: int, at_ms: int, beyond_us: int, *, is_late: bool
) -> None:
    sent_us = NOON_US + at_ms * 1_000
    known = clocks(offsets=[("a.example", 0, 70), ("b.example", 40, 30)], drift_ppb=drift_ppb)
    usual = known.usual(pa.array(["a.example"]), pa.array(["b.example"]), np.array([sent_us]))
    allowed_us = int(usual.doubt_us[0]) + 1_000_000 + beyond_us
    ts_us = sent_us + int(usual.usual_us[0]) + (allowed_us if is_late else -allowed_us)
    both = {"msg_id": uuid7(sent_us, 1), "sent_us": sent_us}
    rows = entries([side_row(1, "out", **both, ts_us=sent_us, span_us=None)], [side_row(1, "in", **both, ts_us=ts_us)])
    classes = Messages(rows, Judging({day_of(NOON_US)}, known, completeness(), 0, 1_000_000)).classes.tolist()
    assert classes == ["skewed" if beyond_us > 0 else "matched"]
    [bucket] = compare(side_by_side(whole_totals(totals_of(rows))), known, skew_us=1_000_000).to_pylist()
    assert not (classes == ["skewed"] and bucket["is_equal"])


@pytest.mark.parametrize(
    ("seq", "place"),
    [(0, ""), (1, "segment 7 "), (5, "segment 7 "), (6, "segment 8 "), (9, "segment 8 "), (10, "")],
)
def test_evidence_names_the_segment_in_whose_numbers_a_record_is(seq: int, place: str) -> None:
    spans = Spans(np.array([1, 6]), np.array([5, 9]), np.array([7, 8]))
    segments = {("mn-1.a.example", 1): spans}
    by = Judging({day_of(NOON_US)}, clocks(), completeness(), 2 * MINUTE_US, 1_000_000, segments)
    [case] = Messages(entries([side_row(1, "out", seq=seq)], []), by).cases().to_pylist()
    assert case["evidence"].startswith(f"a.example: node mn-1.a.example boot 1 {place}record {seq}; b.example: no")


def test_without_a_sender_the_digest_is_that_of_the_receivers_best_record() -> None:
    best, other = {"digest": b"9" * 16}, {"digest": b"1" * 16, "outcome": "denied"}
    assert case_of([], [other, best])["in_digest"] == b"9" * 16
    assert case_of([{"digest": b"9" * 16}], [other, best])["in_digest"] == b"1" * 16


DERIVED = (b"derived trace 01", b"derived trace 02")
LONE: list[tuple[str, ...]] = [
    ("out delivered", "in delivered"),
    ("out delivered", "in denied"),
    ("out delivered", "out delivered", "in delivered", "in delivered"),
    ("out delivered", "in delivered", "in duplicate"),
    ("out delivered", "in delivered", "in delivered"),
    ("out timeout", "out delivered", "in delivered"),
    ("out delivered",),
    ("in delivered",),
    ("in duplicate",),
    ("out denied",),
    ("out denied", "out denied"),
    ("out denied", "in delivered"),
    ("out timeout", "in delivered"),
    ("out timeout", "in duplicate"),
    ("out rejected", "in rejected"),
]
late_us = st.sampled_from([0, TRANSIT_US, 1_011_000, -995_000, 3_000_000])
lone_messages = st.tuples(
    st.sampled_from(LONE), st.sampled_from([None, None, *DERIVED]), st.integers(0, 20), late_us, st.booleans()
)


def records_of(number: int, message: tuple[Any, ...]) -> list[Row]:
    """Records of one message, some minutes after noon, as silver has them."""
    parts, derived, minute, late, differs = message
    sent_us = NOON_US + minute * MINUTE_US
    rows = []
    for part in parts:
        role, outcome = part.split()
        rows.append(
            silver_row(
                role=role,
                outcome=outcome,
                src_domain="a.example",
                dst_domain="b.example",
                ts_us=sent_us + late if role == "in" else sent_us,
                msg_id=uuid7(sent_us, number) if derived is None else derived + bytes([number]),
                digest=bytes([number]) * 16 if role == "out" or not differs else b"\xff" * 16,
            )
        )
    return rows


def counted(messages: list[list[Row]]) -> dict[str, int]:
    """What reconciliation counts at both levels together, of all pairs and days."""
    schema = to_arrow_schema(SILVER_MDR.schema)
    rows = [row for message in messages for row in message]
    silver = pa.Table.from_pylist(rows, pa.schema([schema.field(name) for name in ALL]))
    compared = compare(side_by_side(whole_totals(totals_of(entries_of(silver)))), clocks(), skew_us=1_000_000)
    different = compared.filter(pc.invert(compared.column("is_equal")))
    by = Judging({day_of(NOON_US)}, clocks(), completeness(), 2 * MINUTE_US, 1_000_000)
    judged = Messages(Buckets(different).of(entries_of(silver)), by)
    parts = [equal_counts(compared).to_pylist(), judged.counts().to_pylist()]
    return {name: sum(row.get(name, 0) for part in parts for row in part) for name in COUNTED}


@settings(max_examples=40)
@given(found=st.lists(lone_messages, min_size=1, max_size=6))
def test_the_class_of_a_message_depends_on_that_message_alone(found: list[tuple[Any, ...]]) -> None:
    messages = [records_of(number, message) for number, message in enumerate(found, 1)]
    alone = [counted([message]) for message in messages]
    assert all(sum(counts[name] for name in CLASSES) == 1 for counts in alone)
    assert all(counts["sent"] <= 1 and counts["received"] <= 1 for counts in alone)
    assert counted(messages) == {name: sum(counts[name] for counts in alone) for name in COUNTED}


def test_what_a_sender_repeats_on_another_day_is_a_message_of_that_day() -> None:
    later = {"sent_us": NOON_US + DAY_US, "ts_us": NOON_US + DAY_US, "bucket_us": NOON_US + DAY_US}
    by = Judging({day_of(NOON_US), day_of(NOON_US + DAY_US)}, clocks(), completeness(), 2 * MINUTE_US, 1_000_000)
    out, in_ = [side_row(1, "out"), side_row(1, "out", **later)], [side_row(1, "in")]
    assert sorted(Messages(entries(out, in_), by).classes.tolist()) == ["matched", "pending"]
    # On both sides of a midnight it is one message: it left on the one day and came on the other.
    late = {"ts_us": NOON_US + TRANSIT_US, "bucket_us": NOON_US + DAY_US, "msg_id": DERIVED[0]}
    rows = [side_row(1, "out", msg_id=DERIVED[0])], [side_row(1, "in", **late)]
    assert Messages(entries(*rows), by).classes.tolist() == ["matched"]
    # So it is if all that came was ignored.
    ignored = [side_row(1, "in", outcome="duplicate", **late)]
    assert Messages(entries(rows[0], ignored), by).classes.tolist() == ["outcome"]


BY = Judging({day_of(NOON_US)}, clocks(), completeness(), 2 * MINUTE_US, 1_000_000)


def test_what_was_proved_in_time_stays_lost_however_long_ago_it_is() -> None:
    by = Judging({day_of(NOON_US)}, clocks(), completeness(), 2 * MINUTE_US, 1_000_000, given_up_us=WHOLE_US)
    messages = Messages(entries([side_row(1, "out")], []), by)
    assert messages.classes.tolist() == ["lost"]
    assert "unprovable" not in messages.cases().to_pylist()[0]["evidence"]


def test_the_digest_of_the_other_side_is_never_one_of_the_senders_own_records() -> None:
    case = case_of([{"digest": b"9" * 16}, {"digest": b"1" * 16, "seq": 2}], [{"digest": b"9" * 16}])
    assert (case["case_class"], case["in_digest"]) == ("duplicated", b"9" * 16)
    repeated = {"digest": b"1" * 16, "outcome": "duplicate", "seq": 2}
    assert case_of([{"digest": b"9" * 16, "size": 1}], [{"digest": b"9" * 16}, repeated])["in_digest"] == b"9" * 16


@pytest.mark.parametrize(
    ("out", "in_", "expected"),
    [
        ([{"digest": None}], [{}], "matched"),
        ([{}], [{"digest": None}], "matched"),
        ([{"digest": None}], [{}, {"digest": b"x" * 16}], "duplicated"),
        ([{}], [{}, {"digest": b"x" * 16}], "altered"),
        ([{"size": None}], [{"size": 0}], "size"),
        ([{"size": None}], [{"size": None}], "matched"),
    ],
)
def test_what_one_side_does_not_know_of_the_content_makes_no_difference_of_digests(
    out: list[Row], in_: list[Row], expected: str
) -> None:
    rows = ([side_row(1, "out", **one) for one in out], [side_row(1, "in", **one) for one in in_])
    assert Messages(entries(*rows), BY).classes.tolist() == [expected]


def test_a_message_that_came_with_the_digest_of_another_one_is_altered() -> None:
    first = {"digest": b"1" * 16}
    out = [side_row(1, "out", **first), side_row(2, "out", digest=b"2" * 16)]
    messages = Messages(entries(out, [side_row(1, "in", **first), side_row(2, "in", **first)]), BY)
    assert messages.classes.tolist() == ["matched", "altered"]


def test_what_a_sender_repeats_on_the_same_day_is_the_same_message() -> None:
    later_us = NOON_US + 60 * MINUTE_US
    later = {"sent_us": later_us, "ts_us": later_us, "seq": 2}
    rows = ([side_row(1, role), side_row(1, role, **later)] for role in ("out", "in"))
    assert Messages(entries(*rows), BY).count == 1


def test_messages_are_counted_by_side_and_by_class() -> None:
    out = [side_row(1, "out"), side_row(2, "out"), side_row(4, "out"), side_row(5, "out", outcome="denied")]
    in_ = [side_row(1, "in"), side_row(3, "in"), side_row(4, "in", outcome="denied")]
    [found] = Messages(entries(out, in_), BY).counts().to_pylist()
    expected = {"sent": 3, "received": 3, "refused": 1, "matched": 2, "lost": 1, "orphan": 1, "undelivered": 1}
    assert {name: found[name] for name in COUNTED if found[name]} == expected
