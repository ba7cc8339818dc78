"""How much one peer may send in one direction: messages and bytes, each with a burst.

A bucket keeps a *debt in seconds*: each message adds the time that it takes at the permitted rate, time passes it
off, and a message for which the burst has no room left is refused and adds nothing. One that is larger than the whole
burst passes when there is no debt, and then is paid for. A clock that is set back stops the repayment for a moment
and does no other harm.
Source: trust and hosts, section 5.3, rule 8.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from protofly.errors import SettingsError

_ROUNDING_SECONDS: Final = 1e-9
"""Ten times a tenth is not quite one: keeps a burst of ten at ten messages."""


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What a bucket permits; None is no limit. `burst_seconds` is how much of the rate may come at once."""

    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    burst_seconds: float = 1.0


UNLIMITED: Final = RateLimit()


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

    def take(self, size_bytes: int, now: float) -> float:
        """Let one message pass: 0.0; or refuse it: seconds after which it is worth another try.

        Args:
            size_bytes: Length of the message.
            now: Seconds; any clock, also one that is set back.
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


def make_bucket(limit: RateLimit) -> RateBucket | None:
    """A bucket for a limit, None when there is nothing to limit.

    Raises:
        SettingsError: A rate that is not more than 0.
    """
    bucket = RateBucket(limit)
    is_unlimited = limit.messages_per_second is None and limit.bytes_per_second is None
    return None if is_unlimited else bucket


def _seconds_per(rate: float | None, name: str) -> float:
    if rate is None:
        return 0.0
    if not 0.0 < rate < math.inf:
        raise SettingsError(
            f'{name} must be more than 0; leave it out for no limit, or name the peer with default = "deny"'
        )
    return 1.0 / rate
