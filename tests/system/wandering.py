"""Nodes of a domain that stop, die and start again, and runtimes that bring their sessions from one to the other."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from interop.free_ports import free_ports
from tests.support.postgres import Postgres
from tests.support.runtime_rig import Json, Runtime, a_message
from tests.system.one_node import SETTINGS, Process, serving

PATIENCE_SECONDS = 60
RUN_SECONDS = 3_600


class LostSessionError(Exception):
    """No node gives a session back any more."""


class Domain:
    """Nodes of alpha.example by name; each may reach the engine, or be reached by others, by a passage.

    Attributes:
        database: Of these nodes, in the engine.
        replicas: Ports of replicas of the engine, which nodes try behind it.
    """

    def __init__(self, folder: Path, engine: Postgres, names: tuple[str, ...]) -> None:
        self._folder = folder
        self.database = engine.new_database()
        self.replicas: tuple[int, ...] = ()
        self.engine_port = dict.fromkeys(names, engine.port)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.advertised = dict(self.ports)
        self._key = folder / "cluster.key"
        self._key.write_bytes(os.urandom(32))
        self._key.chmod(0o600)

    def settings(self, name: str) -> str:
        named = SETTINGS.format(grace=3600).replace('data_dir = "data"', f'data_dir = "data"\nname = "{name}"')
        hosts = ",".join(f"127.0.0.1:{port}" for port in (self.engine_port[name], *self.replicas))
        url = f"postgresql://trapezoid@{hosts}/{self.database}"
        return (
            f'{named}[storage]\nengine = "{url}"\ntls = "off"\n[cluster]\nlisten = "127.0.0.1:{self.ports[name]}"\n'
            f'advertise = "127.0.0.1:{self.advertised[name]}"\nkey_file = "{self._key}"\n'
        )

    @asynccontextmanager
    async def node(self, name: str) -> AsyncIterator[Process]:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        async with serving(folder, self.settings(name), seconds=RUN_SECONDS) as process:
            yield process


async def answer_all(runtime: Runtime) -> None:
    """Answer every request, until cancelled."""
    while True:
        message = await runtime.next()
        if message["type"] in ("read", "ping"):
            body = {"code": 200, "value": (message.get("body") or {}).get("n")}
            await runtime.say(a_message("response", message["to"], message["from"], body, id_=message["id"]))


async def until_reached(asker: Runtime, target: Runtime) -> None:
    """Wait until nodes that have just started know each other."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_all, target)
        with trio.fail_after(PATIENCE_SECONDS):
            while (await asker.ask("ping", target.address))["body"]["code"] == 503:  # noqa: ASYNC110  others decide
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()


class Nodes:
    """Running nodes of a domain, each of which can be stopped and started again."""

    def __init__(self, domain: Domain, nursery: trio.Nursery) -> None:
        self._domain = domain
        self._nursery = nursery
        self._ends: dict[str, tuple[trio.Event, trio.Event]] = {}
        self.running: dict[str, Process] = {}

    async def start(self, name: str) -> None:
        await self._nursery.start(self._run, name)

    async def stop(self, name: str) -> None:
        """Have a node stop in order."""
        wanted, has_ended = self._ends[name]
        wanted.set()
        await has_ended.wait()

    async def kill(self, name: str) -> None:
        """Kill a node with SIGKILL, at once."""
        process, (wanted, has_ended) = self.running[name], self._ends[name]
        process.kill()
        wanted.set()
        await has_ended.wait()

    async def _run(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        wanted, has_ended = self._ends[name] = trio.Event(), trio.Event()
        async with self._domain.node(name) as process:
            self.running[name] = process
            task_status.started()
            await wanted.wait()
            del self.running[name]
            process.child.terminate()
            assert await process.child.wait() in (0, -signal.SIGKILL)
        has_ended.set()


class Wanderer:
    """A runtime that goes to another node when its own stops, and brings its session along."""

    def __init__(self, nodes: Nodes, runtime: Runtime) -> None:
        self._nodes = nodes
        self.runtime = runtime
        self.address = runtime.address
        self.moves = 0
        self._refused: Counter[str] = Counter()

    async def next(self) -> Json:
        """The next message, wherever the session is by then; {"type": "moved"} when it has gone to another node."""
        try:
            return await self.runtime.next()
        except trio.TooSlowError:
            return {"type": "silence"}
        except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
            await self.move()
            return {"type": "moved"}

    async def say(self, *messages: Json) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.runtime.say(*messages)

    async def move(self) -> None:
        """Bring the session back, at any node."""
        self.moves += 1
        self._refused.clear()
        with trio.move_on_after(PATIENCE_SECONDS):
            while not await self._has_come_back():  # noqa: ASYNC110  other processes decide
                await trio.sleep(0.05)
            return
        raise LostSessionError(f"{self.address} does not come back: {dict(self._refused)}")

    async def _has_come_back(self) -> bool:
        """Try each node that runs."""
        for name, process in list(self._nodes.running.items()):
            try:
                runtime, code = await process.returned(self.runtime)
            except (OSError, AssertionError, trio.BrokenResourceError, trio.TooSlowError) as exc:
                self._refused[f"{name}: {exc!r}"] += 1
                continue
            if code == 200:
                self.runtime = runtime
                return True
            self._refused[f"{name}: {code}"] += 1
        return False
