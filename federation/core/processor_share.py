"""What the calls of one stub may take of the processor over time.

Each call has its own bound, but a stub that sets itself timers is called for ever. So its calls are paid from a stock
that fills with its share of a core. When the stock is empty, the stub waits before its next exchange until it is not:
what happens meanwhile makes that exchange larger, and the link slower. Nothing is lost, and the rest of the machine is
left to others. An exchange costs the node itself something too, so that many short ones do not come for nothing.

The stock belongs to the domain and not to an instance: who is started anew gets no new one. Times are seconds of any
monotonic clock.
"""

from __future__ import annotations

from enum import Enum

from protofly.limits import STUB_CPU_BURST_SECONDS, STUB_CPU_SHARE, STUB_EXCHANGE_US

_MICROSECONDS = 1e6


class ShareChange(Enum):
    """A change that one exchange made."""

    USED_UP = "used up"
    ENOUGH_AGAIN = "enough again"


class ProcessorShare:
    """The stock of one domain."""

    def __init__(self) -> None:
        self._is_used_up = False
        self._share = STUB_CPU_SHARE
        self._left_seconds = self._most_seconds
        self._filled_at: float | None = None

    @property
    def share(self) -> float:
        """The share of a core."""
        return self._share

    @share.setter
    def share(self, share: float) -> None:
        """Another share counts from now on; what is saved up stays, as far as it may be saved up."""
        self._left_seconds *= share / self._share
        self._share = share

    @property
    def _most_seconds(self) -> float:
        return self._share * STUB_CPU_BURST_SECONDS

    def take(self, cpu_us: int, now: float) -> ShareChange | None:
        """Pay for one exchange that took so much in its worker; returns what changed."""
        self._left_seconds = self._stock(now) - (cpu_us + STUB_EXCHANGE_US) / _MICROSECONDS
        self._filled_at = now
        was_used_up, self._is_used_up = self._is_used_up, self._left_seconds < 0 or self.is_used_up(now)
        if self._is_used_up == was_used_up:
            return None
        return ShareChange.USED_UP if self._is_used_up else ShareChange.ENOUGH_AGAIN

    def is_used_up(self, now: float) -> bool:
        """True from when it was empty until it is half full."""
        return self._is_used_up and self._stock(now) * 2 < self._most_seconds

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next exchange, after `take`."""
        return max(0.0, -self._left_seconds / self._share)

    def _stock(self, now: float) -> float:
        filled = 0.0 if self._filled_at is None else (now - self._filled_at) * self._share
        return min(self._most_seconds, self._left_seconds + filled)
