"""The event loop of a node, held back for a moment while that saves work (`core/gathering.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from msg_node.bus.core.gathering import WINDOW_SECONDS, Gathering, Progress


class GatheredLooks(trio.abc.Instrument):
    """Holds the loop back before it waits for input.

    Args:
        gathering: Decides for how long.
        progress: Returns what the loop has done since the start of the node.
    """

    def __init__(self, gathering: Gathering, progress: Callable[[], Progress]) -> None:
        self._gathering = gathering
        self._progress = progress

    def before_io_wait(self, timeout: float) -> None:
        """See `trio.abc.Instrument`. Sleeping here keeps all tasks waiting: none of them is ready to run."""
        seconds = self._gathering.looks(time.monotonic(), timeout, self._progress().messages)
        if seconds > 0:
            time.sleep(seconds)

    def after_io_wait(self, timeout: float) -> None:
        """See `trio.abc.Instrument`."""
        self._gathering.found(time.monotonic(), timeout)


async def gather_looks(gathering: Gathering, progress: Callable[[], Progress]) -> None:
    """Hold the event loop back when `gathering` says so, until cancelled. See `GatheredLooks`.

    An instrument costs two calls for each look, so that the loop has it only while looks are put off.
    """
    looks, has_instrument = GatheredLooks(gathering, progress), False
    try:
        while True:
            seconds = WINDOW_SECONDS if gathering.is_on else gathering.watch(time.monotonic(), progress())
            if gathering.is_on and not has_instrument:
                trio.lowlevel.add_instrument(looks)
            elif has_instrument and not gathering.is_on:
                trio.lowlevel.remove_instrument(looks)
            has_instrument = gathering.is_on
            await trio.sleep(seconds)
    finally:
        if has_instrument:
            trio.lowlevel.remove_instrument(looks)
