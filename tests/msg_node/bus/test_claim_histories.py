"""Runtimes of nodes in one process contend for addresses, over a directory that answers when chance says so."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from interop.lab.core.operations import NOBODY, Operation, unexplained
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


async def never(_: Runtime) -> Runtime:
    raise AssertionError("a node closed the connection of a runtime")


async def recorded(folder: Path, seed: int) -> History:
    """What contending runtimes do and see at two or three nodes."""
    chance, history = random.Random(seed), History()
    names = ("n1", "n2", "n3")[: 2 + seed % 2]
    async with cluster_rig(folder, names) as rigs, trio.open_nursery() as nursery:
        contenders = [Contender(name, history) for name in ("ana", "bo", "eve", "fay")]
        for number, contender in enumerate(contenders):
            await contender.open(rigs[number % len(rigs)])
        for rig in rigs:
            directory = node_of(rig).directory
            directory.__class__ = Chance
            assert isinstance(directory, Chance)
            directory.chance, directory.turn, directory.unheard = chance, trio.Lock(), []
            node_of(rig).parts.routing.clock = lambda: SPEED * trio.current_time()
        for contender in contenders:
            nursery.start_soon(contender.listen, never)
            nursery.start_soon(contender.contend, [other for other in contenders if other is not contender])
        await history.wait(STEPS)
        while not is_worth_a_look(history, contenders):
            await history.wait(STEPS)
        nursery.cancel_scope.cancel()
    return history


@pytest.mark.parametrize("seed", range(4))
async def test_claims_at_several_nodes_are_explained_by_some_order_whenever_the_directory_answers(
    tmp_path: Path, seed: int
) -> None:
    history = await recorded(tmp_path, seed)
    contradictions = unexplained(history.operations)
    if contradictions:
        pytest.fail("\n".join(str(step) for step in contradictions[0]), pytrace=False)


# What the checker finds, planted into such a history.


def tenure(history: History) -> tuple[Operation, Operation]:
    """A claim that was granted, and the release of the same address by the same runtime: it was owned in between."""
    for index, claim in enumerate(history.operations):
        if (claim.kind, claim.result) == ("claim", "ok"):
            later = (
                one for one in history.operations[index:] if (one.object, one.runtime) == (claim.object, claim.runtime)
            )
            release = next(one for one in later if one.kind == "release")
            if release.result == "ok":
                return claim, release
    raise AssertionError("nobody had anything")


def between(claim: Operation, release: Operation, **changed: Any) -> Operation:
    """A step of another runtime, at one moment while the address was owned."""
    moment = (claim.ended + release.began) / 2
    return replace(claim, runtime="mallory", began=moment, ended=moment, **changed)


def two_owners(history: History) -> None:
    history.note(between(*tenure(history), kind="claim", result="ok"))


def answered_by_somebody_else(history: History) -> None:
    history.note(between(*tenure(history), kind="find", result="somebody else"))


def acknowledged_and_lost(history: History) -> None:
    history.note(between(*tenure(history), kind="find", result=NOBODY))


def delivered_twice(history: History) -> None:
    heard = next(one for one in history.operations if one.kind == "hear")
    history.note(replace(heard, began=heard.began + 1000, ended=heard.ended + 1000))


def out_of_order(history: History) -> None:
    heard = [one for one in history.operations if one.kind == "hear"]
    first = next(one for one in heard if sum(other.object == one.object for other in heard) > 1)
    second = next(one for one in heard if one.object == first.object and one is not first)
    for one, value in ((first, second.value), (second, first.value)):
        history.operations[history.operations.index(one)] = replace(one, value=value)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return trio.run(recorded, tmp_path_factory.mktemp("recorded"), 1)


@pytest.mark.parametrize(
    "plant", [two_owners, answered_by_somebody_else, acknowledged_and_lost, delivered_twice, out_of_order]
)
def test_a_violation_that_is_planted_into_a_recorded_history_is_the_one_that_is_found(
    history: History, plant: Callable[[History], None]
) -> None:
    spoilt = History()
    spoilt.operations = list(history.operations)
    assert unexplained(spoilt.operations) == []
    plant(spoilt)
    [shown] = unexplained(spoilt.operations)
    planted = [one for one in spoilt.operations if one not in history.operations]
    assert set(shown) & set(planted)
    assert len(shown) <= 4
