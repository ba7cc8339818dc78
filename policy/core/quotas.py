"""How much one peer may send in one direction in an hour, a day or a month: messages and bytes.

Counts belong to the name of an entry, direction, period and types, not to the limits: settings that change keep what
was counted. Periods are those of UTC. A clock that is set back begins no new period.
Source: trust and hosts, section 5.3, rule 8.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from policy.core.rates import BothBuckets, Bucket

Period = Literal["hour", "day", "month"]

_LEAST_WAIT: Final = 1.0


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The volume that may pass in one period; None is no limit. `types` in lower case, () for all."""

    per: Period
    messages: int | None = None
    bytes: int | None = None
    types: tuple[str, ...] = ()


class QuotaWait(float):
    """Seconds until a period ends whose quota is used up."""


class Counted(msgspec.Struct):
    """Messages and bytes that passed in one period, from `since` to `until` (seconds since the Unix epoch).

    `is_used_up`: something was refused in this period.
    """

    since: float = 0.0
    until: float = 0.0
    messages: int = 0
    bytes: int = 0
    is_used_up: bool = False


class QuotaBucket:
    """Counts the messages of one quota in one direction.

    Args:
        quota: The limits.
        counted: What has passed; shared with the next bucket of this name when settings change.
    """

    __slots__ = ("_most_bytes", "_most_messages", "_per", "_types", "counted", "quota")

    def __init__(self, quota: Quota, counted: Counted) -> None:
        self.quota = quota
        self.counted = counted
        self._per = quota.per
        self._types = frozenset(quota.types)
        self._most_messages = quota.messages
        self._most_bytes = quota.bytes

    def take(self, size_bytes: int, now: float, type_: str = "") -> float:
        """See `Bucket`; what is refused waits for the end of the period."""
        if self._types and type_ not in self._types:
            return 0.0
        counted = self.counted
        if now >= counted.until:
            counted.since, counted.until = period_of(self._per, now)
            counted.messages = counted.bytes = 0
            counted.is_used_up = False
        messages, size = counted.messages + 1, counted.bytes + size_bytes
        is_over = self._most_messages is not None and messages > self._most_messages
        if is_over or (self._most_bytes is not None and size > self._most_bytes):
            counted.is_used_up = True
            return QuotaWait(max(counted.until - now, _LEAST_WAIT))
        counted.messages, counted.bytes = messages, size
        return 0.0

    def give_back(self, size_bytes: int, type_: str = "") -> None:
        """See `Bucket`."""
        if not self._types or type_ in self._types:
            self.counted.messages = max(self.counted.messages - 1, 0)
            self.counted.bytes = max(self.counted.bytes - size_bytes, 0)


class Quotas:
    """The counts of all quotas, by their names."""

    def __init__(self) -> None:
        self.volumes: dict[str, Counted] = {}
        """By name; those of limits of rules are among them."""
        self._buckets: dict[str, QuotaBucket] = {}

    def bucket(self, name: str, direction: str, rate: Bucket | None, quotas: tuple[Quota, ...]) -> Bucket | None:
        """A bucket of an entry for a direction: what passes has room in its rate and in all of its quotas."""
        found = rate
        for quota in quotas:
            key = " ".join((name, direction, quota.per, *sorted(quota.types)))
            made = self._buckets[key] = QuotaBucket(quota, self.volumes.setdefault(key, Counted()))
            found = made if found is None else BothBuckets(found, made)
        return found

    def forget(self, name: str) -> None:
        """An entry is gone, or about to be made anew; what was counted stays."""
        for key in [key for key in self._buckets if key.startswith(f"{name} ")]:
            del self._buckets[key]

    def __iter__(self) -> Iterator[tuple[str, QuotaBucket]]:
        return iter(sorted(self._buckets.items()))

    def counted(self) -> dict[str, Counted]:
        """Copies of what has been counted, by the names of quotas."""
        return {key: msgspec.structs.replace(one) for key, one in self.volumes.items() if one.until}

    def restore(self, counted: Mapping[str, Counted]) -> None:
        """Go on from what was counted before a restart."""
        for key, one in counted.items():
            known = self.volumes.setdefault(key, Counted())
            known.since, known.until, known.messages, known.bytes = one.since, one.until, one.messages, one.bytes
            known.is_used_up = one.is_used_up


def period_of(per: Period, now: float) -> tuple[float, float]:
    """Begin and end of the hour, day or month of a moment, in seconds since the Unix epoch."""
    moment = dt.datetime.fromtimestamp(now, dt.UTC).replace(minute=0, second=0, microsecond=0)
    if per == "hour":
        return moment.timestamp(), (moment + dt.timedelta(hours=1)).timestamp()
    moment = moment.replace(hour=0)
    if per == "day":
        return moment.timestamp(), (moment + dt.timedelta(days=1)).timestamp()
    first = moment.replace(day=1)
    return first.timestamp(), (first + dt.timedelta(days=32)).replace(day=1).timestamp()
