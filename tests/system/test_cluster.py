"""Processes of one domain over a real engine: what was acknowledged survives the process, and the engine's absence."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from interop.processes import ChildProcess
from tests.support.postgres import PASSWORD, Postgres, running_postgres
from tests.support.runtime_rig import ALLOCATION, Json, Runtime, code_and_reason
from tests.system.one_node import SETTINGS, Process, serving

PATIENCE_SECONDS = 60
UNAVAILABLE = (503, "state-unavailable")
LEASE_SECONDS = 5
LOOK_UP = {"resource": "nobody@alpha.example", "criteria": {}}
REGISTRY = "domain://registry.alpha.example"
ONE_ADDRESS = {"scheme": "comm", "value": {"number": 1}}


@pytest.fixture(scope="module")
def engine() -> Iterator[Postgres]:
    """A server of these tests alone: they stop it."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def settings(engine: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """Those of a node over a new database."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return at_engine(engine.port, engine.new_database())


def at_engine(port: int, database: str) -> str:
    url = f"postgresql://trapezoid@127.0.0.1:{port}/{database}"
    return SETTINGS.format(grace=3600) + f'[storage]\nengine = "{url}"\ntls = "off"\n'


def addresses_in(engine: Postgres, settings: str) -> set[str]:
    """What the engine has of the table of addresses."""
    database = settings.split("engine = ")[1].split('"')[1].rpartition("/")[2]
    query = "SELECT convert_from(key, 'UTF8') FROM trapezoid_row WHERE kind = 'addresses'"
    return {key for (key,) in engine.rows(query, database)}


def as_standby(settings: str) -> str:
    return f"{settings}[cluster]\nstandby = true\n"


def folder_of(path: Path, name: str) -> Path:
    folder = path / name
    folder.mkdir()
    return folder


class Traffic:
    """A runtime that has one address after the other allocated, and remembers what was acknowledged."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.acknowledged: list[str] = []
        self.refused: set[tuple[int, str]] = set()
        self._more = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until the connection ends."""
        task_status.started()
        with suppress(AssertionError, trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            while True:
                await self.allocate()
                self._more.set()
                self._more = trio.Event()

    async def allocate(self) -> None:
        reply = await self.runtime.ask("create", ALLOCATION, ONE_ADDRESS)
        if reply["body"]["code"] == 200:
            self.acknowledged += reply["body"]["value"]["allocated"]
        else:
            self.refused.add(code_and_reason(reply))

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_SECONDS):
            while not condition():
                await self._more.wait()


async def stand_by(folder: Path, settings: str, serves: trio.MemorySendChannel[Process]) -> None:
    """Run a process that waits for the name, and say when it serves."""
    async with serving(folder, as_standby(settings)) as process:
        serves.send_nowait(process)
        await trio.sleep_forever()


async def test_standby_goes_on_with_all_that_was_acknowledged_before_kill_9(
    tmp_path: Path, engine: Postgres, settings: str
) -> None:
    folders = [folder_of(tmp_path, name) for name in ("one", "two")]
    async with serving(folders[0], settings) as first:
        clients = [Traffic(await first.opened(name)) for name in ("ana", "bo", "cleo")]
        send, standby = trio.open_memory_channel[Process](1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stand_by, folders[1], settings, send)
            for client in clients:
                await nursery.start(client.run)
            await clients[0].wait_until(lambda: len(clients[0].acknowledged) >= 50)
            first.kill()
            began = trio.current_time()
            with trio.fail_after(PATIENCE_SECONDS):
                second = await standby.receive()
            assert trio.current_time() - began >= LEASE_SECONDS - 1
            for client in clients:
                client.runtime, code = await second.returned(client.runtime)
                assert code == 200
            for client in clients:
                await client.allocate()  # and it goes on
            kept = addresses_in(engine, settings)
            for client in clients:
                assert set(client.acknowledged) <= kept
                assert client.refused == set()
            nursery.cancel_scope.cancel()


@contextmanager
def paused(child: ChildProcess) -> Iterator[None]:
    """Stop a process, and let it go on; it notices nothing but the time."""
    child.send_signal(signal.SIGSTOP)
    try:
        with trio.fail_after(PATIENCE_SECONDS):
            yield
    finally:
        child.send_signal(signal.SIGCONT)


