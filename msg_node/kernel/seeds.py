"""Fresh random bytes for the requests of runtimes.

Read from the operating system many at a time: a read gives Python's lock away, and getting it back from a busy writer
takes longer than the whole request.
"""

from __future__ import annotations

from collections.abc import Callable

from msg_node.kernel.identifiers import SEED_BYTES

SEEDS_AT_A_TIME = 128


class Seeds:
    """Gives seeds for names, each once. Secrets have their own: what is in stock lies in memory for a while."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """`read` gives so many random bytes, as `os.urandom` does."""
        self._read = read
        self._stock: list[bytes] = []

    def next(self) -> bytes:
        """`SEED_BYTES` random bytes that nobody has been given before."""
        if not self._stock:
            block = self._read(SEED_BYTES * SEEDS_AT_A_TIME)
            self._stock = [block[start : start + SEED_BYTES] for start in range(0, len(block), SEED_BYTES)]
        return self._stock.pop()
