"""What the report shows of tables by the hour, however these are cut, against the plainest loop over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.packed import packed, together
from pipeline.columns.report_sums import (
    HOUR,
    PAIR,
    PEER,
    STUBS,
    TRAFFIC,
    messages_of_pairs,
    places_of_sums,
    places_of_versions,
    stub_sums,
    traffic_sums,
    whole_traffic,
    whole_versions,
)
from pipeline.lake.tables import Lake
from pipeline.report.by_hour import stub_versions, traffic_of
from pipeline.schemas import STUB_HOURLY, TRAFFIC_HOURLY, Table
from tests.pipeline.rows import HOUR_US, MONDAY_US

Row = Mapping[str, Any]
SHOWN = ("a.example", "b.example")
domains = st.sampled_from(["a.example", "b.example", "ä.example"])
counts = st.integers(0, 2**40)
histograms = st.dictionaries(st.integers(-2, 40), st.integers(1, 2**40), max_size=3).map(
    lambda found: sorted(found.items())
)
hours = st.fixed_dictionaries(
    {
        **dict.fromkeys(("our_domain", "src_domain", "dst_domain"), domains),
        "role": st.sampled_from(["in", "out"]),
        "hour_us": st.integers(-2, 30).map(lambda hour: MONDAY_US + hour * HOUR_US),
        "messages": counts,
        "denied": counts,
        "latency": histograms,
    }
)
of_stubs = st.fixed_dictionaries(
    {
        "peer_domain": domains,
        "stub_ver": st.sampled_from(["1", "2", None]),
        "messages": counts,
        "latency": histograms,
        "fuel": histograms,
    }
)


def table_of(table: Table, names: Sequence[str], rows: Sequence[Row]) -> pa.Table:
    schema = to_arrow_schema(table.schema)
    return pa.Table.from_pylist(list(rows), pa.schema([schema.field(name) for name in names]))


def added_up(rows: Sequence[Row], key: Sequence[str], name: str) -> dict[tuple[Any, ...], int]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        found[tuple(row[part] for part in key)] += row[name]
    return dict(found)


def buckets(rows: Sequence[Row], key: Sequence[str], name: str) -> dict[tuple[Any, ...], dict[int, int]]:
    found: dict[tuple[Any, ...], Counter[int]] = {}
    for row in rows:
        found.setdefault(tuple(row[part] for part in key), Counter()).update(dict(row[name]))
    return {of: dict(sorted(many.items())) for of, many in found.items()}


@given(rows=st.lists(hours, min_size=1, max_size=30), cut=st.integers(0, 30))
def test_traffic_that_was_read_in_two_pieces_gives_the_sums_of_all_rows(rows: list[Row], cut: int) -> None:
    pieces: dict[int, list[pa.RecordBatch]] = {}
    for some in (rows[:cut], rows[cut:]):
        part = traffic_sums(SHOWN, table_of(TRAFFIC_HOURLY, TRAFFIC, some))
        for piece in packed(part, places_of_sums(part, 3)).to_pylist() if some else ():
            pieces.setdefault(piece["place"], []).append(pa.RecordBatch.from_pylist([piece]))
    whole: dict[str, list[Row]] = {}
    for of_place in pieces.values():
        for row in whole_traffic(99, together(of_place)).to_pylist(maps_as_pydicts="strict"):
            whole.setdefault(row["what"], []).append(row)
    pair, hour = ("src_domain", "dst_domain"), ("role", "hour_us")
    sides = {role: [row for row in rows if row["role"] == role] for role in ("out", "in")}
    for name, role, counted in (
        ("sent", "out", "messages"),
        ("received", "in", "messages"),
        ("denied", "out", "denied"),
        ("refused", "in", "denied"),
    ):
        expected = dict.fromkeys(added_up(rows, pair, "messages"), 0) | added_up(sides[role], pair, counted)
        assert added_up(whole[PAIR], pair, name) == expected
    assert {(*(row[name] for name in hour), *row["latency"].items()) for row in whole[HOUR]} == {
        (*key, *many.items()) for key, many in buckets(rows, hour, "latency").items()
    }
    ours = [row for row in sides["in"] if (row["our_domain"], row["src_domain"]) == SHOWN]
    assert added_up(whole.get(PEER, []), ("hour_us",), "received") == added_up(ours, ("hour_us",), "messages")


@given(rows=st.lists(hours, min_size=1, max_size=30), most=st.integers(0, 5))
def test_of_many_pairs_the_busiest_are_kept_by_the_senders_count_where_there_is_one(rows: list[Row], most: int) -> None:
    found = whole_traffic(most, traffic_sums(None, table_of(TRAFFIC_HOURLY, TRAFFIC, rows)))
    by_pair = {
        role: added_up([row for row in rows if row["role"] == role], ("src_domain", "dst_domain"), "messages")
        for role in ("in", "out")
    }
    messages = by_pair["in"] | by_pair["out"]
    pairs = found.filter(pa.compute.equal(found.column("what"), PAIR))
    shown = zip(*(pairs.column(name).to_pylist() for name in ("src_domain", "dst_domain")), strict=True)
    assert (
        list(zip(shown, messages_of_pairs(pairs).tolist(), strict=True))
        == sorted(messages.items(), key=lambda one: (-one[1], one[0]))[:most]
    )


@given(rows=st.lists(of_stubs, min_size=1, max_size=20), cut=st.integers(0, 20))
def test_versions_are_added_up_and_hours_without_one_left_out(rows: list[Row], cut: int) -> None:
    parts = [stub_sums(table_of(STUB_HOURLY, STUBS, some)) for some in (rows[:cut], rows[cut:]) if some]
    pieces = [packed(part, places_of_versions(part, 1)) for part in parts if part.num_rows]
    found = whole_versions(together(pieces)).to_pylist(maps_as_pydicts="strict") if pieces else []
    known = [row for row in rows if row["stub_ver"] is not None]
    key = ("peer_domain", "stub_ver")
    assert added_up(found, key, "messages") == added_up(known, key, "messages")
    for name in ("latency", "fuel"):
        assert {tuple(row[part] for part in key): row[name] for row in found} == buckets(known, key, name)


@pytest.mark.spark
def test_what_workers_add_up_is_what_sparks_own_sql_says(lake: Lake) -> None:
    rows = [
        {
            "our_domain": ours,
            "src_domain": source,
            "dst_domain": ours if source != ours else "c.example",
            "role": "out" if source == ours else "in",
            "hour_us": MONDAY_US + hour * HOUR_US,
            "messages": 10 + hour * place,
            "denied": hour % 3,
            "latency": [(hour % 40, 5 + place), (41, 2)] if hour else [],
            "dt": day,
        }
        for place, (ours, source) in enumerate((("a.example", "b.example"), ("a.example", "a.example"), SHOWN[::-1]))
        for day, begin in (("2026-03-02", 0), ("2026-03-03", 24))
        for hour in range(begin, begin + 24, 5)
    ]
    for some in (rows[::2], rows[1::2]):
        lake.commit(table_of(TRAFFIC_HOURLY, TRAFFIC_HOURLY.schema.names, some), TRAFFIC_HOURLY)
    found = traffic_of(lake.read_in_workers(TRAFFIC_HOURLY, columns=TRAFFIC), SHOWN)
    table = lake.read(TRAFFIC_HOURLY)
    is_out = F.col("role") == "out"
    pairs = table.groupBy("src_domain", "dst_domain").agg(
        F.coalesce(F.sum(F.when(is_out, F.col("messages"))), F.sum("messages")).alias("messages"),
        F.sum(F.when(is_out, F.col("denied")).otherwise(0)).alias("denied"),
        F.sum(F.when(is_out, 0).otherwise(F.col("denied"))).alias("refused"),
    )
    in_sql = [tuple(row) for row in pairs.orderBy(F.desc("messages"), "src_domain", "dst_domain").collect()]
    shown = [(one.src_domain, one.dst_domain, one.messages, one.denied, one.refused) for one in found.pairs]
    assert shown == in_sql
    entries = table.where(is_out).select("hour_us", F.explode("latency").alias("bucket", "count"))
    by_hour = entries.groupBy("hour_us").agg(F.sum("count")).orderBy("hour_us").collect()
    assert [(one.hour_us, one.messages) for one in found.latency] == [tuple(row) for row in by_hour]
    ends = table.agg(F.min("hour_us"), F.max("hour_us")).first()
    assert ends is not None
    assert (found.first_us, found.last_us) == tuple(ends)
    peer = table.where((F.col("our_domain") == SHOWN[0]) & (F.col("src_domain") == SHOWN[1])).where(~is_out)
    of_peer = peer.groupBy("hour_us").agg(F.sum("messages")).orderBy("hour_us").collect()
    assert list(found.of_peer.items()) == [tuple(row) for row in of_peer]


@pytest.mark.spark
def test_stubs_of_peers_with_several_versions_are_shown_the_busiest_first(lake: Lake) -> None:
    def version(peer: str, name: str | None, messages: int) -> Row:
        latency = [(40, messages), (80, messages)]
        words = {"peer_domain": peer, "stub_ver": name, "messages": messages, "dt": "2026-03-02"}
        return words | {"latency": latency, "fuel": []}

    rows = [version("busy.example", "1", 900), version("b.example", None, 500)]
    rows += [version("c.example", name, 10) for name in ("1", "2")]
    rows += [version("b.example", name, messages) for name, messages in (("1", 5), ("2", 30), ("3", 6), ("4", 7))]
    lake.commit(table_of(STUB_HOURLY, STUB_HOURLY.schema.names, rows[:1]), STUB_HOURLY)
    read = partial(lake.read_in_workers, STUB_HOURLY, columns=STUBS)
    assert [(one.peer_domain, one.stub_ver) for one in stub_versions(read())] == [("busy.example", "1")]
    lake.commit(table_of(STUB_HOURLY, STUB_HOURLY.schema.names, rows[1:]), STUB_HOURLY)
    found = stub_versions(read())
    assert [(one.peer_domain, one.stub_ver, one.measure, one.messages) for one in found] == [
        ("b.example", "2", "latency", 60),
        ("b.example", "4", "latency", 14),
        ("b.example", "3", "latency", 12),
        ("c.example", "1", "latency", 20),
        ("c.example", "2", "latency", 20),
    ]
    assert [share for _, share in found[0].points] == [0.5, 1.0]


@pytest.mark.spark
def test_traffic_of_no_known_version_shows_no_stubs(lake: Lake) -> None:
    words: Row = {
        "peer_domain": "b.example",
        "stub_ver": None,
        "messages": 5,
        "dt": "2026-03-02",
        "latency": [],
        "fuel": [],
    }
    lake.commit(table_of(STUB_HOURLY, STUB_HOURLY.schema.names, [words]), STUB_HOURLY)
    assert stub_versions(lake.read_in_workers(STUB_HOURLY, columns=STUBS)) == ()
