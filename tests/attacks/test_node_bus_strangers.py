"""Strangers at the port of the bus between nodes: refused, counted, and at a bounded cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from secrets import token_hex

import pytest
import trio

from msg_node.cluster.core.handshake import Handshake, Hello
from msg_node.cluster.core.link_frames import FrameKind, FrameReader, frame
from msg_node.cluster.node_line import Address, LineSecurity
from msg_node.cluster.socket_node_bus import HALF_OPEN_NODES, HALF_OPEN_PER_ADDRESS, NodeIdentity, SocketNodeBus
from protofly.errors import Code
from wire.byte_channel import ByteChannel

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


class Nobody:
    """A node that is to be given nothing."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    def met(self, node: str, *, is_new: bool) -> None:
        pass

    def taken(self, _node: str, contents: Sequence[bytes]) -> None:
        self.contents += contents

    def returned(self, node: str, contents: Sequence[bytes]) -> None:
        pass

    async def wait_for_room(self) -> None:
        pass


class Rig:
    """A node, and connections of strangers to it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.user = Nobody()
        identity = NodeIdentity("a.example", "n1", 2, KEY)
        self.bus = SocketNodeBus(identity, Address.parse("127.0.0.1:0"), dict, self.user)
        self.channels: list[ByteChannel] = []
        self._nursery = nursery

    async def connect(self) -> tuple[ByteChannel, bytes]:
        channel, binding = await LineSecurity().connect(Address.parse(self.bus.listens_at), self._nursery)
        self.channels.append(channel)
        return channel, binding

    async def until_counted(self, code: Code, number: int = 1) -> None:
        while self.bus.refused.get(code.word, 0) < number:  # noqa: ASYNC110  the bus notifies nobody of strangers
            await trio.sleep(0.01)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            rig = Rig(nursery)
            await nursery.start(rig.bus.run)
            yield rig
            for channel in rig.channels:
                channel.close()
            nursery.cancel_scope.cancel()


def hello(domain: str = "a.example", node: str = "n2", epoch: int = 1) -> Hello:
    return Hello(domain=domain, node=node, epoch=epoch, process="p", nonce=token_hex(32))


async def prove(channel: ByteChannel, binding: bytes, ours: Hello, key: bytes = KEY) -> bytes:
    """Go through the handshake; gives what the node says besides, b"" when it closes."""
    handshake, reader = Handshake(lambda _: ours, key, is_dialler=True, binding=binding), FrameReader()
    channel.send_nowait(handshake.begin())
    while handshake.verified is None:
        data = await channel.receive()
        if not data:
            return b""
        for one in reader.feed(data):
            if one.kind == FrameKind.REFUSED:
                return one.content
            channel.send_nowait(handshake.take(one))
    return await refusal(channel)


async def refusal(channel: ByteChannel) -> bytes:
    """The word with which the node ends the connection, b"" when it says none or goes on."""
    reader = FrameReader()
    while data := await channel.receive():
        for one in reader.feed(data):
            if one.kind == FrameKind.REFUSED:
                return one.content
            if one.kind == FrameKind.GOES_ON:
                return b"admitted"
    return b""


@pytest.mark.parametrize(
    ("ours", "code"),
    [
        (hello(domain="b.example"), Code.WRONG_DOMAIN),
        (hello(domain="a.example.evil"), Code.WRONG_DOMAIN),
        (hello(node="n1"), Code.AUTH_AUDIENCE),
    ],
    ids=["another domain", "a look-alike", "the name of the node itself"],
)
async def test_a_node_of_elsewhere_is_refused_although_it_has_the_key(rig: Rig, ours: Hello, code: Code) -> None:
    channel, binding = await rig.connect()
    assert await prove(channel, binding, ours) == code.word.encode()
    await rig.until_counted(code)
    assert rig.bus.connected == []
    assert rig.user.contents == []


async def test_a_process_that_answers_with_another_key_is_refused_and_gives_the_node_nothing(rig: Rig) -> None:
    channel, _ = await rig.connect()
    reader = FrameReader()
    channel.send_nowait(
        frame(
            FrameKind.HELLO,
            b'{"domain":"a.example","node":"n2","epoch":9,"process":"p",' + b'"nonce":"' + b"0" * 64 + b'"}',
        )
    )
    while not any(one.kind == FrameKind.PROOF for one in reader.feed(await channel.receive())):
        pass
    channel.send_nowait(frame(FrameKind.PROOF, b"0" * 32) + frame(FrameKind.CONTENT, b"injected"))
    assert await refusal(channel) == Code.AUTH_SIGNATURE.word.encode()
    await rig.until_counted(Code.AUTH_SIGNATURE)
    assert (rig.bus.connected, rig.user.contents) == ([], [])


async def test_a_recorded_hello_and_proof_open_nothing(rig: Rig) -> None:
    said: list[bytes] = []
    channel, binding = await rig.connect()
    handshake, reader = Handshake(lambda _: hello(), KEY, is_dialler=True, binding=binding), FrameReader()
    said.append(handshake.begin())
    channel.send_nowait(said[0])
    while handshake.verified is None:
        said += [handshake.take(one) for one in reader.feed(await channel.receive())]
    channel.close()  # before the proof was sent
    again, _ = await rig.connect()
    for one_said in said:
        again.send_nowait(one_said)
    assert await refusal(again) == Code.AUTH_SIGNATURE.word.encode()
    assert (rig.bus.connected, rig.user.contents) == ([], [])


async def test_a_process_that_lost_its_name_to_a_newer_one_is_refused(rig: Rig) -> None:
    channel, binding = await rig.connect()
    assert await prove(channel, binding, hello(epoch=3)) == b"admitted"
    stale, binding = await rig.connect()
    assert await prove(stale, binding, hello(epoch=2)) == Code.AUTH_STALE.word.encode()
    assert rig.bus.connected == ["n2"]


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff\xff\1", b"\0\0\4\1\1" + b"{" * 1024, b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0\1"]
)
async def test_frames_beyond_the_bound_are_refused_before_they_are_read(rig: Rig, raw: bytes) -> None:
    channel, _ = await rig.connect()
    channel.send_nowait(raw)
    assert await refusal(channel) == Code.PROTOCOL_ERROR.word.encode()
    await rig.until_counted(Code.PROTOCOL_ERROR)


async def test_strangers_who_say_nothing_hold_a_bounded_number_of_connections(rig: Rig) -> None:
    address = Address.parse(rig.bus.listens_at)
    streams = [await trio.open_tcp_stream(address.host, address.port) for _ in range(HALF_OPEN_PER_ADDRESS + 3)]
    await rig.until_counted(Code.AUTH_LIMIT, 3)
    for stream in streams:
        await stream.aclose()
    while len(rig.bus._half_open):  # noqa: ASYNC110  as above
        await trio.sleep(0.01)
    channel, binding = await rig.connect()
    assert await prove(channel, binding, hello()) == b"admitted"


async def test_a_crowd_of_strangers_gives_way_to_a_node(rig: Rig) -> None:
    address = Address.parse(rig.bus.listens_at)
    crowd = [
        await trio.open_tcp_stream(address.host, address.port, local_address=f"127.0.0.{2 + number % 16}")
        for number in range(HALF_OPEN_NODES + 16)
    ]
    await rig.until_counted(Code.AUTH_LIMIT, 16)
    assert len(rig.bus._half_open) == HALF_OPEN_NODES
    channel, binding = await rig.connect()
    assert await prove(channel, binding, hello()) == b"admitted"
    assert rig.bus.connected == ["n2"]
    for stream in crowd:
        await stream.aclose()
    while len(rig.bus._half_open):  # noqa: ASYNC110  as above
        await trio.sleep(0.01)
