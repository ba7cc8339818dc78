"""line-translator: a protocol that nobody here knew before, spoken through the same contract."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.core.exchange import Action, ChannelKind, Event, GuestAction, GuestEvent
from tests.examples_stubs.guest import STUBS, Guest
from tests.examples_stubs.link_peer import delivered_messages, message, start_event, statuses

TEXT = 1
CHALLENGE = bytes(range(32))


class LineGuest(Guest):
    def __init__(self) -> None:
        super().__init__(STUBS / "line_translator" / "line_translator.wasm")
        self.started = self.call(start_event(endpoints=["lines"]))

    def line(self, text: bytes) -> list[GuestAction]:
        return self.call(GuestEvent(Event.DATA, 1, text, TEXT))

    def answer(self, event: Event, text: bytes = b"", flags: int = 1) -> list[GuestAction]:
        return self.call(GuestEvent(event, 1, text, flags))


@pytest.fixture
def live() -> LineGuest:
    guest = LineGuest()
    guest.answer(Event.OPENED)
    guest.line(b"CHALLENGE " + CHALLENGE.hex().encode() + b"\n")
    guest.answer(Event.AUTH_TOKEN, b"our.own.token")
    guest.line(b"WELCOME peer.own.token\n")
    assert statuses(guest.answer(Event.PEER_VERIFIED)) == ["live"]
    return guest


def test_both_sides_prove_themselves_in_lines() -> None:
    guest = LineGuest()
    status, opening = guest.started
    assert (status.payload, opening.flags) == (b"created", ChannelKind.WEBSOCKET)
    assert json.loads(opening.payload) == {
        "endpoint": "lines",
        "path": "",
        "headers": {},
        "subprotocol": "lines.1",
        "text": True,
    }
    assert statuses(guest.answer(Event.OPENED)) == ["in-progress"]
    (request,) = guest.line(b"CHALLENGE " + CHALLENGE.hex().encode() + b"\n")
    assert (request.op, request.payload) == (Action.REQUEST_AUTH_TOKEN, CHALLENGE)
    (token,) = guest.answer(Event.AUTH_TOKEN, b"our.own.token")
    assert (token.flags, token.payload) == (TEXT, b"TOKEN our.own.token\n")
    (verify,) = guest.line(b"WELCOME peer.own.token\n")
    assert (verify.op, verify.payload) == (Action.VERIFY_PEER, b"peer.own.token")
    assert statuses(guest.answer(Event.PEER_VERIFIED)) == ["live"]


def test_message_leaves_as_a_line_with_its_length(live: LineGuest) -> None:
    (sent,) = live.call(message(17, b'{"a":"\xc3\xbc\\n"}'))
    assert (sent.flags, sent.payload) == (TEXT, b'MSG 17 12\n{"a":"\xc3\xbc\\n"}\n')


def test_several_messages_in_one_frame_are_delivered_and_confirmed_once(live: LineGuest) -> None:
    texts = [b'{"type":"a",\n"n":1}', b'{"type":"MSG 3 9"}']
    actions = live.line(
        b"".join(b"MSG %d %d\n%b\n" % (number, len(text), text) for number, text in enumerate(texts, 1))
    )
    assert [text for _, text in delivered_messages(actions)] == texts
    assert actions[-1].payload == b"OK 2\n"


def test_confirmations_and_refusals_become_fates(live: LineGuest) -> None:
    live.call(message(1, b"{}"), message(2, b"{}"))
    accepted, refused = live.line(b"OK 1\nNO 2 404 no-route nobody here\n")
    assert (accepted.op, accepted.arg) == (Action.ACCEPTED, 1)
    assert (refused.op, refused.arg, refused.payload) == (Action.REFUSED, 2, b"404 no-route nobody here")


@pytest.mark.parametrize(
    "text",
    [
        b"HELO\n",
        b"\n",
        b"MSG\n",
        b"MSG 1\n",
        b"MSG 1 99\n{}\n",
        b"MSG 0 12\n123456789012\n",
        b"MSG 1 12\n123456789012",
        b"MSG 1 12\n1234567890123\n",
        b"MSG 1 2\n{}\n",
        b"MSG 99999999999 12\n123456789012\n",
        b"OK 5\n",
        b"OK x\n",
        b"NO 1\n",
        b"CHALLENGE 00\n",
        b"WELCOME t\n",
        b"OK 1\n" * 500,
    ],
)
def test_malformed_lines_end_the_connection(live: LineGuest, text: bytes) -> None:
    live.call(message(1, b"{}"))
    actions = live.line(text)
    assert statuses(actions) == ["disconnected protocol-error"]
    assert Action.CLOSE in [action.op for action in actions]
    (opening,) = live.call(GuestEvent(Event.TIMER, 1, b""))
    assert opening.op == Action.OPEN


def test_refused_peer_is_left() -> None:
    guest = LineGuest()
    guest.answer(Event.OPENED)
    guest.line(b"CHALLENGE " + CHALLENGE.hex().encode() + b"\n")
    assert statuses(guest.answer(Event.AUTH_TOKEN, b"auth-limit", 0)) == ["disconnected auth-limit"]


def test_drain_is_final(live: LineGuest) -> None:
    assert statuses(live.call(GuestEvent(Event.DRAIN, 0, b""))) == ["disconnected drained"]
    assert live.call(GuestEvent(Event.TIMER, 1, b""), GuestEvent(Event.CLOSED, 1, b"")) == []


words = st.sampled_from(
    [
        b"MSG",
        b"OK",
        b"NO",
        b"CHALLENGE",
        b"WELCOME",
        b"1",
        b"12",
        b"123456789012",
        b" ",
        b"\n",
        b"0" * 64,
        b"4294967295",
        b"\xff",
    ]
)
texts = st.lists(words, max_size=30).map(b"".join) | st.binary(max_size=100)


@given(frames=st.lists(texts, max_size=8), flags=st.integers(0, 1), granted=st.integers(0, 1))
@settings(max_examples=80, deadline=None)
def test_no_lines_trap(frames: list[bytes], flags: int, granted: int) -> None:
    guest = LineGuest()
    guest.answer(Event.OPENED)
    for text in frames:
        guest.call(
            GuestEvent(Event.DATA, 1, text, flags | 1),
            GuestEvent(Event.AUTH_TOKEN, 1, text, granted),
            GuestEvent(Event.PEER_VERIFIED, 1, text, granted),
        )
        guest.call(
            GuestEvent(Event.DATA, 1, text, flags),
            message(1, text),
            GuestEvent(Event.TIMER, 1, b""),
            GuestEvent(Event.OPENED, 1, b""),
        )
