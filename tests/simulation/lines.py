"""Lines between hosts, and the connections on them: bytes that take their time, in memory.

A way carries one chunk after the other, each of which waits while the line is silent, takes its time, and arrives in
one piece or in two. No task does that: the clock calls a way on when its next wait is over, and only who waits for the
bytes wakes up.
"""

from __future__ import annotations

import errno
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import outcome
import trio

from tests.simulation.virtual_process import JumpingClock, Timer

_CHUNK_BYTES: Final = 65_536
_ROOM_BYTES: Final = 400_000
"""What is sent and not read yet, in one direction: then who sends has to wait. As two local sockets of the system."""
_LATENCY_SECONDS: Final = 0.005
_PIECES_SHARE: Final = 0.1
"""How often a chunk arrives in two pieces."""


class _Wait(NamedTuple):
    """So long, or until the line is whole again."""

    seconds: float
    or_healed: bool = False


@dataclass(eq=False)
class Line:
    """All connections between two hosts, or within one: those take no time."""

    random: random.Random
    clock: JumpingClock
    is_local: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: int = 0
    is_cut: bool = False
    is_silent: bool = False
    connections: list[_Connection] = field(default_factory=list)
    walkers: set[Walker] = field(default_factory=set)
    """Those that go on when the line is whole again."""

    def join(self) -> tuple[End, End]:
        """A new connection: the end of the side that opens it, and the other one."""
        connection = _Connection(self)
        self.connections.append(connection)
        return connection.near, connection.far

    def drop(self) -> None:
        """End all connections; new ones pass."""
        for connection in list(self.connections):
            connection.abort()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self.is_cut = True
        self.drop()

    async def reorder(self, seconds: float) -> None:
        """Hold back what connections carry, end them for the side that opened them, and then deliver the rest."""
        old = list(self.connections)
        for connection in old:
            connection.late_seconds = seconds
        await trio.sleep(seconds / 2)
        for connection in old:
            connection.end_near()
        await trio.sleep(seconds / 2)

    def heal(self) -> None:
        """Whole again; what was held up goes on."""
        self.is_cut = self.is_silent = False
        self.delay_seconds, self.bytes_per_second = 0.0, 0
        for walker in sorted(self.walkers, key=lambda one: one.number):
            walker.go_on()

    def _silence(self) -> Iterator[_Wait]:
        while self.is_silent:
            yield _Wait(math.inf, or_healed=True)

    def travel(self, size: int) -> Iterator[_Wait]:
        """The way of so many bytes."""
        yield from self._silence()
        yield _Wait(_LATENCY_SECONDS * (0.5 + self.random.random()))
        extra_seconds = self.delay_seconds + (size / self.bytes_per_second if self.bytes_per_second else 0.0)
        if extra_seconds:
            yield _Wait(extra_seconds, or_healed=True)
        yield from self._silence()

    async def passed(self) -> None:
        """Wait until something without a size has passed."""
        has_passed = trio.Event()

        def walk() -> Iterator[_Wait]:
            yield from self.travel(0)
            has_passed.set()

        walker = Walker(self, walk())
        try:
            await has_passed.wait()
        finally:
            walker.stop()


class Walker:
    """Takes steps with waits in between, by the clock."""

    _count = 0

    def __init__(self, line: Line, steps: Iterator[_Wait]) -> None:
        Walker._count += 1
        self.number = Walker._count
        self._line = line
        self._steps: Iterator[_Wait] | None = steps
        self._timer: Timer | None = None
        self.go_on()

    @property
    def is_walking(self) -> bool:
        """Whether there is a step left."""
        return self._steps is not None

    def go_on(self) -> None:
        """Take the next step now."""
        steps = self._steps
        self._forget_wait()
        wait = next(steps, None) if steps is not None else None
        if self._steps is None or wait is None:  # the step may have stopped this
            self._steps = None
            return
        if wait.or_healed:
            self._line.walkers.add(self)
        if wait.seconds < math.inf:
            self._timer = self._line.clock.call_after(wait.seconds, self.go_on)

    def stop(self) -> None:
        """Take no further step."""
        self._steps = None
        self._forget_wait()

    def _forget_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._line.walkers.discard(self)


