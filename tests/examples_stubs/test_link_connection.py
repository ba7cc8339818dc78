"""trapezoid-link: making, losing, refusing and ending a connection."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.core.exchange import Action, ChannelKind, Event, GuestAction, GuestEvent
from tests.examples_stubs.guest import Guest
from tests.examples_stubs.link_peer import (
    CHALLENGE,
    LINK_WASM,
    OUR_STREAM,
    PEER_STREAM,
    Frame,
    Kind,
    LinkGuest,
    frame,
    frames_sent,
    message,
    messages_frame,
    start_event,
    statuses,
)

RECONNECT_TIMER, HANDSHAKE_TIMER = 1, 2
TEXT = b'{"type":"ping"}'


def ops(actions: list[GuestAction]) -> list[Action]:
    return [Action(action.op) for action in actions]


def reconnect_delay_ms(actions: list[GuestAction]) -> int:
    (delay,) = [
        struct.unpack("<I", a.payload)[0] for a in actions if a.op == Action.SET_TIMER and a.arg == RECONNECT_TIMER
    ]
    return int(delay)


def test_start_reports_created_and_opens_the_named_endpoint() -> None:
    status, opening = Guest(LINK_WASM).call(start_event())
    assert status.payload == b"created"
    assert (opening.op, opening.flags, opening.arg) == (Action.OPEN, ChannelKind.WEBSOCKET, 1)
    assert json.loads(opening.payload) == {
        "endpoint": "mn",
        "path": "",
        "headers": {},
        "subprotocol": "trapezoid-link.1",
    }


def test_whole_handshake_ends_live_with_stream_and_resume_point() -> None:
    guest = LinkGuest()
    actions = guest.opened()
    assert statuses(actions) == ["in-progress"]
    (hello,) = frames_sent(actions)
    assert (hello.kind, hello.arg) == (Kind.HELLO, 1)
    assert json.loads(hello.payload) == {
        "stream": OUR_STREAM,
        "peer_stream": "",
        "delivered": 0,
        "domain": "a.example",
        "node": "runtime://a.example/mn-1",
    }
    (request,) = guest.data(frame(Kind.CHALLENGE, 0, CHALLENGE))
    assert (request.op, request.arg, request.payload) == (Action.REQUEST_AUTH_TOKEN, 1, CHALLENGE)
    assert frames_sent(guest.token(b"our.own.token")) == [Frame(Kind.TOKEN, 0, b"our.own.token")]
    (verify,) = guest.data(frame(Kind.WELCOME, 41, PEER_STREAM.encode() + b"peer.own.token"))
    assert (verify.op, verify.arg, verify.payload) == (Action.VERIFY_PEER, 1, b"peer.own.token")
    actions = guest.verified()
    assert ops(actions)[1:] == [Action.PEER_STREAM, Action.ACCEPTED, Action.STATUS]
    assert (actions[1].payload, actions[2].arg, actions[3].payload) == (PEER_STREAM.encode(), 41, b"live")


def test_first_contact_accepts_nothing_when_the_far_end_has_nothing() -> None:
    assert Action.ACCEPTED not in ops(LinkGuest().reach_live(resume=0))


def test_settings_with_odd_texts_go_into_hello_unchanged() -> None:
    guest = LinkGuest.__new__(LinkGuest)
    Guest.__init__(guest, LINK_WASM)
    node = 'runtime://a.example/"\\ü\u2028{[,:]}'
    guest.call(start_event(our_node=node, configuration={"our_domain": "evil.example", "x": ["}", {"stream": 1}]}))
    guest.channel = 1
    hello = json.loads(frames_sent(guest.opened())[0].payload)
    assert (hello["node"], hello["domain"]) == (node, "a.example")


@pytest.mark.parametrize(
    "settings", [b"", b"{", b"[]", b"{}", b'{"our_domain":"a', b'{"our_domain":1,"our_node":"x","stream":"y"}', b'{"a"']
)
def test_unusable_settings_fail_the_stub_and_nothing_is_opened(settings: bytes) -> None:
    assert statuses(Guest(LINK_WASM).call(GuestEvent(Event.START, 0, settings))) == ["failed settings"]


def test_too_long_settings_fail_the_stub() -> None:
    assert statuses(Guest(LINK_WASM).call(start_event(our_node="n" * 5000))) == ["failed settings"]


@given(settings=st.binary(max_size=300) | st.text(alphabet='{}[]":,\\ us_or_dmain').map(str.encode))
def test_any_settings_bytes_are_survived(settings: bytes) -> None:
    Guest(LINK_WASM).call(GuestEvent(Event.START, 0, settings))


def test_refused_token_fails_the_stub_with_the_hosts_reason() -> None:
    guest = LinkGuest()
    guest.opened()
    guest.data(frame(Kind.CHALLENGE, 0, CHALLENGE))
    actions = guest.token(b"auth-limit", is_granted=False)
    assert frames_sent(actions) == [Frame(Kind.BYE, 0, b"auth-refused")]
    assert ops(actions)[1] is Action.CLOSE
    assert statuses(actions) == ["failed auth-limit"]


def test_unverified_peer_fails_the_stub_and_nothing_of_it_is_delivered() -> None:
    guest = LinkGuest()
    guest.reach_verifying()
    assert guest.data(messages_frame(1, [TEXT])) == []
    actions = guest.verified(reason=b"auth-signature")
    assert frames_sent(actions) == [Frame(Kind.BYE, 0, b"auth-failed")]
    assert statuses(actions) == ["failed auth-signature"]
    assert Action.DELIVER not in ops(actions)
    assert guest.timer(RECONNECT_TIMER) == []
    assert guest.opened() == []


def test_foreign_subprotocol_is_left_at_once() -> None:
    actions = LinkGuest().opened(b"mqtt")
    assert ops(actions)[0] is Action.CLOSE
    assert statuses(actions) == ["disconnected subprotocol"]


def test_far_end_that_chooses_no_subprotocol_is_greeted() -> None:
    assert frames_sent(LinkGuest().opened(b""))[0].kind == Kind.HELLO


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x05",
        frame(0),
        frame(9),
        frame(255),
        frame(Kind.HELLO, 1, b"{}"),
        frame(Kind.TOKEN, 0, b"x"),
        frame(Kind.CHALLENGE, 0, CHALLENGE),
        frame(Kind.WELCOME, 0, PEER_STREAM.encode() + b"x"),
        frame(Kind.MESSAGES, 1),
        frame(Kind.MESSAGES, 1, b"\x01\x00\x00"),
        frame(Kind.MESSAGES, 1, struct.pack("<I", 0xFFFF_FFFF) + TEXT),
        frame(Kind.MESSAGES, 1, struct.pack("<I", len(TEXT) + 1) + TEXT),
        frame(Kind.MESSAGES, 1, struct.pack("<I", 2) + b"{}"),
        messages_frame(0, [TEXT]),
        messages_frame(0xFFFF_FFFF, [TEXT, TEXT]),
        frame(Kind.ACK, 8),
        frame(Kind.ACK, 0),
        frame(Kind.ACK, 7, b"x"),
        frame(Kind.REFUSE, 7),
        frame(Kind.REFUSE, 9, b"502 bad-reply"),
        frame(Kind.REFUSE, 7, b"x" * 1025),
        b"\x06\x01\x00\x00\x07\x00\x00\x00",
        b"\x06\x00\x01\x00\x07\x00\x00\x00",
    ],
)
def test_malformed_frame_on_a_live_link_is_a_protocol_error(raw: bytes) -> None:
    guest = LinkGuest()
    guest.reach_live(resume=7)
    actions = guest.data(raw)
    assert frames_sent(actions) == [Frame(Kind.BYE, 0, b"protocol-error")]
    assert statuses(actions) == ["disconnected protocol-error"]
    assert ops(actions)[1] is Action.CLOSE
    assert guest.data(messages_frame(1, [TEXT])) == []


@pytest.mark.parametrize(
    "raw",
    [
        frame(Kind.CHALLENGE, 0, CHALLENGE[:31]),
        frame(Kind.CHALLENGE, 0, CHALLENGE + b"\0"),
        frame(Kind.WELCOME, 0, PEER_STREAM.encode() + b"token"),
        messages_frame(1, [TEXT]),
        frame(Kind.ACK, 1),
    ],
)
def test_wrong_frame_after_hello_is_a_protocol_error(raw: bytes) -> None:
    guest = LinkGuest()
    guest.opened()
    assert statuses(guest.data(raw)) == ["disconnected protocol-error"]


@pytest.mark.parametrize(
    "payload", [b"", PEER_STREAM.encode(), b"AB" * 16 + b"token", b"zz" * 16 + b"token", b"ab" * 16 + b"t" * 4097]
)
def test_welcome_without_stream_name_or_token_is_a_protocol_error(payload: bytes) -> None:
    guest = LinkGuest()
    guest.opened()
    guest.data(frame(Kind.CHALLENGE, 0, CHALLENGE))
    guest.token()
    assert statuses(guest.data(frame(Kind.WELCOME, 0, payload))) == ["disconnected protocol-error"]


def test_text_frame_is_a_protocol_error() -> None:
    guest = LinkGuest()
    guest.reach_live()
    assert statuses(guest.call(GuestEvent(Event.DATA, guest.channel, frame(Kind.ACK, 1), 1))) == [
        "disconnected protocol-error"
    ]


def test_lost_channel_is_opened_again_under_a_new_number_after_the_timer() -> None:
    guest = LinkGuest()
    guest.reach_live()
    actions = guest.closed(b"link-lost \xff\x00reset")
    assert statuses(actions) == ["disconnected link-lost ??reset"]
    assert 375 <= reconnect_delay_ms(actions) <= 625
    (opening,) = guest.timer(RECONNECT_TIMER)
    assert (opening.op, opening.arg) == (Action.OPEN, 2)
    assert statuses(guest.reach_live()) == ["live"]


def test_late_events_of_an_old_channel_do_not_touch_the_new_one() -> None:
    guest = LinkGuest()
    guest.reach_live()
    guest.closed()
    guest.timer(RECONNECT_TIMER)
    guest.opened()
    for late in (
        GuestEvent(Event.CLOSED, 1, b""),
        GuestEvent(Event.DATA, 1, b"nonsense"),
        GuestEvent(Event.OPENED, 1, b""),
    ):
        assert guest.call(late) == []
    assert guest.data(frame(Kind.CHALLENGE, 0, CHALLENGE))[0].op == Action.REQUEST_AUTH_TOKEN


def test_back_off_doubles_to_a_minute_and_starts_anew_after_a_steady_connection() -> None:
    guest = LinkGuest()
    delays = []
    for _ in range(10):
        delays.append(reconnect_delay_ms(guest.closed(b"connect-failed")))
        guest.timer(RECONNECT_TIMER)
    for attempt, delay in enumerate(delays):
        wanted = min(500 << attempt, 60_000)
        assert 0.75 * wanted <= delay <= min(1.25 * wanted, 60_000)
    guest.reach_live()
    guest.now_ms += 10_000
    assert reconnect_delay_ms(guest.closed()) <= 625


def test_connection_that_drops_at_once_does_not_reset_the_back_off() -> None:
    guest = LinkGuest()
    for _ in range(3):
        guest.closed()
        guest.timer(RECONNECT_TIMER)
    guest.reach_live()
    assert reconnect_delay_ms(guest.closed()) >= 3000


def test_jitter_comes_from_the_random_bytes() -> None:
    delays = set()
    for seed in range(20):
        guest = LinkGuest()
        actions = guest.call(GuestEvent(Event.CLOSED, 1, b""), random16=bytes([seed * 12, seed]) + bytes(14))
        delays.add(reconnect_delay_ms(actions))
    assert len(delays) > 10


def test_far_end_that_does_not_finish_the_handshake_is_left() -> None:
    guest = LinkGuest()
    guest.opened()
    actions = guest.timer(HANDSHAKE_TIMER)
    assert frames_sent(actions) == [Frame(Kind.BYE, 0, b"timeout")]
    assert statuses(actions) == ["disconnected timeout"]


def test_handshake_timer_on_a_live_link_does_nothing() -> None:
    guest = LinkGuest()
    guest.reach_live()
    assert guest.timer(HANDSHAKE_TIMER) == []


def test_bye_closes_and_waits() -> None:
    guest = LinkGuest()
    guest.reach_live()
    actions = guest.data(frame(Kind.BYE, 0, b"draining"))
    assert actions[0].op == Action.CLOSE
    assert statuses(actions) == ["disconnected draining"]
    assert reconnect_delay_ms(actions) > 0


def test_drain_says_bye_closes_and_is_final() -> None:
    guest = LinkGuest()
    guest.reach_live()
    actions = guest.call(GuestEvent(Event.DRAIN, 0, b""))
    assert frames_sent(actions) == [Frame(Kind.BYE, 0, b"draining")]
    assert statuses(actions) == ["disconnected drained"]
    assert guest.closed() == []
    assert guest.timer(RECONNECT_TIMER) == []
    assert guest.call(message(1, TEXT), GuestEvent(Event.DRAIN, 0, b"")) == []


def test_drain_while_waiting_cancels_the_timer() -> None:
    guest = LinkGuest()
    guest.closed()
    timer, status = guest.call(GuestEvent(Event.DRAIN, 0, b""))
    assert (timer.op, timer.arg, timer.payload) == (Action.SET_TIMER, RECONNECT_TIMER, bytes(4))
    assert status.payload == b"disconnected drained"


def test_unknown_event_is_ignored() -> None:
    guest = LinkGuest()
    assert guest.call(GuestEvent(77, 1, b"whatever")) == []
