"""The guest's half of the record codec, for tests that play a stub."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.core.exchange import PROLOGUE, PROLOGUE_BYTES, RECORD, RECORD_BYTES, GuestAction, GuestEvent


def encode_actions(actions: Iterable[GuestAction]) -> bytes:
    return b"".join(RECORD.pack(op, flags, 0, arg, len(payload)) + payload for op, arg, payload, flags in actions)


def decode_events(buffer: bytes) -> tuple[int, bytes, list[GuestEvent]]:
    """Time in milliseconds, random bytes and events of one buffer."""
    now_ms, random16 = PROLOGUE.unpack_from(buffer)
    events: list[GuestEvent] = []
    offset = PROLOGUE_BYTES
    while offset < len(buffer):
        op, flags, _reserved, arg, length = RECORD.unpack_from(buffer, offset)
        start = offset + RECORD_BYTES
        offset = start + length
        assert offset <= len(buffer)
        events.append(GuestEvent(op, arg, buffer[start:offset], flags))
    return now_ms, random16, events
