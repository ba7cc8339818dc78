"""Alarms: figures that are bad for long enough, each once, until they are good for long enough.

A figure raises its alarm when it has been at or above `raise_at` for `for_seconds`, and clears it when it has been
below `clear_at` for as long: what goes up and down between the two changes nothing. A subject that is not measured any
more is as good as it can be. Who measures bounds the subjects.

Worked example, failures with 1.0 and 0.5 for 60 s, looked at every 30 s: 1.2, 0.7, 1.1, 1.3, 1.2 raises at the fifth
look (the second one began anew), and 0.7, 0.4, 0.4, 0.4 then clears at the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

FAILURES_ALLOWED: Final = 0.01
"""Error budget: this share of the messages of an hour may fail."""
LEAST_MESSAGES: Final = 100
"""With fewer messages an hour the budget is that of so many: one failure of three is no alarm."""


class Alarm(Enum):
    """Conditions that raise an alarm.

    Attributes:
        word: Its name for programs.
        meaning: What it says about its subject, one sentence.
        raise_at: The figure that raises it.
        clear_at: The figure below which it clears.
        for_seconds: How long either has to last.
    """

    PARTNER = "partner-unreachable", "The partner cannot be reached, or refuses us.", 1.0, 1.0, 300.0
    BUDGET = "error-budget-spent", "More of the hour's messages to the partner failed than may fail.", 1.0, 0.5, 60.0
    STUB = "stub-failing", "The stub of the partner fails again and again, or is not accepted.", 1.0, 1.0, 60.0
    EXPIRY = "expiring", "A document or certificate of ours expires.", 1.0, 1.0, 0.0
    RECORDS = "records-failing", "Audit records cannot be written, or were lost.", 1.0, 1.0, 0.0
    STATE = "state-failing", "The state cannot be written.", 1.0, 1.0, 5.0
    BOUND = "bound-reached", "A bound of the node is nearly reached.", 0.9, 0.8, 60.0

    def __init__(self, word: str, meaning: str, raise_at: float, clear_at: float, for_seconds: float) -> None:
        self.word, self.meaning = word, meaning
        self.raise_at, self.clear_at, self.for_seconds = raise_at, clear_at, for_seconds


Figures = Mapping[tuple[Alarm, str], float]
"""Figures by alarm and subject, such as a domain; "" for the node itself."""


@dataclass(slots=True)
class Raised:
    """An alarm of one subject. Seconds since the Unix epoch.

    Attributes:
        alarm: Which.
        subject: Of what.
        value: The figure at the last look.
        since: When it was raised; None while it is not.
        turned_at: Since when the figure asks for the other state; None while it does not.
    """

    alarm: Alarm
    subject: str
    value: float
    since: float | None = None
    turned_at: float | None = None


@dataclass(frozen=True, slots=True)
class AlarmNews:
    """An alarm was raised or cleared."""

    alarm: Alarm
    subject: str
    is_raised: bool
    value: float


class Alarms:
    """The state of all alarms."""

    def __init__(self) -> None:
        self._known: dict[tuple[Alarm, str], Raised] = {}

    def raised(self) -> list[Raised]:
        """Those that are raised, oldest first."""
        return sorted((one for one in self._known.values() if one.since is not None), key=lambda one: one.since or 0.0)

    def judge(self, figures: Figures, now: float) -> list[AlarmNews]:
        """Look at the figures of one moment; returns what has changed."""
        news = []
        for key in {**dict.fromkeys(self._known), **dict.fromkeys(figures)}:
            one = self._known.setdefault(key, Raised(*key, 0.0))
            one.value = figures.get(key, 0.0)
            if self._turns(one, now):
                one.since = now if one.since is None else None
                news.append(AlarmNews(*key, one.since is not None, one.value))
            if one.since is None and one.turned_at is None:
                del self._known[key]
        return news

    @staticmethod
    def _turns(one: Raised, now: float) -> bool:
        """True if a figure has asked for the other state for long enough."""
        is_asked = one.value >= one.alarm.raise_at if one.since is None else one.value < one.alarm.clear_at
        if not is_asked:
            one.turned_at = None
            return False
        if one.turned_at is None or now < one.turned_at:  # the clock may have been set
            one.turned_at = now
        if now - one.turned_at < one.alarm.for_seconds:
            return False
        one.turned_at = None
        return True


def budget_spent(arrived: int, failed: int) -> float:
    """The share of an hour's error budget that its failures have spent; 1.0: all of it."""
    return failed / (FAILURES_ALLOWED * max(arrived + failed, LEAST_MESSAGES))
