"""Strangers at the site who stall, flood and come in numbers: each address has its share, and the others are served."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from msg_node.connectors import http_line, web_server
from msg_node.connectors.web_server import WebBounds, WebServer, listen
from msg_node.registries.guid_store import GuidStore
from msg_node.site.global_registry_server import GlobalRegistryServer
from protofly.limits import WEB_CONNECTIONS_PER_ADDRESS
from tests.support.runtime_rig import Wire
from tests.support.services import PATIENCE_SECONDS, until
from tests.support.web import ASK, EVE, HONEST, WebRig, open_descriptors, web_rig

TLS_STARTS = [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
HEADS = [b"", b"G", b"GET /livez HTTP/1.1\r\nHost: a\r\n", b"POST /.well-known/ HTTP/1.1\r\nHost: a\r\n"]
BODIES = [
    (b"Content-Length: 1000\r\n\r\n", b"a"),
    (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
]
"""How a body begins, and what comes again and again."""
GENEROUS = 100_000.0


@asynccontextmanager
async def nothing_is_kept() -> AsyncIterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() <= before


async def is_served(rig: WebRig, address: str = HONEST) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        assert (await rig.ask(address=address)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("start", TLS_STARTS)
async def test_stalled_tls_handshakes_are_given_up(
    tmp_path: Path, start: bytes, monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(web_server, "HANDSHAKE_SECONDS", 0.2)
    async with nothing_is_kept(), web_rig(tmp_path) as rig:
        stalled = [await rig.connect(EVE) for _ in range(20)]
        for wire in stalled:
            await wire.write(start)
        await is_served(rig)
        mock_clock.rate = 1.0  # until here it stood still, so that the honest one cannot be too slow
        assert [await wire.read_to_end() for wire in stalled] == [b""] * 20
        assert rig.server.counters["slow handshakes"] == 20
        for wire in stalled:
            await wire.cut()


@pytest.mark.parametrize("start", HEADS)
@pytest.mark.parametrize("is_second", [False, True])
async def test_head_that_does_not_end_is_given_up(
    start: bytes, is_second: bool, monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(web_server, "HANDSHAKE_SECONDS", 0.05)
    monkeypatch.setattr(http_line, "HTTP_KEEP_ALIVE_SECONDS", 0.05)
    async with nothing_is_kept(), web_rig() as rig:
        wire = await rig.wire(EVE)
        if is_second:
            await wire.write(ASK)
            assert (await wire.read()).startswith(b"HTTP/1.1 200 ")
        await wire.write(start)
        await is_served(rig)
        mock_clock.rate = 1.0
        await wire.read_to_end()
        await wire.cut()


@pytest.mark.parametrize(("start", "piece"), BODIES)
async def test_body_that_drips_is_given_up(tmp_path: Path, start: bytes, piece: bytes) -> None:
    async with nothing_is_kept(), served_registry(tmp_path, WebBounds(request_seconds=0.1)) as (url, server):
        wire = Wire(await trio.open_tcp_stream(HONEST, int(url.rpartition(":")[2]), local_address=EVE))
        await wire.write(b"PUT /guid/%b HTTP/1.1\r\nHost: a\r\n" % (b"A" * 43) + start)
        answer = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, wire, piece)
            answer = await wire.read_to_end()
            nursery.cancel_scope.cancel()
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        await wire.cut()
        await until(lambda: not server.open_connections)


async def drip(wire: Wire, piece: bytes) -> None:
    with pytest.raises(trio.BrokenResourceError):  # noqa: PT012 - until it is cut off
        while True:
            await wire.write(piece)
            await trio.sleep(0.01)


@asynccontextmanager
async def served_registry(folder: Path, bounds: WebBounds) -> AsyncIterator[tuple[str, WebServer]]:
    listener = listen(HONEST, 0, certificate=None, key=None)
    with GuidStore(folder / "guids.sqlite") as store:
        server = WebServer(GlobalRegistryServer(store, version="1").make_app(), listener, bounds)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            yield listener.url, server
            nursery.cancel_scope.cancel()


async def test_one_address_gets_its_share_of_connections_and_others_theirs() -> None:
    async with nothing_is_kept(), web_rig(requests_per_second=GENEROUS) as rig:
        held = [await rig.connect(EVE) for _ in range(WEB_CONNECTIONS_PER_ADDRESS)]
        for wire in held:
            await wire.write(b"G")
        refused = [await rig.connect(EVE) for _ in range(50)]
        assert [await wire.read() for wire in refused] == [b""] * 50
        await is_served(rig)
        assert rig.server.counters["too many connections"] == 50
        for wire in (*held, *refused):
            await wire.cut()
        await rig.forgotten()
        await is_served(rig, EVE)


async def test_full_table_gives_up_what_waits_longest_of_the_address_with_most() -> None:
    async with (
        nothing_is_kept(),
        web_rig(connections=20, connections_per_address=8, requests_per_second=GENEROUS) as rig,
    ):
        honest = await rig.wire()
        await honest.write(b"GET /livez HTTP/1.1\r\n")
        attackers = [f"127.0.0.{number}" for number in range(2, 12)]
        held = [await rig.connect(address) for _ in range(8) for address in attackers]
        for wire in held:
            await wire.write(b"G")
        for _ in range(10):
            await is_served(rig, "127.0.0.99")
        await honest.write(b"Host: localhost\r\n\r\n")
        assert (await honest.read()).startswith(b"HTTP/1.1 200 ")
        assert rig.server.open_connections <= 20
        assert rig.server.counters["displaced connections"] >= 60
        for wire in (honest, *held):
            await wire.cut()


async def test_honest_client_does_not_wait_for_others_that_stall(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with nothing_is_kept(), web_rig(tmp_path, requests_per_second=GENEROUS) as rig:
        held = [await rig.connect(f"127.0.0.{number}") for number in range(2, 10) for _ in range(32)]
        for wire in held:
            await wire.write(TLS_STARTS[2])
        for _ in range(10):  # time stands still: one that waited for those would wait for ever
            await is_served(rig)
        for wire in held:
            await wire.cut()


async def test_reader_that_stops_is_cut_off_with_a_part_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_line, "STUCK_SECONDS", 0.3)
    pieces, piece_bytes = 512, 64 << 10

    async def app(_scope: object, _receive: object, send: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        length = b"%d" % (pieces * piece_bytes)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for _ in range(pieces):
            await send({"type": "http.response.body", "body": bytes(piece_bytes), "more_body": True})

    listener = listen(HONEST, 0, certificate=None, key=None)
    server = WebServer(app, listener)
    async with nothing_is_kept(), trio.open_nursery() as nursery:
        await nursery.start(server.run)
        wire = Wire(await trio.open_tcp_stream(HONEST, int(listener.url.rpartition(":")[2])))
        await wire.write(ASK)
        await until(lambda: bool(server.open_connections))
        await until(lambda: not server.open_connections)
        assert len(await wire.read_to_end()) < pieces * piece_bytes
        await wire.cut()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_health_probes_cost_no_line_in_the_log(
    tmp_path: Path, is_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """TCP and nothing; TLS and nothing; either with a reset; garbage; a head and gone."""
    caplog.set_level(logging.DEBUG)
    async with nothing_is_kept(), web_rig(tmp_path if is_tls else None, requests_per_second=GENEROUS) as rig:
        for start, connect in 5 * [*product((b"", b"G", b"\x16\x03", b"\0" * 100, ASK), (rig.connect, rig.wire))]:
            wire = await connect()
            await wire.write(start) if start else None
            if start == b"G":
                wire.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await wire.cut()
        await rig.forgotten()
        await is_served(rig)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


@pytest.mark.parametrize("framing", BODIES)
async def test_a_client_that_goes_in_the_middle_of_its_body_costs_no_line_in_the_log(
    framing: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    asked = trio.Event()

    async def read(request: Request) -> Response:
        asked.set()
        return Response(await request.body())

    listener = listen(HONEST, 0, certificate=None, key=None)
    server = WebServer(Starlette(routes=[Route("/", read, methods=["POST"])]), listener, WebBounds())
    port = int(listener.url.rpartition(":")[2])
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        wire = Wire(await trio.open_tcp_stream(HONEST, port))
        await wire.write(b"POST / HTTP/1.1\r\nHost: a\r\n" + b"".join(framing))
        await asked.wait()
        await wire.cut()
        await until(lambda: not server.open_connections)
        wire = Wire(await trio.open_tcp_stream(HONEST, port))
        await wire.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab")
        assert (await wire.read()).endswith(b"\r\n\r\nab")
        await wire.cut()
        nursery.cancel_scope.cancel()
    assert caplog.records == []


async def test_no_client_gets_http_2(tmp_path: Path) -> None:
    async with nothing_is_kept(), web_rig(tmp_path) as rig:
        wire = await rig.wire()
        assert isinstance(wire.stream, trio.SSLStream)
        assert wire.stream.selected_alpn_protocol() == "http/1.1"
        await wire.cut()
        prior = await rig.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        assert prior.startswith(b"HTTP/1.1 505 ")
        upgrade = ASK[:-2] + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        assert (await rig.ask(upgrade)).startswith(b"HTTP/1.1 200 ")
        socket = ASK[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        socket += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        assert (await rig.ask(socket)).startswith(b"HTTP/1.1 200 ")
