"""Runs `trapezoid` with a wall clock that can be stepped from outside: `clock` beside the settings file holds seconds.

The file is a little-endian double that is added to every reading of `time.time`. Monotonic clocks are left alone, as
they are when an operator or NTP steps the clock of a machine.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

OFFSET = struct.Struct("<d")


def clock_file(settings: Path) -> Path:
    """The file that holds the offset for the node with these settings."""
    return settings.with_name("clock")


def set_offset(settings: Path, seconds: float) -> None:
    """Step the wall clock of the node with these settings to the true time plus `seconds`."""
    with clock_file(settings).open("r+b") as file:
        file.write(OFFSET.pack(seconds))


def _step_clock(settings: Path) -> None:
    path = clock_file(settings)
    if not path.exists():
        path.write_bytes(OFFSET.pack(0.0))
    with path.open("r+b") as file:
        offset = mmap.mmap(file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)
    true_time = time.time
    time.time = lambda: true_time() + OFFSET.unpack_from(offset)[0]


if __name__ == "__main__":
    if "--config" in sys.argv:
        _step_clock(Path(sys.argv[sys.argv.index("--config") + 1]))
    runpy.run_module("trapezoid", run_name="__main__", alter_sys=True)
