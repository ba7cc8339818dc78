"""What senders did, out of records however these are cut, against the plainest loop over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns import senders
from pipeline.columns.groups import Numbers
from pipeline.columns.packed import packed, together
from pipeline.columns.senders import SENDER, Suspect
from pipeline.core.alerts import evidence_of
from pipeline.schemas import BRONZE_LINK_EVENT, SILVER_MDR
from tests.pipeline.rows import HOUR_US, MONDAY_US

MINUTE_US = 60_000_000
FEW = {"FAN_OUT_RECIPIENTS": 3, "SCAN_ATTEMPTS": 4, "SCAN_RECIPIENTS": 2, "EVIDENCE": 3}
"""Limits that a handful of records reaches."""

times_us = st.integers(0, 12).map(lambda after: MONDAY_US + HOUR_US - 30 * MINUTE_US + after * 5 * MINUTE_US)
names = st.sampled_from(["hyperty://b.example/h-1", "hyperty://b.example/h-2", "hyperty://c.example/h-3", "x", None])
records = st.fixed_dictionaries(
    {
        "our_domain": st.just("a.example"),
        "peer_domain": st.sampled_from(["b.example", "ä.example"]),
        "src_key": st.sampled_from(["one", "one", "another", None]),
        "role": st.sampled_from(["in", "in", "in", "out"]),
        "ts_us": times_us,
        "dst_key": names,
        "msg_type": st.sampled_from(["create", "create", "response"]),
        "outcome_code": st.sampled_from([None, "no-route", "not-registered", "not-connected"]),
        "msg_id": st.integers(0, 9).map(lambda number: bytes([number])),
    }
)
events = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["mn-1.a.example", "mn-2.a.example", "mn-1.z.example", None]),
        "domain": st.sampled_from(["b.example", "ä.example", None]),
        "event": st.sampled_from(["spoofed", "spoofed", "up", None]),
        "src_key": names,
        "ts_us": times_us,
    }
)
Work = Callable[[pa.Table], pa.Table]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in FEW.items():
        monkeypatch.setattr(senders, name, number)


def table(rows: Sequence[Mapping[str, Any]], names: Sequence[str], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [{name: row[name] for name in names} for row in rows], pa.schema([schema.field(name) for name in names])
    )


def met(parts: Sequence[pa.Table], places_of: Callable[[pa.Table, int], Numbers]) -> list[pa.Table]:
    """Parts as Spark brings them together: pieces of a place meet, in any order."""
    places: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for part in parts:
        piece = packed(part, places_of(part, 3))
        for row, place in enumerate(piece.column("place").to_pylist()):
            places[place].append(piece.slice(row, 1))
    return [together(its) for its in places.values()]


SILVER = to_arrow_schema(SILVER_MDR.schema)
of_one_module = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def suspect(row: Mapping[str, Any]) -> Suspect:
    our_domain, peer_domain, src_key = (row[name] for name in SENDER)
    return Suspect(our_domain, peer_domain, src_key, row["ts_us"] // HOUR_US * HOUR_US)


@pytest.mark.usefixtures("few")
@of_one_module
@given(rows=st.lists(records, max_size=40), cut=st.integers(0, 40))
def test_senders_who_did_too_much_are_those_of_a_plain_loop(rows: list[dict[str, Any]], cut: int) -> None:
    expected = {}
    incoming = [row for row in rows if row["role"] == "in" and row["msg_type"] != "response"]
    incoming = [row for row in incoming if row["src_key"] is not None]
    for who in {suspect(row) for row in incoming}:
        its = [row for row in incoming if suspect(row) == who]
        missed = [row for row in its if row["outcome_code"] in senders.UNKNOWN_RECIPIENT]
        windows = defaultdict(set)
        for row in its:
            windows[row["ts_us"] // (5 * MINUTE_US)].add(row["dst_key"])
        widest = max(len(found - {None}) for found in windows.values())
        unknown = len({row["dst_key"] for row in missed} - {None})
        is_scan = len(missed) >= 4 and unknown >= 2 and 2 * len(missed) >= len(its)
        if widest >= 3 or is_scan:
            expected[who] = (widest, len(its), len(missed), unknown, is_scan)
    parts = [senders.contacts_of(table(some, senders.MESSAGE, SILVER)) for some in (rows[:cut], rows[cut:])]
    found = {}
    for contacts in met(parts, senders.places_of_contacts):
        for row in senders.too_much(contacts).to_pylist():
            who = Suspect(*(row[name] for name in Suspect._fields))
            assert who not in found
            found[who] = tuple(row[name] for name in ("widest", "attempts", "misses", "unknown", "is_scan"))
    assert found == expected


@pytest.mark.usefixtures("few")
@of_one_module
@given(rows=st.lists(records, min_size=1, max_size=40), cut=st.integers(0, 40), seed=st.randoms())
def test_evidence_is_the_first_messages_of_the_hour(rows: list[dict[str, Any]], cut: int, seed: Any) -> None:
    everybody = sorted({suspect(row) for row in rows}, key=repr)
    wanted = seed.sample(everybody, min(2, len(everybody)))
    found: list[dict[str, Any]] = []
    for some in (rows[:cut], rows[cut:]):
        found += senders.first_of(table(some, senders.EVIDENT, SILVER), wanted).to_pylist()
    evidence = evidence_of(found, FEW["EVIDENCE"])
    for who in wanted:
        its = [row for row in rows if row["role"] == "in" and suspect(row) == who]
        unknown = [row for row in its if row["outcome_code"] in senders.UNKNOWN_RECIPIENT]
        for chosen, is_unknown in (([row for row in its if row["msg_type"] != "response"], False), (unknown, True)):
            first = sorted((row["ts_us"], row["msg_id"]) for row in chosen)[: FEW["EVIDENCE"]]
            assert evidence.get((*who, is_unknown), []) == sorted({msg_id.hex() for _, msg_id in first})


@pytest.mark.usefixtures("few")
@of_one_module
@given(rows=st.lists(events, max_size=40), cut=st.integers(0, 40))
def test_claims_are_counted_by_peer_and_hour_over_all_our_nodes(rows: list[dict[str, Any]], cut: int) -> None:
    owners = {"mn-1.a.example": "a.example", "mn-2.a.example": "a.example"}
    expected: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in rows:
        if row["node"] in owners and row["event"] == "spoofed":
            expected[owners[row["node"]], row["domain"], row["ts_us"] // HOUR_US * HOUR_US].append(row["src_key"])
    schema = to_arrow_schema(BRONZE_LINK_EVENT.schema)
    parts = [senders.claims_of(table(some, senders.EVENT, schema), owners) for some in (rows[:cut], rows[cut:])]
    found = {}
    for claims in met(parts, senders.places_of_claims):
        for row in senders.claimed(claims).to_pylist():
            key = tuple(row[name] for name in senders.CLAIM)
            assert key not in found
            found[key] = (row["attempts"], row["senders"], row["claimed"])
    assert found == {
        key: (len(its), len(set(its) - {None}), sorted(set(its) - {None})[: FEW["EVIDENCE"]])
        for key, its in expected.items()
    }


Contact = tuple[str, int, bool, int]
"""Recipient, minutes after Monday 00:00, that there is nobody, and messages."""


def judged(*contacts: Contact) -> list[dict[str, Any]]:
    names = ("dst_key", "window_us", "is_unknown", "messages")
    rows = [
        dict.fromkeys(SENDER, "one")
        | dict(zip(names, (key, MONDAY_US + minute * MINUTE_US, is_unknown, many), strict=True))
        for key, minute, is_unknown, many in contacts
    ]
    found: list[dict[str, Any]] = senders.too_much(pa.Table.from_pylist(rows)).to_pylist()
    return found


def written_to(recipients: int, *, minute: int = 0) -> list[Contact]:
    return [(f"hyperty://b.example/h-{number}", minute, False, 1) for number in range(recipients)]


@pytest.mark.parametrize(
    ("unknown", "misses", "attempts", "is_scan"),
    [
        (20, 30, 60, True),
        (20, 30, 61, False),
        (20, 31, 62, True),
        (20, 29, 29, False),
        (19, 30, 30, False),
        (21, 300, 300, True),
    ],
)
def test_a_scan_is_thirty_misses_at_twenty_names_and_half_of_all_messages(
    unknown: int, misses: int, attempts: int, is_scan: bool
) -> None:
    nobody: list[Contact] = [(f"x-{number}", number % 3 * 20, True, 1) for number in range(unknown - 1)]
    nobody.append(("the last", 40, True, misses - unknown + 1))
    found = judged(*nobody, *([("somebody", 0, False, attempts - misses)] if attempts > misses else []))
    assert [(row["is_scan"], row["attempts"], row["misses"], row["unknown"]) for row in found] == (
        [(True, attempts, misses, unknown)] if is_scan else []
    )


def test_a_fan_out_is_a_hundred_recipients_within_five_minutes_of_the_same_window() -> None:
    assert not judged(*written_to(99))
    [found] = judged(*written_to(100))
    assert (found["widest"], found["is_scan"], found["hour_us"]) == (100, False, MONDAY_US)
    assert not judged(*written_to(99), *written_to(100, minute=5)[99:])


def test_of_a_suspect_the_first_twenty_messages_of_either_kind_are_kept() -> None:
    def record(number: int) -> dict[str, Any]:
        row = {"our_domain": "a.example", "peer_domain": "b.example", "src_key": "one", "role": "in"}
        return row | {
            "ts_us": MONDAY_US + number,
            "msg_id": bytes([number]),
            "msg_type": "create",
            "outcome_code": "no-route" if number % 2 else None,
        }

    rows = [record(number) for number in range(50)]
    found = senders.first_of(table(rows, senders.EVIDENT, SILVER), [suspect(rows[0])]).to_pylist()
    assert sorted(row["msg_id"][0] for row in found if not row["is_unknown"]) == list(range(20))
    assert sorted(row["msg_id"][0] for row in found if row["is_unknown"]) == list(range(1, 41, 2))


def test_contacts_are_of_windows_of_five_minutes() -> None:
    row = {"our_domain": "a.example", "peer_domain": "b.example", "src_key": "one", "dst_key": "x", "role": "in"}
    row |= {"msg_type": "create"}
    rows = [
        row | {"ts_us": MONDAY_US + after_us, "outcome_code": None}
        for after_us in (0, 5 * MINUTE_US - 1, 5 * MINUTE_US)
    ]
    found = senders.contacts_of(table(rows, senders.MESSAGE, SILVER)).to_pylist()
    assert [(one["window_us"] - MONDAY_US, one["messages"]) for one in found] == [(0, 2), (5 * MINUTE_US, 1)]