async def test_process_that_was_paused_while_another_took_over_ends_and_writes_nothing(
    tmp_path: Path, engine: Postgres, settings: str
) -> None:
    async with serving(folder_of(tmp_path, "one"), settings) as first:
        client = Traffic(await first.opened("ana"))
        send, standby = trio.open_memory_channel[Process](1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stand_by, folder_of(tmp_path, "two"), settings, send)
            await client.allocate()
            with paused(first.child):
                second = await standby.receive()
                addresses = addresses_in(engine, settings)
                nursery.start_soon(client.run)  # waits for an answer that the first process must not give
                moved, code = await second.returned(client.runtime)
            assert code == 200
            with trio.fail_after(PATIENCE_SECONDS):
                assert await first.child.wait() == 2
            assert addresses_in(engine, settings) == addresses == set(client.acknowledged)
            assert (await moved.ask("create", ALLOCATION, ONE_ADDRESS))["body"]["code"] == 200
            nursery.cancel_scope.cancel()


async def test_second_process_of_a_name_does_not_start_and_leaves_the_first_one_alone(
    tmp_path: Path, settings: str
) -> None:
    async with serving(folder_of(tmp_path, "one"), settings) as first:
        ana = await first.opened("ana")
        config = folder_of(tmp_path, "two") / "node.toml"
        config.write_text(settings)
        with trio.fail_after(PATIENCE_SECONDS):
            ended = await trio.run_process(
                [sys.executable, "-m", "trapezoid", "serve", "--config", str(config)],
                capture_stderr=True, capture_stdout=True, check=False,
            )  # fmt: skip
        assert ended.returncode == 2
        assert b"node-running" in ended.stderr
        assert b"cluster.standby" in ended.stderr
        assert (await ana.ask("create", ALLOCATION, ONE_ADDRESS))["body"]["code"] == 200


async def test_name_is_free_at_once_when_its_node_stops_in_order_or_comes_back_to_its_folder(
    tmp_path: Path, settings: str, capfd: pytest.CaptureFixture[str]
) -> None:
    here = folder_of(tmp_path, "one")
    async with serving(here, settings) as first:
        ana = await first.opened("ana")
        first.kill()
    async with serving(here, settings) as again:  # nobody else can be there
        ana, code = await again.returned(ana)
        assert code == 200
        again.child.send_signal(signal.SIGTERM)
        await again.child.wait()
    async with serving(folder_of(tmp_path, "two"), settings) as moved:
        _, code = await moved.returned(ana)
        assert code == 200
    said = capfd.readouterr().err
    assert said.count("this process is ") == 3
    assert "waiting for the name" not in said


async def test_engine_that_restarts_costs_no_session_and_nothing_acknowledged(
    tmp_path: Path, engine: Postgres, settings: str
) -> None:
    async with serving(folder_of(tmp_path, "one"), settings) as node:
        client = Traffic(await node.opened("ana"))
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            await client.wait_until(lambda: len(client.acknowledged) >= 20)
            await trio.to_thread.run_sync(engine.stop)
            await trio.sleep(3)
            await trio.to_thread.run_sync(engine.start)
            before = len(client.acknowledged)
            await client.wait_until(lambda: len(client.acknowledged) >= before + 20)
            nursery.cancel_scope.cancel()
        assert client.refused <= {UNAVAILABLE}
        assert set(client.acknowledged) <= addresses_in(engine, settings)


async def answer_but(runtime: Runtime, unwanted: tuple[int, str], type_: str, to: str, body: Json) -> tuple[int, str]:
    """Ask until the answer is another one than this."""
    with trio.fail_after(PATIENCE_SECONDS):
        while (answer := code_and_reason(await runtime.ask(type_, to, body))) == unwanted:
            await trio.lowlevel.checkpoint()
    return answer


async def test_node_without_its_engine_for_longer_than_a_lease_refuses_until_it_is_back(
    tmp_path: Path, engine: Postgres, settings: str
) -> None:
    async with serving(folder_of(tmp_path, "one"), settings) as node:
        ana = await node.opened("ana")
        await trio.to_thread.run_sync(engine.stop)
        try:
            assert await answer_but(ana, (404, "not-registered"), "read", REGISTRY, LOOK_UP) == UNAVAILABLE
            assert code_and_reason(await (await node.runtime()).open("cleo")) == UNAVAILABLE
        finally:
            await trio.to_thread.run_sync(engine.start)
        assert await answer_but(ana, UNAVAILABLE, "create", ALLOCATION, ONE_ADDRESS) == (200, "")
        assert await answer_but(ana, UNAVAILABLE, "read", REGISTRY, LOOK_UP) == (404, "not-registered")


