"""One table of literal rows: what two sides say about a message, and the one class that it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from pipeline.columns.clock_tables import ClockTables
from pipeline.columns.message_classes import Judging, Messages, Spans
from pipeline.columns.side_totals import BUCKET_COUNTS
from pipeline.core.case_classes import CASES
from pipeline.core.completeness import Completeness
from pipeline.lake.worker_rows import WorkerRows, rows_of
from pipeline.schemas import FLAG, RECON_BUCKET, RECON_CASE, RECON_PAIR, SIDE_TOTAL
from pipeline.schemas.columns import extended
from pipeline.transforms import reconcile
from tests.pipeline.rows import DAY_US, day_of, worked_out
from tests.pipeline.side_rows import (
    MINUTE_US,
    NOON_US,
    TRANSIT_US,
    both,
    clocks,
    completeness,
    delays,
    entries,
    side_row,
)

GRACE_US = 2 * MINUTE_US
SKEW_US = 1_000_000
SECOND_US = 1_000_000
LATER_US = NOON_US + 60 * MINUTE_US
OTHER = b"\xff" * 16

Records = Sequence[Mapping[str, Any]]


def out(**members: Any) -> dict[str, Any]:
    return {"role": "out", **members}


def in_(**members: Any) -> dict[str, Any]:
    return {"role": "in", **members}


TABLE: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "both sides agree": ("matched", [out(), in_()]),
    "an earlier attempt failed": ("matched", [out(outcome="timeout", seq=900), out(), in_()]),
    "the receiver ignored a further copy": ("matched", [out(), in_(), in_(outcome="duplicate", seq=901)]),
    "the receiver's gate denied it": ("matched", [out(), in_(outcome="denied")]),
    "nobody was there to get it": ("matched", [out(), in_(outcome="undeliverable")]),
    "our gate denied it": ("undelivered", [out(outcome="denied")]),
    "it expired here": ("undelivered", [out(outcome="expired")]),
    "it was rejected, and the receiver says so": ("undelivered", [out(outcome="rejected"), in_(outcome="denied")]),
    "the receiver has no record": ("lost", [out()]),
    "the sender has no record": ("orphan", [in_()]),
    "the sender has no record of what was denied": ("orphan", [in_(outcome="denied")]),
    "the receiver took it twice": ("duplicated", [out(), in_(), in_(seq=902, ts_us=NOON_US + SECOND_US)]),
    "the receiver took it twice and denied it once": ("duplicated", [out(), in_(), in_(seq=903, outcome="denied")]),
    "the sender wrote it down twice": ("duplicated", [out(), out(seq=904), in_()]),
    "its sender repeated it under its own trace": ("matched", [out(), out(seq=909), in_(), in_(seq=910)]),
    "its sender repeated its trace with other content": (
        "matched",
        [out(), out(seq=911, digest=OTHER, size=9), in_(seq=912, digest=OTHER, size=9), in_()],
    ),
    "of two under one trace one was altered": (
        "altered",
        [out(), out(seq=913), in_(), in_(seq=914, digest=OTHER)],
    ),
    "of two under one trace one had another size": ("size", [out(), out(seq=915), in_(), in_(seq=916, size=9)]),
    "of two under one trace one is missing": ("duplicated", [out(), out(seq=917, digest=OTHER), in_()]),
    "the content differs": ("altered", [out(), in_(digest=OTHER)]),
    "the size differs": ("size", [out(), in_(size=211)]),
    "one size is not known": ("size", [out(), in_(size=None)]),
    "the sender gave up, the receiver delivered": ("outcome", [out(outcome="timeout"), in_()]),
    "it was never sent, and yet it came": ("outcome", [out(outcome="denied", size=200, digest=OTHER), in_()]),
    "it was never sent, and yet their gate saw it": ("outcome", [out(outcome="denied"), in_(outcome="denied")]),
    "it was never sent, and yet it came twice": ("outcome", [out(outcome="denied"), in_(), in_(seq=907)]),
    "an earlier attempt failed with other bytes": (
        "matched",
        [out(outcome="trapped", seq=908, digest=OTHER), out(), in_()],
    ),
    "only a copy of it came": ("outcome", [out(), in_(outcome="duplicate")]),
    "it came before it can have left": ("skewed", [out(), in_(ts_us=NOON_US - 2 * SECOND_US)]),
    "it came later than the answer": ("skewed", [out(), in_(ts_us=NOON_US + 2 * SECOND_US)]),
    "it came late, for which the sender waited": (
        "matched",
        [out(span_us=9 * SECOND_US), in_(ts_us=NOON_US + 8 * SECOND_US)],
    ),
    # Several at once: the first of outcome, altered, duplicated, size, skewed.
    "altered and taken twice": ("altered", [out(), in_(), in_(seq=905, digest=OTHER)]),
    "altered and of another size": ("altered", [out(), in_(digest=OTHER, size=1)]),
    "altered and given up": ("outcome", [out(outcome="expired"), in_(digest=OTHER)]),
    "taken twice with another size": ("duplicated", [out(), in_(size=1), in_(seq=906, size=1)]),
    "of another size and given up": ("outcome", [out(outcome="expired"), in_(size=1)]),
    "given up and late": ("outcome", [out(outcome="expired"), in_(ts_us=NOON_US + 60 * SECOND_US)]),
}


def records_of(table: Mapping[str, tuple[str, list[dict[str, Any]]]], role: str) -> Records:
    return [
        side_row(number, **members)
        for number, (_, sides) in enumerate(table.values(), 1)
        for members in sides
        if members["role"] == role
    ]


def judged(
    out_rows: Records,
    in_rows: Records,
    proved: Mapping[str, Completeness] | None = None,
    known: ClockTables | None = None,
    segments: Mapping[tuple[str, int], Spans] | None = None,
) -> Messages:
    proved = completeness() if proved is None else proved
    by = Judging({day_of(NOON_US)}, known or clocks(), proved, GRACE_US, SKEW_US, segments or {})
    return Messages(entries(out_rows, in_rows), by)


def class_of(messages: Messages) -> str:
    [found] = messages.classes.tolist()
    return str(found)


def test_every_message_gets_the_class_that_the_table_says() -> None:
    expected = [case_class for case_class, _ in TABLE.values()]
    names = dict(enumerate(TABLE, 1))
    found = {
        names[number]: class_of(
            judged(
                [side_row(number, **one) for one in sides if one["role"] == "out"],
                [side_row(number, **one) for one in sides if one["role"] == "in"],
            )
        )
        for number, (_, sides) in enumerate(TABLE.values(), 1)
    }
    assert found == {name: case_class for name, (case_class, _) in TABLE.items()}
    together = judged(records_of(TABLE, "out"), records_of(TABLE, "in"))
    assert sorted(together.classes.tolist()) == sorted(expected)
    cases = {int.from_bytes(row["msg_id"][-4:], "big"): row["case_class"] for row in together.cases().to_pylist()}
    assert {names[number]: word for number, word in cases.items()} == {
        name: word for name, word in found.items() if word in CASES
    }


def buckets_of(sides: WorkerRows, known: ClockTables) -> DataFrame:
    return worked_out(reconcile.compared(sides, known, skew_us=SKEW_US).frame(RECON_BUCKET.schema))


@pytest.mark.spark
def test_level_one_sees_every_difference_that_level_two_names(spark: SparkSession) -> None:
    """Each message alone in its pair: its bucket is equal exactly when both sides agree about it in every record."""
    agreeing = {name for name, (case_class, _) in TABLE.items() if case_class in {"matched", "undelivered"}}
    rows: dict[str, list[Mapping[str, Any]]] = {"out": [], "in": []}
    for number, (_, sides) in enumerate(TABLE.values(), 1):
        for members in sides:
            rows[members["role"]].append(side_row(number, **members) | {"src_domain": f"a{number}.example"})
    frame = both(spark, rows["out"], rows["in"])
    known = ClockTables(delays(sources=[f"a{number}.example" for number in range(1, 40)]), clocks().offsets)
    buckets = buckets_of(reconcile.both_totals(rows_of(frame, reconcile.ENTRY.names)), known)
    of_side = extended(SIDE_TOTAL, is_out=FLAG)
    totals = worked_out(reconcile.totals(rows_of(frame, reconcile.ENTRY.names)).frame(of_side))
    joined = reconcile.joined_totals(*(totals.where(F.col("is_out") == is_out) for is_out in (True, False)))
    assertDataFrameEqual(buckets_of(rows_of(joined, reconcile.SIDES.names), known), buckets)
    equal = {row.src_domain for row in buckets.where("is_equal").collect()}
    names = {f"a{number}.example": name for number, name in enumerate(TABLE, 1)}
    assert {names[domain] for domain in equal} <= agreeing
    # Waiting for a slow answer looks like a clock that jumped, an undelivered one that the receiver saw like a new one;
    # and messages with several records on a side are looked at one by one.
    missing = agreeing - {names[domain] for domain in equal}
    assert missing == {
        "it came late, for which the sender waited",
        "it was rejected, and the receiver says so",
        "an earlier attempt failed",
        "an earlier attempt failed with other bytes",
        "the receiver ignored a further copy",
        "its sender repeated it under its own trace",
        "its sender repeated its trace with other content",
    }


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (Completeness(0, NOON_US + GRACE_US), "lost"),
        (Completeness(0, NOON_US + GRACE_US - 1), "pending"),
        (Completeness(0, NOON_US - MINUTE_US), "pending"),
        (Completeness(NOON_US + 1, LATER_US), "pending"),
        (Completeness(0, LATER_US, ((NOON_US - MINUTE_US, NOON_US + MINUTE_US),)), "pending"),
        (Completeness(0, LATER_US, ((NOON_US + MINUTE_US, NOON_US + 9 * MINUTE_US),)), "pending"),
        (Completeness(0, LATER_US, ((NOON_US + 3 * MINUTE_US, NOON_US + 4 * MINUTE_US),)), "lost"),
    ],
)
def test_lost_is_said_only_when_the_receivers_manifests_prove_it(known: Completeness, expected: str) -> None:
    assert class_of(judged([side_row(1, "out")], [], completeness(b=known))) == expected


@pytest.mark.parametrize(("until_us", "expected"), [(NOON_US + GRACE_US, "orphan"), (NOON_US, "pending")])
def test_orphan_is_said_only_when_the_senders_manifests_prove_it(until_us: int, expected: str) -> None:
    assert class_of(judged([], [side_row(1, "in")], completeness(a=Completeness(0, until_us)))) == expected


def test_a_domain_of_which_nothing_is_known_proves_nothing() -> None:
    assert class_of(judged([side_row(1, "out", dst_domain="c.example")], [])) == "pending"


def test_a_clock_that_is_always_wrong_does_not_make_messages_skewed() -> None:
    ahead_us = 2_500_000
    row = side_row(1, "in", ts_us=NOON_US + TRANSIT_US + ahead_us)
    assert class_of(judged([side_row(1, "out")], [row], known=clocks(TRANSIT_US + ahead_us))) == "matched"


@pytest.mark.parametrize(
    ("off_us", "error_us", "expected"),
    [(0, 20_000, "skewed"), (5_000_000, 20_000, "matched"), (0, 4_500_000, "matched")],
)
def test_known_clocks_say_what_is_usual_where_the_pair_itself_has_too_few_messages(
    off_us: int, error_us: int, expected: str
) -> None:
    """The only message of the day took 5 s more: the pair alone would call that usual."""
    late = side_row(1, "in", ts_us=NOON_US + TRANSIT_US + 5 * SECOND_US)
    known = clocks(TRANSIT_US + 5 * SECOND_US, offsets=[("a.example", 0, 0), ("b.example", off_us, error_us)])
    assert class_of(judged([side_row(1, "out")], [late], known=known)) == expected


@pytest.mark.spark
def test_counts_of_a_pair_add_up_over_both_levels(spark: SparkSession) -> None:
    quiet_us = NOON_US + 30 * MINUTE_US
    same: dict[str, Any] = {"sent_us": quiet_us, "ts_us": quiet_us}
    out_rows = [*records_of(TABLE, "out"), *(side_row(number, "out", **same) for number in range(500, 510))]
    in_rows = [*records_of(TABLE, "in"), *(side_row(number, "in", **same) for number in range(500, 510))]
    in_rows[-1] = {**in_rows[-1], "outcome": "denied"}
    frame = both(spark, out_rows, in_rows)
    in_workers = rows_of(frame, reconcile.ENTRY.names)
    buckets = buckets_of(reconcile.both_totals(in_workers), clocks(0))
    assert buckets.where("is_equal").count() == 1
    different = buckets.where("NOT is_equal").select(*reconcile.DIFFERENT.names)
    disputed = worked_out(reconcile.disputed(frame, different))
    assertDataFrameEqual(
        reconcile.in_few_buckets(in_workers, different.toArrow(), days=1).frame(reconcile.ENTRY), disputed
    )
    by = Judging({day_of(NOON_US)}, clocks(), completeness(), GRACE_US, SKEW_US)
    found = worked_out(reconcile.judged(rows_of(disputed, reconcile.ENTRY.names), by))
    equal = reconcile.equal_totals(rows_of(buckets, BUCKET_COUNTS))
    [pair] = reconcile.pair_counts(found, equal, completeness()).frame(RECON_PAIR.schema).collect()
    cases = reconcile.cases(found).frame(RECON_CASE.schema)
    assert cases.count() == sum(one in CASES for one, _ in TABLE.values())
    expected = {name: sum(one == name for one, _ in TABLE.values()) for name in ("matched", *CASES, "undelivered")}
    expected["matched"] += 10
    assert {name: pair[name] for name in expected} == expected
    assert pair.refused == 3
    out_ids = {row["msg_id"] for row in out_rows if row["outcome"] == "delivered"}
    in_ids = {row["msg_id"] for row in in_rows if row["outcome"] != "duplicate"}
    assert (pair.sent, pair.received) == (len(out_ids), len(in_ids))
    assert pair.asDict().keys() == set(RECON_PAIR.schema.names)


def test_evidence_names_the_segments_that_hold_the_records() -> None:
    segments = {
        ("mn-1.a.example", 1): Spans(np.array([1, 51]), np.array([50, 70]), np.array([4, 5])),
        ("mn-1.b.example", 1): Spans(np.array([1]), np.array([50]), np.array([6])),
    }
    out_rows = [side_row(1, "out"), side_row(2, "out"), side_row(4, "out", dst_domain="c.example")]
    in_rows = [side_row(2, "in", digest=OTHER), side_row(3, "in", seq=77)]
    cases = judged(out_rows, in_rows, segments=segments).cases()
    assert set(cases.column_names) == set(RECON_CASE.schema.names)
    evidence = {row["case_class"]: row["evidence"] for row in cases.to_pylist()}
    assert evidence == {
        "altered": "a.example: node mn-1.a.example boot 1 segment 4 record 2; "
        "b.example: node mn-1.b.example boot 1 segment 6 record 2",
        "lost": "a.example: node mn-1.a.example boot 1 segment 4 record 1; "
        "b.example: no record, complete until 2026-03-03T00:00:00Z by its segments",
        "orphan": "a.example: no record, complete until 2026-03-03T00:00:00Z by its segments; "
        "b.example: node mn-1.b.example boot 1 record 77",
        "pending": "a.example: node mn-1.a.example boot 1 segment 4 record 4; "
        "c.example: no record, completeness unknown",
    }


def test_the_other_digest_is_shown_also_when_it_was_the_second_copy() -> None:
    in_rows = [side_row(1, "in"), side_row(1, "in", seq=2, digest=OTHER)]
    [row] = judged([side_row(1, "out")], in_rows).cases().to_pylist()
    assert (row["out_digest"], row["in_digest"], row["copies_in"]) == (side_row(1, "out")["digest"], OTHER, 2)


def test_messages_of_other_days_are_neither_cases_nor_counted() -> None:
    late: dict[str, Any] = {"sent_us": NOON_US + DAY_US, "ts_us": NOON_US + DAY_US}
    messages = judged([side_row(1, "out", **late), side_row(2, "out")], [])
    assert [row["msg_id"] for row in messages.cases().to_pylist()] == [side_row(2, "out")["msg_id"]]
    assert [(row["sent"], row["lost"]) for row in messages.counts().to_pylist()] == [(1, 1)]
    nothing = judged([], [])
    assert nothing.cases().num_rows == nothing.counts().num_rows == 0
