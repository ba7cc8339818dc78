"""Requests that left for another domain and wait for their reply.

Tracked for `body.ttl` or 15 s; a code below 200 restarts the timer; silence is answered 504. What goes to everybody who
observes an object of ours may be acknowledged by each of them in the object's name, or by nobody: of that we remember
only who addressed what. Nobody abroad speaks in a name of ours, so such an acknowledgement is delivered to nobody;
remembered, it is distinguished from a forgery.

A reply that answers nothing open is late, with these exceptions:

* further replies to one request, for a minute after the first: of several hyperties of one user, or of several
  repliers that name themselves in `body.source`;
* acknowledgements of observers, which answer something that never had a final answer;
* in the first seconds of a process, replies to requests that the process before it may have sent.

Source: message specification, sections 3, 9.5, 9.6 and 18.4.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from enum import Enum

from federation.core.moved_link import MovedAddressed, MovedRequest
from protofly.answer_codes import code_of
from protofly.limits import ANSWERED_AT_ONCE
from protofly.message import Message

MAX_OPEN = 100_000
MAX_ADDRESSED = 10_000
ADDRESSED_SECONDS = 60.0
MAX_SHARED = 10_000
SHARED_SECONDS = 60.0
MAX_ENDED = 20_000
_FORGOTTEN = 1000  # deadlines of requests that are open no more; beyond these they are sorted out


class Tracking(Enum):
    """The replies that a sent message allows."""

    ONE_REPLY = "one reply"  # silence is answered
    ANY_REPLIES = "any replies"  # every observer may acknowledge
    NOTHING = "nothing"


ONE_REPLY, ANY_REPLIES, NOTHING = Tracking
"""Asked about each message. Before Python 3.12 a member costs ten times as much by way of its enumeration."""

TransactionKey = tuple[str, bytes, str]
"""Key of a request: asker, id, asked."""


class Transactions:
    """Open requests of one link, oldest first, and who addressed observers through it.

    Args:
        doubt_until: Monotonic seconds. Until then a reply to an unknown request may be one to a request that was sent
            before this process started.
    """

    def __init__(self, *, doubt_until: float = 0.0) -> None:
        self._doubt_until = doubt_until
        self._open: OrderedDict[TransactionKey, tuple[float, float, Message]] = OrderedDict()
        self._deadlines: list[tuple[float, TransactionKey]] = []  # heap; of some that are open no more as well
        self._displaced: list[Message] = []
        self._addressed: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._shared: OrderedDict[TransactionKey, tuple[float, bytes]] = OrderedDict()
        self._ended: OrderedDict[TransactionKey, None] = OrderedDict()  # where the key alone does not say it

    def __len__(self) -> int:
        return len(self._open)

    def started(self, request: Message, now: float, ttl_seconds: float) -> None:
        """A request was handed on; `now` is monotonic. When too many are open, the oldest expires.

        What is remembered is enough to answer it.
        """
        assert request.id is not None
        key = request.from_key, request.id, request.to_key
        # Without its body: what waits for a far end that takes everything and says nothing must not fill the memory.
        self._wait_for(key, now, ttl_seconds, Message(request.id, "read", request.from_, request.to, b"", b""))
        if len(self._open) > MAX_OPEN:
            oldest = next(iter(self._open))
            self._displaced.append(self._open[oldest][2])
            self._end(oldest, now)

    def addressed(self, message: Message, now: float) -> None:
        """Observers at the far end were sent something that they may acknowledge, for a minute from `now`."""
        pair = message.from_key, message.to_key
        self._addressed[pair] = now + ADDRESSED_SECONDS
        self._addressed.move_to_end(pair)
        if len(self._addressed) > MAX_ADDRESSED:
            self._addressed.popitem(last=False)

    def is_open(self, reply: Message) -> bool:
        """True when `reply` would answer an open request, or observers that were notified send it; nothing changes."""
        if reply.id is None:
            return False
        asker, asked = reply.to_key, reply.from_key
        return (asker, reply.id, asked) in self._open or (asker, asked) in self._addressed

    def is_asked(self, reply: Message) -> bool:
        """True when `reply` would answer an open request, by asker, id and asked; nothing changes."""
        return reply.id is not None and (reply.to_key, reply.id, reply.from_key) in self._open

    def replied(self, reply: Message, now: float) -> bool:
        """A reply came; returns whether it answers an open request. Provisional replies restart the timer."""
        if reply.id is None:
            return False
        key = reply.to_key, reply.id, reply.from_key
        found = self._open.get(key)
        if found is None:
            return False
        if is_provisional(reply):
            self._wait_for(key, now, found[1], found[2])
            return True
        self._end(key, now)
        if reply.peek.source or key[2].startswith(_USERS):
            self._shared[key] = now + SHARED_SECONDS, reply.source
            if len(self._shared) > MAX_SHARED:
                self._shared.popitem(last=False)
        return True

    def answered(self, request: Message, now: float) -> bool:
        """The node itself gives the final answer to `request`; returns whether one was due."""
        key = request.from_key, request.id or b"", request.to_key
        if key not in self._open:
            return False
        self._end(key, now)
        return True

    def is_late(self, reply: Message, now: float) -> bool:
        """True when a reply that answers nothing open comes after the final answer to its request."""
        if reply.id is None:
            return now >= self._doubt_until
        key = reply.to_key, reply.id, reply.from_key
        shared = self._shared.get(key)
        if shared is not None and shared[0] > now:
            return not key[2].startswith(_USERS) and reply.source in (b"", shared[1])
        if now < self._doubt_until or _is_observed(key[2]):
            return key in self._ended
        return True

    def expired(self, now: float, *, most: int = ANSWERED_AT_ONCE) -> list[Message]:
        """Some of the requests whose time is over, or that made room for others; they are forgotten."""
        while self._addressed and next(iter(self._addressed.values())) <= now:
            self._addressed.popitem(last=False)
        late, self._displaced = self._displaced[:most], self._displaced[most:]
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now and len(late) < most:
            deadline, key = heapq.heappop(deadlines)
            found = self._open.get(key)
            if found is not None and found[0] <= deadline:
                self._end(key, now)
                late.append(found[2])
        return late

    def abandon(self, now: float) -> list[Message]:
        """All open requests, which are forgotten; each is the caller's to answer."""
        requests = [request for _, _, request in self._open.values()]
        for key in list(self._open):
            self._end(key, now)
        return requests

    def hand_over(self, now: float) -> tuple[list[MovedRequest], list[MovedAddressed]]:
        """Forget open requests and who addressed observers, for another node. What made room for others stays."""
        requests = [
            MovedRequest(key[1], request.from_, request.to, deadline - now, ttl)
            for key, (deadline, ttl, request) in self._open.items()
        ]
        pairs = [MovedAddressed(*pair, until - now) for pair, until in self._addressed.items()]
        self._open.clear()
        self._addressed.clear()
        return requests, pairs

    def restore_addressed(self, from_key: str, to_key: str, until: float) -> None:
        """Go on for another node: see `addressed`."""
        self._addressed[from_key, to_key] = until

    def restore_request(self, request: Message, until: float, ttl_seconds: float) -> None:
        """Go on for another node: see `started`."""
        assert request.id is not None
        self._wait_for((request.from_key, request.id, request.to_key), until - ttl_seconds, ttl_seconds, request)

    def _end(self, key: TransactionKey, now: float) -> None:
        del self._open[key]
        if now < self._doubt_until or _is_observed(key[2]):
            self._ended[key] = None
            self._ended.move_to_end(key)
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)

    def _wait_for(self, key: TransactionKey, now: float, ttl_seconds: float, request: Message) -> None:
        deadline = now + ttl_seconds
        self._open[key] = (deadline, ttl_seconds, request)
        self._open.move_to_end(key)
        heapq.heappush(self._deadlines, (deadline, key))
        if len(self._deadlines) > 2 * len(self._open) + _FORGOTTEN:
            self._deadlines = [(one[0], key) for key, one in self._open.items()]
            heapq.heapify(self._deadlines)


