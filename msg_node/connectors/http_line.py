"""An ASGI application on the lines of the door: Hypercorn reads and writes HTTP, the door's rules bound it.

Hypercorn's own listener knows no client certificates and no bound for clients that drip, so only its protocol is used,
on a line whose first request the door has read. What it leaves to its listener is done here: a request's head has to be
there in time, who does not read an answer is cut off, and a long body that nobody wants ends the line.

Source: RFC 9110; RFC 9112; the ASGI specification, HTTP version 2.1.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, cast

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState

from federation.byte_channel import ByteChannel
from msg_node.core.certificates import PeerCertificate
from msg_node.runtime_port import LINE_BYTES, STUCK_SECONDS
from protofly.limits import HTTP_HEAD_BYTES, HTTP_KEEP_ALIVE_SECONDS

logger = logging.getLogger("msg_node")

Asgi = Callable[[Any, Any, Any], Awaitable[None]]
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 4 << 20
_SHORT_BODY_BYTES: Final = 64 << 10
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_REMOTE: Final = "trapezoid.remote"
_CERTIFICATE: Final = "trapezoid.certificate"
_ON_KNOWN: Final = "trapezoid.on_known"


class HttpApplication:
    """Serves an application on lines."""

    def __init__(self, app: Asgi) -> None:
        self._app = app
        self._context = WorkerContext(None)
        self._config = Config()
        self._config.accesslog = None
        self._config.errorlog = None
        self._config.include_server_header = False
        self._config.h11_max_incomplete_size = HTTP_HEAD_BYTES

    async def serve(
        self,
        line: ByteChannel,
        head: bytes,
        *,
        remote: str,
        certificate: PeerCertificate | None,
        on_known: Callable[[], None],
    ) -> None:
        """Serve requests, the first of which begins with `head`, until the client goes or is not to be served.

        Args:
            line: The connection.
            head: What was read from it already.
            remote: Address of the client.
            certificate: Its verified certificate.
            on_known: To be called when the client is no stranger any more.
        """

        async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            scope.update({_REMOTE: remote, _CERTIFICATE: certificate, _ON_KNOWN: on_known})
            body = _Body(receive, send, scope)
            try:
                await self._app(scope, body.receive, body.send)
            except Exception:  # a defect of ours may cost this request, never the node
                logger.exception("a request of %s failed", remote)

        async with TaskGroup() as requests:
            connection = _Connection(line)
            connection.protocol = _Protocol(
                ASGIWrapper(cast("ASGIFramework", app)),
                self._config,
                self._context,
                requests,
                ConnectionState({}),
                ssl=False,  # or with: that is none of its business
                client=None,
                server=None,
                send=connection.take,
            )
            await connection.read(head)
        if connection.has_unread:
            await _linger(line)


def remote_of(scope: MutableMapping[str, Any]) -> str:
    """Address of the client of a request."""
    return str(scope[_REMOTE])


def certificate_of(scope: MutableMapping[str, Any]) -> PeerCertificate | None:
    """The certificate that came with the connection of a request."""
    certificate: PeerCertificate | None = scope[_CERTIFICATE]
    return certificate


def is_known(scope: MutableMapping[str, Any]) -> None:
    """The client of a request is no stranger any more."""
    scope[_ON_KNOWN]()


class _Body:
    """Sees to it that a request's body is read before its answer leaves, if it is short: then others may follow."""

    def __init__(self, receive: _Receive, send: _Send, scope: MutableMapping[str, Any]) -> None:
        self._receive = receive
        self._send = send
        named = dict(scope["headers"])
        self._is_whole = b"transfer-encoding" not in named and named.get(b"content-length", b"0") == b"0"

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._is_whole = True
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if not self._is_whole and message["type"] == "http.response.start":
            await self._read_rest()
        await self._send(message)

    async def _read_rest(self) -> None:
        taken = 0
        with trio.move_on_after(_LINGER_SECONDS):
            while not self._is_whole and taken <= _SHORT_BODY_BYTES:
                taken += len((await self.receive()).get("body", b""))


class _Protocol(H11Protocol):
    """HTTP/1.1 and nothing else: no upgrade to HTTP/2."""

    async def _check_protocol(self, event: h11.Request) -> None:
        """See `H11Protocol`."""


class _Connection:
    """One line between its reader and Hypercorn's protocol, which is set before anything is read."""

    def __init__(self, line: ByteChannel) -> None:
        self._line = line
        self._patience = trio.CancelScope(deadline=trio.current_time() + HTTP_KEEP_ALIVE_SECONDS)
        self._is_over = False
        self._writing = trio.Lock()
        self.protocol: H11Protocol
        self.has_unread = False
        """Whether it was ended while the client may still have been writing."""

    async def read(self, data: bytes) -> None:
        """Give the protocol everything that comes, `data` first, until one side ends it.

        A head has to be there in time; while a request is served there is no hurry.
        """
        while data:
            await self.protocol.handle(RawData(data))
            data = await self._receive()
        self.has_unread = self._is_over and not self._line.is_closed
        await self.protocol.handle(Closed())

    async def _receive(self) -> bytes:
        if self._is_over:
            return b""
        self._patience = trio.CancelScope(deadline=self._patience.deadline)
        with self._patience:
            return await self._line.receive()
        return b""

    async def take(self, event: Event) -> None:
        """Do what the protocol asks for."""
        if isinstance(event, RawData):
            async with self._writing:
                await self._write(event.data)
        elif isinstance(event, Closed):
            self._end()
        elif isinstance(event, Updated):
            self._patience.deadline = trio.current_time() + HTTP_KEEP_ALIVE_SECONDS if event.idle else math.inf

    async def _write(self, data: bytes) -> None:
        """Write at the pace of who reads; who does not is cut off."""
        line = self._line
        line.send_nowait(data)
        if line.backlog_bytes > LINE_BYTES:
            with trio.move_on_after(STUCK_SECONDS) as patience:
                await line.wait_drained()
            if patience.cancelled_caught:
                line.close()
        else:
            await trio.lowlevel.checkpoint()
        if line.is_closed:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._patience.cancel()


async def _linger(line: ByteChannel) -> None:
    """Read what is still under way: closing on unread bytes would take the answer back from who writes them."""
    taken = 0
    with trio.move_on_after(_LINGER_SECONDS):
        await line.wait_drained()
        while taken <= _LINGER_BYTES and not line.is_closed and (data := await line.receive()):
            taken += len(data)
