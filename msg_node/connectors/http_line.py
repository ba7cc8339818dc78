"""An ASGI application on lines of ours: Hypercorn reads and writes HTTP, the rules of the listener bound it.

Hypercorn's own listener knows no client certificates and no bound for clients that drip, so only its protocol is used,
on a line whose first request the listener has read. What it leaves to its listener is done here: head and body of a
request have to be there in time, a client that does not read its answer is cut off, and a long body that nobody wants
ends the line. HTTP/1.1 only: no upgrade of any kind. Framing is strict; see `wire.core.strict_http`.

Source: RFC 9110; RFC 9112; ASGI specification (HTTP, version 2.1).
"""

from __future__ import annotations

import logging
import math
import ssl
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

from msg_node.bus.runtime_port import LINE_BYTES, STUCK_SECONDS
from msg_node.kernel.certificates import PeerCertificate
from protofly.errors import Code, PeerError
from protofly.limits import HTTP_HEAD_BYTES, HTTP_KEEP_ALIVE_SECONDS, HTTP_REQUEST_SECONDS
from wire.byte_channel import ByteChannel
from wire.core.strict_http import StrictConnection

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
_LINE: Final = "trapezoid.line"
_END_OF_HEAD: Final = b"\r\n\r\n"
_TOO_MANY_REQUESTS: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

Judge = Callable[[], float]
"""Asked for each request before anything is done for it: 0.0, or after how many seconds it may come again."""


class _TooManyRequestsError(Exception):
    def __init__(self, wait_seconds: float) -> None:
        super().__init__(wait_seconds)
        self.wait_seconds = wait_seconds


class HttpApplication:
    """Serves an application on lines.

    Args:
        app: The application; the one exception that it has to answer is the PeerError TIMEOUT of a body that does not
            come in time.
        request_seconds: How long the body of a request may take to come.
        backlog_bytes: How much of an answer may wait for a client that reads slowly.
    """

    def __init__(
        self, app: Asgi, *, request_seconds: float = HTTP_REQUEST_SECONDS, backlog_bytes: int = LINE_BYTES
    ) -> None:
        self._app = app
        self._backlog_bytes = backlog_bytes
        self.request_seconds = request_seconds
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
        certificate: PeerCertificate | None = None,
        on_known: Callable[[], None] = lambda: None,
        judge: Judge = lambda: 0.0,
    ) -> None:
        """Serve requests, the first of which begins with `head`, until the client goes or is not to be served.

        Args:
            line: The connection.
            head: What was read from it already.
            remote: Address of the client.
            certificate: Its verified certificate.
            on_known: To be called when the client is no stranger any more.
            judge: Which requests are refused with 429, which ends the line.
        """

        async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            scope.update({_REMOTE: remote, _CERTIFICATE: certificate, _ON_KNOWN: on_known, _LINE: line})
            body = _Body(receive, send, scope, self.request_seconds)
            try:
                await self._app(scope, body.receive, body.send)
            except Exception:  # a defect of ours may cost this request, never the node
                logger.exception("a request of %s failed", remote)

        async with TaskGroup() as requests:
            connection = _Connection(line, self._backlog_bytes)
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
                judge=judge,
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


def line_of(scope: MutableMapping[str, Any]) -> ByteChannel:
    """The connection of a request."""
    line: ByteChannel = scope[_LINE]
    return line


def is_known(scope: MutableMapping[str, Any]) -> None:
    """The client of a request is no stranger any more."""
    scope[_ON_KNOWN]()


