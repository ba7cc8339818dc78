"""One soak: parties talk, faults happen, and at the end everything that was acknowledged is looked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import trio

from .faults import Faults
from .findings import MemoryVerdict, judge_memory, unexplained, unexplained_answers
from .parties import Party, converse, every, look_for, park_actions, publish_changes, register
from .world import HONEST, World, running_world

FAULT_PAUSE_SECONDS = 6.0
QUIET_SECONDS = 20.0
SETTLE_SECONDS = 60.0
AGENT = "thing://a.example/agent-1"
SWITCH = f"{AGENT}/lamp/actions/switch"
SHORTEST_FOR_MEMORY_SECONDS = 600.0
"""A shorter soak has no plateau to judge: caches are still filling."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one soak saw. No findings: all promises held."""

    findings: list[str]
    answers: dict[str, dict[str, int]]
    heard: int
    acknowledged: int
    ended: int
    registered: int
    found: int
    faults: dict[str, int]
    memory: MemoryVerdict
    memory_samples: list[tuple[float, int]]
    explained_errors: int


async def soak(
    folder: Path,
    seconds: float,
    spread: random.Random,
    show_progress: Callable[[float, str], None],
    *,
    quiet_seconds: float = QUIET_SECONDS,
) -> Outcome:
    """Run traffic and faults for so long, then traffic alone for `quiet_seconds`, settle and judge."""
    async with running_world(folder) as world:
        cast_of = Cast(world, spread)
        async with trio.open_nursery() as nursery:
            await cast_of.enter(nursery)
            nursery.start_soon(_show, world, seconds, show_progress)
            with trio.move_on_after(seconds):
                await cast_of.faults.run(pause_seconds=FAULT_PAUSE_SECONDS)
            show_progress(seconds, "settling")
            await trio.sleep(quiet_seconds)
            cast_of.stop_traffic()
            await cast_of.settle()
            nursery.cancel_scope.cancel()
        world.look()
        statuses = [await world.laboratory.nodes[domain].stop() for domain in ("a.example", "b.example")]
        world.look()
        return _outcome(world, cast_of, statuses, seconds)


def _outcome(world: World, cast_of: Cast, statuses: list[int | None], seconds: float) -> Outcome:
    account = world.account
    memory = judge_memory(world.memory)
    strange = unexplained(world.errors, world.windows)
    findings = account.findings()
    second = unexplained_answers(
        [(at - world.began, domain, answer) for at, domain, answer in account.second_answers],
        world.windows,
        killed="b.example",
    )
    findings += [f"{len(second)} second final answers: {', '.join(second[:3])}"] if second else []
    findings += [f"{len(strange)} ERROR lines that no fault explains: {strange[0]}"] if strange else []
    if seconds >= SHORTEST_FOR_MEMORY_SECONDS and not memory.has_plateau:
        findings.append(f"memory grows by {memory.slope_per_hour / 2**20:.0f} MiB/h")
    if any(statuses):
        findings.append(f"nodes ended with {statuses}")
    return Outcome(
        findings=findings,
        answers={flow: dict(codes.most_common()) for flow, codes in account.answers.items()},
        heard=account.heard.total(),
        acknowledged=len(account.acknowledged),
        ended=len(account.ends),
        registered=len(account.registered),
        found=len(account.registered) - len(account.missing),
        faults=cast_of.faults.done,
        memory=memory,
        memory_samples=world.memory,
        explained_errors=len(world.errors) - len(strange),
    )


async def _show(world: World, seconds: float, show_progress: Callable[[float, str], None]) -> None:
    while True:
        rss = world.memory[-1][1] >> 20 if world.memory else 0
        name = world.windows[-1].name if world.windows and world.windows[-1].ended is None else "traffic"
        show_progress(min(world.now, seconds), f"{name}, {world.account.heard.total():,} heard, {rss} MiB")
        await trio.sleep(1)


class Cast:
    """All parties of one soak and what they do."""

    def __init__(self, world: World, spread: random.Random) -> None:
        self.world = world
        self._spread = spread
        new = partial(Party, world.account)
        a, b = world.a, world.b
        self.anna, self.carla, self.sender, self.agent, self.reporter, self.registrar = (
            new(lambda: a.access_point, "a.example", name)
            for name in ("anna", "carla", "sender", "agent", "reporter", "registrar")
        )
        self.observers = [new(lambda: a.access_point, "a.example", f"observer-{number}") for number in range(6)]
        self.bruno, self.boris = (new(lambda: b.access_point, "b.example", name) for name in ("bruno", "boris"))
        self.faults = Faults(world, self.carla, self.anna, spread)
        self._traffic = trio.CancelScope()
        self._is_settling = trio.Event()

    async def enter(self, nursery: trio.Nursery) -> None:
        """Open all sessions and begin to talk."""
        parties = [self.anna, self.carla, self.sender, self.reporter, self.registrar, *self.observers]
        for party in [*parties, self.bruno, self.boris]:
            nursery.start_soon(party.stay)
        for party in [*parties, self.bruno, self.boris]:
            await party.is_up.wait()
        await self._open_agent()
        self.world.foreign[HONEST].publish()
        nursery.start_soon(self._talk)
        nursery.start_soon(self._come_and_go)

    async def _open_agent(self) -> None:
        with trio.move_on_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.agent.stay)
                await self.agent.is_up.wait()
                await self.agent.client.at("a.example").subscribe([AGENT])
                nursery.cancel_scope.cancel()

    async def _talk(self) -> None:
        spread = self._spread
        honest = f"hyperty://{HONEST}/h-1"

        async def ask_honest(number: int) -> None:
            await self.carla.ask("A to a foreign domain", "create", honest, {"value": number})

        with self._traffic:
            async with trio.open_nursery() as nursery:
                start = nursery.start_soon
                start(partial(converse, self.anna, self.bruno, "A to B", seconds=0.03, spread=spread))
                start(partial(converse, self.bruno, self.anna, "B to A", seconds=0.03, spread=spread))
                start(partial(converse, self.carla, self.anna, "inside A", seconds=0.05, spread=spread))
                start(partial(publish_changes, self.reporter, self.observers, seconds=0.05, spread=spread))
                start(partial(register, self.registrar, seconds=0.5, spread=spread))
                start(partial(register, self.boris, seconds=0.5, spread=spread))
                start(partial(park_actions, self.sender, SWITCH, seconds=0.1, spread=spread))
                start(partial(every, 0.3, ask_honest, spread=spread))

    async def _come_and_go(self) -> None:
        """The agent is there for some seconds, then away for some; in the end it stays."""
        while not self._is_settling.is_set():
            with trio.move_on_after(self._spread.uniform(3, 8)):
                await self.agent.stay()
            with trio.move_on_after(self._spread.uniform(2, 6)):
                await self._is_settling.wait()
        await self.agent.stay()

    def stop_traffic(self) -> None:
        """No new requests from here on."""
        self._traffic.cancel()
        self._is_settling.set()

    async def settle(self) -> None:
        """Wait until every acknowledged action has its end, then look for every registration."""
        account = self.world.account
        with trio.move_on_after(SETTLE_SECONDS):
            await account.wait_all_ended()
        readers = {"a.example": self.carla, "b.example": self.bruno}
        for address, domain in account.registered.items():
            if answer := await look_for(readers[domain], address, domain):
                account.missing.append(f"{address} ({answer})")
