"""Totals out of records, however these are cut into pieces, against the plainest loop over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.groups import MASK
from pipeline.columns.side_records import BUCKET_US
from pipeline.columns.side_totals import (
    BUCKET_COUNTS,
    COUNTED,
    KEY,
    compare,
    equal_counts,
    side_by_side,
    totals_of,
    whole_totals,
)
from pipeline.schemas import RECON_BUCKET
from tests.pipeline.rows import DAY_US, MONDAY_US, day_of
from tests.pipeline.side_rows import NOON_US, clocks
from tests.pipeline.xxhash import plain_xxhash64

ENTRY = pa.schema(
    {
        **dict.fromkeys(("src_domain", "dst_domain", "outcome"), pa.string()),
        **dict.fromkeys(("msg_id", "digest"), pa.binary()),
        **dict.fromkeys(("sent_us", "bucket_us", "ts_us", "size"), pa.int64()),
        "is_out": pa.bool_(),
    }
)
domains = st.sampled_from(["a.example", "b.example", "ä.example"])


def in_bucket(row: dict[str, Any]) -> dict[str, Any]:
    """Ids without a time are compared in other 5 minutes."""
    return row | {"bucket_us": row["sent_us"] // BUCKET_US * BUCKET_US + (not row["has_time"]) * BUCKET_US}


entries = st.fixed_dictionaries(
    {
        "src_domain": domains,
        "dst_domain": domains,
        "outcome": st.sampled_from(["delivered", "delivered", "denied", "duplicate", "timeout"]),
        "msg_id": st.binary(min_size=16, max_size=16) | st.sampled_from([b"one", b"two"]),
        "digest": st.none() | st.binary(min_size=16, max_size=16),
        "sent_us": st.integers(-3 * BUCKET_US, 300 * BUCKET_US).map(lambda after_us: MONDAY_US + after_us),
        "ts_us": st.integers(-(2**61), 2**61),
        "size": st.none() | st.integers(0, 2**40),
        "is_out": st.booleans(),
        "has_time": st.sampled_from([True, True, False]),
    }
).map(in_bucket)


def is_compared(row: Mapping[str, Any]) -> bool:
    return bool(row["outcome"] == "delivered" if row["is_out"] else row["outcome"] != "duplicate")


def plainly(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for key in sorted({tuple(row[name] for name in KEY) for row in rows}):
        here = [row for row in rows if tuple(row[name] for name in KEY) == key]
        out, in_ = ([row for row in here if row["is_out"] is is_out] for is_out in (True, False))
        theirs = [row for row in in_ if is_compared(row)]
        lags = [row["ts_us"] - row["sent_us"] for row in theirs if row["has_time"]]
        found.append(
            dict(zip(KEY, key, strict=True))
            | side("out", [row for row in out if is_compared(row)])
            | side("in", theirs)
            | {
                "in_delivered": sum(row["outcome"] == "delivered" for row in theirs),
                "undelivered": sum(not is_compared(row) for row in out),
                "repeats": len(out) - len({row["msg_id"] for row in out}) + len(in_) - len(theirs),
                "lag_min_us": min(lags, default=None),
                "lag_max_us": max(lags, default=None),
            }
        )
    return found


def side(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    xor = 0
    members = [member_of(row) for row in rows]
    for member in members:
        xor ^= member
    return {
        f"{name}_messages": len(rows),
        f"{name}_bytes": sum(row["size"] or 0 for row in rows),
        f"{name}_set_xor": xor,
        f"{name}_set_sum": sum(members) & MASK,
    }


def member_of(row: Mapping[str, Any]) -> int:
    hashed = plain_xxhash64(row["msg_id"], 42)
    if row["digest"] is not None:
        hashed = plain_xxhash64(row["digest"], hashed)
    return hashed if row["size"] is None else plain_xxhash64(row["size"].to_bytes(8, "little"), hashed)


FOLDS = tuple(f"{side}_set_{fold}" for side in ("out", "in") for fold in ("xor", "sum"))


@given(rows=st.lists(entries, min_size=1, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_totals_are_those_of_a_plain_loop_however_the_records_were_cut(
    rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    whole = pa.Table.from_pylist(rows, schema=ENTRY)
    pieces = [whole.slice(first, last - first) for first, last in pairwise([0, *sorted(cuts), len(rows)])]
    parts = pa.concat_tables([totals_of(piece) for piece in pieces if piece.num_rows])
    found = side_by_side(whole_totals(parts)).to_pylist()
    assert [row | {name: row[name] & MASK for name in FOLDS} for row in found] == plainly(rows)


SKEW_US = 4
few = st.integers(0, 1)
side_rows = st.fixed_dictionaries(
    {
        "src_domain": st.sampled_from(["a.example", "a.example", "c.example"]),
        "dst_domain": st.just("b.example"),
        "bucket_us": st.sampled_from([NOON_US, NOON_US, NOON_US + DAY_US]),
        **{f"{side}_{name}": few for side in ("out", "in") for name in COUNTED},
        **dict.fromkeys(("in_delivered", "undelivered"), few),
        "repeats": st.sampled_from([0, 0, 0, 1]),
        "lag_min_us": st.none() | st.integers(-12, 3),
        "lag_max_us": st.integers(3, 16),
    }
)


@given(row=side_rows, usual_us=st.integers(-3, 6), doubt_us=st.none() | st.integers(0, 2))
def test_totals_are_equal_when_all_sums_are_each_message_has_one_record_and_no_time_is_unusual(
    row: dict[str, Any], usual_us: int, doubt_us: int | None
) -> None:
    if row["lag_min_us"] is None:
        row["lag_max_us"] = None
    offsets = [] if doubt_us is None else [("a.example", 0, 0), ("b.example", usual_us, doubt_us)]
    known = clocks(-99 if offsets else usual_us, offsets=offsets)
    schema = pa.schema({name: pa.string() if name.endswith("_domain") else pa.int64() for name in row})
    [found] = compare(pa.Table.from_pylist([row], schema), known, skew_us=SKEW_US).to_pylist()
    is_same = all(row[f"out_{name}"] == row[f"in_{name}"] for name in COUNTED) and not row["repeats"]
    if is_same and row["lag_min_us"] is not None:
        is_known = row["src_domain"] == "a.example" and row["bucket_us"] == NOON_US
        low_us = usual_us if is_known else row["lag_min_us"]
        allowed_us = SKEW_US + (doubt_us or 0 if is_known else 0)
        is_same = row["lag_max_us"] - low_us <= allowed_us and low_us - row["lag_min_us"] <= allowed_us
    assert found.keys() == set(RECON_BUCKET.schema.names)
    assert found["is_equal"] is is_same
    assert (found["dt"], found["out_xor"], found["in_sum"]) == (
        day_of(row["bucket_us"]),
        row["out_set_xor"],
        row["in_set_sum"],
    )


@pytest.mark.parametrize(
    ("least", "most", "is_equal"), [(6, 14, True), (5, 14, False), (6, 15, False), (5, 15, False), (None, None, True)]
)
def test_totals_differ_when_one_message_came_too_early_or_one_too_late(
    least: int | None, most: int | None, *, is_equal: bool
) -> None:
    row = {"src_domain": "a.example", "dst_domain": "b.example", "bucket_us": NOON_US, "repeats": 0}
    row |= {f"{side}_{name}": 1 for side in ("out", "in") for name in COUNTED}
    row |= {"in_delivered": 1, "undelivered": 0, "lag_min_us": least, "lag_max_us": most}
    schema = pa.schema([(name, pa.string() if name.endswith("_domain") else pa.int64()) for name in row])
    [found] = compare(pa.Table.from_pylist([row], schema), clocks(10), skew_us=SKEW_US).to_pylist()
    assert found["is_equal"] is is_equal


buckets = st.fixed_dictionaries(
    {
        **dict.fromkeys(("src_domain", "dst_domain"), domains),
        "dt": st.sampled_from(["2026-03-01", "2026-03-02"]),
        **dict.fromkeys(("out_messages", "in_messages", "in_delivered", "undelivered"), st.integers(0, 9)),
        "is_equal": st.booleans(),
    }
)


@given(rows=st.lists(buckets, max_size=30))
def test_what_equal_totals_count_is_added_up_by_pair_and_day(rows: list[dict[str, Any]]) -> None:
    schema = pa.schema([to_arrow_schema(RECON_BUCKET.schema).field(name) for name in BUCKET_COUNTS])
    expected: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        counts = expected.setdefault((row["src_domain"], row["dst_domain"], row["dt"]), [0, 0, 0, 0, 0])
        if row["is_equal"]:
            out, in_, delivered, undelivered = (
                row[name] for name in ("out_messages", "in_messages", "in_delivered", "undelivered")
            )
            counts[:] = map(sum, zip(counts, (out, in_, out, in_ - delivered, undelivered), strict=True))
    found = equal_counts(pa.Table.from_pylist(rows, schema=schema))
    names = ["src_domain", "dst_domain", "dt", "sent", "received", "matched", "refused", "undelivered"]
    assert found.column_names == names
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(
        (*key, *counts) for key, counts in expected.items()
    )
