"""When a process may take a node's name, and how long it holds it. See docs/adr/0028.

A lease is counted twice, and the two counts never meet. The holder counts from before it asked for a renewal; another
process counts from when it saw the last one. What the other process sees happened after the holder asked, so the
holder's count always ends first:

    holder    asks for renewal 7 ──▶ it is written              asked + 4.5 s: fences itself
    engine               renewal 7 is there
    other                      sees renewal 7 ──────────────────────────────▶ seen + 5 s: may take the name

All times are seconds of one machine's clock that only goes forward, while that machine sleeps as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

LEASE_SECONDS: Final = 5.0
MARGIN_SECONDS: Final = 0.5
"""So much earlier the holder fences itself: clocks that differ by a tenth in speed do no harm."""
BEAT_SECONDS: Final = 1.0
"""Between two renewals."""
LOOK_SECONDS: Final = 0.5
"""Between two looks at a name that another process holds."""


@dataclass(frozen=True, slots=True)
class NameRow:
    """State of a name in the engine.

    Attributes:
        epoch: One more at each new holder.
        beat: One more at each renewal.
        is_held: False when the holder has left in order.
        instance: Where the holder runs; no two processes of one instance run at the same time.
    """

    epoch: int
    beat: int
    is_held: bool
    instance: str


class LeaseVerdict(Enum):
    """The decision about a name that a process wants."""

    TAKE = "take"
    WAIT = "wait"
    REFUSE = "refuse"


class NameSearch:
    """Decides when a name may be taken.

    Args:
        instance: Where we run.
        is_standby: Wait for as long as another process holds the name; otherwise only to see whether it is alive.
    """

    def __init__(self, instance: str, *, is_standby: bool) -> None:
        self._instance = instance
        self._is_standby = is_standby
        self._first: NameRow | None = None
        self._last: NameRow | None = None
        self._unchanged_since = 0.0

    def seen(self, row: NameRow | None, *, now: float) -> LeaseVerdict:
        """Judge what the engine has.

        Args:
            row: As it was read after the last look; None: nobody ever held the name.
            now: When the answer had come.

        Returns:
            TAKE: write on the condition that the row is still the same. WAIT: look again. REFUSE: its holder is alive.
        """
        if row is None or not row.is_held or row.instance == self._instance:
            return LeaseVerdict.TAKE
        if row != self._last:
            self._last, self._unchanged_since = row, now
        if self._first is None:
            self._first = row
        if now - self._unchanged_since >= LEASE_SECONDS:
            return LeaseVerdict.TAKE
        return LeaseVerdict.WAIT if self._is_standby or row == self._first else LeaseVerdict.REFUSE


class LeaseState(Enum):
    """The states of a name that a process holds, by what it may do under it."""

    HELD = "held"
    LAPSED = "lapsed"
    """Not renewed in time: others may be about to take over. Nothing may be promised, all may come back."""
    LOST = "lost"
    """Another process has the name: for ever."""


class Lease:
    """A name that was taken.

    Args:
        epoch: Under which it is held.
        asked_at: When it was asked for, before the engine did it.
    """

    def __init__(self, epoch: int, *, asked_at: float) -> None:
        self.epoch = epoch
        self._asked_at = asked_at
        self._is_lost = False

    @property
    def ends_at(self) -> float:
        """Monotonic seconds at which the holder has to fence itself, unless the lease is renewed before."""
        return self._asked_at + LEASE_SECONDS - MARGIN_SECONDS

    def renewed(self, *, asked_at: float) -> None:
        """The engine has renewed it, as asked at that moment. Answers may come in any order, also after it lapsed."""
        self._asked_at = max(self._asked_at, asked_at)

    def lost(self) -> None:
        """The engine has another epoch."""
        self._is_lost = True

    def state(self, *, now: float) -> LeaseState:
        """The state of the name now."""
        if self._is_lost:
            return LeaseState.LOST
        return LeaseState.HELD if now < self.ends_at else LeaseState.LAPSED
