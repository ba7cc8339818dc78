"""Messages sent over a return channel that may break: numbered, and kept for a while to be sent again.

HTTP does not say whether an answer was read. So each message has a number, counted from 1 for a session, and stays
here until the runtime says up to where it has read (`acknowledge`), or for as long as it may be away. It is bounded;
what had to make room is reported as missing when it is asked for. Source: message specification, section 19.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from protofly.limits import HTTP_RESUME_BYTES, HTTP_RESUME_MESSAGES

LOST_EVENT: Final = "lost"
"""Name of the event in place of messages that cannot be sent again."""
CLOSE_EVENT: Final = "close"
"""Name of the last event of a stream that the node ends."""
COMMENT: Final = b": \n\n"
"""An event stream's sign of life, which readers pass over."""


class Numbered(NamedTuple):
    """One message with its number, and the time (seconds, of the caller's clock) when it went out."""

    number: int
    raw: bytes
    sent_at: float


class Resumed(NamedTuple):
    """The messages after a number, and how many are missing before them."""

    missing: int
    messages: list[Numbered]


class _Typed(msgspec.Struct):
    type: str


_decode_typed = msgspec.json.Decoder(_Typed).decode


class ReturnLog:
    """The messages of one session that may have to be sent again."""

    def __init__(self, *, max_messages: int = HTTP_RESUME_MESSAGES, max_bytes: int = HTTP_RESUME_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._kept: deque[Numbered] = deque()
        self._kept_bytes = 0
        self.last = 0
        """Number of the newest message, 0 before there is one."""

    def add(self, raws: Iterable[bytes], *, now: float) -> list[Numbered]:
        """Number messages that go out now; the oldest ones make room for them."""
        added = []
        for raw in raws:
            self.last += 1
            message = Numbered(self.last, raw, now)
            added.append(message)
            self._kept.append(message)
            self._kept_bytes += len(raw)
        while len(self._kept) > self._max_messages or self._kept_bytes > self._max_bytes:
            self._drop_oldest()
        return added

    def acknowledge(self, number: int) -> None:
        """The runtime has read everything up to `number`."""
        while self._kept and self._kept[0].number <= number:
            self._drop_oldest()

    def forget(self, before: float) -> None:
        """Drop what went out before a time: nobody can ask for it any more."""
        while self._kept and self._kept[0].sent_at < before:
            self._drop_oldest()

    def after(self, number: int) -> Resumed:
        """Everything behind `number`, which the runtime has read; a number that is still to come has nothing behind."""
        self.acknowledge(number)
        if number >= self.last:
            return Resumed(0, [])
        first = self._kept[0].number if self._kept else self.last + 1
        return Resumed(first - number - 1, list(self._kept))

    def _drop_oldest(self) -> None:
        self._kept_bytes -= len(self._kept.popleft().raw)


def number_in(text: str) -> int | None:
    """Read the number that a runtime says it has read up to; None when it says none, or nothing that is one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def stream_event(message: Numbered) -> bytes:
    """One message as a server-sent event: its type, its number, its text.

    Source: HTML Living Standard, section 9.2.6.
    """
    name = _decode_typed(message.raw).type
    word = name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else "message"
    head = f"event: {word}\nid: {message.number}\n".encode()
    return head + b"".join(b"data: " + line + b"\n" for line in message.raw.splitlines()) + b"\n"


def own_event(name: str, data: object) -> bytes:
    """An event of the node's own, without a number: `lost` or `close`."""
    return f"event: {name}\n".encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


def poll_answer(messages: Iterable[Numbered]) -> bytes:
    """Messages as a JSON array, each byte for byte as it came."""
    return b"[" + b",".join(message.raw for message in messages) + b"]"
