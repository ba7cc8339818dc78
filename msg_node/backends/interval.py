"""A pause that repeats, and whose length the settings may change while somebody waits."""

from __future__ import annotations

import math

import trio


class Interval:
    """A pause of some seconds; with 0 it does not end.

    Args:
        seconds: How long it is, until `change` says otherwise.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._changed = trio.Event()

    def change(self, seconds: float) -> None:
        """Let it be of another length; who waits begins anew if it is."""
        if seconds != self._seconds:
            self._seconds = seconds
            self._changed.set()

    async def wait(self) -> None:
        """Return when it is over."""
        while True:
            with trio.move_on_after(self._seconds or math.inf):
                await self._changed.wait()
                self._changed = trio.Event()
                continue
            return
