"""Our queue towards one foreign domain: which messages wait, which are under way, which have arrived.

Events go in, and what is to be done comes out; the queue knows no socket, no stub and no clock. Its promise: a message
that `submit` took leaves it exactly once, by `accepted`, `refused`, `expire` or `abandon`, in the order in which it
came.

    submit ──▶ waiting ──take_batch──▶ under way ──accepted / refused──▶ out
                  ▲                        │
                  └──── carrier_lost ──────┘        (same numbers, same order)

Numbers belong to one stream per queue. The far end remembers the highest number that it processed, so that handing over
again after a lost carrier repeats nothing. Source: docs/abi.md (message numbers); trust and hosts, section 2.5
(waiting).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import msgspec

from federation.core.border import aged_crossing
from protofly.errors import Code, PeerError
from protofly.lifetime import NOTICED_SECONDS, ttl_of
from protofly.limits import (
    ANSWERED_AT_ONCE,
    CROSSING_BYTES,
    IN_FLIGHT_BYTES,
    IN_FLIGHT_MESSAGES,
    REQUEST_TTL_SECONDS,
    WAITING_BYTES,
    WAITING_MESSAGES,
    WAITING_SECONDS,
)
from protofly.message import Message
from protofly.records import GateFacts, envelope_digest

LAST_NUMBER = (1 << 32) - 1
"""Numbers are 32 bits wide on the way through a stub. Source: docs/abi.md."""


_number_of = attrgetter("number")


class OutboundMessage(msgspec.Struct, gc=False):
    """One message on its way out, with what its record will need.

    `wire` is the text for the far end; `deadline_seconds` is how long it may take, and once it is queued, until when;
    `ts_us` wall clock of acceptance (µs since the Unix epoch); times ending in `_seconds` are monotonic, but
    `ttl_seconds`, which is what `body.ttl` said on arrival (0: nothing). `reason` is the step of the gate that gave the
    verdict, `facts` what else it was shown; `stub_us` and `fuel` are set once a stub has taken it (all that went in one
    exchange share its time, and its fuel in equal parts), `trap` when it died of it. Messages with the same `flow`
    share all that is said about them but times, ids, sizes and digests.
    """

    message: Message
    wire: bytes
    msg_id: bytes
    digest: str
    ts_us: int
    accepted_seconds: float
    rule_id: str
    revision: str
    policy_us: int
    deadline_seconds: float
    number: int = 0
    handed_seconds: float = 0.0
    suspected: int = 0
    reason: str = ""
    facts: GateFacts | None = None
    stub_us: int | None = None
    fuel: int | None = None
    trap: str | None = None
    ttl_seconds: float = 0.0
    flow: object | None = None


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of one queue."""

    waiting_messages: int = WAITING_MESSAGES
    waiting_bytes: int = WAITING_BYTES
    waiting_seconds: float = WAITING_SECONDS
    in_flight_messages: int = IN_FLIGHT_MESSAGES
    in_flight_bytes: int = IN_FLIGHT_BYTES


