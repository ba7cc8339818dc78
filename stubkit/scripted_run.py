"""Play the cases of an author: a real sandbox worker, a far end that the script plays, and time that only steps pass.

Every case has a fresh instance, the same clock and the same random bytes, so that a stub answers the same at every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import trio

from protofly.errors import Code, SettingsError, StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from sandbox.host import Sandbox
from sandbox.stub_process import StubProcess
from stubkit.cases import Case, Script, Step, difference
from stubkit.complaints import complaints_about
from stubkit.sandboxed import compiled_stub, read_module
from stubkit.trace import Trace
from stubkit.trial import CHECK_DOMAIN, SETTINGS

BEGINS_MS: Final = 1_795_219_200_000
"""Unix time at the start of each case."""
NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
FIRED_TIMERS: Final = 10_000
"""So many in one step and the case fails: a stub that sets its timer anew each millisecond would go on for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one step cost, over all its calls, and what was wrong with it ("": nothing)."""

    number: int
    calls: int
    actions: int
    fuel: int
    cpu_us: int
    memory_bytes: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case, to its end or its first problem."""

    name: str
    steps: tuple[StepResult, ...]
    seconds: float
    trace: tuple[dict[str, object], ...] = ()

    @property
    def problem(self) -> str:
        """The first thing that was wrong, with its step; "" for nothing."""
        return next((f"step {step.number}: {step.problem}" for step in self.steps if step.problem), "")


@dataclass(slots=True)
class _Cost:
    calls: int = 0
    fuel: int = 0
    cpu_us: int = 0
    memory_bytes: int = 0
    actions: list[GuestAction] = field(default_factory=list)


class _RepeatableSources:
    """Clock and random bytes of one case: a function of the steps so far."""

    def __init__(self) -> None:
        self.now_ms = BEGINS_MS
        self._calls = 0

    def clock_ns(self) -> int:
        return self.now_ms * NANOSECONDS_PER_MILLISECOND

    def entropy(self, size: int) -> bytes:
        self._calls += 1
        return hashlib.sha256(b"%d" % self._calls).digest()[:size]


class CasePlayer:
    """Plays one case on one fresh instance."""

    def __init__(self, stub: StubProcess, case: Case, endpoints: frozenset[str]) -> None:
        self._stub = stub
        self._case = case
        self._endpoints = endpoints
        self._sources = _RepeatableSources()
        self._timers: dict[int, int] = {}
        stub.use_sources(self._sources.clock_ns, self._sources.entropy)

    async def play(self, start: dict[str, object]) -> list[StepResult]:
        """Give `start`, unless the first step does, then go through the steps until one fails."""
        steps = list(enumerate(self._case.steps, start=1))
        if not steps or not _gives_start(steps[0][1]):
            steps.insert(0, (0, Step(give={"event": "start"})))
        results: list[StepResult] = []
        for number, step in steps:
            results.append(await self._step(number, step, start))
            if results[-1].problem:
                break
        return results

    async def _step(self, number: int, step: Step, start: dict[str, object]) -> StepResult:
        cost, problem = _Cost(), ""
        try:
            if step.wait_ms:
                await self._wait(step.wait_ms, cost)
            else:
                await self._give([_with_settings(event, start) for event in step.events()], cost)
        except StubFaultError as exc:
            problem = str(exc)
        complaints = complaints_about(cost.actions, self._endpoints, is_first=_gives_start(step))
        problem = problem or "; ".join(complaints) or difference(step, cost.actions) or _excess(step, cost)
        return StepResult(
            number=number,
            calls=cost.calls,
            actions=len(cost.actions),
            fuel=cost.fuel,
            cpu_us=cost.cpu_us,
            memory_bytes=cost.memory_bytes,
            problem=problem,
        )

    async def _wait(self, wait_ms: int, cost: _Cost) -> None:
        """Let time pass; timers that are due fire in their order, each at its own time."""
        until_ms = self._sources.now_ms + wait_ms
        while self._timers:
            due_ms, timer = min((due_ms, timer) for timer, due_ms in self._timers.items())
            if due_ms > until_ms:
                break
            if cost.calls >= FIRED_TIMERS:
                raise StubFaultError(Code.STUB_OUTPUT, f"more than {FIRED_TIMERS:,} timers in one step")
            self._sources.now_ms = due_ms
            del self._timers[timer]
            await self._give([GuestEvent(Event.TIMER, timer, b"")], cost)
        self._sources.now_ms = until_ms

    async def _give(self, events: list[GuestEvent], cost: _Cost) -> None:
        reply = await self._stub.exchange(events)
        cost.calls += 1
        cost.fuel += reply.fuel
        cost.cpu_us += reply.cpu_us
        cost.memory_bytes = reply.memory_bytes
        cost.actions += reply.actions
        for action in reply.actions:
            if action.op == Action.SET_TIMER:
                self._timers.pop(action.arg, None)
                if delay_ms := int.from_bytes(action.payload[:4], "little"):
                    self._timers[action.arg] = self._sources.now_ms + delay_ms
        if reply.fault is not None:
            raise StubFaultError(reply.fault.code, reply.fault.trap)


def play_script(
    path: Path, script: Script, *, names: Sequence[str] = (), insecure_no_seccomp: bool = False
) -> list[CaseResult]:
    """Play the cases with these names, or all.

    Raises:
        SettingsError: The module cannot be read or run, or there is no such case.
    """
    unknown = sorted(set(names) - {case.name for case in script.cases})
    if unknown:
        raise SettingsError(f"no case {unknown[0]!r}")
    chosen = [case for case in script.cases if not names or case.name in names]
    return trio.run(_play_script, path, msgspec.structs.replace(script, cases=chosen), insecure_no_seccomp)


async def _play_script(path: Path, script: Script, insecure_no_seccomp: bool) -> list[CaseResult]:
    module = await trio.to_thread.run_sync(read_module, path)
    async with compiled_stub(module, insecure_no_seccomp=insecure_no_seccomp) as compiled:
        return [await _play_case(compiled.sandbox, compiled.code, case, script) for case in script.cases]


async def _play_case(sandbox: Sandbox, code: bytes, case: Case, script: Script) -> CaseResult:
    endpoints = case.endpoints or script.endpoints
    start = {**SETTINGS, "endpoints": endpoints, **script.start, **case.start}
    began = trio.current_time()
    stub = await sandbox.start_worker(CHECK_DOMAIN, code, Budget())
    trace = Trace()
    stub.record(trace)
    try:
        steps = await CasePlayer(stub, case, frozenset(endpoints)).play(start)
    finally:
        stub.close()
    seconds = trio.current_time() - began
    return CaseResult(name=case.name, steps=tuple(steps), seconds=seconds, trace=tuple(trace.entries))


def _gives_start(step: Step) -> bool:
    given = step.give if isinstance(step.give, list) else [step.give]
    return any(one.get("event") == "start" for one in given)


def _with_settings(event: GuestEvent, start: dict[str, object]) -> GuestEvent:
    """The event `start` of a script says only what differs from the settings of the case."""
    if event.op != Event.START or event.payload:
        return event
    return event._replace(payload=msgspec.json.encode(start))


def _excess(step: Step, cost: _Cost) -> str:
    if step.fuel and cost.fuel > step.fuel:
        return f"fuel {cost.fuel:,}; at most {step.fuel:,}"
    if step.memory and cost.memory_bytes > step.memory:
        return f"memory {cost.memory_bytes:,} bytes; at most {step.memory:,}"
    return ""
