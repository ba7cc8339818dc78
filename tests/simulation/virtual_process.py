"""The clock, the randomness, the threads and the signals of a process, as a simulation has them.

`install` is called before anything of the product is imported, because that binds `time.time` and its like when it is
imported. While no simulation runs, everything is the system's.

In a simulation, time stands still while anything runs and jumps to the next deadline when all tasks wait. Random bytes
come from the seed. What a node gives to a thread runs in the turn of the task that waits for it; the two threads that
run as long as the node (its state, its records) take turns with the event loop, so that only one of them runs at any
time. The order of everything then follows from the seed alone.
"""

from __future__ import annotations

import contextvars
import gc
import heapq
import itertools
import math
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import trio
import trio.lowlevel
from trio._core import _run as trio_run  # its scheduler draws which task runs first
from trio.testing import MockClock

from tests.simulation.lockstep import in_lockstep

_DISK_SECONDS: Final = 0.0015
"""The longest time that one piece of work in a thread takes."""
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000
"""A process plays one scene and ends: what it leaves behind is small."""
_FLOWS_VERIFIED_EVERY: Final = 3
_LASTING: Final = ("StateStore._write_until_stopped", "RecordsWriter._run_thread.<locals>.run")
"""Work that ends with its node and waits for more in between."""

_system_time, _system_monotonic, _system_perf_counter = time.time, time.monotonic, time.perf_counter
_system_monotonic_ns, _system_urandom = time.monotonic_ns, os.urandom


class Timer:
    """Something that a clock does at its time, unless it is cancelled before."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    @property
    def is_cancelled(self) -> bool:
        """Whether nothing is left to do."""
        return self._action is None

    def cancel(self) -> None:
        """Do nothing when the time has come."""
        self._action = None

    def fire(self) -> None:
        """Do it now."""
        action, self._action = self._action, None
        if action is not None:
            action()


class JumpingClock(trio.abc.Clock):
    """A clock that stands still until all tasks wait, and then goes to the first deadline, or timer."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int, Timer]] = []
        self._timers_set = itertools.count()
        self.now = 0.0
        self.now_ns = 0
        """The same moment: two things of one moment have one time, in seconds and in nanoseconds."""

    def start_clock(self) -> None:
        """See `trio.abc.Clock`."""
        trio_run.GLOBAL_RUN_CONTEXT.runner.clock_autojump_threshold = 0.0

    def current_time(self) -> float:
        """See `trio.abc.Clock`."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """See `trio.abc.Clock`."""
        return deadline - self.now

    def call_after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Have something done that takes no task: what it wakes up runs at that moment."""
        return self.call_at(self.now + seconds, action)

    def call_at(self, moment: float, action: Callable[[], None]) -> Timer:
        """The same at a moment."""
        timer = Timer(action)
        heapq.heappush(self._timers, (moment, next(self._timers_set), timer))
        return timer

    def _autojump(self) -> None:  # trio calls it when nothing can run
        deadline = trio_run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if timers:
            deadline = min(deadline, timers[0][0])
        if self.now < deadline < math.inf:
            self.now_ns = math.ceil(deadline * 1e9)
            if self.now_ns / 1e9 < deadline:
                self.now_ns += 1
            self.now = self.now_ns / 1e9
        while timers and timers[0][0] <= self.now:
            heapq.heappop(timers)[2].fire()


@dataclass(eq=False)
class Host:
    """One machine of a simulation: its clock on the wall may differ, its disk may be full, it gets signals."""

    name: str
    clock_offset_seconds: float = 0.0
    disk_is_full: bool = False
    signals: list[trio.MemorySendChannel[int]] = field(default_factory=list)

    def signal(self, number: int) -> None:
        """Send a signal to the node of this host."""
        for channel in self.signals:
            channel.send_nowait(number)


MockClock.register(JumpingClock)  # trio lets only such clocks jump


class _Orderer(random.Random):
    """Draws which task runs first; one task alone needs no draw."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """See `random.Random`."""
        if len(x) > 1:
            super().shuffle(x)


class _NoInstruments(dict[str, object]):
    """In place of trio's, which is asked several times in each step whether there are any."""

    def __init__(self, _instruments: object) -> None:
        super().__init__()


class _LittleIO(trio_run.TheIOManager):  # type: ignore[name-defined, misc]
    """Asks the system only when a thread, or a signal, has something for the event loop. Nothing else is outside."""

    def get_events(self, timeout: float) -> Any:
        """See trio."""
        queue = trio_run.GLOBAL_RUN_CONTEXT.runner.entry_queue
        return super().get_events(timeout) if queue.queue or queue.idempotent_queue else ()


current_host: contextvars.ContextVar[Host | None] = contextvars.ContextVar("current_host", default=None)


