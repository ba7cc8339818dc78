"""One connected runtime as the bus sees it: a bounded queue in front of a channel.

The channel is whatever carries messages in the runtime's dialect; the queue, its bounds and what happens to those who
do not read are the same for all. Messages wait here only while the channel does not take more. Source: message
specification, sections 5 and 20.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

import trio

from msg_node.kernel.congestion import Congestible
from msg_node.kernel.session import Line
from protofly.errors import Code
from protofly.lifetime import aged
from protofly.limits import OPEN_SECONDS, SESSION_QUEUE_BYTES, SESSION_QUEUE_MESSAGES
from protofly.message import Message
from wire.core.websocket import TRY_AGAIN_LATER

LINE_BYTES = 512 << 10
"""What may wait in a channel itself; the queue holds the rest."""
ANSWER_BYTES = 4 * SESSION_QUEUE_BYTES
"""What may wait in a queue at most: answers have no other bound."""
FLUSH_MESSAGES = 256
STUCK_SECONDS = 30.0
SLOW_SECONDS = 0.25
ASKED_ADDRESSES = 256
"""Addresses whose requests a runtime may still answer in their name. Source: message specification, section 20.3."""
_DROPPABLE = frozenset({"update", "event"})
_ANSWERS = frozenset({"response", "pong"})
_NOTHING = -1
"""A bound that even an empty queue has reached, and which makes it count as congested."""
_NONE: list[Message] = []


class MessageChannel(Protocol):
    """What carries messages to one runtime: the framing of its dialect, and the line or lines below.

    Nothing here waits and nothing raises; what is given to a closed channel is lost, like what is under way on a line
    that breaks.
    """

    silent_periods: int
    """How many ping periods a runtime may stay silent beyond the first one before it counts as lost."""
    stuck_seconds: float
    """How long it may take nothing before its runtime is closed as one that does not read."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing that is sent can arrive any more."""

    @property
    def takes_more(self) -> bool:
        """Whether it is open and has room for another block."""

    def send(self, messages: list[bytes]) -> None:
        """Frame messages, each the UTF-8 JSON text of one, and write them as one block."""

    def ping(self) -> None:
        """Ask for a sign of life, where the dialect lets the node ask."""

    def close(self, code: int, reason: str) -> None:
        """Say goodbye behind everything that was sent. `code` is a WebSocket close code."""

    def drop(self) -> None:
        """End it at once; its reader notices and reports it to the bus."""


class QueueBounds(NamedTuple):
    """What may wait for one runtime."""

    messages: int = SESSION_QUEUE_MESSAGES
    bytes: int = SESSION_QUEUE_BYTES


