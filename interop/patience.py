"""Waiting for processes on a machine that may have more to do than processors.

What has not come after some seconds of a machine that has a processor for all who want one does not come. While more
wait for a processor than there are, a second counts less, down to a tenth: a process that is only slow is no failure.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

MOST_CROWDED: Final = 10.0
"""A second never counts less than a tenth of one, so that what hangs is found on any machine."""
_LOOK_SECONDS: Final = 0.5
_LOAD_FILE: Final = Path("/proc/loadavg")
_RUNNABLE_FIELD: Final = 3


def crowding() -> float:
    """Measure how many runnable tasks there are per processor now, from 1 to `MOST_CROWDED`."""
    try:
        runnable = float(_LOAD_FILE.read_text().split()[_RUNNABLE_FIELD].partition("/")[0])
    except (OSError, ValueError, IndexError):  # another system than Linux
        runnable = os.getloadavg()[0]
    return min(MOST_CROWDED, max(1.0, runnable / (os.cpu_count() or 1)))


class Patience:
    """So many seconds of a machine that is not crowded. They begin now.

    Args:
        seconds: How long patience lasts where nobody else wants a processor.
        clock: Gives seconds that only rise.
        crowd: See `crowding`.
    """

    def __init__(
        self, seconds: float, *, clock: Callable[[], float] = time.monotonic, crowd: Callable[[], float] = crowding
    ) -> None:
        self._left_seconds = seconds
        self._clock, self._crowd = clock, crowd
        self._looked_seconds = clock()

    def is_over(self) -> bool:
        """Return True once the patience is used up; time counts less while the machine is crowded.

        Call it at least about every second: the crowd of this moment is taken for all the time since the last call.
        """
        now = self._clock()
        self._left_seconds -= (now - self._looked_seconds) / self._crowd()
        self._looked_seconds = now
        return self._left_seconds <= 0.0


async def comes(what: Callable[[], Awaitable[object]], *, seconds: float) -> bool:
    """Wait for something with so much patience; False if it has not come then.

    Args:
        what: Waits for it. May be cancelled and called again without losing anything.
        seconds: See `Patience`.
    """
    patience = Patience(seconds, clock=trio.current_time)
    while True:
        with trio.move_on_after(_LOOK_SECONDS):
            await what()
            return True
        if patience.is_over():
            return False


async def end_without_progress(scope: trio.CancelScope, progress: Callable[[], object], *, seconds: float) -> None:
    """Cancel a scope once there was no progress for so much patience; cancel this task when the scope has been left.

    Args:
        scope: What is waited for.
        progress: Gives another value after each step, of which there are finitely many.
        seconds: See `Patience`; it begins anew with each step.
    """
    patience, seen = Patience(seconds, clock=trio.current_time), progress()
    while not patience.is_over():
        await trio.sleep(_LOOK_SECONDS)
        if (now := progress()) != seen:
            patience, seen = Patience(seconds, clock=trio.current_time), now
    scope.cancel()
