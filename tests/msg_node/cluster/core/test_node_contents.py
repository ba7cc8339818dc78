"""Messages between nodes of a domain: what the first node knows about one arrives with it; nonsense is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.cluster.core.node_contents import (
    ABROAD,
    ACTION,
    ANSWER,
    MARK,
    MESSAGE,
    MOVES,
    Mark,
    Passed,
    decode_mark,
    decode_passed,
    key_content,
    key_of,
    number_and_text,
    numbered,
)
from protofly import codec
from protofly.errors import Code, PeerError

FROM, TO = "hyperty://a.example/ana", "hyperty://a.example/bo"
PLAIN = codec.build(id=1, type="read", from_=FROM, to=TO, body={})
DEED = codec.build(id=1, type="execute", from_=FROM, to=TO, body={"class": "action"})
SENDER = ("runtime://a.example/ana", "jwt x")
ROLES = st.frozensets(st.sampled_from(["admin", "ops", "user"]))


@given(
    roles=ROLES,
    is_late=st.booleans(),
    verdict=st.sampled_from([None, False, True]),
    flags=st.tuples(*[st.booleans()] * 2),
)
def test_a_message_arrives_with_what_its_node_knows(
    roles: frozenset[str], *, is_late: bool, verdict: bool | None, flags: tuple[bool, bool]
) -> None:
    message = msgspec.structs.replace(PLAIN, is_late=is_late, verdict=verdict)
    sent = Passed(message, roles, is_from_abroad=flags[0], is_rerouted=flags[1])
    assert sent.encode()[:1] == MESSAGE
    assert decode_passed(sent.encode()) == sent


@given(roles=ROLES, moves=st.integers(0, MOVES), flags=st.tuples(*[st.booleans()] * 2), is_late=st.booleans())
def test_a_message_for_another_domain_arrives_with_how_often_its_link_moved(
    roles: frozenset[str], moves: int, flags: tuple[bool, bool], *, is_late: bool
) -> None:
    message = msgspec.structs.replace(PLAIN, is_late=is_late)
    sent = Passed(message, roles, flags[0], flags[1], domain="b.example", moves=moves)
    assert sent.encode()[:1] == ABROAD
    assert decode_passed(sent.encode()) == sent


@given(roles=ROLES, verdict=st.sampled_from([None, False, True]))
def test_an_action_arrives_with_runtime_credential_and_roles_of_its_session(
    roles: frozenset[str], verdict: bool | None
) -> None:
    sent = Passed(msgspec.structs.replace(DEED, verdict=verdict), roles, sender=SENDER)
    assert sent.encode()[:1] == ACTION
    assert decode_passed(sent.encode()) == sent


def test_without_names_no_byte_stands_for_them() -> None:
    assert Passed(PLAIN).encode() == MESSAGE + bytes(3) + PLAIN.raw


@pytest.mark.parametrize(
    "content",
    [
        b"",
        MESSAGE + bytes(2),
        MESSAGE + bytes(3),
        MESSAGE + b"\0\0\2[]",
        MESSAGE + b"\0\0\3[1]" + PLAIN.raw,
        MESSAGE + b"\0\0\1[" + PLAIN.raw,
        ABROAD + bytes(3) + PLAIN.raw,
        ABROAD + b"\0\0\2[]" + PLAIN.raw,
        ACTION + bytes(3) + DEED.raw,
        ACTION + b'\0\0\5["a"]' + DEED.raw,
        Passed(PLAIN, sender=SENDER).encode(),
    ],
)
def test_what_is_no_message_of_a_node_is_refused(content: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode_passed(content)
    assert caught.value.code in (Code.PROTOCOL_ERROR, Code.BROKEN_JSON)


@pytest.mark.parametrize(("number", "text"), [(0, b""), (1, b"x"), (2**32, b"longer")])
def test_an_answer_has_the_number_of_its_question(number: int, text: bytes) -> None:
    content = numbered(ANSWER, number, text)
    assert number_and_text(content) == (number, text)
    for length in range(len(content) - len(text)):
        with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
            number_and_text(content[:length])


def test_a_mark_arrives_as_it_was_sent() -> None:
    mark = Mark(7, "n1", "b.example", 3)
    assert mark.encode()[:1] == MARK
    assert decode_mark(mark.encode()) == mark


@pytest.mark.parametrize("text", [b"", b"no JSON", b"{}", b"[1]", b'[1,"n1","\xff",3]', b'["7","n1","b.example",3]'])
def test_what_is_no_mark_is_refused(text: bytes) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
        decode_mark(MARK + text)


@pytest.mark.parametrize("key", ["", "hyperty://a.example/h", "comm://bücher.example/x"])
def test_a_key_arrives_as_it_was_sent(key: str) -> None:
    assert key_of(key_content(MARK, key)) == key


def test_one_message_has_one_recipient_and_an_action_two_names_at_least() -> None:
    two = codec.build(id=1, type="read", from_=FROM, to=TO, body={}).raw.replace(
        f'"{TO}"'.encode(), f'["{TO}","{FROM}"]'.encode()
    )
    with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
        decode_passed(MESSAGE + bytes(3) + two)
    names = b'["a","b"]'
    assert decode_passed(ACTION + b"\0\0" + bytes([len(names)]) + names + DEED.raw).sender == ("a", "b")
