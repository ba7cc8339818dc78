"""Child processes of a laboratory: started, awaited by their `ready` line, stopped by their own id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import trio

from interop.patience import comes
from protofly.errors import Code, HostError, TransportError

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 8.0
"""Both of a machine that is not crowded; see `Patience`."""
_LINE_BYTES: Final = 65_536
_LOG_LINES_SHOWN: Final = 12


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors inside a group, without the groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


async def stop_on_sigterm(scope: trio.CancelScope) -> None:
    """Cancel the scope when we are asked to end, as Ctrl-C does, so that no node is left behind."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


@contextmanager
def first_error() -> Iterator[None]:
    """Raise the first HostError of a group as itself, if the group has no other kind of error; else Ctrl-C as such."""
    try:
        yield
    except BaseExceptionGroup as group:
        errors = list(leaves(group))
        if any(isinstance(error, KeyboardInterrupt) for error in errors):
            raise KeyboardInterrupt from group
        if not all(isinstance(error, HostError) for error in errors):
            raise
        raise errors[0] from group


class ChildProcess(Protocol):
    """Interface of a started process that is needed here, as `trio.Process` has it."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """See `trio.Process`."""

    @property
    def stdin(self) -> trio.abc.SendStream | None:
        """See `trio.Process`."""

    @property
    def stdout(self) -> trio.abc.ReceiveStream | None:
        """See `trio.Process`."""

    def poll(self) -> int | None:
        """See `trio.Process`."""

    async def wait(self) -> int:
        """See `trio.Process`."""

    def send_signal(self, number: int, /) -> None:
        """See `trio.Process`."""

    def terminate(self) -> None:
        """See `trio.Process`."""

    def kill(self) -> None:
        """See `trio.Process`."""


open_process: Callable[..., Awaitable[ChildProcess]] = trio.lowlevel.open_process
"""Starts a process. Tests put a faster one here."""


class Child:
    """One process of ours: a Python module that ends when we end, unless `program` says otherwise.

    Its standard error goes to `log_file`, and so does its standard output if nobody reads it (`output_to_log`); its
    working directory is `folder`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] | None = None,
        folder: Path | None = None,
        output_to_log: bool = False,
    ) -> None:
        self._output_to_log = output_to_log
        self._name = " ".join([*(program or ()), *arguments])
        ours = (sys.executable, "-m", "interop.ends_with_parent", str(os.getpid()))
        self._arguments = [*(program or ours), *arguments]
        self._log_file = log_file
        self._folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self._process: ChildProcess | None = None
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Process id, 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def is_running(self) -> bool:
        """True if the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start the process in a session of its own: Ctrl-C is ours, we stop our children in order."""
        with self._log_file.open("ab") as log:
            self._process = await open_process(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=log if self._output_to_log else subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )

    async def wait_ready(self) -> dict[str, object]:
        """The object that the process prints after the word `ready`.

        Raises:
            TransportError: NOT_CONNECTED when it ends or stays silent; the text holds the end of its log.
        """
        text = ""

        async def read() -> None:
            nonlocal text
            word = ""
            while word != "ready":
                word, _, text = (await self.read_line()).partition(" ")

        try:
            if await comes(read, seconds=READY_SECONDS):
                return dict(json.loads(text))
        except EOFError:
            await self._wait_until_ended()
        raise TransportError(Code.NOT_CONNECTED, self.obituary(), phase="connect")

    async def _wait_until_ended(self) -> None:
        """A process that has closed its output is about to end: wait for its status."""
        if self._process is not None:
            await comes(self._process.wait, seconds=STOP_SECONDS)

    def obituary(self) -> str:
        """A line that says if the process is silent or has ended, and the end of its log."""
        lines = self._log_file.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        state = "is silent" if self.is_running else f"ended with {self._process.returncode if self._process else '?'}"
        return "\n".join([f"{self._name} {state}; its log {'says:' if lines else 'is empty'}", *lines])

    async def read_line(self) -> str:
        """One line of standard output.

        Raises:
            EOFError: when the process has closed it.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        while b"\n" not in self._buffer:
            data = await self._process.stdout.receive_some(_LINE_BYTES)
            if not data:
                raise EOFError(self.obituary())
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    async def write_line(self, text: str) -> None:
        """One line to standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        await self._process.stdin.send_all(text.encode() + b"\n")

    async def stop(self) -> int | None:
        """Ask the process to end, end it after `STOP_SECONDS`; returns its exit status, None if it never ran."""
        process = self._process
        if process is None:
            return None
        with trio.CancelScope(shield=True):
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            await comes(process.wait, seconds=STOP_SECONDS)
            if process.poll() is None:
                process.kill()
                await process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await stream.aclose()
        return process.returncode
