"""How often each address may do something; for addresses that nobody chose.

One bucket for each group of addresses (`wire.core.address_group`). The groups that were seen last are remembered. A
forgotten one has a full burst again: forgetting takes as many groups as are remembered, and each of those has its own
bound already.
"""

from __future__ import annotations

from collections import OrderedDict

from policy.core.rates import RateBucket, RateLimit


class AddressRates:
    """The buckets.

    Args:
        per_second: Steady rate of one group.
        burst_seconds: How much of it may come at once.
        groups: How many groups are remembered.
    """

    def __init__(self, *, per_second: float, burst_seconds: float, groups: int) -> None:
        self._limit = RateLimit(messages_per_second=per_second, burst_seconds=burst_seconds)
        self._groups = groups
        self._buckets: OrderedDict[str, RateBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, group: str, now: float) -> float:
        """Let it happen once more: 0.0; or refuse it: seconds after which it is worth another try.

        Args:
            group: Who wants it.
            now: Seconds, any clock.
        """
        bucket = self._buckets.get(group)
        if bucket is None:
            bucket = self._buckets[group] = RateBucket(self._limit)
            if len(self._buckets) > self._groups:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(group)
        return bucket.take(0, now)

    def give_back(self, group: str) -> None:
        """What happened last was right: it costs nothing."""
        if group in self._buckets:
            self._buckets[group].give_back(0)
