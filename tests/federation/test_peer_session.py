"""The node's side of LINK/1 over loopback TLS: the product's acceptor and link against a client that a test scripts."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from federation.core.link_frames import FrameKind, encode_frame, encode_messages
from federation.core.outbound_queue import QueueLimits
from federation.links.link_acceptor import REFUSALS_LOGGED_PER_MINUTE
from protofly.errors import Code, PeerError
from protofly.limits import CROSSING_BYTES, HANDSHAKE_SECONDS
from protofly.records import LinkEvent
from tests.support.link_endpoint import OUR_STREAM, LinkRig, from_a, from_b, link_rig, make_world, send
from tests.support.sides import Bus, decoded, numbers_of, request

TO_B = "hyperty://b.example/bo"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LinkRig]:
    world = make_world(tmp_path)
    async with link_rig(world) as running:
        yield running
    world.close()


# Handshake.


async def test_after_the_handshake_both_know_each_other_and_the_link_is_up(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        assert client.welcome is not None
        assert client.welcome.arg == 0
        assert client.welcome.payload[:32].decode() == rig.link.queue.stream
        claims = await client.identity.verify(
            bytes(client.welcome.payload[32:]),
            endpoints=rig.endpoint.acceptor.endpoints,
            bindings=rig.endpoint.acceptor.bindings,
            nonce=client.counter_challenge,
            peer_domain="b.example",
        )
        assert claims.node == "runtime://b.example/mn-1"
        assert (rig.link.state, rig.link.machine.carried_by) == ("live", "peer")
        assert rig.bus.came_live == ["a.example"]
    [up] = [record for record in rig.bus.records if isinstance(record, LinkEvent) and record.event == "up"]
    assert (up.domain, up.direction, up.peer_node) == ("a.example", "in", "runtime://a.example/mn-1")


HELLO = {"stream": OUR_STREAM, "domain": "a.example", "node": "runtime://a.example/mn-1"}


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x01\0\0",
        b"\x01\0\0\0\x01\0\0",
        encode_frame(FrameKind.HELLO, 2, json.dumps(HELLO).encode()),
        encode_frame(FrameKind.HELLO, 1, b""),
        encode_frame(FrameKind.HELLO, 1, b"[" * 50_000),
        encode_frame(FrameKind.HELLO, 1, b"\xff"),
        encode_frame(FrameKind.HELLO, 1, json.dumps(HELLO | {"stream": "short"}).encode()),
        encode_frame(FrameKind.HELLO, 1, json.dumps(HELLO | {"delivered": -1}).encode()),
        encode_frame(FrameKind.HELLO, 1, json.dumps(HELLO | {"delivered": 1 << 32}).encode()),
        encode_frame(FrameKind.HELLO, 1, json.dumps(HELLO | {"node": 5}).encode()),
        encode_frame(FrameKind.TOKEN, 0, b"x.y.z"),
        encode_frame(FrameKind.MESSAGES, 1, b""),
        encode_frame(FrameKind.ACK, 1),
        struct.pack("<BBHI", 1, 1, 0, 1) + json.dumps(HELLO).encode(),
        struct.pack("<BBHI", 9, 0, 0, 1),
        struct.pack("<BBHI", 0, 0, 0, 1),
    ],
)
async def test_what_is_no_hello_ends_the_connection_with_a_reason(rig: LinkRig, frame: bytes) -> None:
    async with rig.client() as client:
        client.send_raw(frame)
        assert await client.code_of_bye() == "protocol-error"
    assert (rig.link.state, rig.documents.asked) == ("created", {})


async def test_who_connects_all_the_time_is_refused_each_time_and_does_not_fill_the_log(
    rig: LinkRig, caplog: pytest.LogCaptureFixture
) -> None:
    acceptor, count = rig.endpoint.acceptor, 2 * REFUSALS_LOGGED_PER_MINUTE
    for _ in range(count):
        async with rig.client() as client:
            client.send_raw(b"no frame")
            assert await client.code_of_bye() == "protocol-error"
    assert (acceptor.refused, len(acceptor.pending)) == (count, 0)
    assert sum("refused" in one.getMessage() for one in caplog.records) == REFUSALS_LOGGED_PER_MINUTE


@pytest.mark.parametrize("kind", [kind for kind in FrameKind if kind is not FrameKind.TOKEN])
async def test_nothing_but_a_token_may_follow_the_challenge(rig: LinkRig, kind: FrameKind) -> None:
    async with rig.client() as client:
        client.say_hello()
        await client.receive_challenge()
        client.send(kind, 1, client.token())
        assert await client.code_of_bye() == "protocol-error"
    assert rig.link.state == "created"


@pytest.mark.parametrize(
    "members",
    [{"domain": "c.example"}, {"node": "runtime://a.example/mn-2"}, {"domain": "A.example"}],
)
async def test_hello_and_token_must_name_the_same_node(rig: LinkRig, members: dict[str, str]) -> None:
    async with rig.client() as client:
        client.say_hello(**members)
        await client.receive_challenge()
        client.send(FrameKind.TOKEN, 0, client.token())
        assert await client.code_of_bye() == "auth-audience"
    assert rig.link.state == "created"


async def test_a_domain_that_policy_does_not_talk_to_is_notified(rig: LinkRig) -> None:
    rig.endpoint.refusal = PeerError(Code.AUTH_POLICY, "no", domain="a.example")
    async with rig.client() as client:
        client.say_hello()
        await client.receive_challenge()
        client.send(FrameKind.TOKEN, 0, client.token())
        assert await client.code_of_bye() == "auth-policy"
    assert rig.link.state == "created"


async def test_a_text_frame_ends_the_connection(rig: LinkRig) -> None:
    async with rig.client() as client:
        client.websocket.protocol.send_text(b"hello?")
        client.line.send_nowait(client.websocket.data_to_send())
        assert await client.receive() is None
        assert client.websocket.close_code == 1003


async def test_a_client_that_leaves_during_the_handshake_leaves_nothing_behind(rig: LinkRig) -> None:
    for steps in range(3):
        async with rig.client() as client:
            if steps > 0:
                client.say_hello()
            if steps > 1:
                await client.receive_challenge()
    await rig.wait_until(lambda: rig.endpoint.ended == 3)
    assert (rig.link.state, rig.bus.records) == ("created", [])


async def test_a_handshake_that_takes_too_long_is_ended(rig: LinkRig, mock_clock: trio.testing.MockClock) -> None:
    async with rig.client() as client:
        client.say_hello()
        await client.receive_challenge()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(HANDSHAKE_SECONDS)
        assert await client.code_of_bye() == "fetch-timeout"
    assert rig.link.state == "created"


# Messages to the node.


async def test_messages_reach_the_bus_in_order_and_are_acknowledged(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        client.send_messages(*[from_a(number) for number in range(1, 101)])
        assert (await client.receive_kind(FrameKind.ACK)).arg == 100
    assert numbers_of(rig.bus.delivered) == list(range(1, 101))


async def test_a_flood_is_acknowledged_in_few_words_and_to_its_end(rig: LinkRig) -> None:
    count = 5_000
    async with rig.live_client() as client:
        for first in range(1, count, 100):
            client.send_messages(*[from_a(number) for number in range(first, first + 100)], first=first)
        acknowledged: list[int] = []
        while not acknowledged or acknowledged[-1] < count:
            acknowledged.append((await client.receive_kind(FrameKind.ACK)).arg)
    assert acknowledged == sorted(acknowledged)
    assert len(acknowledged) <= 40
    assert numbers_of(rig.bus.delivered) == list(range(1, count + 1))


async def test_gaps_in_the_numbers_are_allowed(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        client.send_raw(*encode_messages([(5, from_a(5)), (9, from_a(9)), (1 << 31, from_a(10))]))
        await rig.wait_until(lambda: len(rig.bus.delivered) == 3)
        while (await client.receive_kind(FrameKind.ACK)).arg != 1 << 31:
            pass


async def test_what_was_taken_already_is_acknowledged_again_and_not_delivered(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        client.send_messages(from_a(1), from_a(2))
        await client.receive_kind(FrameKind.ACK)
    async with rig.live_client() as client:
        assert client.welcome is not None
        assert client.welcome.arg == 2
        client.send_messages(from_a(1), from_a(2), from_a(3))
        assert (await client.receive_kind(FrameKind.ACK)).arg == 3
    assert numbers_of(rig.bus.delivered) == [1, 2, 3]
    assert rig.link.counters["duplicates"] == 2


async def test_another_stream_counts_anew(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        client.send_messages(from_a(1))
        await client.receive_kind(FrameKind.ACK)
    async with rig.live_client(stream="c" * 32) as client:
        assert client.welcome is not None
        assert client.welcome.arg == 0
        client.send_messages(from_a(2))
        assert (await client.receive_kind(FrameKind.ACK)).arg == 1
    assert numbers_of(rig.bus.delivered) == [1, 2]


async def test_a_broken_message_among_good_ones_costs_itself_only(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        client.send_messages(from_a(1), b"{broken json", b"[" * 70_000, b'{"type":"ping"}' * 2, from_a(2))
        assert (await client.receive_kind(FrameKind.ACK)).arg == 5
        assert rig.link.is_live
    assert numbers_of(rig.bus.delivered) == [1, 2]
    assert rig.link.counters["broken"] == 3


async def test_a_message_of_nearly_two_mebibytes_goes_both_ways(rig: LinkRig) -> None:
    text = "x" * (CROSSING_BYTES - 1000)
    async with rig.live_client() as client:
        client.send_messages(from_a(1, text=text))
        await client.receive_kind(FrameKind.ACK)
        send(rig, from_b(1, text=text))
        [(number, raw)] = await client.receive_messages(1)
    assert number == 1
    assert text in decoded(bytes(raw)).body.decode()
    assert text in rig.bus.delivered[0].body.decode()


async def test_while_the_bus_has_no_room_nothing_more_is_read(rig: LinkRig) -> None:
    block = [from_a(number, text="x" * 50_000) for number in range(1, 201)]
    async with rig.live_client() as client:
        rig.bus.room = trio.Event()
        client.send_messages(*block)
        await trio.testing.wait_all_tasks_blocked()
        read = len(rig.bus.delivered)
        assert read < 100
        assert client.line.backlog_bytes > 0
        rig.bus.room.set()
        await rig.wait_until(lambda: len(rig.bus.delivered) == 200)
    assert numbers_of(rig.bus.delivered) == list(range(1, 201))


# Messages from the node.


async def test_messages_of_the_node_come_packed_and_numbered(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        send(rig, *[from_b(number) for number in range(1, 301)])
        got = await client.receive_messages(300)
        assert [number for number, _ in got] == list(range(1, 301))
        assert numbers_of([decoded(bytes(raw)) for _, raw in got]) == list(range(1, 301))
        assert rig.link.queue.under_way == 300
        client.send(FrameKind.ACK, 300)
        await rig.wait_until(lambda: not rig.link.queue.under_way)
    assert [record.outcome for record in rig.bus.message_records] == ["delivered"] * 300


async def test_what_waited_before_the_link_came_goes_first(rig: LinkRig) -> None:
    send(rig, from_b(1), from_b(2))
    async with rig.live_client() as client:
        send(rig, from_b(3))
        got = await client.receive_messages(3)
    assert numbers_of([decoded(bytes(raw)) for _, raw in got]) == [1, 2, 3]


async def test_what_was_not_acknowledged_comes_again_with_the_same_numbers(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        send(rig, *[from_b(number) for number in range(1, 6)])
        first = await client.receive_messages(5)
        client.send(FrameKind.ACK, 2)
        await rig.wait_until(lambda: rig.link.queue.under_way == 3)
    await rig.wait_until(lambda: not rig.link.is_live)
    async with rig.live_client() as client:
        assert await client.receive_messages(3) == first[2:]


async def test_what_the_client_says_it_has_does_not_come_again(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        send(rig, *[from_b(number) for number in range(1, 6)])
        await client.receive_messages(5)
    await rig.wait_until(lambda: not rig.link.is_live)
    async with rig.live_client(peer_stream=rig.link.queue.stream, delivered=4) as client:
        [(number, _)] = await client.receive_messages(1)
        assert number == 5
        assert [record.outcome for record in rig.bus.message_records] == ["delivered"] * 4


async def test_what_the_client_has_of_another_stream_does_not_count(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        send(rig, from_b(1))
        await client.receive_messages(1)
    await rig.wait_until(lambda: not rig.link.is_live)
    async with rig.live_client(peer_stream="f" * 32, delivered=9) as client:
        assert (await client.receive_messages(1))[0][0] == 1


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"502 bad-reply no such room", Code.BAD_REPLY),
        (b"404 no-route", Code.NO_ROUTE),
        (b"599 unheard-of word", Code.STUB_REFUSED),
        (b"", Code.STUB_REFUSED),
        (b"\xff\xfe " * 600, Code.STUB_REFUSED),
    ],
)
async def test_a_refused_message_is_answered_to_its_sender(rig: LinkRig, payload: bytes, code: Code) -> None:
    async with rig.live_client() as client:
        send(rig, request(1, from_="b.example", to="a.example"), from_b(2))
        await client.receive_messages(2)
        client.send(FrameKind.REFUSE, 1, payload)
        await rig.wait_until(lambda: rig.bus.answers)
        assert rig.bus.answer_codes == [code]
        assert rig.link.queue.under_way == 1
        client.send(FrameKind.REFUSE, 77, b"404 no-route")  # nobody knows this number
        client.send(FrameKind.ACK, 2)
        await rig.wait_until(lambda: not rig.link.queue.under_way)
    assert len(rig.bus.answers) == 1


async def test_an_acknowledgement_of_what_was_never_sent_accepts_only_what_was(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        send(rig, from_b(1))
        await client.receive_messages(1)
        client.send(FrameKind.ACK, 0xFFFFFFFF)
        await rig.wait_until(lambda: not rig.link.queue.under_way)
        send(rig, from_b(2))
        assert (await client.receive_messages(1))[0][0] == 2
        await trio.testing.wait_all_tasks_blocked()
        assert rig.link.queue.under_way == 1


async def test_a_client_that_stops_reading_fills_no_memory_and_gets_everything_later(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    limits = QueueLimits(in_flight_messages=400, in_flight_bytes=64 << 20)
    async with link_rig(world, bus=Bus("b.example", limits=limits)) as rig, rig.live_client() as client:
        send(rig, *[from_b(number, text="x" * 60_000) for number in range(1, 301)])
        await trio.testing.wait_all_tasks_blocked()
        assert rig.link.queue.waiting > 100
        assert rig.endpoint.lines[0].backlog_bytes < 2 << 20
        got: list[int] = []
        while len(got) < 300:
            got += [number for number, _ in await client.receive_messages(1)]
            client.send(FrameKind.ACK, got[-1])
    assert got == list(range(1, 301))
    world.close()
