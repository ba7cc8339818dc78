"""Requests whose senders still wait for a direct reply. All wait equally long: deadlines come in the order of calls."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import NamedTuple

from msg_node.requests.core.parked import ParkedRequest
from protofly.limits import PARKED_EXPIRED_AT_ONCE, REQUEST_TTL_SECONDS


class _Owed(NamedTuple):
    until: float
    entry: ParkedRequest


class OwedReplies:
    """Open requests that are owed a direct reply, with the time until which their senders wait."""

    def __init__(self) -> None:
        self._owed: OrderedDict[int, _Owed] = OrderedDict()  # by number, the longest waiting first

    def __contains__(self, entry: ParkedRequest) -> bool:
        return entry.number in self._owed

    def add(self, entry: ParkedRequest, until: float) -> None:
        """The sender waits for a reply until then (Unix seconds); called again, it waits anew."""
        self._owed[entry.number] = _Owed(until, entry)
        self._owed.move_to_end(entry.number)

    def discard(self, entry: ParkedRequest) -> None:
        """The sender has had its reply, or gets none; no effect when none is owed."""
        self._owed.pop(entry.number, None)

    def clock_set(self, now: float, ahead_seconds: float) -> None:
        """The clock was set by so much: what was promised before ends when it would have ended."""
        for number, owed in self._owed.items():
            if not now <= owed.until <= now + REQUEST_TTL_SECONDS:  # else it began since
                self._owed[number] = owed._replace(until=owed.until + ahead_seconds)

    def overdue(self, now: float, *, most: int = PARKED_EXPIRED_AT_ONCE) -> list[ParkedRequest]:
        """At most `most` requests whose senders have waited long enough, the longest waiting first."""
        due = []
        for owed in islice(self._owed.values(), most):
            if owed.until > now:
                break
            due.append(owed.entry)
        return due
