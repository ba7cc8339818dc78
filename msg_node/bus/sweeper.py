"""Ends sessions and registry entries that expired, requests without an answer, and silent runtimes.

All of it is done in slices of about a tenth of a millisecond, so that messages hardly notice, however much is over at
once: ten thousand runtimes that were cut off together, a hundred thousand entries that nobody refreshes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

import trio

from msg_node.addresses.foreign_objects import ForeignObjects
from msg_node.bus.core.tables import BusTables
from msg_node.bus.effects import Effects
from msg_node.bus.refusals import Refusals
from msg_node.kernel.clock_steps import ClockSteps
from msg_node.requests.parked_actions import ParkedActions

logger = logging.getLogger("msg_node")

SWEEP_SECONDS = 1.0
PAUSE_SECONDS = 0.004  # between slices: two thousand entries a second, and messages hardly notice
PORTS_AT_ONCE = 100


class Sweeper:
    """Ends what has expired, every second. Before that, it notices when the clock was set, and has terms follow.

    Args:
        effects: End sessions and registry entries that have expired.
        refusals: Answer requests between sessions whose time is over.
        ping_seconds: Silence after which a runtime is pinged.
    """

    def __init__(
        self,
        effects: Effects,
        state: BusTables,
        parked_actions: ParkedActions,
        foreign: ForeignObjects,
        refusals: Refusals,
        *,
        ping_seconds: float,
    ) -> None:
        self._effects = effects
        self._state = state
        self._parked_actions = parked_actions
        self._foreign = foreign
        self._refusals = refusals
        self._connections = refusals.send_queues.connections
        self.ping_seconds = ping_seconds
        self._clock_steps = ClockSteps(time.time(), time.monotonic())

    async def run(self) -> None:
        """End what has expired, ping silent runtimes, close those that do not read; until cancelled."""
        began = trio.current_time()
        while True:
            await trio.sleep_until(began + SWEEP_SECONDS)
            began = trio.current_time()
            await self._sweep(self._sweep_sessions, until=began + SWEEP_SECONDS / 2)
            await self._sweep(self._sweep_actions, until=began + SWEEP_SECONDS * 3 / 4)
            await self._sweep(self._refusals.refuse_overdue, until=began + SWEEP_SECONDS * 3 / 4)
            _attempt(self._foreign.expire)
            _attempt(lambda: self._parked_actions.tick(self._now()))
            await self._look_after_ports()
            await self._sweep(self._effects.sweep_registry, until=began + SWEEP_SECONDS)

    async def _sweep(self, slice_: Callable[[], bool], *, until: float) -> None:
        """Go on until nothing is left, or until there is no time: what is left then is for the next second."""
        while _attempt(slice_):
            await trio.sleep(PAUSE_SECONDS)
            if trio.current_time() > until:
                break

    def _sweep_sessions(self) -> bool:
        return self._effects.sweep_sessions(self._now())

    def _sweep_actions(self) -> bool:
        return self._parked_actions.sweep(self._now())

    def _now(self) -> float:
        """Seconds since the Unix epoch; terms that were running when somebody set the clock have followed."""
        now = time.time()
        step_seconds = self._clock_steps.seen(now, time.monotonic())
        if step_seconds:
            logger.warning("the clock was set by %+.1f s: see what sets it", step_seconds)
            if step_seconds > 0.0:
                self._state.transitions.terms.clock_set_ahead(step_seconds)
            self._state.delivery.parking.owed.clock_set(now, step_seconds)
            self._parked_actions.guaranteed.clock_set(now, step_seconds)
            for port in self._connections.values():
                port.clock_set(now, step_seconds)
        return now

    async def _look_after_ports(self) -> None:
        for number, port in enumerate(list(self._connections.values()), 1):
            _attempt(partial(port.check, self._now(), ping_seconds=self.ping_seconds))
            if number % PORTS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()


def _attempt(step: Callable[[], bool | None]) -> bool:
    """Do one step; true when there may be more to do at once."""
    try:
        return bool(step())
    except Exception:  # a defect of ours may cost what this step was about, never the node
        logger.exception("a sweep failed")
        return False