class _Connection:
    """Two ends and the ways between them."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.late_seconds = 0.0
        out, back = _Way(self), _Way(self)
        self.near, self.far = End(back, out), End(out, back)

    @property
    def _ways(self) -> tuple[_Way, _Way]:
        return self.near.way_out, self.near.way_in

    def end_near(self) -> None:
        """End it for the side that opened it; what is on its way to the other one still arrives."""
        out, back = self._ways
        out.lose_what_waits()
        back.lead_nowhere()
        if not out.is_travelling:
            self.abort()

    def abort(self) -> None:
        """End it at once, for both sides."""
        if self in self.line.connections:
            self.line.connections.remove(self)
            for way in self._ways:
                way.end()

    def note_end(self) -> None:
        """A way has ended; the connection has when both have."""
        if all(way.has_ended for way in self._ways) and self in self.line.connections:
            self.line.connections.remove(self)


class _Way:
    """One direction of a connection."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._line = connection.line
        self._waiting, self._arrived = bytearray(), bytearray()
        self._travelling_bytes = 0
        self._walker: Walker | None = None
        self.is_shut = False
        """Nothing further is sent."""
        self.is_broken = False
        """Who sends learns that nobody reads."""
        self.has_ended = False
        """Nothing further arrives."""
        self._has_reader = True
        self._leads_nowhere = False
        self.reader: trio.lowlevel.Task | None = None
        self.writer: trio.lowlevel.Task | None = None

    @property
    def is_travelling(self) -> bool:
        """Whether something is between the hosts."""
        return self._walker is not None and self._walker.is_walking

    @property
    def can_be_read(self) -> bool:
        """Whether reading would not block."""
        return bool(self._arrived) or self.has_ended

    @property
    def room(self) -> int:
        """How many bytes would be taken now."""
        return _ROOM_BYTES - len(self._waiting) - self._travelling_bytes - len(self._arrived)

    def send(self, data: bytes) -> int:
        """Take bytes as `socket.send` does."""
        if self.is_shut or self.is_broken:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        if self._leads_nowhere:
            return len(data)
        room = self.room
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self._waiting += data[:room]
        self._start()
        return min(room, len(data))

    def shut(self) -> None:
        """The end of what is sent."""
        if not self.is_shut:
            self.is_shut = True
            self._start()

    def read(self, size: int) -> bytes:
        """What has arrived, as `socket.recv` does."""
        if not self._arrived and not self.has_ended:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        was_full = self.room <= 0
        data = bytes(self._arrived[:size])
        del self._arrived[:size]
        if was_full:
            self._wake_writer()
        return data

    def lose_what_waits(self) -> None:
        """Its sender is gone: what has not left it is lost, and the connection ends after what has."""
        self._waiting.clear()
        self.is_broken = True
        self._wake_writer()

    def lose_reader(self) -> None:
        """Nobody reads any more: the connection breaks when something arrives."""
        self._has_reader = False
        self._arrived.clear()
        self.is_broken = self.is_broken or self._line.is_local
        self._wake_writer()

    def lead_nowhere(self) -> None:
        """Nothing arrives any more, and who sends does not learn it."""
        self._leads_nowhere = True
        self._stop()

    def end(self) -> None:
        """Nothing is carried any more; what has arrived can be read."""
        self.is_broken = True
        self._stop()
        self._connection.note_end()

    def _stop(self) -> None:
        if self._walker is not None:
            self._walker.stop()
        self._waiting.clear()
        self._travelling_bytes = 0
        self.has_ended = True
        self._wake_reader()
        self._wake_writer()

    def _start(self) -> None:
        if self.has_ended or self.is_travelling:
            return
        if self._line.is_local:
            self._deliver_at_once()
        else:
            self._walker = Walker(self._line, self._carry())

    def _deliver_at_once(self) -> None:
        data = bytes(self._waiting)
        self._waiting.clear()
        if data:
            self._deliver(data)
        if self.is_shut:
            self.end()

    def _carry(self) -> Iterator[_Wait]:
        line = self._line
        while self._waiting or self.is_shut:
            data = bytes(self._waiting[:_CHUNK_BYTES])
            del self._waiting[:_CHUNK_BYTES]
            self._travelling_bytes = len(data)
            yield from line.travel(len(data))
            if self._connection.late_seconds:
                yield _Wait(self._connection.late_seconds)
            if not data:
                self.end()
                return
            cut = int(len(data) * line.random.random()) if line.random.random() < _PIECES_SHARE else 0
            if cut:
                self._deliver(data[:cut])
                yield from line.travel(0)
            self._deliver(data[cut:])
            if self.is_broken:
                self._connection.abort()
                return

    def _deliver(self, data: bytes) -> None:
        self._travelling_bytes = max(0, self._travelling_bytes - len(data))
        if not self._has_reader:
            self._connection.abort()
        elif not self.has_ended:
            self._arrived += data
            self._wake_reader()

    def _wake_reader(self) -> None:
        if self.reader is not None:
            task, self.reader = self.reader, None
            trio.lowlevel.reschedule(task)

    def _wake_writer(self) -> None:
        if self.writer is not None:
            task, self.writer = self.writer, None
            trio.lowlevel.reschedule(task)

    def fail_reader(self) -> None:
        """Its own side closes the end that a task reads from."""
        if self.reader is not None:
            task, self.reader = self.reader, None
            trio.lowlevel.reschedule(task, outcome.Error(trio.ClosedResourceError()))

    def fail_writer(self) -> None:
        """Its own side closes the end that a task waits to write to."""
        if self.writer is not None:
            task, self.writer = self.writer, None
            trio.lowlevel.reschedule(task, outcome.Error(trio.ClosedResourceError()))


