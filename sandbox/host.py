"""Entry point of the sandbox: compile a verified module, start a confined worker for it, keep the zygote alive.

The node's own process never loads the engine nor any foreign code: it holds sockets to processes that do.
"""

from __future__ import annotations

import logging
import sys
from typing import Final
from weakref import WeakSet

import trio

from protofly import limits
from protofly.errors import Code, HostError, PeerError, SettingsError, StubFaultError
from protofly.pauses import doubling_seconds
from sandbox.core.budget import Budget
from sandbox.core.frames import REPLY_BYTES, TRAP_CHARS, Command, ForkKind, decode_compiled, encode_command
from sandbox.core.module_check import inspect_module
from sandbox.core.scripts import code_of
from sandbox.stub_process import ConfinedProcess, ExchangeReply, Fault, StubProcess
from sandbox.zygote_process import ZygoteProcess, open_zygote

__all__ = ["ExchangeReply", "Fault", "Sandbox", "StubProcess"]

logger = logging.getLogger("sandbox")

RESTART_BASE_SECONDS: Final = 0.05
RESTART_MAX_SECONDS: Final = 5.0
STEADY_SECONDS: Final = 60.0
WATCH_SECONDS: Final = 0.25
"""How often deadlines are looked at; a batch's deadline is late by at most this."""