async def until_synchronous(engine: Postgres) -> None:
    """Until commits wait for a replica."""
    with trio.fail_after(PATIENCE_SECONDS):
        while engine.rows("SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
            await trio.lowlevel.checkpoint()


async def test_engine_that_dies_is_replaced_by_its_synchronous_replica_without_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with running_postgres() as first, tempfile.TemporaryDirectory(prefix="trapezoid-pg-") as folder:
        database = first.new_database()
        second = first.replica(Path(folder))
        second.start()
        first.run("SELECT pg_reload_conf()")  # from here on a commit waits for both disks
        await until_synchronous(first)
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        settings = at_engine(first.port, database).replace(f"127.0.0.1:{first.port}", hosts)
        try:
            async with serving(folder_of(tmp_path, "one"), settings) as node, trio.open_nursery() as nursery:
                client = Traffic(await node.opened("ana"))
                await nursery.start(client.run)
                await client.wait_until(lambda: len(client.acknowledged) >= 20)
                first.stop(signal.SIGQUIT)
                second.run(
                    "SELECT pg_promote()", "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"
                )
                before = len(client.acknowledged)
                await client.wait_until(lambda: len(client.acknowledged) >= before + 20)
                nursery.cancel_scope.cancel()
            assert set(client.acknowledged) <= addresses_in(second, at_engine(second.port, database))
            assert client.refused <= {UNAVAILABLE}
        finally:
            second.stop()


def run_program(engine: Postgres, name: str, *arguments: str) -> None:
    """A program of PostgreSQL, which reads and writes nothing but what its arguments say."""
    subprocess.run([engine.programs / name, *arguments], check=True, capture_output=True, timeout=PATIENCE_SECONDS)


async def test_backup_that_was_made_while_a_node_ran_is_restored_with_what_was_acknowledged_before_it(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    database, restored = engine.new_database(), engine.new_database()
    backup = str(tmp_path / "backup")
    async with serving(folder_of(tmp_path, "one"), at_engine(engine.port, database)) as node:
        clients = [Traffic(await node.opened(name)) for name in ("ana", "bo")]
        for client in clients:
            await client.allocate()
        before = {address for client in clients for address in client.acknowledged}
        dump = ("pg_dump", "--format=custom", f"--file={backup}", engine.conninfo(database))
        await trio.to_thread.run_sync(partial(run_program, engine, *dump))
        late = await node.opened("late")
        await clients[0].allocate()
    restore = ("pg_restore", f"--dbname={engine.conninfo(restored)}", backup)
    await trio.to_thread.run_sync(partial(run_program, engine, *restore))
    async with serving(folder_of(tmp_path, "two"), at_engine(engine.port, restored)) as node:
        for client in clients:
            client.runtime, code = await node.returned(client.runtime)
            assert code == 200
        assert addresses_in(engine, at_engine(engine.port, restored)) == before
        assert (await node.returned(late))[1] == 500, "as docs/cluster.md says: it is opened anew"
        assert code_and_reason(await (await node.runtime()).open("late")) == (200, "")
        await clients[0].allocate()
        assert len(clients[0].acknowledged) == 3


class SlowEngine:
    """A proxy in front of the engine: what a node sends arrives 50 ms later, and its commits are counted."""

    def __init__(self, port: int) -> None:
        self.commits = 0
        self._port = port

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            async with (
                client,
                await trio.open_tcp_stream("127.0.0.1", self._port) as engine,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._copy, client, engine, 0.05, nursery.cancel_scope)
                await self._copy(engine, client, 0.0, nursery.cancel_scope)

    async def _copy(
        self, source: trio.SocketStream, sink: trio.SocketStream, seconds: float, scope: trio.CancelScope
    ) -> None:
        async for data in source:
            await trio.sleep(seconds)
            self.commits += data.count(b"COMMIT")
            await sink.send_all(data)
        scope.cancel()


@asynccontextmanager
async def slowed_down(engine: Postgres) -> AsyncIterator[tuple[SlowEngine, int]]:
    """A port at which the engine is slow."""
    slow = SlowEngine(engine.port)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, slow.serve, 0)
        yield slow, listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_slow_engine_makes_answers_late_and_batches_larger(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    async with (
        slowed_down(engine) as (slow, port),
        serving(folder_of(tmp_path, "one"), at_engine(port, engine.new_database())) as node,
    ):
        clients = [Traffic(await node.opened(f"runtime-{number}")) for number in range(20)]
        before = slow.commits
        async with trio.open_nursery() as requests:
            for client in clients:
                requests.start_soon(client.allocate)
        assert sum(len(client.acknowledged) for client in clients) == 20
        assert 0 < slow.commits - before < 20  # one transaction for many
