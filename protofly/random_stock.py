"""Fresh random bytes, read from the operating system many at a time.

A read gives Python's lock away, and getting it back from a busy writer can take longer than a whole request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

STOCK_BYTES: Final = 4096


class RandomStock:
    """Gives random bytes, each once. Not for secrets: what is in stock lies in memory for a while.

    Args:
        read: Gives so many random bytes, as `os.urandom` does.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._stock = b""
        self._taken = 0

    def take(self, count: int) -> bytes:
        """`count` random bytes that nobody has been given before; at most `STOCK_BYTES`."""
        first = self._taken
        if len(self._stock) - first < count:
            self._stock, first = self._read(STOCK_BYTES), 0
        self._taken = first + count
        return self._stock[first : self._taken]
