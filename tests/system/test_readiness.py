"""What a load balancer sees at `/readyz`: when a node drains, when its engine is away, and when it can serve again."""

from __future__ import annotations

import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import httpx
import pytest
import trio
from typer.testing import CliRunner

from interop.free_ports import free_ports
from tests.support.passage import passage_to
from tests.support.postgres import PASSWORD, Postgres
from tests.support.runtime_rig import Runtime, Wire, a_message, code_and_reason
from tests.system.one_node import SETTINGS, Process, serving
from tests.system.wandering import Domain
from trapezoid.admin_client import ask_node
from trapezoid.commands import app
from wire.core.websocket import ClientWebSocket

PATIENCE_SECONDS = 60
PLACES = "/usr/sbin:/usr/bin"
CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy" / "cluster.cfg"
BEHIND_PROXY = 'trusted_proxies = ["127.0.0.1"]\nclient_address_from = "proxy-protocol"'
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


class BehindProxy(Domain):
    """Nodes that learn addresses from the proxy in front of them, and listen where its configuration says."""

    def __init__(self, folder: Path, engine: Postgres, names: tuple[str, ...]) -> None:
        super().__init__(folder, engine, names)
        self.places = {name: free_ports(2) for name in names}

    def settings(self, name: str) -> str:
        listen, site = self.places[name]
        text = super().settings(name).replace("insecure_plaintext = true", f"insecure_plaintext = true\n{BEHIND_PROXY}")
        return text.replace("port = 0", f"port = {listen}", 1).replace("port = 0", f"port = {site}", 1)


@asynccontextmanager
async def balancer(domain: BehindProxy, folder: Path) -> AsyncIterator[int]:
    """HAProxy with the configuration that operators are given, without TLS; yields where runtimes connect."""
    port, site = free_ports(2)
    text = CONFIGURATION.read_text()
    changes = {"0.0.0.0:8443": f"127.0.0.1:{port}", "0.0.0.0:443": f"127.0.0.1:{site}", " check-ssl verify none": ""}
    changes |= {"port 8444 ": "", "maxconn 20000": "maxconn 200"}
    for number, (listen, at_site) in enumerate(domain.places.values(), 1):
        changes |= {f"10.0.0.1{number}:8443": f"127.0.0.1:{listen} port {at_site}"}
        changes |= {f"10.0.0.1{number}:8444": f"127.0.0.1:{at_site} port {at_site}"}
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    lines = [line for line in text.splitlines() if "10.0.0.1" not in line]  # there are fewer nodes here
    (folder / "haproxy.cfg").write_text("\n".join(lines) + "\n")
    program = shutil.which("haproxy", path=PLACES)
    assert program is not None
    child = await trio.lowlevel.open_process([program, "-db", "-f", str(folder / "haproxy.cfg")])
    try:
        yield port
    finally:
        child.kill()
        with trio.CancelScope(shield=True):
            await child.wait()


async def opened_by(port: int, name: str) -> int:
    """Open a session over a balancer; the code of the answer, 0 without one."""
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            runtime = Runtime(Wire(stream), ClientWebSocket(f"ws://127.0.0.1:{port}/ws", is_binary=False))
            await runtime.shake_hands()
            reply = await runtime.open(name)
    except (OSError, AssertionError, trio.BrokenResourceError, trio.TooSlowError):
        return 0
    return int(reply["body"]["code"])


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110  other processes decide
            await trio.sleep(0.1)


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("haproxy", path=PLACES), reason="apt-get install -y haproxy")
async def test_a_balancer_that_asks_readyz_leaves_a_node_without_its_engine_alone_until_that_is_back(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    domain, numbers = BehindProxy(tmp_path, engine, ("n1", "n2")), count()

    async def codes(times: int) -> list[int]:
        return [await opened_by(port, f"r{next(numbers)}") for _ in range(times)]

    async def at_one() -> int:
        rows = await trio.to_thread.run_sync(partial(ask_node, tmp_path / "n1" / "data", "sessions", {}))
        return len(rows["rows"])

    async def uses_both() -> bool:
        return await codes(4) == [200] * 4 and bool(await at_one())

    async def meets_the_one_that_is_cut_off() -> bool:
        return await codes(1) != [200]

    async def uses_one() -> bool:
        return await codes(6) == [200] * 6

    async def uses_it_again() -> bool:
        assert await codes(2) == [200] * 2
        return await at_one() > before

    async with passage_to(engine.port) as way:
        domain.engine_port["n1"] = way.port
        async with domain.node("n1"), domain.node("n2"), balancer(domain, tmp_path) as port:
            await until(uses_both)
            way.block()
            await until(meets_the_one_that_is_cut_off)
            await until(uses_one)
            before = await at_one()
            way.unblock()
            await until(uses_it_again)
