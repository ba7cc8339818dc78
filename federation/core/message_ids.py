"""Ids for the messages that leave this node: UUID version 7, made from the time, a counter and randomness given once.

Source: RFC 9562, section 5.7.
"""

from __future__ import annotations

from struct import Struct

_pack = Struct(">QQ").pack
_LOW_BITS = (1 << 62) - 1
_VARIANT = 1 << 63


class MessageIds:
    """Gives unique, time-ordered ids.

    Args:
        random_bytes: 8 fresh random bytes, once per start of the node.
    """

    def __init__(self, random_bytes: bytes) -> None:
        self._base = int.from_bytes(random_bytes, "big") & _LOW_BITS
        self._count = 0

    def next(self, now: float) -> bytes:
        """16 bytes; `now` is seconds since the Unix epoch."""
        self._count = count = self._count + 1
        return _pack(int(now * 1000) << 16 | 0x7000 | count & 0xFFF, _VARIANT | (self._base + count) & _LOW_BITS)
