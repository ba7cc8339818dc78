"""Frames of trapezoid-link/1."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.core.link_frames import (
    FRAME_PAYLOAD_BYTES,
    FrameKind,
    Hello,
    decode_frame,
    decode_hello,
    decode_messages,
    encode_frame,
    encode_messages,
    encode_welcome,
)
from protofly.errors import Code, PeerError


@given(raws=st.lists(st.binary(max_size=200), min_size=1, max_size=50), first=st.integers(1, 1 << 31))
def test_numbered_messages_come_back_with_their_numbers(raws: list[bytes], first: int) -> None:
    numbered = [(first + index, raw) for index, raw in enumerate(raws)]
    frames = [decode_frame(frame) for frame in encode_messages(numbered)]
    back = [(frame.arg + index, raw) for frame in frames for index, raw in enumerate(decode_messages(frame.payload))]
    assert back == numbered


def test_a_gap_in_the_numbers_begins_a_new_frame() -> None:
    frames = [decode_frame(frame) for frame in encode_messages([(1, b"a"), (2, b"b"), (5, b"c")])]
    assert [(frame.arg, decode_messages(frame.payload)) for frame in frames] == [(1, [b"a", b"b"]), (5, [b"c"])]


def test_a_large_message_gets_a_frame_of_its_own() -> None:
    large = b"x" * (FRAME_PAYLOAD_BYTES + 1)
    frames = [decode_frame(frame) for frame in encode_messages([(1, b"a"), (2, large), (3, b"b")])]
    assert [frame.arg for frame in frames] == [1, 2, 3]


@pytest.mark.parametrize(
    "raw", [b"", b"\x05", b"\x00" * 8, b"\x09" + b"\x00" * 7, b"\x05\x01" + b"\x00" * 6, b"\x05\x00\x01" + b"\x00" * 5]
)
def test_what_is_no_frame_is_a_protocol_error(raw: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode_frame(raw)
    assert caught.value.code is Code.PROTOCOL_ERROR


@pytest.mark.parametrize("payload", [b"\x01", b"\x05\x00\x00\x00abc", b"\xff\xff\xff\xffabc", b"\x01\x00\x00\x00ab"])
def test_lengths_that_do_not_add_up_are_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode_messages(payload)
    assert caught.value.code is Code.PROTOCOL_ERROR


@pytest.mark.parametrize("delivered", [0, 7, 2**32 - 1])
def test_hello_names_a_stream(delivered: int) -> None:
    hello = Hello(stream="0" * 32, domain="a.example", node="runtime://a.example/mn-1", delivered=delivered)
    assert decode_hello(decode_frame(encode_frame(FrameKind.HELLO, 1, msgspec.json.encode(hello)))) == hello


@pytest.mark.parametrize(
    "frame",
    [
        encode_frame(FrameKind.HELLO, 2, b"{}"),
        encode_frame(FrameKind.ACK, 1, b"{}"),
        encode_frame(FrameKind.HELLO, 1, b"{"),
        encode_frame(FrameKind.HELLO, 1, b'{"stream":"","domain":"a","node":"b"}'),
        encode_frame(FrameKind.HELLO, 1, b'{"stream":"' + b"0" * 32 + b'","domain":"a","node":"b","delivered":-1}'),
        encode_frame(
            FrameKind.HELLO, 1, b'{"stream":"' + b"0" * 32 + b'","domain":"a","node":"b","delivered":%d}' % 2**32
        ),
        encode_frame(FrameKind.HELLO, 1, b'{"stream":"' + b"0" * 31 + b'","domain":"a","node":"b"}'),
        encode_frame(FrameKind.HELLO, 1, b'{"stream":"' + b"0" * 33 + b'","domain":"a","node":"b"}'),
    ],
)
def test_a_hello_that_says_too_little_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode_hello(decode_frame(frame))
    assert caught.value.code is Code.PROTOCOL_ERROR


def test_a_hello_of_another_kind_of_frame_is_a_protocol_error() -> None:
    hello = Hello(stream="0" * 32, domain="a.example", node="runtime://a.example/mn-1")
    for kind in FrameKind:
        frame = decode_frame(encode_frame(kind, 1, msgspec.json.encode(hello)))
        if kind is FrameKind.HELLO:
            assert decode_hello(frame) == hello
        else:
            with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
                decode_hello(frame)


def test_an_empty_message_comes_back_wherever_it_stands() -> None:
    for raws in ([b""], [b"a", b""], [b"", b"a"], [b"", b""]):
        [frame] = encode_messages(list(enumerate(raws, 1)))
        assert decode_messages(decode_frame(frame).payload) == raws


def test_welcome_carries_number_stream_and_proof() -> None:
    frame = decode_frame(encode_welcome(9, "f" * 32, "a.b.c"))
    assert (frame.kind, frame.arg, frame.payload) == (FrameKind.WELCOME, 9, b"f" * 32 + b"a.b.c")


@given(raw=st.binary(max_size=300))
def test_any_bytes_are_a_frame_or_a_peer_error(raw: bytes) -> None:
    with contextlib.suppress(PeerError):
        frame = decode_frame(raw)
        decode_messages(frame.payload)
    with contextlib.suppress(PeerError):
        decode_hello(decode_frame(b"\x01\x00\x00\x00\x01\x00\x00\x00" + raw))


def test_a_hello_that_says_nothing_of_an_earlier_stream_has_delivered_nothing() -> None:
    payload = b'{"stream":"%b","domain":"a","node":"b"}' % (b"0" * 32)
    hello = decode_hello(decode_frame(encode_frame(FrameKind.HELLO, 1, payload)))
    assert (hello.peer_stream, hello.delivered) == ("", 0)


@pytest.mark.parametrize(("more", "frames"), [(0, 1), (1, 2)])
def test_messages_that_fill_a_frame_to_the_last_byte_share_it(more: int, frames: int) -> None:
    half = FRAME_PAYLOAD_BYTES // 2
    numbered = [(1, b"a" * half), (2, b"b" * (FRAME_PAYLOAD_BYTES - half - 4 + more))]
    assert len(encode_messages(numbered)) == frames