class Sandbox:
    """Makes workers for foreign stubs. A service: `await nursery.start(sandbox.run)` before anything else."""

    def __init__(self, *, insecure_no_seccomp: bool = False) -> None:
        self._is_unconfined = insecure_no_seccomp
        self._zygote: ZygoteProcess | None = None
        self._zygote_changed = trio.Event()
        self._first_lane = trio.Semaphore(1)
        self._second_lane = trio.Semaphore(1)
        self._stubs: WeakSet[StubProcess] = WeakSet()
        self._starts = 0
        self._compilations = 0
        self._zygote_restarts = 0
        self._fingerprint = ""

    @property
    def fingerprint(self) -> str:
        """Engine version, profile and CPU in one word, for the key of compiled code. Known once `run` is ready."""
        return self._fingerprint

    @property
    def zygote_pid(self) -> int:
        """Process id of the zygote, 0 while there is none."""
        return self._zygote.pid if self._zygote is not None else 0

    def statistics(self) -> dict[str, int]:
        """Counters since the start."""
        return {"starts": self._starts, "compilations": self._compilations, "zygote_restarts": self._zygote_restarts}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a zygote alive until cancelled; every worker ends with this.

        Raises:
            SettingsError: the first zygote does not come up, with the reason.
        """
        if sys.platform != "linux":
            raise SettingsError("the sandbox needs Linux: pidfd, seccomp and parent-death signals")
        failures = 0
        is_first = True
        while True:
            began = trio.current_time()
            failure = await self._run_zygote(task_status if is_first else trio.TASK_STATUS_IGNORED)
            if failure and is_first:
                raise SettingsError(f"the sandbox does not start: {failure}")
            is_first = False
            self._zygote_restarts += 1
            failures = 1 if trio.current_time() - began > STEADY_SECONDS else failures + 1
            delay = doubling_seconds(RESTART_BASE_SECONDS, failures, RESTART_MAX_SECONDS)
            logger.warning("the zygote ended; every stub ended with it; next one in %.2f s", delay)
            await trio.sleep(delay)

    async def _run_zygote(self, task_status: trio.TaskStatus[None]) -> str:
        """One life of a zygote; returns why it never became ready, or nothing."""
        async with open_zygote(is_unconfined=self._is_unconfined) as zygote, trio.open_nursery() as nursery:
            try:
                with trio.fail_after(limits.WORKER_START_SECONDS):
                    await nursery.start(zygote.listen)
            except (trio.TooSlowError, RuntimeError):
                return zygote.failure or "the zygote ended or kept silent before it was ready"
            nursery.start_soon(self._watch_deadlines)
            self._announce(zygote)
            task_status.started()
            await zygote.ended.wait()
            nursery.cancel_scope.cancel()
        self._announce(None)
        return ""

    async def _watch_deadlines(self) -> None:
        while True:
            await trio.sleep(WATCH_SECONDS)
            now = trio.current_time()
            for stub in list(self._stubs):
                stub.kill_if_overdue(now)

    def _announce(self, zygote: ZygoteProcess | None) -> None:
        self._zygote = zygote
        if zygote is not None:
            if self._fingerprint != zygote.fingerprint:
                logger.info("guests run on %s", zygote.fingerprint)
            self._fingerprint = zygote.fingerprint
        self._zygote_changed.set()
        self._zygote_changed = trio.Event()

    async def _fork(self, kind: ForkKind) -> ConfinedProcess:
        """One child, waiting for a zygote that is just being replaced."""
        try:
            with trio.fail_after(limits.WORKER_START_SECONDS):
                while self._zygote is None or self._zygote.ended.is_set():
                    await self._zygote_changed.wait()
                return await self._zygote.fork(kind)
        except trio.TooSlowError as error:
            raise StubFaultError(Code.STUB_FAILED, "no zygote", fault="zygote") from error

    async def compile(self, module: bytes) -> bytes:
        """Machine code of one module, made in a one-shot child.

        It serves every module with the same `code_sha256`. One module is compiled at a time. After
        COMPILE_SHORT_SECONDS it moves to a second lane, so that those that take their time wait for each other only;
        if that is taken, it begins anew there later.

        Raises:
            PeerError: MODULE_* of the structural gate, MODULE_MALFORMED of the engine, COMPILE_LIMITS when the child
                ran out of memory, CPU or wall time.
            StubFaultError: STUB_FAILED when no child can be made.
        """
        inspect_module(module)
        self._compilations += 1
        request = encode_command(Command.LOAD, code_of(module))
        compiled = await self._compiled_in_first_lane(request)
        if compiled is None:
            async with self._second_lane:
                compiled = await self._ask_compiler(request)
        return compiled

    async def _compiled_in_first_lane(self, request: bytes) -> bytes | None:
        """As `_ask_compiler`; None if it takes longer than a short time and the second lane is taken."""
        await self._first_lane.acquire()
        held = [self._first_lane]
        compiled: bytes | HostError | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._change_lanes, held, nursery.cancel_scope)
                try:
                    compiled = await self._ask_compiler(request)
                except HostError as error:  # a nursery would wrap it
                    compiled = error
                nursery.cancel_scope.cancel()
        finally:
            held.pop().release()
        if isinstance(compiled, HostError):
            raise compiled
        return compiled

    async def _change_lanes(self, held: list[trio.Semaphore], compiling: trio.CancelScope) -> None:
        """Let the next module compile after a short time, beside this one or in place of it."""
        await trio.sleep(limits.COMPILE_SHORT_SECONDS)
        try:
            self._second_lane.acquire_nowait()
        except trio.WouldBlock:
            compiling.cancel()
        else:
            held.pop().release()
            held.append(self._second_lane)

    async def _ask_compiler(self, request: bytes) -> bytes:
        """Machine code that a child of its own makes. Raises what `compile` says."""
        child = await self._fork(ForkKind.COMPILER)
        try:
            with trio.fail_after(limits.COMPILE_WALL_SECONDS):
                return decode_compiled(await child.ask(request, REPLY_BYTES + TRAP_CHARS + limits.COMPILED_BYTES))
        except trio.TooSlowError as error:
            raise PeerError(Code.COMPILE_LIMITS, f"not compiled in {limits.COMPILE_WALL_SECONDS:g} s") from error
        except StubFaultError as error:
            raise PeerError(Code.COMPILE_LIMITS, error.detail) from error
        finally:
            child.close()

    async def start_worker(self, domain: str, code: bytes, budget: Budget) -> StubProcess:
        """A confined worker with one fresh instance of the code.

        Args:
            domain: Whose stub it is; one worker serves one foreign domain.
            code: What `compile` gave, here or (under the same `fingerprint`) earlier.
            budget: What the stub may spend.

        Raises:
            StubFaultError: STUB_FAILED (no worker, or the code does not fit this engine), or the fault of
            `_initialize`.
        """
        stub = StubProcess(domain, await self._fork(ForkKind.WORKER), budget)
        self._stubs.add(stub)
        try:
            await stub.load(code)
        except BaseException:
            stub.close()
            raise
        self._starts += 1
        return stub
