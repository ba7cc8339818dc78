"""The zygote: a small process that has loaded the engine once and forks confined children on request.

It speaks only with the node that started it and reads no foreign byte. Its own children get a socket to the node and
lose everything else. It ends when the node lets go of its socket; its children end with it.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import Final, NoReturn

from protofly.errors import HostError
from sandbox import confinement
from sandbox.compiler import compile_one
from sandbox.core.frames import FORK, NOTE, NOTE_BYTES, ForkKind, Note
from sandbox.engine import Engine, engine_fingerprint
from sandbox.ticker import CpuClockTicker
from sandbox.worker import Worker, serve

NAME: Final = b"stub-zygote"
CHILD_NAMES: Final = {ForkKind.WORKER: b"stub-worker", ForkKind.COMPILER: b"stub-compiler"}
NICE: Final = {ForkKind.WORKER: 3, ForkKind.COMPILER: 0}
"""The node comes before its stubs.

Compilers, of which few run at once and each for a bounded time, do not give way: senders wait for them, and on a full
machine one that did took 10 s for the interpreter of scripts, as long as one waits."""
EXIT_FAILED: Final = 70


class Zygote:
    """Forks workers and reports the results."""

    def __init__(self, control: socket.socket, engine: Engine) -> None:
        self._control = control
        self._engine = engine
        self._children: dict[int, int] = {}
        self._poll = select.poll()

    def run(self) -> None:
        """Serve until the node is gone."""
        self._report(Note.READY, pid=os.getpid(), text=engine_fingerprint())
        self._poll.register(self._control, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._children:
                    self._reap(descriptor)
                elif not self._serve_request():
                    return

    def _serve_request(self) -> bool:
        request = self._control.recv(NOTE_BYTES)
        if len(request) != FORK.size:
            return False
        kind, is_unconfined, serial = FORK.unpack(request)
        try:
            self._fork(ForkKind(kind), serial, is_unconfined=bool(is_unconfined))
        except (OSError, ValueError, HostError) as error:
            self._report(Note.FAILED, serial=serial, text=str(error))
        return True

    def _fork(self, kind: ForkKind, serial: int, *, is_unconfined: bool) -> None:
        confinement.require_seccomp(is_unconfined=is_unconfined)
        host_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with host_end, child_end:
            parent_pid = os.getpid()
            pid = os.fork()
            if pid == 0:
                _be_child(kind, child_end.fileno(), parent_pid, self._engine, is_unconfined=is_unconfined)
            pidfd = os.pidfd_open(pid)
            self._children[pidfd] = pid
            self._poll.register(pidfd, select.POLLIN)
            note = NOTE.pack(Note.FORKED, serial, pid, 0)
            socket.send_fds(self._control, [note], [host_end.fileno(), pidfd])

    def _reap(self, pidfd: int) -> None:
        pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._report(Note.EXITED, pid=pid, status=os.waitstatus_to_exitcode(status))

    def _report(self, note: Note, *, serial: int = 0, pid: int = 0, status: int = 0, text: str = "") -> None:
        self._control.send(NOTE.pack(note, serial, pid, status) + text.encode("ascii", "replace"))


def _be_child(kind: ForkKind, connection: int, parent_pid: int, engine: Engine, *, is_unconfined: bool) -> NoReturn:
    """Confine, work, end. Never returns into the zygote's loop, whatever happens."""
    status = EXIT_FAILED
    try:
        confinement.leave_session(parent_pid, CHILD_NAMES[kind])
        confinement.give_way(NICE[kind])
        confinement.keep_only(connection)
        if kind is ForkKind.WORKER:
            _work(engine, is_unconfined=is_unconfined)
        else:
            confinement.set_limits(confinement.COMPILER_LIMITS)
            confinement.install_filter(is_unconfined=is_unconfined)
            compile_one(engine)
        status = 0
    except OSError:
        pass  # the host is gone, or the machine cannot confine: nothing foreign was read then
    finally:
        os._exit(status)


def _work(engine: Engine, *, is_unconfined: bool) -> None:
    ticker = CpuClockTicker(engine.tick)
    ticker.start()
    confinement.set_limits(confinement.WORKER_LIMITS)
    confinement.install_filter(is_unconfined=is_unconfined)
    serve(Worker(engine, ticker), on_loaded=lambda: confinement.forbid_new_code(is_unconfined=is_unconfined))


def main() -> None:
    """Entry point; the control socket is standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.chdir("/")
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    confinement.set_name(NAME)
    with control:
        try:
            engine = Engine()
            gc.collect()
            gc.freeze()
            Zygote(control, engine).run()
        except HostError as error:
            control.send(NOTE.pack(Note.FAILED, 0, 0, 0) + str(error).encode("ascii", "replace"))
            sys.exit(EXIT_FAILED)
