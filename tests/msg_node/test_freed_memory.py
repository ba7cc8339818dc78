"""Freed memory goes back to the kernel: once a minute, when there is enough of it."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest
import trio
from trio.testing import MockClock

from msg_node.freed_memory import LONGEST_COLLECTION_SECONDS, TRIM_SECONDS, malloc_trimmer, return_freed_memory

PROGRAM = """
import ctypes
from pathlib import Path
from msg_node.freed_memory import malloc_trimmer

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
blocks = [library.malloc(4000) for _ in range(10_000)]
for block in blocks:
    ctypes.memset(block, 1, 4000)
for block in blocks[:-1]:  # the last one keeps the end of the heap in use
    library.free(ctypes.c_void_p(block))
before = resident()
assert malloc_trimmer()()
print(before - resident())
"""


@pytest.mark.skipif(malloc_trimmer() is None, reason="needs a C library that can give memory back")
def test_a_heap_with_holes_gives_its_free_pages_back() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) > 30_000_000


class Cycle:
    """Refers to itself: only the garbage collector frees it."""

    def __init__(self) -> None:
        self.itself = self


async def test_memory_is_returned_once_a_minute(autojump_clock: MockClock) -> None:
    times: list[float] = []

    def trim() -> bool:
        times.append(trio.current_time())
        return True

    began = trio.current_time()
    with trio.move_on_after(3 * TRIM_SECONDS + 1):
        await return_freed_memory(trim=trim)
    assert [round(time - began) for time in times] == [60, 120, 180]


async def test_what_is_in_a_cycle_is_freed_within_a_minute(autojump_clock: MockClock) -> None:
    gc.disable()
    try:
        cycle = weakref.ref(Cycle())
        assert cycle() is not None
    finally:
        gc.enable()
    with trio.move_on_after(TRIM_SECONDS + 1):
        await return_freed_memory(trim=lambda: True)
    assert cycle() is None


@pytest.mark.parametrize(
    ("seconds", "collections"),
    [([0.0, 0.0, 0.0], 3), ([LONGEST_COLLECTION_SECONDS] * 3, 3), ([0.0, LONGEST_COLLECTION_SECONDS + 0.001], 2)],
)
async def test_the_collector_is_left_alone_once_it_took_too_long(
    autojump_clock: MockClock, seconds: list[float], collections: int
) -> None:
    left = list(seconds)
    with trio.move_on_after(3 * TRIM_SECONDS + 1):
        await return_freed_memory(collect=lambda: left.pop(0), trim=lambda: True)
    assert len(seconds) - len(left) == collections
