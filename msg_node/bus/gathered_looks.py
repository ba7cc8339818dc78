"""The event loop of a node, held back for a moment while that saves work (`core/gathering.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from msg_node.bus.core.gathering import Gathering


class GatheredLooks(trio.abc.Instrument):
    """Holds the loop back before it waits for input.

    Args:
        gathering: Decides for how long.
        messages: Returns how many were read since the start of the node.
    """

    def __init__(self, gathering: Gathering, messages: Callable[[], int]) -> None:
        self._gathering = gathering
        self._messages = messages

    def before_io_wait(self, timeout: float) -> None:
        """See `trio.abc.Instrument`. Sleeping here keeps all tasks waiting: none of them is ready to run."""
        seconds = self._gathering.looks(time.monotonic(), timeout, self._messages())
        if seconds > 0:
            time.sleep(seconds)

    def after_io_wait(self, timeout: float) -> None:
        """See `trio.abc.Instrument`."""
        self._gathering.found(time.monotonic(), timeout)


async def gather_looks(gathering: Gathering, messages: Callable[[], int]) -> None:
    """Hold the event loop back when `gathering` says so, until cancelled. See `GatheredLooks`."""
    looks = GatheredLooks(gathering, messages)
    trio.lowlevel.add_instrument(looks)
    try:
        await trio.sleep_forever()
    finally:
        trio.lowlevel.remove_instrument(looks)
