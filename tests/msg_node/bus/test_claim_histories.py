"""Runtimes of nodes in one process contend for addresses, over a directory that answers when chance says so."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from interop.lab.core.operations import unexplained
from msg_node.cluster.directory import NO_CLAIMS, Claim, MemoryDirectory
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.contenders import Contender, History
from tests.support.runtime_rig import Runtime

STEPS = 400
SPEED = 200
"""What is known to be nowhere is asked for again so much sooner."""
LONGEST_PAUSE = 30
"""Scheduler rounds that the directory takes for one way at most."""


class Chance(MemoryDirectory):
    """A directory like the one in the engine: one question at a time, slow both ways; what ends is heard later."""

    chance: random.Random
    turn: trio.Lock
    unheard: list[str]

    async def pause(self) -> None:
        for _ in range(self.chance.randrange(LONGEST_PAUSE)):
            await trio.lowlevel.checkpoint()
        if self.chance.random() < 0.05:
            heard, self.unheard = self.unheard, []
            self.on_ended(heard)

    async def claim(
        self, keys: Collection[str], replaced: Mapping[str, Claim] = NO_CLAIMS, **more: Any
    ) -> dict[str, Claim]:
        async with self.turn:
            await self.pause()
            owners = await super().claim(keys, replaced, **more)
            await self.pause()
            return owners

    async def find(self, keys: Collection[str]) -> dict[str, Claim]:
        async with self.turn:
            await self.pause()
            found = await super().find(keys)
            await self.pause()
            return found

    async def release(self, keys: Collection[str]) -> None:
        async with self.turn:
            await self.pause()
            await super().release(keys)
            await self.pause()

    def _notify(self, ended: Collection[str]) -> None:
        for directory in self._others:
            assert isinstance(directory, Chance)
            directory.unheard += ended


def is_worth_a_look(history: History, contenders: list[Contender]) -> bool:
    """True when each runtime had what it claimed, and not, and heard others, and two of them were found."""
    counts = history.counts()
    wanted = (("claim", "ok"), ("claim", "refused"), ("release", "ok"), ("hear", "ok"))
    found = {step.result for step in history.operations if step.kind == "find"} - {""}
    return len(found) > 1 and all(counts[one.name, *seen] for one in contenders for seen in wanted)


@pytest.mark.parametrize("seed", range(4))
async def test_claims_at_several_nodes_are_explained_by_some_order_whenever_the_directory_answers(
    tmp_path: Path, seed: int
) -> None:
    chance, history = random.Random(seed), History()
    names = ("n1", "n2", "n3")[: 2 + seed % 2]
    async with cluster_rig(tmp_path, names) as rigs, trio.open_nursery() as nursery:
        contenders = [Contender(name, history) for name in ("ana", "bo", "eve", "fay")]
        for number, contender in enumerate(contenders):
            await contender.open(rigs[number % len(rigs)])
        for rig in rigs:
            directory = node_of(rig).directory
            directory.__class__ = Chance
            assert isinstance(directory, Chance)
            directory.chance, directory.turn, directory.unheard = chance, trio.Lock(), []
            node_of(rig).parts.routing.clock = lambda: SPEED * trio.current_time()

        async def never(_: Runtime) -> Runtime:
            raise AssertionError("a node closed the connection of a runtime")

        for contender in contenders:
            nursery.start_soon(contender.listen, never)
            nursery.start_soon(contender.contend, [other for other in contenders if other is not contender])
        await history.wait(STEPS)
        while not is_worth_a_look(history, contenders):
            await history.wait(STEPS)
        nursery.cancel_scope.cancel()
    contradictions = unexplained(history.operations)
    if contradictions:
        pytest.fail("\n".join(str(step) for step in contradictions[0]), pytrace=False)
