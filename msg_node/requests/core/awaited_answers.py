"""Requests with a `ttl` of our own runtimes to our own runtimes, and whether they were answered in time.

A request without `ttl` is the asker's to time: the node stays silent (message specification, section 3, rule 4). With
one, each request gets one final answer: the recipient's, or the node's 504 when the time is over. A provisional answer
restarts the time. An answer that comes after the 504 is late. Kept in memory and bounded: an asker who has too many
requests under way gets the 504 of its oldest one at once.

Pure: monotonic seconds are arguments.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from federation.core.transactions import TransactionKey, is_provisional, mirrored
from protofly.limits import ANSWERED_AT_ONCE, AWAITED_ANSWERS, AWAITED_ANSWERS_PER_SESSION
from protofly.message import Message

_FEW = 16
_FORGOTTEN = 1000  # deadlines of requests that are open no more; beyond these they are sorted out


class Answered(Enum):
    """The relation of an answer to the requests that are known here."""

    IN_TIME = "in time"
    LATE = "late"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Awaited:
    """One request under way: who asked, for how long, until when, and what it takes to answer in place of another."""

    sid: int
    ttl_seconds: float
    deadline: float
    request: Message


class AwaitedAnswers:
    """Open requests, oldest first, and those that the node has answered itself."""

    def __init__(self) -> None:
        self._open: OrderedDict[TransactionKey, Awaited] = OrderedDict()
        self._of: dict[int, OrderedDict[TransactionKey, None]] = {}
        self._deadlines: list[tuple[float, TransactionKey]] = []  # heap; of some that are open no more as well
        self._displaced: list[Awaited] = []
        self._overdue: OrderedDict[TransactionKey, int] = OrderedDict()
        self._overdue_of: dict[int, OrderedDict[TransactionKey, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._open or self._overdue)

    def __len__(self) -> int:
        return len(self._open)

    def began(self, request: Message, sid: int, ttl_seconds: float, now: float) -> None:
        """A request of a session was given to its recipient. The same one again restarts the time."""
        key = request.from_key, request.id or b"", request.to_key
        self._forget_overdue(key)
        self._forget(key)
        self._wait_for(key, Awaited(sid, ttl_seconds, now + ttl_seconds, mirrored(mirrored(request, ""), request.type)))
        mine = self._of.setdefault(sid, OrderedDict())
        mine[key] = None
        if len(mine) > AWAITED_ANSWERS_PER_SESSION:
            self._displace(next(iter(mine)))
        elif len(self._open) > AWAITED_ANSWERS:
            # Full: who has many makes room among its own, so that who has few does not wait for nothing.
            self._displace(next(iter(mine if len(mine) > _FEW else self._open)))

    def came(self, reply: Message, now: float) -> Answered:
        """An answer passes; its sender has been checked."""
        key = reply.to_key, reply.id or b"", reply.from_key
        found = self._open.get(key)
        if found is None:
            return Answered.LATE if key in self._overdue else Answered.UNKNOWN
        if is_provisional(reply):
            found.deadline = now + found.ttl_seconds
            self._wait_for(key, found)
        else:
            self._forget(key)
        return Answered.IN_TIME

    def ended_unread(self, request: Message) -> bool:
        """The recipient did not read a request in time. Returns whether it is known here: then its 504 is due, or went.

        It is among the next that `expired` gives, unless it was already.
        """
        key = request.from_key, request.id or b"", request.to_key
        if key in self._open:
            self._displace(key)
            return True
        return key in self._overdue

    def expired(self, now: float, *, most: int = ANSWERED_AT_ONCE) -> list[Awaited]:
        """Some of the requests whose time is over, or that made room for others: to be answered 504."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now and len(self._displaced) < most:
            _, key = heapq.heappop(deadlines)
            found = self._open.get(key)
            if found is not None and found.deadline <= now:
                self._displace(key)
        late, self._displaced = self._displaced[:most], self._displaced[most:]
        return late

    def abandon(self) -> None:
        """Nobody waits any longer: all open requests are among the next that `expired` gives."""
        for key in list(self._open):
            self._displace(key)

    def session_ended(self, sid: int) -> None:
        """Nobody is there any more to be answered."""
        for key in self._of.pop(sid, ()):
            del self._open[key]
        for key in self._overdue_of.pop(sid, ()):
            del self._overdue[key]

    def _displace(self, key: TransactionKey) -> None:
        found = self._open[key]
        self._forget(key)
        self._displaced.append(found)
        self._overdue[key] = found.sid
        mine = self._overdue_of.setdefault(found.sid, OrderedDict())
        mine[key] = None
        if len(mine) > AWAITED_ANSWERS_PER_SESSION:
            self._forget_overdue(next(iter(mine)))
        elif len(self._overdue) > AWAITED_ANSWERS:
            self._forget_overdue(next(iter(mine if len(mine) > _FEW else self._overdue)))

    def _forget_overdue(self, key: TransactionKey) -> None:
        sid = self._overdue.pop(key, None)
        if sid is not None:
            mine = self._overdue_of[sid]
            del mine[key]
            if not mine:
                del self._overdue_of[sid]

    def _forget(self, key: TransactionKey) -> None:
        found = self._open.pop(key, None)
        if found is None:
            return
        mine = self._of[found.sid]
        del mine[key]
        if not mine:
            del self._of[found.sid]

    def _wait_for(self, key: TransactionKey, awaited: Awaited) -> None:
        self._open[key] = awaited
        heapq.heappush(self._deadlines, (awaited.deadline, key))
        if len(self._deadlines) > 2 * len(self._open) + _FORGOTTEN:
            self._deadlines = [(one.deadline, key) for key, one in self._open.items()]
            heapq.heapify(self._deadlines)
