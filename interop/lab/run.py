"""Run a scene from nothing to its verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Protocol

import trio

from interop.domain_files import DomainFolder
from interop.domain_folders import Preparation
from interop.hostile.domain import HostileDomain
from interop.lab.actors import LabRuntime, Notes
from interop.lab.clients import NewClient
from interop.lab.core.scene import Action, Fault, LabScene, Misbehaviour
from interop.lab.core.seen import FaultSpan, Hop, Passage, Running, Seen
from interop.lab.core.verdict import Judged, Recovery, State, judge, recoveries
from interop.lab.registry_acts import find, register
from interop.lab.spool import read_records
from interop.lab.world import WorldPlan, running_world
from interop.patience import Patience, crowding
from protofly.errors import Code, HostError, TransportError
from protofly.records import MessageRecord

AFTER_FAULT_SECONDS: Final = 120.0
"""A fault that waits for something that never comes is not waited for any longer than this."""
CONNECT_SECONDS: Final = 60.0
"""A runtime that has no session by then gets none: its node is broken."""
QUIET_SECONDS: Final = 3.0
_LAST_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.1
_POLL_SECONDS: Final = 1.0
_LOG_LINES: Final = 20
OnStage = Callable[[str, float], None]
"""Gets what goes on, and which share of the scene is done, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """A scene that was run. `seconds` is the time from nothing to verdict."""

    scene: LabScene
    source: str
    judged: tuple[Judged, ...]
    recoveries: tuple[Recovery, ...]
    seen: Seen
    seconds: float

    @property
    def is_good(self) -> bool:
        """True if every promise that was to be tested was tested, and kept."""
        return all(one.state is State.KEPT for one in self.judged)


class PlayedWorld(Protocol):
    """The world in which a scene is played."""

    hostile: list[HostileDomain]

    def clients_of(self, domain: str) -> NewClient:
        """Factory of clients for the runtimes of a domain."""

    async def introduce(self, addresses: Sequence[str]) -> None:
        """Wait until nodes that have to know of addresses before they are written to know these."""

    async def suffer(self, fault: Fault, notes: Notes) -> None:
        """Let a fault happen, for as long as it lasts. Raises HostError or OSError if it cannot be done.

        `notes` gets which releases there were, and who was shown something false.
        """

    async def running(self, domain: str) -> dict[str, str]:
        """Digests of the modules that the node of a domain runs, by foreign domain; "" for none."""

    async def hops(self, domain: str) -> dict[str, list[tuple[str, float]]]:
        """For each message that the node of a domain traced lately, its places and their times in monotonic seconds."""


