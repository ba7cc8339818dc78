"""Connections that stop half-way cost a socket for some seconds, and one address gets a bounded number of them."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from trio.testing import MockClock

from msg_node.connectors import listener as listener_module
from msg_node.connectors.half_open import Newcomer
from protofly.limits import HALF_OPEN_PER_ADDRESS
from tests.support.runtime_rig import SESSION, Runtime, RuntimeRig, Wire, a_message, runtime_rig
from tests.support.services import until

STARTS = [b"", b"G", b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture
def newcomers(monkeypatch: pytest.MonkeyPatch) -> list[Newcomer]:
    """All connections that come."""
    made: list[Newcomer] = []

    class Remembered(Newcomer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(listener_module, "Newcomer", Remembered)
    return made


async def forgotten(rig: RuntimeRig) -> None:
    assert rig.listener is not None
    with trio.fail_after(10):
        while rig.listener.half_open:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("start", STARTS)
async def test_an_upgrade_that_does_not_end_is_given_up(
    rig: RuntimeRig, start: bytes, monkeypatch: pytest.MonkeyPatch, newcomers: list[Newcomer], mock_clock: MockClock
) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_SECONDS", 0.02)
    phase = "half a request" if start else "no request"
    wire = await rig.connect()
    await wire.write(start)
    await until(lambda: [one.phase for one in newcomers] == [phase])
    mock_clock.rate = 1.0  # until here it stood still, so that the start cannot come too late
    assert await wire.read_to_end() == b""
    await forgotten(rig)
    assert rig.listener is not None
    assert rig.listener.counters["slow handshakes"] == 1
    assert rig.listener.counters[f"slow handshakes, {phase}"] == 1


@pytest.mark.parametrize("start", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
async def test_a_tls_handshake_that_does_not_end_is_given_up(
    tmp_path: Path, server_context: ssl.SSLContext, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_SECONDS", 0.02)
    async with runtime_rig(tmp_path, context=server_context) as rig:
        wire = await rig.connect()
        await wire.write(start)
        assert await wire.read_to_end() == b""
        await forgotten(rig)
        assert rig.listener is not None
        assert rig.listener.counters["slow handshakes, no TLS"] == 1


async def drip(wire: Wire, byte: bytes) -> bytes:
    """A byte again and again, until the node says something or ends the connection."""
    while True:
        with trio.move_on_after(0.002):
            return await wire.read()
        try:
            await wire.write(byte)
        except trio.BrokenResourceError:
            return b""


@pytest.mark.parametrize("byte", [b"x", b"\n"])
async def test_an_upgrade_that_drips_is_given_up_as_soon_as_one_that_stops(
    rig: RuntimeRig, byte: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_SECONDS", 0.05)
    wire = await rig.connect()
    await wire.write(STARTS[2] + b"X: ")
    with trio.fail_after(10):
        assert await drip(wire, byte) == b""
    await forgotten(rig)
    assert rig.listener is not None
    assert rig.listener.counters["slow handshakes"] == 1


async def listen(runtime: Runtime) -> None:
    """Read for ever, as every good runtime does: that answers pings."""
    while True:
        await runtime.next()


async def test_a_line_that_is_dead_without_a_word_ends_after_three_ping_periods(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        dead, bo = await rig.opened("dead"), await rig.opened("bo")
        ports = [rig.port_of("dead"), rig.port_of("bo")]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, bo)
            for period, port in product((1, 2, 3), ports):
                port.check(time.time() + 30.0 * period + 1.0, ping_seconds=30.0)
                await until(lambda: not ports[1].pings_unanswered)
            await rig.until("sessions lost")  # nothing was read or written there, and the socket was not closed
            nursery.cancel_scope.cancel()
        assert rig.counters["silent runtimes"] == 1
        assert rig.bus.runtimes.live_sessions == 1
        assert rig.bus.runtimes.runtime_of(rig.port_of("bo")) == bo.address
        assert await dead.wire.read_to_end() == b"\x89\x00\x89\x00"  # asked twice
        back = await rig.runtime()
        assert (await back.ask("re-open", SESSION, from_=dead.session_address))["body"]["code"] == 200
        await back.say(a_message("event", dead.address, bo.address, {"value": 1}))
        await back.heard()
        assert [one["body"]["value"] for one in await bo.heard()] == [1]


async def test_one_address_gets_so_many_half_open_connections_and_then_no_more(rig: RuntimeRig) -> None:
    assert rig.listener is not None
    waiting = [await rig.connect() for _ in range(HALF_OPEN_PER_ADDRESS)]
    refused = await rig.connect()
    assert await refused.read_to_end() == b""
    assert rig.listener.counters["too many half-open"] == 1
    for wire in waiting[:10]:
        await wire.cut()
    with trio.fail_after(10):
        while len(rig.listener.half_open) > HALF_OPEN_PER_ADDRESS - 10:
            await trio.lowlevel.checkpoint()
    assert (await rig.opened("ana")).token


async def test_address_whose_connections_open_nothing_gets_no_more_and_the_others_are_served(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, unopened_per_second=0.2) as rig:  # five at once
        assert rig.listener is not None
        for _ in range(5):
            wire = await rig.connect(address="127.0.0.2")
            await wire.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await wire.read_to_end()).startswith(b"HTTP/1.1 4")
        assert await (await rig.connect(address="127.0.0.2")).read_to_end() == b""
        assert rig.listener.counters["too many unopened"] == 1
        assert (await rig.opened("ana")).token


async def test_connections_that_open_sessions_cost_their_address_nothing(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, unopened_per_second=0.2) as rig:
        for number in range(12):
            await rig.opened(f"rt-{number}")
        assert rig.listener is not None
        assert rig.listener.counters["too many unopened"] == 0
        for _ in range(4):
            await (await rig.connect()).cut()
        assert (await rig.opened("last")).token


async def test_half_open_connections_do_not_count_against_open_ones(rig: RuntimeRig) -> None:
    for number in range(5):
        await rig.opened(f"rt-{number}")
    await forgotten(rig)
    assert rig.bus.runtimes.live_sessions == 5
    assert rig.listener is not None
    assert rig.listener.counters["runtimes"] == 5


@pytest.mark.parametrize("is_tls", [False, True])
async def test_health_probes_cost_no_line_in_the_log(
    tmp_path: Path, server_context: ssl.SSLContext, is_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """TCP and nothing, garbage, TLS and nothing, a head and gone."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.ERROR, "websockets")  # as a node does
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    async with runtime_rig(tmp_path, context=server_context if is_tls else None) as rig:
        for start in (b"", b"G", b"\x16\x03", bytes(100), b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"):
            for context in (None, client) if is_tls else (None,):
                wire = await rig.connect(context=context)
                await wire.write(start) if start else None
                await wire.cut()
        await forgotten(rig)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []
