"""The host's end of one worker: batches out, batches back, under the host's own deadline.

There is one raw non-blocking socket and no task: a batch costs one `send`, one wait and one `recv`, however many
events it carries. The measured cost is in docs/discussion of the sandbox; nothing here may wait or allocate per
message beyond its record.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import trio

from protofly import limits
from protofly.errors import Code, MisuseError, StubFaultError
from protofly.random_stock import RandomStock
from sandbox.core.budget import Budget
from sandbox.core.exchange import (
    GuestAction,
    GuestEvent,
    action_limit,
    decode_actions,
    encode_events,
    output_limit,
    split_calls,
)
from sandbox.core.frames import (
    LENGTH,
    REPLY_BYTES,
    TRAP_CHARS,
    Command,
    GuestFault,
    Reply,
    decode_reply,
    encode_command,
    encode_exchange,
)

RECEIVE_BYTES: Final = 64 << 10  # from 128 KiB on the allocator maps fresh pages for each call, at 16 us
NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
EXIT_NOTE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault that ended the instance, and the events in the call that caused it."""

    code: Code
    trap: str
    first_event: int
    event_count: int


class ExchangeReply(NamedTuple):
    """Result of one batch. A tuple, because one is made per batch.

    With a fault, `actions` are those of the calls before the faulty one; later events were not handed over.
    """

    actions: list[GuestAction]
    fuel: int
    cpu_us: int
    memory_bytes: int
    fault: Fault | None


Calls = list[tuple[int, bytes]]
"""Event buffers as the guest gets them, each with its number of events."""


class ExchangeRecorder(Protocol):
    """Keeps what one instance was given and what it answered. A stub is a pure function of it."""

    def handed(self, calls: Calls) -> None:
        """Calls are about to be made, in this order."""

    def answered(self, reply: Reply) -> None:
        """The worker's reply to the calls that were handed last; there is none when the worker died of them."""

    async def faulted(self, fault: str) -> None:
        """The instance has ended, and why: code word and text. The fault is reported once this is done."""


