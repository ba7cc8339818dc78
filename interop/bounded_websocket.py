"""trio-websocket's client with a bound on the frames of one message: a hostile node makes no client of ours grow.

The library bounds the bytes of a message only, and keeps empty fragments. Written against its version 0.12, which
pyproject.toml pins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trio_websocket import WebSocketConnection
from wsproto import ConnectionType, WSConnection

from protofly.limits import MESSAGE_FRAGMENTS

if TYPE_CHECKING:
    import trio
    from wsproto.events import BytesMessage, TextMessage


class BoundedWebSocket(WebSocketConnection):
    """A client's WebSocket that closes with 1009 when a message has more than `MESSAGE_FRAGMENTS` frames."""

    _frames = 0

    async def _handle_message_event(self, event: BytesMessage | TextMessage) -> None:
        """See `WebSocketConnection`; called for each frame, or each part of one that has arrived."""
        self._frames += event.frame_finished
        if self._frames > MESSAGE_FRAGMENTS:
            self._message_size = self._max_message_size + 1  # the library closes as it does for too many bytes
        elif not event.data and not event.message_finished:
            return
        if event.message_finished:
            self._frames = 0
        await super()._handle_message_event(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Bounds of one connection: messages that wait to be taken, bytes of one message, bytes of one read."""

    queue_messages: int
    message_bytes: int
    read_bytes: int


async def open_bounded(
    nursery: trio.Nursery,
    stream: trio.SocketStream | trio.SSLStream[trio.SocketStream],
    host: str,
    resource: str,
    *,
    buffers: Buffers,
    extra_headers: list[tuple[bytes, bytes]] | None = None,
) -> BoundedWebSocket:
    """Make a WebSocket of a connected stream; arguments and errors as of `trio_websocket.wrap_client_stream`."""
    connection = BoundedWebSocket(
        stream,
        WSConnection(ConnectionType.CLIENT),
        host=host,
        path=resource,
        client_extra_headers=extra_headers,
        message_queue_size=buffers.queue_messages,
        max_message_size=buffers.message_bytes,
        receive_buffer_size=buffers.read_bytes,
    )
    nursery.start_soon(connection._reader_task)  # noqa: SLF001 - as `wrap_client_stream` does
    await connection._open_handshake.wait()  # noqa: SLF001
    return connection
