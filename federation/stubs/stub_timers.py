"""The timers of one stub. Source: docs/abi.md, "Actions"."""

from __future__ import annotations

import trio

from federation.stubs.running_stub import RunningStub
from sandbox.core.exchange import Event, GuestAction, GuestEvent


class StubTimers:
    """Sets timers, and gives the stub the event `timer` when one ends."""

    def __init__(self, running: RunningStub, handler_nursery: trio.Nursery) -> None:
        self._running = running
        self._nursery = handler_nursery
        self._scopes: dict[int, trio.CancelScope] = {}

    def set(self, action: GuestAction) -> None:
        """Set a timer anew, or cancel it: the delay is in the payload.

        Raises:
            StubFaultError: STUB_DENIED; see `Ledger.set_timer`.
        """
        delay_ms = self._running.ledger.set_timer(action.arg, action.payload)
        old = self._scopes.pop(action.arg, None)
        if old is not None:
            old.cancel()
        if delay_ms:
            scope = self._scopes[action.arg] = trio.CancelScope()
            self._nursery.start_soon(self._ring, action.arg, delay_ms / 1000, scope)

    async def _ring(self, number: int, delay_seconds: float, scope: trio.CancelScope) -> None:
        with scope:
            await trio.sleep(delay_seconds)
            if self._scopes.get(number) is scope:
                del self._scopes[number]
                self._running.ledger.timer_fired(number)
            self._running.emit(GuestEvent(Event.TIMER, number, b""))
