"""A way between two processes that can be blocked or slowed down: what is sent while it is blocked never arrives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio


class Passage:
    """A port that leads to another one.

    Attributes:
        port: Where it begins.
        seconds: How much later arrives what goes in.
    """

    def __init__(self, target: int, seconds: float) -> None:
        self._target = target
        self.seconds = seconds
        self.port = 0
        self._is_blocked = False
        self._scopes: set[trio.CancelScope] = set()

    def block(self) -> None:
        """Drop everything from now on. Connections stay, and new ones are accepted: nobody is notified of anything."""
        self._is_blocked = True

    def unblock(self) -> None:
        """Let new connections pass. Those that have lost bytes end."""
        self._is_blocked = False
        for scope in self._scopes:
            scope.cancel()

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection."""
        with trio.CancelScope() as scope, suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            self._scopes.add(scope)
            async with (
                client,
                await trio.open_tcp_stream("127.0.0.1", self._target) as target,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._copy, client, target, self.seconds, nursery.cancel_scope)
                await self._copy(target, client, 0.0, nursery.cancel_scope)
        self._scopes.discard(scope)

    async def _copy(
        self, source: trio.SocketStream, sink: trio.SocketStream, seconds: float, scope: trio.CancelScope
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                if seconds:
                    await trio.sleep(seconds)
                if not self._is_blocked:
                    await sink.send_all(data)
        if not self._is_blocked:
            scope.cancel()


@asynccontextmanager
async def passage_to(port: int, *, seconds: float = 0.0) -> AsyncIterator[Passage]:
    """A way to a port of this machine."""
    way = Passage(port, seconds)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, way.serve, 0)
        way.port = listeners[0].socket.getsockname()[1]
        yield way
        nursery.cancel_scope.cancel()
