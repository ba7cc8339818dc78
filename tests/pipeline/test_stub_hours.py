"""Hours of stub versions out of records, however these are cut, against the plainest loop over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.packed import packed, together
from pipeline.columns.regression import SMALLEST_EFFECT
from pipeline.columns.stub_hours import KEY, RECORD, places_of_stub_hours, stub_hours_of, whole_stub_hours
from pipeline.columns.stub_versions import HOUR, Versions, regressions
from pipeline.schemas import SILVER_MDR, STUB_HOURLY
from protofly.log_linear import bucket_of
from tests.pipeline.histograms import histogram_of
from tests.pipeline.rows import HOUR_US, MONDAY_US, day_of

SILVER = pa.schema([to_arrow_schema(SILVER_MDR.schema).field(name) for name in RECORD])
HOURS = pa.schema([to_arrow_schema(STUB_HOURLY.schema).field(name) for name in HOUR])
times = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40)
records = st.fixed_dictionaries(
    {
        "our_domain": st.sampled_from(["a.example", "b.example"]),
        "peer_domain": st.sampled_from(["c.example", "ä.example"]),
        "stub_ver": st.sampled_from(["1", "2", None]),
        "msg_type": st.sampled_from(["create", "read", None]),
        "role": st.sampled_from(["in", "out", "out"]),
        "ts_us": st.integers(0, 30 * HOUR_US).map(lambda after_us: MONDAY_US + after_us),
        "size_in": st.none() | st.integers(0, 2**40) | st.integers(0, 40),
        "outcome": st.sampled_from(["delivered", "denied", "timeout", "trapped"]),
        "trap": st.sampled_from([None, None, "fuel"]),
        **dict.fromkeys(("d_stub_us", "d_total_us", "fuel"), times),
    }
)


def plainly(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["role"] == "out" and row["stub_ver"] is not None:
            size = row["size_in"]
            size_class = None if size is None else size.bit_length() - 1 if size else 0
            hour_us = row["ts_us"] - row["ts_us"] % HOUR_US
            key = (*(row[name] for name in KEY[:4]), hour_us, size_class)
            groups.setdefault(key, []).append(row)
    found = {}
    for key, its in groups.items():
        latency = [row["d_total_us"] if row["d_stub_us"] is None else row["d_stub_us"] for row in its]
        found[key] = {
            "messages": len(its),
            "failed": sum(row["outcome"] not in {"delivered", "denied"} for row in its),
            "traps": sum(row["outcome"] == "trapped" or row["trap"] is not None for row in its),
            "latency": list(histogram_of(value for value in latency if value is not None).items()),
            "fuel": list(histogram_of(row["fuel"] for row in its if row["fuel"] is not None).items()),
            "dt": day_of(key[4]),
        }
    return found


@given(rows=st.lists(records, max_size=30), cut=st.integers(0, 30), places=st.integers(1, 5))
def test_hours_of_stubs_are_those_of_a_plain_loop_however_records_are_cut(
    rows: list[dict[str, Any]], cut: int, places: int
) -> None:
    parts = [stub_hours_of(pa.Table.from_pylist(some, SILVER)) for some in (rows[:cut], rows[cut:])]
    by_place: dict[int, list[pa.RecordBatch]] = {}
    for hours in parts:
        piece = packed(hours, places_of_stub_hours(hours, places))
        for number, place in enumerate(piece.column("place").to_pylist()):
            by_place.setdefault(place, []).append(piece.slice(number, 1))
    found = {}
    for its in by_place.values():
        hours = whole_stub_hours(together(its))
        assert set(hours.column_names) == set(STUB_HOURLY.schema.names)
        for row in hours.to_pylist():
            key = tuple(row.pop(name) for name in KEY)
            assert key not in found
            found[key] = row
    assert found == plainly(rows)


@pytest.mark.parametrize(
    ("baseline", "candidate", "pair"),
    [
        ("", "", ("b1", "c1")),
        ("a", "", ("a1", "c1")),
        ("", "b", ("a1", "b1")),
        ("c", "a", ("c1", "a1")),
        ("", "a", None),
        ("", "z", None),
        ("z", "", None),
        ("c1", "c", None),
        ("c", "c1", None),
    ],
)
def test_the_newest_version_is_held_against_the_one_before_it_unless_others_are_named(
    baseline: str, candidate: str, pair: tuple[str, str] | None
) -> None:
    assert Versions(baseline, candidate, SMALLEST_EFFECT).pair(["a1", "b1", "c1"]) == pair


def test_versions_of_each_peer_are_judged_apart_in_the_order_in_which_they_were_seen_first() -> None:
    def hour(peer: str, version: str, number: int, traps: int) -> dict[str, Any]:
        hour_us = MONDAY_US + number * HOUR_US
        row = {"our_domain": "a.example", "peer_domain": peer, "stub_ver": version, "hour_us": hour_us}
        counts = {"messages": 400, "failed": traps, "traps": traps, "latency": [(bucket_of(900), 400)], "fuel": []}
        return row | counts | {"msg_type": "create", "size_class": 7, "dt": day_of(hour_us)}

    rows = [hour("b.example", "z" if number < 9 else "a", number, 0 if number < 9 else 90) for number in range(18)]
    rows += [hour("c.example", "a" if number < 9 else "z", number, 0) for number in range(30)]
    rows += [hour("d.example", "only", number, 0) for number in range(9)]
    hours = pa.Table.from_pylist(rows[::-1], HOURS)
    together_again = together([packed(hours, np.zeros(len(rows), np.int64))])
    found = list(regressions(together_again, Versions("", "", SMALLEST_EFFECT)))
    verdicts = {(row["peer_domain"], row["baseline"], row["candidate"], row["dt"]) for row in found}
    assert verdicts == {("b.example", "z", "a", "2026-03-02"), ("c.example", "a", "z", "2026-03-03")}
    assert {(row["peer_domain"], row["measure"]) for row in found if row["verdict"] == "worse"} == {
        ("b.example", "traps"),
        ("b.example", "failures"),
    }


def test_message_type_and_size_class_make_a_stratum() -> None:
    counts = {"messages": 400, "failed": 0, "traps": 0, "latency": [(bucket_of(900), 400)], "fuel": None}
    rows: list[dict[str, Any]] = [
        {"our_domain": "a.example", "peer_domain": "b.example", "stub_ver": version, "hour_us": MONDAY_US + number}
        | {"msg_type": msg_type, "size_class": size_class, "dt": day_of(MONDAY_US)}
        | counts
        for number, version in enumerate(["old", "new"])
        for msg_type in ("create", None)
        for size_class in (7, 8, None)
    ]
    found = list(regressions(pa.Table.from_pylist(rows, HOURS), Versions("", "", SMALLEST_EFFECT)))
    assert {(row["strata"], row["messages"]) for row in found} == {(6, 4_800)}
    # Without a size, or of none, is one class.
    unsized = [row | {"size_class": row["size_class"] and row["size_class"] - 7} for row in rows]
    found = list(regressions(pa.Table.from_pylist(unsized, HOURS), Versions("", "", SMALLEST_EFFECT)))
    assert {(row["strata"], row["messages"]) for row in found} == {(4, 4_800)}


@pytest.mark.parametrize(("measure", "values"), [("latency", {"latency_p50", "latency_p99"}), ("fuel", {"fuel_p50"})])
def test_each_histogram_of_the_hours_has_its_quantiles(measure: str, values: set[str]) -> None:
    rows = [
        {"our_domain": "a.example", "peer_domain": "b.example", "stub_ver": version, "hour_us": MONDAY_US + number}
        | {"msg_type": "create", "size_class": 7, "dt": day_of(MONDAY_US), "messages": 400, "failed": 0, "traps": 0}
        | {"latency": None, "fuel": None}
        | {measure: [(bucket_of(9), 400)]}
        for number in range(6)
        for version in ("old", "new")
    ]
    found = list(regressions(pa.Table.from_pylist(rows, HOURS), Versions("new", "old", SMALLEST_EFFECT)))
    quantiles = {row["measure"]: row["ratio"] for row in found if row["measure"] not in {"traps", "failures"}}
    assert {name for name, ratio in quantiles.items() if ratio == 1} == values
    assert {name for name, ratio in quantiles.items() if ratio is None} == quantiles.keys() - values
