"""Histograms of times with fixed bounds, as `/metrics` shows them.

One thread adds, others may read meanwhile: they may see a time counted and not yet in the sum, and never a broken
state.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

BOUNDS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds; the last place of `Histogram.counts` is for what lies above all of them."""
BOUNDS_US: Final = tuple(int(bound * 1e6) for bound in BOUNDS_SECONDS)

_MANY: Final = 16
"""From so many times on, sorting them is cheaper."""


class Histogram:
    """Counts of times by the bounds, and their sum in microseconds."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0

    def observe(self, time_us: int) -> None:
        """Count one time."""
        self.counts[bisect_left(BOUNDS_US, time_us)] += 1
        self.sum_us += time_us

    def observe_all(self, times_us: list[int]) -> None:
        """Count times, which are sorted by this: many cost less than each by itself."""
        if len(times_us) < _MANY:
            for time_us in times_us:
                self.observe(time_us)
            return
        times_us.sort()
        below = 0
        for place, bound in enumerate(BOUNDS_US):
            upto = bisect_right(times_us, bound, below)
            self.counts[place] += upto - below
            below = upto
        self.counts[-1] += len(times_us) - below
        self.sum_us += sum(times_us)

    def add(self, other: Histogram) -> None:
        """Take the counts of another one over."""
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.sum_us += other.sum_us

    def cumulative(self) -> list[tuple[str, float]]:
        """Each bound with the count of all times up to it, as the text format has them."""
        total, found = 0, []
        for bound, count in zip((*map(str, BOUNDS_SECONDS), "+Inf"), list(self.counts), strict=True):
            total += count
            found.append((bound, float(total)))
        return found

    def quantile(self, share: float) -> float | None:
        """Seconds below which that share lies, linear inside its bounds; None without any count."""
        wanted = share * sum(self.counts)
        below = 0
        for number, count in enumerate(self.counts):
            if count and below + count >= wanted:
                low = BOUNDS_SECONDS[number - 1] if number else 0.0
                high = BOUNDS_SECONDS[min(number, len(BOUNDS_SECONDS) - 1)]
                return low + (high - low) * max(0.0, wanted - below) / count
            below += count
        return None
