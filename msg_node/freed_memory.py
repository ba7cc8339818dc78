"""Memory that the node no longer needs goes back to the kernel, once a minute.

Two things keep it. Objects in a cycle wait for the garbage collector, which a node lets run seldom (`process_tuning`):
a cycle of a library that holds one TLS connection is 50 KiB that the collector does not see. So everything that has
come since the start is looked through, as long as that takes no longer than a message may wait: a small node takes 5 ms
for it; one with a hundred thousand sessions leaves it to the thresholds.

And the C library keeps what is freed for the next request. After a burst (readers that are slow, large frames) that are
megabytes between live objects, which later bursts do not fill again: the process grows in steps although nothing leaks.
`malloc_trim` gives whole free pages back, wherever in the heap they lie. Measured: 2 ms for a heap of 60 MiB, so only
when there is enough to give.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from typing import Final

import trio

TRIM_SECONDS: Final = 60.0
WORTH_BYTES: Final = 4 << 20
LONGEST_COLLECTION_SECONDS: Final = 0.02


class _MallocStatistics(ctypes.Structure):
    """`struct mallinfo2` of the C library; `fordblks` is what is free in the heap."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def collect_garbage() -> float:
    """Free what is in cycles. Returns the seconds that it took."""
    began = time.perf_counter()
    gc.collect()
    return time.perf_counter() - began


async def return_freed_memory(
    *, collect: Callable[[], float] = collect_garbage, trim: Callable[[], bool] | None = None
) -> None:
    """Once a minute, free what is in cycles and give back what is free, until cancelled.

    Args:
        collect: Frees what is in cycles and returns the seconds that it took; called again unless that were more than
            `LONGEST_COLLECTION_SECONDS`.
        trim: Gives back what is free if it is worth it; by default that of the C library, if it has one.
    """
    trim = trim or malloc_trimmer()
    taken_seconds = 0.0
    while True:
        await trio.sleep(TRIM_SECONDS)
        if taken_seconds <= LONGEST_COLLECTION_SECONDS:
            taken_seconds = collect()
        if trim is not None:
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
