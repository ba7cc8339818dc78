"""Entries of books in a worker: the same as plain Python says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.book_entries import BUCKET_US, Buckets, are_compared, sent_us_of

domains = st.sampled_from(["a.example", "b.example", "c.example"])
times_us = st.integers(-2 * BUCKET_US, 3 * BUCKET_US)
entry = st.fixed_dictionaries({"src_domain": domains, "dst_domain": domains, "sent_us": times_us})
KEYS = pa.schema({"src_domain": pa.string(), "dst_domain": pa.string(), "bucket_us": pa.int64()})
ENTRIES = pa.schema({"src_domain": pa.string(), "dst_domain": pa.string(), "sent_us": pa.int64()})


@given(rows=st.lists(entry, max_size=20), named=st.lists(entry, max_size=6), has_list=st.booleans())
def test_entries_in_named_buckets_are_kept_and_no_others(
    rows: list[dict[str, Any]], named: list[dict[str, Any]], has_list: bool
) -> None:
    def key(row: dict[str, Any]) -> tuple[str, str, int]:
        return row["src_domain"], row["dst_domain"], row["sent_us"] // BUCKET_US * BUCKET_US

    keys = sorted({key(row) for row in named})
    buckets = Buckets(pa.Table.from_pylist([dict(zip(KEYS.names, one, strict=True)) for one in keys], schema=KEYS))
    entries = pa.Table.from_pylist(rows, schema=ENTRIES)
    if has_list:  # as they are in files
        entries = entries.set_column(0, "src_domain", entries.column("src_domain").dictionary_encode())
    assert buckets.of(entries).to_pylist() == [row for row in rows if key(row) in keys]


@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.sampled_from(["delivered", "denied", "duplicate", "timeout"])), max_size=12
    )
)
def test_claims_are_held_against_all_but_ignored_copies(rows: list[tuple[bool, str]]) -> None:
    entries = pa.table({"is_out": pa.array([is_out for is_out, _ in rows], pa.bool_())}).append_column(
        "outcome", pa.array([outcome for _, outcome in rows], pa.string())
    )
    assert are_compared(entries).tolist() == [
        outcome == "delivered" if is_out else outcome != "duplicate" for is_out, outcome in rows
    ]


@given(rows=st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 1 << 50)), max_size=12))
def test_only_ids_with_a_time_near_the_records_tell_when_a_message_was_sent(rows: list[tuple[bytes, int]]) -> None:
    rows += [
        ((ts_us // 1000 % (1 << 48)).to_bytes(6) + bytes([0x70 + number % 2 * 16, 1, 0x80, *msg_id[:7]]), ts_us)
        for number, (msg_id, ts_us) in enumerate(rows)
    ]
    ids = pa.array([msg_id for msg_id, _ in rows], pa.binary())
    found = sent_us_of(ids, np.array([ts_us for _, ts_us in rows], np.int64))

    def expected(msg_id: bytes, ts_us: int) -> int:
        if len(msg_id) < 9 or msg_id[6] >> 4 != 7 or msg_id[8] >> 6 != 2:
            return ts_us
        id_us = int.from_bytes(msg_id[:6]) * 1000
        return id_us if abs(id_us - ts_us) <= 86_400_000_000 else ts_us

    assert found.tolist() == [expected(msg_id, ts_us) for msg_id, ts_us in rows]
