"""Runs of records: a run is what its records are, wherever it is written or counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly import block_encoding
from protofly.block_encoding import encode_blocks
from protofly.record_encoding import LinesEncoding, encodable
from protofly.record_runs import OWN_MEMBERS, MessageRun, Recorded, count_records, records_in
from protofly.records import MessageRecord, RecordKind
from tests.support.message_records import message_records


def run_of(records: list[MessageRecord], names: tuple[str, ...]) -> MessageRun:
    """A run of records like the first one, which differ by `names`."""
    columns = {name: [getattr(one, name) for one in records] for name in ("msg_id", *names)}
    return MessageRun(records[0], columns)


def mixed() -> st.SearchStrategy[list[Recorded]]:
    """Records, some by themselves and some in runs, in any order."""
    names = st.lists(st.sampled_from([name for name in OWN_MEMBERS if name != "msg_id"]), unique=True).map(tuple)
    runs = st.builds(run_of, message_records(), names).map(lambda run: [run])
    return st.lists(st.one_of(message_records(), runs), min_size=1, max_size=4).map(
        lambda parts: [one for part in parts for one in part]
    )


def blocks(recorded: Any) -> list[block_encoding.Encoded]:
    return encode_blocks(recorded, node="mn-1.a.example", boot=7, first_seq=1, hashed=lambda text: text[::-1])


@given(recorded=mixed())
@settings(deadline=None, max_examples=80)
def test_runs_are_written_byte_for_byte_as_their_records(recorded: list[Recorded]) -> None:
    records = list(records_in(recorded))
    of_runs, of_records = blocks(recorded), blocks(records)
    assert [one.content for one in of_runs] == [one.content for one in of_records]
    for one, other in zip(of_runs, of_records, strict=True):
        assert list(one.times_us) == list(other.times_us)
        assert set(one.policy_revs) == set(other.policy_revs)
        assert set(one.stub_vers) == set(other.stub_vers)
    assert count_records(recorded) == len(records)


@given(recorded=mixed())
@settings(deadline=None, max_examples=30)
def test_version_1_has_the_records_of_a_run_as_lines(recorded: list[Recorded]) -> None:
    encoding = LinesEncoding(RecordKind.MESSAGE, "mn-1.a.example", 7)
    [of_runs] = encoding.encode(encoding.prepare(recorded), 1)
    [of_records] = encoding.encode(list(records_in(recorded)), 1)
    assert of_runs.content == of_records.content


def record(**members: Any) -> MessageRecord:
    facts: dict[str, Any] = {
        "ts_us": 1,
        "role": "in",
        "msg_id": "",
        "attempt": 1,
        "src_domain": "b.example",
        "dst_domain": "a.example",
        "src_key": "hyperty://b.example/bo",
        "dst_key": "hyperty://a.example/ana",
        "msg_type": "create",
        "size_in": 9,
        "digest": "cd" * 16,
        "outcome": "delivered",
    }
    return MessageRecord(**(facts | members))


def test_a_record_of_a_run_has_its_own_members_and_shares_the_others() -> None:
    run = MessageRun(record(), {"msg_id": ["01", "02", "03"], "size_in": [1, 2, 3]})
    assert list(run.records()) == [record(msg_id=f"0{number}", size_in=number) for number in (1, 2, 3)]
    assert (len(run), run.role) == (3, "in")
    assert (run.column("size_in"), run.column("attempt"), run.column("fuel")) == ([1, 2, 3], [1] * 3, [None] * 3)


@pytest.mark.parametrize(
    ("count", "ids"), [(0, []), (1, ["03"]), (2, ["02", "03"]), (3, ["01", "02", "03"]), (9, ["01", "02", "03"])]
)
def test_the_last_records_of_a_run_are_in_order(count: int, ids: list[str]) -> None:
    run = MessageRun(record(), {"msg_id": ["01", "02", "03"]})
    assert [one.msg_id for one in run.last(count)] == ids


def test_a_run_is_cut_where_a_header_would_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_encoding, "BLOCK_HEADER_BYTES_MAX", 1)
    run = MessageRun(record(), {"msg_id": ["01", "02", "03"]})
    assert [list(one.times_us) for one in blocks([run])] == [[1], [1], [1]]


def test_of_a_run_only_the_records_that_are_no_json_are_left_out() -> None:
    run = MessageRun(record(), {"msg_id": ["01", "\ud800", "03"]})
    assert encodable([run]) == [record(msg_id="01"), record(msg_id="03")]
