"""What the calls of one stub may take of the processor over time.

Each call has its own bound, but a stub that sets itself timers is called for ever. So its calls are paid from a stock
that fills with its share of a core. When the stock is empty, the stub waits before its next exchange until it is not:
what happens meanwhile makes that exchange larger, and the link slower. Nothing is lost, and the rest of the machine is
left to others. An exchange costs the node itself something too, so that many short ones do not come for nothing.

What a stub asks the node for, such as timers, is work of the node and not of the stub. One request for each message and
each piece of data that it hears is fair. All others are paid from a second stock, which fills with so many a second.

The stocks belong to the domain and not to an instance: who is started anew gets no new ones. Times are seconds of any
monotonic clock.
"""

from __future__ import annotations

from typing import Final

from protofly.limits import (
    STUB_CPU_BURST_SECONDS,
    STUB_CPU_SHARE,
    STUB_EXCHANGE_US,
    STUB_UNASKED_BURST_SECONDS,
    STUB_UNASKED_PER_SECOND,
)

_MICROSECONDS = 1e6


class Stock:
    """Something of which one domain gets so much a second.

    Args:
        per_second: What it gets.
        burst_seconds: What it gets in so many seconds may be saved up.
    """

    def __init__(self, per_second: float, burst_seconds: float) -> None:
        self._per_second = per_second
        self._burst_seconds: Final = burst_seconds
        self._is_used_up = False
        self._left = self._most
        self._filled_at: float | None = None

    @property
    def _most(self) -> float:
        return self._per_second * self._burst_seconds

    def take(self, amount: float, now: float) -> None:
        """Pay for one exchange."""
        self._left = self._stock(now) - amount
        self._filled_at = now
        self._is_used_up = self._left < 0 or self.is_used_up(now)

    def is_used_up(self, now: float) -> bool:
        """True from when it was empty until it is half full."""
        return self._is_used_up and self._stock(now) * 2 < self._most

    @property
    def pause_seconds(self) -> float:
        """Return the seconds to wait before the next exchange, 0 for none. Call it after `take`."""
        return max(0.0, -self._left / self._per_second)

    def _stock(self, now: float) -> float:
        filled = 0.0 if self._filled_at is None else (now - self._filled_at) * self._per_second
        return min(self._most, self._left + filled)


class ProcessorShare(Stock):
    """Seconds of the processor."""

    def __init__(self) -> None:
        super().__init__(STUB_CPU_SHARE, STUB_CPU_BURST_SECONDS)

    @property
    def share(self) -> float:
        """The share of a core."""
        return self._per_second

    @share.setter
    def share(self, share: float) -> None:
        """Another share counts from now on; what is saved up stays, as far as it may be saved up."""
        self._left *= share / self._per_second
        self._per_second = share

    def take_us(self, cpu_us: int, now: float) -> None:
        """Pay for one exchange that took so much in its worker."""
        self.take((cpu_us + STUB_EXCHANGE_US) / _MICROSECONDS, now)


class UnaskedRequests(Stock):
    """Requests of a stub to the node beyond those for what it hears."""

    def __init__(self) -> None:
        super().__init__(STUB_UNASKED_PER_SECOND, STUB_UNASKED_BURST_SECONDS)
