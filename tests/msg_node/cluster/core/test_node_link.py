"""The link between two nodes as a state machine: what is queued is taken over once and in order, or comes back."""

from __future__ import annotations

import contextlib
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.cluster.core import node_link
from msg_node.cluster.core.handshake import Hello
from msg_node.cluster.core.lease import LEASE_SECONDS
from msg_node.cluster.core.link_frames import FRAME_BYTES, Frame, FrameKind, FrameReader, count_frame, frame
from msg_node.cluster.core.node_link import SILENCE_SECONDS, STUCK_SECONDS, Close, Met, NodeLink, Returned, Taken
from protofly.errors import Code, PeerError


class Side:
    """One end: its link, its process, and what became of contents."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.link = NodeLink(now=0.0)
        self.taken: list[bytes] = []
        self.returned: list[bytes] = []

    def hello(self) -> Hello:
        link = self.link
        return Hello(
            domain="a.example", node="n", epoch=1, process=self.process, nonce="", met_process=link.met_process,
            received=link.received,
        )  # fmt: skip

    def perform(self, actions: list[node_link.Action]) -> None:
        for action in actions:
            if isinstance(action, Taken):
                self.taken += action.contents
            elif isinstance(action, Returned):
                self.returned += action.contents

    def read(self, block: bytes, now: float) -> None:
        self.perform(self.link.take(FrameReader(FRAME_BYTES).feed(block), now=now))


def connect(one: Side, other: Side, now: float) -> None:
    hellos = one.hello(), other.hello()
    one.perform(one.link.connected(hellos[1], one.process, now=now))
    other.perform(other.link.connected(hellos[0], other.process, now=now))


def pump(one: Side, other: Side, now: float) -> None:
    other.read(one.link.block(now=now), now)
    one.read(other.link.block(now=now), now)


def test_contents_arrive_in_order_and_are_forgotten_when_they_are_acknowledged() -> None:
    one, other = Side("p1"), Side("p2")
    assert [one.link.queue(b"%d" % number, now=0.0) for number in range(3)] == [None] * 3
    connect(one, other, 0.1)
    other.read(one.link.block(now=0.1), 0.1)
    assert other.taken == [b"0", b"1", b"2"]
    assert one.link.waiting == 3
    block, _ = other.link.tick(0.3)
    one.read(block, 0.3)
    assert one.link.waiting == 0


def test_what_a_broken_connection_took_along_goes_again_and_what_arrived_does_not() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    one.link.queue(b"arrives", now=0.0)
    other.read(one.link.block(now=0.0), 0.0)  # its acknowledgement is lost
    one.link.queue(b"is lost", now=0.0)
    assert one.link.block(now=0.0)
    for side in (one, other):
        side.link.lost(0.5)
    one.link.queue(b"waits", now=0.6)
    connect(one, other, 0.7)
    pump(one, other, 0.7)
    assert other.taken == [b"arrives", b"is lost", b"waits"]
    assert one.returned == []


def test_a_process_that_started_anew_gets_nothing_of_what_was_for_the_one_before() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    one.link.queue(b"for p2", now=0.0)
    one.link.lost(0.1)
    newcomer = Side("p3")
    hello = newcomer.hello()
    one.perform(one.link.connected(hello, one.process, now=0.2))
    newcomer.perform(newcomer.link.connected(one.hello(), newcomer.process, now=0.2))
    one.link.queue(b"for p3", now=0.2)
    pump(one, newcomer, 0.2)
    assert (one.returned, newcomer.taken) == ([b"for p2"], [b"for p3"])


def test_a_node_that_stays_away_gives_back_what_waits_and_is_refused_more() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    one.link.queue(b"x", now=0.0)
    one.link.lost(1.0)
    assert one.link.tick(2.9) == (b"", [])
    assert one.link.tick(3.0) == (b"", [Returned([b"x"])])
    assert one.link.queue(b"y", now=3.0) is Code.NOT_CONNECTED
    connect(one, other, 4.0)
    one.link.queue(b"z", now=4.0)
    pump(one, other, 4.0)
    assert other.taken == [b"z"]


def test_a_silent_connection_is_closed_and_a_quiet_one_is_pinged() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    one.link.block(now=0.0)
    block, actions = one.link.tick(1.0)
    assert FrameReader().feed(block) == [Frame(FrameKind.PING, b"")]
    assert actions == []
    _, actions = one.link.tick(SILENCE_SECONDS)
    assert actions == []
    _, actions = one.link.tick(SILENCE_SECONDS + 0.01)
    assert [type(action) for action in actions] == [Close]
    assert not one.link.is_up


def test_a_node_that_takes_nothing_gets_its_contents_back_to_their_senders_within_a_bound() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    while one.link.queue(b"x" * (1 << 20), now=0.0) is None:
        pass
    assert one.link.waiting == node_link.QUEUE_BYTES >> 20
    assert one.link.is_congested
    for now in range(1, 11):  # it pings, and reads nothing
        one.read(frame(FrameKind.PING), float(now))
        assert one.link.tick(float(now))[1] == []
    one.read(frame(FrameKind.PING), 10.5)
    _, actions = one.link.tick(10.6)
    assert [type(action) for action in actions] == [Close, Returned]
    assert one.link.waiting == 0


def test_a_link_that_had_nothing_to_say_for_long_is_not_stuck_with_the_first_content() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    for now in range(100):
        one.read(frame(FrameKind.PING), float(now))
        one.link.tick(float(now))
    one.link.queue(b"x", now=99.0)
    one.read(frame(FrameKind.PING), 100.0)
    assert one.link.tick(100.0)[1] == []


@pytest.mark.parametrize(
    "raw",
    [
        count_frame(FrameKind.RECEIVED, 1),
        frame(FrameKind.RECEIVED, b"short"),
        frame(FrameKind.HELLO, b"{}"),
        frame(FrameKind.PROOF, b"again"),
        b"\0\0\0\1\x63",
    ],
    ids=["acknowledges the future", "count of the wrong size", "hello again", "proof again", "unknown kind"],
)
def test_a_frame_out_of_place_ends_the_connection(raw: bytes) -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    with pytest.raises(PeerError, match="protocol-error"):
        one.read(raw, 0.0)


def test_numbers_that_go_back_are_refused_so_that_nothing_is_taken_twice() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    other.read(count_frame(FrameKind.GOES_ON, 0) + frame(FrameKind.CONTENT, b"x"), 0.0)
    with pytest.raises(PeerError, match="protocol-error"):
        other.read(count_frame(FrameKind.GOES_ON, 0), 0.0)


@pytest.mark.parametrize(
    ("bound", "most", "size_bytes", "paused_after"),
    [("QUEUE_FRAMES", 4, 1, 3), ("QUEUE_FRAMES", 5, 1, 3), ("QUEUE_BYTES", 40, 10, 3), ("QUEUE_BYTES", 50, 10, 3)],
)
def test_senders_pause_when_more_than_half_of_what_may_wait_does(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int, size_bytes: int, paused_after: int
) -> None:
    monkeypatch.setattr(node_link, bound, most)
    link = NodeLink(now=0.0)
    paused = []
    for _ in range(4):
        assert link.queue(bytes(size_bytes), now=0.0) is None
        paused.append(link.is_congested)
    assert paused == [number >= paused_after for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(("sizes", "is_congested", "is_relieved"), [
    ((40, 60), False, False), ((40, 61), True, False), ((50,), False, True), ((51,), False, False), ((), False, True),
])  # fmt: skip
def test_senders_to_a_connected_node_pause_beyond_the_window_and_go_on_at_half_of_it(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], is_congested: bool, is_relieved: bool
) -> None:
    monkeypatch.setattr(node_link, "WINDOW_BYTES", 100)
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    for size_bytes in sizes:
        assert one.link.queue(bytes(size_bytes), now=0.0) is None
    assert (one.link.is_congested, one.link.is_relieved) == (is_congested, is_relieved)


def test_without_a_connection_more_waits_than_the_window_before_senders_pause() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    one.link.queue(bytes(node_link.WINDOW_BYTES + 1), now=0.0)
    assert one.link.is_congested
    one.link.lost(0.1)
    assert not one.link.is_congested


def test_what_arrived_is_acknowledged_before_half_of_the_window_is_full_whatever_its_frames() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    pump(one, other, 0.0)
    piece = frame(FrameKind.CONTENT, bytes(node_link.ACKNOWLEDGE_BYTES // 2))
    for _ in range(2):  # the second time after an acknowledgement, from which the bytes count anew
        other.read(piece, 0.0)
        assert other.link.block(now=0.0) == b""
        other.read(piece, 0.0)
        assert kinds(other.link.block(now=0.0)) == [FrameKind.RECEIVED]
    assert node_link.ACKNOWLEDGE_BYTES * 2 <= node_link.WINDOW_BYTES


def test_a_new_connection_counts_the_bytes_to_acknowledge_anew() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    pump(one, other, 0.0)
    for now in (0.1, 0.3):
        one.link.queue(bytes(node_link.ACKNOWLEDGE_BYTES // 2), now=now)
        other.read(one.link.block(now=now), now)
        assert other.link.block(now=now) == b""
        one.link.lost(now)
        other.link.lost(now)
        connect(one, other, now)
        pump(one, other, now)
    assert len(other.taken) == 2


def test_a_link_with_nothing_to_say_stays_up_however_long() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    pump(one, other, 0.0)
    for now in range(1, 3 * int(STUCK_SECONDS)):
        for side, far in ((one, other), (other, one)):
            block, actions = side.link.tick(float(now))
            assert actions == []
            far.read(block, float(now))
    assert one.link.is_up


def kinds(block: bytes) -> list[int]:
    return [one.kind for one in FrameReader(FRAME_BYTES).feed(block)]


def test_what_arrived_is_acknowledged_with_the_next_content_or_when_it_is_much() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    assert kinds(other.link.block(now=0.0)) == [FrameKind.GOES_ON]
    content, said = frame(FrameKind.CONTENT, b"x"), FrameKind.RECEIVED
    other.read(content, 0.0)
    assert other.link.block(now=0.0) == b"", "it waits for the next tick"
    other.link.queue(b"mine", now=0.0)
    assert kinds(other.link.block(now=0.0)) == [FrameKind.CONTENT, said]
    other.link.queue(b"mine", now=0.0)
    assert kinds(other.link.block(now=0.0)) == [FrameKind.CONTENT], "nothing arrived meanwhile"
    for _ in range(node_link.ACKNOWLEDGE_FRAMES - 1):
        other.read(content, 0.0)
    assert other.link.block(now=0.0) == b""
    other.read(content, 0.0)
    assert kinds(other.link.block(now=0.0)) == [said]
    assert other.link.tick(0.0) == (b"", [])


def test_who_wrote_just_now_sends_no_ping() -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    one.link.block(now=0.0)
    one.link.queue(b"x", now=0.5)
    one.link.block(now=0.5)
    for now, expected in ((1.0, []), (1.5, [FrameKind.PING])):
        block, actions = one.link.tick(now)
        assert (kinds(block), actions) == (expected, [])


def test_a_frame_beyond_the_bound_is_refused_by_its_length_alone() -> None:
    with pytest.raises(PeerError, match="protocol-error"):
        FrameReader().feed(b"\0\0\4\1\1")
    with pytest.raises(PeerError, match="protocol-error"):
        FrameReader().feed(b"\0\0\0\0\1")


def test_a_met_process_is_new_once() -> None:
    one, other = Side("p1"), Side("p2")
    assert one.link.connected(other.hello(), "p1", now=0.0) == [Met(is_new=True)]
    one.link.lost(0.1)
    assert one.link.connected(other.hello(), "p1", now=0.2) == [Met(is_new=False)]


@given(st.lists(st.sampled_from(["queue", "queue back", "pump", "half", "break", "tick"]), max_size=60))
def test_any_course_of_breaks_delivers_each_content_once_in_order_while_it_is_short(course: list[str]) -> None:
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    now, sent, sent_back = 0.0, 0, 0
    for step in course:
        now += 0.01
        if step == "queue":
            assert one.link.queue(b"%d" % sent, now=now) is None
            sent += 1
        elif step == "queue back":
            assert other.link.queue(b"%d" % sent_back, now=now) is None
            sent_back += 1
        elif step == "pump":
            pump(one, other, now)
        elif step == "half":
            other.read(one.link.block(now=now), now)
            other.link.block(now=now)  # lost on the way
            other.link.lost(now)
            one.link.lost(now)
            connect(one, other, now)
        elif step == "break":
            one.link.block(now=now)
            one.link.lost(now)
            other.link.lost(now)
            connect(one, other, now)
        else:
            block, _ = other.link.tick(now)
            one.read(block, now)
    pump(one, other, now)
    pump(one, other, now)
    assert other.taken == [b"%d" % number for number in range(sent)]
    assert one.taken == [b"%d" % number for number in range(sent_back)]
    assert one.returned == other.returned == []


@given(st.binary(max_size=400))
def test_any_bytes_give_frames_or_a_peer_error(raw: bytes) -> None:
    link = NodeLink(now=0.0)
    link.connected(Side("p2").hello(), "p1", now=0.0)
    with contextlib.suppress(PeerError):
        link.take(FrameReader().feed(raw), now=0.0)


def test_who_asks_a_machine_that_was_lost_is_answered_while_its_lease_still_counts() -> None:
    """Nothing closes the connection: the other node is only silent."""
    one, other = Side("p1"), Side("p2")
    connect(one, other, 0.0)
    assert one.link.queue(b"request", now=0.0) is None
    moments = (tick / 5 for tick in count(1))  # as `TICK_SECONDS` has it
    returned_at = next(now for now in moments if Returned([b"request"]) in one.link.tick(now)[1])
    assert returned_at <= LEASE_SECONDS
    assert one.link.queue(b"later", now=returned_at) is Code.NOT_CONNECTED
