"""Which of many keys is due, when deadlines move all the time.

Keys lie in buckets of a whole second: moving one, as every keep-alive does, is a dictionary operation, and asking for
what is due touches nothing else. A key is due at most a second late, never early.
"""

from __future__ import annotations

import heapq
import math


class Deadlines:
    """One deadline for each of many keys."""

    def __init__(self) -> None:
        self._second_of: dict[str, int] = {}
        self._buckets: dict[int, dict[str, None]] = {}
        self._seconds: list[int] = []  # heap of the seconds that have a bucket, and of some that had one

    def __len__(self) -> int:
        return len(self._second_of)

    def set(self, key: str, at: float) -> None:
        """From now on `key` is due at `at` (seconds), whatever it was before."""
        second = math.ceil(at)
        known = self._second_of.get(key)
        if known == second:
            return
        if known is not None:
            self._take_out(key, known)
        self._second_of[key] = second
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = {}
            heapq.heappush(self._seconds, second)
        bucket[key] = None

    def discard(self, key: str) -> None:
        """`key` is never due any more."""
        second = self._second_of.pop(key, None)
        if second is not None:
            self._take_out(key, second)

    def next_second(self) -> int | None:
        """Return when something is due next."""
        while self._seconds and self._seconds[0] not in self._buckets:
            heapq.heappop(self._seconds)
        return self._seconds[0] if self._seconds else None

    def take_due(self, now: float, limit: int) -> list[str]:
        """Return at most `limit` keys that are due, earliest first; they have no deadline any more."""
        due: list[str] = []
        while len(due) < limit and (second := self.next_second()) is not None and second <= now:
            bucket = self._buckets[second]
            while bucket and len(due) < limit:
                key, _ = bucket.popitem()
                del self._second_of[key]
                due.append(key)
            if not bucket:
                del self._buckets[second]
        return due

    def _take_out(self, key: str, second: int) -> None:
        bucket = self._buckets[second]
        del bucket[key]
        if not bucket:
            del self._buckets[second]
            if len(self._seconds) > 2 * len(self._buckets) + 64:
                self._seconds = sorted(self._buckets)  # which is a heap as well
