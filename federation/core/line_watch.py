"""Detects that the far end of a link has fallen silent although it owes us something.

    heard ──something is owed, 2 s of silence──▶ asked for a sign of life ──5 s of silence──▶ stalled
      ▲                                                                                          │
      └────────────────────────── anything is heard, or the carrier is lost ─────────────────────┘

Silence alone means nothing: most links are idle most of the time. It counts from when something is owed: messages that
the far end has not taken, or replies that senders of ours wait for. Since a reply may take its time while the line is
well, the line is asked for a sign of life (a ping) before it is called stalled. A line that cannot be asked is stalled
only while messages are not taken.
"""

from __future__ import annotations

from enum import Enum

PROBE_SECONDS = 2.0
STALLED_SECONDS = 5.0


class Sight(Enum):
    """A change that one look at the line found."""

    SILENT = "silent"  # time to ask for a sign of life
    STALLED = "stalled"
    HEARD_AGAIN = "heard again"


class LineWatch:
    """Watches the carriers of one link. All times are monotonic seconds.

    Attributes:
        silent_since: From when on a stalled line has been silent; None while it is not stalled.
        stalled_seconds: How long the last stall that ended had lasted.
    """

    def __init__(self) -> None:
        self.silent_since: float | None = None
        self.stalled_seconds = 0.0
        self._owed_since: float | None = None
        self._was_probed = False
        self._heard = 0.0

    @property
    def is_stalled(self) -> bool:
        """True when the line is stalled now."""
        return self.silent_since is not None

    def look(self, now: float, *, heard: float, is_owed: bool) -> Sight | None:
        """Look at a link that has a carrier; returns what changed.

        Args:
            now: The time.
            heard: When anything came from the far end last, on any line.
            is_owed: The far end owes us something: taking a message, or a reply.
        """
        if self.silent_since is not None:
            if heard <= self._heard:
                return None
            self.stalled_seconds = now - self.silent_since
            self.reset()
            return Sight.HEARD_AGAIN
        if not is_owed:
            self.reset()
            return None
        if self._owed_since is None:
            self._owed_since = now
        since = max(heard, self._owed_since)
        silent_seconds = now - since
        if silent_seconds >= STALLED_SECONDS and self._was_probed:
            self.silent_since, self._heard = since, heard
            return Sight.STALLED
        if silent_seconds < PROBE_SECONDS:
            self._was_probed = False
        elif not self._was_probed:
            self._was_probed = True
            return Sight.SILENT
        return None

    def reset(self) -> None:
        """Nothing is owed, nobody can be asked, or no carrier is up: watch anew."""
        self.silent_since = self._owed_since = None
