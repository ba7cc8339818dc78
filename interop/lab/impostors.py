"""Those who take the place of a domain: an address that lies name, an endpoint that flawed documents name, a site.

They listen on loopback and say nothing. What they do is notice who comes to them.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

from interop.domain_files import HOST

_HANDSHAKE_SECONDS: Final = 10.0
_HEAD_BYTES: Final = 16_384
_LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ssl.SSLError)
Fetched = tuple[int, str, bytes]
"""Status, content type and body."""


async def impersonate(
    context: ssl.SSLContext,
    on_visit: Callable[[bool], None],
    *,
    host: str = HOST,
    ports: Sequence[int] = (0,),
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Take connections until cancelled; `nursery.start` returns the port, of several the first.

    Visitors are shown the certificate of `context`, and `on_visit` gets whether they accepted it. Port 0 is any.
    """

    async def receive(stream: trio.SocketStream) -> None:
        encrypted = trio.SSLStream(stream, context, server_side=True)
        is_accepted = False
        with suppress(*_LOST), trio.move_on_after(_HANDSHAKE_SECONDS):
            await encrypted.do_handshake()
            is_accepted = True
        on_visit(is_accepted)
        await trio.aclose_forcefully(encrypted)

    listeners = [one for port in ports for one in await trio.open_tcp_listeners(port, host=host)]
    task_status.started(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(receive, listeners)


async def stand_in_site(
    context: ssl.SSLContext,
    answer: Callable[[str], Awaitable[Fetched]],
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve what `answer` returns for each path, until cancelled; `nursery.start` returns the port."""

    async def receive(stream: trio.SocketStream) -> None:
        encrypted = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with suppress(*_LOST), trio.move_on_after(_HANDSHAKE_SECONDS):
            path = await _requested(encrypted)
            if path:
                status, kind, body = await answer(path)
                head = f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                await encrypted.send_all(f"{head}Connection: close\r\n\r\n".encode() + body)
                await encrypted.aclose()
        await trio.aclose_forcefully(encrypted)

    listeners = await trio.open_tcp_listeners(0, host=HOST)
    task_status.started(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(receive, listeners)


async def _requested(stream: trio.SSLStream[trio.SocketStream]) -> str:
    """The path of a request; "" if it is none."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = await stream.receive_some(_HEAD_BYTES)
        head += data
        if not data or len(head) > _HEAD_BYTES:
            return ""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return words[1] if len(words) == 3 else ""
