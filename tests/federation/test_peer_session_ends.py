"""How links of other nodes end: goodbyes, cuts at random points, broken rules, silence, a second connection."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from federation.core.link_frames import FrameKind, decode_messages, encode_frame, encode_messages
from federation.links import peer_session
from federation.links.peer_session import SILENT_PINGS
from protofly.errors import Code
from protofly.limits import PING_SECONDS
from protofly.message import Message
from tests.support.link_endpoint import OUR_STREAM, LinkClient, LinkRig, from_a, from_b, link_rig, make_world, send
from tests.support.sides import Bus, decoded, numbers_of

TO_B = "hyperty://b.example/bo"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LinkRig]:
    world = make_world(tmp_path)
    async with link_rig(world) as running:
        yield running
    world.close()


HELLO = {"stream": OUR_STREAM, "domain": "a.example", "node": "runtime://a.example/mn-1"}


# The end.


async def test_a_goodbye_ends_the_connection_and_what_waits_stays(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        send(rig, from_b(1))
        await client.receive_messages(1)
        client.send(FrameKind.BYE, 0, b"draining")
        assert await client.receive() is None
        await rig.wait_until(lambda: not rig.link.is_live)
    assert rig.link.queue.waiting == 1
    assert rig.bus.events == ["up", "down"]


async def test_a_link_that_is_drained_acknowledges_what_it_took_and_nothing_behind_its_goodbye(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        client.send_messages(from_a(1), from_a(2))
        await rig.wait_until(lambda: len(rig.bus.delivered) == 2)
        rig.link.machine.carriers[0].drain()
        assert (await client.receive_kind(FrameKind.ACK)).arg == 2
        client.send_messages(from_a(3), first=3)
        assert await client.receive() is None
        await rig.wait_until(lambda: not rig.link.is_live)
    assert len(rig.bus.delivered) == 2
    assert rig.link.processed(OUR_STREAM) == 2


def hold_up(bus: Bus, _message: Message) -> None:
    """A receiver of ours takes one message, and does not read."""
    if bus.room.is_set():
        bus.room = trio.Event()


@pytest.mark.parametrize("how", ["drained", "cut off"])
@pytest.mark.parametrize("is_early", [True, False], ids=["behind the handshake", "later"])
async def test_a_link_whose_reading_is_held_up_ends_all_the_same_and_takes_nothing_more(
    rig: LinkRig, how: str, is_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_session, "DRAIN_SECONDS", 0.1)
    rig.bus.refuse = partial(hold_up, rig.bus)
    messages = encode_messages([(number, from_a(number)) for number in range(1, 1001)])
    async with rig.client() as client:
        client.say_hello()
        await client.receive_challenge()
        client.send_raw(encode_frame(FrameKind.TOKEN, 0, client.token()), *messages if is_early else ())
        await client.receive_kind(FrameKind.WELCOME)
        if not is_early:
            client.send_raw(*messages)
        await rig.wait_until(lambda: len(rig.bus.delivered) > 0)
        [carrier] = rig.link.machine.carriers
        if how == "drained":
            carrier.drain()
        else:
            carrier.cut_off(Code.DOMAIN_BLOCKED)
        while (frame := await client.receive()) is not None:
            assert frame.kind is not FrameKind.ACK or frame.arg == len(rig.bus.delivered)
        taken = len(rig.bus.delivered)
        if how == "drained":
            await rig.wait_until(lambda: not rig.link.is_live)
        rig.bus.room.set()
        await rig.wait_until(lambda: not rig.link.is_live)
    assert 0 < len(rig.bus.delivered) == taken < 1000
    assert rig.link.processed(OUR_STREAM) == taken


async def test_a_cut_line_is_a_lost_carrier_and_messages_wait_again(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        send(rig, from_b(1))
        await client.receive_messages(1)
        client.line.close()
        await rig.wait_until(lambda: not rig.link.is_live)
        assert (rig.link.queue.waiting, rig.link.queue.under_way) == (1, 0)
        assert rig.link.need.has_arisen


@pytest.mark.parametrize("seed", range(6))
async def test_cut_at_random_points_nothing_is_lost_or_repeated_and_the_order_holds(rig: LinkRig, seed: int) -> None:
    """Both send to each other while the line breaks again and again, inside frames too."""
    chance = random.Random(seed)
    count, got, acknowledged, resumed = 300, [0], 0, 0
    values: list[int] = []
    patience_seconds, seen = 0.03, (0, 0)
    for number in range(1, 51):
        assert rig.link.send(from_b(number, pad="y" * chance.randrange(3_000))) is None
    while acknowledged < count or got[-1] < 50:
        peer_stream = rig.link.queue.stream
        async with rig.live_client(peer_stream=peer_stream, delivered=got[-1]) as client:
            assert client.welcome is not None
            resumed = client.welcome.arg
            assert resumed >= acknowledged
            acknowledged = resumed  # a cut may have come before the acknowledgement, and nothing is left to send then
            some = range(resumed + 1, min(count, resumed + chance.randrange(1, 120)) + 1)
            client.send_messages(
                *[from_a(number, pad="x" * chance.randrange(2_000)) for number in some], first=resumed + 1
            )
            for _ in range(chance.randrange(6)):
                acknowledged = max(acknowledged, await _one_frame_within(patience_seconds, client, got, values))
            chance.choice((rig.endpoint.cut, client.line.close))()
            await rig.wait_until(lambda: not rig.link.is_live)
        # A busy machine may need longer than a cut leaves it: without progress the next round waits longer.
        patience_seconds = 0.03 if (acknowledged, got[-1]) != seen else 2 * patience_seconds
        seen = (acknowledged, got[-1])
    assert numbers_of(rig.bus.delivered) == list(range(1, count + 1))
    assert values == list(range(1, 51))


async def _one_frame(client: LinkClient, got: list[int], values: list[int]) -> int:
    """Take one frame as a client should: deliver what is new, acknowledge; returns what was acknowledged to us."""
    frame = await client.receive()
    if frame is None:
        await trio.lowlevel.checkpoint()
        return 0
    if frame.kind is FrameKind.ACK:
        return frame.arg
    assert frame.kind is FrameKind.MESSAGES
    for number, raw in enumerate(decode_messages(bytes(frame.payload)), frame.arg):
        if number > got[-1]:
            got.append(number)
            values += numbers_of([decoded(raw)])
    client.send(FrameKind.ACK, got[-1])
    return 0


async def _one_frame_within(seconds: float, client: LinkClient, got: list[int], values: list[int]) -> int:
    """The same; 0 if none comes in time."""
    with trio.move_on_after(seconds):
        return await _one_frame(client, got, values)
    return 0


async def test_a_second_link_of_the_same_domain_waits_behind_the_first(rig: LinkRig) -> None:
    async with rig.live_client() as first, rig.live_client(stream="c" * 32) as second:
        send(rig, from_b(1))
        assert (await first.receive_messages(1))[0][0] == 1
        second.send_messages(from_a(1))
        await second.receive_kind(FrameKind.ACK)
        first.line.close()
        assert (await second.receive_messages(1))[0][0] == 1
        send(rig, from_b(2))
        assert (await second.receive_messages(1))[0][0] == 2


# Broken rules, dead lines.


GOOD = from_a(1)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x05\0\0",
        struct.pack("<BBHI", 9, 0, 0, 1),
        struct.pack("<BBHI", 5, 1, 0, 1) + struct.pack("<I", len(GOOD)) + GOOD,
        struct.pack("<BBHI", 5, 0, 1, 1) + struct.pack("<I", len(GOOD)) + GOOD,
        encode_frame(FrameKind.MESSAGES, 1, b"\x01"),
        encode_frame(FrameKind.MESSAGES, 1, b"\xff\xff\xff\x7f" + GOOD),
        encode_frame(FrameKind.MESSAGES, 1, struct.pack("<I", len(GOOD) + 1) + GOOD),
        encode_frame(FrameKind.HELLO, 1, json.dumps(HELLO).encode()),
        encode_frame(FrameKind.CHALLENGE, 0, b"x" * 32),
        encode_frame(FrameKind.TOKEN, 0, b"x.y.z"),
        encode_frame(FrameKind.WELCOME, 0, b"f" * 64),
    ],
)
async def test_a_frame_that_breaks_the_rules_ends_its_connection_and_nothing_else(rig: LinkRig, frame: bytes) -> None:
    async with rig.live_client() as client:
        client.send_raw(frame)
        assert await client.code_of_bye() == "protocol-error"
    await rig.wait_until(lambda: not rig.link.is_live)
    assert rig.endpoint.failures == []


@pytest.mark.parametrize(
    "frame",
    [
        encode_frame(FrameKind.MESSAGES, 0xFFFFFFFF, (struct.pack("<I", len(GOOD)) + GOOD) * 2),
        encode_frame(FrameKind.MESSAGES, 0, struct.pack("<I", len(GOOD)) + GOOD),
        encode_frame(FrameKind.MESSAGES, 1, b""),
    ],
    ids=["beyond-the-last-number", "number-0", "no-message"],
)
async def test_numbers_that_cannot_be_end_the_connection(rig: LinkRig, frame: bytes) -> None:
    async with rig.live_client() as client:
        client.send_raw(frame)
        assert await client.code_of_bye() == "protocol-error"


async def test_a_client_that_comes_again_takes_its_old_connection_over(rig: LinkRig) -> None:
    """Its router lost power: the old connection looks alive here for a quarter of an hour."""
    async with rig.live_client(), rig.live_client() as again:
        send(rig, from_b(1))
        assert (await again.receive_messages(1))[0][0] == 1


async def test_a_client_that_has_not_been_heard_for_long_is_given_up(
    rig: LinkRig, mock_clock: trio.testing.MockClock
) -> None:
    async with rig.live_client() as client:
        for silent_seconds, is_live in ((PING_SECONDS, True), (SILENT_PINGS * PING_SECONDS + 1, False)):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(silent_seconds)
            await trio.testing.wait_all_tasks_blocked()
            assert rig.link.is_live is is_live
        client.patience_seconds = 1e9
        assert await client.code_of_bye() == "timeout"
    assert rig.endpoint.failures == []


async def test_when_a_client_was_heard_last_stands_still_until_it_is_heard_again(rig: LinkRig) -> None:
    """Two clocks that are read one after the other differ each time: that would end every stall at once."""
    async with rig.live_client():
        [carrier] = rig.link.machine.carriers
        heard = {carrier.heard_seconds for _ in range(100)}
        assert len(heard) == 1
        assert 0 <= time.monotonic() - heard.pop() < 60
        assert carrier.probe()