_USERS = ("user:", "user-guid:", "acct:")
"""Beginnings of the keys of users, whose hyperties may all reply. Source: message specification, section 20.4."""


def _is_observed(key: str) -> bool:
    """True when observers may reply in the name of an address. Source: message specification, sections 9.5 and 9.6."""
    return key.endswith(_CHANGES) or _CHILDREN in key


def is_provisional(reply: Message) -> bool:
    """True when the code is below 200, however it is written."""
    code = bytes(reply.peek.code)
    if len(code) == 3:
        return code.startswith(b"1")
    return 0 < code_of(reply) < 200


def mirrored(message: Message, type_: str) -> Message:
    """The other half of a transaction: enough to close it, or to answer who began it."""
    return Message(message.id, type_, message.to, message.from_, b"", b"")


_CHILDREN = "/children/"
_CHANGES = "/changes"
_WRITES = frozenset({"create", "update", "delete"})


def tracking_of(message: Message) -> Tracking:
    """Decide what to remember of a message.

    Changes to children of an object, and its end, may be acknowledged by every observer and mostly are not.
    Source: message specification, sections 1.2, 3, 9.5 and 9.6.
    """
    if message.id is None:
        return NOTHING
    if message.type in _WRITES:
        if _CHILDREN in message.to:
            return ANY_REPLIES
        if message.type == "delete" and message.to.endswith(_CHANGES):
            return ANY_REPLIES
    return ONE_REPLY if message.expects_reply else NOTHING
