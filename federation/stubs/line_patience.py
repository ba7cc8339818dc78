"""How long one instance may be without a line when its domain offers other stubs: then another is tried.

A stub opens its line again by itself, so an instance whose line never opens does not end. That is right for the only
stub of a domain; where there are several, another may lead to its node. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from typing import Final

import trio

from federation.core.stub_lifecycle import StubState
from federation.links.domain_link import DomainLink
from protofly.errors import Code, TransportError

FIRST_LINE_SECONDS: Final = 6.0
"""From its start until it is live. Messages wait for 15 s: that leaves time for a second try, mostly for a third."""
SECOND_LINE_SECONDS: Final = 2.0
"""From its first line that could not be opened: it may have another endpoint."""
LOST_LINE_SECONDS: Final = 20.0
"""From the loss of a line that was live. The node at its far end may just be restarted."""


class LinePatience:
    """Watches whether one instance is live; begins with its start.

    Args:
        link: The link that it serves. While that is live by other means, or idle, nothing is missed.

    Attributes:
        was_live: It has been live.
    """

    def __init__(self, link: DomainLink) -> None:
        self.was_live = False
        self._link = link
        self._is_live = False
        self._line_failed = trio.Event()
        self._changed = trio.Event()

    def reported(self, state: StubState) -> None:
        """The instance reports its state."""
        self.was_live |= state is StubState.LIVE
        is_live = state is StubState.LIVE
        if is_live is not self._is_live:
            self._is_live = is_live
            self._changed.set()

    def line_failed(self) -> None:
        """A line of the instance could not be opened."""
        self._line_failed.set()

    async def wait_lost(self) -> TransportError:
        """Wait until the instance has been without a line for too long while one was needed; returns why it ends."""
        while True:
            self._changed = trio.Event()
            if self._is_live:
                await self._changed.wait()
            elif await self._waits_in_vain() and not self._link.is_live and not self._link.is_idle:
                return TransportError(Code.CONNECT_FAILED, "this stub gets no line; another one of its domain is tried")

    async def _waits_in_vain(self) -> bool:
        """Wait until the instance is live; returns True when that took too long, False when its state changed."""
        with trio.move_on_after(LOST_LINE_SECONDS if self.was_live else FIRST_LINE_SECONDS) as patience:
            async with trio.open_nursery() as nursery:
                if not self.was_live:
                    nursery.start_soon(self._wait_line_failed, patience)
                await self._changed.wait()
                nursery.cancel_scope.cancel()
        return patience.cancelled_caught

    async def _wait_line_failed(self, patience: trio.CancelScope) -> None:
        await self._line_failed.wait()
        patience.deadline = min(patience.deadline, trio.current_time() + SECOND_LINE_SECONDS)
