"""Clients that talk before they have proved anything, or hardly talk. Trust and hosts, section 7, rows 41 and 42."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.lowlevel
import trio.testing

from catalogue_client.core.state import DomainTrust
from federation.core.link_frames import SUBPROTOCOL, FrameKind, encode_frame, encode_messages
from federation.discovery.identity import Identity
from federation.links.link_acceptor import REFUSALS_LOGGED_PER_MINUTE
from federation.log_allowance import fields
from msg_node.bus.bus import Bus as NodeBus
from msg_node.connectors.listener import Listener
from protofly.errors import Code, PeerError
from protofly.limits import (
    HALF_OPEN_PER_ADDRESS,
    HANDSHAKE_SECONDS,
    MESSAGE_FRAGMENTS,
    PENDING_LINKS,
    PENDING_LINKS_PER_ADDRESS,
)
from tests.support.link_endpoint import LinkRig, link_rig, make_world
from tests.support.sides import chat, node_of
from wire.core.websocket import TOO_BIG, ClientWebSocket


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LinkRig]:
    world = make_world(tmp_path)
    async with link_rig(world) as running:
        yield running
    world.close()


MESSAGES = encode_messages([(number, chat(number).raw) for number in range(1, 4)])


async def test_messages_before_hello_are_not_looked_at(rig: LinkRig) -> None:
    async with rig.client() as client:
        client.send_raw(*MESSAGES)
        assert await client.code_of_bye() == "protocol-error"
    assert rig.bus.delivered == []


async def test_messages_instead_of_the_token_are_not_looked_at(rig: LinkRig) -> None:
    async with rig.client() as client:
        client.say_hello()
        client.send_raw(*MESSAGES)
        await client.receive_challenge()
        assert await client.code_of_bye() == "protocol-error"
    assert (rig.bus.delivered, rig.documents.asked) == ([], {})


async def test_messages_behind_a_forged_token_are_not_looked_at(rig: LinkRig) -> None:
    async with rig.client() as client:
        client.say_hello()
        await client.receive_challenge()
        client.send_raw(encode_frame(FrameKind.TOKEN, 0, client.token(b"y" * 32)), *MESSAGES)
        assert await client.code_of_bye() == "auth-nonce"
    assert (rig.bus.delivered, rig.link.state) == ([], "created")


async def test_looking_a_visitor_up_counts_for_its_address(rig: LinkRig) -> None:
    async with rig.live_client():
        assert rig.documents.askers == {"visitor 127.0.0.1": 1}


async def test_what_a_stranger_claims_to_be_is_no_line_about_that_domain(
    rig: LinkRig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(REFUSALS_LOGGED_PER_MINUTE + 5):
        async with rig.client() as client:
            client.say_hello()
            await client.receive_challenge()
            client.send(FrameKind.TOKEN, 0, client.token(b"y" * 32))
            assert await client.code_of_bye() == "auth-nonce"
    strangers = [one for one in caplog.records if "claims to be a.example" in one.getMessage()]
    assert len(strangers) == REFUSALS_LOGGED_PER_MINUTE
    assert not any("domain" in fields(one) for one in strangers)
    rig.endpoint.refusal = PeerError(Code.AUTH_POLICY, "we do not talk to you", domain="a.example")
    async with rig.client() as client:
        client.say_hello()
        await client.receive_challenge()
        client.send(FrameKind.TOKEN, 0, client.token())
        assert await client.code_of_bye() == "auth-policy"
    last = caplog.records[-1]
    assert last.getMessage().startswith("link from a.example refused: ")
    assert fields(last) == {"domain": "a.example", "code": "auth-policy"}


async def test_messages_behind_a_good_token_wait_until_it_is_verified(rig: LinkRig) -> None:
    documents, may_go_on = rig.documents, trio.Event()

    async def slow(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:
        await may_go_on.wait()
        return await documents.trust_of(domain, is_refresh)

    rig.endpoint.acceptor.identity = Identity(
        node=node_of("b.example"), domains=["b.example"], key=documents.keys["b.example"], trust_of=slow
    )
    async with rig.client() as client:
        client.say_hello()
        await client.receive_challenge()
        client.send_raw(encode_frame(FrameKind.TOKEN, 0, client.token()), *MESSAGES)
        for _ in range(5):
            await trio.testing.wait_all_tasks_blocked(0.001)
        assert (rig.bus.delivered, rig.link.state) == ([], "created")
        may_go_on.set()
        await client.receive_kind(FrameKind.WELCOME)
        assert (await client.receive_kind(FrameKind.ACK)).arg == 3
    assert len(rig.bus.delivered) == 3


async def test_much_behind_a_token_is_not_read_before_it_is_verified(rig: LinkRig) -> None:
    async def never(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:
        await trio.sleep_forever()
        raise AssertionError

    rig.endpoint.acceptor.identity = Identity(
        node=node_of("b.example"), domains=["b.example"], key=rig.documents.keys["b.example"], trust_of=never
    )
    async with rig.client() as client:
        client.say_hello()
        await client.receive_challenge()
        flood = encode_messages([(number, chat(number, text="x" * 50_000).raw) for number in range(1, 301)])
        client.send_raw(encode_frame(FrameKind.TOKEN, 0, client.token()), *flood)
        for _ in range(5):
            await trio.testing.wait_all_tasks_blocked(0.001)
        assert client.line.backlog_bytes > 5 << 20


async def test_a_client_that_drips_its_hello_is_ended_in_time(rig: LinkRig, mock_clock: trio.testing.MockClock) -> None:
    async with rig.client() as client:
        client.websocket.send([b"\x01" * 40])
        for byte in client.websocket.data_to_send()[:-1]:
            client.line.send_nowait(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(HANDSHAKE_SECONDS / 20)
            await trio.testing.wait_all_tasks_blocked()
            if rig.endpoint.ended:
                break
        assert await client.code_of_bye() == "fetch-timeout"
    assert rig.link.state == "created"


@pytest.mark.parametrize("is_proved", [False, True])
async def test_fragments_without_end_cost_the_line_and_no_memory(rig: LinkRig, is_proved: bool) -> None:
    async with rig.client() as client:
        if is_proved:
            await client.handshake()
        client.websocket.protocol.send_binary(b"", fin=False)
        for _ in range(MESSAGE_FRAGMENTS):
            client.websocket.protocol.send_continuation(b"", fin=False)
        client.line.send_nowait(client.websocket.data_to_send())
        while await client.receive() is not None:
            pass
        assert client.websocket.close_code == TOO_BIG
    assert rig.bus.delivered == []


async def test_an_endless_stream_of_pings_does_not_stretch_the_handshake(
    rig: LinkRig, mock_clock: trio.testing.MockClock
) -> None:
    async with rig.client() as client:
        for _ in range(12):
            client.websocket.ping()
            client.line.send_nowait(client.websocket.data_to_send())
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(HANDSHAKE_SECONDS / 10)
        assert await client.code_of_bye() == "fetch-timeout"


async def test_half_open_connections_of_one_address_are_limited_and_end_in_time(
    mock_clock: trio.testing.MockClock,
) -> None:
    listener = Listener(cast("NodeBus", None), context=None, acceptor=None)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1_024)
    address = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run, listeners)
        clients = [socket.create_connection(address) for _ in range(HALF_OPEN_PER_ADDRESS + 44)]
        while listener.counters["too many half-open"] < 44:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert len(listener.half_open) == HALF_OPEN_PER_ADDRESS
        mock_clock.jump(HANDSHAKE_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        assert len(listener.half_open) == 0
        assert listener.counters["slow handshakes"] == HALF_OPEN_PER_ADDRESS
        nursery.cancel_scope.cancel()
    for client in clients:
        client.close()


async def test_a_frame_of_eight_mebibytes_is_the_most_that_a_stranger_can_make_us_hold(rig: LinkRig) -> None:
    async with rig.client() as client:
        client.send_raw(b"\x01" * ((8 << 20) + 1))
        assert await client.receive() is None
    assert rig.documents.asked == {}


def silent_line(port: int, source: str) -> socket.socket:
    """A link that has upgraded and says nothing, from a loopback address."""
    line = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
    line.sendall(ClientWebSocket("ws://mn.b.example/link", subprotocol=SUBPROTOCOL).data_to_send())
    line.setblocking(False)
    return line


def byes(lines: list[socket.socket]) -> list[bytes]:
    """What each line received, if its connection has been ended."""
    received = []
    for line in lines:
        with contextlib.suppress(BlockingIOError):
            data = line.recv(65_536)
            if b"auth-limit" in data:
                received.append(data)
    return received


@asynccontextmanager
async def serving_links(rig: LinkRig) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(cast("NodeBus", None), context=None, acceptor=rig.endpoint.acceptor)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1_024)
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run, listeners)
        yield listener, listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_silent_lines_of_one_address_get_a_share_of_the_table_and_an_honest_one_its_link(
    rig: LinkRig,
) -> None:
    pending = rig.endpoint.acceptor.pending
    async with serving_links(rig) as (listener, port):
        lines = [silent_line(port, "127.0.0.2") for _ in range(2 * PENDING_LINKS)]
        await rig.wait_until(lambda: listener.counters["links"] + listener.counters["too many half-open"] == len(lines))
        await rig.wait_until(lambda: len(pending) == PENDING_LINKS_PER_ADDRESS)
        assert pending.count_of("127.0.0.2") == PENDING_LINKS_PER_ADDRESS
        other = silent_line(port, "127.0.0.3")
        await rig.wait_until(lambda: pending.count_of("127.0.0.3") == 1)
        assert byes([other]) == []
        for line in (*lines, other):
            line.close()
        await rig.wait_until(lambda: not pending and not listener.half_open)


async def test_a_full_table_costs_the_address_with_the_most_its_oldest_line_and_an_honest_one_nothing(
    rig: LinkRig,
) -> None:
    pending = rig.endpoint.acceptor.pending
    async with serving_links(rig) as (listener, port):
        early = silent_line(port, "127.0.1.1")
        await rig.wait_until(lambda: len(pending) == 1)
        hostile: list[socket.socket] = []
        for number in range(PENDING_LINKS // PENDING_LINKS_PER_ADDRESS + 2):
            hostile += [silent_line(port, f"127.0.2.{number + 1}") for _ in range(PENDING_LINKS_PER_ADDRESS)]
        await rig.wait_until(lambda: listener.counters["links"] == 1 + len(hostile))
        await rig.wait_until(lambda: rig.endpoint.acceptor.refused == 1 + len(hostile) - PENDING_LINKS)
        assert len(pending) == PENDING_LINKS
        late = silent_line(port, "127.0.1.2")
        await rig.wait_until(lambda: pending.count_of("127.0.1.2") == 1)
        assert pending.count_of("127.0.1.1") == 1
        assert byes([early, late]) == []
        async with rig.live_client() as client:  # by the same table, from an address of its own
            assert client.welcome is not None
        for line in (*hostile, early, late):
            line.close()
        await rig.wait_until(lambda: not pending and not listener.half_open)


async def test_a_line_that_waits_for_our_look_up_is_not_displaced_by_its_own_address(rig: LinkRig) -> None:
    documents, may_go_on = rig.documents, trio.Event()

    async def slow(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:
        await may_go_on.wait()
        return await documents.trust_of(domain, is_refresh)

    acceptor = rig.endpoint.acceptor
    acceptor.identity = Identity(
        node=node_of("b.example"), domains=["b.example"], key=documents.keys["b.example"], trust_of=slow
    )
    async with rig.client() as honest, serving_links(rig) as (listener, port):
        honest.say_hello()
        await honest.receive_challenge()
        honest.send(FrameKind.TOKEN, 0, honest.token())
        await rig.wait_until(lambda: any(entry.waits_for_us for entry in acceptor.pending._entries["127.0.0.1"]))
        lines = [silent_line(port, "127.0.0.1") for _ in range(4 * PENDING_LINKS_PER_ADDRESS)]
        await rig.wait_until(lambda: listener.counters["links"] == len(lines))
        may_go_on.set()
        await honest.receive_kind(FrameKind.WELCOME)
        for line in lines:
            line.close()
