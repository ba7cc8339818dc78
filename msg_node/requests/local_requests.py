"""Requests with a `ttl` to runtimes of this node: silence is answered 504, and what comes after that is late.

What is known of them is in `core/awaited_answers`. Source: message specification, sections 3 and 20.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from federation.core.transactions import Tracking, tracking_of
from msg_node.requests.core.awaited_answers import Answered, Awaited, AwaitedAnswers
from protofly.late_replies import marked_late
from protofly.lifetime import ttl_of
from protofly.message import Message


class LocalRequests:
    """Times requests of sessions to sessions.

    Args:
        steady: The clock: monotonic seconds.
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._awaited = AwaitedAnswers()
        self.session_ended = self._awaited.session_ended

    def __bool__(self) -> bool:
        return bool(self._awaited)

    @property
    def under_way(self) -> int:
        """Requests that wait for an answer."""
        return len(self._awaited)

    def abandon(self) -> None:
        """Let all open requests be `overdue` now."""
        self._awaited.abandon()

    def sent(self, message: Message, sid: int) -> None:
        """A message with a `ttl` of a session was queued for who is to get it."""
        ttl_seconds = ttl_of(message)
        if ttl_seconds is None or message.wants_receipt or tracking_of(message) is not Tracking.ONE_REPLY:
            return
        self._awaited.began(message, sid, ttl_seconds, self._steady())

    def came(self, reply: Message) -> Message:
        """A session replies: the reply to deliver, marked if its request was answered 504 already."""
        is_late = self._awaited.came(reply, self._steady()) is Answered.LATE
        return marked_late(reply) if is_late else reply

    def ended_unread(self, message: Message) -> bool:
        """The recipient did not read a message in time. Returns whether its sender is answered here."""
        return self._awaited.ended_unread(message)

    def overdue(self) -> Iterable[Awaited]:
        """Take out some of the requests whose time is over, for an answer in place of the recipient's."""
        return self._awaited.expired(self._steady())
