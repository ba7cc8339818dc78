"""One runtime over HTTP: its messages come in posts, the node's go out by a stream of events or to polls.

The session is the channel of the runtime's port. A reply that a post waits for goes into the answer to that post; all
else goes to the event stream or the poll that is there, and without either it waits in the port's queue, with the
bounds that every slow runtime meets. What went out is kept for a while (`ReturnLog`), since HTTP does not say whether
an answer was read. The newest stream or poll counts: an older one may hang on a line that nobody knows to be dead.

Source: message specification, section 19.5.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Protocol

import trio

from msg_node.connectors.core.return_log import (
    CLOSE_EVENT,
    COMMENT,
    LOST_EVENT,
    Numbered,
    ReturnLog,
    own_event,
    stream_event,
)
from msg_node.connectors.expecting_port import ExpectingPort
from msg_node.connectors.half_open import SessionLines
from protofly.errors import Code
from protofly.limits import HTTP_STREAM_BYTES


class Outlet(Protocol):
    """A stream or a poll: where messages leave."""

    @property
    def has_room(self) -> bool:
        """True if it takes messages now."""

    def give(self, messages: list[Numbered], missing: int) -> None:
        """Pass messages on; `missing` are those in front of them that cannot be sent any more."""

    def ping(self) -> None:
        """Give a sign of life, where there is one to give."""

    def close(self, code: int, reason: str) -> None:
        """Say goodbye. `code` is a WebSocket close code, 0 without one."""


class EventStream:
    """Server-sent events on their way: what is to be written next."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0
        self._more = trio.Event()
        self._is_over = False

    @property
    def has_room(self) -> bool:
        """See `Outlet`."""
        return self._bytes <= HTTP_STREAM_BYTES and not self._is_over

    def give(self, messages: list[Numbered], missing: int) -> None:
        """See `Outlet`."""
        if missing:
            self._put(own_event(LOST_EVENT, {"code": 410, "reason": Code.EXPIRED.word, "messages": missing}))
        self._put(b"".join(map(stream_event, messages)))

    def ping(self) -> None:
        """See `Outlet`."""
        if not self._parts:
            self._put(COMMENT)

    def close(self, code: int, reason: str) -> None:
        """See `Outlet`."""
        if not self._is_over:
            self._put(own_event(CLOSE_EVENT, {"code": code, "reason": reason}))
        self._is_over = True

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self._bytes += len(data)
        self._more.set()

    async def next(self) -> bytes:
        """Wait for something to write; b"" when the stream is over."""
        while not self._parts and not self._is_over:
            self._more = trio.Event()
            await self._more.wait()
        data, self._parts, self._bytes = b"".join(self._parts), [], 0
        return data


class Poll:
    """One GET that hangs until there is something to say."""

    def __init__(self) -> None:
        self.messages: list[Numbered] = []
        self.missing = 0
        self.is_done = trio.Event()
        self._is_over = False

    @property
    def has_room(self) -> bool:
        """See `Outlet`: until it is answered, which is soon after the first message."""
        return not self._is_over

    def give(self, messages: list[Numbered], missing: int) -> None:
        """See `Outlet`."""
        self.messages += messages
        self.missing += missing
        self.is_done.set()

    def ping(self) -> None:
        """See `Outlet`: the end of its time is the sign."""

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002 - the next request gets it
        """See `Outlet`."""
        self._is_over = True
        self.is_done.set()


class HttpSession:
    """A runtime's session from its first post to its end; see `MessageChannel`.

    Args:
        remote: What the client that opened it counts for; see `address_group`.
        on_ended: Called once, when it has ended.
    """

    silent_periods: int = sys.maxsize
    """Silence is judged by the polls (`away_since`)."""
    stuck_seconds: float = math.inf
    """So is who does not fetch what waits."""

    def __init__(self, remote: str, on_ended: Callable[[HttpSession], None]) -> None:
        self.remote = remote
        self.port: ExpectingPort | None = None
        self.token_digest = ""
        self.log = ReturnLog()
        self.away_since: float | None = trio.current_time()
        """Since when (trio time) there is neither stream nor poll; None while there is one."""
        self.ended_because = ""
        self.posts = 0
        self.lines = SessionLines()
        self._on_ended = on_ended
        self._outlet: Outlet | None = None
        self.ended = trio.Event()

    # What the port asks for.

    @property
    def is_closed(self) -> bool:
        """See `MessageChannel`."""
        return self.ended.is_set()

    @property
    def takes_more(self) -> bool:
        """See `MessageChannel`."""
        return self._outlet is not None and not self.ended.is_set() and self._outlet.has_room

    def send(self, messages: list[bytes]) -> None:
        """See `MessageChannel`."""
        numbered = self.log.add(messages, now=trio.current_time())
        if self._outlet is not None:
            self._outlet.give(numbered, 0)

    def ping(self) -> None:
        """See `MessageChannel`."""
        if self._outlet is not None:
            self._outlet.ping()

    def close(self, code: int, reason: str) -> None:
        """See `MessageChannel`."""
        self.ended_because = self.ended_because or reason
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            outlet.close(code, reason)
        self.end()

    def drop(self) -> None:
        """See `MessageChannel`."""
        self.end()

    # What requests report.

    def attach(self, outlet: Outlet, after: int | None) -> None:
        """A stream or a poll is there, in place of any other; first it gets what follows on `after`."""
        if self._outlet is not None:
            self._outlet.close(0, "another stream or poll came")
        self._outlet = outlet
        self.away_since = None
        if after is not None:
            missing, messages = self.log.after(after)
            if missing or messages:
                outlet.give(messages, missing)
        self.flush()

    def detach(self, outlet: Outlet) -> None:
        """A stream or a poll has ended."""
        if self._outlet is outlet:
            self._outlet = None
            self.away_since = trio.current_time()

    def flush(self) -> None:
        """The stream has room again."""
        if self.port is not None:
            self.port.queue.flush()

    def end(self) -> None:
        """It is over: nothing is taken and nothing given any more. May be called again."""
        if self.ended.is_set():
            return
        self.ended.set()
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            outlet.close(0, self.ended_because)
        if self.port is not None:
            self.port.queue.is_closing = True
            self.port.queue.give_up_all()
        self._on_ended(self)
