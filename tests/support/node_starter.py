"""Starts nodes by forking a process that has loaded their code: an import of all of it takes longer than most tests.

The nodes are processes as any others. What they run is the module that their command names, with its arguments,
environment, folder and streams; only the imports are done. Commands that are no such modules are started as usual.

Use: `python -m tests.support.node_starter PARENT` with a Unix socket as standard input; it ends when PARENT does. Each
request is a `_Request` in JSON with three descriptors, on a connection of its own. It is answered with the process id
and, once the process has ended, with its status.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import trio

from interop.processes import ChildProcess

MODULES: Final = ("trapezoid", "interop.ends_with_parent")
"""Those that a starter runs. Others change the clock or the path before they import anything."""
PRELOADED: Final = ("interop.ends_with_parent", "msg_node.app", "msg_node.cluster", "trapezoid.serving")
_REQUEST_BYTES: Final = 256 << 10
_ANSWER: Final = 4
_STREAMS: Final = ("stdin", "stdout", "stderr")


class _Request(msgspec.Struct, kw_only=True):
    """A process to start: the words behind `python -m`, its environment, its working directory ("": as it is)."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    has_own_session: bool


class StartedNode:
    """A node that a starter has forked; in place of a `trio.Process`."""

    def __init__(self, connection: socket.socket, pid: int, streams: Mapping[str, int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = trio.lowlevel.FdStream(streams["stdin"]) if "stdin" in streams else None
        self.stdout = trio.lowlevel.FdStream(streams["stdout"]) if "stdout" in streams else None
        self._connection = connection
        self._waiting = trio.Lock()

    def poll(self) -> int | None:
        """The exit status, None while it runs; a negative one is a signal."""
        if self.returncode is None:
            try:
                self._note(self._connection.recv(_ANSWER))
            except BlockingIOError:
                return None
        return self.returncode

    async def wait(self) -> int:
        """The exit status, as soon as there is one."""
        async with self._waiting:
            while self.poll() is None:
                await trio.lowlevel.wait_readable(self._connection)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens to a process that has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _note(self, answer: bytes) -> None:
        self.returncode = int.from_bytes(answer, "big", signed=True) if answer else -signal.SIGKILL
        self._connection.close()


class NodeStarter:
    """A starter for this process, made when it is first asked for something."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._path = f"\0trapezoid-node-starter-{os.getpid()}"

    async def open_process(self, command: Sequence[str], **options: Any) -> ChildProcess:
        """See `trio.lowlevel.open_process`. Nodes may have its `start_new_session`, `cwd`, `env` and streams."""
        words = list(command[2:])
        is_node = list(command[:2]) == [sys.executable, "-m"] and words[0] in MODULES and "serve" in words
        if not is_node or (words[0] == MODULES[1] and words[2] != MODULES[0]):
            return await trio.lowlevel.open_process(command, **options)
        request = _Request(
            words=words,
            environment=dict(options.get("env") or os.environ),
            folder=str(options.get("cwd") or ""),
            has_own_session=options.get("start_new_session", False),
        )
        with ExitStack() as ours:
            streams: dict[str, int] = {}
            theirs = [self._descriptor(name, options.get(name), streams, ours) for name in _STREAMS]
            connection = self._connected()
            socket.send_fds(connection, [msgspec.json.encode(request)], theirs)
        with trio.CancelScope(shield=True):  # what is started is known to its caller, as with trio's
            await trio.lowlevel.wait_readable(connection)
        return StartedNode(connection, int.from_bytes(connection.recv(_ANSWER), "big"), streams)

    @staticmethod
    def _descriptor(name: str, asked: int | IO[bytes] | None, streams: dict[str, int], ours: ExitStack) -> int:
        """One of the child's streams; the other end of a pipe goes to `streams`."""
        if asked == subprocess.PIPE:
            read, write = os.pipe()
            streams[name], given = (write, read) if name == "stdin" else (read, write)
            ours.callback(os.close, given)
            return given
        if asked == subprocess.DEVNULL:
            given = os.open(os.devnull, os.O_RDWR)
            ours.callback(os.close, given)
            return given
        if asked is None:
            return _STREAMS.index(name)
        return asked if isinstance(asked, int) else asked.fileno()

    def close(self) -> None:
        """End the starter, if there is one; what it has started goes on."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _connected(self) -> socket.socket:
        if self._process is None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:  # where it has ended, it refuses
                listener.bind(self._path)
                listener.listen(64)
                command = [sys.executable, "-m", __name__, str(os.getpid())]
                self._process = subprocess.Popen(command, stdin=listener.fileno(), cwd=Path(__file__).parents[2])
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self._path)
        connection.setblocking(False)
        return connection


class Forks:
    """The processes of a starter, and who waits for the end of each."""

    def __init__(self, listener: socket.socket, parent: int) -> None:
        self._listener = listener
        self._parent = parent
        self._children: dict[int, tuple[int, socket.socket]] = {}
        self._poller = select.poll()
        for watched in (listener.fileno(), parent):
            self._poller.register(watched, select.POLLIN)

    def serve(self) -> _Request | None:
        """Fork for each request until the parent ends: the request in the new process, None in this one."""
        while True:
            ready = [number for number, _ in self._poller.poll()]
            if self._parent in ready:
                return None
            for number in self._children.keys() & set(ready):
                pid, connection = self._children.pop(number)
                self._poller.unregister(number)
                _report(os.waitpid(pid, 0)[1], connection)
                os.close(number)
            if self._listener.fileno() in ready and (request := self._fork()) is not None:
                return request

    def _fork(self) -> _Request | None:
        """The request in the new process, None in this one."""
        connection, _ = self._listener.accept()
        text, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, len(_STREAMS))
        request = msgspec.json.decode(text, type=_Request)
        pid = os.fork()
        if not pid:
            for left in (self._listener, connection, *(others for _, others in self._children.values())):
                left.close()
            for pidfd in (self._parent, *self._children):
                os.close(pidfd)
            _become(request, streams)
            return request
        for stream in streams:
            os.close(stream)
        with suppress(OSError):  # who asked has gone
            connection.send(pid.to_bytes(_ANSWER, "big"))
        watched = os.pidfd_open(pid)
        self._children[watched] = pid, connection
        self._poller.register(watched, select.POLLIN)
        return None


def _report(status: int, connection: socket.socket) -> None:
    code = os.waitstatus_to_exitcode(status)
    with suppress(OSError):  # nobody waits for it any more
        connection.send(code.to_bytes(_ANSWER, "big", signed=True))
    connection.close()


def _become(request: _Request, streams: Sequence[int]) -> None:
    """Take the streams, folder, environment and arguments of a request."""
    if request.has_own_session:
        os.setsid()
    for number, one in enumerate(streams):
        os.dup2(one, number)
        os.close(one)
    if request.folder:
        os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    if request.words[0] == MODULES[1]:
        request.words[1] = str(os.getppid())  # the starter ends with its own parent


def main() -> None:
    """Serve, and in each process that is forked run what was asked for."""
    import gc
    import importlib
    import runpy

    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    parent = int(sys.argv[1])
    request = Forks(socket.socket(fileno=os.dup(0)), os.pidfd_open(parent)).serve()
    if request is not None:
        sys.argv = request.words
        sys.path[0] = str(Path.cwd())
        runpy.run_module(request.words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
