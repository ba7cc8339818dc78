"""Records of one side in a worker: the same as plain Python says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns.side_records import (
    ALL,
    BUCKET_US,
    DAY_US,
    FEW,
    Buckets,
    Chosen,
    are_compared,
    entries_of,
    id_times_of,
    of_others,
    times_of,
)
from tests.pipeline.rows import silver_row
from tests.pipeline.side_rows import NOON_US, uuid7

domains = st.sampled_from(["a.example", "b.example", "c.example"])
times_us = st.integers(-2 * BUCKET_US, 3 * BUCKET_US)


def in_bucket(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"bucket_us": row["sent_us"] // BUCKET_US * BUCKET_US}


entry = st.fixed_dictionaries({"src_domain": domains, "dst_domain": domains, "sent_us": times_us}).map(in_bucket)
KEYS = pa.schema({"src_domain": pa.string(), "dst_domain": pa.string(), "bucket_us": pa.int64()})
ENTRIES = pa.schema(
    {"src_domain": pa.string(), "dst_domain": pa.string(), "sent_us": pa.int64(), "bucket_us": pa.int64()}
)


@given(rows=st.lists(entry, max_size=20), named=st.lists(entry, max_size=6), has_list=st.booleans())
def test_entries_in_named_buckets_are_kept_and_no_others(
    rows: list[dict[str, Any]], named: list[dict[str, Any]], has_list: bool
) -> None:
    def key(row: dict[str, Any]) -> tuple[str, str, int]:
        return row["src_domain"], row["dst_domain"], row["bucket_us"]

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
def test_only_ids_with_a_time_near_the_records_say_when_a_message_was_sent(rows: list[tuple[bytes, int]]) -> None:
    rows += [
        ((ts_us // 1000 % (1 << 48)).to_bytes(6) + bytes([0x70 + number % 2 * 16, 1, 0x80, *msg_id[:7]]), ts_us)
        for number, (msg_id, ts_us) in enumerate(rows)
    ]
    ids = pa.array([msg_id for msg_id, _ in rows], pa.binary())
    found, bucket_us = times_of(ids, np.array([ts_us for _, ts_us in rows], np.int64))

    def expected(msg_id: bytes, ts_us: int) -> int:
        if len(msg_id) < 9 or msg_id[6] >> 4 != 7 or msg_id[8] >> 6 != 2:
            return ts_us
        id_us = int.from_bytes(msg_id[:6]) * 1000
        return id_us if abs(id_us - ts_us) <= 86_400_000_000 else ts_us

    assert found.tolist() == [expected(msg_id, ts_us) for msg_id, ts_us in rows]
    assert not (bucket_us % BUCKET_US).any()
    id_us = id_times_of(ids)
    for (_, ts_us), sent_us, of_id, start_us in zip(
        rows, found.tolist(), id_us.tolist(), bucket_us.tolist(), strict=True
    ):
        if sent_us == of_id:
            assert start_us == sent_us // BUCKET_US * BUCKET_US
        else:
            assert start_us // DAY_US == ts_us // DAY_US


def test_an_id_without_a_time_is_compared_in_the_same_5_minutes_on_both_sides_and_as_often_as_it_comes() -> None:
    ids = pa.array([b"derived from a tr"] * 3 + [b"another derived one"], pa.binary())
    sent_us, bucket_us = times_of(ids, np.array([NOON_US, NOON_US + 9 * BUCKET_US, NOON_US + DAY_US, NOON_US]))
    assert sent_us[1] == NOON_US + 9 * BUCKET_US
    assert bucket_us[0] == bucket_us[1] == bucket_us[2] - DAY_US != bucket_us[3]


def test_messages_of_guests_are_not_compared_because_no_node_of_theirs_has_them() -> None:
    rows = [silver_row(role="out", channel="guest"), silver_row(role="out", channel="stub"), silver_row(channel=None)]
    table = pa.Table.from_pylist([{name: row.get(name) for name in ALL} for row in rows])
    assert entries_of(table).column("seq").to_pylist() == [rows[1]["seq"], rows[2]["seq"]]


@given(rows=st.lists(entry, max_size=20), wanted=st.sets(domains))
def test_of_others_are_all_rows_but_those_of_which_both_domains_are_named(
    rows: list[dict[str, Any]], wanted: set[str]
) -> None:
    found = of_others(pa.Table.from_pylist(rows, schema=ENTRIES), wanted)
    assert found.to_pylist() == [row for row in rows if not {row["src_domain"], row["dst_domain"]} <= wanted]


@given(rows=st.lists(entry, max_size=20), wanted=st.sets(domains), first_us=times_us, last_us=times_us)
def test_chosen_entries_were_sent_in_time_and_between_named_domains(
    rows: list[dict[str, Any]], wanted: set[str], first_us: int, last_us: int
) -> None:
    found = Chosen(first_us, last_us, wanted).of(pa.Table.from_pylist(rows, schema=ENTRIES))
    assert found.to_pylist() == [
        row
        for row in rows
        if first_us <= row["sent_us"] <= last_us and {row["src_domain"], row["dst_domain"]} <= wanted
    ]


def near(records: list[dict[str, Any]], chosen: Chosen) -> list[int]:
    """Numbers of the records that a cheap look at a file keeps."""
    table = pa.Table.from_pylist([{name: row.get(name) for name in ALL} for row in records])
    kept: list[int] = table.filter(pq.filters_to_expression(chosen.condition())).column("seq").to_pylist()
    return kept


@pytest.mark.parametrize("first_us", [NOON_US, NOON_US + 500, NOON_US + 999])
@pytest.mark.parametrize("last_us", [NOON_US + 5000, NOON_US + 5500, NOON_US + 5999])
def test_a_cheap_look_keeps_the_milliseconds_in_question_and_no_others(first_us: int, last_us: int) -> None:
    far_us = NOON_US + DAY_US // 2
    ids = [uuid7(NOON_US + after * 1000, 1) for after in range(-2, 9)]
    by_id = [silver_row(seq=number, msg_id=msg_id, ts_us=far_us) for number, msg_id in enumerate(ids, -2)]
    assert near(by_id, Chosen(first_us, last_us, set())) == [0, 1, 2, 3, 4, 5]
    times = [first_us - 1, first_us, last_us, last_us + 1]
    by_time = [silver_row(seq=number, msg_id=b"\xff" * 16, ts_us=time_us) for number, time_us in enumerate(times)]
    assert near(by_time, Chosen(first_us, last_us, set())) == [1, 2]


def test_a_cheap_look_keeps_ids_of_the_first_millisecond_of_1970_for_days_before_it() -> None:
    first = silver_row(seq=7, msg_id=bytes(16), ts_us=DAY_US)
    assert near([first], Chosen(-DAY_US, 999, set())) == [7]


def test_entries_say_what_records_say_and_when_the_message_was_sent() -> None:
    records = [
        silver_row(role="out", msg_id=uuid7(NOON_US, 1), ts_us=NOON_US + 5, size_wire=None, size_in=7, d_total_us=None),
        silver_row(role="in", msg_id=b"x", ts_us=NOON_US + 6, size_wire=9, size_in=7, digest=None, outcome="denied"),
    ]
    table = pa.Table.from_pylist([{name: row.get(name) for name in ALL} for row in records])
    more = [{"is_out": True, "sent_us": NOON_US, "size": 7}, {"is_out": False, "sent_us": NOON_US + 6, "size": 9}]
    ids = pa.array([row["msg_id"] for row in records], pa.binary())
    _, buckets = times_of(ids, np.array([NOON_US + 5, NOON_US + 6]))
    more = [one | {"bucket_us": start_us} for one, start_us in zip(more, buckets.tolist(), strict=True)]
    few = ("src_domain", "dst_domain", "msg_id", "ts_us", "outcome", "digest")
    expected = [{name: row[name] for name in few} | own for row, own in zip(records, more, strict=True)]
    assert entries_of(table.select(list(FEW))).to_pylist() == expected
    assert entries_of(table).to_pylist() == [
        one | {name: row[name] for name in ("node", "boot", "seq")} | {"span_us": row["d_total_us"]}
        for one, row in zip(expected, records, strict=True)
    ]
    bare = entries_of(table.select(["role", "src_domain", "dst_domain", "msg_id", "ts_us"]))
    assert bare.column_names == ["src_domain", "dst_domain", "msg_id", "sent_us", "bucket_us", "ts_us", "is_out"]
