"""Ids for the messages that leave this node: UUID version 7, made from the time, a counter and randomness given once.

Source: RFC 9562, section 5.7.
"""

from __future__ import annotations


class MessageIds:
    """Gives unique, time-ordered ids.

    Args:
        random_bytes: 8 fresh random bytes, once per start of the node.
    """

    def __init__(self, random_bytes: bytes) -> None:
        self._base = int.from_bytes(random_bytes, "big") & ((1 << 62) - 1)
        self._count = 0

    def next(self, now: float) -> bytes:
        """16 bytes; `now` is seconds since the Unix epoch."""
        self._count = count = self._count + 1
        milliseconds = int(now * 1000)
        low = (self._base + count) & ((1 << 62) - 1)
        return ((milliseconds << 80) | 0x7 << 76 | (count & 0xFFF) << 64 | 0x2 << 62 | low).to_bytes(16, "big")
