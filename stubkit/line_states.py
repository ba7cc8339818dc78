"""Whether the state that a stub reports follows its lines: not `live` without one, and never lost for good. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sandbox.core.exchange import Action, ChannelKind, Event, GuestAction, GuestEvent

_NO_DELAY: Final = bytes(4)
LIVE_WITHOUT_LINE: Final = "says `live`, and none of its channels is open: messages would go to nobody"
NEVER_AGAIN: Final = "lost its channels, and neither opens one nor sets a timer: it would never be live again"


class LineStates:
    """The channels and timers of one instance, and what it says of itself.

    Channels of kind `http` are one request each and end by themselves. A stub that uses them may be live without a
    channel, and so may one that never opens any.

    Attributes:
        state: What the stub reported last, "" for nothing.
    """

    def __init__(self) -> None:
        self.state = ""
        self._asked: set[int] = set()
        self._open: set[int] = set()
        self._timers: set[int] = set()
        self._has_lines = self._has_requests = self._is_draining = False

    def given(self, events: Sequence[GuestEvent]) -> None:
        """Note what the host hands over."""
        for event in events:
            match event.op:
                case Event.OPENED if event.arg in self._asked:
                    self._asked.discard(event.arg)
                    self._open.add(event.arg)
                case Event.CLOSED:
                    self._forget(event.arg)
                case Event.TIMER:
                    self._timers.discard(event.arg)
                case Event.DRAIN:
                    self._is_draining = True

    def answered(self, actions: Sequence[GuestAction]) -> list[str]:
        """Note the answer to that; returns what is wrong with the stub now."""
        for action in actions:
            self._note(action)
        if not self._has_lines or self._has_requests or self._is_draining or self._open:
            return []
        if self.state == "live":
            return [LIVE_WITHOUT_LINE]
        if not self._asked and not self._timers and self.state != "failed":
            return [NEVER_AGAIN]
        return []

    def _note(self, action: GuestAction) -> None:
        match action.op:
            case Action.OPEN if action.flags == ChannelKind.HTTP:
                self._has_requests = True
            case Action.OPEN if action.arg not in self._open:  # the host refuses another one, and leaves it open
                self._has_lines = True
                self._asked.add(action.arg)
            case Action.CLOSE:
                self._forget(action.arg)
            case Action.SET_TIMER if action.payload == _NO_DELAY:
                self._timers.discard(action.arg)
            case Action.SET_TIMER:
                self._timers.add(action.arg)
            case Action.STATUS:
                self.state = action.payload.decode("utf-8", "replace").partition(" ")[0]

    def _forget(self, channel: int) -> None:
        self._asked.discard(channel)
        self._open.discard(channel)
