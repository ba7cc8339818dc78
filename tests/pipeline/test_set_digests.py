"""Digests of sets in a worker: the same as `sort` and `sha256sum` would say, however the records were split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns.groups import Rows
from pipeline.columns.packed import packed, together
from pipeline.columns.set_digests import (
    STATEMENT_KEY,
    bucket_hashes,
    members_of,
    places_of_days,
    places_of_members,
    set_digests,
)
from pipeline.columns.side_records import BUCKET_US

SCHEMA = pa.schema(
    {
        **dict.fromkeys((*STATEMENT_KEY, "outcome"), pa.string()),
        "ts_us": pa.int64(),
        "msg_id": pa.binary(),
        "digest": pa.binary(),
    }
)
times_us = st.integers(-BUCKET_US - 5, 3 * BUCKET_US)
of_one_length = st.sampled_from([bytes(16), bytes(15) + b"\1", b"\1" + bytes(15), b"\xff" * 16, bytes(8) + b"\2" * 8])
of_any = st.one_of(st.none(), st.binary(max_size=10), of_one_length)


def records(names: st.SearchStrategy[bytes | None]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(
        st.fixed_dictionaries(
            {
                "our_domain": st.sampled_from(["a.example", "b.example"]),
                "src_domain": st.just("a.example"),
                "dst_domain": st.just("b.example"),
                "role": st.sampled_from(["in", "out"]),
                "dt": st.sampled_from(["2026-03-02", "2026-03-03"]),
                "outcome": st.sampled_from(["delivered", "delivered", "denied"]),
                "ts_us": times_us,
                "msg_id": names,
                "digest": names,
            }
        ),
        max_size=30,
    )


def by_hand(rows: Sequence[dict[str, Any]], signed_off: set[tuple[str, str]]) -> dict[tuple[str, ...], str]:
    lines: dict[tuple[str, ...], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["outcome"] == "delivered" and (row["our_domain"], row["dt"]) in signed_off:
            line = " ".join(part.hex() for part in (row["msg_id"], row["digest"]) if part is not None)
            lines[tuple(row[name] for name in STATEMENT_KEY)][row["ts_us"] // BUCKET_US * BUCKET_US].append(line)
    digests = {}
    for key, buckets in lines.items():
        hashes = [
            f"{str(bucket_us).rjust(20, '0')} {sha256(chr(10).join(sorted(its)).encode()).hexdigest()}"
            for bucket_us, its in buckets.items()
        ]
        digests[key] = sha256("\n".join(sorted(hashes)).encode()).hexdigest()
    return digests


def in_workers(parts: Sequence[list[dict[str, Any]]], signed_off: set[tuple[str, str]]) -> dict[tuple[str, ...], str]:
    """As Spark does it: pieces of a place meet, in any order."""

    def met(batches: Sequence[pa.RecordBatch]) -> list[pa.Table]:
        places: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for batch in batches:
            for row, place in enumerate(batch.column("place").to_pylist()):
                places[place].append(batch.slice(row, 1))
        return [together(its) for its in places.values()]

    wanted = Rows(*(pa.array([key[place] for key in sorted(signed_off)], pa.string()) for place in range(2)))
    members = [members_of(pa.Table.from_pylist(part, schema=SCHEMA), wanted) for part in parts]
    hashes = [
        bucket_hashes(table)
        for table in met([packed(one, places_of_members(one, 3)) for one in members if one.num_rows])
    ]
    found: dict[tuple[str, ...], str] = {}
    for table in met([packed(one, places_of_days(one, 3)) for one in hashes]):
        for row in set_digests(table).to_pylist():
            found[tuple(row[name] for name in STATEMENT_KEY)] = row["set_digest"]
    return found


ALL = {(domain, day) for domain in ("a.example", "b.example") for day in ("2026-03-02", "2026-03-03")}


@given(rows=records(of_one_length), cut=st.integers(0, 30))
def test_digests_are_those_of_sort_and_sha256sum(rows: list[dict[str, Any]], cut: int) -> None:
    assert in_workers([rows[:cut], rows[cut:]], ALL) == by_hand(rows, ALL)


@given(rows=records(of_any), cut=st.integers(0, 30))
def test_ids_of_any_length_and_missing_ones_have_a_line_of_what_there_is(rows: list[dict[str, Any]], cut: int) -> None:
    assert in_workers([rows[:cut], rows[cut:]], ALL) == by_hand(rows, ALL)


@given(rows=records(st.none()))
def test_messages_without_any_id_have_empty_lines(rows: list[dict[str, Any]]) -> None:
    assert in_workers([rows], ALL) == by_hand(rows, ALL)


@given(rows=records(of_one_length), signed_off=st.sets(st.sampled_from(sorted(ALL))))
def test_only_days_in_question_have_digests(rows: list[dict[str, Any]], signed_off: set[tuple[str, str]]) -> None:
    assert in_workers([rows], signed_off) == by_hand(rows, signed_off)


def test_many_messages_with_random_ids_are_sorted_as_their_lines_are() -> None:
    rng = np.random.default_rng(1)
    rows = [
        dict.fromkeys(("our_domain", "src_domain", "dst_domain"), "a.example")
        | {"role": "in", "dt": "2026-03-02", "outcome": "delivered", "ts_us": int(rng.integers(0, 2 * BUCKET_US))}
        | {"msg_id": bytes([*rng.integers(0, 2, 9).tolist(), *bytes(7)]), "digest": rng.bytes(32)}
        for _ in range(3000)
    ]
    assert in_workers([rows[::2], rows[1::2]], ALL) == by_hand(rows, ALL)