class WaitingMessages:
    """Messages of a queue that no carrier has taken, oldest first; those that a lost carrier handed back are in front.

    Attributes:
        limits: Bounds of the queue; others count for what comes from then on.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self.limits = limits
        self._waiting: deque[OutboundMessage] = deque()
        self._waiting_bytes = 0
        self._kept = self._kept_bytes = 0  # handed back by a lost carrier: they do not take the place of newcomers

    @property
    def waiting(self) -> int:
        """Messages that no carrier has taken yet."""
        return len(self._waiting)

    def withdraw(self, check: Callable[[Message], None]) -> list[tuple[OutboundMessage, Code]]:
        """Give up what waits and does not pass `check`, which raises PeerError; each is the caller's to answer."""
        codes: list[Code] = []

        def fails(pending: OutboundMessage) -> bool:
            try:
                check(pending.message)
            except PeerError as exc:
                codes.append(exc.code)
                return True
            return False

        return list(zip(self.take_out(fails), codes, strict=True))

    def take_out(self, is_wanted: Callable[[OutboundMessage], bool]) -> list[OutboundMessage]:
        """Take out those of the waiting messages that are wanted elsewhere, in order; each is asked about once."""
        taken: list[OutboundMessage] = []
        left: deque[OutboundMessage] = deque()
        kept = kept_bytes = 0
        for place, pending in enumerate(self._waiting):
            if is_wanted(pending):
                taken.append(pending)
                continue
            left.append(pending)
            if place < self._kept:
                kept += 1
                kept_bytes += len(pending.wire)
        self._waiting_bytes -= sum(len(pending.wire) for pending in taken)
        self._waiting, self._kept, self._kept_bytes = left, kept, kept_bytes
        return taken

    def adopt(self, messages: Iterable[OutboundMessage]) -> None:
        """Have messages of another queue follow what waits, in their order; they get numbers of this one."""
        for pending in messages:
            pending.number = 0
            self._waiting.append(pending)
            self._waiting_bytes += len(pending.wire)


