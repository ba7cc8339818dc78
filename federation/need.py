"""That a link needs a carrier: said by its messages, heard by its supervisor."""

from __future__ import annotations

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

    async def wait_recalled(self) -> None:
        """Wait until the stub is to end, from now on."""
        self._recalled = trio.Event()
        await self._recalled.wait()

    async def wait(self) -> None:
        """Wait until a carrier is needed; the next wait is for the next need."""
        await self._arisen.wait()
        self._arisen = trio.Event()
