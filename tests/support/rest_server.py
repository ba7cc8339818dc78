"""A small HTTP server for back-ends that tests play: h11 on trio, one handler, and lies where a test wants them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import parse_qsl, unquote

import h11
import trio

JSON = "application/json"


@dataclass(frozen=True)
class Asked:
    """One request. `parts` are the decoded parts of its path; `peer_certificate` is what the client showed."""

    method: str
    target: str
    body: bytes = b""
    peer_certificate: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        path = self.target.partition("?")[0]
        return [unquote(part) for part in path.split("/")[1:]]

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2]))


@dataclass(frozen=True)
class Said:
    """One answer."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Asked], Said]
Lie = Callable[[trio.abc.Stream], Awaitable[None]]


@dataclass
class RestServer:
    """A running server. `lies` are used up first, one for each request, in place of the handler; None is the truth."""

    handler: Handler
    port: int = 0
    scheme: str = "http"
    asked: list[Asked] = field(default_factory=list)
    lies: list[Lie | None] = field(default_factory=list)
    always: Lie | None = None
    connections: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}" if self.scheme == "http" else f"https://localhost:{self.port}"

    def asked_for(self, method: str, start: str = "/") -> list[Asked]:
        return [one for one in self.asked if one.method == method and one.target.startswith(start)]

    async def serve(self, context: ssl.SSLContext | None, raw: trio.SocketStream) -> None:
        self.connections += 1
        stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = raw
        try:
            if context is not None:
                stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
                await stream.do_handshake()
            asked = await _request(stream)
            if asked is None:
                return
            self.asked.append(asked)
            lie = self.lies.pop(0) if self.lies else self.always
            if lie is not None:
                await lie(stream)
                return
            await stream.send_all(answer(self.handler(asked)))
        except (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError):
            pass
        finally:
            await trio.aclose_forcefully(stream)


def answer(said: Said) -> bytes:
    """An answer as bytes."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    connection.next_event()
    headers = [("Content-Length", str(len(said.body))), *said.headers]
    if said.content_type:
        headers.append(("Content-Type", said.content_type))
    head = connection.send(h11.Response(status_code=said.status, headers=headers))
    return (head or b"") + said.body


async def _request(stream: trio.abc.Stream) -> Asked | None:
    connection = h11.Connection(h11.SERVER)
    request: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            certificate = stream.getpeercert(binary_form=True) if isinstance(stream, trio.SSLStream) else None
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
            return Asked(request.method.decode(), request.target.decode("latin-1"), body, certificate, headers)
        else:
            return None


@asynccontextmanager
async def rest_server(handler: Handler, *, context: ssl.SSLContext | None = None) -> AsyncIterator[RestServer]:
    """Run a server on loopback; leaving ends it with everything that hangs on it."""
    server = RestServer(handler, scheme="http" if context is None else "https")
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server.port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, partial(server.serve, context), listeners))
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()