class Play:
    """One run of a scene in its world."""

    def __init__(
        self,
        scene: LabScene,
        world: PlayedWorld,
        on_stage: OnStage | None,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        crowd: Callable[[], float] = crowding,
    ) -> None:
        """Prepare a run.

        Args:
            scene: What is played.
            world: Where.
            on_stage: Gets the progress.
            quiet_seconds: At the end, when nothing has arrived for so long, nothing more is waited for.
            crowd: How much more is asked of the machine than it has; what is under way then gets more time to arrive.
        """
        self._quiet_seconds = quiet_seconds
        self._crowd = crowd
        self._scene = scene
        self._world = world
        self._on_stage = on_stage
        self.notes = Notes()
        self.notes.seen.silent = scene.silent
        self._runtimes = {
            name: LabRuntime(name, domain, world.clients_of(domain), self.notes)
            for name, domain in scene.runtimes.items()
        }
        self._things = {one.name: f"thing://{one.domain}/{one.name}" for one in scene.object}

    async def run(self) -> None:
        """Loads, actions and faults, then the time in which what is under way arrives."""
        async with trio.open_nursery() as background:
            if self._on_stage is not None:
                self._on_stage("runtimes connect", 0.0)
            await self._connect(background)
            await self._world.introduce(list(self.notes.seen.addresses))
            self.notes.begin()
            background.start_soon(self._watch)
            if self._on_stage is not None:
                background.start_soon(self._show_progress, self._on_stage)
            for hostile in self._world.hostile:
                background.start_soon(hostile.attack, lambda: self.notes.seen.addresses)
            async with trio.open_nursery() as nursery:
                self._start_loads(nursery)
                for action in self._scene.action:
                    nursery.start_soon(self._act, action)
                for misdeed in self._scene.misdeed:
                    nursery.start_soon(self._misbehave, misdeed)
                for number, fault in enumerate(self._scene.fault):
                    nursery.start_soon(self._suffer, number, fault)
            await self._settle()
            await self._look()
            background.cancel_scope.cancel()
        for runtime in self._runtimes.values():
            runtime.note_away()
        seen = self.notes.seen
        seen.faults.sort(key=lambda one: one.began)
        seen.forged = sum(one.forged for one in self._world.hostile)
        for one in self._world.hostile:
            seen.misdeeds[one.name] = {name: count for name, count in one.done.items() if count}
        seen.ended = self.notes.now()

    async def _connect(self, background: trio.Nursery) -> None:
        """Have every runtime open its session. Raises TransportError if one cannot."""
        with trio.move_on_after(CONNECT_SECONDS) as limit:
            async with trio.open_nursery() as nursery:
                for runtime in self._runtimes.values():
                    nursery.start_soon(background.start, runtime.run)
        if limit.cancelled_caught:
            names = ", ".join(name for name, one in self._runtimes.items() if not one.address)
            detail = f"no session within {CONNECT_SECONDS:.0f} s: {names}; the logs of their nodes say why (--keep)"
            raise TransportError(Code.NOT_CONNECTED, detail, phase="connect")

    def _start_loads(self, nursery: trio.Nursery) -> None:
        for load in self._scene.load:
            for source, target in product(self._scene.names_of(load.from_), self._scene.names_of(load.to)):
                if source != target:
                    nursery.start_soon(self._runtimes[source].send_load, load, self._runtimes[target])

    async def _act(self, action: Action) -> None:
        await self.notes.sleep_until(action.at)
        for name in self._scene.names_of(action.runtime):
            runtime = self._runtimes[name]
            if action.does == "register":
                await register(runtime)
            elif action.does == "find":
                for whom in self._scene.names_of(action.whom):
                    await find(runtime, self._runtimes[whom])
            else:
                await runtime.act(action, self._things.get(action.object, ""))

    async def _misbehave(self, misdeed: Misbehaviour) -> None:
        [hostile] = [one for one in self._world.hostile if one.name == misdeed.domain]
        await self.notes.sleep_until(misdeed.at)
        hostile.active.add(misdeed.does)
        await trio.sleep(misdeed.lasts)
        hostile.active.discard(misdeed.does)

    async def _suffer(self, number: int, fault: Fault) -> None:
        problem = ""
        if fault.at is not None:
            await self.notes.sleep_until(fault.at)
        elif fault.after is not None:
            with trio.move_on_after(AFTER_FAULT_SECONDS) as limit:
                await self.notes.wait_heard(fault.after.runtime, fault.after.messages)
            if limit.cancelled_caught:
                problem = f"{fault.after.runtime} did not hear {fault.after.messages} messages"
        began = self.notes.now()
        if not problem:
            try:
                await self._world.suffer(fault, self.notes)
            except (HostError, OSError) as exc:
                problem = str(exc)
        span = FaultSpan(
            number=number,
            fault=fault,
            began=began,
            ended=self.notes.now(),
            domains=fault.domains,
            problem=problem,
        )
        self.notes.seen.faults.append(span)

    async def _settle(self) -> None:
        """Until all that was sent has arrived, or nothing has come for a while; then a moment for repetitions."""
        patience = self._patience(self._scene.promise.settle_seconds)
        recovery_seconds = self._scene.promise.recovery_seconds
        count, quiet = -1, patience
        while not patience.is_over():
            seen = self.notes.seen
            outstanding = seen.outstanding()
            if not outstanding:
                break
            if len(seen.arrived) != count:
                count, quiet = len(seen.arrived), self._patience(self._quiet_seconds)
            elif quiet.is_over() and self.notes.now() > max(
                seen.may_wait_until(one, recovery_seconds) for one in outstanding
            ):
                break
            await trio.sleep(_LOOK_SECONDS)
        await trio.sleep(_LAST_SECONDS)

    def _patience(self, seconds: float) -> Patience:
        return Patience(seconds, clock=trio.current_time, crowd=self._crowd)

    async def _watch(self) -> None:
        while True:
            await self._look()
            await trio.sleep(_POLL_SECONDS)

    async def _look(self) -> None:
        """Collect the hops of traced messages, of which a node keeps the last 200, and which stubs run."""
        for domain in self._scene.our_domains if "stubs" in self._scene.promise.tests else ():
            for other, sha256 in (await self._world.running(domain)).items():
                running = Running(node=domain, domain=other, sha256=sha256, at=self.notes.now())
                self.notes.seen.running.append(running)
        for domain in self._scene.our_domains:
            for trace, places in (await self._world.hops(domain)).items():
                hops = [Hop(node=domain, place=place, at=self.notes.moment(at)) for place, at in places]
                others = [hop for hop in self.notes.seen.hops.get(trace, ()) if hop.node != domain]
                self.notes.seen.hops[trace] = others + hops

    async def _show_progress(self, on_stage: OnStage) -> None:
        whole = max(self._scene.seconds, 0.1)
        while True:
            sent, arrived = len(self.notes.seen.sent), len(self.notes.seen.arrived)
            on_stage(f"{sent:,} sent, {arrived:,} arrived", min(1.0, self.notes.now() / whole))
            await trio.sleep(_LOOK_SECONDS)


async def run_scene(
    scene: LabScene,
    plan: WorldPlan,
    *,
    source: str = "",
    on_prepared: Callable[[Preparation], None] = lambda _: None,
    on_stage: OnStage = lambda _what, _share: None,
) -> LabReport:
    """Run a scene in an empty folder, which keeps the data of all nodes afterwards.

    Raises:
        SettingsError: A file of the scene is missing, or a domain could not be made.
        TransportError: A node or a runtime could not start.
    """
    began = time.monotonic()
    async with running_world(scene, plan, on_prepared) as world:
        play = Play(scene, world, on_stage)
        await play.run()
    seen = play.notes.seen
    read_evidence(seen, world.folders)
    return LabReport(
        scene=scene,
        source=source,
        judged=tuple(judge(seen, scene.promise, play.notes.history())),
        recoveries=tuple(recoveries(seen, scene.promise.recovery_seconds)),
        seen=seen,
        seconds=time.monotonic() - began,
    )


def read_evidence(seen: Seen, folders: Mapping[str, DomainFolder]) -> None:
    """Read records and log lines of nodes of ours, after they have stopped."""
    wanted = {one.record_id for one in seen.sent}
    for domain, folder in folders.items():
        for record in read_records(folder.data / "records", MessageRecord):
            name = record.msg_id if record.msg_id in wanted else record.digest
            if name in wanted:
                passage = Passage(
                    node=domain,
                    role=record.role,
                    outcome=record.outcome,
                    code=record.outcome_code or "",
                    rule=record.rule_id or "",
                    ts_us=record.ts_us,
                )
                seen.passages.setdefault(name, []).append(passage)
        lines = folder.log.read_text(errors="replace").splitlines() if folder.log.exists() else []
        seen.log_lines[domain] = [line for line in lines if "WARN" in line or "ERROR" in line][-_LOG_LINES:]
