"""Requests with a `ttl` to runtimes of this node: silence is answered 504, and what comes after that is late.

What is known of them is in `core/awaited_answers`. Source: message specification, sections 3 and 20.7.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from federation.core.transactions import Tracking, tracking_of
from federation.link_context import Refusal
from msg_node.kernel.counts import NodeCount
from msg_node.requests.core.awaited_answers import Answered, AwaitedAnswers
from protofly.counters import Counters
from protofly.errors import Code
from protofly.late_replies import marked_late
from protofly.lifetime import ttl_of
from protofly.message import Message


class LocalRequests:
    """Times requests of sessions to sessions.

    Args:
        counters: Those of the node: "timeouts".
        refuse: Refuses a request to the session that it came from, by the number of that session.
    """

    def __init__(self, counters: Counters, *, refuse: Callable[[int, Message, Refusal], None]) -> None:
        self._counters = counters
        self._refuse = refuse
        self._awaited = AwaitedAnswers()
        self.session_ended = self._awaited.session_ended

    def __bool__(self) -> bool:
        return bool(self._awaited)

    def sent(self, message: Message, sid: int) -> None:
        """A message with a `ttl` of a session was queued for who is to get it."""
        ttl_seconds = ttl_of(message)
        if ttl_seconds is None or message.wants_receipt or tracking_of(message) is not Tracking.ONE_REPLY:
            return
        self._awaited.began(message, sid, ttl_seconds, time.monotonic())

    def came(self, reply: Message) -> Message:
        """A session replies: the reply to deliver, marked if its request was answered 504 already."""
        is_late = self._awaited.came(reply, time.monotonic()) is Answered.LATE
        return marked_late(reply) if is_late else reply

    def ended_unread(self, message: Message) -> bool:
        """The recipient did not read a message in time. Returns whether its sender is answered here."""
        return self._awaited.ended_unread(message)

    def expire(self) -> bool:
        """Answer some of the requests whose time is over; returns whether there may be more."""
        overdue = self._awaited.expired(time.monotonic())
        for awaited in overdue:
            self._counters[NodeCount.TIMEOUTS] += 1
            self._refuse(awaited.sid, awaited.request, Refusal(Code.GATEWAY_TIMEOUT))
        return bool(overdue)
