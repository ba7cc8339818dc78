"""How a node stops: it takes nothing new, answers what is under way, hands over what it has, and says what is lost.

    refuse sessions, links, requests ─▶ wait for replies ─▶ answer the rest ─▶ close runtimes ─▶ hand over ─▶ end links

Where other nodes serve the domain, they get the links first, with what waits on them and the requests that are open.

All of it ends at one deadline (`node.drain_seconds`), and each step takes only as long as something is left for it. The
WebSocket of a runtime is closed first from our side; what its runtime sends until it answers is taken, for
`CLOSE_SECONDS` at most. What then waits for another domain goes over its link until that domain has acknowledged it.
Actions are stored all the time.

What is lost is what nobody is notified of: messages without a reply for another domain that has not acknowledged them,
and messages that a connected runtime did not read. Requests are answered, actions come back with the next start.
Source: message specification, section 5.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol

import trio

from federation.core.link_machine import queues_of
from federation.links.domain_link import close_link
from federation.links.router import Federation
from msg_node.bus.bus import Bus
from msg_node.kernel.counts import NodeCount
from protofly.errors import Code
from protofly.limits import DRAIN_RETRY_SECONDS

logger = logging.getLogger("msg_node")

LOOK_SECONDS: Final = 0.005
CALM_SECONDS: Final = 0.05
"""Silence after which runtimes are taken to have said what they wanted to say."""
MOST_CALM_SECONDS: Final = 0.5
CLOSE_SECONDS: Final = 2.0
"""Time in which runtimes answer our close."""
HURRY_SECONDS: Final = 0.2
"""Time in which runtimes answer our close when the node is to stop at once."""
GOODBYE_SECONDS: Final = 1.0
"""Time in which links end."""
REPLIES_SHARE: Final = 0.7
"""Share of the whole time for replies: the rest is for closing connections and handing messages over."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Counts of messages and rows that were lost when the node stopped.

    Attributes:
        unsent: For other domains, by domain.
        unread: For runtimes that were connected.
        unstored: Rows of the state that the storage did not take. They were confirmed to nobody.
    """

    unsent: dict[str, int]
    unread: int
    unstored: int = 0

    @property
    def messages(self) -> int:
        """All messages that are lost."""
        return sum(self.unsent.values()) + self.unread

    @property
    def is_complete(self) -> bool:
        """True if nothing is lost."""
        return not self.messages and not self.unstored

    def report(self, reason: str) -> None:
        """Say in the log, in one line, what is lost.

        Args:
            reason: Why rows were not stored.
        """
        by_domain = ", ".join(f"{count} for {domain}" for domain, count in sorted(self.unsent.items()))
        about = f"{by_domain or 'none for other domains'}, {self.unread} that runtimes did not read"
        if self.unstored:
            text = "stopped: %d changes of the state are not stored, %d messages are lost: %s; %s"
            logger.error(text, self.unstored, self.messages, about, reason)
        elif self.messages:
            logger.error("stopped: %d messages are lost: %s", self.messages, about)
        else:
            logger.info("stopped: no message is lost")


class OtherNodes(Protocol):
    """The other nodes of the domain, for one that stops."""

    @property
    def awaited(self) -> int:
        """Requests of sessions here that they have, and that have no reply yet."""

    def alternatives(self) -> tuple[str, ...]:
        """URLs where runtimes reach those that are alive."""

    async def hand_over(self) -> None:
        """Give them the links to other domains."""

    async def finish(self) -> None:
        """Answer what waits for them, and wait until they have what they were sent."""


class Drain:
    """Stops the traffic of a node in order.

    Args:
        bus: Of the node.
        federation: Its links.
        seconds: Time for everything, asked when it begins.
        others: The other nodes of the domain, None for a node alone.
    """

    def __init__(
        self, bus: Bus, federation: Federation, seconds: Callable[[], float], others: OtherNodes | None = None
    ) -> None:
        self._others = others
        self._bus = bus
        self._federation = federation
        self._ask_seconds = seconds
        self._unread = 0
        self._has_answered = False

    async def run(self) -> None:
        """Stop the traffic; returns when nothing is left to do, or the time is over. Once."""
        bus, federation = self._bus, self._federation
        began, seconds = trio.current_time(), self._ask_seconds()
        federation.visitors.is_draining = True
        if self._others is not None:
            await self._end_links()
            await self._others.hand_over()
        bus.refuse_new(DRAIN_RETRY_SECONDS, () if self._others is None else self._others.alternatives())
        await self._wait_until(self._has_settled, began + seconds * REPLIES_SHARE)
        if bus.runtimes.live_sessions:
            await self._wait_for_calm()
        self._answer_rest()
        connections = bus.send_queues.connections
        await self._wait_until(lambda: not connections, trio.current_time() + CLOSE_SECONDS)
        bus.runtimes.stop_reading()  # else one that never answers adds to what is handed over until the links end
        if self._others is not None:
            await self._others.finish()
        await self._wait_until(lambda: not self._unsent(), began + seconds)
        for carrier in [carrier for link in federation.links for carrier in link.machine.carriers]:
            carrier.drain()
        links = federation.links
        await self._wait_until(lambda: not any(link.is_live for link in links), trio.current_time() + GOODBYE_SECONDS)

    async def hurry(self) -> None:
        """In place of the rest of `run`: answer what is under way, close runtimes, and wait for nobody."""
        if not self._has_answered:
            self._answer_rest()
        connections = self._bus.send_queues.connections
        await self._wait_until(lambda: not connections, trio.current_time() + HURRY_SECONDS)

    def _answer_rest(self) -> None:
        """Answer or store every request, and close runtimes behind what waits for them."""
        self._has_answered = True
        self._bus.answer_rest()
        for link in self._federation.links:
            link.stop_waiting(Code.DRAINING, "the node stops")
        self._unread = self._bus.runtimes.finish()

    async def _end_links(self) -> None:
        """End the carriers of all links in good order; what comes for them meanwhile waits."""
        links = self._federation.links
        for link in links:
            link.queue.awaited_until = link.now() + GOODBYE_SECONDS
            close_link(link)
        await self._wait_until(lambda: not any(link.is_live for link in links), trio.current_time() + GOODBYE_SECONDS)

    def give_up(self) -> Lost:
        """Answer and record what is left when the traffic has stopped, and return the messages that are lost. Once."""
        unsent = self._unsent()
        for link in self._federation.links:
            link.give_up(Code.DRAINING, "the node stops")
        return Lost(unsent, self._unread)

    def _unsent(self) -> dict[str, int]:
        """Messages for other domains that are neither acknowledged nor answered nor stored, by domain."""
        links = self._federation.links
        waiting = {link.domain: chain.from_iterable(queues_of(link.machine)) for link in links}
        counts = {domain: sum(not one.message.expects_reply for one in rest) for domain, rest in waiting.items()}
        return {domain: count for domain, count in counts.items() if count}

    def _has_settled(self) -> bool:
        """True when no runtime that is connected waits for anything. Stores actions whose senders wait."""
        self._bus.parked_actions.recorder.park_owed()
        if not self._bus.runtimes.live_sessions:
            return True
        if self._others is not None and self._others.awaited:
            return False
        return not self._bus.unfinished and not any(len(link.machine.replies) for link in self._federation.links)

    async def _wait_for_calm(self) -> None:
        """Wait until no runtime has sent anything for a moment: what they had written is read then."""
        counters, until = self._bus.counters, trio.current_time() + MOST_CALM_SECONDS
        seen, since = counters[NodeCount.FRAMES_IN], trio.current_time()
        while trio.current_time() < min(since + CALM_SECONDS, until):
            await trio.sleep(LOOK_SECONDS)
            if counters[NodeCount.FRAMES_IN] != seen:
                seen, since = counters[NodeCount.FRAMES_IN], trio.current_time()

    async def _wait_until(self, condition: Callable[[], bool], until: float) -> None:
        while trio.current_time() < until:
            if condition():
                return
            await trio.sleep(LOOK_SECONDS)
