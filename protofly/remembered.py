"""What is made of a text is remembered for the next time, within a bound of bytes: strangers choose the texts.

Long texts are not remembered at all, and all others are forgotten together when they have become too many. So a hit
costs one look-up in a dictionary, and a sender of ever new addresses fills no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from protofly.limits import REMEMBERED_CHARS

_Made = TypeVar("_Made")


class _Table(dict[str, _Made]):
    """What was made of texts; what is not there is made."""

    __slots__ = ("_make", "_most")

    def __init__(self, make: Callable[[str], _Made], most: int) -> None:
        self._make = make
        self._most = most

    def __missing__(self, text: str) -> _Made:
        made = self._make(text)
        if len(text) <= REMEMBERED_CHARS:
            if len(self) >= self._most:
                self.clear()
            self[text] = made
        return made


def remembered(most: int) -> Callable[[Callable[[str], _Made]], Callable[[str], _Made]]:
    """Decorate a pure function of one text: its results are remembered, at most so many. Errors are not."""

    def decorated(make: Callable[[str], _Made]) -> Callable[[str], _Made]:
        return _Table(make, most).__getitem__

    return decorated
