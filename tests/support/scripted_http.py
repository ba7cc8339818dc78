"""An HTTP server that says exactly what a test wants it to say, over real sockets."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import trio

Play = Callable[[trio.SocketStream], Awaitable[None]]
"""What is done with a line once its request is there."""


class Asked(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    body: bytes


@dataclass
class ScriptedHttp:
    """Plays `script` in order, one entry per request; the last entry again and again."""

    url: str = ""
    script: deque[bytes | Play] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)

    def will(self, *entries: bytes | Play) -> None:
        """From now on this is the script."""
        self.script.clear()
        self.script.extend(entries)

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                request = await _request(stream)
                if request is None:
                    return
                self.asked.append(request)
                entry = self.script.popleft() if len(self.script) > 1 else self.script[0]
                if isinstance(entry, bytes):
                    await stream.send_all(entry)
                else:
                    await entry(stream)
            except trio.BrokenResourceError:
                return


async def _request(stream: trio.SocketStream) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        part = await stream.receive_some()
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    lengths = [int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:")]
    while len(body) < sum(lengths):
        body += await stream.receive_some()
    method, path, _ = first.split(" ")
    return Asked(method, path, body)


def answer(status: int, body: object, *, content_type: str = "application/json") -> bytes:
    """A whole answer; anything but bytes is written as JSON."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


async def silence(_stream: trio.SocketStream) -> None:
    """Say nothing, ever."""
    await trio.sleep_forever()


async def drip(stream: trio.SocketStream) -> None:
    """Promise a body and give one byte, then nothing more."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await trio.sleep_forever()


async def flood(stream: trio.SocketStream) -> None:
    """Give a body without end."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await stream.send_all(b"10000\r\n" + b"A" * 65_536 + b"\r\n")


@asynccontextmanager
async def scripted_http(*entries: bytes | Play) -> AsyncIterator[ScriptedHttp]:
    """Serve on loopback until left."""
    server = ScriptedHttp()
    server.will(*entries)
    async with trio.open_nursery() as nursery:
        (listener, *_) = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        server.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        yield server
        nursery.cancel_scope.cancel()
