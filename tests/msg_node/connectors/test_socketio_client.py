"""A real socket.io 1.x client, as the stubs of the Node.js node use it, against the listener."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from tests.support.node_peers import NodePeer, node_peer
from tests.support.runtime_rig import (
    ALLOCATION,
    SESSION,
    SM,
    Json,
    RuntimeRig,
    a_message,
    runtime_address,
    runtime_rig,
)

pytestmark = pytest.mark.long

GREETING = "Grüße, 日本 \U0001f600 \u2028 \x7f"


class SocketIoRuntime:
    """A runtime whose stub is the real client."""

    def __init__(self, peer: NodePeer, address: str) -> None:
        self.peer = peer
        self.address = address
        self._numbers = count(1)

    async def say(self, message: Json) -> None:
        await self.peer.order(do="say", message=message)

    async def heard(self) -> dict[str, Any]:
        """The next message, with the transport that brought it."""
        return await self.peer.until("message")

    async def ask(self, type_: str, to: str, body: Mapping[str, object] | None = None) -> Json:
        id_ = next(self._numbers)
        await self.say(a_message(type_, self.address, to, body, id_=id_))
        while True:
            message: Json = (await self.heard())["data"]
            if message.get("id") == id_:
                return message


@asynccontextmanager
async def client(
    rig: RuntimeRig, *, name: str = "ana", scheme: str = "http", mute: bool = False, **options: Any
) -> AsyncIterator[SocketIoRuntime]:
    """The client, connected."""
    argument = {"url": f"{scheme}://localhost:{rig.port}", "options": options, "mute": mute}
    async with node_peer("socketio_1", "client.js", argument) as peer:
        assert await peer.next() == {
            "event": "connect",
            "transport": "websocket" if options.get("transports") == ["websocket"] else "polling",
            "sid": list(rig.socket_io._sessions)[-1],
        }
        yield SocketIoRuntime(peer, runtime_address(name))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


WAYS: list[dict[str, Any]] = [{}, {"transports": ["polling"]}, {"transports": ["websocket"]}]


@pytest.mark.parametrize("options", WAYS)
async def test_a_stub_of_the_node_js_node_opens_allocates_subscribes_and_talks_both_ways(
    rig: RuntimeRig, options: dict[str, Any]
) -> None:
    bo = await rig.opened("bo")
    async with client(rig, **options) as ana:
        opened = await ana.ask("open", SESSION)
        assert opened["body"]["code"] == 200
        assert opened["body"]["desc"] == "OK"
        assert "runtimeToken" not in opened["body"]
        body = {"scheme": "comm", "value": {"number": 2, "allocationKey": "k"}}
        allocated = (await ana.ask("create", ALLOCATION, body))["body"]["value"]["allocated"]
        assert len(allocated) == 2
        theirs = await bo.allocated()
        assert (await ana.ask("subscribe", SM, {"resources": [f"{theirs}/changes"]}))["body"]["code"] == 200
        await bo.say(a_message("update", theirs, f"{theirs}/changes", {"value": GREETING}))
        assert (await ana.heard())["data"]["body"]["value"] == GREETING
        for address in (allocated[0], f"{ana.address}/sm"):
            await bo.say(a_message("read", bo.address, address, {"value": GREETING}, id_=7))
            assert (await ana.heard())["data"]["to"] == address
            await ana.say(a_message("response", address, bo.address, {"code": 200, "value": GREETING}, id_=7))
            assert (await bo.next())["body"]["value"] == GREETING


async def test_the_client_moves_to_a_websocket_and_its_session_moves_with_it(rig: RuntimeRig) -> None:
    async with client(rig) as ana:
        assert (await ana.ask("open", SESSION))["body"]["code"] == 200
        with trio.fail_after(10):
            while rig.socket_io._polling:
                await trio.lowlevel.checkpoint()
        bo = await rig.opened("bo")
        for number in range(20):
            await bo.say(a_message("event", bo.address, ana.address, {"value": [number, GREETING]}))
        heard = [await ana.heard() for _ in range(20)]
        assert [one["data"]["body"]["value"] for one in heard] == [[number, GREETING] for number in range(20)]
        assert heard[-1]["transport"] == "websocket"
        assert rig.bus.runtimes.live_sessions == 2


async def test_the_first_message_may_come_before_the_move_and_none_is_lost_on_the_way(rig: RuntimeRig) -> None:
    async with client(rig) as ana:
        asked = [a_message("ping", ana.address, SESSION, {"value": GREETING}, id_=number) for number in range(200)]
        await ana.say(a_message("open", ana.address, SESSION, id_="o"))
        for message in asked:
            await ana.say(message)
        answers = [(await ana.heard())["data"]["id"] for _ in range(201)]
        answers.remove("o")  # it waits for the disk
        assert answers == list(range(200))


@pytest.mark.parametrize("options", WAYS)
async def test_a_client_that_leaves_has_a_session_that_is_lost_and_one_that_says_close_has_none(
    rig: RuntimeRig, options: dict[str, Any]
) -> None:
    async with client(rig, **options) as ana:
        await ana.ask("open", SESSION)
        await ana.peer.order(do="leave")
        await rig.until("sessions lost")
    async with client(rig, **options) as ana:
        await ana.ask("open", SESSION)
        await ana.say(a_message("close", ana.address, SESSION, id_=9))
        assert (await ana.peer.until("disconnect"))["reason"] == "io server disconnect"
        assert [session.is_displaced for session in rig.state.sessions] == [True]  # what the first one left


@pytest.mark.parametrize("options", WAYS)
async def test_a_node_that_stops_says_so_and_disconnects(rig: RuntimeRig, options: dict[str, Any]) -> None:
    async with client(rig, **options) as ana:
        await ana.ask("open", SESSION)
        rig.stop()
        assert (await ana.heard())["data"]["body"]["value"] == "draining"
        assert (await ana.peer.until("disconnect"))["reason"] == "io server disconnect"
        assert len(rig.state.sessions) == 1


@pytest.mark.parametrize("options", WAYS)
async def test_a_client_that_pings_stays_and_one_that_falls_silent_is_dropped(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async with runtime_rig(tmp_path, ping_seconds=2.0) as rig, trio.open_nursery() as nursery:
        nursery.start_soon(rig.bus.sweeper.run)
        async with client(rig, name="bo", mute=True, **options) as bo:
            await bo.ask("open", SESSION)
            await rig.until("sessions lost")
            assert (await bo.peer.until("disconnect"))["reason"] in (
                "transport close",
                "transport error",
                "ping timeout",
            )
        async with client(rig, **options) as ana:
            await ana.ask("open", SESSION)
            for _ in range(2):
                await ana.peer.until("pong")
            assert (await ana.ask("ping", SESSION))["type"] == "pong"
        nursery.cancel_scope.cancel()


async def test_over_tls_as_without(tmp_path: Path) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    async with (
        runtime_rig(tmp_path, context=context) as rig,
        client(rig, scheme="https", ca=authority.cert_pem.bytes().decode()) as ana,
    ):
        assert (await ana.ask("open", SESSION))["body"]["code"] == 200
        pong = await ana.ask("ping", SESSION, {"value": GREETING})
        assert pong["type"] == "pong"
