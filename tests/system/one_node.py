"""One real node process without neighbours: started, killed and started again over the same folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import trio

from interop import processes
from tests.support.runtime_rig import PATIENCE_SECONDS, SESSION, Runtime, Wire, code_and_reason, runtime_address
from tests.support.status_members import unlisted
from tests.support.status_token import AS_OPERATOR, STATUS_TOKEN_SHA256
from wire.core.websocket import ClientWebSocket

SETTINGS = """
[node]
domain = "alpha.example"
data_dir = "data"
drain_seconds = 1
[listen]
port = 0
insecure_plaintext = true
[site]
port = 0
insecure_plaintext = true
status_token_sha256 = "STATUS_TOKEN_SHA256"
[sessions]
grace_seconds = {grace}
""".replace("STATUS_TOKEN_SHA256", STATUS_TOKEN_SHA256)


class Process:
    """One run of a node."""

    def __init__(self, child: processes.ChildProcess, ready: dict[str, Any]) -> None:
        self.child = child
        self.ready = ready
        self._wires: list[Wire] = []

    async def runtime(self, address: str | None = None) -> Runtime:
        """A WebSocket without a session, from that address of this machine."""
        port = int(self.ready["listen"].rpartition(":")[2].split("/")[0])
        stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
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

    async def status(self) -> dict[str, Any]:
        """What it says at `/status`: nothing that `docs/status.md` lacks."""
        async with httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR, timeout=PATIENCE_SECONDS) as client:
            status: dict[str, Any] = (await client.get(f"{self.ready['site']}/status")).json()
        assert unlisted(status) == []
        return status

    async def counters(self) -> dict[str, int]:
        counters: dict[str, int] = (await self.status())["counters"]
        return counters

    def hang_up(self) -> None:
        for wire in self._wires:
            wire.socket.close()

    def kill(self) -> None:
        os.kill(self.ready["pid"], signal.SIGKILL)


@asynccontextmanager
async def serving(
    folder: Path, settings: str, *, seconds: float = 240, program: Path | None = None, clock: Path | None = None
) -> AsyncIterator[Process]:
    """Run a node, for so long at most; leaving ends it, whatever has become of it.

    `program` is the source tree of another version; None: this one. `clock` is the file of `interop.lab.shifted_clock`
    that sets its time of day; None: the system's.
    """
    config = folder / "node.toml"
    config.write_text(settings)
    with trio.fail_after(seconds):
        shifted = [] if clock is None else ["interop.lab.shifted_clock", str(clock)]
        command = [sys.executable, "-m", *shifted, "trapezoid", "serve", "--config", str(config)]
        environment = None if program is None else {**os.environ, "PYTHONPATH": str(program)}
        child = await processes.open_process(command, stdout=subprocess.PIPE, cwd=program, env=environment)
        try:
            process = Process(child, await _ready_line(child))
            try:
                yield process
            finally:
                process.hang_up()
        finally:
            await _end(child)


async def _ready_line(child: processes.ChildProcess) -> dict[str, Any]:
    """What a node prints once it serves."""
    assert child.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        part = await child.stdout.receive_some()
        assert part, line
        line += part
    ready: dict[str, Any] = json.loads(line.removeprefix(b"ready "))
    return ready


async def _end(child: processes.ChildProcess) -> None:
    """Ask a node to end, and kill it when it takes too long."""
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
