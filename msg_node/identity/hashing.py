"""Hashes passwords in processes of their own, so that a log-in does not take a processor from messages.

A hash computes for a third of a second and takes 64 MiB, on purpose. A thread would have the priority of the node, and
could not get it back once it was lowered; one with a lower priority that waits for the interpreter would hold up the
others. A process starts with the first password, takes one after the other, and ends after a minute without any.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from msg_node.identity.hash_worker import HashQuestion
from msg_node.identity.password_hash import HashCost
from protofly.errors import Code, HostError

IDLE_SECONDS: Final = 60.0
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from msg_node.identity.hash_worker import main; main()"

_Answer = TypeVar("_Answer")


class Hashing:
    """The processes that hash passwords for one node. Calls block, may come from several threads, and go side by side.

    Args:
        monotonic: Seconds.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._busy: set[_Worker] = set()
        self._idle: list[tuple[_Worker, float]] = []
        self._is_closed = False

    def hash(self, cost: HashCost, password: str) -> str:
        """Hash a password with a fresh salt. Raises HostError: OVERLOAD: the process has ended."""
        question = HashQuestion(password=password, memory_kib=cost.memory_kib, passes=cost.passes)
        return self._ask(question, str)

    def is_right(self, password: str, text: str) -> bool:
        """Return True if a hash is that of a password. Raises HostError: OVERLOAD: the process has ended."""
        return self._ask(HashQuestion(password=password, text=text), bool)

    def end_idle(self) -> None:
        """End processes that have had nothing to do for a minute."""
        oldest = self._monotonic() - IDLE_SECONDS
        with self._lock:
            ending = [worker for worker, since in self._idle if since <= oldest]
            self._idle = [one for one in self._idle if one[1] > oldest]
        for worker in ending:
            worker.end()

    def close(self) -> None:
        """End all processes; who waits for one gets its error."""
        with self._lock:
            self._is_closed = True
            ending = [worker for worker, _ in self._idle]
            self._idle = []
            for worker in (*self._busy, *ending):
                worker.kill()
        for worker in ending:
            worker.end()

    def _ask(self, question: HashQuestion, kind: type[_Answer]) -> _Answer:
        worker = self._take()
        try:
            found = worker.ask(question, kind)
        except (OSError, msgspec.DecodeError) as exc:
            self._let_go(worker)
            raise _ended() from exc
        except BaseException:
            self._let_go(worker)
            raise
        with self._lock:
            self._busy.discard(worker)
            if not self._is_closed:
                self._idle.append((worker, self._monotonic()))
                return found
        worker.end()
        return found

    def _take(self) -> _Worker:
        with self._lock:
            if self._is_closed:
                raise HostError(Code.DRAINING, "this node stops")
            while self._idle:
                worker, _ = self._idle.pop()
                if worker.is_alive():
                    break
                worker.end()
            else:
                try:
                    worker = _Worker()
                except OSError as exc:
                    raise _ended() from exc
            self._busy.add(worker)
            return worker

    def _let_go(self, worker: _Worker) -> None:
        with self._lock:
            self._busy.discard(worker)
        worker.kill()
        worker.end()


class _Worker:
    """One process."""

    def __init__(self) -> None:
        words = [sys.executable, "-I", "-c", _PROGRAM, _ROOT]
        self._process = subprocess.Popen(  # noqa: S603 - the program is our own, without words of others
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def ask(self, question: HashQuestion, kind: type[_Answer]) -> _Answer:
        """Answer a question. Raises OSError or msgspec.DecodeError when the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=kind)

    def is_alive(self) -> bool:
        """Return True unless the process has ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once; it is still to be waited for by `end`."""
        self._process.kill()

    def end(self) -> None:
        """Let the process end, which it does when its input has; waits for that."""
        with contextlib.suppress(OSError), self._process:
            pass


def _ended() -> HostError:
    return HostError(Code.OVERLOAD, "no process hashes passwords, perhaps for want of memory: try again")
