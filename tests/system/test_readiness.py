"""What a load balancer sees at `/readyz`: when a node drains, when its engine is away, and when it can serve again."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from typer.testing import CliRunner

from tests.support.passage import passage_to
from tests.support.postgres import PASSWORD, Postgres
from tests.support.runtime_rig import Runtime, a_message, code_and_reason
from tests.system.one_node import SETTINGS, Process, serving
from tests.system.restarts import Domain
from trapezoid.commands import app

PATIENCE_SECONDS = 60
NOBODY = {"resource": "user://alpha.example/nobody"}
REGISTRY = "domain://registry.alpha.example"
UNAVAILABLE = (503, "state-unavailable")

Seen = tuple[int, list[str]]
READY: Seen = (200, [])


async def ready(process: Process) -> Seen:
    """What a load balancer gets: the status, and the first word of each problem."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{process.ready['site']}/readyz")
    return answer.status_code, [problem.partition(":")[0] for problem in answer.json()["problems"]]


async def until_ready(process: Process, condition: Callable[[Seen], bool]) -> Seen:
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition(seen := await ready(process)):  # noqa: ASYNC110  another process decides
            await trio.sleep(0.05)
    return seen


async def until_asked(runtime: Runtime, kind: str) -> str:
    """The id under which a request of a kind comes."""
    while (message := await runtime.next())["type"] != kind:
        pass
    return str(message["id"])


async def signalled(node: Process, _config: Path) -> None:
    node.child.send_signal(signal.SIGTERM)


async def commanded(_node: Process, config: Path) -> None:
    """`trapezoid node drain`, first without effect."""
    for further in (["--dry-run"], []):
        command = ["node", "drain", "--config", str(config), *further]
        done = await trio.to_thread.run_sync(partial(CliRunner().invoke, app, command))
        assert done.exit_code == 0, done.output
        assert "draining" in done.output


@pytest.mark.parametrize("drain", [signalled, commanded])
async def test_a_node_that_drains_says_so_to_load_balancers_and_runtimes_until_it_is_started_again(
    tmp_path: Path, drain: Callable[[Process, Path], Awaitable[None]]
) -> None:
    settings = SETTINGS.format(grace=3600).replace("drain_seconds = 1", "drain_seconds = 30")
    async with serving(tmp_path, settings) as node:
        assert await ready(node) == READY
        ana, bo, late = await node.opened("ana"), await node.opened("bo"), await node.runtime()
        await ana.say(a_message("read", ana.address, bo.address, {"ttl": 60}, id_="open"))
        await until_asked(bo, "read")  # the node waits for its answer
        await drain(node, tmp_path / "node.toml")
        assert await until_ready(node, lambda seen: seen != READY) == (503, ["draining"])
        assert code_and_reason(await late.open("late")) == (503, "draining")
        assert await ready(node) == (503, ["draining"])
        await bo.say(a_message("response", bo.address, ana.address, {"code": 200}, id_="open"))
        with trio.fail_after(PATIENCE_SECONDS):
            assert await node.child.wait() == 0
        with pytest.raises(httpx.ConnectError):
            await ready(node)
    async with serving(tmp_path, settings) as node:
        assert await ready(node) == READY


async def refused(runtime: Runtime) -> None:
    """Ask until the node serves no more."""
    with trio.fail_after(PATIENCE_SECONDS):
        while code_and_reason(await runtime.ask("read", REGISTRY, NOBODY)) != UNAVAILABLE:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def served(runtime: Runtime) -> None:
    """Ask until the node serves again."""
    with trio.fail_after(PATIENCE_SECONDS):
        while code_and_reason(await runtime.ask("read", REGISTRY, NOBODY)) == UNAVAILABLE:  # noqa: ASYNC110
            await trio.sleep(0.01)


@pytest.mark.long
async def test_a_node_without_its_engine_says_so_as_long_as_it_serves_nobody_and_its_neighbour_does_not(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    domain = Domain(tmp_path, engine, ("n1", "n2"))
    async with passage_to(engine.port) as way:
        domain.engine_port["n1"] = way.port
        async with domain.node("n1") as one, domain.node("n2") as two:
            ana = await one.opened("ana")
            assert (await ready(one), await ready(two)) == (READY, READY)
            way.block()
            await refused(ana)
            assert await ready(one) == (503, ["cluster"])
            assert await ready(two) == READY
            way.unblock()
            await served(ana)
            assert await until_ready(one, lambda seen: seen == READY) == READY


async def test_a_node_whose_engine_is_down_says_so_until_it_is_back(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    domain = Domain(tmp_path, engine, ("n1",))
    async with domain.node("n1") as node:
        assert await ready(node) == READY
        await trio.to_thread.run_sync(engine.stop)
        try:
            status, words = await until_ready(node, lambda seen: seen != READY)
            assert (status, set(words) - {"state"}) == (503, {"cluster"})
        finally:
            await trio.to_thread.run_sync(engine.start)
        assert await until_ready(node, lambda seen: seen == READY) == READY
