"""Runs of messages between nodes: what was put in comes out, and what is no run is refused whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.cluster.core.runs import HEADS_KNOWN, RUN, RunHead, RunReader, abroad_head, cut_abroad, encode_run
from protofly.codec import decode
from protofly.errors import Code, PeerError
from protofly.header_text import header_text
from protofly.message import Message
from tests.support.runtime_rig import a_message, runtime_address

ANA, BO = runtime_address("ana"), runtime_address("bo")
HEAD = RunHead("event", ANA, BO, frozenset({"operator", "ünder"}), verdict=True)


def message(id_: int | None, body: dict[str, Any]) -> Message:
    """A message as its flow has read it."""
    members = {} if id_ is None else {"id": id_}
    [whole] = decode(msgspec.json.encode({**members, **a_message("event", ANA, BO, body)}))
    text = header_text(whole)
    assert text is not None
    [first, *_] = [text.decode(whole.raw)]
    assert first is not None
    return first


_BODIES = st.dictionaries(st.sampled_from(["a", "value", "ü"]), st.text(max_size=20) | st.integers(), min_size=1)
_IDS = st.none() | st.integers(0, 10**18)


@given(st.lists(st.tuples(_IDS, _BODIES), min_size=1, max_size=8), st.sampled_from([None, True, False]), st.booleans())
def test_messages_arrive_as_they_would_be_decoded(
    said: list[tuple[int | None, dict[str, Any]]], verdict: bool | None, is_from_abroad: bool
) -> None:
    head = RunHead("event", ANA, BO, HEAD.roles, is_from_abroad, verdict)
    run = [message(*one) for one in said]
    read, arrived = RunReader().read(encode_run(head.encode(), run))
    assert read == head
    expected = [msgspec.structs.replace(one, verdict=verdict) for one in run]
    assert arrived == expected
    assert [decode(one.raw)[0].body for one in arrived] == [one.body for one in expected]


def test_all_messages_of_a_run_and_of_later_ones_share_their_header() -> None:
    reader = RunReader()
    [first, second] = reader.read(encode_run(HEAD.encode(), [message(1, {"n": 1}), message(2, {"n": 2})]))[1]
    [third] = reader.read(encode_run(HEAD.encode(), [message(3, {"n": 3})]))[1]
    assert first.to is second.to is third.to
    assert first.from_ is second.from_ is third.from_
    assert first.type is second.type is third.type


def test_no_more_heads_are_remembered_than_are_permitted() -> None:
    reader = RunReader()
    for number in range(HEADS_KNOWN + 10):
        reader.read(encode_run(RunHead("event", ANA, f"{BO}-{number}").encode(), [message(1, {"n": 1})]))
    assert len(reader._known) <= HEADS_KNOWN


GOOD = encode_run(HEAD.encode(), [message(1, {"n": 1}), message(2, {"n": 2})])


@pytest.mark.parametrize(("domain", "moves"), [("b.example", 0), ("bücher.example", 7)])
def test_a_run_for_another_domain_is_cut_where_its_name_ends(domain: str, moves: int) -> None:
    run = encode_run(HEAD.encode(), [message(1, {"a": 1})])
    assert cut_abroad(abroad_head(domain, moves) + run) == (domain, moves, run)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        abroad_head("b.example", 1),
        abroad_head("b.example", 1)[:3],
        abroad_head("", 1) + RUN,
        abroad_head("b.example", 1) + b"x",
        abroad_head("b.example", 1).replace(b"b.", b"\xff.") + RUN,
    ],
)
def test_what_names_no_domain_or_holds_no_run_is_refused(content: bytes) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
        cut_abroad(content)


def read(data: bytes) -> list[Message] | Code:
    try:
        return RunReader().read(data)[1]
    except PeerError as exc:
        return exc.code


def test_a_run_is_from_our_own_domain_and_nobody_judged_it_unless_it_says_so() -> None:
    read_head, _ = RunReader().read(encode_run(RunHead("event", ANA, BO).encode(), [message(1, {"a": 1})]))
    assert (read_head.is_from_abroad, read_head.verdict, read_head.roles) == (False, None, frozenset())


@pytest.mark.parametrize("body", [b"", b"x" * 1000])
def test_a_message_of_a_run_without_a_body_or_with_one_longer_than_itself_is_refused(body: bytes) -> None:
    odd = msgspec.structs.replace(message(1, {"a": 1}), body=body)
    assert read(encode_run(HEAD.encode(), [odd])) is Code.PROTOCOL_ERROR


@pytest.mark.parametrize("length", range(1, len(GOOD)))
def test_a_run_that_is_cut_short_is_refused_or_has_whole_messages(length: int) -> None:
    arrived = read(GOOD[:length])
    assert arrived is Code.PROTOCOL_ERROR or (isinstance(arrived, list) and len(arrived) < 2)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_run_or_a_protocol_error(data: bytes) -> None:
    arrived = read(b"r" + data)
    assert arrived is Code.PROTOCOL_ERROR or isinstance(arrived, list)
