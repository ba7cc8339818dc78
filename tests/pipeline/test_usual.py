"""What is usual of a peer, and what is far above it, against the plainest loop over all hours."""

from __future__ import annotations

from collections import Counter
from statistics import median

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns import usual
from pipeline.columns.usual import HOURS_PER_WEEK, alarm_level, hour_of_week
from pipeline.schemas import TRAFFIC_HOURLY
from tests.pipeline.rows import HOUR_US, MONDAY_US


def daily_rhythm(days: int, flood_hour: int | None) -> list[tuple[int, int]]:
    return [(hour, 5_000 if hour == flood_hour else 200 + 10 * (hour % 24)) for hour in range(24 * days)]


@pytest.mark.parametrize(("hour", "expected"), [(0, 0), (23, 23), (24, 24), (167, 167), (168, 0), (-1, 167)])
def test_hours_of_the_week_begin_on_monday_and_come_again(hour: int, expected: int) -> None:
    assert hour_of_week(MONDAY_US + hour * HOUR_US) == expected


@pytest.mark.parametrize(
    ("median", "mad", "level"),
    [
        (0, 0, 100),
        (9, 0, 100),
        (10, 15, 10 + 6 * 1.4826 * 15),
        (40, 4, 120),
        (100, 0, 300),
        (100, 40, 100 + 6 * 1.4826 * 40),
        (4, 0, 100),
    ],
)
def test_an_alarm_needs_six_deviations_three_times_the_usual_and_a_hundred_messages(
    median: float, mad: float, level: float
) -> None:
    assert alarm_level(median, mad) == pytest.approx(level)


def test_chance_alone_spreads_by_the_square_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual, "LEAST_FACTOR", 0.0)
    assert alarm_level(10_000, 0) == 10_000 + 6 * 100
    assert alarm_level(10_000, 100) == pytest.approx(10_000 + 6 * 148.26)


Count = tuple[str, int, int]
"""Peer, number of the hour from Monday, and messages."""


def hours_table(*counts: Count, **members: str) -> pa.Table:
    """Rows of `TRAFFIC` about what peers sent."""
    rows = [
        {"our_domain": "a.example", "src_domain": peer, "role": "in", "hour_us": MONDAY_US + hour * HOUR_US}
        | {"messages": many}
        | members
        for peer, hour, many in counts
    ]
    schema = to_arrow_schema(TRAFFIC_HOURLY.schema)
    return pa.Table.from_pylist(rows, pa.schema([schema.field(name) for name in usual.TRAFFIC]))


def every_hour(counts: list[Count]) -> dict[str, dict[int, int]]:
    """Of each peer the messages of every hour from its first to its last."""
    found = {}
    for peer in {peer for peer, _, _ in counts}:
        known: Counter[int] = Counter()
        for of, hour, many in counts:
            if of == peer:
                known[hour] += many
        found[peer] = {hour: known[hour] for hour in range(min(known), max(known) + 1)}
    return found


def usual_at(hours: dict[int, int], hour: int) -> tuple[float, float, int] | None:
    """Median, deviation and number of the hours that one is compared with; None for too few."""
    for same, least in ((HOURS_PER_WEEK, 4), (24, 3), (1, 12)):
        its = [many for other, many in hours.items() if (other - hour) % same == 0]
        if len(its) >= least:
            middle = median(its)
            return middle, median(abs(many - middle) for many in its), len(its)
    return None


peers = st.sampled_from(["b.example", "c.example"])


@given(counts=st.lists(st.tuples(peers, st.integers(-50, 700), st.integers(0, 9)), max_size=40))
def test_baselines_are_medians_of_all_hours_the_silent_ones_too(counts: list[Count]) -> None:
    expected = {
        (peer, hour % HOURS_PER_WEEK): usual_at(hours, hour)
        for peer, hours in every_hour(counts).items()
        for hour in hours
    }
    found = usual.baselines(hours_table(*counts)).to_pylist()
    assert [
        ((row["peer_domain"], row["hour_of_week"]), (row["median"], row["mad"], row["hours"])) for row in found
    ] == sorted((key, value) for key, value in expected.items() if value is not None)
    assert {(row["our_domain"], row["measure"]) for row in found} <= {("a.example", "messages")}


def test_each_peer_is_held_against_itself_for_every_hour_of_the_week() -> None:
    counts = [(peer, hour, many) for peer, many in (("b.example", 10), ("c.example", 200)) for hour in range(4 * 168)]
    found = usual.baselines(hours_table(*counts)).to_pylist()
    assert {(row["peer_domain"], row["median"], row["mad"], row["hours"]) for row in found} == {
        ("b.example", 10, 0, 4),
        ("c.example", 200, 0, 4),
    }
    assert len(found) == 2 * 168


