"""Notices that the time of day was set, by an operator or a time server, so that terms that were running can follow."""

from __future__ import annotations

from typing import Final

SET_SECONDS: Final = 1.0
"""A clock that is slewed gains or loses a thousandth at most: what is more between two looks was set."""


class ClockSteps:
    """Compares the time of day with a clock that nobody sets, from its making on.

    Args:
        now: Seconds since the Unix epoch.
        steady: Seconds of the other clock, at the same moment.
    """

    def __init__(self, now: float, steady: float) -> None:
        self._ahead = now - steady

    def seen(self, now: float, steady: float) -> float:
        """Return by how many seconds the time of day was set since the last look: negative if back, 0.0 if it was not.

        Args:
            now: Seconds since the Unix epoch.
            steady: Seconds of the other clock, at the same moment.
        """
        before, self._ahead = self._ahead, now - steady
        step = self._ahead - before
        return step if abs(step) >= SET_SECONDS else 0.0
