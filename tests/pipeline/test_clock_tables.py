"""Delays between two sides' records against the plainest loop, and what is usual by what is known."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns.clock_tables import HOUR_US, delays_of, lines_of, sampled
from pipeline.columns.side_records import DAY_US
from tests.pipeline.side_rows import NOON_US, clocks

TIMES = pa.schema(
    {
        "src_domain": pa.string(),
        "dst_domain": pa.string(),
        "msg_id": pa.binary(),
        "is_out": pa.bool_(),
        "ts_us": pa.int64(),
        "sent_us": pa.int64(),
        "outcome": pa.string(),
    }
)
times = st.fixed_dictionaries(
    {
        "src_domain": st.sampled_from(["a.example", "b.example"]),
        "dst_domain": st.sampled_from(["b.example", "c.example"]),
        "msg_id": st.sampled_from([b"1", b"2", b"3", b"4"]),
        "is_out": st.booleans(),
        "ts_us": st.integers(-100, 100),
        "sent_us": st.integers(0, 2 * DAY_US),
        "outcome": st.sampled_from(["delivered", "delivered", "denied", None]),
    }
)


def plainly(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, bool, int, int]]:
    found = []
    for key in {(row["src_domain"], row["dst_domain"], row["msg_id"]) for row in rows}:
        here = [row for row in rows if (row["src_domain"], row["dst_domain"], row["msg_id"]) == key]
        out, in_ = ([row for row in here if row["is_out"] is is_out] for is_out in (True, False))
        if out and in_:
            delay_us = min(row["ts_us"] for row in in_) - min(row["ts_us"] for row in out)
            sent_us = min(row["sent_us"] for row in out)
            found.append((min(key[:2]), max(key[:2]), key[0] < key[1], sent_us, delay_us))
    return sorted(found)


@given(rows=st.lists(times, max_size=40))
def test_delays_are_those_of_a_plain_loop(rows: list[dict[str, Any]]) -> None:
    delivered = [row for row in rows if row["outcome"] == "delivered"]
    delays = delays_of(sampled(pa.Table.from_pylist(rows, schema=TIMES), 1))
    assert sorted(tuple(row.values()) for row in delays.to_pylist()) == plainly(delivered)


def measured(messages: Sequence[tuple[bool, int, int]]) -> list[dict[str, Any]]:
    """Hours of a.example and b.example: of each message if it went from a to b, when, and the delay."""
    pair = {"low_domain": "a.example", "high_domain": "b.example"}
    rows = [{**pair, "is_up": is_up, "sent_us": at_us, "delay_us": delay_us} for is_up, at_us, delay_us in messages]
    found: list[dict[str, Any]] = lines_of(pa.Table.from_pylist(rows)).to_pylist()
    return found


@pytest.mark.parametrize(
    ("delays_us", "low_us"),
    [([7], 7), ([-7], -7), (range(21), 1), (range(1, 12), 2), (range(0, 1_001, 10), 50), ([0, 50], 3)],
)
def test_one_way_the_low_delay_is_a_twentieth_of_the_way_up(delays_us: Sequence[int], low_us: int) -> None:
    for is_up, names in ((True, ("a.example", "b.example")), (False, ("b.example", "a.example"))):
        [found] = measured([(is_up, 3 * HOUR_US + 5, delay_us) for delay_us in reversed(delays_us)])
        assert (found["src_domain"], found["dst_domain"]) == names
        assert (found["hour_us"], found["low_us"], found["messages"]) == (3 * HOUR_US, low_us, len(delays_us))


def traffic(
    difference_us: Callable[[int], int], *, hours: int, each_way: int, seed: int = 1
) -> list[tuple[bool, int, int]]:
    """Messages both ways whose transit is 5 to 25 ms, while b's clock is ahead by `difference_us` of the time."""
    rng = Random(seed)
    messages = []
    for is_up in (True, False):
        for _ in range(hours * each_way):
            at_us = rng.randrange(hours * HOUR_US)
            sign = 1 if is_up else -1
            messages.append((is_up, at_us, 5_000 + rng.randrange(20_000) + sign * difference_us(at_us)))
    return messages


