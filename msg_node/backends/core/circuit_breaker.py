"""When to stop asking a back-end that does not work, and how often to try again. No clock, no randomness.

    closed ──failures in a row──▶ open ──pause over──▶ one trial ──success──▶ closed
                                    ▲                      │
                                    └───twice the pause────┘

A caller that gets `False` does not ask, so that a dead back-end costs its callers nothing and is not met by all of
them at once when it comes back.
"""

from __future__ import annotations

from enum import Enum

from protofly.limits import (
    BACKEND_FAILURES_BEFORE_OPEN,
    BACKEND_OPEN_MAX_SECONDS,
    BACKEND_OPEN_SECONDS,
    BACKEND_RETRIES_PER_CALL,
    BACKEND_RETRY_STOCK,
)


class Circuit(Enum):
    """States of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    TRIAL = "trial"


class CircuitBreaker:
    """Takes the result of every call and decides if the next one may be made. Times are seconds of any one clock."""

    def __init__(
        self,
        *,
        failures: int = BACKEND_FAILURES_BEFORE_OPEN,
        open_seconds: float = BACKEND_OPEN_SECONDS,
        open_max_seconds: float = BACKEND_OPEN_MAX_SECONDS,
    ) -> None:
        self._failures_allowed = failures
        self._first_pause_seconds = open_seconds
        self._max_pause_seconds = open_max_seconds
        self._failures = 0
        self._pause_seconds = open_seconds
        self._opens_until = 0.0
        self.state = Circuit.CLOSED

    def may_call(self, now: float) -> bool:
        """True if a call may be made now. After a pause the first such call is the trial: report its result."""
        if self.state is Circuit.CLOSED:
            return True
        if self.state is Circuit.OPEN and now >= self._opens_until:
            self.state = Circuit.TRIAL
            return True
        return False

    def succeeded(self) -> bool:
        """A call was answered; whether that closed the circuit."""
        was_closed = self.state is Circuit.CLOSED
        self.state = Circuit.CLOSED
        self._failures = 0
        self._pause_seconds = self._first_pause_seconds
        return not was_closed

    def failed(self, now: float) -> bool:
        """A call was not answered, or with a failure; whether that opened the circuit."""
        if self.state is Circuit.OPEN:
            return False  # a call from before
        self._failures += 1
        if self.state is Circuit.TRIAL:
            self._pause_seconds = min(2 * self._pause_seconds, self._max_pause_seconds)
        elif self._failures < self._failures_allowed:
            return False
        self.state = Circuit.OPEN
        self._opens_until = now + self._pause_seconds
        return True

    def abandoned(self, now: float) -> None:
        """A call was given up by who made it: if it was the trial, the next one is."""
        if self.state is Circuit.TRIAL:
            self.state = Circuit.OPEN
            self._opens_until = now


class RetryBudget:
    """Limits repetitions to a fraction of all calls, so that retries never double the load of a failing back-end."""

    def __init__(self, *, per_call: float = BACKEND_RETRIES_PER_CALL, stock: float = BACKEND_RETRY_STOCK) -> None:
        self._per_call = per_call
        self._stock = stock
        self._left = stock

    def called(self) -> None:
        """A first attempt was made."""
        self._left = min(self._left + self._per_call, self._stock)

    def take(self) -> bool:
        """Use up one repetition, if there is any left. Returns True if a call may be repeated now."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
