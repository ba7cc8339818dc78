"""One node as several processes on one machine: real processes over a real engine, behind one address."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import trio

from tests.support.postgres import engine_settings, running_postgres
from tests.support.runtime_rig import Runtime
from tests.support.status_token import AS_OPERATOR
from tests.system.one_node import SETTINGS, Process, serving
from tests.system.test_cluster_nodes import PATIENCE_SECONDS, in_both_directions
from trapezoid.admin_client import ask_node
from trapezoid.process_admin import ask_processes
from trapezoid.process_environment import process_folders

RUNTIMES = 16


async def asked(folder: Path, operation: str) -> Any:
    return await trio.to_thread.run_sync(partial(ask_node, folder, operation, {}))


async def places(data: Path) -> dict[str, int]:
    """At which process the session of each runtime is."""
    found = {}
    for number, folder in process_folders(data).items():
        for row in (await asked(folder, "sessions"))["rows"]:
            found[row["runtime"]] = number
    return found


async def conversation(ana: Runtime, bo: Runtime) -> None:
    await in_both_directions(ana, bo, await ana.allocated(), await bo.allocated())


async def came_back(lost: Runtime, node: Process) -> Runtime:
    """Bring a session back, at whatever process the system chooses."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            runtime, code = await node.returned(lost)
            if code == 200:
                return runtime
            assert code == 503
            await trio.sleep(0.1)


async def serves_again(folder: Path, dead_pid: int) -> int:
    """The process that serves on a folder after another one has died."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                pid = int((await asked(folder, "status"))["pid"])
            except Exception:  # whatever a process that is dead, or just begins, says
                pid = dead_pid
            if pid != dead_pid:
                return pid
            await trio.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def two_processes(folder: Path) -> AsyncIterator[Process]:
    """A node of two processes over an engine of its own."""
    with running_postgres() as engine:
        settings = SETTINGS.format(grace=3600).replace("[node]", "[node]\nprocesses = 2") + engine_settings(engine)
        async with serving(folder, settings) as node:
            yield node


async def all_report(node: Process, pids: dict[int, int]) -> None:
    """Whichever process answers shows the status and the figures of all."""
    async with httpx.AsyncClient(trust_env=False, headers=AS_OPERATOR) as client:
        status = (await client.get(f"{node.ready['site']}/status")).json()
        figures = (await client.get(f"{node.ready['site']}/metrics")).text
    assert {number: one["pid"] for number, one in status["processes"].items()} == {
        str(number): pid for number, pid in pids.items()
    }
    live = dict(re.findall(r'^trapezoid_sessions{process="(.)",state="live"} (\d+)', figures, re.MULTILINE))
    assert live.keys() == {"1", "2"}


async def until_ended(pids: Collection[int]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while any(map(is_running, pids)):  # noqa: ASYNC110  other processes
            await trio.sleep(0.1)


async def test_processes_share_an_address_and_a_domain_and_one_that_is_killed_comes_back(tmp_path: Path) -> None:
    async with two_processes(tmp_path) as node:
        data = tmp_path / "data"
        assert [one["node"] for one in node.ready["processes"]] == ["mn-1.alpha.example", "mn-1-p2.alpha.example"]
        pids = {one["process"]: one["pid"] for one in node.ready["processes"]}
        runtimes = {}
        for number in range(RUNTIMES):
            runtime = await node.opened(f"runtime-{number}")
            runtimes[runtime.address] = runtime
        at = await places(data)
        assert at.keys() == runtimes.keys()
        assert set(at.values()) == {1, 2}
        one, two = (runtimes[next(name for name in at if at[name] == number)] for number in (1, 2))
        await conversation(one, two)

        os.kill(pids[2], signal.SIGKILL)
        pids[2] = await serves_again(data / "processes" / "2", pids[2])
        await conversation(one, await came_back(two, node))
        await all_report(node, pids)

        os.kill(node.child.pid, signal.SIGHUP)  # nothing ends by that
        listed = await trio.to_thread.run_sync(ask_processes, data, "sessions", {})
        assert {row["process"] for row in listed["rows"]} == {1, 2}
        assert (await asked(data, "status"))["pid"] == pids[1]
        node.child.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE_SECONDS):
            assert await node.child.wait() == 0
        assert not any(map(is_running, pids.values()))


async def test_processes_end_with_their_parent_even_when_that_is_killed(tmp_path: Path) -> None:
    async with two_processes(tmp_path) as node:
        node.kill()
        await until_ended([one["pid"] for one in node.ready["processes"]])
