"""How many look-ups at other domains anybody may cause: so many per asker, and so many in all.

The bound per asker comes first, so that one asker cannot use up what is for all. Look-ups of peers that the settings
name do not count towards the total.
"""

from __future__ import annotations

from collections import OrderedDict

from policy.core.rates import RateBucket, RateLimit
from protofly import limits

_BURST_SECONDS = 10.0
_ASKERS = 1000


class LookupRates:
    """Counts look-ups; askers that asked least lately are forgotten first.

    Args:
        per_minute: So many are permitted in all; by default those of domains.
        per_minute_and_asker: So many of one asker.
    """

    def __init__(
        self,
        per_minute: float = limits.DISCOVERIES_PER_MINUTE,
        per_minute_and_asker: float = limits.DISCOVERIES_PER_MINUTE_AND_ASKER,
    ) -> None:
        self._of_asker = RateLimit(messages_per_second=per_minute_and_asker / 60.0, burst_seconds=_BURST_SECONDS)
        self._total = RateBucket(RateLimit(messages_per_second=per_minute / 60.0, burst_seconds=_BURST_SECONDS))
        self._askers: OrderedDict[str, RateBucket] = OrderedDict()

    def take(self, asked_by: str, *, is_peer: bool, now: float) -> float:
        """Count one look-up; returns 0, or the seconds after which it may be tried again: then it is not counted.

        Args:
            asked_by: Who causes it; "" for the node itself, which has no bound of its own.
            is_peer: The settings name the domain.
            now: Seconds of any clock.
        """
        bucket = self._bucket(asked_by) if asked_by else None
        wait_seconds = 0.0 if bucket is None else bucket.take(0, now)
        if wait_seconds or is_peer:
            return wait_seconds
        wait_seconds = self._total.take(0, now)
        if wait_seconds and bucket is not None:
            bucket.give_back(0)
        return wait_seconds

    def _bucket(self, asked_by: str) -> RateBucket:
        bucket = self._askers.setdefault(asked_by, RateBucket(self._of_asker))
        self._askers.move_to_end(asked_by)
        while len(self._askers) > _ASKERS:
            self._askers.popitem(last=False)
        return bucket
