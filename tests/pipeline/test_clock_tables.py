"""Delays between two sides' records against the plainest loop, and what is usual by what is known."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.clock_tables import delays_of, low_delays, sampled
from pipeline.core.side_records import DAY_US
from tests.pipeline.side_rows import clocks

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


def plainly(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str, int], list[int]]:
    found: dict[tuple[str, str, int], list[int]] = {}
    for key in {(row["src_domain"], row["dst_domain"], row["msg_id"]) for row in rows}:
        here = [row for row in rows if (row["src_domain"], row["dst_domain"], row["msg_id"]) == key]
        out, in_ = ([row for row in here if row["is_out"] is is_out] for is_out in (True, False))
        if out and in_:
            day = min(row["sent_us"] for row in out) // DAY_US
            delay_us = min(row["ts_us"] for row in in_) - min(row["ts_us"] for row in out)
            found.setdefault((*key[:2], day), []).append(delay_us)
    return found


def low_quantile(values: list[int]) -> int:
    """At a twentieth of the way, in proportion between two values; halves away from zero."""
    place = Fraction(len(values) - 1, 20)
    below, above = sorted(values)[math.floor(place)], sorted(values)[math.ceil(place)]
    exact = below + (place - math.floor(place)) * (above - below)
    return int(math.copysign(math.floor(abs(exact) + Fraction(1, 2)), exact))


@given(rows=st.lists(times, max_size=40))
def test_delays_are_those_of_a_plain_loop(rows: list[dict[str, Any]]) -> None:
    delivered = [row for row in rows if row["outcome"] == "delivered"]
    delays = delays_of(sampled(pa.Table.from_pylist(rows, schema=TIMES), 1))
    found: dict[tuple[str, str, int], list[int]] = {}
    for row in delays.to_pylist():
        found.setdefault((row["src_domain"], row["dst_domain"], row["day"]), []).append(row["delay_us"])
    expected = plainly(delivered)
    assert {key: sorted(values) for key, values in found.items()} == {
        key: sorted(values) for key, values in expected.items()
    }
    lows = {(row["src_domain"], row["dst_domain"], row["day"]): row for row in low_delays(delays).to_pylist()}
    assert {key: (row["low_us"], row["messages"]) for key, row in lows.items()} == {
        key: (low_quantile(values), len(values)) for key, values in expected.items()
    }


@pytest.mark.parametrize(
    ("delays_us", "low_us"),
    [
        ([7], 7),
        ([-7], -7),
        (range(21), 1),
        (range(1, 12), 2),
        (range(-11, 0), -11),
        (range(0, 1_001, 10), 50),
        ([0, 50], 3),
    ],
)
def test_the_low_delay_is_a_twentieth_of_the_way_up(delays_us: Sequence[int], low_us: int) -> None:
    keys = {"src_domain": "a.example", "dst_domain": "b.example", "day": 3}
    found = low_delays(pa.Table.from_pylist([keys | {"delay_us": delay_us} for delay_us in reversed(delays_us)]))
    assert found.to_pylist() == [keys | {"low_us": low_us, "messages": len(delays_us)}]


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
    usual = known.usual(sources, targets, pa.array(["2026-03-02", "2026-03-02", "2026-03-03"]))
    assert [column.tolist() for column in usual] == [[True, False, False], [40, 0, 0], [11, 0, 0]]
    only_delays = clocks(700).usual(sources[:1], targets[:1], pa.array(["2026-03-02"]))
    assert [column.tolist() for column in only_delays] == [[True], [700], [0]]


def test_clocks_travel_to_workers_without_what_was_looked_up() -> None:
    known = clocks(700)
    pair = [pa.array([name]) for name in ("a.example", "b.example", "2026-03-02")]
    before = pickle.dumps(known)
    found = known.usual(*pair)
    assert pickle.dumps(known) == before
    assert [column.tolist() for column in pickle.loads(before).usual(*pair)] == [column.tolist() for column in found]
