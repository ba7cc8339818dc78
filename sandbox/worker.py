"""What a worker does: one batch in, guest calls, one reply out.

It moves opaque blocks and decides nothing: how events are split into calls, what actions mean, when to start again is
the host's business. It ends when its host lets go of the socket.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from protofly.errors import HostError, MisuseError, StubFaultError
from sandbox.confinement import CONNECTION
from sandbox.core.budget import WIRE_BYTES, Budget
from sandbox.core.frames import CALL, COMMAND, LENGTH, Command, GuestFault, Reply, encode_reply
from sandbox.engine import Engine, Guest, LoadedModule
from sandbox.ticker import CpuClockTicker

READ_BYTES: Final = 64 << 10  # from 128 KiB on the allocator maps fresh pages for each call, at 16 us
NANOSECONDS_PER_MICROSECOND: Final = 1000


class Worker:
    """One stub of one foreign domain. Knows no address, no key, no other stub."""

    def __init__(self, engine: Engine, ticker: CpuClockTicker) -> None:
        self._engine = engine
        self._ticker = ticker
        self._module: LoadedModule | None = None
        self._guest: Guest | None = None
        self._budget = Budget()

    def answer(self, frame: bytes) -> bytes:
        """The reply to one command frame.

        Raises:
            MisuseError: the host said something impossible.
        """
        _, command, count = COMMAND.unpack_from(frame)
        self._ticker.guest_starts()
        try:
            match command:
                case Command.EXCHANGE:
                    return self._exchange(frame, count)
                case Command.LOAD:
                    return self._load(frame)
                case _:
                    raise MisuseError(f"unknown command {command}")
        finally:
            self._ticker.guest_stops()

    @property
    def is_loaded(self) -> bool:
        """Code is in place; no more will come."""
        return self._module is not None

    def _load(self, frame: bytes) -> bytes:
        if self._module is not None:
            raise MisuseError("a second load")
        start = COMMAND.size + WIRE_BYTES
        self._budget = Budget.from_bytes(frame[COMMAND.size : start])
        try:
            self._module = self._engine.load(frame[start:])
            guest = self._guest = self._module.instantiate(self._budget)
        except StubFaultError as error:
            return encode_reply(_refusal(error))
        return encode_reply(Reply(GuestFault.NONE, guest.memory_bytes, guest.calls.fuel_used, 0, [], ""))

    def _exchange(self, frame: bytes, count: int) -> bytes:
        guest = self._guest
        if guest is None:
            raise MisuseError("exchange without an instance")
        outputs: list[bytes] = []
        fault, text = GuestFault.NONE, ""
        began = time.thread_time_ns()
        guest.calls.fuel_used = 0
        start = COMMAND.size + CALL.size * count
        try:
            for index in range(count):
                size, event_count = CALL.unpack_from(frame, COMMAND.size + CALL.size * index)
                outputs.append(guest.handle(frame[start : start + size], event_count))
                start += size
        except StubFaultError as error:
            fault, text = GuestFault.of(error.code), error.detail
        cpu_us = (time.thread_time_ns() - began) // NANOSECONDS_PER_MICROSECOND
        memory_bytes, fuel_used = guest.memory_bytes, guest.calls.fuel_used
        if fault is not GuestFault.NONE:
            self._drop()
        return encode_reply(Reply(fault, memory_bytes, fuel_used, cpu_us, outputs, text))

    def _drop(self) -> None:
        if self._guest is not None:
            self._guest.close()
            self._guest = None


def serve(worker: Worker, *, on_loaded: Callable[[], None]) -> None:
    """Answer commands until the host is gone; `on_loaded` runs once, before the reply to LOAD is sent."""
    is_loaded = False
    while (frame := read_frame()) is not None:
        reply = worker.answer(frame)
        if not is_loaded and worker.is_loaded:
            is_loaded = True
            on_loaded()
        write_all(reply)


def read_frame() -> bytes | None:
    """One whole frame from the host, None when it is gone."""
    received = os.read(CONNECTION, READ_BYTES)
    parts = [received]
    size = len(received)
    while size < LENGTH.size or size < LENGTH.unpack_from(received)[0] + LENGTH.size:
        more = os.read(CONNECTION, READ_BYTES) if received else b""
        if not more:
            return None
        parts.append(more)
        size += len(more)
        if len(received) < LENGTH.size:
            received = b"".join(parts)
    return received if len(parts) == 1 else b"".join(parts)


def write_all(reply: bytes) -> None:
    """Everything, however small the socket's buffer."""
    sent = os.write(CONNECTION, reply)
    while sent < len(reply):
        sent += os.write(CONNECTION, memoryview(reply)[sent:])


def _refusal(error: HostError) -> Reply:
    return Reply(GuestFault.of(error.code), 0, 0, 0, [], error.detail)
