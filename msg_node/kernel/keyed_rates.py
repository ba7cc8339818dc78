"""How often each of many may do something: each network address, each user. For those that nobody chose.

One bucket for each; addresses are counted by their group (`wire.core.address_group`). Those that were seen last are
remembered. A forgotten one has a full burst again: forgetting takes as many others as are remembered, and each of those
has its own bound already.
"""

from __future__ import annotations

from collections import OrderedDict

from policy.core.rates import RateBucket, RateLimit


class KeyedRates:
    """The buckets.

    Args:
        per_second: Steady rate of each.
        burst_seconds: How much of it may come at once.
        most: How many are remembered.
    """

    def __init__(self, *, per_second: float, burst_seconds: float, most: int) -> None:
        self._limit = RateLimit(messages_per_second=per_second, burst_seconds=burst_seconds)
        self._most = most
        self._buckets: OrderedDict[str, RateBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> float:
        """Let it happen once more: 0.0; or refuse it: seconds after which it is worth another try.

        Args:
            key: Who wants it.
            now: Seconds, any clock.
        """
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = RateBucket(self._limit)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket.take(0, now)

    def give_back(self, key: str) -> None:
        """Return what the last event of a key took from its rate; no effect for a key without a bucket."""
        if key in self._buckets:
            self._buckets[key].give_back(0)
