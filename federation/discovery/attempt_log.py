"""The last attempts to find and reach each domain, for the operator who asks why it fails.

Resolver and dialler write here what they asked, what they connected to and what came of it; so do the steps after them.
Bounded per domain and in domains.

Source: trust and hosts, section 6.3.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from federation.core.discovery_errors import Attempt, DiscoveryStep
from protofly import limits

_DOMAINS: Final = 1000


@dataclass(slots=True)
class OpenAttempt:
    """An attempt that is going on; its maker writes its end into it."""

    outcome: str = "cancelled"
    detail: str = ""


@dataclass(slots=True)
class AttemptLog:
    """Attempts by domain, oldest first. `clock` gives seconds since the epoch."""

    clock: Callable[[], float] = time.time
    _domains: OrderedDict[str, deque[Attempt]] = field(default_factory=OrderedDict)

    def add(self, domain: str, attempt: Attempt) -> None:
        """Remember one attempt."""
        attempts = self._domains.setdefault(domain, deque(maxlen=limits.DISCOVERY_ATTEMPTS_REMEMBERED))
        attempts.append(attempt)
        self._domains.move_to_end(domain)
        while len(self._domains) > _DOMAINS:
            self._domains.popitem(last=False)

    @contextmanager
    def attempt(self, domain: str, step: DiscoveryStep, subject: str) -> Iterator[OpenAttempt]:
        """Time one attempt; it is remembered however it ends, also when it is cancelled."""
        current = OpenAttempt()
        began = self.clock()
        try:
            yield current
        finally:
            seconds = self.clock() - began
            self.add(domain, Attempt(step, subject, current.outcome, current.detail, began, seconds))

    def of(self, domain: str, *, since: float = 0.0) -> tuple[Attempt, ...]:
        """Attempts for one domain that began at `since` (seconds since the epoch) or later."""
        return tuple(attempt for attempt in self._domains.get(domain, ()) if attempt.at >= since)
