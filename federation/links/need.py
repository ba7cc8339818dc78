"""That a link needs a carrier: said by its messages, heard by its supervisor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class Need:
    """The need of one link.

    Attributes:
        asked_by: The address whose message needs it.
    """

    def __init__(self) -> None:
        self.asked_by = ""
        self._arisen = trio.Event()
        self._recalled = trio.Event()
        self._looked_at = trio.Event()

    @property
    def has_arisen(self) -> bool:
        """True while the supervisor has not looked."""
        return self._arisen.is_set()

    def arise(self, asked_by: str = "") -> None:
        """A carrier is needed."""
        self.asked_by = asked_by or self.asked_by
        self._arisen.set()

    def recall(self) -> None:
        """The stub that carries now is to end in good order; the next need starts it again."""
        self._recalled.set()

    def begin(self) -> None:
        """A stub is to be started by what holds from now on: what was recalled before this is not it."""
        self._recalled = trio.Event()

    async def wait_recalled(self) -> None:
        """Wait until the stub that began last is to end; it may have been recalled while it was starting."""
        await self._recalled.wait()

    def look(self) -> None:
        """The operator has changed which versions of the stub may run: the running one is to look."""
        self._looked_at.set()

    @property
    def is_asked_to_look(self) -> bool:
        """True after `look`, until `is_looked_at` was asked."""
        return self._looked_at.is_set()

    def is_looked_at(self) -> bool:
        """True once after `look`."""
        is_looked_at, self._looked_at = self._looked_at.is_set(), trio.Event()
        return is_looked_at

    async def wait_looked_at(self) -> None:
        """Wait for `look`."""
        await self._looked_at.wait()

    async def wait_arisen(self) -> None:
        """Wait until a carrier is needed, without looking."""
        await self._arisen.wait()

    async def wait(self) -> None:
        """Wait until a carrier is needed; the next wait is for the next need."""
        await self._arisen.wait()
        self._arisen = trio.Event()


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of these returns."""

    async def wait(one: Callable[[], Awaitable[object]]) -> None:
        await one()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for one in waits:
            nursery.start_soon(wait, one)
