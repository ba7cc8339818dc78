"""A newer version of a stub carries a share first, under traffic: good or bad, no message is lost or out of order."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from interop.lab.spool import read_records
from interop.talker import Talker
from protofly.records import MessageRecord, StubEvent

from .systems import System, running_system, wait_until
from .test_stub_updates import ask, modules, release, stub_of

__all__ = ["modules"]

PER_SECOND = 1000
ADDRESSES = 16
CANARY = 'domain = "b.example"\ncanary_percent = 50\ncanary_seconds = 10\n'


class SpreadTraffic:
    """Numbered events of anna to many addresses of bruno in turns, 1,000 each second, until it is over."""

    def __init__(self, anna: Talker, bruno: Talker, to: list[str]) -> None:
        self.anna, self.bruno, self.to = anna, bruno, to
        self.sent, self.heard_before = 0, len(bruno.heard)
        self.is_over = False
        self.ended = trio.Event()

    async def run(self) -> None:
        while not self.is_over:
            for _ in range(PER_SECOND // 100):
                await self.anna.post(self.to[self.sent % ADDRESSES], self.sent)
                self.sent += 1
            await trio.sleep(0.01)
        self.ended.set()

    def heard(self) -> dict[str, list[object]]:
        """The numbers that came, by address, in order of arrival."""
        return {to: [one.body["value"] for one in self.bruno.heard if one.to == to] for to in self.to}

    async def check(self) -> None:
        """End it: all came, once each, and in order for each address."""
        self.is_over = True
        await self.ended.wait()
        await self.bruno.wait_for(lambda: len(self.bruno.heard) >= self.heard_before + self.sent)
        assert self.heard() == {to: list(range(index, self.sent, ADDRESSES)) for index, to in enumerate(self.to)}


async def _updated(system: System, word: str) -> dict[str, Any]:
    """Have node a ask for news until it has begun with a newer version; the stub, once that is `word` and live."""
    for attempt in count():
        if not attempt % 20:
            await ask(system.a, "peer refresh", domain="b.example")
        if (await stub_of(system.a))["update"].startswith(("updating", "canary", word)):
            break
        await trio.sleep(0.05)
    return await wait_until(
        partial(stub_of, system.a), lambda one: one["update"].startswith(word) and one["state"] == "live", seconds=60.0
    )


@pytest.mark.long
async def test_a_share_under_traffic_costs_no_message_whether_the_release_is_good_or_bad(
    tmp_path: Path, modules: dict[str, Path]
) -> None:
    async with running_system(tmp_path) as system:
        await system.change_settings(system.a, old='domain = "b.example"\n', new=CANARY)
        anna, bruno = await system.couple()
        traffic = SpreadTraffic(anna, bruno, await bruno.client.at("b.example").allocate("hyperty", ADDRESSES))
        system.nursery.start_soon(traffic.run)
        first = await stub_of(system.a)
        await release(system, modules["good"])
        good = await _updated(system, "took-over")
        assert good["package"] != first["package"]
        await release(system, modules["bad"])
        bad = await _updated(system, "rolled-back")
        assert (bad["package"], "stub-trapped" in bad["update"]) == (good["package"], True)
        await traffic.check()
        assert await system.a.stop() == 0
        spool = system.a.folder.data / "records"
        events = [one.event for one in read_records(spool, StubEvent)]
        carried = [one for one in read_records(spool, MessageRecord) if one.role == "out"]
    assert (events.count("canary"), events.count("took-over"), events.count("rolled-back")) == (2, 1, 1)
    assert len(carried) > traffic.sent
    assert {one.outcome for one in carried} == {"delivered"}
