"""One border and its promise: any bytes give a value or one of our errors, for bounded work and memory."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final, NamedTuple

from protofly.errors import HostError, MisuseError

INPUT_BYTES: Final = 64 << 10
"""Longest input that is tried: borders have limits of their own, and what grows out of bounds has shown it by then."""

CALLS: Final = 20_000
MEMORY_BYTES: Final = 4 << 20


class Cost(NamedTuple):
    """What one input took: calls of Python and C functions, and memory at the peak."""

    calls: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Target:
    """One border.

    Attributes:
        check: Gives the border some bytes. Returns or raises a `HostError`; anything else breaks the promise. Checks by
            `assert` what holds of a value beyond that.
        seeds: Inputs to begin with, good and nearly good.
        calls_per_byte: Function calls that an input may take for each of its bytes, beside `CALLS`.
        memory_per_byte: The same for memory, beside `MEMORY_BYTES`.
    """

    name: str
    check: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    calls_per_byte: int = 10
    memory_per_byte: int = 100

    def run(self, data: bytes) -> None:
        """Hold the promise against one input."""
        try:
            self.check(data[:INPUT_BYTES])
        except MisuseError:
            raise
        except HostError:
            return

    def cost(self, data: bytes) -> Cost:
        """The same, counted. Calls and not seconds, so that it does not depend on the machine."""
        calls = 0

        def count(_frame: FrameType, event: str, _arg: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        tracemalloc.start()
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            self.run(data)
        finally:
            sys.setprofile(before)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        return Cost(calls, peak)

    def run_within_budget(self, data: bytes) -> None:
        """Hold the promise against one input, bounds included."""
        cost = self.cost(data)
        size = min(len(data), INPUT_BYTES)
        assert cost.calls <= CALLS + self.calls_per_byte * size, f"{cost.calls} calls for {size} bytes"
        assert cost.memory_bytes <= MEMORY_BYTES + self.memory_per_byte * size, f"{cost} for {size} bytes"
