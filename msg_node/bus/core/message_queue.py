"""Messages that wait for one runtime: the form in which it is sent them, and a queue with bounds.

The queue refuses what has no room. Its owner decides what follows: old events make room for new ones and for answers,
and answers may exceed the bounds. Source: message specification, section 20.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msg_node.kernel.counts import NodeCount
from protofly import codec
from protofly.counters import Counters
from protofly.lifetime import aged
from protofly.limits import SESSION_QUEUE_BYTES, SESSION_QUEUE_MESSAGES
from protofly.message import Message

DROPPABLE = frozenset({"update", "event"})
"""Types of messages that make room for others: a newer one is worth more than an old one."""
_NOTHING = -1
"""A bound that even an empty queue has reached, and which makes it count as congested."""

_VERDICTS = {True: b'"auth":true', False: b'"auth":false'}
_VERDICTS_AT_END = {verdict: b"," + member + b"}}" for verdict, member in _VERDICTS.items()}


class QueueBounds(NamedTuple):
    """Limits of what waits for one runtime."""

    messages: int = SESSION_QUEUE_MESSAGES
    bytes: int = SESSION_QUEUE_BYTES


class MessageQueue:
    """A bounded queue, oldest message first.

    Args:
        bounds: How much it takes.
        counters: "dropped" counts the events that made room.

    Attributes:
        messages: Those that wait.
        size_bytes: Sum of their sizes.
        max_messages: How many it takes now.
        max_bytes: How many bytes it takes.
    """

    __slots__ = ("_bounds", "_counters", "_kept", "_since", "max_bytes", "max_messages", "messages", "size_bytes")

    def __init__(self, bounds: QueueBounds, counters: Counters) -> None:
        self._bounds = bounds
        self._counters = counters
        self.max_messages, self.max_bytes = bounds
        self.messages: list[Message] = []  # nearly always empty, and then, unlike a deque, it holds no memory
        self.size_bytes = 0
        self._kept = 0  # so many in front are no events, so that nobody looks through thousands of answers again
        self._since: dict[int, float] = {}  # by identity: when a message that counts its time was queued

    def take(self, message: Message) -> bool:
        """Queue a message. Returns False, without an effect, when it has no room."""
        messages, size_bytes = self.messages, self.size_bytes + len(message.raw)
        if len(messages) >= self.max_messages or size_bytes > self.max_bytes:
            return False
        messages.append(message)
        self.size_bytes = size_bytes
        return True

    def take_run(self, messages: Sequence[Message]) -> int:
        """Queue messages in order, up to the first that has no room. Returns how many."""
        waiting, most, size_bytes, max_bytes = self.messages, self.max_messages, self.size_bytes, self.max_bytes
        whole_bytes = size_bytes + sum([len(message.raw) for message in messages])
        if len(waiting) + len(messages) <= most and whole_bytes <= max_bytes:
            waiting.extend(messages)
            self.size_bytes = whole_bytes
            return len(messages)
        taken = 0
        for message in messages:
            size_bytes += len(message.raw)
            if len(waiting) >= most or size_bytes > max_bytes:
                break
            waiting.append(message)
            self.size_bytes = size_bytes
            taken += 1
        return taken

    def exceed(self, message: Message) -> None:
        """Queue a message beyond the bounds."""
        self.messages.append(message)
        self.size_bytes += len(message.raw)

    def has_room(self, message: Message) -> bool:
        """True if `take` would queue a message."""
        return len(self.messages) < self.max_messages and self.size_bytes + len(message.raw) <= self.max_bytes

    def make_room(self, message: Message) -> bool:
        """Drop as many old events as one message needs, which may be as large as thousands of them.

        Returns:
            False when all events are dropped and there is still no room.
        """
        while not self.has_room(message):
            if not self._drop_oldest_event():
                return False
        return True

    def count_time(self, message: Message, now: float) -> None:
        """Subtract the time that a message which was just queued waits from its `ttl`."""
        self._since[id(message)] = now

    @property
    def counts_time(self) -> bool:
        """True if some message counts the time that it waits."""
        return bool(self._since)

    def expire(self, now: float) -> list[Message]:
        """Subtract the time that messages waited; remove and return those whose time is over."""
        since, self._since = self._since, {}
        waiting = list(self.messages)
        self.messages.clear()
        overdue: list[Message] = []
        for message in waiting:
            current = aged(message, now - since.get(id(message), now))
            if current is None:
                overdue.append(message)
            else:
                self.messages.append(current)
        return overdue

    def clear(self) -> None:
        """Remove everything."""
        self.messages.clear()
        self.size_bytes = self._kept = 0

    def close_for_all_but_answers(self) -> None:
        """Take nothing until `open_again`; the owner lets answers exceed the bounds."""
        self.max_messages = _NOTHING

    def open_again(self) -> None:
        """Take messages up to the bounds."""
        self.max_messages = self._bounds.messages

    def _drop_oldest_event(self) -> bool:
        messages = self.messages
        for index in range(self._kept, len(messages)):
            message = messages[index]
            if message.type in DROPPABLE:
                del messages[index]
                self._kept = index
                self.size_bytes -= len(message.raw)
                self._counters[NodeCount.DROPPED] += 1
                return True
        self._kept = len(messages)
        return False


def as_delivered(message: Message) -> Message:
    """The form in which a message goes to a runtime of ours: without `via`, and with the verdict of our gate in `auth`.

    A message without a body gets none. Nobody reads `auth` in it any more, so that the peek stays as it is. Source:
    message specification, sections 1.3 and 20.6, and section 21, row 70.
    """
    raw, body, verdict = message.raw, message.body, message.verdict
    if message.peek.via:
        body = codec.without_members(body, ("via",))
    elif verdict is not None and message.takes_members:
        end = _VERDICTS_AT_END[verdict]
        raw, body = raw[:-2] + end, body[:-1] + end[:-1]
        id_, type_, from_, to = message.id, message.type, message.from_, message.to
        return Message(id_, type_, from_, to, body, raw, message.peek, True, message.is_late, verdict)
    if verdict is not None and message.body:
        body = codec.append_members(body, _VERDICTS[verdict])
    return message if body is message.body else codec.with_body(message, body)
