"""Run a module on a clock that somebody else sets.

Use: `python -m interop.lab.shifted_clock FILE MODULE [ARGUMENT…]`. The file holds the seconds by which the clock on the
wall is ahead, as written by `set_clock`; monotonic clocks are left as they are, as when an operator sets a clock.
It takes the place of `time.time` before anything of the product is imported.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path
from typing import Final

_FORMAT: Final = struct.Struct("d")
_NANOSECONDS: Final = 1e9


def set_clock(file: Path, ahead_seconds: float) -> None:
    """Have processes that run with this file be so many seconds ahead from now on; makes the file."""
    raw = _FORMAT.pack(ahead_seconds)
    if not file.exists():
        file.write_bytes(raw)
        return
    with file.open("r+b") as opened:
        opened.write(raw)


def shift(file: Path) -> None:
    """Have this process follow a file."""
    with file.open("rb") as opened:
        ahead = memoryview(mmap.mmap(opened.fileno(), _FORMAT.size, access=mmap.ACCESS_READ)).cast("d")
    system_time, system_time_ns = time.time, time.time_ns
    time.time = lambda: system_time() + ahead[0]
    time.time_ns = lambda: system_time_ns() + int(ahead[0] * _NANOSECONDS)


if __name__ == "__main__":
    shift(Path(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
