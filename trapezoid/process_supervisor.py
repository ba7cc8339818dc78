"""Runs the processes of one node: starts them, starts again what dies, passes signals on, and ends with the worst code.

A process whose parent has ended, however that ended, ends by itself: its standard input is a pipe of the parent.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from trapezoid.output import LOST_MESSAGES

logger = logging.getLogger("trapezoid")

PAUSE_SECONDS: Final = 0.5
PAUSE_MOST_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A process that lived so long is started again as if it had never died."""
_READY: Final = b"ready "
_IN_ORDER: Final = frozenset({0, LOST_MESSAGES})
_SIGNALLED: Final = 128
"""Added to the number of a signal that ended a process, as shells do."""


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """Command line and environment of one process."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def pause_before(restart: int) -> float:
    """Seconds before a process is started again: `restart` is 1 for the first time without a steady life between."""
    return min(PAUSE_SECONDS * 2.0 ** min(restart - 1, 16), PAUSE_MOST_SECONDS)


def worst(codes: list[int]) -> int:
    """The exit code of all processes together: the largest, where a signal counts as 128 and its number."""
    return max((code if code >= 0 else _SIGNALLED - code for code in codes), default=0)


def serve_command(config: Path, number: int) -> tuple[str, ...]:
    """The command of one process."""
    program = (sys.executable, "-m", "trapezoid", "serve")
    return (*program, "--config", str(config), "--process", str(number))


class ProcessSupervisor:
    """Runs processes until they are to end.

    Args:
        commands: By the number of the process.
        on_ready: Called once, when all serve, with what each said of itself.
    """

    def __init__(
        self, commands: Mapping[int, ChildCommand], on_ready: Callable[[dict[int, dict[str, Any]]], None]
    ) -> None:
        self._commands = commands
        self._on_ready = on_ready
        self._running: dict[int, trio.Process] = {}
        self._ready: dict[int, dict[str, Any]] = {}
        self._codes: dict[int, int] = {}
        self._failed_start = 0
        self._stopping = trio.Event()

    async def run(self) -> int:
        """Run until SIGINT or SIGTERM, or until all processes have ended in order; the worst exit code."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, signals)
                await self._keep_all()
                nursery.cancel_scope.cancel()
        return worst([self._failed_start] if self._failed_start else list(self._codes.values()))

    async def _keep_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in self._commands:
                nursery.start_soon(self._keep, number)

    async def _pass_on(self, signals: AsyncIterator[int]) -> None:
        """Pass signals on to all processes."""
        async for number in signals:
            if number != signal.SIGHUP:
                self._stopping.set()
            self._signal(signal.SIGHUP if number == signal.SIGHUP else signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(number)

    async def _keep(self, number: int) -> None:
        """Run one process, again and again until it is to end."""
        restarts = 0
        while not self._stopping.is_set():
            began = trio.current_time()
            code = self._codes[number] = await self._run_once(number)
            if self._stopping.is_set():
                return
            if code in _IN_ORDER:  # it was drained, by an operator or from outside
                logger.warning(
                    "process %d has drained and ended with %d; it starts again with the node only", number, code
                )
                return
            if number not in self._ready:
                logger.error("process %d could not start: it ended with %d; all stop", number, code)
                self._failed_start = self._failed_start or code
                self._stopping.set()
                self._signal(signal.SIGTERM)
                return
            restarts = 1 if trio.current_time() - began > STEADY_SECONDS else restarts + 1
            pause = pause_before(restarts)
            logger.error("process %d ended with %d; it starts again in %.1f s", number, code, pause)
            with trio.move_on_after(pause):
                await self._stopping.wait()

    async def _run_once(self, number: int) -> int:
        command = self._commands[number]
        process = await trio.lowlevel.open_process(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=command.environment,
            start_new_session=True,  # what a terminal sends comes once, from here
        )
        self._running[number] = process
        if self._stopping.is_set():
            process.terminate()
        assert process.stdout is not None
        output = b""
        async for part in process.stdout:
            output = (output + part)[-(1 << 16) :]
            if number not in self._ready and output.startswith(_READY) and output.endswith(b"\n"):
                self._take_ready(number, output)
        code = await process.wait()
        assert process.stdin is not None
        await process.stdin.aclose()
        await process.stdout.aclose()
        del self._running[number]
        return code

    def _take_ready(self, number: int, line: bytes) -> None:
        self._ready[number] = msgspec.json.decode(line.removeprefix(_READY), type=dict[str, Any])
        if self._ready.keys() == self._commands.keys():
            self._on_ready(self._ready)
