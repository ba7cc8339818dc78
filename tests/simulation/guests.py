"""Stubs in the process of the simulation: the same modules, engine, calls and fuel, without the confinement.

A worker process would run on the clock of the machine. The budget of fuel, memory and tables is that of the product;
its limits by time are out of force, since no time passes while a guest runs.
"""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path
from typing import Final

import trio

from protofly.errors import Code, PeerError, StubFaultError
from sandbox.core.frames import COMMAND, ForkKind, GuestFault, Reply, encode_reply
from sandbox.engine import Engine
from sandbox.host import Sandbox
from sandbox.stub_process import ConfinedProcess
from sandbox.ticker import CpuClockTicker
from sandbox.worker import Worker

_ARTIFACTS: Final = "compiled"
_LATER_SHARE: Final = 0.5
"""How often others run before an answer is there."""


class _NoTicker(CpuClockTicker):
    """No ticks: guests are bounded by fuel."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def guest_starts(self) -> None:
        """See `CpuClockTicker`."""

    def guest_stops(self) -> None:
        """See `CpuClockTicker`."""


class Compiler:
    """Compiles modules, or takes what a seed before compiled: all domains publish the same one.

    Args:
        folder: What was compiled is kept there for further seeds. They share it while one command runs.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._folder = folder / _ARTIFACTS
        self._replies: dict[bytes, bytes] = {}

    def compiled(self, module: bytes) -> bytes:
        """What a compile child replies about a module."""
        if module not in self._replies:
            self._replies[module] = self._kept(module)
        return self._replies[module]

    def _kept(self, module: bytes) -> bytes:
        file = self._folder / hashlib.sha256(module).hexdigest()
        if file.exists():
            return file.read_bytes()
        reply = encode_reply(self._reply(module))
        self._folder.mkdir(exist_ok=True)
        mine = file.with_name(f"{file.name}.{os.getpid()}")
        mine.write_bytes(reply)
        mine.rename(file)
        return reply

    def _reply(self, module: bytes) -> Reply:
        try:
            return Reply(GuestFault.NONE, 0, 0, 0, [self._engine.compile(module)], "")
        except PeerError as error:
            return Reply(GuestFault.REFUSED, 0, 0, 0, [], error.detail)


class _Child(ConfinedProcess):
    """In place of a process: answers commands as a worker or a compile child does."""

    def __init__(self, engine: Engine, kind: ForkKind, compiler: Compiler) -> None:
        self.pid = os.getpid()
        self.ended = trio.Event()
        self.exit_status: int | None = None
        self._compiler = compiler
        self._worker = Worker(engine, _NoTicker()) if kind is ForkKind.WORKER else None

    async def ask(self, frame: bytes, max_reply_bytes: int) -> bytes:  # noqa: ARG002 - the engine bounds it
        """See `ConfinedProcess`."""
        if random.random() < _LATER_SHARE:
            await trio.lowlevel.checkpoint()
        if self.ended.is_set():
            raise StubFaultError(Code.STUB_DIED, "the simulated process was killed", fault="died")
        if self._worker is None:
            return self._compiler.compiled(frame[COMMAND.size :])
        return self._worker.answer(frame)

    def kill(self) -> None:
        """See `ConfinedProcess`."""
        self.note_exit(-9)

    def close(self) -> None:
        """See `ConfinedProcess`."""
        self.kill()


class SimulatedSandbox(Sandbox):
    """The sandbox of a simulated node."""

    def __init__(self, engine: Engine, compiler: Compiler) -> None:
        super().__init__()
        self._engine = engine
        self._compiler = compiler
        self._fingerprint = "simulated"
        self.children: list[_Child] = []

    @property
    def zygote_pid(self) -> int:
        """There is none, and the node need not report that."""
        return os.getpid()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Sandbox`."""
        task_status.started()
        await trio.sleep_forever()

    async def _fork(self, kind: ForkKind) -> ConfinedProcess:
        await trio.lowlevel.checkpoint()
        child = _Child(self._engine, kind, self._compiler)
        self.children = [one for one in self.children if not one.ended.is_set()] + [child]
        return child
