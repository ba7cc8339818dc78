"""A partner's node that stops without dying is seen after five seconds, and nobody is answered twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import trio

from interop.runtime_client import Answer

from .systems import running_system

TTL_SECONDS = 10


async def test_a_stopped_partner_is_stalled_in_log_status_and_answers_and_nobody_is_answered_twice(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path) as system:
        anna, bruno = await system.couple()
        assert (await anna.ask(bruno.hyperty)).is_ok
        answers: list[Answer] = []

        async def ask(number: int) -> None:
            body = {"value": number, "ttl": TTL_SECONDS}
            answers.append(await anna.client.request("create", anna.hyperty, bruno.hyperty, body))

        async def ask_until_stalled() -> None:
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(ask, number)
                await system.wait_link(system.a, lambda one: one.state == "stalled")

        os.kill(system.b.pid, signal.SIGSTOP)
        try:
            await ask_until_stalled()
        finally:
            os.kill(system.b.pid, signal.SIGCONT)
        assert {(one.code, one.reason) for one in answers} == {(504, "timeout")}
        assert {str(one.value).partition(",")[0] for one in answers} == {"{'link': 'stalled'"}, answers[0]
        await system.wait_link(system.a, lambda one: one.state == "live")
        assert (await anna.ask(bruno.hyperty, 99)).is_ok
        assert [one for one in anna.heard if one.type == "response"] == []
        log = system.a.folder.log.read_text()
        assert "the link to b.example is stalled: nothing heard for 5 s" in log
        assert "the link to b.example is heard again after" in log
