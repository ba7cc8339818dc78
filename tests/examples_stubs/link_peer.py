"""LINK/1 frames written down a second time, and a link stub that has been led to a wanted state."""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Final, NamedTuple

from sandbox.core.exchange import FLAG_GRANTED, Action, Event, GuestAction, GuestEvent
from tests.examples_stubs.guest import STUBS, Guest

LINK_WASM: Final = STUBS / "trapezoid_link" / "link.wasm"
OUR_STREAM: Final = "0f" * 16
PEER_STREAM: Final = "ab" * 16
CHALLENGE: Final = bytes(range(32))


class Kind(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    TOKEN = 3
    WELCOME = 4
    MESSAGES = 5
    ACK = 6
    REFUSE = 7
    BYE = 8


class Frame(NamedTuple):
    kind: int
    arg: int
    payload: bytes


def frame(kind: int, arg: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("<BBHI", kind, 0, 0, arg) + payload


def messages_frame(first: int, messages: list[bytes]) -> bytes:
    return frame(Kind.MESSAGES, first, b"".join(struct.pack("<I", len(message)) + message for message in messages))


def read_frame(raw: bytes) -> Frame:
    kind, flags, reserved, arg = struct.unpack_from("<BBHI", raw)
    assert (flags, reserved) == (0, 0)
    return Frame(kind, arg, raw[8:])


def read_messages(payload: bytes) -> list[bytes]:
    messages = []
    offset = 0
    while offset < len(payload):
        (size,) = struct.unpack_from("<I", payload, offset)
        offset += 4 + size
        messages.append(payload[offset - size : offset])
    assert offset == len(payload)
    return messages


def frames_sent(actions: list[GuestAction]) -> list[Frame]:
    return [read_frame(action.payload) for action in actions if action.op == Action.SEND]


def numbered_messages(actions: list[GuestAction]) -> list[tuple[int, bytes]]:
    """Every message in every MESSAGES frame, with its number."""
    return [
        (sent.arg + index, message)
        for sent in frames_sent(actions)
        if sent.kind == Kind.MESSAGES
        for index, message in enumerate(read_messages(sent.payload))
    ]


def delivered_messages(actions: list[GuestAction]) -> list[tuple[int, bytes]]:
    return [(action.arg, action.payload) for action in actions if action.op == Action.DELIVER]


def statuses(actions: list[GuestAction]) -> list[str]:
    return [action.payload.decode("ascii") for action in actions if action.op == Action.STATUS]


def start_event(*, peer_stream: str = "", delivered: int = 0, **changes: object) -> GuestEvent:
    settings: dict[str, object] = {
        "abi": 1,
        "our_domain": "a.example",
        "our_node": "runtime://a.example/mn-1",
        "stub_url": "runtime://a.example/mn-1/protostub/b7c1",
        "peer_domain": "b.example",
        "endpoints": ["mn"],
        "stream": OUR_STREAM,
        "peer_stream": peer_stream,
        "delivered": delivered,
        "configuration": {},
        "tokens": [],
    }
    return GuestEvent(Event.START, 0, json.dumps(settings | changes).encode())


def message(number: int, payload: bytes) -> GuestEvent:
    return GuestEvent(Event.MESSAGE, number, payload)


class LinkGuest(Guest):
    """The link stub, with the events of its one channel under short names."""

    def __init__(self, *, peer_stream: str = "", delivered: int = 0) -> None:
        super().__init__(LINK_WASM)
        self.channel = 0
        self._note(self.call(start_event(peer_stream=peer_stream, delivered=delivered)))

    def _note(self, actions: list[GuestAction]) -> list[GuestAction]:
        for action in actions:
            if action.op == Action.OPEN:
                self.channel = action.arg
        return actions

    def opened(self, subprotocol: bytes = b"trapezoid-link.1") -> list[GuestAction]:
        return self.call(GuestEvent(Event.OPENED, self.channel, subprotocol))

    def data(self, *frames: bytes) -> list[GuestAction]:
        return self.call(*[GuestEvent(Event.DATA, self.channel, raw) for raw in frames])

    def token(self, token: bytes = b"e30.e30.c2ln", *, is_granted: bool = True) -> list[GuestAction]:
        return self.call(GuestEvent(Event.AUTH_TOKEN, self.channel, token, FLAG_GRANTED if is_granted else 0))

    def verified(self, *, reason: bytes = b"") -> list[GuestAction]:
        return self.call(GuestEvent(Event.PEER_VERIFIED, self.channel, reason, 0 if reason else FLAG_GRANTED))

    def closed(self, reason: bytes = b"link-lost") -> list[GuestAction]:
        return self.call(GuestEvent(Event.CLOSED, self.channel, reason))

    def timer(self, timer: int) -> list[GuestAction]:
        return self._note(self.call(GuestEvent(Event.TIMER, timer, b"")))

    def reach_verifying(self, *, resume: int = 0, peer_stream: str = PEER_STREAM) -> Frame:
        """Everything up to WELCOME; the HELLO that was said."""
        (hello,) = frames_sent(self.opened())
        self.data(frame(Kind.CHALLENGE, 0, CHALLENGE))
        self.token()
        self.data(frame(Kind.WELCOME, resume, peer_stream.encode() + b"e30.e30.cGVlcg"))
        return hello

    def reach_live(self, *, resume: int = 0, peer_stream: str = PEER_STREAM) -> list[GuestAction]:
        self.reach_verifying(resume=resume, peer_stream=peer_stream)
        return self.verified()