@given(
    counts=st.lists(
        st.tuples(peers, st.integers(0, 80), st.sampled_from([0, 3, 40, 99, 100, 101, 150, 400, 5_000])), max_size=60
    )
)
def test_floods_are_the_hours_above_the_level_of_their_baseline(counts: list[Count]) -> None:
    expected = []
    for peer, hours in sorted(every_hour(counts).items()):
        for hour, many in hours.items():
            known = usual_at(hours, hour)
            if known is not None and many > alarm_level(*known[:2]):
                expected.append((peer, MONDAY_US + hour * HOUR_US, many, known[0], alarm_level(*known[:2]), known[2]))
    found = usual.floods(hours_table(*counts)).to_pylist()
    names = ("peer_domain", "hour_us", "messages", "median", "level", "hours")
    assert [tuple(row[name] for name in names) for row in found] == expected


def test_an_hour_among_many_quiet_ones_is_a_flood_and_its_neighbours_are_not() -> None:
    hours = hours_table(
        *(("b.example", hour, many) for hour, many in daily_rhythm(5, flood_hour=60)),
        *(("c.example", hour, 90) for hour in range(11)),
        ("c.example", 11, 101),
        ("d.example", 0, 10_000),
    )
    [flood] = usual.floods(hours).to_pylist()
    assert (flood["peer_domain"], flood["hour_us"], flood["messages"]) == ("b.example", MONDAY_US + 60 * HOUR_US, 5_000)
    assert (flood["median"], flood["hours"]) == (320, 5)


@given(counts=st.lists(st.tuples(peers, st.integers(-9, 9), st.integers(0, 9)), max_size=20), cut=st.integers(0, 20))
def test_hours_of_peers_add_up_what_came_in_and_can_be_added_up_again(counts: list[Count], cut: int) -> None:
    sent, ours = hours_table(*counts, role="out"), hours_table(*counts, our_domain="z.example")
    parts = [pa.concat_tables([hours_table(*some), sent]) for some in (counts[:cut], counts[cut:])]
    whole = usual.hours_of_peers(pa.concat_tables([*map(usual.hours_of_peers, parts), ours]))
    added: Counter[tuple[str, int]] = Counter()
    for peer, hour, many in counts:
        added[peer, MONDAY_US + hour * HOUR_US] += many
    for owner in ("a.example", "z.example"):
        its = [row for row in whole.to_pylist() if row["our_domain"] == owner]
        assert [(row["src_domain"], row["hour_us"], row["messages"]) for row in its] == [
            (*key, many) for key, many in sorted(added.items())
        ]


def test_an_hour_of_which_records_are_missing_is_no_silent_one_and_a_flood_in_it_is_still_found() -> None:
    first, steady = ("b.example", 0, 1), [("b.example", hour, 150) for hour in range(48, 72)]
    missing = {"a.example": [(MONDAY_US + HOUR_US + 1, MONDAY_US + 48 * HOUR_US - 1)]}
    others = {"b.example": missing["a.example"]}
    hours = hours_table(first, *steady)
    for unknown, many in ((missing, 0), (others, 24), ({}, 24)):
        assert usual.floods(hours, unknown).num_rows == many
    assert {row["median"] for row in usual.baselines(hours, missing).to_pylist()} == {150}
    [flood] = usual.floods(hours_table(first, ("b.example", 30, 5_000), *steady), missing).to_pylist()
    assert (flood["hour_us"], flood["median"]) == (MONDAY_US + 30 * HOUR_US, 150)


@pytest.mark.parametrize(
    ("begin_us", "end_us", "hours"),
    [
        (4 * HOUR_US, 5 * HOUR_US, 30),
        (5 * HOUR_US, 5 * HOUR_US + 1, 29),
        (6 * HOUR_US - 1, 6 * HOUR_US, 29),
        (6 * HOUR_US, 7 * HOUR_US, 30),
    ],
)
def test_a_silent_hour_counts_unless_records_of_any_part_of_it_are_missing(
    begin_us: int, end_us: int, hours: int
) -> None:
    all_but_the_sixth = hours_table(*[("b.example", hour, 150) for hour in range(30) if hour != 5])
    missing = {"a.example": [(MONDAY_US + begin_us, MONDAY_US + end_us)]}
    assert {row["hours"] for row in usual.baselines(all_but_the_sixth, missing).to_pylist()} == {hours}


@pytest.mark.parametrize(("messages", "is_flood"), [(120, False), (121, True)])
def test_an_hour_exactly_at_its_level_is_no_flood(messages: int, is_flood: bool) -> None:
    hours = [("b.example", hour, 40) for hour in range(12)]
    found = usual.floods(hours_table(*hours, ("b.example", 12, messages))).to_pylist()
    assert [(row["messages"], row["level"]) for row in found] == ([(messages, 120)] if is_flood else [])
