"""Senders that pause because a link is congested."""

from __future__ import annotations

import trio

from federation.core.link_machine import LinkMachine, queues_of

SLOW_SECONDS = 0.25
FIRST_CONTACT_SECONDS = 2.0


class PausedSenders:
    """Has senders wait until a link has sent some of what it has.

    Attributes:
        is_slow: Waiting was in vain: nobody waits for this link again until it is relieved.
    """

    def __init__(self, machine: LinkMachine) -> None:
        self.is_slow = False
        self._machine = machine
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_congested(self) -> bool:
        """True when senders should pause: half of what may be queued is queued."""
        machine = self._machine
        if machine.canary is None:
            return machine.queue.is_congested
        return any(queue.is_congested for queue in queues_of(machine))

    @property
    def patience_seconds(self) -> float:
        """Seconds for which senders pause: a first contact is worth more patience than a slow line."""
        return SLOW_SECONDS if self._machine.carriers else FIRST_CONTACT_SECONDS

    async def wait_relief(self) -> None:
        """Wait until the far end has accepted some, or the carrier is lost."""
        await self._waiting.park()

    def look_again(self) -> None:
        """Wake them without a promise."""
        self._waiting.unpark_all()

    def relieve(self) -> None:
        """The far end takes messages."""
        self.is_slow = False
        self._waiting.unpark_all()
