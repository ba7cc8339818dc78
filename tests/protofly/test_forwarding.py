"""Messages inside messages."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import codec
from protofly.errors import Code, PeerError
from protofly.forwarding import carried, check_levels
from protofly.message import Message

INNER = {"type": "create", "from": "comm://a.example/r/subscription", "to": "hyperty://b.example/h"}


def wrapped(levels: int, *, is_whole_body: bool = False) -> Message:
    message: dict[str, object] = dict(INNER)
    for _ in range(levels):
        body = message if is_whole_body else {"message": message}
        message = {"type": "forward", "from": "runtime://a.example/rt/sm", "to": "hyperty://a.example/m", "body": body}
    return codec.decode(json.dumps(message).encode())[0]


@pytest.mark.parametrize("is_whole_body", [False, True])
def test_the_message_inside_is_found_in_both_forms(is_whole_body: bool) -> None:
    inner = carried(wrapped(1, is_whole_body=is_whole_body))
    assert inner is not None
    assert (inner.type, inner.from_, inner.to) == tuple(INNER.values())
    assert carried(inner) is None


@pytest.mark.parametrize("is_whole_body", [False, True])
def test_two_levels_pass_and_three_do_not(is_whole_body: bool) -> None:
    check_levels(wrapped(2, is_whole_body=is_whole_body))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.TOO_DEEP):
        check_levels(wrapped(3, is_whole_body=is_whole_body))


def test_a_message_of_another_type_carries_none() -> None:
    message = msgspec.structs.replace(wrapped(1), type="create")
    assert carried(message) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"7",
        b"{}",
        b'{"message":7}',
        b'{"message":{"type":"create","from":"a"}}',
        b'{"type":"create","from":"a"}',
        b'{"message":{"type":' + b"[" * 100_000,
    ],
    ids=["none", "number", "empty", "number-inside", "no-to-inside", "no-to", "bottomless"],
)
def test_a_body_in_which_no_message_can_be_read_carries_none(body: bytes) -> None:
    assert carried(msgspec.structs.replace(wrapped(1), body=body)) is None


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_body_carries_a_message_or_none(inner: bytes) -> None:
    body = b'{"message":' + inner + b"}"
    raw = b'{"type":"forward","from":"a","to":"b","body":' + body + b"}"
    try:
        (message,) = codec.decode(raw)
    except PeerError:
        return
    assert carried(message) is None or isinstance(carried(message), Message)
