"""Guest events and actions as bytes: the codec of the stub contract `trapezoid-stub/1`.

Theory of operation: everything that crosses the border is a sequence of records, a 12-byte little-endian header (`u8
op, u8 flags, u16 reserved, u32 arg, u32 length`) and then `length` bytes that nobody here looks into. An event buffer
begins with the time and 16 random bytes, because a stub has no other source of either. Records carry opaque bytes, so
this page costs well under a microsecond per message: it is on the path of every message that leaves the domain.

What comes back was written by foreign code. Every field is checked before it is used, and the only error is
`StubFaultError`.

Source: docs/abi.md, "Records"; Wasmtime study, sections 3.3 and 8.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from protofly import limits
from protofly.errors import Code, MisuseError, StubFaultError

RECORD: Final = Struct("<BBHII")
RECORD_BYTES: Final = RECORD.size
PROLOGUE: Final = Struct("<Q16s")
PROLOGUE_BYTES: Final = PROLOGUE.size
RANDOM_BYTES: Final = 16

FLAG_TEXT: Final = 1
"""`data` and `send`: this is a text frame."""
FLAG_GRANTED: Final = 1
"""`auth_token`: the token was granted; `peer_verified`: the peer's proof holds."""
FLAG_SNAPSHOT: Final = 1
"""`addresses`: what the stub heard before does not count any more."""


class Event(IntEnum):
    """Kinds of events that the host sends to a stub."""

    START = 1
    MESSAGE = 2
    OPENED = 3
    DATA = 4
    CLOSED = 5
    TIMER = 6
    HTTP_RESPONSE = 7
    AUTH_TOKEN = 8
    PEER_VERIFIED = 9
    DRAIN = 10
    ADDRESSES = 11
    SCRIPT = 12


class Action(IntEnum):
    """Kinds of actions that a stub asks the host to perform."""

    OPEN = 1
    SEND = 2
    CLOSE = 3
    DELIVER = 4
    SET_TIMER = 5
    REQUEST_AUTH_TOKEN = 6
    VERIFY_PEER = 7
    ACCEPTED = 8
    REFUSED = 9
    STATUS = 10
    LOG = 11
    PEER_STREAM = 12


class ChannelKind(IntEnum):
    """Flags of the `open` action."""

    WEBSOCKET = 1
    TCP_TLS = 2
    HTTP = 3


class GuestEvent(NamedTuple):
    """One record for the guest; `arg` is a message number, a channel or a timer, as `op` says."""

    op: int
    arg: int
    payload: bytes
    flags: int = 0


class GuestAction(NamedTuple):
    """One record from the guest. `op` is a member of `Action`, compared as a plain number on the hot path."""

    op: int
    arg: int
    payload: bytes
    flags: int = 0


_LAST_ACTION: Final = int(max(Action))  # a plain number: comparing with a member costs ten times as much
_LAST_EVENT: Final = int(max(Event))
_pack = RECORD.pack
_unpack_from = RECORD.unpack_from
_new_action = tuple.__new__


def encode_events(events: list[GuestEvent], now_ms: int, random16: bytes) -> bytes:
    """One event buffer: the prologue, then every event in order.

    Args:
        events: What happened; how many fit one call is `split_calls`' business.
        now_ms: Unix time in milliseconds.
        random16: 16 fresh random bytes.

    Raises:
        MisuseError: a field does not fit its place; events come from us, so this is our bug.
    """
    if len(random16) != RANDOM_BYTES:
        raise MisuseError(f"{len(random16)} random bytes instead of {RANDOM_BYTES}")
    parts = [PROLOGUE.pack(now_ms, random16)]
    append = parts.append
    for op, arg, payload, flags in events:
        append(_pack(op, flags, 0, arg, len(payload)))
        append(payload)
    return b"".join(parts)


def count_events(buffer: bytes) -> int:
    """The number of events in a buffer that `encode_events` made; -1 for bytes that no host of ours hands to a stub."""
    offset, end, count = PROLOGUE_BYTES, len(buffer), 0
    while offset + RECORD_BYTES <= end:
        op, _flags, reserved, _arg, length = _unpack_from(buffer, offset)
        if reserved or not 0 < op <= _LAST_EVENT:
            return -1
        offset += RECORD_BYTES + length
        count += 1
    return count if offset == end <= limits.INPUT_BYTES_MAX else -1


EVENT_PAYLOAD_BYTES: Final = limits.INPUT_BYTES_MAX - PROLOGUE_BYTES - RECORD_BYTES
"""The longest payload of one event. Code that makes events of what strangers send has to refuse more."""


def split_calls(events: list[GuestEvent], call_bytes: int = limits.INPUT_BYTES) -> list[int]:
    """Split events into guest calls of at most `call_bytes`, or one longer event. Returns the count of each call.

    Raises:
        MisuseError: the payload of an event is longer than EVENT_PAYLOAD_BYTES.
    """
    whole = PROLOGUE_BYTES + RECORD_BYTES * len(events) + sum([len(event[2]) for event in events])
    if whole <= call_bytes:
        return [len(events)] if events else []
    counts: list[int] = []
    count, size = 0, PROLOGUE_BYTES
    for event in events:
        length = RECORD_BYTES + len(event[2])
        if count and size + length > call_bytes:
            counts.append(count)
            count, size = 0, PROLOGUE_BYTES
        if len(event[2]) > EVENT_PAYLOAD_BYTES:
            raise MisuseError(f"an event of {length} bytes; the guest's window ends at {limits.INPUT_BYTES_MAX}")
        count += 1
        size += length
    if count:
        counts.append(count)
    return counts


def output_limit(input_bytes: int) -> int:
    """Bytes that one call may answer. Source: docs/abi.md, "Budgets"."""
    return limits.OUTPUT_BASE_BYTES + limits.OUTPUT_PER_INPUT_BYTE * input_bytes


def action_limit(event_count: int, input_bytes: int) -> int:
    """Actions that one call may answer. Source: docs/abi.md, "Budgets"."""
    return limits.ACTIONS_PER_EVENT * event_count + input_bytes // limits.INPUT_BYTES_PER_ACTION


def decode_actions(buffer: bytes, max_actions: int | None = None) -> list[GuestAction]:
    """Every action in one action buffer, in order; payloads are copies.

    Args:
        buffer: What the guest answered, already cut at `output_limit`.
        max_actions: `action_limit` of the call; None counts nothing.

    Raises:
        StubFaultError: STUB_OUTPUT when a record is cut short, unknown, not clean, or one too many.
    """
    actions: list[GuestAction] = []
    append = actions.append
    offset, end = 0, len(buffer)
    last_start = end - RECORD_BYTES
    for _ in range(end if max_actions is None else max_actions):
        if offset > last_start:
            break
        op, flags, reserved, arg, length = _unpack_from(buffer, offset)
        start = offset + RECORD_BYTES
        offset = start + length
        if reserved or not 0 < op <= _LAST_ACTION:
            detail = f"action {op} at byte {start - RECORD_BYTES} is unknown, or reserved bits are set"
            raise StubFaultError(Code.STUB_OUTPUT, detail, fault="bad-record")
        append(_new_action(GuestAction, (op, arg, buffer[start:offset], flags)))
    if offset <= last_start:
        raise StubFaultError(Code.STUB_OUTPUT, f"more than {max_actions} actions", fault="action-flood")
    if offset != end:
        raise StubFaultError(Code.STUB_OUTPUT, f"actions of {offset} bytes in {end} bytes", fault="cut-short")
    return actions
