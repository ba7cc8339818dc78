"""What a stranger sends to the port where the nodes of a domain listen for each other."""

from __future__ import annotations

from typing import Final

import msgspec

from msg_node.cluster.core.handshake import Handshake, Hello
from msg_node.cluster.core.link_frames import HELLO_BYTES, FrameKind, FrameReader, frame
from tests.fuzz.target import Target

_KEY: Final = bytes(range(32))
_STRANGER: Final = Hello(domain="alpha.example", node="mn-2", epoch=3, process="p-2", nonce="n" * 32)


def _listener(_node: str) -> Hello:
    return Hello(domain="alpha.example", node="mn-1", epoch=7, process="p-1", nonce="m" * 32)


def check_stranger(data: bytes) -> None:
    """Whatever somebody without the key sends, in whatever pieces, proves nothing and is answered with few bytes."""
    listener = Handshake(_listener, _KEY, is_dialler=False, binding=b"certificate")
    reader = FrameReader()
    step = 1 + data[0] % 64 if data else 1
    sent = 0
    for at in range(1, len(data), max(step, len(data) // 200)):
        piece = data[at : at + max(step, len(data) // 200)]
        for received in reader.feed(piece):
            sent += len(listener.take(received))
            assert listener.verified is None
            assert sent <= 2 * HELLO_BYTES


_HELLO: Final = frame(FrameKind.HELLO, msgspec.json.encode(_STRANGER))

TARGETS: Final = (
    Target(
        "cluster-handshake",
        check_stranger,
        (
            b"\x40" + _HELLO + frame(FrameKind.PROOF, bytes(32)),
            b"\x00" + _HELLO + _HELLO,
            b"\x07" + frame(FrameKind.PROOF, bytes(32)) + _HELLO,
            b"\x01" + frame(FrameKind.REFUSED, b"auth-signature"),
        ),
        calls_per_byte=40,
    ),
)