class OutboundQueue(WaitingMessages):
    """The queue towards one foreign domain.

    Args:
        stream: 32 hex digits that name our sequence of message numbers.

    Attributes:
        awaited_until: Monotonic seconds. Until then one carrier follows another: as many messages may wait as while one
            is live. Senders pause as they do without a carrier; this is for what they have sent already.
        is_carried: A carrier is up.
        next_number: That of the next message that goes for the first time.
    """

    def __init__(self, stream: str, limits: QueueLimits | None = None) -> None:
        super().__init__(limits or QueueLimits())
        self.stream = stream
        self._under_way: deque[OutboundMessage] = deque()
        self._under_way_bytes = 0
        self.next_number = 1
        self._one_at_a_time = 0
        self._overdue: list[OutboundMessage] = []
        self.awaited_until = 0.0
        self.is_carried = False

    @property
    def under_way(self) -> int:
        """Messages that a carrier has taken and the far end has not accepted."""
        return len(self._under_way)

    def __iter__(self) -> Iterator[OutboundMessage]:
        """All messages that have not left, oldest first."""
        return chain(self._overdue, self._under_way, self._waiting)

    @property
    def is_congested(self) -> bool:
        """True when senders should pause: half of what may be queued, or may wait for a carrier, is there."""
        if not self.is_carried:
            limits = self.limits
            fresh, fresh_bytes = len(self._waiting) - self._kept, self._waiting_bytes - self._kept_bytes
            return fresh * 2 > limits.waiting_messages or fresh_bytes * 2 > limits.waiting_bytes
        queued = len(self._waiting) + len(self._under_way)
        return (
            queued * 2 > self.limits.in_flight_messages
            or (self._waiting_bytes + self._under_way_bytes) * 2 > self.limits.in_flight_bytes
        )

    @property
    def may_take(self) -> bool:
        """True when `take_batch` has anything to give now: something waits, and the window is open for it."""
        if not self._waiting or (self.is_exhausted and not self._waiting[0].number):
            return False
        if self._one_at_a_time:
            return not self._under_way
        limits = self.limits
        return len(self._under_way) < limits.in_flight_messages and self._under_way_bytes < limits.in_flight_bytes

    @property
    def is_clear(self) -> bool:
        """True when nothing that a carrier ever took is here: what waits could as well go by another stream."""
        return not self._under_way and not (self._waiting and self._waiting[0].number)

    @property
    def is_exhausted(self) -> bool:
        """True when the numbers of this stream are used up; `begin_stream` is due once nothing is under way."""
        return self.next_number > LAST_NUMBER

    def begin_stream(self, stream: str, next_number: int = 1, messages: Iterable[OutboundMessage] = ()) -> None:
        """Number anew under another name, or go on with that of another queue and what it had: `abandon`.

        Only while no message with an old number is here.
        """
        assert self.is_clear
        self.stream = stream
        self.next_number = next_number
        moved = sorted(messages, key=lambda pending: pending.number or LAST_NUMBER + 1)
        self._waiting.extendleft(reversed(moved))
        self._waiting_bytes += sum(len(pending.wire) for pending in moved)
        if moved:
            self._kept, self._kept_bytes = len(self._waiting), self._waiting_bytes

    def submit(self, pending: OutboundMessage) -> Code | None:
        """Queue one message; a code means that it was refused and is not ours.

        While no carrier is live only a few may wait; while one is live the bound is the window that may be under way.
        """
        limits = self.limits
        if self.is_carried or pending.accepted_seconds < self.awaited_until:
            max_messages, max_bytes = limits.in_flight_messages, limits.in_flight_bytes
        else:
            max_messages, max_bytes = limits.waiting_messages + self._kept, limits.waiting_bytes + self._kept_bytes
        size = len(pending.wire)
        if len(self._waiting) >= max_messages or self._waiting_bytes + size > max_bytes:
            return Code.OVERLOAD
        pending.deadline_seconds = pending.accepted_seconds + min(pending.deadline_seconds, limits.waiting_seconds)
        self._waiting.append(pending)
        self._waiting_bytes += size
        return None

    def submit_run(self, messages: Iterable[OutboundMessage]) -> int:
        """Queue messages while a carrier is up, as `submit` would, until senders should pause; returns how many.

        No more are taken from `messages`: they may be made as they are asked for.
        """
        limits = self.limits
        if not self.is_carried or self.is_congested or limits.in_flight_bytes < 2 * CROSSING_BYTES:
            return 0
        waiting, seconds = self._waiting, limits.waiting_seconds
        before, under_way = len(waiting), self._under_way_bytes
        most = limits.in_flight_messages // 2 - len(self._under_way)
        most_bytes, size_bytes = limits.in_flight_bytes // 2 - under_way, self._waiting_bytes
        for pending in messages:
            pending.deadline_seconds = pending.accepted_seconds + min(pending.deadline_seconds, seconds)
            waiting.append(pending)
            size_bytes += len(pending.wire)
            if len(waiting) > most or size_bytes > most_bytes:
                break
        self._waiting_bytes = size_bytes
        return len(waiting) - before

    def take_batch(self, max_messages: int, max_bytes: int, now: float) -> list[OutboundMessage]:
        """Hand messages to the carrier, oldest first, numbering those that go for the first time.

        Args:
            max_messages: At most so many.
            max_bytes: At most so many bytes of text; a first message that is longer goes alone.
            now: Monotonic seconds.
        """
        batch: list[OutboundMessage] = []
        waiting, limits = self._waiting, self.limits
        if not self.may_take:
            return batch
        if self._one_at_a_time:
            max_messages = min(max_messages, 1)  # nothing is under way, else it could take nothing
        max_messages = min(max_messages, limits.in_flight_messages - len(self._under_way))
        budget = min(max_bytes, limits.in_flight_bytes - self._under_way_bytes)
        taken = 0
        while waiting and len(batch) < max_messages:
            pending = waiting[0]
            if not pending.number and self.is_exhausted:
                break
            if pending.ttl_seconds and not self._count_down(pending, now):
                continue
            size = len(pending.wire)
            if taken + size > budget and batch:
                break
            waiting.popleft()
            taken += size
            if not pending.number:
                pending.number = self.next_number
                self.next_number += 1
            pending.handed_seconds = now
            batch.append(pending)
        self._waiting_bytes -= taken
        self._under_way_bytes += taken
        self._under_way.extend(batch)
        return batch

    def _count_down(self, pending: OutboundMessage, now: float) -> bool:
        """Subtract the time that the first of the waiting messages spent here; False: it was too long."""
        spent_seconds = now - pending.accepted_seconds
        remaining_seconds = pending.ttl_seconds - spent_seconds
        old_size = len(pending.wire)
        if remaining_seconds <= 0:
            self._waiting_bytes -= old_size
            self._overdue.append(self._waiting.popleft())
            return False
        if spent_seconds >= NOTICED_SECONDS:
            message = pending.message
            body, pending.wire = aged_crossing(pending.wire, remaining_seconds)
            pending.digest = envelope_digest(message.type, message.from_, message.to, message.id, body)
            self._waiting_bytes += len(pending.wire) - old_size
        return True

    def accepted(self, number: int) -> list[OutboundMessage]:
        """The far end answers for every message up to `number`; returns those that just left us."""
        done = []
        under_way = self._under_way
        while under_way and under_way[0].number <= number:
            pending = under_way.popleft()
            self._under_way_bytes -= len(pending.wire)
            done.append(pending)
        self._one_at_a_time = max(0, self._one_at_a_time - len(done))
        return done

    def resume(self, number: int) -> list[OutboundMessage]:
        """A new carrier reports what the far end already has; also finds messages that wait to be handed over again."""
        done = self.accepted(number)
        waiting = self._waiting
        while waiting and 0 < waiting[0].number <= number:
            pending = waiting.popleft()
            self._waiting_bytes -= len(pending.wire)
            done.append(pending)
        return done

    def refused(self, number: int) -> OutboundMessage | None:
        """The far end, or the stub, refused one message; None when it is not under way."""
        under_way = self._under_way
        place = bisect_left(under_way, number, key=_number_of)  # numbers rise, and most that strangers make up are none
        if place == len(under_way) or under_way[place].number != number:
            return None
        pending = under_way[place]
        del under_way[place]
        self._under_way_bytes -= len(pending.wire)
        return pending

    def carrier_lost(self, now: float) -> None:
        """Whatever was under way waits again, in front, in its old order, with time to be handed over again."""
        for pending in self._under_way:
            pending.deadline_seconds = max(pending.deadline_seconds, now + self.limits.waiting_seconds)
        self._waiting.extendleft(reversed(self._under_way))
        self._waiting_bytes += self._under_way_bytes
        self._under_way.clear()
        self._under_way_bytes = 0
        self.is_carried = False
        self._kept, self._kept_bytes = len(self._waiting), self._waiting_bytes

    def suspect(self, numbers: list[int]) -> OutboundMessage | None:
        """A stub died over these messages: returns the one that is convicted, if any.

        The others are handed over one at a time from now on. A message is convicted when it was the only suspect of a
        death and had been among those of an earlier one.
        """
        suspected = frozenset(numbers)
        suspects = [pending for pending in self._under_way if pending.number in suspected]
        for pending in suspects:
            pending.suspected += 1
        if len(suspects) == 1 and suspects[0].suspected > 1:
            self._under_way.remove(suspects[0])
            self._under_way_bytes -= len(suspects[0].wire)
            return suspects[0]
        self._one_at_a_time = max(self._one_at_a_time, len(suspects))
        return None

    def expire(self, now: float, *, most: int = ANSWERED_AT_ONCE) -> list[OutboundMessage]:
        """Some of the messages that waited too long; those under way are the far end's to answer."""
        if not self.is_carried and any(pending.deadline_seconds <= now for pending in self._waiting):
            self._overdue += self.take_out(lambda pending: pending.deadline_seconds <= now)
        expired, self._overdue = self._overdue[:most], self._overdue[most:]
        return expired

    def abandon(self) -> list[OutboundMessage]:
        """Give up on everything, oldest first; each is to be answered by the caller."""
        abandoned = [*self._overdue, *self._under_way, *self._waiting]
        self._overdue.clear()
        self._under_way.clear()
        self._waiting.clear()
        self._under_way_bytes = self._waiting_bytes = self._kept = self._kept_bytes = 0
        return abandoned


def deadline_of(message: Message) -> float:
    """Seconds that a message may take, from `body.ttl` or the default. Source: message specification, section 20.7."""
    ttl_seconds = ttl_of(message)
    return REQUEST_TTL_SECONDS if ttl_seconds is None else ttl_seconds
