"""What time brings: sessions and registry entries that are over, answers that did not come, runtimes that are silent.

All of it is done in slices of about a tenth of a millisecond, so that messages hardly notice, however much is over at
once: ten thousand runtimes that were cut off together, a hundred thousand entries that nobody refreshes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import trio

from msg_node.bus.effects import Effects
from msg_node.bus.runtime_port import RuntimePort

SWEEP_SECONDS = 1.0
PAUSE_SECONDS = 0.004  # between slices: two thousand entries a second, and messages hardly notice
PORTS_AT_ONCE = 100


class Sweeper:
    """Ends what has expired, every second.

    Args:
        effects: Carries out what follows.
        connections: Of all runtimes.
        ping_seconds: Silence after which a runtime is pinged.
        slices: What else is to be done until nothing of it is left; each does some, and says whether there may be more.
        ticks: What else is to be done every second.
    """

    def __init__(
        self,
        effects: Effects,
        connections: Mapping[int, RuntimePort],
        *,
        ping_seconds: float,
        slices: tuple[Callable[[], bool], ...],
        ticks: tuple[Callable[[], None], ...],
    ) -> None:
        self._effects = effects
        self._connections = connections
        self._ping_seconds = ping_seconds
        self._slices = slices
        self._ticks = ticks

    async def run(self) -> None:
        """End what has expired, ping silent runtimes, close those that do not read; until cancelled."""
        began = trio.current_time()
        while True:
            await trio.sleep_until(began + SWEEP_SECONDS)
            began = trio.current_time()
            await self._sweep(self._effects.sweep_sessions, until=began + SWEEP_SECONDS / 2)
            for slice_ in self._slices:
                await self._sweep(slice_, until=began + SWEEP_SECONDS * 3 / 4)
            for tick in self._ticks:
                tick()
            await self._look_after_ports()
            await self._sweep(self._effects.sweep_registry, until=began + SWEEP_SECONDS)

    async def _sweep(self, slice_: Callable[[], bool], *, until: float) -> None:
        """Go on until nothing is left, or until there is no time: what is left then is for the next second."""
        while slice_():
            await trio.sleep(PAUSE_SECONDS)
            if trio.current_time() > until:
                break

    async def _look_after_ports(self) -> None:
        for number, port in enumerate(list(self._connections.values()), 1):
            port.check(time.time(), ping_seconds=self._ping_seconds)
            if number % PORTS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