class RuntimePort:
    """The connection of one runtime.

    Args:
        line: Number, credentials and dialect of the connection.
        channel: Carries the messages.
        counters: Where dropped messages are counted.
        now: Seconds since the Unix epoch.
        bounds: Of the queue.

    Attributes:
        answer: Queues what the node itself has to say, and has it written; the bus sets it for as long as it knows the
            port.
        guest_of: The domain of a runtime of another one, whose messages pass our gates; "" for our own.
        on_expired: Called with each message that expired before the runtime read it.
        on_opened: Called when a session has been opened here.
        without_session_since: Seconds since the Unix epoch; of the connect, or when `check` last saw a session here.
    """

    __slots__ = (
        "_asked",
        "_kept",
        "_max_bytes",
        "_max_messages",
        "_most_messages",
        "_queue",
        "_queued_bytes",
        "_relief",
        "_timed",
        "answer",
        "blockers",
        "broken_in_a_row",
        "channel",
        "counters",
        "guest_of",
        "heard_at",
        "is_arriving",
        "is_closing",
        "is_slow",
        "line",
        "on_expired",
        "on_opened",
        "pings_unanswered",
        "roles",
        "sid",
        "stuck_since",
        "wants_late",
        "without_session_since",
    )

    def __init__(
        self,
        line: Line,
        channel: MessageChannel,
        *,
        counters: Counter[str],
        now: float,
        bounds: QueueBounds | None = None,
    ) -> None:
        self._most_messages, self._max_bytes = bounds or QueueBounds()
        self._max_messages = self._most_messages  # `_NOTHING` while it takes nothing but answers
        self.line = line
        self.channel = channel
        self.counters = counters
        self.sid: int | None = None
        self.roles: frozenset[str] = frozenset()
        self.guest_of = ""
        self.wants_late = False
        self.heard_at = now
        self.without_session_since = now
        self.pings_unanswered = 0
        self.broken_in_a_row = 0
        self.blockers: set[Congestible] = set()
        self.is_slow = False
        self.is_closing = False
        self.stuck_since = 0.0
        self._asked: dict[str, None] = {}
        self.is_arriving = False
        self.answer: Callable[[Message], None] = _forget
        self.on_expired: Callable[[Message], None] = _forget
        self.on_opened: Callable[[], None] = _ignore
        self._queue: list[Message] = []  # nearly always empty, and then, unlike a deque, it holds no memory
        self._queued_bytes = 0
        self._kept = 0  # so many in front are no events, so that nobody looks through thousands of answers again
        self._timed: dict[int, float] = {}  # by identity: when a message that counts its time was queued
        self._relief = trio.lowlevel.ParkingLot()

    @property
    def connection(self) -> int:
        """Number of the connection, never used twice."""
        return self.line.connection

    @property
    def is_congested(self) -> bool:
        """Whether senders should pause: half of the queue is taken."""
        return len(self._queue) * 2 > self._max_messages or self._queued_bytes * 2 > self._max_bytes

    @property
    def patience_seconds(self) -> float:
        """How long a sender pauses for this runtime before its own queue decides."""
        return SLOW_SECONDS

    @property
    def queued(self) -> int:
        """Messages that wait."""
        return len(self._queue)

    async def wait_relief(self) -> None:
        """Wait until the runtime has read some."""
        await self._relief.park()

    def enqueue(self, message: Message) -> Code | None:
        """Take one message for the runtime; a code says that it was refused.

        A full queue drops its oldest events for a new event or an answer, and refuses requests. Answers are kept beyond
        its bounds; who leaves `ANSWER_BYTES` of them unread is closed at once.
        """
        queue, size = self._queue, len(message.raw)
        if len(queue) >= self._max_messages or self._queued_bytes + size > self._max_bytes:
            if self.channel.is_closed:
                return Code.NOT_CONNECTED
            if self.is_arriving and message.type not in _ANSWERS:
                return Code.NOT_CONNECTED
            self.flush()  # the line may have room although this round's write is still to come
            if not self._has_room(message):
                is_answer = message.type in _ANSWERS
                if not is_answer and message.type not in _DROPPABLE:
                    self.counters["overload"] += 1
                    return Code.OVERLOAD
                if not self._make_room(message) and not is_answer:
                    self.counters["dropped"] += 1
                    return None
                if self._queued_bytes > ANSWER_BYTES:
                    self.counters["stuck runtimes"] += 1
                    self._give_up()
                    return Code.NOT_CONNECTED
        if message.type != "response" and message.expects_reply:
            self._remember_asked(message.to_key)
        if message.peek.ttl:
            self._timed[id(message)] = trio.current_time()
        queue.append(message)
        self._queued_bytes += size
        if len(queue) >= FLUSH_MESSAGES:
            self.flush()
        return None

    def wait_for_answer(self) -> None:
        """Take nothing but answers until `go_on`: others come behind the one that says that the runtime is back."""
        self.is_arriving = True
        self._max_messages = _NOTHING  # so that `enqueue` looks at `is_arriving` only when a queue is full

    def go_on(self) -> None:
        """Take everything again."""
        self.is_arriving = False
        self._max_messages = self._most_messages

    def _has_room(self, message: Message) -> bool:
        return len(self._queue) < self._max_messages and self._queued_bytes + len(message.raw) <= self._max_bytes

    def _make_room(self, message: Message) -> bool:
        """Drop as many old events as one message needs, which may be as large as thousands of them."""
        while not self._has_room(message):
            if not self._drop_oldest_event():
                return False
        return True

    def was_asked(self, key: str) -> bool:
        """Whether a request to `key` was delivered here: then its answer may come from here, in that name."""
        return key in self._asked

    def _remember_asked(self, key: str) -> None:
        self._asked.pop(key, None)
        self._asked[key] = None
        if len(self._asked) > ASKED_ADDRESSES:
            del self._asked[next(iter(self._asked))]

    def _drop_oldest_event(self) -> bool:
        queue = self._queue
        for index in range(self._kept, len(queue)):
            message = queue[index]
            if message.type in _DROPPABLE:
                del queue[index]
                self._kept = index
                self._queued_bytes -= len(message.raw)
                self.counters["dropped"] += 1
                return True
        self._kept = len(queue)
        return False

    def flush(self) -> None:
        """Write what waits as one block, if the channel has room for one."""
        queue, channel = self._queue, self.channel
        if not channel.takes_more:
            if not channel.is_closed:
                self.stuck_since = self.stuck_since or trio.current_time()
            return
        self.stuck_since = 0.0
        if not queue:
            return
        overdue = self._count_down() if self._timed else _NONE
        raws = [message.raw for message in queue]
        queue.clear()
        self._queued_bytes = self._kept = 0
        channel.send(raws)
        self.is_slow = False
        self._relief.unpark_all()
        for message in overdue:
            self.on_expired(message)

    def _count_down(self) -> list[Message]:
        """Subtract the time that messages waited; take out and return those whose time is over."""
        now = trio.current_time()
        timed, self._timed = self._timed, {}
        waiting = list(self._queue)
        self._queue.clear()
        overdue: list[Message] = []
        for message in waiting:
            current = aged(message, now - timed.get(id(message), now))
            if current is None:
                overdue.append(message)
            else:
                self._queue.append(current)
        return overdue

    def close(self, code: int, reason: str = "") -> None:
        """Say goodbye after everything that waits; the reader ends when the runtime answers."""
        self.is_closing = True
        self.flush()
        self.channel.close(code, reason)

    def close_stuck(self, now: float) -> bool:
        """Close the connection of a runtime that has not read for too long; `now` is trio time."""
        if not self.stuck_since or now - self.stuck_since < self.channel.stuck_seconds:
            return False
        self._give_up()
        return True

    def _give_up(self) -> None:
        self.close(TRY_AGAIN_LATER, "too slow")
        self.channel.drop()
        self._queue.clear()
        self._queued_bytes = self._kept = 0

    def check(self, now: float, *, ping_seconds: float) -> None:
        """Ping who is silent, close who stays silent, has no session for too long, or does not read.

        The time without a session counts from the connect, or from the end of the session, whatever was heard since.

        Args:
            now: Seconds since the Unix epoch.
            ping_seconds: Silence after which a runtime is pinged.
        """
        if self.close_stuck(trio.current_time()):
            self.counters["stuck runtimes"] += 1
            return
        if self.sid is None:
            if now - self.without_session_since > OPEN_SECONDS:
                self.channel.drop()
            return
        self.without_session_since = now
        silent_seconds = now - self.heard_at
        if silent_seconds > ping_seconds * (self.pings_unanswered + 1):
            if self.pings_unanswered >= self.channel.silent_periods:
                self.counters["silent runtimes"] += 1
                self.channel.drop()
                return
            self.pings_unanswered += 1
            self.channel.ping()


def _ignore() -> None:
    """Nobody wants to know."""


def _forget(_message: Message) -> None:
    """Nobody wants to know."""


async def wait_relief(blockers: set[Congestible]) -> None:
    """Wait for each of these, as long as it is worth; a blocker that has had its pause is left to its own bounds."""
    for blocker in blockers:
        if blocker.is_slow or not blocker.is_congested:
            continue
        with trio.move_on_after(blocker.patience_seconds) as patience:
            while blocker.is_congested:
                await blocker.wait_relief()
        if patience.cancelled_caught:
            blocker.is_slow = True
