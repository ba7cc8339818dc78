"""Changes that observers miss while their line is gone: a bounded window, delivered when they are back.

Kept are messages to `<object>/changes` and `<object>/children/…` that could not be given to a session in its grace, in
their order. The window is bounded in time, number and bytes; what falls out of it is remembered as a gap, so that an
observer knows of which objects to read the state again. It is memory: a restart of the node is a gap about everything.
Source: feature rows DS-08 and DS-14; message specification, section 5.4.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msg_node.kernel.resources import object_of_events
from protofly.lifetime import aged
from protofly.limits import MISSED_BYTES, MISSED_BYTES_PER_SESSION, MISSED_GAPS
from protofly.message import Message


class CatchUp(NamedTuple):
    """Messages and gaps for a session that is back.

    Attributes:
        messages: What it missed, oldest first.
        gaps: Objects of which it missed more than that.
        is_vague: Whether there may be further such objects.
    """

    messages: list[Message]
    gaps: tuple[str, ...] = ()
    is_vague: bool = False


@dataclass(slots=True)
class _Window:
    """Changes that one session missed, with their times, and objects of which it missed more."""

    kept: deque[tuple[float, Message]] = field(default_factory=deque)
    bytes: int = 0
    gaps: dict[str, None] = field(default_factory=dict)
    is_vague: bool = False

    def lost(self, message: Message) -> None:
        """A message is not to be had any more."""
        if len(self.gaps) < MISSED_GAPS:
            self.gaps[object_of_events(message.to_key)] = None
        else:
            self.is_vague = True


class Missed:
    """The windows of all sessions that are away.

    Args:
        seconds: How long a change is kept.
        messages: How many of one session.
        bytes_per_session: How many bytes of one session.
        bytes_in_all: How many bytes of all sessions together; the session that left first gives way.
    """

    def __init__(
        self,
        *,
        seconds: float,
        messages: int,
        bytes_per_session: int = MISSED_BYTES_PER_SESSION,
        bytes_in_all: int = MISSED_BYTES,
    ) -> None:
        self._seconds = seconds
        self._messages = messages
        self._bytes_per_session = bytes_per_session
        self._bytes_in_all = bytes_in_all
        self._windows: OrderedDict[int, _Window] = OrderedDict()
        self.bytes = 0
        """What is kept of all sessions together."""

    def follow(self, *, seconds: float, messages: int) -> None:
        """Keep changes for so long, and so many of one session; what is kept is trimmed at the next one."""
        self._seconds, self._messages = seconds, messages

    def __len__(self) -> int:
        """Sessions that missed something."""
        return len(self._windows)

    def has(self, sid: int) -> bool:
        """True if a session missed anything."""
        return sid in self._windows

    def keep(self, sids: Iterable[int], message: Message, now: float) -> None:
        """These sessions were to hear a message and are away; `now` is monotonic, seconds."""
        if message.is_response or not object_of_events(message.to_key):
            return
        size = len(message.raw)
        for sid in sids:
            window = self._windows.get(sid)
            if window is None:
                window = self._windows[sid] = _Window()
            window.kept.append((now, message))
            window.bytes += size
            self.bytes += size
            self._trim(window, now)
        while self.bytes > self._bytes_in_all:
            self._empty(next(one for one in self._windows.values() if one.kept))

    def unknown(self, sids: Iterable[int]) -> None:
        """These sessions may have missed anything: the node does not know."""
        for sid in sids:
            self._windows.setdefault(sid, _Window()).is_vague = True

    def take(self, sid: int, now: float) -> CatchUp:
        """A session is back: what it missed, of which nothing is kept any more. Time spent is off each `ttl`."""
        window = self._windows.pop(sid, None)
        if window is None:
            return CatchUp([])
        self._trim(window, now)
        self.bytes -= window.bytes
        left = [aged(message, now - missed_at) for missed_at, message in window.kept]
        messages = [message for message in left if message is not None]
        return CatchUp(messages, tuple(window.gaps), window.is_vague)

    def forget(self, sid: int) -> None:
        """A session is over."""
        window = self._windows.pop(sid, None)
        if window is not None:
            self.bytes -= window.bytes

    def _trim(self, window: _Window, now: float) -> None:
        """Let go what is too old, or too much."""
        kept = window.kept
        while kept and (
            now - kept[0][0] > self._seconds or len(kept) > self._messages or window.bytes > self._bytes_per_session
        ):
            _, message = kept.popleft()
            window.bytes -= len(message.raw)
            self.bytes -= len(message.raw)
            window.lost(message)

    def _empty(self, window: _Window) -> None:
        for _, message in window.kept:
            window.lost(message)
        self.bytes -= window.bytes
        window.bytes = 0
        window.kept.clear()
