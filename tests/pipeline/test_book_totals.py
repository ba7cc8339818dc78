"""Totals out of records, however these are cut into pieces, against the plainest loop over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.book_totals import BUCKET_US, KEY, side_by_side, totals_of, whole_totals
from pipeline.groups import MASK
from tests.pipeline.rows import MONDAY_US

ENTRY = pa.schema(
    {
        **dict.fromkeys(("src_domain", "dst_domain"), pa.string()),
        "bucket_us": pa.int64(),
        **dict.fromkeys(("is_out", "is_delivered"), pa.bool_()),
        **dict.fromkeys(("size", "member", "lag_us"), pa.int64()),
    }
)
longs = st.integers(-(2**63), 2**63 - 1)
domains = st.sampled_from(["a.example", "b.example", "ä.example"])
entries = st.fixed_dictionaries(
    {
        "src_domain": domains,
        "dst_domain": domains,
        "bucket_us": st.integers(-3, 300).map(lambda number: MONDAY_US + number * BUCKET_US),
        "is_out": st.booleans(),
        "is_delivered": st.booleans(),
        "size": st.integers(0, 2**40),
        "member": longs,
        "lag_us": longs,
    }
)


def plainly(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for key in sorted({tuple(row[name] for name in KEY) for row in rows}):
        here = [row for row in rows if tuple(row[name] for name in KEY) == key]
        theirs = [row for row in here if not row["is_out"]]
        lags = [row["lag_us"] for row in theirs]
        found.append(
            dict(zip(KEY, key, strict=True))
            | side("out", [row for row in here if row["is_out"]])
            | side("in", theirs)
            | {
                "in_delivered": sum(row["is_delivered"] for row in theirs),
                "lag_min_us": min(lags, default=None),
                "lag_max_us": max(lags, default=None),
            }
        )
    return found


def side(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    xor = 0
    for row in rows:
        xor ^= row["member"]
    return {
        f"{name}_messages": len(rows),
        f"{name}_bytes": sum(row["size"] for row in rows),
        f"{name}_set_xor": xor,
        f"{name}_set_sum": sum(row["member"] for row in rows) & MASK,
    }


@given(rows=st.lists(entries, min_size=1, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_totals_are_those_of_a_plain_loop_however_the_records_were_cut(
    rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    whole = pa.Table.from_pylist(rows, schema=ENTRY)
    pieces = [whole.slice(first, last - first) for first, last in pairwise([0, *sorted(cuts), len(rows)])]
    parts = pa.concat_tables([totals_of(piece) for piece in pieces if piece.num_rows])
    found = side_by_side(whole_totals(parts)).to_pylist()
    assert [row | {name: row[name] & MASK for name in ("out_set_sum", "in_set_sum")} for row in found] == plainly(rows)
