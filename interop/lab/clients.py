"""How the runtimes of a scene connect: by a socket to one of the nodes of their domain, or in memory to a simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from interop.foreign.local_client import LocalClient
from interop.foreign.simulator import ForeignNode
from interop.participant import AccessPoint
from interop.runtime_client import Answer, Incoming, RuntimeClient
from protofly.errors import TransportError

OnMessage = Callable[[Incoming], None]
NewClient = Callable[[str, OnMessage], RuntimeClient]
"""Makes a client for a runtime: its address, and who gets what it hears."""
Access = Callable[[], AccessPoint]
_FIRST: Final = 0


class _BalancedClient(RuntimeClient):
    """A client of several nodes, as behind a load balancer: when it cannot connect, it tries the next one."""

    def __init__(self, accesses: Sequence[Access], runtime: str, on_message: OnMessage, first: int) -> None:
        access = accesses[first % len(accesses)]()
        super().__init__(url=access.url, runtime=runtime, ssl_context=access.ssl_context, on_message=on_message)
        self._accesses = accesses
        self._next = first

    async def run(self, *, task_status: trio.TaskStatus[Answer] = trio.TASK_STATUS_IGNORED) -> None:
        """See `RuntimeClient`."""
        self._url = self._accesses[self._next % len(self._accesses)]().url
        try:
            await super().run(task_status=task_status)
        except TransportError:
            self._next += 1
            raise


def connecting_to(accesses: Sequence[Access]) -> NewClient:
    """Clients that connect to the nodes of a domain, one after the other."""
    count = _FIRST

    def new_client(runtime: str, on_message: OnMessage) -> RuntimeClient:
        nonlocal count
        count += 1
        return _BalancedClient(accesses, runtime, on_message, count - 1)

    return new_client


def in_memory(node: ForeignNode) -> NewClient:
    """Clients of a simulated node."""
    return lambda runtime, on_message: LocalClient(node, runtime, on_message)
