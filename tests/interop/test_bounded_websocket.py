"""The harness' WebSocket client in the hands of a hostile node: no message of it grows without a bound."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio_websocket import ConnectionClosed

from interop.bounded_websocket import BoundedWebSocket, Buffers, open_bounded
from protofly.limits import MESSAGE_FRAGMENTS
from wire.core.websocket import ServerWebSocket


@asynccontextmanager
async def connected(*fragments: bytes, is_whole: bool = True) -> AsyncIterator[BoundedWebSocket]:
    """A client of a server that sends one binary message in these fragments."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await send_fragments(stream)

    async def send_fragments(stream: trio.SocketStream) -> None:
        websocket = ServerWebSocket(is_binary=True)
        while websocket.request_path is None:
            websocket.receive(await stream.receive_some())
        websocket.accept()
        await stream.send_all(websocket.data_to_send())
        protocol = websocket.protocol
        protocol.send_binary(fragments[0], fin=False)
        for number, fragment in enumerate(fragments[1:], 2):
            protocol.send_continuation(fragment, fin=is_whole and number == len(fragments))
        await stream.send_all(b"".join(protocol.data_to_send()))
        with contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        with trio.fail_after(10):
            stream = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
            yield await open_bounded(
                nursery,
                stream,
                "localhost",
                "/ws",
                buffers=Buffers(queue_messages=4, message_bytes=1 << 20, read_bytes=65_536),
            )
            await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fragment", [b"", b"x"])
async def test_fragments_without_end_close_the_connection(fragment: bytes) -> None:
    async with connected(*[fragment] * (MESSAGE_FRAGMENTS + 1), is_whole=False) as client:
        with pytest.raises(ConnectionClosed) as closed:
            await client.get_message()
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1009
        assert client._message_parts == []


async def test_empty_fragments_are_not_kept() -> None:
    async with connected(*[b""] * 1000, is_whole=False) as client:
        while client._frames < 1000:
            await trio.lowlevel.checkpoint()
        assert client._message_parts == []


@pytest.mark.parametrize(
    "fragments", [[b"one", b"", b"two"], [b"", b""], [b"", b"x"], [b"x", b""], [b"x"] * MESSAGE_FRAGMENTS]
)
async def test_a_message_in_fragments_is_whole(fragments: list[bytes]) -> None:
    async with connected(*fragments) as client:
        assert await client.get_message() == b"".join(fragments)
