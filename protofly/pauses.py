"""Pauses between attempts that fail in a row. Numbers only: nothing here sleeps or draws random numbers."""

from __future__ import annotations

from typing import Final

_JITTER: Final = 0.1
_MOST_DOUBLINGS: Final = 32  # more would leave the range of a float some day


def doubling_seconds(first_seconds: float, failures: int, most_seconds: float) -> float:
    """Pause after so many failures in a row: `first_seconds` after one (or none), then doubled each time, bounded."""
    doublings = min(max(failures - 1, 0), _MOST_DOUBLINGS)
    return min(first_seconds * 2.0**doublings, most_seconds)


def jittered(seconds: float, *, draw: float) -> float:
    """`seconds` ± 10 %, so that what failed together is not tried again together.

    Args:
        seconds: The pause.
        draw: Random number in [0, 1).
    """
    return seconds * (1.0 - _JITTER + 2.0 * _JITTER * draw)


def scattered(seconds: float, *, draw: float) -> float:
    """`seconds` ± 50 %, so that many that failed together do not come back together; `draw` as in `jittered`."""
    return seconds * (0.5 + draw)
