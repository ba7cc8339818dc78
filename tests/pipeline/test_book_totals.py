"""Totals out of records, however these are cut into pieces, against the plainest loop over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.book_entries import BUCKET_US
from pipeline.core.book_totals import KEY, side_by_side, totals_of, whole_totals
from pipeline.core.groups import MASK
from tests.pipeline.rows import MONDAY_US
from tests.pipeline.xxhash import plain_xxhash64

ENTRY = pa.schema(
    {
        **dict.fromkeys(("src_domain", "dst_domain", "outcome"), pa.string()),
        **dict.fromkeys(("msg_id", "digest"), pa.binary()),
        **dict.fromkeys(("sent_us", "ts_us", "size"), pa.int64()),
        "is_out": pa.bool_(),
    }
)
domains = st.sampled_from(["a.example", "b.example", "ä.example"])
entries = st.fixed_dictionaries(
    {
        "src_domain": domains,
        "dst_domain": domains,
        "outcome": st.sampled_from(["delivered", "delivered", "denied", "duplicate", "timeout"]),
        "msg_id": st.binary(min_size=16, max_size=16),
        "digest": st.none() | st.binary(min_size=16, max_size=16),
        "sent_us": st.integers(-3 * BUCKET_US, 300 * BUCKET_US).map(lambda after_us: MONDAY_US + after_us),
        "ts_us": st.integers(-(2**61), 2**61),
        "size": st.none() | st.integers(0, 2**40),
        "is_out": st.booleans(),
    }
)


def is_compared(row: Mapping[str, Any]) -> bool:
    return bool(row["outcome"] == "delivered" if row["is_out"] else row["outcome"] != "duplicate")


def plainly(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    rows = [{**row, "bucket_us": row["sent_us"] - row["sent_us"] % BUCKET_US} for row in rows if is_compared(row)]
    for key in sorted({tuple(row[name] for name in KEY) for row in rows}):
        here = [row for row in rows if tuple(row[name] for name in KEY) == key]
        theirs = [row for row in here if not row["is_out"]]
        lags = [row["ts_us"] - row["sent_us"] for row in theirs]
        found.append(
            dict(zip(KEY, key, strict=True))
            | side("out", [row for row in here if row["is_out"]])
            | side("in", theirs)
            | {
                "in_delivered": sum(row["outcome"] == "delivered" for row in theirs),
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
