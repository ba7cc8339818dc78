"""trapezoid-link: messages through a live connection, and across lost ones."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly import limits
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from tests.examples_stubs.link_peer import (
    PEER_STREAM,
    Frame,
    Kind,
    LinkGuest,
    delivered_messages,
    frame,
    frames_sent,
    message,
    messages_frame,
    numbered_messages,
    read_frame,
    statuses,
)

FRAME_BYTES = 60 << 10
RELEASE_TIMER = 3
OTHER_STREAM = "cd" * 16

payloads = st.binary(min_size=12, max_size=400)


@pytest.fixture
def live() -> LinkGuest:
    guest = LinkGuest()
    guest.reach_live()
    return guest


def acks(actions: list[GuestAction]) -> list[int]:
    return [sent.arg for sent in frames_sent(actions) if sent.kind == Kind.ACK]


def test_consecutive_messages_leave_in_one_frame(live: LinkGuest) -> None:
    texts = [b'{"n":%08d}' % number for number in range(1, 51)]
    actions = live.call(*[message(number, text) for number, text in enumerate(texts, 1)])
    assert len(actions) == 1
    assert (actions[0].op, actions[0].arg, actions[0].flags) == (Action.SEND, 1, 0)
    assert numbered_messages(actions) == list(enumerate(texts, 1))


def test_gap_in_the_numbers_starts_a_new_frame(live: LinkGuest) -> None:
    actions = live.call(*[message(number, b"x" * 20) for number in (4, 5, 9, 10, 8)])
    assert [sent.arg for sent in frames_sent(actions)] == [4, 9, 8]
    assert [number for number, _ in numbered_messages(actions)] == [4, 5, 9, 10, 8]


def test_frames_stay_below_sixty_kibibytes_and_are_well_filled(live: LinkGuest) -> None:
    actions = live.call(*[message(number, bytes(1000)) for number in range(1, 201)])
    sizes = [len(action.payload) for action in actions]
    assert max(sizes) <= FRAME_BYTES
    assert len(sizes) == -(-200 // ((FRAME_BYTES - 8) // 1004))


@pytest.mark.parametrize("size", [FRAME_BYTES - 12, FRAME_BYTES - 11, 1 << 20, limits.INPUT_BYTES_MAX - 64])
def test_message_larger_than_a_batch_travels_alone(live: LinkGuest, size: int) -> None:
    text = bytes(range(256)) * (size // 256) + bytes(size % 256)
    actions = live.call(message(1, b"a" * 12), message(2, text), message(3, b"b" * 12))
    assert numbered_messages(actions) == [(1, b"a" * 12), (2, text), (3, b"b" * 12)]
    assert text in [sent.payload[4:] for sent in frames_sent(actions)]


def test_one_mebibyte_message_is_delivered_and_acknowledged(live: LinkGuest) -> None:
    text = bytes(range(256)) * 4096
    actions = live.data(messages_frame(1, [text]))
    assert delivered_messages(actions) == [(1, text)]
    assert acks(actions) == [1]
    assert live.memory_bytes <= limits.MEMORY_BYTES


@given(batch=st.lists(st.tuples(st.integers(1, 2**32 - 2), st.binary(max_size=300)), max_size=40))
@settings(max_examples=50)
def test_any_messages_leave_byte_for_byte_with_their_numbers(batch: list[tuple[int, bytes]]) -> None:
    guest = LinkGuest()
    guest.reach_live()
    assert numbered_messages(guest.call(*[message(number, text) for number, text in batch])) == batch


@given(
    first=st.integers(1, 2**32 - 100),
    frames=st.lists(st.lists(payloads, min_size=1, max_size=20), min_size=1, max_size=5),
)
@settings(max_examples=50)
def test_any_frames_are_delivered_byte_for_byte_with_their_numbers(first: int, frames: list[list[bytes]]) -> None:
    guest = LinkGuest()
    guest.reach_live()
    raw, number, last = [], first, []
    for texts in frames:
        raw.append(messages_frame(number, texts))
        number += len(texts)
        last.append(number - 1)
    actions = guest.data(*raw)
    assert delivered_messages(actions) == list(enumerate([text for texts in frames for text in texts], first))
    assert acks(actions) == last


def test_frame_full_of_smallest_messages_stays_within_the_action_limit(live: LinkGuest) -> None:
    texts = [b'{"type":"%02d"}' % (number % 100) for number in range(3800)]
    assert [text for _, text in delivered_messages(live.data(messages_frame(1, texts)))] == texts


def test_ack_and_refusal_become_the_fate_of_messages(live: LinkGuest) -> None:
    live.call(*[message(number, b"x" * 12) for number in range(1, 6)])
    accepted, refused = live.data(frame(Kind.ACK, 3), frame(Kind.REFUSE, 4, b"502 bad-reply no such room"))
    assert (accepted.op, accepted.arg) == (Action.ACCEPTED, 3)
    assert (refused.op, refused.arg, refused.payload) == (Action.REFUSED, 4, b"502 bad-reply no such room")


def test_message_before_live_stays_with_the_host() -> None:
    guest = LinkGuest()
    assert guest.call(message(1, b"x" * 12)) == []
    guest.reach_verifying()
    assert guest.call(message(1, b"x" * 12)) == []
    guest.verified()
    assert numbered_messages(guest.call(message(1, b"x" * 12))) == [(1, b"x" * 12)]


def test_other_events_between_messages_keep_their_place(live: LinkGuest) -> None:
    data = GuestEvent(Event.DATA, 1, messages_frame(1, [b"y" * 12]))
    actions = live.call(message(1, b"a" * 12), data, message(2, b"b" * 12))
    assert [action.op for action in actions] == [Action.SEND, Action.DELIVER, Action.SEND, Action.SEND]
    assert [sent.kind for sent in frames_sent(actions)] == [Kind.MESSAGES, Kind.ACK, Kind.MESSAGES]


def test_messages_before_the_verdict_are_held_and_then_delivered_in_order() -> None:
    guest = LinkGuest()
    guest.reach_verifying()
    texts = [b"%012d" % number for number in range(1, 301)]
    assert guest.data(messages_frame(1, texts[:200])) == []
    actions = guest.verified()
    assert statuses(actions) == ["live"]
    got = delivered_messages(actions)
    assert 0 < len(got) <= 64
    assert acks(actions) == [len(got)]
    got += delivered_messages(guest.data(messages_frame(201, texts[200:])))
    while len(got) < 300:
        got += delivered_messages(guest.timer(RELEASE_TIMER))
    assert got == list(enumerate(texts, 1))
    assert guest.timer(RELEASE_TIMER) == []
    assert delivered_messages(guest.data(messages_frame(301, [b"z" * 12]))) == [(301, b"z" * 12)]


def test_large_messages_that_were_held_are_delivered_whole() -> None:
    guest = LinkGuest()
    guest.reach_verifying()
    texts = [b"a" * 50, bytes(range(248)) * 1024, b"c" * 50, bytes(range(248)) * 1023]
    guest.data(*[messages_frame(number, [text]) for number, text in enumerate(texts, 1)])
    got = delivered_messages(guest.verified())
    for _ in range(4):
        got += delivered_messages(guest.timer(RELEASE_TIMER))
    assert [text for _, text in got] == texts


def test_message_too_large_to_hold_gives_up_the_connection_and_comes_with_the_next() -> None:
    guest = LinkGuest()
    guest.reach_verifying()
    large = bytes(range(256)) * 4096
    assert statuses(guest.data(messages_frame(1, [b"a" * 50]), messages_frame(2, [large]))) == ["disconnected overload"]
    guest.timer(1)
    guest.reach_live()
    assert delivered_messages(guest.data(messages_frame(1, [b"a" * 50, large]))) == [(1, b"a" * 50), (2, large)]


def test_far_end_that_floods_before_the_verdict_is_left() -> None:
    guest = LinkGuest()
    guest.reach_verifying()
    said: list[GuestAction] = []
    for number in range(1, 90):
        said += guest.data(messages_frame(number, [bytes(50_000)]))
    assert statuses(said) == ["disconnected overload"]
    assert guest.memory_bytes <= limits.MEMORY_BYTES


def test_hello_after_a_lost_channel_says_what_was_delivered(live: LinkGuest) -> None:
    live.data(messages_frame(5, [b"x" * 12] * 3))
    live.closed()
    live.timer(1)
    hello = live.reach_verifying()
    assert b'"peer_stream":"%s","delivered":7,' % PEER_STREAM.encode() in hello.payload


def test_repeated_messages_are_acknowledged_and_not_delivered_twice(live: LinkGuest) -> None:
    live.data(messages_frame(1, [b"x" * 12] * 5))
    live.closed()
    live.timer(1)
    live.reach_live()
    actions = live.data(messages_frame(3, [b"y" * 12] * 5))
    assert [number for number, _ in delivered_messages(actions)] == [6, 7]
    assert acks(actions) == [7]


def test_new_stream_of_the_far_end_begins_at_its_own_numbers(live: LinkGuest) -> None:
    live.data(messages_frame(100, [b"x" * 12]))
    live.closed()
    live.timer(1)
    actions = live.reach_live(peer_stream=OTHER_STREAM)
    assert [action.payload for action in actions if action.op == Action.PEER_STREAM] == [OTHER_STREAM.encode()]
    assert delivered_messages(live.data(messages_frame(1, [b"y" * 12]))) == [(1, b"y" * 12)]


def test_connection_lost_before_the_verdict_on_a_new_stream_keeps_the_old_one(live: LinkGuest) -> None:
    live.data(messages_frame(9, [b"x" * 12]))
    live.closed()
    live.timer(1)
    live.reach_verifying(peer_stream=OTHER_STREAM)
    live.data(messages_frame(1, [b"y" * 12]))
    live.closed()
    live.timer(1)
    hello = live.reach_verifying()
    assert b'"peer_stream":"%s","delivered":9,' % PEER_STREAM.encode() in hello.payload


def test_restarted_stub_resumes_from_its_settings() -> None:
    guest = LinkGuest(peer_stream=PEER_STREAM, delivered=4_000_000_000)
    hello = guest.reach_verifying(resume=17)
    assert b'"delivered":4000000000,' in hello.payload
    actions = guest.verified()
    assert [action.arg for action in actions if action.op == Action.ACCEPTED] == [17]
    assert delivered_messages(guest.data(messages_frame(3_999_999_999, [b"x" * 12] * 3))) == [
        (4_000_000_001, b"x" * 12)
    ]


@pytest.mark.parametrize(
    ("peer_stream", "delivered"), [("XY" * 16, 5), ("ab", 5), (PEER_STREAM, -1), (PEER_STREAM, 2**32)]
)
def test_unusable_resume_point_means_from_the_start(peer_stream: str, delivered: int) -> None:
    hello = LinkGuest(peer_stream=peer_stream, delivered=delivered).reach_verifying()
    assert b'"peer_stream":"","delivered":0,' in hello.payload


class FarEnd:
    """The other node, in twenty lines: takes frames, keeps what it got, repeats what was not acknowledged."""

    def __init__(self, to_send: list[bytes]) -> None:
        self.to_send = to_send
        self.acknowledged = 0
        self.got: list[bytes] = []

    def hear(self, frames: list[Frame]) -> None:
        for sent in frames:
            if sent.kind == Kind.ACK:
                self.acknowledged = sent.arg
            if sent.kind == Kind.MESSAGES:
                self._take(sent.payload, first=sent.arg)

    def _take(self, batch: bytes, *, first: int) -> None:
        assert first <= len(self.got) + 1
        offset, number = 0, first
        while offset < len(batch):
            (size,) = struct.unpack_from("<I", batch, offset)
            if number > len(self.got):
                self.got.append(batch[offset + 4 : offset + 4 + size])
            offset, number = offset + 4 + size, number + 1

    def frames(self, count: int) -> list[bytes]:
        texts = self.to_send[self.acknowledged : self.acknowledged + count]
        return [messages_frame(self.acknowledged + 1, texts)] if texts else []


@given(
    outgoing=st.lists(payloads, max_size=30),
    incoming=st.lists(payloads, max_size=30),
    losses=st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.booleans()), max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_lost_connections_and_restarts_lose_and_double_nothing(
    outgoing: list[bytes], incoming: list[bytes], losses: list[tuple[int, bool, bool]]
) -> None:
    """The host keeps what was not accepted, the far end what was not acknowledged; channel and stub may go away."""
    far = FarEnd(incoming)
    ours: list[tuple[int, bytes]] = []
    guest = LinkGuest()
    for count, heard, restarts in [*losses, (100, True, False)]:
        accepted = [a.arg for a in guest.reach_live(resume=len(far.got)) if a.op == Action.ACCEPTED]
        assert accepted == ([len(far.got)] if far.got else [])
        unaccepted = list(enumerate(outgoing, 1))[len(far.got) :][:count]
        said = guest.call(*[message(number, text) for number, text in unaccepted])
        said += guest.data(*far.frames(count))
        ours += delivered_messages(said)
        if heard:
            far.hear(frames_sent(said))
        guest.closed()
        if restarts:
            guest = LinkGuest(peer_stream=PEER_STREAM, delivered=ours[-1][0] if ours else 0)
        else:
            guest.timer(1)
    assert far.got == outgoing
    assert ours == list(enumerate(incoming, 1))


raw_frames = st.builds(
    lambda kind, flags, arg, payload: struct.pack("<BBHI", kind, flags, 0, arg) + payload,
    st.integers(0, 9),
    st.sampled_from([0, 0, 0, 0, 1, 255]),
    st.integers(0, 20) | st.integers(0, 2**32 - 1),
    st.binary(max_size=80)
    | st.lists(payloads, max_size=4).map(lambda texts: messages_frame(1, texts)[8:])
    | st.just(PEER_STREAM.encode() + b"token"),
)
any_events = st.builds(
    GuestEvent,
    st.integers(2, 11) | st.just(Event.DATA),
    st.integers(0, 4),
    st.binary(max_size=60) | raw_frames,
    st.integers(0, 1),
)


@given(
    calls=st.lists(st.lists(any_events, max_size=6), max_size=12),
    begins=st.sampled_from(["start", "verifying", "live"]),
)
@settings(max_examples=150, deadline=None)
def test_no_sequence_of_events_traps_or_breaks_a_limit(calls: list[list[GuestEvent]], begins: str) -> None:
    guest = LinkGuest()
    if begins == "verifying":
        guest.reach_verifying()
    if begins == "live":
        guest.reach_live(resume=10)
    for events in calls:
        for action in guest.call(*events):
            if action.op == Action.SEND:
                assert Kind(read_frame(action.payload).kind) in {
                    Kind.HELLO,
                    Kind.TOKEN,
                    Kind.MESSAGES,
                    Kind.ACK,
                    Kind.BYE,
                }


def test_fuel_stays_far_below_the_budget(live: LinkGuest) -> None:
    batch = [message(number, b"x" * 300) for number in range(1, 101)]
    live.call(*batch)
    assert live.fuel_used / 100 < 2000
    live.data(messages_frame(1, [b"x" * 300] * 100))
    assert live.fuel_used / 100 < 2000
