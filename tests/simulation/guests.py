"""Stubs in the process of the simulation: the same modules, engine, calls and fuel, without the confinement.

A worker process would run on the clock of the machine. The budget of fuel, memory and tables is that of the product;
its limits by time are out of force, since no time passes while a guest runs.
"""

from __future__ import annotations

import os

import trio

from protofly.errors import Code, PeerError, StubFaultError
from sandbox.core.frames import COMMAND, ForkKind, GuestFault, Reply, encode_reply
from sandbox.engine import Engine
from sandbox.host import Sandbox
from sandbox.stub_process import ConfinedProcess
from sandbox.ticker import CpuClockTicker
from sandbox.worker import Worker

_compiled: dict[bytes, bytes] = {}


class _NoTicker(CpuClockTicker):
    """No ticks: guests are bounded by fuel."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def guest_starts(self) -> None:
        """See `CpuClockTicker`."""

    def guest_stops(self) -> None:
        """See `CpuClockTicker`."""


class _Child(ConfinedProcess):
    """In place of a process: answers commands as a worker or a compile child does."""

    def __init__(self, engine: Engine, kind: ForkKind) -> None:
        self.pid = os.getpid()
        self.ended = trio.Event()
        self.exit_status: int | None = None
        self._engine = engine
        self._worker = Worker(engine, _NoTicker()) if kind is ForkKind.WORKER else None

    async def ask(self, frame: bytes, max_reply_bytes: int) -> bytes:  # noqa: ARG002 - the engine bounds it
        """See `ConfinedProcess`."""
        await trio.lowlevel.checkpoint()
        if self.ended.is_set():
            raise StubFaultError(Code.STUB_DIED, "the simulated process was killed", fault="died")
        return self._compiled(frame) if self._worker is None else self._worker.answer(frame)

    def _compiled(self, frame: bytes) -> bytes:
        """Compile a module, or take what it was compiled to before: all domains publish the same one."""
        module = frame[COMMAND.size :]
        if module not in _compiled:
            try:
                reply = Reply(GuestFault.NONE, 0, 0, 0, [self._engine.compile(module)], "")
            except PeerError as error:
                reply = Reply(GuestFault.REFUSED, 0, 0, 0, [], error.detail)
            _compiled[module] = encode_reply(reply)
        return _compiled[module]

    def kill(self) -> None:
        """See `ConfinedProcess`."""
        self.note_exit(-9)

    def close(self) -> None:
        """See `ConfinedProcess`."""
        self.kill()


class SimulatedSandbox(Sandbox):
    """The sandbox of a simulated node."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
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
        child = _Child(self._engine, kind)
        self.children = [one for one in self.children if not one.ended.is_set()] + [child]
        return child
