"""Frames of `trapezoid-link/1`, the protocol between a node and the stub that it publishes.

One binary WebSocket message is one frame: `u8 kind, u8 flags, u16 reserved, u32 arg`, little-endian, then the
payload. The client side is written in C (`examples/stubs/trapezoid_link`); this is the node's side, and the tests'
oracle for the stub.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

import msgspec

from protofly.errors import Code, PeerError

SUBPROTOCOL = "trapezoid-link.1"
VERSION = 1
FRAME_PAYLOAD_BYTES = 60 << 10
"""Messages are packed into frames up to this size; one larger message gets a frame of its own."""

_HEADER = Struct("<BBHI")
_LENGTH = Struct("<I")
_length_from = _LENGTH.unpack_from


class FrameKind(IntEnum):
    """The kinds of frames. Source: docs/link.md."""

    HELLO = 1
    CHALLENGE = 2
    TOKEN = 3
    WELCOME = 4
    MESSAGES = 5
    ACK = 6
    REFUSE = 7
    BYE = 8


_KINDS = {int(kind): kind for kind in FrameKind}


class LinkFrame(NamedTuple):
    """One decoded frame."""

    kind: FrameKind
    arg: int
    payload: bytes


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """First frame of the client. `delivered` counts messages of our `peer_stream` that reached the client's bus."""

    stream: str
    domain: str
    node: str
    peer_stream: str = ""
    delivered: int = 0


_decode_hello = msgspec.json.Decoder(Hello).decode


def encode_frame(kind: FrameKind, arg: int, payload: bytes = b"") -> bytes:
    """Write one frame."""
    return _HEADER.pack(kind, 0, 0, arg) + payload


def decode_frame(raw: bytes) -> LinkFrame:
    """Read one frame.

    Raises:
        PeerError: PROTOCOL_ERROR.
    """
    if len(raw) < _HEADER.size:
        raise PeerError(Code.PROTOCOL_ERROR, "frame too short")
    kind, flags, reserved, arg = _HEADER.unpack_from(raw)
    if flags or reserved or kind not in _KINDS:
        raise PeerError(Code.PROTOCOL_ERROR, "unknown kind of frame")
    return LinkFrame(_KINDS[kind], arg, raw[8:])


def decode_hello(frame: LinkFrame) -> Hello:
    """Read the payload of HELLO.

    Raises:
        PeerError: PROTOCOL_ERROR.
    """
    if frame.kind is not FrameKind.HELLO or frame.arg != VERSION:
        raise PeerError(Code.PROTOCOL_ERROR, f"a link begins with HELLO of version {VERSION}")
    try:
        hello = _decode_hello(frame.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise PeerError(Code.PROTOCOL_ERROR, "HELLO cannot be read") from exc
    if len(hello.stream) != 32 or not 0 <= hello.delivered < 1 << 32:
        raise PeerError(Code.PROTOCOL_ERROR, "HELLO names no stream")
    return hello


def encode_welcome(processed: int, stream: str, token: str) -> bytes:
    """Write WELCOME: what we have of the client's stream, the name of ours, our own proof."""
    return encode_frame(FrameKind.WELCOME, processed, stream.encode() + token.encode())


def encode_messages(numbered: list[tuple[int, bytes]]) -> list[bytes]:
    """Pack messages into as few frames as fit; numbers inside one frame are consecutive."""
    frames: list[bytes] = []
    parts: list[bytes] = []
    size, first, expected = 0, 0, 0
    pack = _LENGTH.pack
    for number, raw in numbered:
        if parts and (number != expected or size + len(raw) > FRAME_PAYLOAD_BYTES):
            frames.append(encode_frame(FrameKind.MESSAGES, first, b"".join(parts)))
            parts, size = [], 0
        if not parts:
            first = number
        parts += (pack(len(raw)), raw)
        size += len(raw) + 4
        expected = number + 1
    if parts:
        frames.append(encode_frame(FrameKind.MESSAGES, first, b"".join(parts)))
    return frames


def decode_messages(payload: bytes) -> list[bytes]:
    """Cut the payload of MESSAGES into messages.

    Raises:
        PeerError: PROTOCOL_ERROR when lengths do not add up.
    """
    messages = []
    position, end = 0, len(payload)
    while position < end:
        start = position + 4
        if start > end:
            raise PeerError(Code.PROTOCOL_ERROR, "a message is cut off")
        position = start + _length_from(payload, start - 4)[0]
        if position > end:
            raise PeerError(Code.PROTOCOL_ERROR, "a message is cut off")
        messages.append(payload[start:position])
    return messages
