"""Processes that outlive the command that starts them, each with a pid file.

A process id alone names whatever process has that number today. A pid file also holds when the process started and in
which boot of the machine; only a process that matches all three is ours. It is signalled through a descriptor that is
opened before the comparison, so that the number cannot change hands in between.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from interop.patience import Patience
from protofly.errors import Code, TransportError

READY_SECONDS: Final = 60.0
"""Of a machine that is not crowded; see `Patience`."""
_LOOK_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.5
_LOG_LINES_SHOWN: Final = 12
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_START_TIME_FIELD: Final = 19
"""Field 22 of `/proc/<pid>/stat`, counted from the third, which follows the name in parentheses; see proc(5)."""


KILL_SECONDS = 10.0


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identity of one process. `started_ticks` counts since the boot that `boot_id` names."""

    pid: int
    started_ticks: int
    boot_id: str


class DetachedProcess:
    """One process of a laboratory: `<name>.pid`, `<name>.out` and `<name>.log` in `folder`."""

    def __init__(self, folder: Path, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._pid_file = folder / f"{name}.pid"
        self._output = folder / f"{name}.out"
        self.log = folder / f"{name}.log"
        self._arguments = [sys.executable, "-m", *arguments]

    @property
    def pid(self) -> int:
        """Its process id, 0 if it does not run."""
        with self._found() as descriptor:
            mark = self._mark()
            return mark.pid if descriptor is not None and mark is not None else 0

    def ready_facts(self) -> dict[str, object] | None:
        """Facts that it printed after the word `ready`; None before that."""
        with suppress(OSError, msgspec.DecodeError):
            for line in self._output.read_text().splitlines(keepends=True):
                if line.startswith("ready ") and line.endswith("\n"):
                    return msgspec.json.decode(line.removeprefix("ready "), type=dict[str, object])
        return None

    async def start(self) -> dict[str, object]:
        """Start it and wait until it is ready; returns what it printed.

        Raises:
            TransportError: NOT_CONNECTED when it ends or stays silent beyond `READY_SECONDS`; it has ended then.
        """
        process = self._start()
        patience = Patience(READY_SECONDS)
        while process.poll() is None and not patience.is_over():
            facts = self.ready_facts()
            if facts is not None:
                process.returncode = 0  # it is nobody's child from here on
                return facts
            await trio.sleep(_LOOK_SECONDS)
        state = "is silent" if process.poll() is None else f"ended with {process.returncode}"
        process.kill()
        process.wait()
        self._pid_file.unlink(missing_ok=True)
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        errors = [one.removeprefix("error: ") for one in lines[-1:] if one.startswith("error: ")]
        detail = "\n".join(
            [f"{self.name} {state}: {one}" for one in errors] or [f"{self.name} {state}; {self.log} says:", *lines]
        )
        raise TransportError(Code.NOT_CONNECTED, detail, phase="connect")

    def _start(self) -> subprocess.Popen[bytes]:
        self._pid_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._output.open("wb") as output, self.log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own program
                self._arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=log, start_new_session=True
            )
        written = self._pid_file.with_suffix(".new")
        written.write_bytes(msgspec.json.encode(_mark_of(process.pid)))
        written.replace(self._pid_file)
        return process

    def end(self, *, seconds: float) -> str:
        """Ask it to end, kill it after `seconds`; returns `ended`, `killed`, or `did not run`."""
        with self._found() as descriptor:
            if descriptor is None:
                self._pid_file.unlink(missing_ok=True)
                return "did not run"
            result = "ended"
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            if not _has_ended(descriptor, seconds):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                _has_ended(descriptor, seconds)
                result = "killed"
        self._pid_file.unlink(missing_ok=True)
        return result

    def kill(self) -> str:
        """Kill it; returns `killed`, or `did not run`."""
        with self._found() as descriptor:
            if descriptor is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                _has_ended(descriptor, KILL_SECONDS)
            self._pid_file.unlink(missing_ok=True)
            return "did not run" if descriptor is None else "killed"

    def _mark(self) -> Mark | None:
        try:
            return msgspec.json.decode(self._pid_file.read_bytes(), type=Mark)
        except (OSError, msgspec.DecodeError):
            return None

    @contextmanager
    def _found(self) -> Iterator[int | None]:
        """A descriptor of our process, None when it does not run, whatever has its number now."""
        mark = self._mark()
        descriptor: int | None = None
        if mark is not None and mark.pid > 0:
            with suppress(OSError):
                descriptor = os.pidfd_open(mark.pid)
        try:
            is_ours = descriptor is not None and mark is not None and _is_running(mark)
            yield descriptor if is_ours else None
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _is_running(mark: Mark) -> bool:
    try:
        return _mark_of(mark.pid) == mark and _state_of(mark.pid) != "Z"
    except OSError:
        return False


def _mark_of(pid: int) -> Mark:
    return Mark(pid, int(_stat_of(pid)[_START_TIME_FIELD]), _BOOT_ID.read_text().strip())


def _state_of(pid: int) -> str:
    return _stat_of(pid)[0]


def _stat_of(pid: int) -> list[str]:
    """Fields of `/proc/<pid>/stat` from the third on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _has_ended(descriptor: int, seconds: float) -> bool:
    patience = Patience(seconds)
    while not select.select([descriptor], [], [], _PAUSE_SECONDS)[0]:
        if patience.is_over():
            return False
    return True
