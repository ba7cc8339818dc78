"""Errors of an engine that several nodes share, in the words of `trapezoid check`."""

from __future__ import annotations

from typing import Final

from protofly.errors import Code, HostError

SILENT: Final = "engine-silent"
"""Word of what was given up since the engine did not answer."""


class EngineError(HostError):
    """The engine cannot be used, or refused something.

    Attributes:
        word: Stable code of the finding.
        place: The engine, without its password.
        what: What is wrong.
        action: What to do, "" when nobody can say.
        is_lost: The connection is gone: another one may do.
    """

    def __init__(self, word: str, place: str, what: str, action: str = "", *, is_lost: bool = False) -> None:
        super().__init__(Code.STATE_UNAVAILABLE, f"{place}: {what}{'; ' if action else ''}{action} [{word}]")
        self.word = word
        self.place = place
        self.what = what
        self.action = action
        self.is_lost = is_lost


class FencedError(EngineError):
    """Another process has taken this node's name over: nothing that this one writes counts any more."""

    def __init__(self, place: str, node: str) -> None:
        action = "this process has to end; start it again, and it waits for the name"
        super().__init__("engine-fenced", place, f"another process has taken over the name {node}", action)
