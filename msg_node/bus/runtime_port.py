"""One connected runtime as the bus sees it: its session, and a bounded queue in front of a channel.

The channel is whatever carries messages in the runtime's dialect; the queue, its bounds and what happens to those who
do not read are the same for all. Messages wait here only while the channel does not take more. Source: message
specification, sections 5 and 20.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from federation.links.flow_table import FLOWS_PER_SESSION, FlowTable
from msg_node.bus.core.message_queue import DROPPABLE, MessageQueue, QueueBounds
from msg_node.bus.session_flow import SessionFlow
from msg_node.kernel.congestion import Congestible
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.session import Line
from protofly.counters import Counters
from protofly.errors import Code
from protofly.limits import OPEN_SECONDS, SESSION_QUEUE_BYTES
from protofly.message import Message
from wire.core.websocket import TRY_AGAIN_LATER

LINE_BYTES = 512 << 10
"""Most bytes that wait in a channel itself; the queue holds the rest."""
ANSWER_BYTES = 4 * SESSION_QUEUE_BYTES
"""Most bytes that wait in a queue: answers have no other bound."""
FLUSH_MESSAGES = 256
STUCK_SECONDS = 30.0
SLOW_SECONDS = 0.25
ASKED_ADDRESSES = 256
"""Addresses whose requests a runtime may still answer in their name. Source: message specification, section 20.3."""
_ANSWERS = frozenset({"response", "pong"})
_NONE: list[Message] = []


class MessageChannel(Protocol):
    """Carries messages to one runtime: the framing of its dialect, and the line or lines below.

    Nothing here waits and nothing raises; what is given to a closed channel is lost, like what is under way on a line
    that breaks.
    """

    silent_periods: int
    """Ping periods after the first one that a runtime may stay silent before it counts as lost."""
    stuck_seconds: float
    """Seconds without progress in writing after which its runtime is closed as one that does not read."""

    @property
    def is_closed(self) -> bool:
        """True when nothing that is sent can arrive any more."""

    @property
    def takes_more(self) -> bool:
        """True if it is open and has room for another block."""

    def send(self, messages: list[bytes]) -> None:
        """Frame messages, each the UTF-8 JSON text of one, and write them as one block."""

    def ping(self) -> None:
        """Ask for a sign of life, where the dialect lets the node ask."""

    def close(self, code: int, reason: str) -> None:
        """Close it behind everything that was sent. `code` is a WebSocket close code."""

    def drop(self) -> None:
        """End it at once; its reader notices and reports it to the bus."""


class RuntimeQueue:
    """Queues messages for one runtime and writes them to its channel.

    Args:
        channel: Carries the messages.
        counters: Where dropped messages are counted.
        bounds: How much may wait.

    Attributes:
        is_closing: Nothing that the runtime still sends counts.
        is_slow: It has had its pause; its own bounds decide until it reads again.
        stuck_since: Trio time since when the channel takes nothing, 0 while it takes messages.
        wants_late: The runtime asked for replies that come after their requests were answered in their place.
        on_expired: Called with each message that expired before the runtime read it.
    """

    __slots__ = (
        "_asked",
        "_relief",
        "_waiting",
        "channel",
        "counters",
        "is_closing",
        "is_slow",
        "on_expired",
        "stuck_since",
        "wants_late",
    )

    def __init__(self, channel: MessageChannel, *, counters: Counters, bounds: QueueBounds | None = None) -> None:
        self.channel = channel
        self.counters = counters
        self.is_closing = False
        self.is_slow = False
        self.stuck_since = 0.0
        self.wants_late = False
        self.on_expired: Callable[[Message], None] = ignore_message
        self._waiting = MessageQueue(bounds or QueueBounds(), counters)
        self._asked: dict[str, None] = {}
        self._relief = trio.lowlevel.ParkingLot()

    @property
    def queued(self) -> int:
        """Messages that wait."""
        return len(self._waiting.messages)

    @property
    def is_congested(self) -> bool:
        """True if senders should pause: half of the queue is taken."""
        waiting = self._waiting
        return len(waiting.messages) * 2 > waiting.max_messages or waiting.size_bytes * 2 > waiting.max_bytes

    @property
    def patience_seconds(self) -> float:
        """Seconds that a sender pauses for this runtime before its own queue decides."""
        return SLOW_SECONDS

    async def wait_relief(self) -> None:
        """Wait until the runtime has read some."""
        await self._relief.park()

    def enqueue(self, message: Message, expects_reply: bool | None = None) -> Code | None:
        """Take one message for the runtime; a code says that it was refused.

        A full queue drops its oldest events for a new event or an answer, and refuses requests. Answers are kept beyond
        its bounds; who leaves `ANSWER_BYTES` of them unread is closed at once.

        Args:
            message: As its runtime gets it.
            expects_reply: `message.expects_reply`, from those who queue one message for many runtimes.
        """
        waiting = self._waiting
        if not waiting.take(message):
            is_queued, code = self._squeeze_in(message)
            if not is_queued:
                return code
        if expects_reply is None:
            expects_reply = message.type != "response" and message.expects_reply
        if expects_reply:
            self._remember_asked(message.to_key)
        if message.peek.ttl:
            waiting.count_time(message, trio.current_time())
        if len(waiting.messages) >= FLUSH_MESSAGES:
            self.flush()
        return None

    def enqueue_run(self, messages: Sequence[Message]) -> int:
        """Take messages of one flow, none of which is a reply or counts its time, up to the first without room.

        Returns:
            How many; whether the next one is refused, `enqueue` says.
        """
        taken = self._waiting.take_run(messages)
        if taken and messages[0].expects_reply:
            self._remember_asked(messages[0].to_key)
        if len(self._waiting.messages) >= FLUSH_MESSAGES:
            self.flush()
        return taken

    def wait_for_answer(self) -> None:
        """Take nothing but answers until `go_on`: others come behind the one that says that the runtime is back."""
        self._waiting.close_for_all_but_answers()

    def go_on(self) -> None:
        """Take everything again."""
        self._waiting.open_again()

    @property
    def takes_only_answers(self) -> bool:
        """True between `wait_for_answer` and `go_on`."""
        return self._waiting.max_messages < 0

    def was_asked(self, key: str) -> bool:
        """True if a request to `key` was delivered here: then its answer may come from here, in that name."""
        return key in self._asked

    def flush(self) -> None:
        """Write what waits as one block, if the channel has room for one."""
        waiting, channel = self._waiting, self.channel
        if not channel.takes_more:
            if not channel.is_closed:
                self.stuck_since = self.stuck_since or trio.current_time()
            return
        self.stuck_since = 0.0
        if not waiting.messages:
            return
        overdue = waiting.expire(trio.current_time()) if waiting.counts_time else _NONE
        raws = [message.raw for message in waiting.messages]
        waiting.clear()
        channel.send(raws)
        self.is_slow = False
        self._relief.unpark_all()
        for message in overdue:
            self.on_expired(message)

    def close(self, code: int, reason: str = "") -> None:
        """Close the connection behind everything that waits; the reader ends when the runtime answers."""
        self.is_closing = True
        self.flush()
        self.channel.close(code, reason)

    def finish(self, code: int, reason: str) -> int:
        """Close the connection behind everything that waits; what the runtime still sends before it closes counts.

        Returns:
            How many messages could not be written any more.
        """
        self.flush()
        unwritten = len(self._waiting.messages)
        self._waiting.close_for_all_but_answers()
        self.channel.close(code, reason)
        return unwritten

    def close_stuck(self, now: float) -> bool:
        """Close the connection of a runtime that has not read for too long; `now` is trio time.

        Returns:
            True when it was closed.
        """
        if not self.stuck_since or now - self.stuck_since < self.channel.stuck_seconds:
            return False
        self.counters[NodeCount.STUCK_RUNTIMES] += 1
        self._give_up()
        return True

    def _squeeze_in(self, message: Message) -> tuple[bool, Code | None]:
        """Queue a message that has no room, if it is worth it. Returns True, or False and why not: None for a drop."""
        waiting, is_answer = self._waiting, message.type in _ANSWERS
        if self.channel.is_closed or (self.takes_only_answers and not is_answer):
            return False, Code.NOT_CONNECTED
        self.flush()  # the line may have room although this round's write is still to come
        if waiting.take(message):
            return True, None
        if not is_answer and message.type not in DROPPABLE:
            self.counters[NodeCount.OVERLOAD] += 1
            return False, Code.OVERLOAD
        if not waiting.make_room(message) and not is_answer:
            self.counters[NodeCount.DROPPED] += 1
            return False, None
        if waiting.size_bytes > ANSWER_BYTES:
            self.counters[NodeCount.STUCK_RUNTIMES] += 1
            self._give_up()
            return False, Code.NOT_CONNECTED
        waiting.exceed(message)
        return True, None

    def _remember_asked(self, key: str) -> None:
        self._asked.pop(key, None)
        self._asked[key] = None
        if len(self._asked) > ASKED_ADDRESSES:
            del self._asked[next(iter(self._asked))]

    def _give_up(self) -> None:
        self.close(TRY_AGAIN_LATER, "too slow")
        self.channel.drop()
        self._waiting.clear()


class RuntimePort:
    """The connection of one runtime.

    Args:
        line: Number, credentials and dialect of the connection.
        queue: What waits for the runtime, in front of its channel.
        now: Seconds since the Unix epoch.

    Attributes:
        sid: Its session, None before there is one.
        roles: What rules are shown of its session: its roles and its class.
        guest_of: The domain of a runtime of another one, whose messages pass our gates; "" for our own.
        blockers: What its reader waits for next.
        broken_in_a_row: Frames without a readable message since the last one with one.
        answer: Queues what the node itself has to say, and has it written; the bus sets it for as long as it knows the
            port.
        on_opened: Called when a session has been opened here.
        heard_at: Seconds since the Unix epoch.
        without_session_since: Seconds since the Unix epoch; of the connect, or when `check` last saw a session here.
    """

    __slots__ = (
        "answer",
        "blockers",
        "broken_in_a_row",
        "flows",
        "guest_of",
        "heard_at",
        "line",
        "on_opened",
        "pings_unanswered",
        "queue",
        "roles",
        "sid",
        "without_session_since",
    )

    def __init__(self, line: Line, queue: RuntimeQueue, *, now: float) -> None:
        self.line = line
        self.queue = queue
        self.sid: int | None = None
        self.roles: frozenset[str] = frozenset()
        self.guest_of = ""
        self.blockers: set[Congestible] = set()
        self.broken_in_a_row = 0
        self.answer: Callable[[Message], None] = ignore_message
        self.on_opened: Callable[[], None] = _ignore
        self.heard_at = now
        self.pings_unanswered = 0
        self.without_session_since = now
        self.flows: FlowTable[SessionFlow] = FlowTable(FLOWS_PER_SESSION)

    @property
    def connection(self) -> int:
        """Number of the connection, never used twice."""
        return self.line.connection

    def heard(self, now: float) -> None:
        """Note a sign of life; `now` is seconds since the Unix epoch."""
        self.heard_at = now
        self.pings_unanswered = 0

    def clock_set(self, now: float, ahead_seconds: float) -> None:
        """The clock was set: silence from before counts as it was, or, if it was set back, from now on."""
        ahead_seconds = max(ahead_seconds, 0.0)
        self.heard_at = min(self.heard_at + ahead_seconds, now)
        self.without_session_since = min(self.without_session_since + ahead_seconds, now)

    def check(self, now: float, *, ping_seconds: float) -> None:
        """Ping who is silent, close who stays silent, has no session for too long, or does not read.

        The time without a session counts from the connect, or from the end of the session, whatever was heard since.

        Args:
            now: Seconds since the Unix epoch.
            ping_seconds: Silence after which a runtime is pinged.
        """
        queue = self.queue
        if queue.close_stuck(trio.current_time()):
            return
        if self.sid is None:
            if now - self.without_session_since > OPEN_SECONDS:
                queue.channel.drop()
            return
        self.without_session_since = now
        silent_seconds = now - self.heard_at
        if silent_seconds > ping_seconds * (self.pings_unanswered + 1):
            if self.pings_unanswered >= queue.channel.silent_periods:
                queue.counters[NodeCount.SILENT_RUNTIMES] += 1
                queue.channel.drop()
                return
            self.pings_unanswered += 1
            queue.channel.ping()


def _ignore() -> None:
    """Do nothing."""


def ignore_message(_message: Message) -> None:
    """Do nothing."""


async def wait_relief(blockers: set[Congestible]) -> None:
    """Wait until none of these is congested, for each its patience from now at most; after that it is slow.

    However many are slow, the reader goes on after the longest patience of them: their pauses pass side by side.
    """
    began = trio.current_time()
    for blocker in blockers:
        if blocker.is_slow or not blocker.is_congested:
            continue
        with trio.move_on_at(began + blocker.patience_seconds) as patience:
            while blocker.is_congested:
                await blocker.wait_relief()
        if patience.cancelled_caught:
            blocker.is_slow = True