class Simulation:
    """What a run of one seed draws from. One at a time."""

    def __init__(self, seed: int, epoch_seconds: float) -> None:
        self.clock = JumpingClock()
        self.epoch_seconds = epoch_seconds
        """What the clock on the wall says at the beginning."""
        self.random = random.Random(f"simulation {seed}")
        self.verifies_flows = seed % _FLOWS_VERIFIED_EVERY == 0
        """Whether nodes let each message of a flow go the whole way, and report where the flow would do otherwise."""

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        """Run a program to its end in simulated time."""
        global _current
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
        trio_run._r = _Orderer(self.random.random())
        random.seed(self.random.random())
        _current = self
        try:
            return trio.run(main, clock=self.clock)
        finally:
            _current = None


_current: Simulation | None = None


def is_disk_full() -> bool:
    """Whether the host that asks has a full disk."""
    host = current_host.get()
    return host is not None and host.disk_is_full


def _wall() -> float:
    if _current is None:
        return _system_time()
    host = current_host.get()
    return _current.epoch_seconds + _current.clock.now + (host.clock_offset_seconds if host is not None else 0.0)


def _monotonic() -> float:
    return _system_monotonic() if _current is None else _current.clock.now


def _monotonic_ns() -> int:
    return _system_monotonic_ns() if _current is None else _current.clock.now_ns


def _perf_counter() -> float:
    return _system_perf_counter() if _current is None else _current.clock.now


def _urandom(size: int) -> bytes:
    return _system_urandom(size) if _current is None else _current.random.randbytes(size)


async def _run_sync(
    work: Callable[..., Any],
    *arguments: Any,
    abandon_on_cancel: bool = False,
    limiter: trio.CapacityLimiter | None = None,
) -> Any:
    assert _current is not None
    if getattr(work, "__qualname__", "") in _LASTING:
        return await in_lockstep(work, *arguments, lateness=_disk_seconds)
    await trio.lowlevel.checkpoint_if_cancelled()
    with trio.CancelScope(shield=True):
        await trio.sleep(_disk_seconds())
    return work(*arguments)


async def _sleep_until(deadline: float) -> None:
    """As trio's, by a timer: that costs a fifth of a scope that is cancelled at its deadline."""
    clock = _clock()
    if deadline <= clock.now:
        await trio.lowlevel.checkpoint()
        return
    if deadline == math.inf:
        await trio.sleep_forever()
    timer = clock.call_at(deadline, partial(trio.lowlevel.reschedule, trio.lowlevel.current_task()))

    def forget(_: object) -> trio.lowlevel.Abort:
        timer.cancel()
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(forget)


async def _sleep(seconds: float) -> None:
    if seconds < 0:
        raise ValueError("`seconds` must be non-negative")
    await _sleep_until(_clock().now + seconds)


def _clock() -> JumpingClock:
    assert _current is not None
    return _current.clock


def _disk_seconds() -> float:
    assert _current is not None
    return _current.random.random() * _DISK_SECONDS


@contextmanager
def _open_signal_receiver(*_signals: int) -> Iterator[AsyncIterator[int]]:
    host = current_host.get()
    assert host is not None
    send, receive = trio.open_memory_channel[int](8)
    host.signals.append(send)
    try:
        yield receive
    finally:
        host.signals.remove(send)


def install() -> None:
    """Give the process clocks and randomness that a simulation can take over. Before the product is imported."""
    time.time, time.time_ns = _wall, lambda: int(_wall() * 1e9)
    time.monotonic, time.monotonic_ns = _monotonic, _monotonic_ns
    time.perf_counter, time.perf_counter_ns = _perf_counter, lambda: int(_perf_counter() * 1e9)
    os.urandom = _urandom
    random._urandom = _urandom  # type: ignore[attr-defined]


def enter() -> None:
    """Have threads and signals simulated, too. In a process that does nothing but simulate, from here on."""
    from msg_node import app
    from msg_node.records import writer
    from msg_node.storage import state_store
    from tests.simulation import lockstep

    for module, name, ours in (
        (trio._core, "MockClock", JumpingClock),  # so trio need not ask whether it is one
        (trio_run, "Instruments", _NoInstruments),
        (trio_run, "TheIOManager", _LittleIO),
        (trio.to_thread, "run_sync", _run_sync),
        (trio, "sleep", _sleep),
        (trio, "sleep_until", _sleep_until),
        (trio, "open_signal_receiver", _open_signal_receiver),
        (state_store, "threading", lockstep),
        (writer, "threading", lockstep),
        (app, "settle_memory", _nothing),  # the process is no node's
        (app, "raise_descriptor_limit", _nothing),
        (app, "share_interpreter", _nothing),
        (app, "return_freed_memory", trio.sleep_forever),
        (app, "gather_looks", _idle),  # it saves processor time of a loop that waits, and this one never does
        (ssl.SSLContext, "set_default_verify_paths", _nothing),  # 20 ms for authorities that signed nobody here
    ):
        setattr(module, name, ours)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


def _nothing(*_: object) -> None:
    """Do nothing."""


async def _idle(*_: object) -> None:
    await trio.sleep_forever()
