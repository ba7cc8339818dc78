"""Nodes of one domain that are cut off, slow, or restarted one after the other: real processes, a real engine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
import trio

from interop.free_ports import free_ports
from tests.support.passage import Passage, passage_to
from tests.support.postgres import PASSWORD, Postgres
from tests.support.runtime_rig import ALLOCATION, Json, Runtime, Wire, a_message, code_and_reason
from tests.system.one_node import SETTINGS, Process, serving
from wire.core.websocket import ClientWebSocket

PATIENCE_SECONDS = 60
NAMES = ("n1", "n2", "n3")
SILENCE_SECONDS = 2.0
REGISTRY = "domain://registry.alpha.example"
NOBODY = {"resource": "user://alpha.example/nobody"}


class Domain:
    """Nodes of alpha.example by name; each may reach the engine, or be reached by others, by a passage."""

    def __init__(self, folder: Path, engine: Postgres, names: tuple[str, ...]) -> None:
        self._folder = folder
        self._database = engine.new_database()
        self.engine_port = dict.fromkeys(names, engine.port)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.advertised = dict(self.ports)
        self._key = folder / "cluster.key"
        self._key.write_bytes(os.urandom(32))
        self._key.chmod(0o600)

    def settings(self, name: str) -> str:
        named = SETTINGS.format(grace=3600).replace('data_dir = "data"', f'data_dir = "data"\nname = "{name}"')
        url = f"postgresql://trapezoid@127.0.0.1:{self.engine_port[name]}/{self._database}"
        return (
            f'{named}[storage]\nengine = "{url}"\ntls = "off"\n[cluster]\nlisten = "127.0.0.1:{self.ports[name]}"\n'
            f'advertise = "127.0.0.1:{self.advertised[name]}"\nkey_file = "{self._key}"\n'
        )

    @asynccontextmanager
    async def node(self, name: str) -> AsyncIterator[Process]:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        async with serving(folder, self.settings(name), seconds=4 * PATIENCE_SECONDS) as process:
            yield process


@pytest.fixture
def two(tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch) -> Domain:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return Domain(tmp_path, engine, ("n1", "n2"))


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


async def come_back(lost: Runtime, process: Process) -> Runtime:
    """Bring a session back, as soon as the node gives it."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            runtime, code = await process.returned(lost)
            if code == 200:
                return runtime
            assert code == 503
            await trio.sleep(0.05)


async def hear(runtime: Runtime, body: dict[str, object]) -> None:
    """Wait for the message with this body."""
    while (await runtime.next()).get("body") != body:
        pass


async def until_refused(runtime: Runtime, served_at: list[float]) -> None:
    """Ask a node for what it has in memory, until it says that it must not serve; notes when it did serve."""
    while True:
        reply = await runtime.ask("read", REGISTRY, NOBODY)
        if code_and_reason(reply) == (503, "state-unavailable"):
            return
        served_at.append(trio.current_time())
        await trio.sleep(0.01)


@pytest.mark.long
async def test_a_node_that_sees_its_clients_only_fences_itself_before_another_takes_over(two: Domain) -> None:
    async with passage_to(two.engine_port["n1"]) as to_engine, passage_to(two.ports["n2"]) as to_two:
        two.engine_port["n1"], two.advertised["n2"] = to_engine.port, to_two.port
        async with two.node("n1") as one, two.node("n2") as other:
            ana, bo = await one.opened("ana"), await other.opened("bo")
            await until_reached(bo, ana)
            to_engine.block()
            to_two.block()
            served_at: list[float] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_refused, ana, served_at)
                back = await come_back(ana, other)
                taken_at = trio.current_time()
            assert served_at
            assert max(served_at) < taken_at
            to_engine.unblock()
            to_two.unblock()
            await bo.say(a_message("message", bo.address, ana.address, {"n": 1}))
            await hear(back, {"n": 1})


@asynccontextmanager
async def by_way(process: Process, way: Passage) -> AsyncIterator[Runtime]:
    """A WebSocket to a node by a passage."""
    wire = Wire(await trio.open_tcp_stream("127.0.0.1", way.port))
    try:
        runtime = Runtime(wire, ClientWebSocket(process.ready["listen"], is_binary=False))
        await runtime.shake_hands()
        yield runtime
    finally:
        wire.socket.close()


