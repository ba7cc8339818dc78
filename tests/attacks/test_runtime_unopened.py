"""Connections that open no session: whatever they say, each has one deadline and counts for its address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import h11
import pytest
import trio
import trio.testing

from msg_node.bus import runtime_port, sweeper
from msg_node.connectors import half_open
from msg_node.connectors.core.engine_io import encode_payload
from protofly.limits import HALF_OPEN_PER_ADDRESS, OPEN_SECONDS
from tests.support.http_runtime import MESSAGES, opened_http
from tests.support.polling import PATH, HttpLine, engine_socket, heard, opened_polling, polling
from tests.support.runtime_rig import (
    PATIENCE_SECONDS,
    SESSION,
    Runtime,
    RuntimeRig,
    Wire,
    a_message,
    runtime_address,
    runtime_rig,
)
from wire.core.websocket import ClientWebSocket

SOON_SECONDS = 0.25
BROKEN_OPEN = a_message("open", "runtime://somebody.else/rt-1", SESSION, id_=1)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_open, "OPEN_SECONDS", SOON_SECONDS)
    monkeypatch.setattr(runtime_port, "OPEN_SECONDS", SOON_SECONDS)
    monkeypatch.setattr(half_open, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(sweeper, "SWEEP_SECONDS", 0.02)


async def none_left(rig: RuntimeRig) -> None:
    assert rig.listener is not None
    with trio.fail_after(10):
        while rig.listener.half_open or rig.bus.send_queues.connections or rig.socket_io._sessions:
            await trio.lowlevel.checkpoint()


async def shaken(rig: RuntimeRig, path: str) -> Runtime:
    runtime = Runtime(await rig.connect(), ClientWebSocket(f"ws://localhost{path}", is_binary=False))
    await runtime.shake_hands()
    return runtime


# What somebody does who opens no session. Each does one step; the test goes on until the connection has ended.

Step = Callable[[], Awaitable[None]]


async def pings(rig: RuntimeRig, path: str) -> tuple[Wire, Step]:
    runtime = await shaken(rig, path)

    async def step() -> None:
        runtime.websocket.ping(b"here")
        await runtime.wire.write(runtime.websocket.data_to_send())

    return runtime.wire, step


async def messages(rig: RuntimeRig, path: str) -> tuple[Wire, Step]:
    runtime = await shaken(rig, path)
    return runtime.wire, partial(runtime.say, a_message("ping", runtime_address("nobody"), SESSION, id_=1))


async def empty_fragments(rig: RuntimeRig, path: str) -> tuple[Wire, Step]:
    runtime = await shaken(rig, path)
    await runtime.wire.write(bytes([0x01, 0x80, 1, 2, 3, 4]))
    return runtime.wire, partial(runtime.wire.write, bytes([0x00, 0x80, 1, 2, 3, 4]))


async def engine_pings(rig: RuntimeRig, _path: str) -> tuple[Wire, Step]:
    socket = await engine_socket(rig)
    return socket.wire, partial(socket.say, b"2")


async def http_requests(rig: RuntimeRig, _path: str) -> tuple[Wire, Step]:
    line = HttpLine(await rig.connect())

    async def step() -> None:
        assert (await line.fetch("GET", MESSAGES)).status == 401

    return line.wire, step


async def http_opens(rig: RuntimeRig, _path: str) -> tuple[Wire, Step]:
    line = HttpLine(await rig.connect())

    async def step() -> None:
        body = json.dumps(BROKEN_OPEN).encode()
        assert (await line.fetch("POST", MESSAGES, body=body)).status in (200, 400, 403)

    return line.wire, step


async def preflights(rig: RuntimeRig, _path: str) -> tuple[Wire, Step]:
    line = HttpLine(await rig.connect())

    async def step() -> None:
        assert (await line.fetch("OPTIONS", f"{PATH}&transport=polling")).status == 200

    return line.wire, step


async def polling_posts(rig: RuntimeRig, _path: str) -> tuple[Wire, Step]:
    runtime = await polling(rig)

    async def step() -> None:
        await runtime.posts.fetch("POST", runtime.target, body=encode_payload([b"2"]))

    return runtime.posts.wire, step


async def go_on(wire: Wire, step: Step, *, reads: bool) -> None:
    """Do one step after the other until the connection has ended."""
    async with trio.open_nursery() as nursery:

        async def read_to_end() -> None:
            await wire.read_to_end()
            nursery.cancel_scope.cancel()

        if reads:
            nursery.start_soon(read_to_end)
        with suppress(trio.BrokenResourceError, AssertionError, h11.LocalProtocolError):  # the last: said to close
            while True:
                await step()
                await trio.sleep(SOON_SECONDS / 20)
        nursery.cancel_scope.cancel()


ATTEMPTS = {
    "pings": (pings, "/ws"),
    "messages": (messages, "/ws"),
    "empty fragments": (empty_fragments, "/ws"),
    "pings, dialect B": (pings, "/stub/connect"),
    "engine.io pings": (engine_pings, ""),
    "http requests": (http_requests, ""),
    "http opens": (http_opens, ""),
    "preflights": (preflights, ""),
    "polling posts": (polling_posts, ""),
}


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
async def test_the_time_without_a_session_runs_from_the_connect_whatever_is_said(
    rig: RuntimeRig,
    attempt: tuple[Callable[[RuntimeRig, str], Awaitable[tuple[Wire, Step]]], str],
    short: None,
    mock_clock: trio.testing.MockClock,
) -> None:
    begin, path = attempt
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.bus.sweeper.run)
        wire, step = await begin(rig, path)
        began = trio.current_time()
        mock_clock.rate = 1.0  # until here it stood still, so that the beginning cannot take too long
        with trio.fail_after(PATIENCE_SECONDS):
            await go_on(wire, step, reads=bool(path) or begin is engine_pings)
        assert trio.current_time() - began > SOON_SECONDS / 2
        await none_left(rig)
        nursery.cancel_scope.cancel()
    assert rig.listener is not None
    assert rig.listener.counters["internal errors"] == 0


async def test_a_websocket_without_a_session_learns_why_it_is_closed(
    rig: RuntimeRig, short: None, mock_clock: trio.testing.MockClock
) -> None:
    runtime = await rig.runtime()
    mock_clock.rate = 1.0
    assert await runtime.close_code() == 1008
    assert rig.listener is not None
    assert rig.listener.counters["without a session"] == 1


async def test_connections_with_a_session_have_no_deadline(rig: RuntimeRig, mock_clock: trio.testing.MockClock) -> None:
    ana, bob = await rig.opened("ana"), await opened_polling(rig, "bob")
    eve = await opened_http(rig, "eve")
    stream = await eve.stream()
    await bob.gets.ask("GET", bob.target)
    await trio.testing.wait_all_tasks_blocked(0.01)
    mock_clock.jump(OPEN_SECONDS + 1)
    await trio.testing.wait_all_tasks_blocked(0.01)
    for other in (bob.address, eve.address):
        await ana.say(a_message("event", ana.address, other, {"value": 1}))
    assert heard((await bob.gets.answer()).packets)[0]["body"] == {"value": 1}
    assert (await stream.message())["body"] == {"value": 1}


async def test_websockets_without_a_session_count_until_they_have_one(rig: RuntimeRig) -> None:
    assert rig.listener is not None
    waiting = [await rig.runtime() for _ in range(HALF_OPEN_PER_ADDRESS)]
    assert len(rig.listener.half_open) == HALF_OPEN_PER_ADDRESS
    refused = await rig.connect()
    assert await refused.read_to_end() == b""
    for number, runtime in enumerate(waiting[:3]):
        assert (await runtime.open(f"rt-{number}"))["body"]["code"] == 200
    assert len(rig.listener.half_open) == HALF_OPEN_PER_ADDRESS - 3
    assert (await rig.opened("ana")).token
    assert rig.listener.counters["too many half-open"] == 1


async def test_polling_sessions_count_until_their_runtimes_have_opened(rig: RuntimeRig) -> None:
    assert rig.listener is not None
    ana = await polling(rig)
    assert len(rig.listener.half_open) == 3  # the session, and the two connections that it came over
    await opened_polling(rig, "bob")
    assert len(rig.listener.half_open) == 3
    (session,) = [one for one in rig.socket_io._sessions.values() if one.sid == ana.sid]
    session.drop()
    for line in (ana.gets, ana.posts):
        await line.wire.cut()
    with trio.fail_after(10):
        while rig.listener.half_open:
            await trio.lowlevel.checkpoint()


async def test_when_all_places_are_taken_the_address_with_the_most_gives_one(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_open, "HALF_OPEN", 8)
    table = half_open.HalfOpen(rig.counters)
    ended: list[str] = []
    honest = table.enter("192.0.2.1", partial(ended.append, "honest"))
    for number in range(20):
        assert table.enter(f"2001:db8:0:{number % 2}::{number}", partial(ended.append, f"{number}")) is not None
    assert len(table) == 8
    assert honest is not None
    assert "honest" not in ended
    assert len(ended) == 13
    assert rig.counters["displaced half-open"] == 13


async def test_a_displaced_websocket_is_asked_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_open, "HALF_OPEN", 2)
    async with runtime_rig(tmp_path) as rig:
        first, second = await rig.runtime(), await rig.runtime()
        assert (await second.open("second"))["body"]["code"] == 200
        third = await rig.runtime()
        fourth = await rig.opened("fourth")
        assert await first.close_code() == 1013
        assert (await third.open("third"))["body"]["code"] == 200
        assert (await fourth.ask("ping", SESSION))["type"] == "pong"


async def test_one_session_over_http_keeps_only_so_many_connections(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_open, "LINES_PER_SESSION", 5)
    eve, bob = await opened_http(rig, "eve"), await opened_polling(rig, "bob")
    assert rig.listener is not None
    before = len(rig.listener.half_open)
    over_http = [HttpLine(await rig.connect()) for _ in range(10)]
    for line in over_http:
        headers = {"Authorization": f"Bearer {eve.token}"}
        assert (await line.fetch("GET", "/twin", headers=headers)).status == 200
    assert len(rig.listener.half_open) == before + 6  # the first one opened the session
    polling_lines = [HttpLine(await rig.connect()) for _ in range(10)]
    for line in polling_lines:
        assert (await line.fetch("POST", bob.target, body=encode_payload([b"2"]))).status == 200
    assert len(rig.listener.half_open) >= before + 6 + 5
    for line in over_http[:4]:  # these had their place, and it is free again
        await line.wire.cut()
    with trio.fail_after(10):
        while True:
            count = len(rig.listener.half_open)
            over_http.append(late := HttpLine(await rig.connect()))
            await late.fetch("GET", "/twin", headers=headers)
            if len(rig.listener.half_open) <= count:
                break
    for line in (*over_http, *polling_lines):
        await line.wire.cut()
