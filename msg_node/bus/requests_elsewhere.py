"""Requests of sessions here for other domains whose links other nodes of ours have.

The node with the link answers each of them in time, unless it dies. So its answer is waited for a little longer than
the request may take, and then given here. Source: docs/adr/0039-a-link-is-at-one-node.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federation.core.moved_link import MovedLink
from federation.core.transactions import ONE_REPLY, Transactions, tracking_of
from protofly.lifetime import ttl_of
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import Message

MORE_SECONDS: Final = 2.0
"""So much longer than the node with the link is waited for its answer: it gives one in time unless it has died."""


class RequestsElsewhere:
    """Remembers requests until they are answered.

    Args:
        is_here: Whether the session that speaks for the key of an address is at this node.
        clock: Monotonic seconds.
    """

    def __init__(self, is_here: Callable[[str], bool], clock: Callable[[], float]) -> None:
        self._is_here = is_here
        self._clock = clock
        self._open = Transactions()

    def __len__(self) -> int:
        return len(self._open)

    def went(self, message: Message) -> None:
        """A message went to the node that has its link."""
        if tracking_of(message) is ONE_REPLY:
            ttl_seconds = ttl_of(message) or REQUEST_TTL_SECONDS
            self._open.started(message, self._clock(), ttl_seconds + MORE_SECONDS)

    def came(self, reply: Message) -> None:
        """A reply has come from another node."""
        self._open.replied(reply, self._clock())

    def returned(self, message: Message) -> None:
        """A message has come back, and is answered here."""
        self._open.answered(message, self._clock())

    def handed_over(self, moved: MovedLink) -> None:
        """Another node has a link of this one: who asks here hears from it, and otherwise from us."""
        now = self._clock()
        for request in moved.requests:
            if self._is_here(request.message.from_key):
                self._open.started(request.message, now, request.left_seconds + MORE_SECONDS)

    def taken_over(self, moved: MovedLink) -> None:
        """A link has come here, and watches over its requests itself."""
        for request in moved.requests:
            self._open.answered(request.message, self._clock())

    def overdue(self) -> list[Message]:
        """Some of those whose time is over, each to be answered; not those whose session is elsewhere by now."""
        return self._of_here(self._open.expired(self._clock()))

    def abandon(self) -> list[Message]:
        """All of them, each to be answered: this node stops."""
        return self._of_here(self._open.abandon(self._clock()))

    def _of_here(self, requests: list[Message]) -> list[Message]:
        return [request for request in requests if self._is_here(request.from_key)]