@pytest.mark.long
async def test_a_node_that_its_clients_cannot_reach_gives_their_sessions_to_the_node_that_they_reach(
    two: Domain,
) -> None:
    async with two.node("n1") as one, two.node("n2") as other:
        port = int(one.ready["listen"].rpartition(":")[2].split("/")[0])
        async with passage_to(port) as way, by_way(one, way) as ana:
            await ana.open("ana")
            bo, cy = await one.opened("bo"), await other.opened("cy")
            await until_reached(cy, ana)
            way.block()
            back = await come_back(ana, other)
            for number, sender in enumerate((bo, cy)):
                await sender.say(a_message("message", sender.address, ana.address, {"n": number}))
                await hear(back, {"n": number})
            assert code_and_reason(await bo.ask("read", REGISTRY, NOBODY)) == (404, "not-registered")


async def open_at_once(processes: tuple[Process, ...], name: str) -> list[int]:
    """Open the same runtime at several nodes at the same time; the codes of their answers."""
    codes: list[int] = []

    async def open_it(process: Process) -> None:
        reply = await (await process.runtime()).open(name)
        codes.append(reply["body"]["code"])

    async with trio.open_nursery() as nursery:
        for process in processes:
            nursery.start_soon(open_it, process)
    return codes


@pytest.mark.long
async def test_over_an_engine_that_takes_50_ms_a_call_two_nodes_are_one_domain_and_no_address_has_two_owners(
    two: Domain,
) -> None:
    async with passage_to(two.engine_port["n1"], seconds=0.05) as slow:
        two.engine_port = dict.fromkeys(two.engine_port, slow.port)
        async with two.node("n1") as one, two.node("n2") as other:
            ana, bo = await one.opened("ana"), await other.opened("bo")
            await until_reached(bo, ana)
            codes = [code for number in range(10) for code in await open_at_once((one, other), f"both-{number}")]
            assert sorted(codes) == [200] * 10 + [409] * 10
            reply = await ana.ask("create", ALLOCATION, {"scheme": "comm", "value": {"number": 1}})
            assert reply["body"]["code"] == 200
            back = await come_back(ana, other)
            await bo.say(a_message("message", bo.address, ana.address, {"n": 1}))
            await hear(back, {"n": 1})


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

    async def _run(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        wanted, has_ended = self._ends[name] = trio.Event(), trio.Event()
        async with self._domain.node(name) as process:
            self.running[name] = process
            task_status.started()
            await wanted.wait()
            del self.running[name]
            process.child.terminate()
            assert await process.child.wait() == 0
        has_ended.set()


class Wanderer:
    """A runtime that goes to another node when its own stops, and brings its session along."""

    def __init__(self, nodes: Nodes, runtime: Runtime) -> None:
        self._nodes = nodes
        self.runtime = runtime
        self.address = runtime.address
        self.moves = 0

    async def next(self) -> Json:
        """The next message, wherever the session is by then; {"type": "moved"} when it has gone to another node."""
        try:
            return await self.runtime.next()
        except trio.TooSlowError:
            return {"type": "silence"}
        except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
            await self._move()
            return {"type": "moved"}

    async def say(self, *messages: Json) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.runtime.say(*messages)

    async def _move(self) -> None:
        self.moves += 1
        with trio.fail_after(PATIENCE_SECONDS):
            while not await self._has_come_back():  # noqa: ASYNC110  other processes decide
                await trio.sleep(0.05)

    async def _has_come_back(self) -> bool:
        """Try each node that runs."""
        for process in list(self._nodes.running.values()):
            with suppress(OSError, AssertionError, trio.BrokenResourceError):
                runtime, code = await process.returned(self.runtime)
                if code == 200:
                    self.runtime = runtime
                    return True
        return False


class Pairing:
    """Requests of one runtime to another one, ten at a time, and what both saw of them."""

    def __init__(self, asker: Wanderer, answerer: Wanderer) -> None:
        self._asker = asker
        self._answerer = answerer
        self.acknowledged: list[int] = []
        self.seen: list[int] = []
        self.allocated: list[str] = []
        self.is_over = False

    async def answer(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            message = await self._answerer.next()
            if message["type"] == "read":
                number = message["body"]["n"]
                self.seen.append(number)
                reply = a_message("response", message["to"], message["from"], {"code": 200}, id_=message["id"])
                await self._answerer.say(reply)

    async def ask(self) -> None:
        numbers = count()
        while not self.is_over:
            await self._burst([next(numbers) for _ in range(10)])

    async def _burst(self, numbers: list[int]) -> None:
        asker, to = self._asker, self._answerer.address
        reads = [a_message("read", asker.address, to, {"n": n}, id_=f"r{n}") for n in numbers]
        wanted = {"scheme": "comm", "value": {"number": 1}}
        await asker.say(*reads, a_message("create", asker.address, ALLOCATION, wanted, id_=f"a{numbers[0]}"))
        waiting = {f"a{numbers[0]}", *(f"r{n}" for n in numbers)}
        while waiting:
            message: Json = {"type": "silence"}
            with trio.move_on_after(SILENCE_SECONDS):
                message = await asker.next()
            if message["type"] in ("moved", "silence"):
                return  # what was asked is not acknowledged any more: one of the two has moved
            if message.get("id") not in waiting:
                continue
            waiting.discard(str(message["id"]))
            if message["body"]["code"] == 200 and message["id"].startswith("a"):
                self.allocated += message["body"]["value"]["allocated"]
            elif message["body"]["code"] == 200:
                self.acknowledged.append(int(message["id"][1:]))


@pytest.mark.long
async def test_a_rolling_restart_of_three_nodes_under_traffic_loses_nothing_acknowledged_and_keeps_the_order(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    async with trio.open_nursery() as nursery:
        nodes = Nodes(Domain(tmp_path, engine, NAMES), nursery)
        await start_all(nodes)
        people = [
            Wanderer(nodes, await nodes.running[name].opened(f"{name}-{number}"))
            for number in range(2)
            for name in NAMES
        ]
        for asker, target in ((0, 1), (1, 2), (2, 0)):
            await until_reached(people[asker].runtime, people[target].runtime)
        pairings = [Pairing(people[index], people[3 + (index + 1) % 3]) for index in range(3)]
        await roll(nodes, pairings)
        for one in pairings:
            assert len(one.acknowledged) > 100
            assert one.seen == sorted(set(one.seen)), "in order, and none twice"
            assert set(one.acknowledged) <= set(one.seen)
        assert sum(person.moves for person in people) >= len(people)
        await check_owned(people, pairings)
        nursery.cancel_scope.cancel()


async def start_all(nodes: Nodes) -> None:
    async with trio.open_nursery() as nursery:
        for name in NAMES:
            nursery.start_soon(nodes.start, name)


async def roll(nodes: Nodes, pairings: list[Pairing]) -> None:
    """Restart each node while the pairs talk; each restart begins once all of them get on."""
    async with trio.open_nursery() as nursery:
        for one in pairings:
            await nursery.start(one.answer)
            nursery.start_soon(one.ask)
        for name in NAMES:
            await go_on(pairings)
            await nodes.stop(name)
            await nodes.start(name)
        await go_on(pairings)
        nursery.cancel_scope.cancel()


async def go_on(pairings: list[Pairing]) -> None:
    """Wait until each pair has fifty answers more."""
    for one in pairings:
        most = len(one.acknowledged) + 50
        with trio.fail_after(PATIENCE_SECONDS):
            while len(one.acknowledged) < most:  # noqa: ASYNC110  other processes decide
                await trio.sleep(0.02)


async def check_owned(people: list[Wanderer], pairings: list[Pairing]) -> None:
    """Each address that was allocated still belongs to who got it, wherever that is now."""
    for index, one in enumerate(pairings):
        sender = people[3 + index]
        for address in one.allocated:
            reply = a_message("message", sender.address, address, {"check": address})
            await sender.say(reply)
        left = set(one.allocated)
        assert left
        with trio.fail_after(PATIENCE_SECONDS):
            while left:
                left.discard(((await people[index].next()).get("body") or {}).get("check"))
