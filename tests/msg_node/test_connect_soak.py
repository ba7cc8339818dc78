"""Upgrades under load, one after the other for a while: none may stall, and a watchdog says where one does.

`./run endurance` does that for longer, and `TRAPEZOID_SOAK_SECONDS` says for how long.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import threading
import time
from pathlib import Path

import pytest
import trio
import trustme

from tests.support.runtime_rig import SESSION, Runtime, RuntimeRig, a_message, runtime_address, runtime_rig
from tests.support.task_dump import dump_tasks

SOAK_SECONDS = float(os.environ.get("TRAPEZOID_SOAK_SECONDS", "20"))
SHORT_SECONDS = 3.0
CONNECTORS = 12
STALL_SECONDS = 8.0
"""Less than the ten seconds that were seen once, and more than a loaded machine takes."""
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Connector(threading.Thread):
    """Connects, opens a session and leaves, again and again; `since` says when the present attempt began."""

    def __init__(self, port: int, name: str, context: ssl.SSLContext | None, ends_at: float) -> None:
        super().__init__(name=name, daemon=True)
        self._port = port
        self._context = context
        self._ends_at = ends_at
        self.since: float | None = None
        self.phase = ""
        self.upgrades = 0
        self.slowest_seconds = 0.0
        self.failure = ""

    def run(self) -> None:
        try:
            while time.monotonic() < self._ends_at:
                self.since = began = time.monotonic()
                self._connect_once()
                self.since = None
                self.upgrades += 1
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
        except (OSError, AssertionError) as exc:
            self.failure = f"{self.name} in {self.phase}: {exc!r}"

    def _connect_once(self) -> None:
        self.phase = "connect"
        line = socket.create_connection(("127.0.0.1", self._port), timeout=3 * STALL_SECONDS)
        try:
            self.phase = "tls"
            if self._context is not None:
                line = self._context.wrap_socket(line, server_hostname="localhost")
            self.phase = "upgrade"
            for cut in (UPGRADE[:50], UPGRADE[50:]) if self.upgrades % 3 == 0 else (UPGRADE,):
                line.sendall(cut)
            assert b" 101 " in self._until(line, b"\r\n\r\n")
            self.phase = "open"
            opening = a_message("open", runtime_address(f"{self.name}-{self.upgrades}"), SESSION, id_=1)
            line.sendall(masked(json.dumps(opening).encode()))
            self._until(line, b"runtimeToken")
        finally:
            line.close()

    @staticmethod
    def _until(line: socket.socket, mark: bytes) -> bytes:
        data = b""
        while mark not in data:
            part = line.recv(65_536)
            assert part, data
            data += part
        return data


def masked(text: bytes) -> bytes:
    size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
    return b"\x81" + size + bytes(4) + text


async def flood(runtime: Runtime) -> None:
    while True:
        assert (await runtime.ask("ping", SESSION))["type"] == "pong"


async def watch(connectors: list[Connector]) -> str:
    """Wait for the end of all; what stalled, with all tasks of the node as they were then."""
    while any(one.is_alive() for one in connectors):
        await trio.sleep(0.25)
        now = time.monotonic()
        for one in connectors:
            since = one.since
            if since is not None and now - since > STALL_SECONDS:
                return f"{one.name} stalls in {one.phase} for {now - since:.1f} s\n{dump_tasks()}"
    return "\n".join(one.failure for one in connectors if one.failure)


async def soak(rig: RuntimeRig, client: ssl.SSLContext | None, seconds: float) -> list[Connector]:
    ends_at = time.monotonic() + seconds
    connectors = [Connector(rig.port, f"rt-{number}", client, ends_at) for number in range(CONNECTORS)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.bus.sweeper.run)
        for number in range(2):
            nursery.start_soon(flood, await rig.opened(f"flood-{number}", context=client))
        for one in connectors:
            one.start()
        trouble = await watch(connectors)
        nursery.cancel_scope.cancel()
    assert trouble == ""
    return connectors


@pytest.mark.long
@pytest.mark.parametrize("seconds", [SHORT_SECONDS, pytest.param(SOAK_SECONDS, marks=pytest.mark.endurance)])
@pytest.mark.parametrize("is_tls", [True, False])
async def test_no_upgrade_stalls_under_load(tmp_path: Path, is_tls: bool, seconds: float) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    async with runtime_rig(tmp_path, context=server if is_tls else None) as rig:
        connectors = await soak(rig, client if is_tls else None, seconds)
        assert rig.listener is not None
        assert rig.listener.counters["slow handshakes"] == rig.listener.counters["internal errors"] == 0
        assert rig.listener.counters["too many half-open"] == 0
        assert sum(one.upgrades for one in connectors) > CONNECTORS
        with trio.fail_after(10):
            while rig.listener.half_open:
                await trio.lowlevel.checkpoint()


async def test_the_watchdog_shows_what_a_stalled_task_waits_for() -> None:
    async def stall_for_a_test() -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stall_for_a_test)
        await trio.lowlevel.checkpoint()
        shown = dump_tasks()
        nursery.cancel_scope.cancel()
    assert "stall_for_a_test" in shown
    assert "test_connect_soak.py" in shown
