"""One running stub, as those that serve it see it: what it is, what it has open, and what it is still to be given."""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

from federation.core.stub_meters import StubMeters
from protofly.errors import Code, StubFaultError
from protofly.stub import VerifiedStub
from sandbox.core.exchange import GuestEvent
from sandbox.core.grants import Grants, Ledger

EVENT_QUEUE_BYTES: Final = 1 << 20


class RunningStub:
    """The events that wait for one stub, and the ledger of what it uses.

    Events are given in the order in which they were emitted. Their number has no bound, because a notice cannot wait;
    those that bring much (lines) wait for room first.

    Attributes:
        stub: The package that runs.
        events: Those that wait, oldest first.
        ledger: Counts what it has open, and refuses what it may not.
        meters: What the stub of this domain has used, over all its runs.
    """

    def __init__(self, stub: VerifiedStub, grants: Grants, meters: StubMeters) -> None:
        self.stub = stub
        self.ledger = Ledger(grants)
        self.meters = meters
        self.events: deque[GuestEvent] = deque()
        self._event_bytes = 0
        self._room = trio.lowlevel.ParkingLot()
        self._woken = trio.Event()

    def emit(self, event: GuestEvent) -> None:
        """Queue one event, and wake the exchange."""
        self.events.append(event)
        self._event_bytes += len(event.payload)
        self._woken.set()

    async def wait_for_room(self) -> None:
        """Wait while the stub has too much to read already."""
        while self._event_bytes > EVENT_QUEUE_BYTES:
            await self._room.park()

    def take_events(self) -> list[GuestEvent]:
        """All events that wait, oldest first; they are gone then, and lines may bring more."""
        events = list(self.events)
        self.events.clear()
        self._event_bytes = 0
        self._room.unpark_all()
        return events

    def wake(self) -> None:
        """Have the exchange look for work."""
        self._woken.set()

    async def wait_woken(self) -> None:
        """Wait until an event is emitted or `wake` is called, from now on."""
        self._woken = trio.Event()
        await self._woken.wait()

    def fault(self, code: Code, detail: str, fault: str = "") -> StubFaultError:
        """An error that ends this stub, or refuses one of its actions."""
        return StubFaultError(code, detail, domain=self.stub.domain, fault=fault)

    def about(self) -> dict[str, str]:
        """Fields of a line in the log."""
        return {"domain": self.stub.domain, "stub": self.stub.name}
