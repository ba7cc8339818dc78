"""Events that every subscriber is to acknowledge: sent again until it does, is gone, or the time is up.

Kept in memory: events are never queued for those who are away. A subscriber acknowledges by a response with the
mirrored header, which stays with us. Source: message specification, section 19.1.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from protofly.limits import (
    GUARANTEED_BYTES,
    GUARANTEED_BYTES_PER_SESSION,
    GUARANTEED_EVENTS,
    GUARANTEED_PER_SESSION,
    GUARANTEED_RETRY_SECONDS,
    GUARANTEED_SENT_AT_ONCE,
)
from protofly.message import Message

_Key = tuple[str, bytes, str]


@dataclass(slots=True)
class _Open:
    event: Message
    waiting: set[int]
    ends_at: float
    next_at: float
    sender: int = 0


class GuaranteedEvents:
    """Events that are not acknowledged yet."""

    def __init__(self, *, max_events: int = GUARANTEED_EVENTS, max_bytes: int = GUARANTEED_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._open: OrderedDict[_Key, _Open] = OrderedDict()
        self._bytes = 0
        self._events_of: Counter[int] = Counter()  # by sender
        self._bytes_of: Counter[int] = Counter()
        self._given_up = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, event: Message, subscribers: Iterable[int], now: float, seconds: float, *, sender: int = 0) -> bool:
        """An event was handed to its subscribers; False when it cannot be watched: no id, or too many are.

        `now` is seconds since the Unix epoch, `seconds` how long it is sent again at most, `sender` the session that
        sent it, which has a bound of its own; 0: another node has counted it.
        """
        waiting = set(subscribers)
        if event.id is None:
            return False
        key = event.from_key, event.id, event.to_key
        self._close(key)
        size_bytes = len(event.raw)
        if len(self._open) >= self._max_events or self._bytes + size_bytes > self._max_bytes:
            return False
        if sender and (
            self._events_of[sender] >= GUARANTEED_PER_SESSION
            or self._bytes_of[sender] + size_bytes > GUARANTEED_BYTES_PER_SESSION
        ):
            return False
        if waiting:
            self._open[key] = _Open(event, waiting, now + seconds, now + GUARANTEED_RETRY_SECONDS, sender)
            self._bytes += size_bytes
            self._events_of[sender] += 1
            self._bytes_of[sender] += size_bytes
        return True

    def _close(self, key: _Key) -> None:
        closed = self._open.pop(key, None)
        if closed is not None:
            self._bytes -= len(closed.event.raw)
            self._bytes_of[closed.sender] -= len(closed.event.raw)
            self._events_of[closed.sender] -= 1
            if not self._events_of[closed.sender]:
                del self._events_of[closed.sender], self._bytes_of[closed.sender]

    def acknowledged(self, reply: Message, subscriber: int) -> bool:
        """A subscriber answers; returns whether that was to such an event."""
        if not self._open or reply.id is None:
            return False
        key = reply.to_key, reply.id, reply.from_key
        found = self._open.get(key)
        if found is None or subscriber not in found.waiting:
            return False
        found.waiting.discard(subscriber)
        if not found.waiting:
            self._close(key)
        return True

    def due(
        self, now: float, *, lives: Callable[[int], bool], most: int = GUARANTEED_SENT_AT_ONCE
    ) -> list[tuple[int, Message]]:
        """Return subscribers with the events to send again now: some of them, so a caller that gets any asks again.

        Args:
            now: Seconds since the Unix epoch.
            lives: Says whether a subscriber's session exists, even while it is away.
            most: No further event is sent again once so many subscribers got one.
        """
        due: list[tuple[int, Message]] = []
        for key, one in list(self._open.items()):
            if len(due) >= most:
                break
            if one.next_at > now and one.ends_at > now:
                continue
            one.waiting = {number for number in one.waiting if lives(number)}
            if one.ends_at <= now or not one.waiting:
                self._given_up += bool(one.waiting)
                self._close(key)
                continue
            one.next_at = now + GUARANTEED_RETRY_SECONDS
            due += [(number, one.event) for number in sorted(one.waiting)]
        return due

    def of_subscriber(self, number: int, now: float) -> list[tuple[Message, float]]:
        """The events that a subscriber has not acknowledged, with the seconds for which each is sent again."""
        return [(one.event, one.ends_at - now) for one in self._open.values() if number in one.waiting]

    def take_over(self, event: Message, subscriber: int, now: float, seconds: float) -> None:
        """A subscriber has come from another node, which had handed it an event."""
        one = None if event.id is None else self._open.get((event.from_key, event.id, event.to_key))
        if one is not None:
            one.waiting.add(subscriber)
        else:
            self.begin(event, (subscriber,), now, seconds)

    def clock_set(self, now: float, ahead_seconds: float) -> None:
        """The clock was set by so much: events go again, and are given up, when they would have been."""
        for one in self._open.values():
            if not now <= one.next_at <= now + GUARANTEED_RETRY_SECONDS:  # else it began since
                one.next_at += ahead_seconds
                one.ends_at += ahead_seconds

    def take_given_up(self) -> int:
        """Return the number of events that a subscriber never acknowledged, since the last call."""
        given_up, self._given_up = self._given_up, 0
        return given_up
