"""Clients of the field that exist only for Node.js: installed once from the lock file of each, then run as they are."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import trio

PEERS = Path(__file__).parents[1] / "peers"
_INSTALL_SECONDS = 120
_PATIENCE_SECONDS = 20.0


@cache
def installed(name: str) -> Path:
    """The folder of a peer with everything that its lock file names; the test is skipped where that cannot be had."""
    source = PEERS / name
    command = ["npm", "ci", "--prefix", str(source)]
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip(f"needs Node.js and npm, to run: {' '.join(command)}")
    lock = (source / "package-lock.json").read_bytes()
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trapezoid-tests"
    folder = root / f"{name}-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not (folder / "node_modules").is_dir():
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=root))
        for file in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(source / file, fresh)
        try:
            subprocess.run(["npm", "ci"], cwd=fresh, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
        except (subprocess.SubprocessError, OSError):
            shutil.rmtree(fresh)
            pytest.skip(f"npm could not install the peer; try: {' '.join(command)}")
        with contextlib.suppress(OSError):  # somebody else was faster
            fresh.rename(folder)
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


class NodePeer:
    """A script that runs: objects go in as lines, events come out as lines."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._received = b""

    async def order(self, **command: Any) -> None:
        assert self._process.stdin is not None
        with trio.fail_after(_PATIENCE_SECONDS):
            await self._process.stdin.send_all(json.dumps(command).encode() + b"\n")

    async def next(self) -> dict[str, Any]:
        """The next event, whatever it is."""
        assert self._process.stdout is not None
        with trio.fail_after(_PATIENCE_SECONDS):
            while b"\n" not in self._received:
                data = await self._process.stdout.receive_some()
                assert data, "the peer has ended"
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    async def until(self, name: str) -> dict[str, Any]:
        """The next event of that name; those before it are lost."""
        while True:
            event = await self.next()
            if event["event"] == name:
                return event


@asynccontextmanager
async def node_peer(name: str, script: str, argument: object) -> AsyncIterator[NodePeer]:
    """Run a script of `tests/peers/<name>`; it ends with its standard input."""
    folder = await trio.to_thread.run_sync(installed, name)
    environment = {**os.environ, "NODE_PATH": str(folder / "node_modules")}
    async with trio.open_nursery() as nursery:
        command = ["node", str(PEERS / name / script), json.dumps(argument)]
        run = partial(
            trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, check=False
        )
        process: trio.Process = await nursery.start(run)
        try:
            yield NodePeer(process)
        finally:
            nursery.cancel_scope.cancel()
