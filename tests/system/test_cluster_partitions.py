"""Nodes of one domain that are cut off, slow, or restarted one after the other: real processes, a real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.passage import Passage, passage_to
from tests.support.postgres import PASSWORD, Postgres
from tests.support.runtime_rig import ALLOCATION, Runtime, Wire, a_message, code_and_reason
from tests.system.one_node import Process
from tests.system.restarts import roll, run_kills, talk
from tests.system.wandering import PATIENCE_SECONDS, Domain, until_reached
from wire.core.websocket import ClientWebSocket

RATE = 2_000
QUIET_RATE = 500
MANY_KILLS_SECONDS = 1_800
RUN_SECONDS = 300
REGISTRY = "domain://registry.alpha.example"
NOBODY = {"resource": "user://alpha.example/nobody"}


@pytest.fixture
def two(tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch) -> Domain:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return Domain(tmp_path, engine, ("n1", "n2"))


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


@pytest.mark.long
async def test_a_rolling_restart_of_three_nodes_under_2_000_messages_a_second_loses_nothing_and_keeps_the_order(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    async with talk(tmp_path, engine) as all_of_them:
        await roll(all_of_them, RATE)
        for one in all_of_them.pairings:
            assert len(one.acknowledged) > 100
            assert one.events
            assert one.faults() == []
        assert sum(person.moves for person in all_of_them.people) >= len(all_of_them.people)
        await all_of_them.check_owned()


@pytest.mark.parametrize(
    ("kills", "rate"),
    [
        pytest.param(3, RATE, marks=pytest.mark.long),
        pytest.param(50, QUIET_RATE, marks=[pytest.mark.endurance, pytest.mark.timeout(MANY_KILLS_SECONDS)]),
    ],
)
async def test_nodes_that_are_killed_under_traffic_lose_nothing_acknowledged_and_keep_the_order(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch, kills: int, rate: int
) -> None:
    """As `python -m tests.system.restarts --kills 50`."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with trio.fail_after(RUN_SECONDS if kills < 10 else MANY_KILLS_SECONDS):
        assert await run_kills(tmp_path, engine, rate, kills=kills, seed=1) == []
