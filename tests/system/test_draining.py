"""Nodes that are stopped under load: nothing is lost, or the exit code says so and the log how much."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from interop.runtime_client import Answer, Incoming, RuntimeClient
from interop.talker import PATIENCE_SECONDS, Talker

from .systems import System, running_system

EVENTS = 3000
LOST_EVENTS = 100


class SlowRuntime:
    """A runtime of b.example that keeps its requests until it is asked to answer one."""

    def __init__(self, system: System) -> None:
        point = system.b.access_point
        self.requests, asked = trio.open_memory_channel[Incoming](10)
        self._asked = asked
        self.client = RuntimeClient(
            url=point.url,
            runtime="runtime://b.example/dora",
            ssl_context=point.ssl_context,
            on_message=self.requests.send_nowait,
        )
        self.hyperty = ""

    async def open(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.client.run)
        [self.hyperty] = await self.client.at("b.example").allocate("hyperty", 1)

    async def next(self) -> Incoming:
        with trio.fail_after(PATIENCE_SECONDS):
            return await self._asked.receive()


@pytest.mark.long
async def test_a_node_stopped_under_load_loses_nothing_and_one_that_cannot_hand_over_says_how_much(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        await _nothing_is_lost(system, anna, bruno)
        await system.start(system.a)
        await anna.open(system.nursery)
        await _what_is_lost_is_counted(system, anna, bruno)


async def _nothing_is_lost(system: System, anna: Talker, bruno: Talker) -> None:
    """What was written before the signal arrives, and a request that waits for its reply then gets it."""
    dora = SlowRuntime(system)
    await dora.open(system.nursery)
    answers: list[Answer] = []
    exit_codes: list[int | None] = []

    async def ask() -> None:
        answers.append(await anna.client.request("read", anna.hyperty, dora.hyperty, {"ttl": 20}))

    async def stop() -> None:
        exit_codes.append(await system.a.stop())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        request = await dora.next()
        for number in range(EVENTS):
            await anna.post(bruno.hyperty, number)
        nursery.start_soon(stop)
        await anna.wait_for(lambda: any(one.body.get("value") == "draining" for one in anna.heard))
        await dora.client.respond(request, {"code": 200, "value": "late, but not too late"})
    assert [answer.value for answer in answers] == ["late, but not too late"]
    assert await bruno.hear_numbers(anna.hyperty, EVENTS + 1) == [0, *range(EVENTS)]  # the first: they met
    assert exit_codes == [0]
    assert "stopped: no message is lost" in system.a.folder.log.read_text()


async def _what_is_lost_is_counted(system: System, anna: Talker, bruno: Talker) -> None:
    """Their node hangs: what it does not acknowledge is lost with ours."""
    answer = await anna.ask(bruno.hyperty)
    assert answer.is_ok, answer
    os.kill(system.b.pid, signal.SIGSTOP)
    try:
        for number in range(LOST_EVENTS):
            await anna.post(bruno.hyperty, number)
        assert await system.a.stop() == 3
    finally:
        os.kill(system.b.pid, signal.SIGCONT)
    lost = f"stopped: {LOST_EVENTS} messages are lost: {LOST_EVENTS} for b.example, 0 that runtimes did not read"
    assert lost in system.a.folder.log.read_text()
