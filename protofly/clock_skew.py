"""Times that two clocks do not agree on, in words: by how much, and whether a wrong clock is the likely reason."""

from __future__ import annotations

SUSPECT_SECONDS = 86_400.0
"""Clocks that nobody sets are wrong by hours, seldom by more; documents that nobody renews are late by weeks."""
_MOST_SECONDS = 1e10  # strangers write numbers of any size


def off_by(seconds: float) -> str:
    """Word the distance of a time from its bound, for the end of a sentence; a small one is blamed on the clocks.

    Args:
        seconds: Positive, by our clock.
    """
    seconds = min(seconds, _MOST_SECONDS)
    if seconds < 120:
        amount = f"{seconds:.0f} s"
    elif seconds < 7_200:
        amount = f"{seconds / 60:.0f} min"
    elif seconds < 2 * 86_400:
        amount = f"{seconds / 3_600:.0f} h"
    else:
        amount = f"{seconds / 86_400:.0f} days"
    return f"{amount}; is one of the two clocks wrong?" if seconds < SUSPECT_SECONDS else amount
