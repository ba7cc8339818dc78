"""Connections without a session: how many there may be, how many may come, and how long they last.

A connection is half-open from its first byte until a session has been opened on it, or until the domain of a link is
proved. A session of a transport that does not live on one connection (long-polling) is half-open until the runtime has
opened its session at the bus. Pings, probes, failed opens and requests for other things change nothing about that.
Each costs a TLS handshake, so an address has a rate of those that stay without a session or proof; further ones are
closed before that. Source: message specification, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from msg_node.kernel.counts import NodeCount
from msg_node.kernel.keyed_rates import KeyedRates
from protofly.counters import Counters
from protofly.limits import (
    HALF_OPEN,
    HALF_OPEN_PER_ADDRESS,
    LINES_PER_SESSION,
    OPEN_SECONDS,
    UNOPENED_BURST_SECONDS,
    UNOPENED_PER_SECOND,
)
from wire.byte_channel import ByteChannel
from wire.core.address_group import address_group
from wire.core.pending import Pending, PendingTable

Entry = Pending[Callable[[], None]]
SWEEP_SECONDS: Final = 1.0
_ADDRESSES_REMEMBERED: Final = 4096


def _rates(per_second: float) -> KeyedRates:
    return KeyedRates(per_second=per_second, burst_seconds=UNOPENED_BURST_SECONDS, most=_ADDRESSES_REMEMBERED)


class HalfOpen:
    """All that is half-open at one listener.

    Args:
        counters: Where refused, displaced and late ones are counted.
        unopened_per_second: How many of one address may stay without a session or proof.
    """

    def __init__(self, counters: Counters, unopened_per_second: float = UNOPENED_PER_SECOND) -> None:
        self._counters = counters
        self._unopened_per_second = unopened_per_second
        self._unopened = _rates(unopened_per_second)
        self._table: PendingTable[Callable[[], None]] = PendingTable(
            most=HALF_OPEN, most_per_address=HALF_OPEN_PER_ADDRESS
        )
        self._deadlines: dict[Entry, float] = {}  # in the order in which they end: all have the same time

    def __len__(self) -> int:
        return len(self._table)

    def bound(self, unopened_per_second: float) -> None:
        """Let another rate count from now on; every address has a full burst of it."""
        if unopened_per_second != self._unopened_per_second:
            self._unopened_per_second = unopened_per_second
            self._unopened = _rates(unopened_per_second)

    def enter(self, remote: str, end: Callable[[], None], *, is_client: bool = True) -> Entry | None:
        """Count something half-open for the address of its client; None: the address has, or had, too many.

        What is not of a client, but of a proxy that has not said yet whose it is, counts for all and has no rate.

        `end` is called when its time is over, or when there are too many in all and it is the oldest one of the address
        with the most. It has left the table by then.
        """
        group = address_group(remote)
        if is_client and self._unopened.take(group, trio.current_time()) > 0.0:
            self._counters[NodeCount.TOO_MANY_UNOPENED] += 1
            return None
        entry, displaced = self._table.enter(group, end)
        if entry is None:
            self._counters[NodeCount.TOO_MANY_HALF_OPEN] += 1
            return None
        self._deadlines[entry] = trio.current_time() + OPEN_SECONDS
        if displaced is not None:
            self._counters[NodeCount.DISPLACED_HALF_OPEN] += 1
            del self._deadlines[displaced]
            displaced.holder()
        return entry

    def opened(self, entry: Entry) -> None:
        """It has a session or a proof now. May be called again."""
        if self._deadlines.pop(entry, None) is not None:
            self._table.leave(entry)
            self._unopened.give_back(entry.address)

    def leave(self, entry: Entry) -> None:
        """It has ended, open or not. May be called again."""
        self._table.leave(entry)
        self._deadlines.pop(entry, None)

    async def run(self) -> None:
        """End what has stayed half-open for too long, until cancelled."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            self._end_late(trio.current_time())

    def _end_late(self, now: float) -> None:
        while self._deadlines:
            entry, deadline = next(iter(self._deadlines.items()))
            if deadline > now:
                return
            self._counters[NodeCount.WITHOUT_A_SESSION] += 1
            self.leave(entry)
            entry.holder()


class SessionLines:
    """The connections over which one session comes that is not tied to any: so many at once, and no more for its sake.

    A further one stays half-open, with the deadline of all that are; else who has one session could keep any number.
    """

    def __init__(self) -> None:
        self._lines: set[ByteChannel] = set()

    def admits(self, line: ByteChannel) -> bool:
        """True if a connection is one of those that the session may have."""
        if line in self._lines:
            return True
        self._lines = {one for one in self._lines if not one.is_closed}
        if len(self._lines) >= LINES_PER_SESSION:
            return False
        self._lines.add(line)
        return True


class Newcomer:
    """One connection until it is open.

    Attributes:
        scope: Everything that is done for the connection runs in it; cancelled to displace it.
        is_refused: The address has too many of them already.
        phase: What is missing, if its handshake takes too long.
    """

    def __init__(self, half_open: HalfOpen, remote: str, *, is_client: bool = True) -> None:
        self.scope = trio.CancelScope()
        self.phase = "no TLS"
        self._half_open = half_open
        self._since = trio.current_time()
        self._entry = half_open.enter(remote, self.scope.cancel, is_client=is_client)
        self.is_refused = self._entry is None

    def comes_from(self, remote: str) -> None:
        """A proxy has said whose connection it is: it counts for that client, who may have too many of them already."""
        if self._entry is not None:
            self._half_open.leave(self._entry)
            self._entry = self._half_open.enter(remote, self.scope.cancel)
            self.is_refused = self._entry is None

    @property
    def is_late(self) -> bool:
        """True if it has existed for longer than a connection may be half-open."""
        return trio.current_time() >= self._since + OPEN_SECONDS

    def opened(self) -> None:
        """It has a session or a proof: it counts no longer, and has no deadline. May be called again."""
        if self._entry is not None:
            self._half_open.opened(self._entry)
            self._entry = None

    def ended(self) -> None:
        """The connection has ended, open or not."""
        entry, self._entry = self._entry, None  # it refers to this object, and a cycle waits for the garbage collector
        if entry is not None:
            self._half_open.leave(entry)
