"""The part that all connectors share: it makes the port of each runtime, and reports connections to the bus."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

from msg_node.bus.bus import Bus
from msg_node.bus.core.message_queue import QueueBounds
from msg_node.bus.runtime_port import MessageChannel, RuntimePort, RuntimeQueue
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.proof import Offered
from msg_node.kernel.session import Dialect, Line
from protofly.counters import Counters

ANY_ORIGIN: Final = "*"
OnOpened = Callable[[], None]
"""Called when a session has been opened at a port: its connection is not half-open any more."""
_Port = TypeVar("_Port", bound=RuntimePort)


@dataclass(slots=True)
class Reception:
    """Takes runtimes in.

    Attributes:
        max_bytes: Largest message of a runtime.
        queue: What may wait for one runtime.
        origins: Web origins whose pages may connect; `*` is any.
        counters: What came in, and what was refused.
    """

    bus: Bus
    max_bytes: int
    queue: QueueBounds
    origins: Collection[str]
    counters: Counters
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def admits(self, origin: str) -> bool:
        """True if pages of a web origin may connect; what is no browser names none ("")."""
        return not origin or ANY_ORIGIN in self.origins or origin.lower() in self.origins

    def welcome(self, channel: MessageChannel, dialect: Dialect, offered: Offered, on_opened: OnOpened) -> RuntimePort:
        """Give a connection its port. The caller calls `release` when the connection has ended."""
        queue = RuntimeQueue(channel, counters=self.bus.counters, bounds=self.queue)
        port = self.welcome_as(RuntimePort, queue, dialect, offered)
        port.on_opened = on_opened
        return port

    def welcome_as(self, kind: type[_Port], queue: RuntimeQueue, dialect: Dialect, offered: Offered) -> _Port:
        """Give a connection a port of a certain kind, with a queue of its own; see `welcome`."""
        port = kind(Line(next(self._numbers), offered, dialect), queue, now=time.time())
        self.counters[NodeCount.RUNTIMES] += 1
        self.bus.runtimes.connected(port)
        return port

    def release(self, port: RuntimePort) -> None:
        """A connection has ended."""
        self.bus.runtimes.disconnected(port)
