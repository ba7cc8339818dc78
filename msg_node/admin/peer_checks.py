"""The federation tester beside a running node: what `trapezoid peer check` finds, for those who ask as operators.

A check asks name servers and sites of strangers and may compile their module, so the program around the node runs it
beside the node, one at a time, and a few a minute.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from policy.core.rates import RateBucket, RateLimit
from protofly.errors import Code, PeerError

CheckPeer = Callable[[str], Awaitable[dict[str, object]]]
"""Checks a domain by the settings of the node, and reports as JSON can say it; changes nothing. Raises HostError."""
RATE: Final = RateLimit(messages_per_second=0.2, burst_seconds=25.0)
"""Five at once, and twelve a minute."""


class PeerChecks:
    """Runs checks, within bounds.

    Args:
        check: Does one.
        monotonic: Seconds.
    """

    def __init__(self, check: CheckPeer, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._monotonic = monotonic
        self._bucket = RateBucket(RATE)
        self._is_busy = False

    async def run(self, domain: str) -> dict[str, object]:
        """Check one domain.

        Raises:
            PeerError: RATE: one is under way, or there were too many.
            HostError: As the check does.
        """
        if self._is_busy:
            raise PeerError(Code.RATE, "a check is under way: ask again when it is done")
        wait_seconds = self._bucket.take(0, self._monotonic())
        if wait_seconds:
            raise PeerError(Code.RATE, f"too many checks: ask again in {wait_seconds:.0f} s")
        self._is_busy = True
        try:
            return await self._check(domain)
        finally:
            self._is_busy = False
