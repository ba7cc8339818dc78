"""Sessions of a real node process: killed and started again, with tokens that end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import trio
import zstandard

from protofly.websocket import ClientWebSocket
from tests.support.runtime_house import PATIENCE_SECONDS, SESSION, Runtime, Wire, code_and_reason, runtime_address
from tests.support.token_issuer import TokenIssuer

from .systems import wait_until

ANA, BO = runtime_address("ana"), runtime_address("bo")
LOGIN = TokenIssuer(algorithm="EdDSA")
SETTINGS = """
[node]
domain = "alpha.example"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[site]
port = 0
insecure_plaintext = true
[sessions]
grace_seconds = {grace}
"""
ISSUER = f"""
[[sessions.issuer]]
issuer = "{LOGIN.issuer}"
audience = "runtimes.alpha.example"
jwks = "login.json"
skew_seconds = 0
"""


class Process:
    """One run of a node."""

    def __init__(self, child: trio.Process, ready: dict[str, Any]) -> None:
        self.child = child
        self.ready = ready
        self._wires: list[Wire] = []

    async def runtime(self) -> Runtime:
        """A WebSocket without a session."""
        stream = await trio.open_tcp_stream("127.0.0.1", int(self.ready["listen"].rpartition(":")[2].split("/")[0]))
        wire = Wire(stream)
        self._wires.append(wire)
        runtime = Runtime(wire, ClientWebSocket(self.ready["listen"], is_binary=False))
        await runtime.shake_hands()
        return runtime

    async def by_query(self, name: str) -> Runtime:
        """A runtime of dialect C, connected or refused."""
        stream = await trio.open_tcp_stream("127.0.0.1", int(self.ready["listen"].rpartition(":")[2].split("/")[0]))
        wire = Wire(stream)
        self._wires.append(wire)
        target = f"/stub/connect?runtimeURL={quote(runtime_address(name), safe='')}"
        runtime = Runtime(wire, ClientWebSocket(self.ready["listen"].removesuffix("/ws") + target, is_binary=False))
        await runtime.shake_hands()
        runtime.address = runtime_address(name)
        return runtime

    async def opened(self, name: str, body: dict[str, object] | None = None) -> Runtime:
        runtime = await self.runtime()
        assert code_and_reason(await runtime.open(name, body)) == (200, "")
        return runtime

    async def returned(self, lost: Runtime) -> tuple[Runtime, int]:
        """Re-open what was lost; the runtime and the code of the answer."""
        runtime = await self.runtime()
        runtime.address, runtime.token = lost.address, lost.token
        reply = await runtime.ask("re-open", SESSION, from_=lost.session_address)
        return runtime, reply["body"]["code"]

    async def counters(self) -> dict[str, int]:
        async with httpx.AsyncClient(trust_env=False) as client:
            counters: dict[str, int] = (await client.get(f"{self.ready['site']}/status")).json()["counters"]
            return counters

    def hang_up(self) -> None:
        for wire in self._wires:
            wire.socket.close()

    def kill(self) -> None:
        os.kill(self.ready["pid"], signal.SIGKILL)


@asynccontextmanager
async def serving(folder: Path, settings: str) -> AsyncIterator[Process]:
    """Run a node; leaving ends it, whatever has become of it."""
    config = folder / "node.toml"
    config.write_text(settings)
    with trio.fail_after(60):
        command = [sys.executable, "-m", "trapezoid", "serve", "--config", str(config)]
        child = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        try:
            assert child.stdout is not None
            line = b""
            while not line.endswith(b"\n"):
                part = await child.stdout.receive_some()
                assert part, line
                line += part
            process = Process(child, json.loads(line.removeprefix(b"ready ")))
            try:
                yield process
            finally:
                process.hang_up()
        finally:
            if child.poll() is None:
                child.terminate()
            with trio.move_on_after(PATIENCE_SECONDS, shield=True):
                await child.wait()
            if child.poll() is None:
                child.kill()
                with trio.CancelScope(shield=True):
                    await child.wait()
            if child.stdout is not None:
                await child.stdout.aclose()


@pytest.mark.long
async def test_a_killed_node_gives_back_what_sessions_held_until_their_grace_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, SETTINGS.format(grace=120)) as node:
        ana, bo = await node.opened("ana"), await node.opened("bo")
        room, hall = await ana.allocated(), await bo.allocated()
        assert code_and_reason(await ana.subscribed(f"{hall}/changes"))[0] == 200
        node.kill()
        await node.child.wait()

    async with serving(tmp_path, SETTINGS.format(grace=120)) as node:
        (ana, ana_code), (bo, bo_code) = await node.returned(ana), await node.returned(bo)
        assert (ana_code, bo_code) == (200, 200)
        await bo.say({"type": "update", "from": hall, "to": f"{hall}/changes", "body": {"value": 7}})
        assert (await ana.next())["body"]["value"] == 7  # the subscription
        await bo.say({"id": 9, "type": "read", "from": BO, "to": room})
        assert (await ana.next())["to"] == room  # the address
        thief = await node.runtime()
        reply = await thief.ask("open", SESSION, from_=ANA)
        assert code_and_reason(reply) == (409, "address-taken")
        node.kill()
        await node.child.wait()

    async with serving(tmp_path, SETTINGS.format(grace=0.2)) as node:
        await wait_until(node.counters, lambda counters: counters.get("sessions expired") == 2)
        assert (await node.returned(ana))[1] == 500
        bo = await node.opened("bo")
        reply = await bo.ask("read", room)
        assert code_and_reason(reply) == (404, "no-route")
    assert session_events(tmp_path)[-4:] == [  # of the last run; a kill may cost the records of a moment
        ("expired", None),
        ("expired", None),
        ("refused", "bad-token"),
        ("opened", None),
    ]


@pytest.mark.long
async def test_with_the_switch_a_killed_node_gives_back_by_address_what_stubs_without_a_token_held(
    tmp_path: Path,
) -> None:
    settings = SETTINGS.format(grace=120) + "[compat]\nreturn_by_address = true\n"
    async with serving(tmp_path, settings) as node:
        ana = await node.by_query("ana")
        room = await ana.allocated()
        node.kill()
        await node.child.wait()
    async with serving(tmp_path, settings) as node:
        ana, bo = await node.by_query("ana"), await node.opened("bo")
        await bo.say({"id": 9, "type": "read", "from": BO, "to": room})
        assert (await ana.next())["to"] == room


def session_events(folder: Path) -> list[tuple[str, str | None]]:
    """What the record files say about sessions, without the connections that the end of a run cut."""
    events = []
    for path in sorted((folder / "data" / "records").rglob("*session*.zst")):
        with path.open("rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            events += [json.loads(line) for line in reader.read().splitlines()]
    return [(event["event"], event.get("code")) for event in events if event["event"] != "lost" or event.get("code")]


@pytest.mark.long
async def test_a_session_ends_with_its_token_and_goes_on_with_a_fresh_one(tmp_path: Path) -> None:
    (tmp_path / "login.json").write_text(json.dumps(LOGIN.jwks))

    def bearer(seconds: float, of: str = ANA) -> dict[str, object]:
        now = time.time()
        token = LOGIN.token(of, now=now - 1, exp=now + seconds)
        return {"credentials": {"kind": "bearer", "token": token}}

    async with serving(tmp_path, SETTINGS.format(grace=120) + "anonymous = false\n" + ISSUER) as node:
        ana = await node.runtime()
        ana.address = ANA
        assert code_and_reason(await ana.ask("open", SESSION)) == (401, "no-credentials")
        reply = await ana.open("ana", bearer(2))
        assert reply["body"]["code"] == 200
        assert reply["body"]["session"]["expires"] <= 2
        room = await ana.allocated()
        told = await ana.next()
        assert told["to"] == f"{ANA}/status"
        assert told["body"] == {"value": "expired", "reason": "bad-token"}
        assert await ana.close_code() == 4401
        _, code = await node.returned(ana)
        assert code == 500
        back = await node.runtime()
        back.address, back.token = ana.address, ana.token
        reply = await back.ask("re-open", SESSION, bearer(300), from_=back.session_address)
        assert reply["body"]["code"] == 200
        bo = await node.opened("bo", bearer(300, of=BO))
        await bo.say({"id": 1, "type": "read", "from": BO, "to": room})
        assert (await back.next())["to"] == room
        counters = await node.counters()
        assert (counters["sessions lost"], counters["sessions re-opened"]) == (1, 1)
    assert [event for event, _ in session_events(tmp_path)] == [
        "refused",
        "opened",
        "lost",
        "refused",
        "re-opened",
        "opened",
    ]
