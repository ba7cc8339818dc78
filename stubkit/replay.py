"""Play a recording again: the same calls in a fresh instance, compared byte for byte with what was answered then."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import trio

from protofly.errors import StubFaultError
from sandbox.core.frames import Reply
from sandbox.core.recording import Recording, playable_budget
from sandbox.stub_process import Calls, StubProcess
from stubkit.sandboxed import compiled_stub, read_module
from stubkit.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """Comparison of a replay with its recording. `difference` names the first differing exchange, "" if none."""

    exchanges: int
    is_whole: bool
    is_same_module: bool
    recorded_fault: str
    fault: str
    difference: str

    @property
    def is_same(self) -> bool:
        """The same answers, and the same end (its place may have a name now that it had not then)."""
        return not self.difference and self.fault.partition(":")[0] == self.recorded_fault.partition(":")[0]


class _Answers:
    """Keeps the outputs of the last exchange, and passes all on to a trace (see `ExchangeRecorder`)."""

    def __init__(self, trace: Trace) -> None:
        self.outputs: list[bytes] = []
        self.fault = ""
        self._trace = trace

    def handed(self, calls: Calls) -> None:
        """Calls begin."""
        self.outputs = []
        self._trace.handed(calls)

    def answered(self, reply: Reply) -> None:
        """Keep the outputs."""
        self.outputs = reply.outputs
        self._trace.answered(reply)

    async def faulted(self, fault: str) -> None:
        """Keep the fault."""
        self.fault = fault
        await self._trace.faulted(fault)


def replay(path: Path, recording: Recording, trace: Trace) -> ReplayResult:
    """Play a recording with a module: the recorded one, or a build of it that has names.

    Raises:
        SettingsError: The file cannot be read, or there is no sandbox here.
        PeerError: The module breaks the contract; DOCUMENT_MALFORMED for a recording that no node makes.
    """
    return trio.run(_replay, path, recording, trace)


async def _replay(path: Path, recording: Recording, trace: Trace) -> ReplayResult:
    budget = playable_budget(recording)
    module = await trio.to_thread.run_sync(read_module, path)
    answers = _Answers(trace)
    async with compiled_stub(module, path) as compiled:
        process = await compiled.sandbox.start_worker(recording.stub.domain, compiled.code, budget)
        process.record(answers)
        try:
            difference = await _play(process, recording, answers)
        finally:
            process.close()
    return ReplayResult(
        exchanges=len(recording.exchanges),
        is_whole=recording.is_whole,
        is_same_module=hashlib.sha256(module).hexdigest() == recording.stub.sha256,
        recorded_fault=recording.fault,
        fault=answers.fault,
        difference=difference,
    )


async def _play(process: StubProcess, recording: Recording, answers: _Answers) -> str:
    """Make the calls, until a fault; returns where the answers differ first."""
    difference = ""
    for number, exchange in enumerate(recording.exchanges, start=1):
        with contextlib.suppress(StubFaultError):  # `answers` has it
            await process.replay(exchange.calls)
        if answers.outputs != exchange.outputs and not difference:
            difference = f"exchange {number} of {len(recording.exchanges)} was answered otherwise"
        if answers.fault:
            break
    return difference
