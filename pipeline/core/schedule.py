"""When which job of a pipeline that serves is due. Pure.

Jobs that follow records run as soon as there are some; the others by their periods. A job that fails is tried again
after a pause that doubles up to its period, so that a full disk is not met a hundred times a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

FIRST_PAUSE_S: Final = 5.0


@dataclass(slots=True)
class _Turn:
    period_s: float
    due: float
    failures: int = 0


@dataclass(slots=True)
class Schedule:
    """The jobs in the order in which those that are due at the same time run.

    Args:
        periods_s: By job, in s; jobs without one are left out.
        now: Time in s, by a clock that never goes back. All jobs are due at once.
    """

    periods_s: Mapping[str, float | None]
    now: float
    _turns: dict[str, _Turn] = field(init=False)

    def __post_init__(self) -> None:
        self._turns = {
            name: _Turn(period_s, self.now) for name, period_s in self.periods_s.items() if period_s is not None
        }

    def due(self, now: float) -> list[str]:
        """Jobs whose time has come, in their order."""
        return [name for name, turn in self._turns.items() if turn.due <= now]

    def hasten(self, name: str, now: float) -> None:
        """Make a job due now, unless it has failed and pauses; jobs that are left out stay so."""
        turn = self._turns.get(name)
        if turn is not None and not turn.failures:
            turn.due = min(turn.due, now)

    def done(self, name: str, now: float, *, is_failed: bool) -> None:
        """Note that a job has ended: when it is due again."""
        turn = self._turns[name]
        turn.failures = turn.failures + 1 if is_failed else 0
        pause_s = turn.period_s
        if is_failed:
            pause_s = min(max(turn.period_s, FIRST_PAUSE_S), FIRST_PAUSE_S * 2.0 ** min(turn.failures - 1, 30))
        turn.due = now + pause_s

    def wait_s(self, now: float) -> float:
        """Seconds until the next job is due; 0.0 when one is, or none is scheduled."""
        return max(0.0, min((turn.due for turn in self._turns.values()), default=now) - now)