class _Body:
    """The body of one request between Hypercorn and the application.

    It has to come in time. A short one is read before its answer leaves, so that further requests may follow; what
    nobody reads of a long one is dropped while the answer leaves, else both sides could wait for each other.
    """

    def __init__(self, receive: _Receive, send: _Send, scope: MutableMapping[str, Any], request_seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._deadline = trio.current_time() + request_seconds
        named = dict(scope["headers"])
        self._is_whole = b"transfer-encoding" not in named and named.get(b"content-length", b"0") == b"0"

    async def receive(self) -> MutableMapping[str, Any]:
        """See the ASGI specification. Raises PeerError TIMEOUT when the body does not come in time."""
        message: MutableMapping[str, Any] = {}
        with trio.CancelScope(deadline=math.inf if self._is_whole else self._deadline):
            message = await self._receive()
        if not message:
            raise PeerError(Code.TIMEOUT, "the body takes too long")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._is_whole = True
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """See the ASGI specification."""
        if not self._is_whole and message["type"] == "http.response.start":
            await self._read_rest()
        if self._is_whole:
            await self._send(message)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drop_rest)
            await self._send(message)
            nursery.cancel_scope.cancel()

    async def _read_rest(self) -> None:
        taken = 0
        with trio.move_on_after(_LINGER_SECONDS):
            while not self._is_whole and taken <= _SHORT_BODY_BYTES:
                message = await self._receive()
                self._is_whole = message["type"] == "http.disconnect" or not message.get("more_body", False)
                taken += len(message.get("body", b""))

    async def _drop_rest(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _Protocol(H11Protocol):
    """HTTP/1.1 and nothing else: strict framing, no upgrade to HTTP/2 or WebSocket, and a judge of each request."""

    def __init__(self, *arguments: Any, judge: Judge, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._judge = judge
        self.connection: Any = StrictConnection(
            h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size
        )

    async def _check_protocol(self, event: h11.Request) -> None:  # noqa: ARG002 - every request counts alike
        """Called for each request before there is anything of it. Raises _TooManyRequestsError."""
        wait_seconds = self._judge()
        if wait_seconds > 0.0:
            raise _TooManyRequestsError(wait_seconds)

    async def _create_stream(self, request: h11.Request) -> None:
        """Serve an upgrade as the plain request that it is as well. Source: RFC 9110, section 7.8."""
        plain = [(name, value) for name, value in request.headers if name != b"upgrade"]
        if len(plain) < len(request.headers):
            request = h11.Request(
                method=request.method, target=request.target, headers=plain, http_version=request.http_version
            )
        await super()._create_stream(request)


class _Connection:
    """One line between its reader and Hypercorn's protocol, which is set before anything is read."""

    def __init__(self, line: ByteChannel, backlog_bytes: int) -> None:
        self._line = line
        self._backlog_bytes = backlog_bytes
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
        try:
            while data:
                await self.protocol.handle(RawData(data))
                data = await self._receive()
        except _TooManyRequestsError as exc:
            await self._write(_TOO_MANY_REQUESTS % max(math.ceil(exc.wait_seconds), 1))
            self._end()
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
        """Write at the pace of the reader; one that does not read is cut off."""
        for start in range(0, len(data), self._backlog_bytes):
            self._line.send_nowait(data[start : start + self._backlog_bytes])
            if self._line.backlog_bytes >= self._backlog_bytes:
                with trio.move_on_after(STUCK_SECONDS) as patience:
                    await self._line.wait_drained()
                if patience.cancelled_caught:
                    self._line.close()
            else:
                await trio.lowlevel.checkpoint()
            if self._line.is_closed:
                self._end()
                return

    def _end(self) -> None:
        self._is_over = True
        self._patience.cancel()


async def read_first_head(
    stream: trio.SocketStream, *, drain_nursery: trio.Nursery, context: ssl.SSLContext | None
) -> tuple[ByteChannel, bytes]:
    """TLS, then everything up to the end of the first request's head; without that end there is no request.

    The caller sets the time limit.

    Raises:
        TransportError: See `ByteChannel.over`.
    """
    line = await ByteChannel.over(stream, drain_nursery=drain_nursery, context=context, server_side=True)
    try:
        head = b""
        while _END_OF_HEAD not in head and len(head) <= HTTP_HEAD_BYTES:
            data = await line.receive()
            if not data:
                break
            head += data
    except BaseException:
        line.close()
        raise
    return line, head


async def _linger(line: ByteChannel) -> None:
    """Read what is still under way: closing on unread bytes would take the answer back from who writes them."""
    taken = 0
    with trio.move_on_after(_LINGER_SECONDS):
        await line.wait_drained()
        while taken <= _LINGER_BYTES and not line.is_closed and (data := await line.receive()):
            taken += len(data)
