"""Hours out of records, however these are cut into pieces, against the plainest loop over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import xor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns.groups import MASK, group_numbers, in_pieces, sums, words
from pipeline.columns.hours import HOUR_US, KEY, RECORD, WORDS, days_of, hours_of, places_of_hours, whole_hours
from pipeline.columns.packed import packed, unpacked
from protofly.log_linear import bucket_of
from tests.pipeline.rows import MONDAY_US, day_of
from tests.pipeline.xxhash import plain_xxhash64

SILVER = pa.schema(
    {
        **dict.fromkeys(("our_domain", "src_domain", "dst_domain", "role", "msg_type"), pa.string()),
        **dict.fromkeys(("outcome", "rule_id"), pa.string()),
        **dict.fromkeys(("ts_us", "d_total_us", "size_in", "size_wire"), pa.int64()),
        **dict.fromkeys(("msg_id", "digest"), pa.binary()),
    }
)
domains = st.sampled_from(["a.example", "b.example", "ä.example"])
records = st.fixed_dictionaries(
    {
        **dict.fromkeys(("our_domain", "src_domain", "dst_domain"), domains),
        "role": st.sampled_from(["in", "out"]),
        "msg_type": st.sampled_from(["create", "read", None]),
        "outcome": st.sampled_from(["delivered", "delivered", "delivered", "denied", "timeout", "expired"]),
        "rule_id": st.sampled_from(["", "closed", "zu", None]),
        "ts_us": st.integers(-HOUR_US, 30 * HOUR_US).map(lambda after_us: MONDAY_US + after_us),
        "d_total_us": st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40),
        "size_in": st.none() | st.integers(0, 2**40),
        "size_wire": st.none() | st.integers(0, 2**40),
        "msg_id": st.binary(min_size=16, max_size=16),
        "digest": st.none() | st.binary(min_size=16, max_size=16),
    }
)


def plainly(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = (*(row[name] for name in WORDS), row["ts_us"] - row["ts_us"] % HOUR_US)
        groups.setdefault(key, []).append(row)
    return [dict(zip(KEY, key, strict=True)) | hour(key[-1], its) for key, its in groups.items()]


def hour(hour_us: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    delivered = [row for row in rows if row["outcome"] == "delivered"]
    denied = [row for row in rows if row["outcome"] == "denied"]
    members = [hash_of(row["msg_id"], row["digest"]) for row in delivered]
    return {
        "messages": len(rows),
        "delivered": len(delivered),
        "denied": len(denied),
        "failed": len(rows) - len(delivered) - len(denied),
        "bytes_in": sum(row["size_in"] or 0 for row in rows),
        "bytes_wire": sum(row["size_wire"] or 0 for row in rows),
        "outcomes": dict(Counter(row["outcome"] for row in rows)),
        "denials": dict(Counter(row["rule_id"] or "" for row in denied)),
        "latency": dict(Counter(bucket_of(row["d_total_us"]) for row in delivered if row["d_total_us"] is not None)),
        "set_xor": reduce(xor, members, 0),
        "set_sum": sum(members) & MASK,
        "dt": day_of(hour_us),
    }


def hash_of(*parts: bytes | None) -> int:
    hashed = 42
    for part in parts:
        hashed = hashed if part is None else plain_xxhash64(part, hashed)
    return hashed


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return sorted((dict(row) for row in rows), key=lambda row: [(row[name] is None, row[name]) for name in KEY])


def shown(hours: pa.Table) -> list[dict[str, Any]]:
    maps = ("outcomes", "denials", "latency")
    rows = hours.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        assert all(list(row[name]) == sorted(row[name]) for name in maps)
    return [row | {name: row[name] & MASK for name in ("set_xor", "set_sum")} for row in rows]


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=SILVER)


@given(rows=st.lists(records, min_size=1, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_hours_are_those_of_a_plain_loop_however_the_records_were_cut(
    rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    bounds = [0, *sorted(cuts), len(rows)]
    pieces = [table(rows[first:last]) for first, last in pairwise(bounds) if rows[first:last]]
    found = whole_hours(pa.concat_tables([hours_of(piece) for piece in pieces]))
    assert shown(found) == in_order(plainly(rows))


@given(rows=st.lists(records, min_size=1, max_size=40), cut=st.integers(0, 40), places=st.integers(1, 5))
def test_what_meets_in_a_place_are_whole_hours_and_all_places_together_are_everything(
    rows: list[dict[str, Any]], cut: int, places: int
) -> None:
    met: dict[int, list[pa.RecordBatch]] = {}
    for piece in (rows[:cut], rows[cut:]):
        hours = hours_of(table(piece))
        batch = packed(hours, places_of_hours(hours, places))
        for number, place in enumerate(batch.column("place").to_pylist()):
            met.setdefault(place, []).append(batch.slice(number, 1))
    found = [whole_hours(pa.concat_tables(unpacked(batches))) for batches in met.values()]
    assert in_order([row for hours in found for row in shown(hours)]) == in_order(plainly(rows))
    assert all(len(set(hours.column("dt").to_pylist())) == 1 for hours in found)


@given(rows=st.lists(records, max_size=30))
def test_texts_may_be_dictionaries_as_they_are_in_files(rows: list[dict[str, Any]]) -> None:
    assert tuple(SILVER.names) == RECORD
    words_of = [pa.dictionary(pa.int32(), pa.string()) if field.type == pa.string() else field.type for field in SILVER]
    encoded = table(rows).cast(pa.schema(list(zip(SILVER.names, words_of, strict=True))))
    assert hours_of(encoded).equals(hours_of(table(rows)))


@given(rows=st.lists(records, min_size=2, max_size=30), cut=st.integers(1, 29))
def test_a_part_of_a_table_is_added_up_like_a_table_of_its_own(rows: list[dict[str, Any]], cut: int) -> None:
    parts = pa.concat_tables([hours_of(table([row])) for row in rows]).combine_chunks()
    found = whole_hours(parts.slice(cut % len(rows), 1 + cut // 2))
    assert shown(found) == in_order(plainly(rows[cut % len(rows) :][: 1 + cut // 2]))


def test_a_sum_beyond_64_bits_is_an_error_and_not_a_small_number() -> None:
    row = {"src_domain": "a", "dst_domain": "b", "outcome": "delivered", "ts_us": 0, "size_wire": 0, "msg_id": b""}
    with pytest.raises(OverflowError):
        hours_of(table([row | {"size_in": 2**62}] * 2))
    [one] = hours_of(table([row | {"size_in": 2**62}] * 1)).to_pylist()
    assert one["bytes_in"] == 2**62


def test_each_day_is_named_once_however_many_times_are_of_it() -> None:
    times_us = [MONDAY_US + hours * HOUR_US for hours in (30, 0, 23, 24, 1, -1)]
    found = days_of(np.array(times_us, np.int64))
    assert found.to_pylist() == [day_of(time_us) for time_us in times_us]
    assert sorted(found.dictionary.to_pylist()) == sorted(set(found.to_pylist()))


def test_large_numbers_in_different_groups_are_no_error() -> None:
    values = np.array([2**62, 2**62, 5], np.int64)
    assert sums(values, np.array([0, 1])).tolist() == [2**62, 2**62 + 5]


def test_more_keys_than_fit_into_one_number_are_reported_apart() -> None:
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 3, 500) * (1 << 38) for _ in range(5)]
    numbers, _ = group_numbers([(column, 1 << 40) for column in columns])
    keys = list(zip(*(column.tolist() for column in columns), strict=True))
    by_number = sorted(zip(numbers.tolist(), keys, strict=True))
    assert len(set(by_number)) == len({number for number, _ in by_number}) == len(set(keys))
    assert [key for _, key in by_number] == sorted(keys)


def test_words_stand_in_order_and_null_behind_them() -> None:
    found, places = words(pa.array(["b", None, "a", "b"]))
    assert found == ["a", "b", None]
    assert places.tolist() == [1, 2, 0, 1]


def test_pieces_hold_at_least_what_was_asked_for_but_the_last() -> None:
    batches = [pa.RecordBatch.from_pydict({"n": list(range(size))}) for size in (4, 0, 4, 4, 1, 0)]
    assert [piece.num_rows for piece in in_pieces(batches, 8)] == [8, 5]
