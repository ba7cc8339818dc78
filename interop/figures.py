"""Figures over samples of time: percentiles and medians, defined once for the demo and the benchmarks."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(samples: Sequence[float], share: float) -> float | None:
    """Smallest sample that at least `share` (0 to 1) of all samples do not exceed; None without samples.

    This is the nearest-rank method: the answer is always a time that was measured, never an interpolation.
    """
    if not samples:
        return None
    ordered = sorted(samples)
    rank = max(1, math.ceil(share * len(ordered)))
    return ordered[rank - 1]


def median(samples: Sequence[float]) -> float | None:
    """Middle sample, the lower one of two; None without samples."""
    return percentile(samples, 0.5)


def milliseconds(nanoseconds: float | None) -> float | None:
    """Nanoseconds as milliseconds with three digits, for people and for JSON."""
    return None if nanoseconds is None else round(nanoseconds / 1e6, 3)
