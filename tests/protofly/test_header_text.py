"""Texts with a known header are read as `codec` reads them, or not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import codec
from protofly.header_text import HeaderText, header_text, key_of
from protofly.limits import ID_CHARS, NESTING_LEVELS
from protofly.message import Message

FROM, TO = "hyperty://a.example/ana", "hyperty://b.example/bo"
FIRST = b'{"id":1,"type":"event","from":"%b","to":"%b","body":{"n":1}}' % (FROM.encode(), TO.encode())
WITHOUT_ID = FIRST.replace(b'"id":1,', b"")
ID_BETWEEN = b'{"type":"event","from":"%b","id":1,"to":"%b","body":{"n":1}}' % (FROM.encode(), TO.encode())


def text_of(raw: bytes) -> HeaderText:
    text = header_text(codec.decode(raw)[0])
    assert text is not None
    return text


def usual(raw: bytes) -> list[Message] | None:
    try:
        return codec.decode(raw)
    except codec.BrokenMessageError:
        return None


@pytest.mark.parametrize("first", [FIRST, WITHOUT_ID, ID_BETWEEN])
def test_a_text_with_the_same_header_is_the_same_message(first: bytes) -> None:
    text = text_of(first)
    for raw in (
        first,
        first.replace(b'{"n":1}', b'{"text":"\xc3\xa4","deep":[[{"a":{}}]]}'),
        first.replace(b":1,", b":22,"),
    ):
        assert [text.decode(raw)] == codec.decode(raw)
        assert key_of(raw) == text.key


@pytest.mark.parametrize(
    "raw",
    [
        FIRST.replace(b'"event"', b'"read"'),
        FIRST.replace(b"/bo", b"/eve"),
        FIRST.replace(b"/ana", b"/eve"),
        FIRST.replace(b'"id":1', b'"id":01'),
        FIRST.replace(b'"id":1', b'"id":"1"'),
        FIRST.replace(b'"id":1', b'"id":-1'),
        FIRST.replace(b'"id":1', b'"id":1.0'),
        FIRST.replace(b'"id":1', b'"id":' + b"1" * 300),
        FIRST.replace(b"{", b'{"from":"hyperty://a.example/eve",', 1),
        FIRST[:-1] + b',"from":"hyperty://a.example/eve"}',
        FIRST[:-1] + b',"body":{}}',
        FIRST[:-1] + b' ,"x":{"y":1}}',
        FIRST.replace(b'{"n":1}', b'{"n":1},"to":"hyperty://b.example/eve","x":{"y":1}'),
        FIRST.replace(b'{"n":1}', b"{}"),
        FIRST.replace(b'{"n":1}', b'{"n":1} '),
        FIRST.replace(b'{"n":1}', b'{"n":}'),
        FIRST.replace(b'{"n":1}', b'{"n":"\xff"}'),
        FIRST.replace(b'{"n":1}', b'{"n":"\\ud800"}'),
        FIRST.replace(b'{"n":1}', b'{"n":' + b"[" * 100 + b"]" * 100 + b"}"),
        FIRST + b" ",
        FIRST[:40],
        b"",
        b"{}}",
    ],
)
def test_a_text_with_another_header_or_broken_json_is_left_to_the_codec(raw: bytes) -> None:
    assert text_of(FIRST).decode(raw) is None


@pytest.mark.parametrize("first", [FIRST, WITHOUT_ID, ID_BETWEEN])
@pytest.mark.parametrize(("old", "new"), [(b'"event"', b'"evenu"'), (b"/ana", b"/bna"), (b"/bo", b"/co")])
def test_a_text_of_another_sender_recipient_or_type_that_is_as_long_is_left_to_the_codec(
    first: bytes, old: bytes, new: bytes
) -> None:
    assert text_of(first).decode(first.replace(old, new)) is None


@pytest.mark.parametrize("first", [FIRST, WITHOUT_ID, ID_BETWEEN])
def test_what_is_cut_from_the_end_of_a_text_is_not_read(first: bytes) -> None:
    for end in (b',"trace":"mn:00","via":["a:b"]}}', b"}}", b"}} "):
        assert text_of(first).decode(first[:-2] + end, len(end)) == codec.decode(first)[0]
    assert text_of(first).decode(first[:-2] + b',"via":["a:b"]}}') is None
    assert text_of(first).decode(first[: first.index(b'"n"')] + b"}}", 2) is None  # nothing is left of its body


def body_of_brackets(count: int) -> bytes:
    """Valid JSON with so many opening brackets, beside each other."""
    return b'{"n":[' + b",".join([b"[]", b"{}"] * count)[: (count - 2) * 3 - 1] + b"]}"


@pytest.mark.parametrize(
    ("raw", "is_read"),
    [
        (FIRST.replace(b":1,", b":0,"), True),
        (FIRST.replace(b":1,", b":00,"), False),
        (FIRST.replace(b":1,", b":" + b"9" * ID_CHARS + b","), True),
        (FIRST.replace(b":1,", b":" + b"9" * (ID_CHARS + 1) + b","), False),
        (FIRST.replace(b'{"n":1}', b'{"n":"' + b"x" * 1_000 + b'"}'), True),
        (FIRST.replace(b'{"n":1}', body_of_brackets(NESTING_LEVELS - 1)), True),
        (FIRST.replace(b'{"n":1}', body_of_brackets(NESTING_LEVELS)), False),
        (FIRST.replace(b'{"n":1}', b'{"n":' * (NESTING_LEVELS - 1) + b"1" + b"}" * (NESTING_LEVELS - 1)), True),
        (FIRST.replace(b'{"n":1}', b'{"n":' * NESTING_LEVELS + b"1" + b"}" * NESTING_LEVELS), False),
    ],
)
def test_ids_and_brackets_are_read_up_to_their_bounds(raw: bytes, is_read: bool) -> None:
    message = text_of(FIRST).decode(raw)
    assert (message is not None) is is_read
    assert message is None or [message] == usual(raw)


def test_a_header_is_known_up_to_its_longest() -> None:
    def raw(header_bytes: int) -> bytes:
        missing = header_bytes - len(FIRST) + len(b'"n":1}}')
        return FIRST.replace(b"/ana", b"/ana" + b"a" * missing)

    text = text_of(raw(1024))
    assert (text.key, text.decode(raw(1024))) == (key_of(raw(1024)), codec.decode(raw(1024))[0])
    assert header_text(codec.decode(raw(1025))[0]) is None


@pytest.mark.parametrize(
    "member",
    [
        "via",
        "trace",
        "ttl",
        "code",
        "source",
        "resource",
        "receipt",
        "auth",
        "sessionToken",
        "assertedIdentity",
        "class",
    ],
)
def test_a_body_with_a_member_that_nodes_read_is_left_to_the_codec(member: str) -> None:
    for name in (member, f"\\u00{ord(member[0]):02x}{member[1:]}"):
        assert text_of(FIRST).decode(FIRST.replace(b'{"n":1}', b'{"n":1,"%b":1}' % name.encode())) is None


@pytest.mark.parametrize(
    "raw",
    [
        FIRST.replace(b",", b", "),
        FIRST.replace(b'"id":1', b'"id":"one"'),
        FIRST.replace(b'"id":1,', b"").replace(b"}}", b'},"id":1}'),
        FIRST.replace(b"/ana", b"/\\u0061na"),
        FIRST.replace(b"{", b'{"more":{"id":1},', 1),
        FIRST.replace(b'{"n":1}', b'{"ttl":1}'),
        FIRST.replace(b'{"n":1}', b"{}"),
        FIRST.replace(b"/ana", b"/" + b"a" * 1100),
        FIRST.replace(b'"id":1', b'"id":1,"id":1'),
    ],
)
def test_headers_that_are_not_plain_are_not_kept(raw: bytes) -> None:
    assert header_text(codec.decode(raw)[0]) is None


def test_long_texts_without_a_header_are_not_searched_to_the_end() -> None:
    assert len(key_of(b'{"x":"' + b"y" * 1_000_000 + b'","id":1,"body":{}}')) < 2048


_PIECES = st.sampled_from(
    [
        b'"',
        b"{",
        b"}",
        b"}}",
        b",",
        b":",
        b"\\",
        b"1",
        b"0",
        b" ",
        b'"id":',
        b'"body":{',
        b'"via":[]',
        b"\xff",
        b"[",
        b"]",
    ]
)


@given(
    st.sampled_from([FIRST, WITHOUT_ID, ID_BETWEEN]),
    st.sampled_from([FIRST, WITHOUT_ID, ID_BETWEEN]),
    st.lists(st.tuples(st.integers(0, 140), st.integers(0, 12), _PIECES), max_size=4),
)
def test_no_change_of_a_text_is_read_otherwise_than_by_the_codec(
    first: bytes, raw: bytes, changes: list[tuple[int, int, bytes]]
) -> None:
    for at, length, piece in changes:
        raw = raw[:at] + piece + raw[at + length :]
    message = text_of(first).decode(raw)
    assert message is None or usual(raw) == [message]


@given(st.dictionaries(st.text(max_size=8), st.recursive(st.none() | st.integers() | st.text(), st.lists), max_size=4))
def test_any_body_is_read_as_the_codec_reads_it(body: dict[str, object]) -> None:
    raw = FIRST.replace(b'{"n":1}', json.dumps(body).encode())
    message = text_of(FIRST).decode(raw)
    assert message is None or usual(raw) == [message]
