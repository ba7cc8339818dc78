"""The lines of a stub over real TLS on loopback, and a far end that a test serves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
import trio.lowlevel
import trio.testing
import trustme

from federation.stubs.egress import Egress, EgressRules, LineOpener
from protofly.documents import Endpoint
from sandbox.core.exchange import ChannelKind, Event, GuestEvent
from tests.support.lines import (
    LoopbackDialler,
    certificate_of,
    client_context,
    server_context,
)
from tests.support.services import PATIENCE_SECONDS
from wire.byte_channel import ByteChannel

URL = "wss://mn.b.example/link"
Serve = Callable[[ByteChannel], Awaitable[None]]


class Far:
    """The far end: a TLS listener on loopback, served by the test."""

    def __init__(self, serve: Serve, certificate: trustme.LeafCert) -> None:
        self._serve = serve
        self._certificate = certificate
        self.failures: list[BaseException] = []

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as self._nursery:
            task_status.started(listener.socket.getsockname()[1])
            await trio.serve_listeners(self._accept, [listener])

    async def _accept(self, stream: trio.SocketStream) -> None:
        try:
            line = await ByteChannel.over(
                stream, drain_nursery=self._nursery, context=server_context(self._certificate), server_side=True
            )
            async with line:
                await self._serve(line)
                await line.aclose()
        except Exception as exc:
            self.failures.append(exc)


class Lines:
    """An egress, and the events that it gives to the guest."""

    def __init__(self, rules: EgressRules, dialler: LoopbackDialler, nursery: trio.Nursery) -> None:
        self.events: list[GuestEvent] = []
        self.dialler = dialler
        self.room = trio.Event()
        self.room.set()
        self._more = trio.Event()
        opener = LineOpener(dialler, client_context())
        self.egress = Egress(rules, opener, self, handler_nursery=nursery, on_ended=lambda _channel, _reason: None)

    async def wait_for_room(self) -> None:
        await self.room.wait()

    def emit(self, event: GuestEvent) -> None:
        self.events.append(event)
        self._more.set()

    async def wait_for(self, op: Event, count: int = 1) -> GuestEvent:
        """The last of so many events of one kind."""
        with trio.fail_after(PATIENCE_SECONDS):
            while len(found := [event for event in self.events if event.op == op]) < count:
                self._more = trio.Event()
                await self._more.wait()
        return found[count - 1]

    def open(self, number: int = 1, *, kind: int = ChannelKind.WEBSOCKET, **members: object) -> None:
        request, endpoint = self.egress.rules.read_request(json.dumps({"endpoint": "mn", **members}).encode())
        self.egress.open(number, kind, request, endpoint)

    @property
    def data(self) -> bytes:
        return b"".join(event.payload for event in self.events if event.op == Event.DATA)


def endpoints(url: str = URL, spki: list[str] | None = None) -> dict[str, Endpoint]:
    return {"mn": Endpoint(name="mn", url=url, spki=spki or [])}


@asynccontextmanager
async def lines(
    serve: Serve,
    *,
    certificate: trustme.LeafCert | None = None,
    rules: EgressRules | None = None,
) -> AsyncIterator[Lines]:
    far = Far(serve, certificate or certificate_of("mn.b.example"))
    async with trio.open_nursery() as nursery:
        port = await nursery.start(far.run)
        dialler = LoopbackDialler(mn_b_example=port)
        async with trio.open_nursery() as handlers:
            yield Lines(rules or EgressRules("b.example", endpoints()), dialler, handlers)
            handlers.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def nothing(line: ByteChannel) -> None:
    """Says nothing and waits for the end."""
    while await line.receive():
        pass
