"""How much of the twin is used by all, and by each runtime that describes things: one leaves room for the others."""

from __future__ import annotations

from collections import Counter

from protofly.errors import Code, PeerError
from protofly.limits import TWIN_BYTES_PER_RUNTIME, TWIN_THINGS_PER_RUNTIME


class TwinRoom:
    """Bytes of descriptions and values, and things by runtime; "" is nobody in particular.

    Attributes:
        size_bytes: What is used of all.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.size_bytes = 0
        self._bytes: Counter[str] = Counter()
        self._things: Counter[str] = Counter()

    def has_room(self, runtime: str, growth: int) -> bool:
        """True if a runtime may add so many bytes."""
        is_within_part = not runtime or growth <= 0 or self._bytes[runtime] + growth <= TWIN_BYTES_PER_RUNTIME
        return is_within_part and self.size_bytes + growth <= self._max_bytes

    def check_thing(self, runtime: str) -> None:
        """Refuse one thing more when a runtime has described too many. Raises PeerError: QUOTA."""
        if runtime and self._things[runtime] >= TWIN_THINGS_PER_RUNTIME:
            raise PeerError(Code.QUOTA, f"a runtime may describe {TWIN_THINGS_PER_RUNTIME} things")

    def count(self, runtime: str, growth: int, *, things: int = 0) -> None:
        """So many bytes and things came, or went if they are negative."""
        self.size_bytes += growth
        if runtime:
            self._bytes[runtime] += growth
            self._things[runtime] += things
            if not self._bytes[runtime] and not self._things[runtime]:
                del self._bytes[runtime], self._things[runtime]
