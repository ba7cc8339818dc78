"""Requests that left for another domain and wait for their reply.

Source: message specification, section 3: tracked for `body.ttl` or 15 s, a code below 200 restarts the timer, silence
    is answered 504.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from protofly.message import Message

MAX_OPEN = 100_000


class TransactionKey(NamedTuple):
    """Who asked, with which id, whom."""

    asker: str
    id: bytes
    asked: str


class Transactions:
    """Open requests of one leg, oldest first."""

    def __init__(self) -> None:
        self._open: OrderedDict[TransactionKey, tuple[float, float, Message]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def started(self, request: Message, now: float, ttl_seconds: float) -> None:
        """A request was handed on; `now` is monotonic. The oldest is forgotten when too many are open."""
        assert request.id is not None
        key = TransactionKey(request.from_key, request.id, request.to_key)
        self._open[key] = (now + ttl_seconds, ttl_seconds, request)
        self._open.move_to_end(key)
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def is_open(self, reply: Message) -> bool:
        """Whether `reply` would answer an open request; nothing changes."""
        return reply.id is not None and TransactionKey(reply.to_key, reply.id, reply.from_key) in self._open

    def replied(self, reply: Message, now: float) -> bool:
        """A reply came; returns whether it answers an open request. Provisional replies restart the timer."""
        if reply.id is None:
            return False
        key = TransactionKey(reply.to_key, reply.id, reply.from_key)
        found = self._open.get(key)
        if found is None:
            return False
        if is_provisional(reply):
            self._open[key] = (now + found[1], found[1], found[2])
            self._open.move_to_end(key)
        else:
            del self._open[key]
        return True

    def expired(self, now: float) -> list[Message]:
        """Requests whose time is over; they are forgotten."""
        late = [key for key, (deadline, _, _) in self._open.items() if deadline <= now]
        return [self._open.pop(key)[2] for key in late]

    def forget_all(self) -> list[Message]:
        """Every open request, oldest first; they are forgotten."""
        requests = [request for _, _, request in self._open.values()]
        self._open.clear()
        return requests


def is_provisional(reply: Message) -> bool:
    """Whether `body.code` is below 200, also when written as text."""
    code = bytes(reply.peek.code).strip(b'"')
    return len(code) == 3 and code.startswith(b"1")


_CHILDREN = "/children/"


def is_tracked(message: Message) -> bool:
    """Whether silence of the far end is to be answered.

    Changes to children of an object may be acknowledged and mostly are not, so their silence means nothing.
    Source: message specification, sections 1.2, 3 and 9.5.
    """
    return message.expects_reply and not (_CHILDREN in message.to and message.type in ("create", "update", "delete"))
