"""The places of look-ups under way: names that nobody answers cost those time who ask for them, and no others.

A look-up takes up to `DISCOVERY_SECONDS` if name servers are silent, and its asker may have chosen the name for that.
So each asker has few places, and there are three lanes: look-ups of peers, which the settings name; those of our own
runtimes and of the node; those of strangers that came to us. Who fills one lane delays nobody in another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

import trio

from protofly import limits


class Lane(Enum):
    """Those among whom `DISCOVERY_IN_FLIGHT` places are shared."""

    PEERS = auto()
    OURS = auto()
    STRANGERS = auto()


@dataclass(slots=True)
class _Asker:
    """One asker with look-ups under way or waiting."""

    limiter: trio.CapacityLimiter = field(
        default_factory=lambda: trio.CapacityLimiter(limits.DISCOVERY_IN_FLIGHT_PER_ASKER)
    )
    lookups: int = 0


class LookupPlaces:
    """Lets look-ups begin, in each lane in the order in which they came."""

    def __init__(self) -> None:
        self._lanes = {lane: trio.CapacityLimiter(limits.DISCOVERY_IN_FLIGHT) for lane in Lane}
        self._askers: dict[str, _Asker] = {}
        self._wanted: Counter[str] = Counter()

    def is_wanted(self, domain: str) -> bool:
        """True while somebody looks a domain up, or waits for a place to do so."""
        return domain in self._wanted

    @asynccontextmanager
    async def place(self, domain: str, asked_by: str, lane: Lane) -> AsyncIterator[None]:
        """Wait for a place in a lane, and keep it inside the block.

        Args:
            domain: To be looked up there.
            asked_by: The asker, who may have few places at a time; "" for the node itself, which may have all.
            lane: Those with whom the places are shared.
        """
        asker = self._askers.setdefault(asked_by, _Asker()) if asked_by else _Asker()
        asker.lookups += 1
        self._wanted[domain] += 1
        try:
            async with asker.limiter, self._lanes[lane]:
                yield
        finally:
            asker.lookups -= 1
            if not asker.lookups:
                self._askers.pop(asked_by, None)
            self._wanted[domain] -= 1
            if not self._wanted[domain]:
                del self._wanted[domain]
