"""The host's end of the zygote: starts it, asks it for children, hears how they ended."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakSet

import trio

from protofly.errors import Code, StubFaultError
from sandbox.core.frames import FORK, NOTE, NOTE_BYTES, ForkKind, Note, clean_text
from sandbox.stub_process import ConfinedProcess

BOOTSTRAP: Final = "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.zygote import main; main()"
ROOT: Final = str(Path(__file__).resolve().parent.parent)
DESCRIPTORS_PER_NOTE: Final = 2


class ZygoteProcess:
    """One life of the zygote. Its children live no longer than it does: the kernel sees to that."""

    def __init__(self, connection: socket.socket, *, is_unconfined: bool) -> None:
        self.pid = 0
        self.fingerprint = ""
        self.ended = trio.Event()
        self.failure = ""
        self._socket = connection
        self._is_unconfined = is_unconfined
        self._serial = 0
        self._waiting: dict[int, trio.Event] = {}
        self._forked: dict[int, ConfinedProcess | StubFaultError] = {}
        self._children: dict[int, ConfinedProcess] = {}
        self._open: WeakSet[ConfinedProcess] = WeakSet()

    async def fork(self, kind: ForkKind) -> ConfinedProcess:
        """One fresh child, already confined.

        Raises:
            StubFaultError: STUB_FAILED when it cannot be made; the reason says whether the machine lacks something.
        """
        self._serial += 1
        serial = self._serial
        arrived = self._waiting[serial] = trio.Event()
        try:
            self._socket.send(FORK.pack(kind, self._is_unconfined, serial))
            await arrived.wait()
        except OSError as error:
            raise _no_zygote() from error
        except trio.Cancelled:
            # It may have come between the cancellation and now: nobody else knows of it.
            _let_go(self._forked.pop(serial, None))
            raise
        finally:
            del self._waiting[serial]
        child = self._forked.pop(serial)
        if isinstance(child, StubFaultError):
            raise child
        return child

    async def listen(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read notes until the zygote is gone; ready when the zygote is."""
        try:
            while await self._read_note(task_status):
                pass
        finally:
            self._end_waiting()

    async def _read_note(self, task_status: trio.TaskStatus[None]) -> bool:
        await trio.lowlevel.wait_readable(self._socket)
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._socket, NOTE_BYTES, DESCRIPTORS_PER_NOTE, flags)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if len(packet) < NOTE.size:
            return False
        note, serial, pid, status = NOTE.unpack_from(packet)
        text = packet[NOTE.size :]
        if note == Note.READY:
            self.pid, self.fingerprint = pid, clean_text(text)
            task_status.started()
        elif note == Note.FORKED:
            self._settle(serial, self._adopt(pid, descriptors))
        elif note == Note.FAILED:
            self.failure = clean_text(text)
            self._settle(serial, StubFaultError(Code.STUB_FAILED, self.failure, fault="fork"))
        elif note == Note.EXITED and pid in self._children:
            self._children.pop(pid).note_exit(status)
        return True

    def _adopt(self, pid: int, descriptors: list[int]) -> ConfinedProcess:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=descriptors[0])
        child = self._children[pid] = ConfinedProcess(pid, descriptors[1], connection)
        self._open.add(child)
        return child

    def _settle(self, serial: int, outcome: ConfinedProcess | StubFaultError) -> None:
        arrived = self._waiting.get(serial)
        if arrived is not None:
            self._forked[serial] = outcome
            arrived.set()
        else:
            _let_go(outcome)  # its caller was cancelled meanwhile

    def _end_waiting(self) -> None:
        """End all waiting for a dead zygote; its children die with it."""
        self.ended.set()
        for serial in list(self._waiting):
            self._settle(serial, _no_zygote())
        for child in list(self._open):
            child.ended.set()
            child.close()


@asynccontextmanager
async def open_zygote(*, is_unconfined: bool) -> AsyncIterator[ZygoteProcess]:
    """A running zygote; leaving the block kills it and with it every worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with ours, theirs:
        async with trio.open_nursery() as nursery:
            run = partial(
                trio.run_process,
                [sys.executable, "-I", "-c", BOOTSTRAP, ROOT],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,
                check=False,
                deliver_cancel=_kill,
            )
            await nursery.start(run)
            theirs.close()
            yield ZygoteProcess(ours, is_unconfined=is_unconfined)
            nursery.cancel_scope.cancel()


def _let_go(outcome: ConfinedProcess | StubFaultError | None) -> None:
    if isinstance(outcome, ConfinedProcess):
        outcome.close()


def _environment() -> dict[str, str]:
    """Nothing of ours, except where the interpreter itself would not start without it."""
    library_path = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": library_path} if library_path else {}


async def _kill(process: trio.Process) -> None:
    process.kill()
    await trio.lowlevel.checkpoint()


def _no_zygote() -> StubFaultError:
    return StubFaultError(Code.STUB_FAILED, f"the zygote is gone ({errno.errorcode[errno.EPIPE]})", fault="zygote")
