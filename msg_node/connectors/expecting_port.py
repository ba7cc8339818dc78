"""A runtime's port at which somebody waits for certain replies: who posted a request, who brought an `open`.

Source: message specification, sections 3 and 19.5.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

import trio

from msg_node.bus.core.message_queue import QueueBounds
from msg_node.bus.runtime_port import MessageChannel, RuntimePort, RuntimeQueue
from msg_node.kernel.counts import NodeCount
from protofly.answer_codes import code_of
from protofly.codec import body_members
from protofly.counters import Counters
from protofly.errors import Code, PeerError
from protofly.late_replies import marked_late
from protofly.limits import HTTP_OVERDUE_REPLIES
from protofly.message import Message

_PROVISIONAL: Final = range(100, 200)
_ANSWERS: Final = frozenset({"response", "pong"})


class Expected:
    """A reply that somebody waits for.

    Args:
        then: Called with it at once, before anything else goes on; and then it queues like any other message.
    """

    def __init__(self, then: Callable[[Message], None] | None = None) -> None:
        self.has_come = trio.Event()
        self.reply: Message | None = None
        self.then = then

    def settle(self, reply: Message | None) -> None:
        """It is here, or it will not come any more (None)."""
        self.reply = reply
        self.has_come.set()


_Transaction = tuple[bytes | None, str]
"""Id and requester: what a reply shares with its request. Source: message specification, section 3."""


class ExpectingQueue(RuntimeQueue):
    """A runtime's queue that knows which replies are waited for."""

    __slots__ = ("_expected", "_overdue")

    def __init__(self, channel: MessageChannel, *, counters: Counters, bounds: QueueBounds | None = None) -> None:
        super().__init__(channel, counters=counters, bounds=bounds)
        self._expected: dict[_Transaction, deque[Expected]] = {}
        self._overdue: OrderedDict[int, None] = OrderedDict()  # hashes: some would hold addresses of 2 kB each

    def expect(self, request: Message, then: Callable[[Message], None] | None = None) -> Expected:
        """From now on the final reply to `request` goes to who asked here, and with `then` to the runtime as well.

        Raises:
            PeerError: BAD_HEADER when the sender is no address.
        """
        expected = Expected(then)
        key = _transaction(request.id, request.from_key)
        self._overdue.pop(hash(key), None)
        self._expected.setdefault(key, deque()).append(expected)
        return expected

    def give_up(self, request: Message, expected: Expected) -> None:
        """Nobody waits for that reply any more: when it comes it goes the way of all messages."""
        key = _transaction(request.id, request.from_key)
        waiting = self._expected.get(key)
        if waiting is not None and expected in waiting:
            waiting.remove(expected)
            if not waiting:
                del self._expected[key]

    def answered(self, request: Message) -> None:
        """Treat the reply to a request as late from now on: its sender was answered 504."""
        self._overdue[hash(_transaction(request.id, request.from_key))] = None
        if len(self._overdue) > HTTP_OVERDUE_REPLIES:
            self._overdue.popitem(last=False)

    def give_up_all(self) -> None:
        """The session is over: no reply will come."""
        expected, self._expected = self._expected, {}
        for waiting in expected.values():
            for one in waiting:
                one.settle(None)

    def enqueue(self, message: Message, expects_reply: bool | None = None) -> Code | None:
        """See `RuntimeQueue`; an expected reply goes to who waits for it, a late one to a runtime that wants those."""
        if (self._expected or self._overdue) and message.type in _ANSWERS:
            try:
                key = _transaction(message.id, message.to_key)
            except PeerError:
                return super().enqueue(message, expects_reply)
            if self._overdue and hash(key) in self._overdue:
                return self._late(message)
            waiting = self._expected.get(key)
            if waiting and code_of(message) not in _PROVISIONAL:
                expected = waiting.popleft()
                if not waiting:
                    del self._expected[key]
                expected.settle(message)
                if expected.then is None:
                    return None
                expected.then(message)
        return super().enqueue(message, expects_reply)

    def _late(self, reply: Message) -> Code | None:
        if not self.wants_late:
            self.counters[NodeCount.LATE_REPLIES_KEPT_BACK] += 1
            return None
        self.counters[NodeCount.LATE_REPLIES] += not reply.is_late  # else it is counted already
        return super().enqueue(marked_late(reply))


class ExpectingPort(RuntimePort):
    """A runtime's port with a queue that knows which replies are waited for."""

    __slots__ = ()
    queue: ExpectingQueue


def _transaction(id_: bytes | None, requester_key: str) -> _Transaction:
    return id_, requester_key


def token_in(request: Message, reply: Message) -> str:
    """The session token that a reply to `open` or `re-open` gives or confirms, "" when it refuses."""
    if code_of(reply) != 200:
        return ""
    try:
        token = body_members(reply.body).get("runtimeToken")
    except PeerError:
        return ""
    return token if isinstance(token, str) else request.from_.strip().rpartition("/")[2]
