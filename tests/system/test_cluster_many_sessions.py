"""A node with many sessions is killed: all of them come back at the other one, with what they hold.

Real processes over a real engine.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from tests.support.postgres import PASSWORD, Postgres, running_postgres
from tests.support.runtime_rig import ALLOCATION, SESSION, Runtime, a_message
from tests.system.pair import Pair
from tests.system.test_cluster_nodes import next_of

SESSIONS = 120
ADDRESSES = 3
AT_ONCE = 40


async def come_back_after_a_kill(folder: Path, engine: Postgres, sessions: int) -> float:
    """Kill a node that has so many sessions. Returns after how many seconds the last one was back at the other node."""
    pair = Pair(folder, engine, engine.new_database())
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(pair.node("n1"))
        two = await stack.enter_async_context(pair.node("n2"))
        runtimes: dict[int, Runtime] = {}
        owned: dict[int, list[str]] = {}
        turns = trio.CapacityLimiter(AT_ONCE)

        async def begin(number: int) -> None:
            async with turns:
                runtime = runtimes[number] = await two.opened(f"runtime-{number}")
                reply = await runtime.ask("create", ALLOCATION, {"scheme": "comm", "value": {"number": ADDRESSES}})
                owned[number] = reply["body"]["value"]["allocated"]

        async with trio.open_nursery() as nursery:
            for number in range(sessions):
                nursery.start_soon(begin, number)
        two.kill()
        killed = trio.current_time()

        async def return_(number: int) -> None:
            lost = runtimes[number]
            async with turns:
                back = runtimes[number] = await one.runtime()
                back.address, back.token = lost.address, lost.token
                code = 0
                while code != 200:
                    reply = await back.ask("re-open", SESSION, None, from_=lost.session_address)
                    code = reply["body"]["code"]
                    assert code in (200, 503), reply
                    await trio.sleep(0 if code == 200 else 0.1)

        async with trio.open_nursery() as nursery:
            for number in range(sessions):
                nursery.start_soon(return_, number)
        seconds = trio.current_time() - killed
        ana = await one.opened("ana")
        for number, runtime in runtimes.items():
            for address in owned[number]:
                await ana.say(a_message("message", ana.address, address, {"n": number}))
            assert {(await next_of(runtime, "message"))["to"] for _ in owned[number]} == set(owned[number])
        return seconds


@pytest.mark.long
async def test_all_sessions_of_a_node_that_is_killed_come_back_at_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with running_postgres() as engine:
        seconds = await come_back_after_a_kill(tmp_path, engine, SESSIONS)
    assert seconds > 4, "not before the lease of the dead node is over"
