"""The host's end of the zygote, played note by note."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import trio
import trio.testing

from sandbox.core.frames import FORK, NOTE_BYTES, ForkKind
from sandbox.stub_process import ConfinedProcess
from sandbox.zygote_process import ZygoteProcess


async def test_child_that_comes_in_the_moment_of_the_cancellation_is_ended() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection, its_end = socket.socketpair()
    with ours, theirs, its_end, subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:  # noqa: ASYNC220
        zygote = ZygoteProcess(ours, is_unconfined=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(zygote.fork, ForkKind.WORKER)
            await trio.testing.wait_all_tasks_blocked()
            _, _, serial = FORK.unpack(theirs.recv(NOTE_BYTES))
            nursery.cancel_scope.cancel()
            zygote._settle(serial, ConfinedProcess(child.pid, os.pidfd_open(child.pid), connection))
        assert child.wait(timeout=10) == -signal.SIGKILL
        assert connection.fileno() == -1
