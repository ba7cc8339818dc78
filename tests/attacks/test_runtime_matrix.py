"""Dialects B and C in hostile hands: broken frames, handshakes that do not come, queries that lie."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.support.runtime_rig import (
    SESSION,
    Runtime,
    RuntimeRig,
    a_message,
    runtime_address,
    runtime_rig,
)
from wire.core.websocket import ClientWebSocket

CONNECT = json.dumps({"cmd": "connect", "data": {"runtimeURL": runtime_address("ana")}}).encode()
PATHS = {"b": "/stub/connect", "c": "/stub/connect?runtimeURL=runtime%3A%2F%2Falpha.example%2Fana"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def shaken(rig: RuntimeRig, path: str) -> Runtime:
    wire = await rig.connect()
    runtime = Runtime(wire, ClientWebSocket(f"ws://localhost{path}", is_binary=False, max_bytes=8 << 20))
    await runtime.shake_hands()
    runtime.address = runtime_address("ana")
    return runtime


async def connected(rig: RuntimeRig, dialect: str) -> Runtime:
    runtime = await shaken(rig, PATHS[dialect])
    if dialect == "b":
        await runtime.say_raw(CONNECT)
        assert (await runtime.next())["response"] == 200
    return runtime


async def gone(rig: RuntimeRig) -> None:
    with trio.fail_after(10):
        while rig.bus.send_queues.connections:
            await trio.lowlevel.checkpoint()


async def check_neighbours(rig: RuntimeRig) -> None:
    bo = await rig.opened("bo")
    assert (await bo.ask("ping", SESSION))["type"] == "pong"
    assert rig.listener is not None
    assert rig.listener.counters["internal errors"] == 0


BROKEN_FRAMES = {
    "unmasked": (b'\x81\x0b{"a":"no"}  ', 1002),
    "reserved bits": (b"\xf1\x82\0\0\0\0{}", 1002),
    "reserved opcode": (b"\x83\x82\0\0\0\0{}", 1002),
    "binary": (b"\x82\x82\0\0\0\0{}", 1003),
    "too large": (b"\x81\xff" + (1 << 40).to_bytes(8, "big") + b"\0\0\0\0", 1009),
    "long control frame": (b"\x89\xfe\x00\x7e\0\0\0\0" + b"x" * 126, 1002),
    "continuation of nothing": (b"\x80\x82\0\0\0\0{}", 1002),
}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("kind", BROKEN_FRAMES)
async def test_broken_frames_end_the_connection_with_their_code(rig: RuntimeRig, dialect: str, kind: str) -> None:
    frame, code = BROKEN_FRAMES[kind]
    ana = await connected(rig, dialect)
    await ana.wire.write(frame)
    assert await ana.close_code() == code
    await rig.until("sessions lost")
    await check_neighbours(rig)


@pytest.mark.parametrize("kind", BROKEN_FRAMES)
async def test_broken_frames_in_place_of_the_handshake_end_the_connection(rig: RuntimeRig, kind: str) -> None:
    frame, code = BROKEN_FRAMES[kind]
    ana = await shaken(rig, PATHS["b"])
    await ana.wire.write(frame)
    assert await ana.close_code() == code
    await gone(rig)
    await check_neighbours(rig)


async def test_a_handshake_that_does_not_come_is_not_waited_for(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msg_node.connectors.matrix.HANDSHAKE_SECONDS", 0.02)
    silent = [await shaken(rig, PATHS["b"]) for _ in range(5)]
    for runtime in silent:
        assert await runtime.close_code() is None
    await gone(rig)
    await check_neighbours(rig)


@pytest.mark.parametrize("dialect", PATHS)
async def test_nonsense_in_a_row_closes_the_connection(rig: RuntimeRig, dialect: str) -> None:
    ana = await connected(rig, dialect)
    await ana.say_raw(*[b"no json"] * 5)
    assert await ana.close_code() == 1002
    await check_neighbours(rig)


@pytest.mark.parametrize("dialect", PATHS)
async def test_what_follows_a_disconnect_in_the_same_breath_is_nobodys(rig: RuntimeRig, dialect: str) -> None:
    bo = await rig.opened("listener")
    ana = await connected(rig, dialect)
    leave = json.dumps({"cmd": "disconnect", "data": {"runtimeURL": ana.address}}).encode()
    ghost = json.dumps(a_message("event", ana.address, bo.address, {"value": "ghost"})).encode()
    await ana.say_raw(leave, ghost, leave, CONNECT, ghost)
    assert await ana.close_code() == 1000
    assert await bo.heard() == []
    await gone_but(rig, 1)
    await check_neighbours(rig)


async def gone_but(rig: RuntimeRig, number: int) -> None:
    with trio.fail_after(10):
        while len(rig.bus.send_queues.connections) > number:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "query",
    [
        "runtimeURL=%00",
        "runtimeURL=%ff%fe",
        "runtimeURL=runtime://alpha.example/../mn-1",
        "runtimeURL=" + "x" * 8000,
        "runtimeURL=runtime://alpha.example/ana%0d%0aX-Injected:%20yes",
        "runtimeURL=runtime://alpha.example/ana/secret-token",
        "runtimeURL=hyperty://alpha.example/h",
        "&".join(f"p{number}=1" for number in range(500)) + "&runtimeURL=runtime://alpha.example/ana",
    ],
)
async def test_queries_that_lie_are_refused_and_leave_nothing_behind(rig: RuntimeRig, query: str) -> None:
    wire = await rig.connect()
    websocket = ClientWebSocket(f"ws://localhost/stub/connect?{query}", is_binary=False)
    await wire.write(websocket.data_to_send())
    answer = await wire.read_to_end()
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"X-Injected" not in answer.partition(b"\r\n\r\n")[0]
    assert len(rig.state.sessions) == 0
    await gone(rig)
    await check_neighbours(rig)
