"""Days out of hours, however these are cut into pieces, against the plainest loop over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.days import HOUR, Version, days_added_up, folds_of, with_quantiles, written_down
from pipeline.columns.histogram import quantile
from pipeline.columns.packed import packed, together
from pipeline.columns.set_digests import STATEMENT_KEY, places_of_days
from pipeline.schemas import STATEMENT, STATEMENT_DAILY, TRAFFIC_HOURLY

SUMS = ("messages", "delivered", "denied", "failed", "bytes_in", "bytes_wire")
HOURS = pa.schema([to_arrow_schema(TRAFFIC_HOURLY.schema).field(name) for name in HOUR])

domains = st.sampled_from(["a.example", "b.example", "ä.example"])
words = st.dictionaries(st.sampled_from(["", "closed", "delivered", "zu"]), st.integers(1, 9), max_size=3)
hours = st.fixed_dictionaries(
    {
        **dict.fromkeys(("our_domain", "src_domain", "dst_domain"), domains),
        "role": st.sampled_from(["in", "out"]),
        "dt": st.sampled_from(["2026-03-01", "2026-03-02"]),
        **dict.fromkeys(SUMS, st.integers(0, 2**40)),
        "outcomes": words,
        "denials": words,
        "latency": st.dictionaries(st.integers(-2, 1007), st.integers(1, 9), max_size=4),
    }
)

A_DAY: dict[str, Any] = {
    **dict.fromkeys(SUMS, 2),
    "our_domain": "a.example",
    "src_domain": "a.example",
    "dst_domain": "b.example",
    "role": "out",
    "dt": "2026-03-01",
    "outcomes": {"delivered": 1},
    "denials": {},
    "latency": {16: 1},
}


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    maps = ("outcomes", "denials", "latency")
    return pa.Table.from_pylist([{**row} | {name: list(row[name].items()) for name in maps} for row in rows], HOURS)


def plainly(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for key in sorted({tuple(row[name] for name in STATEMENT_KEY) for row in rows}):
        its = [row for row in rows if tuple(row[name] for name in STATEMENT_KEY) == key]
        day: dict[str, Any] = {name: sum(row[name] for row in its) for name in SUMS}
        for name in ("outcomes", "denials", "latency"):
            counts: Counter[Any] = Counter()
            for row in its:
                counts.update(row[name])
            day[name] = sorted(counts.items())
        for per_mille in (500, 950, 990):
            day[f"p{per_mille // 10}_us"] = quantile(dict(day["latency"]), per_mille)
        found[key] = day
    return found


@given(rows=st.lists(hours, min_size=1, max_size=20), cut=st.integers(0, 20), places=st.integers(1, 5))
def test_days_are_the_sums_of_their_hours_however_these_are_cut(
    rows: list[dict[str, Any]], cut: int, places: int
) -> None:
    parts = [days_added_up(table(some)) for some in (rows[:cut], rows[cut:])]
    pieces = [packed(days, places_of_days(days, places)) for days in parts]
    by_place: dict[int, list[pa.RecordBatch]] = {}
    for piece in pieces:
        for number, place in enumerate(piece.column("place").to_pylist()):
            by_place.setdefault(place, []).append(piece.slice(number, 1))
    found = {}
    for its in by_place.values():
        days = with_quantiles(days_added_up(together(its)))
        assert set(days.column_names) == set(STATEMENT.names)
        for row in days.to_pylist():
            key = tuple(row.pop(name) for name in STATEMENT_KEY)
            assert key not in found
            found[key] = row
    assert found == plainly(rows)


@given(rows=st.lists(hours, min_size=1, max_size=8), order=st.randoms())
def test_folds_of_a_day_are_the_same_in_any_order(rows: list[dict[str, Any]], order: Any) -> None:
    days = with_quantiles(days_added_up(table(rows)))
    numbers = list(range(days.num_rows))
    order.shuffle(numbers)
    by = ("our_domain", "dt")
    assert folds_of(days.take(numbers), by) == folds_of(days, by)


@pytest.mark.parametrize(
    "other",
    [
        *({name: 3} for name in SUMS),
        *({name: "c.example"} for name in ("src_domain", "dst_domain")),
        {"role": "out"},
        {"outcomes": {"delivered": 2}},
        {"outcomes": {"denied": 1}},
        {"denials": {"delivered": 1}, "outcomes": {}},
        {"denials": {"": 1}},
        {"latency": {17: 1}},
        {"latency": {16: 2}},
        {"latency": {}},
    ],
    ids=repr,
)
def test_folds_see_whatever_a_statement_says_otherwise(other: dict[str, Any]) -> None:
    hour = A_DAY | {"role": "in"}
    one, another = (
        folds_of(with_quantiles(days_added_up(table([row]))), ("our_domain", "dt")).to_pylist()
        for row in (hour, hour | other)
    )
    assert one[0]["set_xor"] != another[0]["set_xor"]
    assert one[0]["set_sum"] != another[0]["set_sum"]


def test_only_days_with_a_version_are_written_down_each_with_what_its_version_says() -> None:
    draft, other = A_DAY | {"our_domain": "c.example"}, A_DAY | {"dt": "2026-03-02"}
    back = A_DAY | {"role": "in", "src_domain": "b.example", "dst_domain": "a.example"}
    days = with_quantiles(days_added_up(table([A_DAY, back, draft, other])))
    digests = pa.Table.from_pylist([{name: A_DAY[name] for name in STATEMENT_KEY} | {"set_digest": "d1"}])
    versions = {
        ("a.example", "2026-03-01"): Version(3, "final", 77),
        ("c.example", "2026-03-01"): Version(1, "draft", 78),
    }
    found = written_down(days, versions, digests, input_version=9)
    assert set(found.column_names) == set(STATEMENT_DAILY.schema.names)
    more = ("our_domain", "role", "version", "status", "complete_until_us", "input_version", "set_digest")
    assert sorted(tuple(row[name] for name in more) for row in found.to_pylist()) == [
        ("a.example", "in", 3, "final", 77, 9, sha256(b"").hexdigest()),
        ("a.example", "out", 3, "final", 77, 9, "d1"),
        ("c.example", "out", 1, "draft", 78, 9, None),
    ]
    assert found.select(days.column_names).to_pylist() == [
        row for row in days.to_pylist() if (row["our_domain"], row["dt"]) in versions
    ]


def test_a_final_day_without_delivered_messages_has_the_digest_of_nothing() -> None:
    days = with_quantiles(days_added_up(table([A_DAY])))
    found = written_down(days, {("a.example", "2026-03-01"): Version(1, "final", 0)}, None, input_version=0)
    assert found.column("set_digest").to_pylist() == [sha256(b"").hexdigest()]
    assert written_down(days, {}, None, input_version=0).num_rows == 0