class End:
    """What a socket is to the one who has it, as far as the product uses it."""

    def __init__(self, way_in: _Way, way_out: _Way) -> None:
        self.way_in, self.way_out = way_in, way_out
        self._is_closed = False

    @property
    def has_shut(self) -> bool:
        """Whether nothing further is sent."""
        return self.way_out.is_shut

    def setblocking(self, _is_blocking: object) -> None:
        """It never blocks."""

    def send(self, data: bytes) -> int:
        """See `socket.socket`."""
        self.require_open()
        return self.way_out.send(data)

    def recv(self, size: int) -> bytes:
        """See `socket.socket`."""
        self.require_open()
        return self.way_in.read(size)

    def shut(self) -> None:
        """As `socket.shutdown` of the writing side."""
        self.require_open()
        self.way_out.shut()

    def close(self) -> None:
        """See `socket.socket`: what was sent still arrives; who sends to a closed end breaks the connection."""
        if not self._is_closed:
            self._is_closed = True
            self.way_out.shut()
            self.way_in.lose_reader()

    def notify_closing(self) -> None:
        """Tasks that wait on this end learn that it is closed."""
        self.way_in.fail_reader()
        self.way_out.fail_writer()

    def require_open(self) -> None:
        """Raises OSError when it is closed."""
        if self._is_closed:
            raise OSError(errno.EBADF, "Bad file descriptor")


_wait_readable, _wait_writable = trio.lowlevel.wait_readable, trio.lowlevel.wait_writable
_notify_closing = trio.lowlevel.notify_closing


async def wait_readable(end: Any) -> None:
    """As trio's, for ends as well."""
    if not isinstance(end, End):
        await _wait_readable(end)
        return
    end.require_open()
    way = end.way_in
    if way.can_be_read:
        await trio.lowlevel.checkpoint()
        return
    way.reader = trio.lowlevel.current_task()

    def forget(_: object) -> trio.lowlevel.Abort:
        way.reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(forget)


async def wait_writable(end: Any) -> None:
    """As trio's, for ends as well."""
    if not isinstance(end, End):
        await _wait_writable(end)
        return
    end.require_open()
    way = end.way_out
    if way.room > 0 or way.is_broken:
        await trio.lowlevel.checkpoint()
        return
    way.writer = trio.lowlevel.current_task()

    def forget(_: object) -> trio.lowlevel.Abort:
        way.writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(forget)


def notify_closing(end: Any) -> None:
    """As trio's, for ends as well."""
    if isinstance(end, End):
        end.notify_closing()
    else:
        _notify_closing(end)
