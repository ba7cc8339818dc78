"""How much one peer may send in one direction, in all and of each type: messages and bytes, each with a burst.

A bucket keeps a *debt in seconds*: each message adds the time that it takes at the permitted rate, time passes it
off, and a message for which the burst has no room left is refused and adds nothing. One that is larger than the whole
burst passes when there is no debt, and then is paid for. A clock that is set back stops the repayment for a moment
and does no other harm.
Source: trust and hosts, section 5.3, rule 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from protofly.errors import SettingsError

_ROUNDING_SECONDS: Final = 1e-9
"""Ten times a tenth is not quite one: keeps a burst of ten at ten messages."""


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of a bucket; None is no limit. `burst_seconds` is how much of the rate may come at once."""

    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    burst_seconds: float = 1.0

    @property
    def is_unlimited(self) -> bool:
        """True if no limit is set, so that nothing is counted."""
        return self.messages_per_second is None and self.bytes_per_second is None


UNLIMITED: Final = RateLimit()


class TypeRate(msgspec.Struct, frozen=True, kw_only=True):
    """A common rate for messages of some types, in addition to the rate for all messages; types in lower case."""

    types: tuple[str, ...]
    limit: RateLimit


class Bucket(Protocol):
    """Counts messages against a rate."""

    def take(self, size_bytes: int, now: float, type_: str = "") -> float:
        """Let one message of a type pass: 0.0; or refuse it: seconds after which it is worth another try."""

    def give_back(self, size_bytes: int, type_: str = "") -> None:
        """The message that was let pass last goes nowhere: it costs nothing."""


class RateBucket:
    """Token bucket for messages and bytes together: what passes has room in both, what is refused costs nothing."""

    __slots__ = (
        "_burst",
        "_byte_debt",
        "_message_debt",
        "_message_room",
        "_seconds_per_byte",
        "_seconds_per_message",
        "_updated",
    )

    def __init__(self, limit: RateLimit) -> None:
        self._seconds_per_message = _seconds_per(limit.messages_per_second, "messages_per_second")
        self._seconds_per_byte = _seconds_per(limit.bytes_per_second, "bytes_per_second")
        if not 0.0 < limit.burst_seconds < math.inf:
            raise SettingsError("burst_seconds must be more than 0")
        self._burst = limit.burst_seconds + _ROUNDING_SECONDS
        self._message_room = max(self._burst - self._seconds_per_message, 0.0)
        self._message_debt = 0.0
        self._byte_debt = 0.0
        self._updated = 0.0

    def take(self, size_bytes: int, now: float, _type: str = "") -> float:
        """Let one message pass: 0.0; or refuse it: seconds after which it is worth another try.

        Args:
            size_bytes: Length of the message.
            now: Seconds; any clock, also one that is set back.
            _type: All types count alike.
        """
        elapsed = now - self._updated
        self._updated = now
        message_debt = self._message_debt
        byte_debt = self._byte_debt
        if elapsed > 0.0:
            message_debt = message_debt - elapsed if message_debt > elapsed else 0.0
            byte_debt = byte_debt - elapsed if byte_debt > elapsed else 0.0
        byte_cost = size_bytes * self._seconds_per_byte
        byte_room = self._burst - byte_cost
        if message_debt <= self._message_room and (byte_debt <= byte_room or byte_debt == 0.0):
            self._message_debt = message_debt + self._seconds_per_message
            self._byte_debt = byte_debt + byte_cost
            return 0.0
        self._message_debt = message_debt
        self._byte_debt = byte_debt
        return max(message_debt - self._message_room, byte_debt - max(byte_room, 0.0))

    def is_empty(self, now: float) -> bool:
        """True if nothing is owed any more: a new bucket would let as much pass."""
        elapsed = now - self._updated
        return self._message_debt <= elapsed and self._byte_debt <= elapsed

    def give_back(self, size_bytes: int, _type: str = "") -> None:
        """See `Bucket`."""
        self._message_debt = max(self._message_debt - self._seconds_per_message, 0.0)
        self._byte_debt = max(self._byte_debt - size_bytes * self._seconds_per_byte, 0.0)


class TypedBuckets:
    """One bucket for everything and one for each group of types: what passes has room in both.

    Raises:
        SettingsError: A rate that is not more than 0, or a type in two groups.
    """

    __slots__ = ("_all", "_by_type")

    def __init__(self, limit: RateLimit, by_type: Sequence[TypeRate]) -> None:
        self._all = RateBucket(limit)
        self._by_type: dict[str, RateBucket] = {}
        for group in by_type:
            bucket = RateBucket(group.limit)
            for type_ in group.types:
                if self._by_type.setdefault(type_, bucket) is not bucket:
                    raise SettingsError(f"two rates for messages of type {type_}: keep one")

    def take(self, size_bytes: int, now: float, type_: str = "") -> float:
        """See `Bucket`."""
        bucket = self._by_type.get(type_)
        if bucket is None:
            return self._all.take(size_bytes, now)
        wait_seconds = bucket.take(size_bytes, now)
        if not wait_seconds:
            wait_seconds = self._all.take(size_bytes, now)
            if wait_seconds:
                bucket.give_back(size_bytes)
        return wait_seconds

    def give_back(self, size_bytes: int, type_: str = "") -> None:
        """See `Bucket`."""
        bucket = self._by_type.get(type_)
        if bucket is not None:
            bucket.give_back(size_bytes)
        self._all.give_back(size_bytes)


class BothBuckets:
    """Two buckets for one message, each with others behind it: what passes has room in both."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Bucket, second: Bucket) -> None:
        self._first = first
        self._second = second

    def take(self, size_bytes: int, now: float, type_: str = "") -> float:
        """See `Bucket`."""
        wait_seconds = self._first.take(size_bytes, now, type_)
        if not wait_seconds:
            wait_seconds = self._second.take(size_bytes, now, type_)
            if wait_seconds:
                self._first.give_back(size_bytes, type_)
        return wait_seconds

    def give_back(self, size_bytes: int, type_: str = "") -> None:
        """See `Bucket`."""
        self._first.give_back(size_bytes, type_)
        self._second.give_back(size_bytes, type_)


def make_bucket(limit: RateLimit, by_type: Sequence[TypeRate] = ()) -> Bucket | None:
    """A bucket for a limit and for those of types, None when there is nothing to limit.

    Raises:
        SettingsError: A rate that is not more than 0, or a type with two.
    """
    if by_type:
        return TypedBuckets(limit, by_type)
    bucket = RateBucket(limit)
    return None if limit.is_unlimited else bucket


def _seconds_per(rate: float | None, name: str) -> float:
    if rate is None:
        return 0.0
    if not 0.0 < rate < math.inf:
        raise SettingsError(
            f'{name} must be more than 0; leave it out for no limit, or name the peer with default = "deny"'
        )
    return 1.0 / rate