def lines(found: list[dict[str, Any]]) -> dict[int, tuple[float, float, int]]:
    """By hour, how far b's clock is ahead in its middle, the error, and the drift."""
    there, back = (
        {row["hour_us"]: row for row in found if row["src_domain"] == name} for name in ("a.example", "b.example")
    )
    return {
        hour_us: (
            (one["low_us"] - back[hour_us]["low_us"]) / 2,
            (one["low_us"] + back[hour_us]["low_us"]) / 2,
            one["drift_ppb"],
        )
        for hour_us, one in there.items()
    }


@pytest.mark.parametrize("drift_ppb", [0, 230, 700, 46_000, -46_000])
@pytest.mark.parametrize("each_way", [6, 60, 600])
def test_a_clock_that_drifts_is_followed_within_the_bound(drift_ppb: int, each_way: int) -> None:
    """20 ms, 60 ms and 4 s a day; the last is a plain quartz."""

    def difference_us(at_us: int) -> int:
        return round(1_700_000 + drift_ppb * at_us / 1e9)

    found = lines(measured(traffic(difference_us, hours=24, each_way=each_way)))
    fitting = {hour_us: line for hour_us, line in found.items() if line[1] >= 0}
    assert len(fitting) >= (24 if each_way > 6 else 20)
    for hour_us, (ahead_us, error_us, slope_ppb) in fitting.items():
        for minute in range(0, 61, 5):
            at_us = hour_us + minute * 60_000_000
            said_us = ahead_us + slope_ppb * (at_us - hour_us - HOUR_US // 2) / 1e9
            assert abs(said_us - difference_us(at_us)) <= error_us + 1_500, (hour_us, minute)
        assert error_us < (30_000 if each_way > 6 else 150_000)


def test_an_hour_in_which_a_clock_was_set_has_no_line_and_the_others_do() -> None:
    set_us = 2 * HOUR_US + HOUR_US // 3
    found = lines(measured(traffic(lambda at_us: 500_000 * (at_us > set_us), hours=5, each_way=60)))
    assert [hour_us // HOUR_US for hour_us, line in found.items() if line[1] < 0] == [2]
    assert abs(found[0][0]) < 12_000
    assert abs(found[4 * HOUR_US][0] - 500_000) < 12_000


def test_single_records_timed_by_a_clock_that_jumped_move_no_line() -> None:
    messages = traffic(lambda _: 0, hours=3, each_way=100)
    messages[7] = (True, messages[7][1], -900_000_000)
    messages[-7] = (False, messages[-7][1], 900_000_000)
    assert all(
        abs(ahead_us) < 12_000 and 0 <= error_us < 20_000
        for ahead_us, error_us, _ in lines(measured(messages)).values()
    )


def test_nothing_is_measured_where_nothing_went() -> None:
    assert lines_of(delays_of(pa.Table.from_pylist([], schema=TIMES))).num_rows == 0


@pytest.mark.parametrize("one_in", [2, 7])
def test_of_one_in_so_many_messages_both_records_are_looked_at(one_in: int) -> None:
    rows = [
        {
            "src_domain": "a",
            "dst_domain": "b",
            "msg_id": number.to_bytes(16),
            "is_out": is_out,
            "ts_us": 0,
            "sent_us": 0,
        }
        | {"outcome": "delivered"}
        for number in range(700)
        for is_out in (True, False)
    ]
    chosen = sampled(pa.Table.from_pylist(rows, schema=TIMES), one_in)
    assert 0.7 < chosen.num_rows * one_in / len(rows) < 1.3
    assert delays_of(chosen).num_rows * 2 == chosen.num_rows


def test_known_clocks_say_what_is_usual_before_the_pair_does() -> None:
    known = clocks(700, offsets=[("a.example", 0, 5), ("b.example", 40, 6)])
    pairs = [("a.example", "b.example"), ("a.example", "c.example"), ("a.example", "b.example")]
    sources, targets = (pa.array(names) for names in zip(*pairs, strict=True))
    usual = known.usual(sources, targets, np.array([NOON_US, NOON_US, NOON_US + DAY_US]))
    assert [column.tolist() for column in usual] == [[True, False, False], [40, 0, 0], [11, 0, 0]]
    only_delays = clocks(700).usual(sources[:1], targets[:1], np.array([NOON_US]))
    assert [column.tolist() for column in only_delays] == [[True], [700], [0]]


def test_what_is_usual_follows_a_drift_and_its_doubt_shrinks_by_what_the_clock_may_have_gone() -> None:
    known = clocks(offsets=[("a.example", 0, 500), ("b.example", 40, 6)], drift_ppb=1_000)
    pair = (pa.array(["a.example"]), pa.array(["b.example"]))
    for minute, usual_us in ((0, 40 - 1_800), (30, 40), (45, 40 + 900)):
        found = known.usual(*pair, np.array([NOON_US + minute * 60_000_000]), spread_us=60_000_000)
        assert (found.usual_us.tolist(), found.doubt_us.tolist()) == ([usual_us], [506 - 60])


def test_what_is_usual_is_rounded_up_at_every_half_so_that_equal_steps_stay_equal() -> None:
    known = clocks(offsets=[("a.example", 0, 0), ("b.example", 0, 0)], drift_ppb=1)
    steps = np.array([500_000_000, 1_500_000_000])  # after the middle of the hour: 0.5 and 1.5 µs
    pair = (pa.array(["a.example"] * 2), pa.array(["b.example"] * 2))
    found = known.usual(*pair, NOON_US + HOUR_US // 2 + steps, spread_us=1_000_000_000)
    assert (found.usual_us.tolist(), found.doubt_us.tolist()) == ([1, 2], [-1, -1])


def test_clocks_travel_to_workers_without_what_was_looked_up() -> None:
    known = clocks(700)
    pair = pa.array(["a.example"]), pa.array(["b.example"]), np.array([NOON_US])
    before = pickle.dumps(known)
    found = known.usual(*pair)
    assert pickle.dumps(known) == before
    assert [column.tolist() for column in pickle.loads(before).usual(*pair)] == [column.tolist() for column in found]


def minutely(
    difference_us: Callable[[float], float], minutes: Sequence[int], *, is_up: bool, transit_us: int = 10_000
) -> list[tuple[bool, int, int]]:
    """A message in each of these minutes, while b's clock is ahead by so much after so many hours."""
    sign = 1 if is_up else -1
    return [(is_up, minute * 60_000_000, transit_us + sign * round(difference_us(minute / 60))) for minute in minutes]


def each_way(difference_us: Callable[[float], float], minutes: Sequence[int]) -> list[tuple[bool, int, int]]:
    return [one for is_up in (True, False) for one in minutely(difference_us, minutes, is_up=is_up)]


def drifts(found: list[dict[str, Any]]) -> dict[int, int]:
    return {hour_us // HOUR_US: drift_ppb for hour_us, (_, _, drift_ppb) in lines(found).items()}


def test_an_hour_in_which_a_clock_drifts_has_a_slope_of_its_own() -> None:
    """36 ms in the sixth hour are ten parts in a million."""
    found = drifts(measured(each_way(lambda hour: 36_000 * min(max(hour - 5, 0), 1), range(12 * 60))))
    assert found == {hour: 10_000 if hour == 5 else 0 for hour in range(12)}


def test_a_slope_is_the_lesser_of_what_an_hour_differs_by_from_its_neighbours() -> None:
    """In the eighth hour nothing came in the second half, so that its own halves say nothing."""
    minutes = [minute for minute in range(20 * 60) if not 7 * 60 + 30 <= minute < 8 * 60]
    found = drifts(measured(each_way(lambda hour: 36_000 * min(max(hour - 6, 0), 3), minutes)))
    assert (found[5], round(found[7], -2), found[9]) == (0, 7_500, 0)


def test_hours_between_which_there_is_a_gap_say_nothing_of_a_drift() -> None:
    minutes = [*range(0, 60, 6), *range(120, 180, 6)]
    found = drifts(measured(each_way(lambda hour: 72_000 * (hour if hour < 1 else hour - 1), minutes)))
    assert found == {0: 0, 2: 0}


def test_what_few_messages_say_of_a_drift_is_weighed_twice() -> None:
    """Ten messages late in the one hour and ten early in the next one; half an hour lies between their middles."""
    minutes = [*range(40, 50), *range(70, 80)]
    found = drifts(measured(each_way(lambda hour: 36_000 * hour, minutes)))
    assert found == {0: 7_500, 1: 7_500}


def test_lines_that_become_slower_both_ways_are_no_drift() -> None:
    messages = [
        one
        for hour in range(2)
        for is_up in (True, False)
        for one in minutely(
            lambda _: 0, range(60 * hour, 60 * hour + 60, 6), is_up=is_up, transit_us=10_000 + 20_000 * hour
        )
    ]
    assert drifts(measured(messages)) == {0: 0, 1: 0}


def low_of(messages: list[tuple[bool, int, int]]) -> dict[str, int]:
    return {row["src_domain"]: row["low_us"] for row in measured(messages)}


@pytest.mark.parametrize("is_up", [False, True])
def test_the_error_grows_as_less_of_the_hour_is_covered_both_ways(*, is_up: bool) -> None:
    whole = minutely(lambda _: 0, range(60), is_up=is_up)
    part = minutely(lambda _: 0, range(20, 41), is_up=not is_up)
    assert low_of(whole + part) == dict.fromkeys(("a.example", "b.example"), 30_000)
    assert low_of(each_way(lambda _: 0, range(60))) == dict.fromkeys(("a.example", "b.example"), 10_170)


def test_directions_that_never_share_a_quarter_of_an_hour_know_four_times_less() -> None:
    early, late = range(6), range(50, 56)
    messages = minutely(lambda _: 0, early, is_up=True) + minutely(lambda _: 0, late, is_up=False)
    assert low_of(messages) == dict.fromkeys(("a.example", "b.example"), 40_000)
    close = minutely(lambda _: 0, [0], is_up=True, transit_us=1) + minutely(
        lambda _: 0, [50], is_up=False, transit_us=0
    )
    assert low_of(close) == {"a.example": 3, "b.example": 2}


def test_the_first_rows_of_tables_are_known_like_all_others() -> None:
    a, b = pa.array(["a.example"]), pa.array(["b.example"])
    first_us = np.array([NOON_US - 12 * HOUR_US + HOUR_US // 2])
    known = clocks(700, offsets=[("a.example", 0, 5), ("b.example", 40, 6)])
    assert [column.tolist() for column in known.usual(a, b, first_us)] == [[True], [40], [11]]
    assert [column.tolist() for column in known.usual(b, a, first_us)] == [[True], [-40], [11]]
    assert [column.tolist() for column in clocks(700).usual(a, b, first_us)] == [[True], [700], [0]]


@pytest.mark.parametrize(("names", "sign"), [(("a.example", "b.example"), 1), (("b.example", "a.example"), -1)])
def test_a_drift_counts_for_the_side_whose_clock_it_is(names: tuple[str, str], sign: int) -> None:
    """A clock that is twice as fast."""
    known = clocks(offsets=[("a.example", 0, 0), ("b.example", 0, 9 * HOUR_US)], drift_ppb=1_000_000_000)
    sources, targets = (pa.array([name]) for name in names)
    found = known.usual(sources, targets, np.array([NOON_US]), spread_us=2 * HOUR_US)
    assert (found.usual_us.tolist(), found.doubt_us.tolist()) == ([-sign * HOUR_US // 2], [7 * HOUR_US])
