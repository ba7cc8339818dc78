"""Play the cases of an author: a real sandbox worker, a far end that the script plays, and time that only steps pass.

Every case has a fresh instance, the same clock and the same random bytes, so that a stub answers the same at every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from protofly.errors import SettingsError, StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import Event, GuestEvent
from stubkit.cases import Case, Script, StubCaseStep, difference
from stubkit.complaints import complaints_about
from stubkit.sandboxed import CompiledStub, compiled_stub, read_module
from stubkit.trace import Trace
from stubkit.trial import CHECK_DOMAIN
from stubkit.virtual_host import Cost, VirtualHost, start_event


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Cost of one step, over all its calls, and its problem; "" if it went as wanted."""

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
        for step in self.steps:
            if step.problem:
                return f"step {step.number}: {step.problem}" if step.number > 0 else f"before step 1: {step.problem}"
        return ""


class CasePlayer:
    """Plays one case on one fresh instance."""

    def __init__(self, host: VirtualHost, script: Script, case: Case) -> None:
        self._host = host
        self._endpoints = case.endpoints or script.endpoints
        self._start = {"endpoints": self._endpoints, **script.start, **case.start}
        self._steps = list(enumerate(script.steps_of(case), start=1 - script.steps_before(case)))

    async def play(self) -> list[StepResult]:
        """Give `start`, unless the first step does, then go through the steps until one fails.

        Steps of the case that this one comes after have numbers below 1.
        """
        steps = self._steps
        if not steps or not steps[0][1].gives_start:
            steps = [((steps[0][0] if steps else 1) - 1, StubCaseStep(give={"event": "start"})), *steps]
        results: list[StepResult] = []
        for number, step in steps:
            results.append(await self._step(number, step))
            if results[-1].problem:
                break
        return results

    async def _step(self, number: int, step: StubCaseStep) -> StepResult:
        problem = ""
        try:
            if step.wait_ms:
                await self._host.wait(step.wait_ms)
            else:
                await self._host.give(*[self._with_settings(event) for event in step.events()])
        except StubFaultError as exc:
            problem = str(exc)
        cost = self._host.take_cost()
        complaints = complaints_about(cost.actions, frozenset(self._endpoints), is_first=step.gives_start)
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

    def _with_settings(self, event: GuestEvent) -> GuestEvent:
        """The event `start` of a script has the settings of its case, unless it says its own."""
        return start_event(self._start) if event.op == Event.START and not event.payload else event


def play_script(
    path: Path, script: Script, *, names: Sequence[str] = (), insecure_no_seccomp: bool = False
) -> list[CaseResult]:
    """Play the cases with these names, or all.

    Raises:
        SettingsError: The module cannot be read or run, or there is no such case.
    """
    unknown = sorted(set(names) - {case.name for case in script.cases})
    if unknown:
        raise SettingsError(f"no case {unknown[0]!r}; there are {', '.join(repr(one.name) for one in script.cases)}")
    chosen = [case for case in script.cases if not names or case.name in names]
    return trio.run(_play_script, path, script, chosen, insecure_no_seccomp)


async def _play_script(path: Path, script: Script, chosen: list[Case], insecure_no_seccomp: bool) -> list[CaseResult]:
    module = await trio.to_thread.run_sync(read_module, path)
    async with compiled_stub(module, path, insecure_no_seccomp=insecure_no_seccomp) as compiled:
        return [await play_case(compiled, case, script) for case in chosen]


async def play_case(compiled: CompiledStub, case: Case, script: Script) -> CaseResult:
    """Play one case on an instance of its own.

    Raises:
        StubFaultError: No worker can be started.
    """
    began = trio.current_time()
    stub = await compiled.sandbox.start_worker(CHECK_DOMAIN, compiled.code, Budget())
    trace = Trace()
    stub.record(trace)
    try:
        steps = await CasePlayer(VirtualHost(stub, compiled.module), script, case).play()
    finally:
        stub.close()
    seconds = trio.current_time() - began
    return CaseResult(name=case.name, steps=tuple(steps), seconds=seconds, trace=tuple(trace.entries))


def _excess(step: StubCaseStep, cost: Cost) -> str:
    if step.fuel and cost.fuel > step.fuel:
        return f"fuel {cost.fuel:,}; at most {step.fuel:,}"
    if step.memory and cost.memory_bytes > step.memory:
        return f"memory {cost.memory_bytes:,} bytes; at most {step.memory:,}"
    return ""
