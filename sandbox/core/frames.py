"""What host, zygote, worker and compile child say to each other, as bytes.

Theory of operation: host and worker share one stream socket and speak strictly in turns, one command frame and one
reply frame, each `u32 length` and then that many bytes. The host does all the thinking: it splits events into guest
calls and decodes what comes back, so the worker moves opaque blocks and stays small. A worker that has been taken
over is as hostile as its guest, so the host bounds and checks every number of a reply against what it asked for.

Host and zygote share one SOCK_SEQPACKET socket: a request is one `FORK` packet, a note one `NOTE` packet with the new
process's socket and pidfd beside it.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from protofly.errors import Code, PeerError, StubFaultError

LENGTH: Final = Struct("<I")
COMMAND: Final = Struct("<IBxxxI")  # length of what follows the first four bytes, command, number of calls
CALL: Final = Struct("<II")  # bytes, events
REPLY: Final = Struct("<IBxxxIIQQ")  # length, fault, outputs, memory bytes, fuel, cpu microseconds
FORK: Final = Struct("<BBxxI")  # what to fork, unconfined, serial
NOTE: Final = Struct("<BxxxIIi")  # note, serial, pid, status
REPLY_BYTES: Final = REPLY.size
TRAP_CHARS: Final = 300
NOTE_BYTES: Final = 4096


class Command(IntEnum):
    """Kinds of frames from the host to a worker."""

    LOAD = 1
    EXCHANGE = 2


class ForkKind(IntEnum):
    """Kinds of requests from the host to the zygote."""

    WORKER = 1
    COMPILER = 2


class Note(IntEnum):
    """Kinds of notes from the zygote to the host."""

    READY = 1
    FORKED = 2
    EXITED = 3
    FAILED = 4


class GuestFault(IntEnum):
    """End of a guest call, as one byte of a reply."""

    NONE = 0
    TRAPPED = 1
    OUT_OF_FUEL = 2
    TIMEOUT = 3
    OUTPUT = 4
    REFUSED = 5

    @classmethod
    def of(cls, code: Code) -> GuestFault:
        """The byte for a word; REFUSED for any that a guest's call does not lead to."""
        return _FAULTS.get(code, cls.REFUSED)

    @property
    def code(self) -> Code:
        """The word for everybody else."""
        return _CODES[self]


_CODES: Final = {
    GuestFault.NONE: Code.INTERNAL,
    GuestFault.TRAPPED: Code.STUB_TRAPPED,
    GuestFault.OUT_OF_FUEL: Code.STUB_OUT_OF_FUEL,
    GuestFault.TIMEOUT: Code.STUB_TIMEOUT,
    GuestFault.OUTPUT: Code.STUB_OUTPUT,
    GuestFault.REFUSED: Code.STUB_FAILED,
}
_FAULT_OF_BYTE: Final = tuple(GuestFault)
_LAST_FAULT: Final = len(_FAULT_OF_BYTE) - 1
_FAULTS: Final = {code: fault for fault, code in _CODES.items()}


class Reply(NamedTuple):
    """One reply frame; `outputs` are those of the calls that went well. A tuple, because one is made per batch."""

    fault: GuestFault
    memory_bytes: int
    fuel: int
    cpu_us: int
    outputs: list[bytes]
    text: str


def clean_text(raw: bytes) -> str:
    """Foreign text made harmless for logs: printable ASCII, at most TRAP_CHARS; the rest becomes dots.

    Names in a trap's frames come from the guest's own name section.
    """
    if not raw:
        return ""
    text = raw[:TRAP_CHARS].decode("ascii", "replace")
    return "".join(char if char.isascii() and char.isprintable() else "." for char in text)


def encode_command(command: Command, *blocks: bytes) -> bytes:
    """A command without calls: LOAD (budget, code)."""
    return COMMAND.pack(COMMAND.size - LENGTH.size + sum(map(len, blocks)), command, 0) + b"".join(blocks)


def encode_exchange(calls: list[tuple[int, bytes]]) -> bytes:
    """An EXCHANGE command of (event count, event buffer) pairs."""
    table = b"".join([CALL.pack(len(buffer), count) for count, buffer in calls])
    size = COMMAND.size - LENGTH.size + len(table) + sum([len(buffer) for _, buffer in calls])
    return b"".join([COMMAND.pack(size, Command.EXCHANGE, len(calls)), table, *[buffer for _, buffer in calls]])


def encode_reply(reply: Reply) -> bytes:
    """The worker's answer to one command."""
    table = b"".join([LENGTH.pack(len(output)) for output in reply.outputs])
    body = b"".join([table, *reply.outputs, reply.text.encode("ascii", "replace")])
    size = REPLY_BYTES - LENGTH.size + len(body)
    head = (size, reply.fault, len(reply.outputs), reply.memory_bytes, reply.fuel, reply.cpu_us)
    return REPLY.pack(*head) + body


def decode_reply(frame: bytes, max_outputs: int) -> Reply:
    """One whole reply frame, length included.

    Raises:
        StubFaultError: STUB_OUTPUT; the worker answered something that our worker would never say.
    """
    if len(frame) < REPLY_BYTES:
        raise _broken_worker("short reply")
    _, fault, count, memory_bytes, fuel, cpu_us = REPLY.unpack_from(frame)
    start = REPLY_BYTES + LENGTH.size * count
    if count > max_outputs or fault > _LAST_FAULT or start > len(frame):
        raise _broken_worker("impossible reply")
    outputs = []
    for index in range(count):
        (length,) = LENGTH.unpack_from(frame, REPLY_BYTES + LENGTH.size * index)
        outputs.append(frame[start : start + length])
        start += length
    if start > len(frame):
        raise _broken_worker("reply cut short")
    return Reply(_FAULT_OF_BYTE[fault], memory_bytes, fuel, cpu_us, outputs, clean_text(frame[start:]))


def decode_compiled(frame: bytes) -> bytes:
    """Machine code from the compile child's reply.

    Raises:
        PeerError: MODULE_MALFORMED when the engine refused the module.
        StubFaultError: STUB_OUTPUT as in `decode_reply`.
    """
    reply = decode_reply(frame, 1)
    if reply.fault is not GuestFault.NONE or len(reply.outputs) != 1:
        raise PeerError(Code.MODULE_MALFORMED, reply.text)
    return reply.outputs[0]


def _broken_worker(detail: str) -> StubFaultError:
    return StubFaultError(Code.STUB_OUTPUT, detail, fault="worker")