class ConfinedProcess:
    """One child of the zygote: its socket, its pidfd, and how it ended."""

    def __init__(self, pid: int, pidfd: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.pid = pid
        self.ended = trio.Event()
        self.exit_status: int | None = None
        self._pidfd = pidfd
        self._socket = connection
        self._is_closed = False

    async def ask(self, frame: bytes, max_reply_bytes: int) -> bytes:
        """Send one command, return one whole reply frame.

        Raises:
            StubFaultError: STUB_DIED when the process is gone, STUB_OUTPUT when its reply is longer than it may be.
        """
        try:
            await self._send(frame)
            return await self._receive(max_reply_bytes)
        except (OSError, trio.ClosedResourceError) as error:
            raise StubFaultError(Code.STUB_DIED, await self._epitaph(), fault="died") from error

    async def _send(self, frame: bytes) -> None:
        sent = 0
        while sent < len(frame):
            try:
                sent += self._socket.send(memoryview(frame)[sent:] if sent else frame)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def _receive(self, max_reply_bytes: int) -> bytes:
        await trio.lowlevel.wait_readable(self._socket)
        received = self._socket.recv(RECEIVE_BYTES)
        missing = _missing(received, max_reply_bytes)
        if not missing:
            return received
        parts = bytearray(received)
        while missing:
            if not received:
                raise BrokenPipeError("end of stream inside a reply")
            await trio.lowlevel.wait_readable(self._socket)
            received = self._socket.recv(min(missing, RECEIVE_BYTES) if len(parts) >= LENGTH.size else RECEIVE_BYTES)
            parts += received
            missing = _missing(parts, max_reply_bytes)
        return bytes(parts)

    async def _epitaph(self) -> str:
        with trio.move_on_after(EXIT_NOTE_SECONDS):
            await self.ended.wait()
        status = self.exit_status
        if status is None:
            return f"process {self.pid} closed its socket"
        how = f"killed by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        return f"process {self.pid} {how}"

    def note_exit(self, status: int) -> None:
        """The zygote reaped it; a negative status is a signal number."""
        self.exit_status = status
        self.ended.set()

    def kill(self) -> None:
        """End it now; the pidfd makes sure that it is this process and no later one with its number."""
        if not self._is_closed:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                return

    def close(self) -> None:
        """End it and let go of the descriptors. May be called again."""
        if self._is_closed:
            return
        self.kill()
        self._is_closed = True
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        os.close(self._pidfd)


class StubProcess:
    """One running stub of one foreign domain, in a worker process of its own."""

    def __init__(
        self,
        domain: str,
        process: ConfinedProcess,
        budget: Budget,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        entropy: Callable[[int], bytes] | None = None,
    ) -> None:
        self.domain = domain
        self.budget = budget
        self.memory_bytes = 0
        self._process = process
        self._clock_ns = clock_ns
        self._entropy = entropy or RandomStock(os.urandom).take
        self._deadline = math.inf
        self._is_overdue = False
        self._has_instance = False
        self._recorder: ExchangeRecorder | None = None

    def record(self, recorder: ExchangeRecorder) -> None:
        """Have a recorder see every call from now on."""
        self._recorder = recorder

    def use_sources(self, clock_ns: Callable[[], int], entropy: Callable[[int], bytes]) -> None:
        """Take time (nanoseconds since the epoch) and random bytes from elsewhere, so that a run can be repeated."""
        self._clock_ns, self._entropy = clock_ns, entropy

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    async def wait_ended(self) -> None:
        """Wait until the worker has exited, for any reason."""
        await self._process.ended.wait()

    async def load(self, code: bytes) -> None:
        """Hand over compiled code and start the instance; `Sandbox.start_worker` has done this already.

        After a fault there is no second one: another worker starts with another instance.

        Raises:
            StubFaultError: STUB_FAILED when the engine refuses the code, or the fault of `_initialize`; STUB_DIED or
            STUB_TIMEOUT.
        """
        frame = encode_command(Command.LOAD, self.budget.to_bytes(), code)
        reply = self._decoded(await self._ask(frame, REPLY_BYTES + TRAP_CHARS, limits.WORKER_START_SECONDS), 0)
        self.memory_bytes = reply.memory_bytes
        if reply.fault is not GuestFault.NONE:
            raise StubFaultError(reply.fault.code, reply.text, domain=self.domain, fault=reply.fault.name.lower())
        self._has_instance = True

    async def exchange(self, events: list[GuestEvent]) -> ExchangeReply:
        """Hand over a batch of events, return everything the stub wants done.

        Batches beyond ROUND_BYTES go in several rounds, each with its own deadline.

        Raises:
            StubFaultError: STUB_DIED, STUB_TIMEOUT (it was killed), STUB_OUTPUT (the worker itself is broken; it was
            killed). MisuseError: two exchanges at once, or no instance.
        """
        if not self._has_instance:
            raise MisuseError("exchange without an instance")
        counts = split_calls(events)
        if len(counts) == 1:
            return await self._round(events, counts, 0)
        whole = ExchangeReply([], 0, 0, self.memory_bytes, None)
        for first, round_counts in _rounds(events, counts):
            part = await self._round(events, round_counts, first)
            whole = ExchangeReply(
                whole.actions + part.actions,
                whole.fuel + part.fuel,
                whole.cpu_us + part.cpu_us,
                part.memory_bytes,
                part.fault,
            )
            if part.fault is not None:
                break
        return whole

    async def _round(self, events: list[GuestEvent], counts: list[int], first: int) -> ExchangeReply:
        now_ms = self._clock_ns() // NANOSECONDS_PER_MILLISECOND
        calls: Calls = []
        position = first
        for count in counts:
            chosen = events if count == len(events) else events[position : position + count]
            calls.append((count, encode_events(chosen, now_ms, self._entropy(16))))
            position += count
        return await self._call(calls, first)

    async def replay(self, calls: Calls) -> ExchangeReply:
        """Make the calls of a recorded exchange again, byte for byte.

        Raises:
            StubFaultError, MisuseError: See `exchange`.
        """
        if not self._has_instance:
            raise MisuseError("replay without an instance")
        return await self._call(calls, 0)

    async def _call(self, calls: Calls, first: int) -> ExchangeReply:
        recorder = self._recorder
        if recorder is None:
            return await self._round_trip(calls, first)
        recorder.handed(calls)
        try:
            reply = await self._round_trip(calls, first)
        except StubFaultError as exc:
            await recorder.faulted(str(exc))
            raise
        if reply.fault is not None:
            await recorder.faulted(f"{reply.fault.code.word}: {reply.fault.trap}")
        return reply

    async def _round_trip(self, calls: Calls, first: int) -> ExchangeReply:
        ceiling = REPLY_BYTES + TRAP_CHARS + sum([LENGTH.size + output_limit(len(buffer)) for _, buffer in calls])
        frame = await self._ask(encode_exchange(calls), ceiling, self.budget.batch_seconds)
        reply = self._decoded(frame, len(calls))
        if self._recorder is not None:
            self._recorder.answered(reply)
        return self._judge(reply, calls, first)

    def _decoded(self, frame: bytes, call_count: int) -> Reply:
        try:
            return decode_reply(frame, call_count)
        except StubFaultError:
            self.close()
            raise

    def _judge(self, reply: Reply, calls: Calls, first: int) -> ExchangeReply:
        """Decode call by call; the first call that answers nonsense is the faulty one, whatever the worker said."""
        actions: list[GuestAction] = []
        fault: Fault | None = None
        for (count, buffer), output in zip(calls, reply.outputs, strict=False):
            try:
                if len(output) > output_limit(len(buffer)):
                    raise StubFaultError(Code.STUB_OUTPUT, f"{len(output)} bytes of actions", fault="output-size")
                actions += decode_actions(output, action_limit(count, len(buffer)))
            except StubFaultError as error:
                fault = Fault(error.code, error.detail, first, count)
                break
            first += count
        if fault is None and len(reply.outputs) < len(calls):
            code = reply.fault.code if reply.fault is not GuestFault.NONE else Code.STUB_OUTPUT
            fault = Fault(code, reply.text, first, calls[len(reply.outputs)][0])
        self._has_instance = fault is None
        self.memory_bytes = reply.memory_bytes
        return ExchangeReply(actions, reply.fuel, reply.cpu_us, reply.memory_bytes, fault)

    async def _ask(self, frame: bytes, max_reply_bytes: int, seconds: float) -> bytes:
        if self._deadline != math.inf:
            raise MisuseError("two batches at once for one stub")
        self._deadline = trio.current_time() + seconds
        try:
            return await self._process.ask(frame, max_reply_bytes)
        except StubFaultError as error:
            self.close()
            if self._is_overdue:
                detail = f"no answer within {seconds:g} s"
                raise StubFaultError(Code.STUB_TIMEOUT, detail, domain=self.domain, fault="deadline") from error
            error.domain = self.domain
            raise
        except BaseException:
            self.close()  # cancelled half-way: the next reply would be the answer to this question
            raise
        finally:
            self._deadline = math.inf

    def kill_if_overdue(self, now: float) -> None:
        """The sandbox looks at every worker a few times a second; a cancel scope per batch would cost 7 us."""
        if now > self._deadline:
            self._is_overdue = True
            self._process.kill()

    def close(self) -> None:
        """End the worker. May be called again."""
        self._has_instance = False
        self._process.close()


def _missing(received: bytes | bytearray, max_reply_bytes: int) -> int:
    """Bytes that must still come before this is one whole reply."""
    size = len(received)
    if size < LENGTH.size:
        return LENGTH.size - size
    whole: int = LENGTH.unpack_from(received)[0] + LENGTH.size
    if whole > max_reply_bytes or size > whole:
        raise StubFaultError(Code.STUB_OUTPUT, f"a reply of {max(whole, size)} bytes", fault="worker")
    return whole - size


def _rounds(events: list[GuestEvent], counts: list[int]) -> list[tuple[int, list[int]]]:
    """Each round's first event and its calls; a round stays below ROUND_BYTES, unless one call alone is longer."""
    rounds: list[tuple[int, list[int]]] = []
    first = position = size = 0
    chosen: list[int] = []
    for count in counts:
        length = sum([len(event[2]) for event in events[position : position + count]])
        if chosen and size + length > limits.ROUND_BYTES:
            rounds.append((first, chosen))
            first, size, chosen = position, 0, []
        chosen.append(count)
        position += count
        size += length
    if chosen:
        rounds.append((first, chosen))
    return rounds


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
