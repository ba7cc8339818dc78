"""Short-lived processes, several at a time, each with a deadline: what it hands back, or how it ended.

Each is a fork of this process, which has imported what all tests need and nothing of ours, and leads a session of its
own: whatever it starts ends with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tests.mutation.inside import confine

_POLL_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 20.0
"""A process that takes no CPU for so long waits for something that will not come. How long it takes is no measure: the
machine may have other things to do."""
_OUT_OF_TIME: Final = frozenset({signal.SIGXCPU, signal.SIGPROF})
"""What ends a process that has taken all its CPU, or all of one test."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one process does. `work` gets an empty folder and returns what is handed back, as JSON."""

    work: Callable[[Path], object]
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How one process ended: what it handed back (b"" when it did not come so far)."""

    answer: bytes
    is_late: bool


class _Running:
    def __init__(self, task: Task) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="trapezoid-mutation-"))
        self._reader, writer = os.pipe()
        self._cpu_ticks = 0
        self._idle_since = time.monotonic()
        self._answer = b""
        self._pid = os.fork()
        if self._pid == 0:
            self._begin(task, writer)
        os.close(writer)

    def _begin(self, task: Task, writer: int) -> None:
        """The new process."""
        try:
            os.close(self._reader)
            confine(cpu_seconds=task.cpu_seconds)
            answer = msgspec.json.encode(task.work(self._folder / "tests"))
            while answer:
                answer = answer[os.write(writer, answer) :]
        finally:
            os._exit(0)

    def poll(self) -> Ended | None:
        """What is known of it by now; None while it runs."""
        while select.select([self._reader], [], [], 0.0)[0]:
            part = os.read(self._reader, 1 << 16)
            if not part:
                return self._end(is_late=False)
            self._answer += part
        return self._end(is_late=True) if self._is_idle() else None

    def _is_idle(self) -> bool:
        now = time.monotonic()
        if now - self._idle_since > 1.0:
            fields = (
                Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            )
            cpu_ticks = sum(map(int, fields[11:15]))  # in user and in kernel mode, and of children that ended; proc(5)
            if cpu_ticks != self._cpu_ticks:
                self._cpu_ticks, self._idle_since = cpu_ticks, now
        return now - self._idle_since > _IDLE_SECONDS

    def _end(self, *, is_late: bool) -> Ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        os.close(self._reader)
        shutil.rmtree(self._folder, ignore_errors=True)
        is_late = is_late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in _OUT_OF_TIME)
        return Ended(b"" if is_late else self._answer, is_late)

    def stop(self) -> None:
        self._end(is_late=True)


def _polled(running: dict[int, _Running]) -> Iterator[tuple[int, Ended]]:
    """Number and end of those that have ended; the caller takes each out before it asks for the next one."""
    for number, process in list(running.items()):
        ended = process.poll()
        if ended is not None:
            yield number, ended


def run_all(tasks: list[Task], workers: int) -> Iterator[tuple[int, Ended]]:
    """Run all, at most so many at a time; yields number and end of each as it ends."""
    waiting, running = list(enumerate(tasks))[::-1], dict[int, _Running]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                number, task = waiting.pop()
                running[number] = _Running(task)
            for number, ended in _polled(running):
                del running[number]
                yield number, ended
            time.sleep(_POLL_SECONDS)
    finally:
        for process in running.values():
            process.stop()
