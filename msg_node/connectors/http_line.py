"""An ASGI application on lines of ours: HTTP/1.1 by h11, one request after the other, within the bounds of a listener.

A line comes with the head of its first request, which its listener has read. A later head has to come in time, and so
has a body; a client that does not read its answer is cut off, and a long body that nobody wants ends the line. There is
no upgrade of any kind: such a request is served as the plain request that it is as well. Framing is strict; see
`wire.core.strict_http`.

Nothing reads ahead: bytes are read while a head is awaited, and when the application asks for more of its request. So
a request costs no task, and what a client sends too early stays in the kernel. At most one block is held: what was read
behind the end of a request waits for its answer.

Source: RFC 9110; RFC 9112; ASGI specification (HTTP, version 2.1).
"""

from __future__ import annotations

import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import unquote

import h11
import trio
from starlette.requests import ClientDisconnect

from msg_node.bus.runtime_port import LINE_BYTES, STUCK_SECONDS
from msg_node.kernel.certificates import PeerCertificate
from protofly.errors import Code, PeerError
from protofly.limits import HTTP_HEAD_BYTES, HTTP_KEEP_ALIVE_SECONDS, HTTP_REQUEST_SECONDS
from wire.byte_channel import ByteChannel
from wire.core.strict_http import StrictConnection

logger = logging.getLogger("msg_node")

Asgi = Callable[[Any, Any, Any], Awaitable[None]]
_Message = MutableMapping[str, Any]
_REQUESTS_PER_LINE: Final = 1000
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 4 << 20
_SHORT_BODY_BYTES: Final = 64 << 10
_REMOTE: Final = "trapezoid.remote"
_CERTIFICATE: Final = "trapezoid.certificate"
_ON_KNOWN: Final = "trapezoid.on_known"
_LINE: Final = "trapezoid.line"
_ALLOW_BODY: Final = "trapezoid.allow_body"
_END_OF_HEAD: Final = b"\r\n\r\n"
_BODILESS: Final = frozenset({204, 304})
_TOO_MANY_REQUESTS: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

Judge = Callable[[str], float]
"""Asked for each request, with the address of its client, before anything is done for it: 0.0, or after how many
seconds it may come again."""
ClientOf = Callable[[Iterable[tuple[bytes, bytes]]], str]
"""The address of the client of a request, by the fields of its header; raises PeerError PROXY_HEADER."""


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

    async def serve(
        self,
        line: ByteChannel,
        head: bytes,
        *,
        client_of: ClientOf,
        certificate: PeerCertificate | None = None,
        on_known: Callable[[], None] = lambda: None,
        judge: Judge = lambda _remote: 0.0,
    ) -> None:
        """Serve requests, the first of which begins with `head`, until the client goes or is not to be served.

        Args:
            line: The connection.
            head: What was read from it already.
            client_of: Who the client of a request is; one that it refuses is answered, and ends the line.
            certificate: Its verified certificate.
            on_known: To be called when the client is no stranger any more.
            judge: Which requests are refused with 429, which ends the line.
        """
        known = {_CERTIFICATE: certificate, _ON_KNOWN: on_known, _LINE: line}
        http = _HttpLine(line, head, self._backlog_bytes)
        served = 0
        while (request := await http.next_request()) is not None:
            try:
                client = client_of(request.headers)
            except PeerError as exc:
                await http.write(refusal_of(exc))
                break
            wait_seconds = judge(client)
            if wait_seconds > 0.0:
                await http.write(_TOO_MANY_REQUESTS % max(math.ceil(wait_seconds), 1))
                break
            served += 1
            http.begin(request, self.request_seconds, is_last=served >= _REQUESTS_PER_LINE)
            of_request = {_REMOTE: client, _ALLOW_BODY: http.allow_body}
            try:
                await self._app(_scope_of(request) | known | of_request, http.receive, http.send)
            except ClientDisconnect:  # before its body was whole, which is nobody's defect
                break
            except Exception:  # a defect of ours may cost this request, never the node
                logger.exception("a request of %s failed", client)
            if not await http.finish():
                break
        if not http.has_gone:
            await _linger(line)


def refusal_of(error: PeerError) -> bytes:
    """The whole answer to a request that is refused before it is read."""
    text = f"{error.code.word}: {error.detail}\n".encode()
    head = f"HTTP/1.1 {error.code.status} Refused\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + text


def _scope_of(request: h11.Request) -> dict[str, Any]:
    path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.1"},
        "http_version": request.http_version.decode("ascii"),
        "method": request.method.decode("ascii").upper(),
        "scheme": "http",  # or with TLS: that is none of its business
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": list(request.headers),
        "client": None,
        "server": None,
    }


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


def allow_body(scope: MutableMapping[str, Any], seconds: float) -> None:
    """Let the body of a request take so many seconds from now on: its sender is known, and it is long."""
    scope[_ALLOW_BODY](seconds)


