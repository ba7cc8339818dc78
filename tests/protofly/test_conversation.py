"""Recordings of conversations: what opens, what is refused, and what is never in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from protofly.conversation import (
    CHUNK_BYTES,
    KEY_BYTES,
    MAGIC,
    ConversationRule,
    ConversationSealer,
    Ended,
    Passed,
    Started,
    encode_line,
    open_conversation,
    redacted_body,
    shown_body,
)
from protofly.errors import Code, PeerError

KEY, OTHER = b"k" * KEY_BYTES, b"o" * KEY_BYTES
ANA, BOB = "hyperty://a.example/ana", "hyperty://b.example/bob"
STARTED = Started(
    node="runtime://a.example/mn-1",
    domain="a.example",
    at=1.0,
    has_bodies=True,
    rule=ConversationRule(),
    seconds=60.0,
    bytes=1 << 20,
)
SAID = Passed(
    at=0.5,
    side="runtime",
    origin="runtime://a.example/r",
    type="create",
    from_=ANA,
    to=BOB,
    id=Raw(b"7"),
    body=Raw(b"{}"),
)
ENDED = Ended(at=1.0, why="its time is over", messages=1)


def sealed(*chunks: bytes, key: bytes = KEY) -> list[bytes]:
    """The head and the chunks of a file."""
    sealer = ConversationSealer(key, b"s" * 16)
    last = len(chunks) - 1
    return [sealer.head, *(sealer.seal(chunk, is_last=number == last) for number, chunk in enumerate(chunks))]


def whole() -> list[bytes]:
    return sealed(encode_line(STARTED) + b"\n", encode_line(SAID) + b"\n", encode_line(ENDED) + b"\n")


def test_a_recording_opens_with_its_key() -> None:
    opened = open_conversation(b"".join(whole()), KEY)
    assert (opened.started, opened.messages, opened.ended) == (STARTED, [SAID], ENDED)


def test_a_recording_that_does_not_begin_with_its_first_line_is_refused() -> None:
    raw = b"".join(sealed(encode_line(SAID) + b"\n", encode_line(ENDED) + b"\n"))
    with pytest.raises(PeerError, match="no first line", check=lambda error: error.code is Code.DOCUMENT_MALFORMED):
        open_conversation(raw, KEY)


def test_a_chunk_that_is_longer_than_any_is_refused_before_it_is_read() -> None:
    head = sealed(b"")[0]
    for length, is_refused in ((CHUNK_BYTES, False), (CHUNK_BYTES + 1, True)):
        with pytest.raises(PeerError, match="a chunk of" if is_refused else "no first line"):
            open_conversation(head + b"+" + length.to_bytes(4, "big"), KEY)


def test_another_key_opens_nothing() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.RECORDING_KEY):
        open_conversation(b"".join(whole()), OTHER)


@pytest.mark.parametrize("raw", [b"", MAGIC, b"".join(whole())[1:], b"x" + b"".join(whole())[1:], whole()[0][:-1]])
def test_what_has_another_head_is_no_recording(raw: bytes) -> None:
    with pytest.raises(PeerError, match="no recording", check=lambda error: error.code is Code.DOCUMENT_MALFORMED):
        open_conversation(raw, KEY)


def test_a_recording_whose_node_was_killed_opens_as_far_as_it_goes() -> None:
    head, first, second, last = whole()
    for raw in (head + first + second, head + first + second + last[:9]):
        opened = open_conversation(raw, KEY)
        assert (opened.messages, opened.ended) == ([SAID], None)


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 1, 3), (0, 1, 1, 2, 3), (0, 1, 2, 3, 3)])
def test_chunks_cannot_be_exchanged_left_out_or_repeated(order: tuple[int, ...]) -> None:
    parts = whole()
    begins_right = order[1] == 1  # else it looks like one of another key
    code = Code.RECORDING_CHANGED if begins_right else Code.RECORDING_KEY
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        open_conversation(b"".join(parts[number] for number in order), KEY)


@given(at=st.integers(min_value=len(MAGIC)), bit=st.integers(0, 7))
def test_no_changed_bit_is_taken_for_a_recording(at: int, bit: int) -> None:
    raw = bytearray(b"".join(whole()))
    raw[at % len(raw)] ^= 1 << bit
    try:
        opened = open_conversation(bytes(raw), KEY)
    except PeerError:
        return
    assert opened.ended is None, "only what looks cut short opens"
    assert all(one == SAID for one in opened.messages)


@given(raw=st.binary(max_size=300))
def test_any_bytes_give_a_peer_error(raw: bytes) -> None:
    for text in (raw, MAGIC + raw):
        with pytest.raises(PeerError):
            open_conversation(text, KEY)


@pytest.mark.parametrize(
    ("one", "other", "is_taken"),
    [
        ("", "", True),
        ("a.example", "", True),
        ("b.example", "a.example", True),
        ("hyperty://a.example/*", "", True),
        ("hyperty://a.example/an*", "", True),
        ("hyperty://a.example/anb*", "", False),
        (ANA, BOB, True),
        (BOB, ANA, True),
        (ANA, ANA, False),
        ("c.example", "", False),
        ("example", "", False),
        ("hyperty://a.example/an", "", False),
        ("b.example.evil", "", False),
    ],
)
def test_a_rule_takes_what_is_between_its_sides(one: str, other: str, is_taken: bool) -> None:
    assert ConversationRule(one=one, other=other).takes(ANA, BOB) is is_taken


def test_secrets_are_left_out_at_any_depth() -> None:
    body = {
        "accessToken": "t0p",
        "value": {"password": "t0p", "list": [{"client_secret": "t0p"}], "n": 2**70},
        "identity": {"assertion": "t0p"},
        "text": "see eyJhbGciOiJFZDI1NTE5In0.eyJ0MHAiOjF9.c2lnbmF0dXJl there",
    }
    shown = json.loads(shown_body(json.dumps(body).encode()))
    assert "t0p" not in str(shown)
    assert "eyJ" not in str(shown)
    assert shown["value"]["n"] == 2**70
    assert shown["text"] == "see [left out] there"


def test_a_redacted_body_keeps_its_length_and_what_routing_needs() -> None:
    body = json.dumps({"code": 200, "value": {"name": "Ana"}, "x" * 30: "private"}, separators=(",", ":")).encode()
    redacted = redacted_body(body, from_=BOB, to=ANA, is_of_node=False)
    assert len(redacted) == len(body)
    members = json.loads(redacted)
    assert members.pop("redacted").strip("x") == ""
    assert members == {"code": 200}


def test_a_body_of_which_all_is_kept_stays_as_it_is() -> None:
    body = b'{"code":200}'
    assert redacted_body(body, from_=ANA, to=BOB, is_of_node=False) == body


def test_a_body_that_is_shorter_than_what_is_left_of_it_gets_nothing_added() -> None:
    assert redacted_body(b'{"a":1}', from_=BOB, to=ANA, is_of_node=False) == b'{"redacted":""}'


def test_redaction_keeps_addresses_for_services_but_no_data() -> None:
    body = json.dumps({"resources": ["comm://a.example/r/changes"], "source": ANA, "value": {"user": "Ana"}}).encode()
    members = json.loads(redacted_body(body, from_=ANA, to="domain://msg-node.a.example/sm", is_of_node=False))
    assert (members["resources"], members["source"]) == (["comm://a.example/r/changes"], ANA)
    assert "value" not in members


ALLOCATED = {"number": 2, "scheme": "hyperty", "allocationKey": "k", "allocated": [ANA]}


@pytest.mark.parametrize(
    ("to", "value", "is_kept"),
    [
        ("domain://msg-node.a.example/address-allocation", ALLOCATED, True),
        ("domain://msg-node.a.example/address-allocation", {"number": 2}, True),
        ("domain://msg-node.a.example/address-allocation", {"number": 2, "user": "Ana"}, False),
        ("domain://msg-node.a.example/address-allocation", "Ana", False),
        ("domain://msg-node.a.example/sm", {"number": 2}, False),
        ("hyperty://b.example/address-allocation", {"number": 2}, False),
    ],
)
def test_redaction_keeps_what_is_allocated_and_no_other_value(to: str, value: object, *, is_kept: bool) -> None:
    members = json.loads(redacted_body(json.dumps({"value": value}).encode(), from_=ANA, to=to, is_of_node=False))
    assert members.get("value") == (value if is_kept else None)


@pytest.mark.parametrize(("body", "members"), [(b'{"a":1}', {"a": 1}), (b"[1]", {}), (b"7", {}), (b"", {})])
def test_a_recorded_body_has_members_where_it_is_an_object(body: bytes, members: dict[str, object]) -> None:
    assert replace(SAID, body=Raw(body)).members == members
