"""Memory that the node has freed goes back to the kernel.

The C library keeps what is freed for the next request. After a burst (readers that are slow, large frames) that are
megabytes between live objects, which later bursts do not fill again: the process grows in steps although nothing leaks.
`malloc_trim` gives whole free pages back, wherever in the heap they lie. Measured: 2 ms for a heap of 60 MiB, so once a
minute, and only when there is enough to give.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

import trio

TRIM_SECONDS: Final = 60.0
WORTH_BYTES: Final = 4 << 20


class _MallocStatistics(ctypes.Structure):
    """`struct mallinfo2` of the C library; `fordblks` is what is free in the heap."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


async def return_freed_memory(*, trim: Callable[[], bool] | None = None) -> None:
    """Once a minute, give back what is free if it is worth it; ends at once where the C library cannot."""
    trim = trim or malloc_trimmer()
    while trim is not None:
        await trio.sleep(TRIM_SECONDS)
        trim()


def malloc_trimmer() -> Callable[[], bool] | None:
    """A function that gives free memory back and returns True if there was enough; None without glibc 2.33 or newer."""
    library = ctypes.CDLL(None)
    try:
        statistics, malloc_trim = library.mallinfo2, library.malloc_trim
    except AttributeError:
        return None
    statistics.restype = _MallocStatistics

    def trim() -> bool:
        if statistics().fordblks < WORTH_BYTES:
            return False
        malloc_trim(ctypes.c_size_t(0))
        return True

    return trim