class _HttpLine:
    """The requests of one line, one after the other.

    Use: `next_request`, `begin`, then `receive` and `send` for the application, and `finish`.

    Attributes:
        has_gone: The client has ended the line, or took too long with a head: it reads nothing more.
    """

    def __init__(self, line: ByteChannel, head: bytes, backlog_bytes: int) -> None:
        self._line = line
        self._backlog_bytes = backlog_bytes
        self._http = StrictConnection(h11.SERVER, max_incomplete_event_size=HTTP_HEAD_BYTES)
        self._http.receive_data(head)
        self._reading = trio.Lock()
        self._writing = trio.Lock()
        self._body_deadline = math.inf
        self._is_bodiless = False
        self._head = b""
        self._is_last = False
        self.has_gone = False

    async def next_request(self) -> h11.Request | None:
        """The next request, once its head is there; None when there is none to be served."""
        event: _Event = h11.ConnectionClosed()
        try:
            with trio.move_on_after(HTTP_KEEP_ALIVE_SECONDS):
                event = await self._next_event()
        except h11.RemoteProtocolError as exc:
            await self._refuse(exc.error_status_hint)
            return None
        if isinstance(event, h11.Request):
            return event
        self.has_gone = True
        return None

    def begin(self, request: h11.Request, seconds: float, *, is_last: bool) -> None:
        """Serve this request now; its body may take so many seconds. The last one of a line ends it."""
        self.allow_body(seconds)
        self._is_bodiless = request.method == b"HEAD"
        self._is_last = is_last
        if self._http.they_are_waiting_for_100_continue:
            self._line.send_nowait(self._encoded(h11.InformationalResponse(status_code=100, headers=[_date()])))

    def allow_body(self, seconds: float) -> None:
        """Let the body of this request take so long from now on."""
        self._body_deadline = trio.current_time() + seconds

    async def finish(self) -> bool:
        """End the request when its application is done with it. Returns True if another may follow."""
        if self._http.our_state is h11.SEND_RESPONSE:
            await self._refuse(500)
        if self._http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._http.start_next_cycle()
            return not self.has_gone
        return False

    # What comes.

    @property
    def _has_body_to_come(self) -> bool:
        return self._http.their_state is h11.SEND_BODY

    async def receive(self) -> _Message:
        """See the ASGI specification. Raises PeerError TIMEOUT when the body does not come in time."""
        async with self._reading:
            # Decided only now: the reader before may have taken the end of the body, and a wait for the client to go
            # has no deadline.
            with trio.CancelScope(deadline=self._body_deadline if self._has_body_to_come else math.inf):
                return await self._next_message()
        raise PeerError(Code.TIMEOUT, "the body takes too long")

    async def _receive(self) -> _Message:
        async with self._reading:
            return await self._next_message()

    async def _next_message(self) -> _Message:
        try:
            event = await self._next_event()
        except h11.RemoteProtocolError as exc:
            await self._refuse(exc.error_status_hint)
            return {"type": "http.disconnect"}
        if isinstance(event, h11.Data):
            return {"type": "http.request", "body": bytes(event.data), "more_body": True}
        if isinstance(event, h11.EndOfMessage):
            return {"type": "http.request", "body": b"", "more_body": False}
        if event is h11.PAUSED:  # the next request waits for the answer to this one
            await trio.sleep_forever()
        return {"type": "http.disconnect"}

    async def _next_event(self) -> _Event:
        """Wait for the next event of the client. Raises h11.RemoteProtocolError if it is not HTTP."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._line.receive()
            if not data:
                self.has_gone = True
                return h11.ConnectionClosed()
            self._http.receive_data(data)
        return event

    # What leaves.

    async def send(self, message: _Message) -> None:
        """See the ASGI specification.

        A short body is read before its answer leaves, so that further requests may follow; what nobody reads of a long
        one is dropped while the answer leaves, else both sides could wait for each other.
        """
        if self._has_body_to_come and message["type"] == "http.response.start":
            await self._read_rest()
        if not self._has_body_to_come:
            await self._send(message)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drop_rest)
            await self._send(message)
            nursery.cancel_scope.cancel()

    async def _read_rest(self) -> None:
        taken = 0
        with trio.move_on_after(_LINGER_SECONDS):
            while self._has_body_to_come and not self.has_gone and taken <= _SHORT_BODY_BYTES:
                taken += len((await self._receive()).get("body", b""))

    async def _drop_rest(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _send(self, message: _Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), _date()]
            if self._is_last:
                headers.append((b"connection", b"close"))
            status = int(message["status"])
            self._is_bodiless = self._is_bodiless or status in _BODILESS
            self._head = self._encoded(h11.Response(status_code=status, headers=headers))
            return  # it leaves with the begin of its body, in one block
        data, self._head = self._head, b""
        body = b"" if self._is_bodiless else bytes(message.get("body", b""))
        if body:
            data += self._encoded(h11.Data(data=body))
        if not message.get("more_body", False):
            data += self._encoded(h11.EndOfMessage())
        await self.write(data)

    async def _refuse(self, status: int) -> None:
        """Answer a request that is none, or is not served, if it was not answered yet."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = [(b"content-length", b"0"), (b"connection", b"close"), _date()]
        head = self._encoded(h11.Response(status_code=status, headers=headers))
        await self.write(head + self._encoded(h11.EndOfMessage()))

    def _encoded(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> bytes:
        try:
            return self._http.send(event) or b""
        except h11.LocalProtocolError:
            if self._http.their_state is not h11.ERROR:
                raise
            return b""  # it was refused in the middle, and nobody needs the answer

    async def write(self, data: bytes) -> None:
        """Write at the pace of the reader; one that does not read is cut off."""
        async with self._writing:
            for start in range(0, len(data), self._backlog_bytes):
                self._line.send_nowait(data[start : start + self._backlog_bytes])
                if self._line.backlog_bytes < self._backlog_bytes:
                    await trio.lowlevel.checkpoint()
                    continue
                with trio.move_on_after(STUCK_SECONDS) as patience:
                    await self._line.wait_drained()
                if patience.cancelled_caught:
                    self._line.close()
                    return


_Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


def _date() -> tuple[bytes, bytes]:
    return b"date", formatdate(time.time(), usegmt=True).encode("ascii")


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
