"""Threads that take turns with the event loop, and the means by which they wait.

A thread runs only while the event loop stands still, from one wait to the next. `Event` and `Condition` have what the
product uses of those of `threading`. Only one thread at a time ever touches them, so they need no lock.
"""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Callable
from typing import Any, Self

import trio

Lateness = Callable[[], float]


class _Turns:
    """The turns of one thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._go, self._stands = _shut_lock(), _shut_lock()
        self._wakes: trio.Event | None = None
        self._timeout = math.inf
        self.has_ended = False
        self.result: Any = None
        self.error: BaseException | None = None

    def body(self) -> None:
        """In the thread."""
        self._go.acquire()
        _own.turns = self
        try:
            self.result = self._work()
        except BaseException as exc:
            self.error = exc
        self.has_ended = True
        self._stands.release()

    def wait(self, wakes: trio.Event, timeout: float) -> None:
        """In the thread: end this turn, until `wakes` is set or the time is up."""
        self._wakes, self._timeout = wakes, timeout
        self._stands.release()
        self._go.acquire()

    def take(self) -> None:
        """In the event loop: one turn of the thread."""
        self._go.release()
        self._stands.acquire()

    async def rest(self, late_seconds: float) -> None:
        """In the event loop: until the thread wants its next turn, and so much longer until it runs."""
        assert self._wakes is not None
        with trio.move_on_after(self._timeout + late_seconds):
            await self._wakes.wait()
            await trio.sleep(late_seconds)


def _shut_lock() -> threading.Lock:
    """One that is taken; who releases it lets the other side pass once."""
    lock = threading.Lock()
    lock.acquire()
    return lock


_own = threading.local()


async def in_lockstep(work: Callable[..., Any], *arguments: Any, lateness: Lateness) -> Any:
    """Run `work` in a thread that takes turns with the event loop; each turn begins so many seconds late.

    As with a thread that is not abandoned, a cancellation waits for its end.
    """
    context = contextvars.copy_context()
    turns = _Turns(lambda: context.run(work, *arguments))
    threading.Thread(target=turns.body, daemon=True).start()
    with trio.CancelScope(shield=True):
        while True:
            turns.take()
            if turns.has_ended:
                break
            await turns.rest(lateness())
    if turns.error is not None:
        raise turns.error
    return turns.result


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._wakes = trio.Event()

    def set(self) -> None:
        """Called in the event loop only."""
        self._is_set = True
        self._wakes.set()

    def clear(self) -> None:
        """See `threading.Event`."""
        self._is_set, self._wakes = False, trio.Event()

    def is_set(self) -> bool:
        """See `threading.Event`."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Called in the thread only."""
        if not self._is_set:
            _own.turns.wait(self._wakes, math.inf if timeout is None else timeout)
        return self._is_set


class Condition:
    """As `threading.Condition`, for one thread that waits."""

    def __init__(self) -> None:
        self._wakes = trio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to release: only one thread runs at a time."""

    def notify(self) -> None:
        """Called in the event loop only."""
        self._wakes.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Called in the thread only."""
        self._wakes = trio.Event()
        _own.turns.wait(self._wakes, math.inf if timeout is None else timeout)
        return self._wakes.is_set()

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Called in the thread only. Ends at the first notice, or when the time is up."""
        if not predicate():
            self.wait(timeout)
        return predicate()
