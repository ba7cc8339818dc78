"""The door: one listener for local runtimes of every dialect and for the stubs of other domains.

A connection is counted for its address until it has said what it is. The target of its first request tells who serves
it (`msg_node/core/dialects.py`). Source: message specification, section 5; design, section 3.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections import Counter
from itertools import count
from typing import Final

import trio

from federation.byte_channel import ByteChannel
from federation.core.link_frames import SUBPROTOCOL
from federation.peer_session import LinkAcceptor
from msg_node.bus import Bus
from msg_node.connectors.websocket import WebSocketChannel, serve_messages
from msg_node.core.certificates import read_certificate
from msg_node.core.dialects import Arrival, Entry, arrival_at
from msg_node.runtime_port import QueueBounds, RuntimePort
from protofly.errors import PeerError, TransportError
from protofly.limits import FRAME_BYTES, HANDSHAKE_SECONDS
from protofly.websocket import ServerWebSocket

logger = logging.getLogger("msg_node")

HALF_OPEN_PER_ADDRESS: Final = 256
UNPROVED_BYTES: Final = 64 << 10
"""Largest frame of a link that has not proved its domain yet."""
_HEAD_BYTES: Final = 16 << 10
_END_OF_HEAD: Final = b"\r\n\r\n"


class _Knock:
    """One connection that is not through its handshake yet, counted for its address until it is."""

    def __init__(self, counts: Counter[str], remote: str) -> None:
        self._counts = counts
        self._remote = remote
        self._is_done = False
        counts[remote] += 1

    def done(self) -> None:
        """Through, or gone. May be called again."""
        if self._is_done:
            return
        self._is_done = True
        self._counts[self._remote] -= 1
        if self._counts[self._remote] <= 0:
            del self._counts[self._remote]


class Door:
    """Accepts connections.

    Args:
        context: TLS, or None for a listener without it.
        acceptor: Serves links of other domains; None when this node takes none.
        max_bytes: Largest message of a runtime.
        queue: What may wait for one runtime.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        context: ssl.SSLContext | None,
        acceptor: LinkAcceptor | None,
        max_bytes: int = FRAME_BYTES,
        queue: QueueBounds | None = None,
    ) -> None:
        self._bus = bus
        self._context = context
        self._acceptor = acceptor
        self._max_bytes = max_bytes
        self._queue = queue or QueueBounds()
        self._numbers = count(1)
        self._half_open: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()

    async def run(
        self, listeners: list[trio.SocketListener], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as drains, trio.open_nursery() as connections:
            self._drains = drains
            task_status.started()
            await trio.serve_listeners(self._serve, listeners, handler_nursery=connections)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            remote = str(stream.socket.getpeername()[0])
        except OSError:  # reset before we looked
            stream.socket.close()
            return
        knock = _Knock(self._half_open, remote)
        try:
            if self._half_open[remote] > HALF_OPEN_PER_ADDRESS:
                self.counters["too many half-open"] += 1
                return
            line = None
            with trio.move_on_after(HANDSHAKE_SECONDS):
                line, head = await self._meet(stream)
            if line is None:
                self.counters["slow handshakes"] += 1
                return
            async with line:
                await self._receive(line, head, knock)
                await line.aclose()
        except TransportError as exc:
            self.counters["failed handshakes"] += 1
            logger.debug("handshake with %s failed: %s", remote, exc)
        except Exception:  # a defect of ours may cost this connection, never the node
            self.counters["internal errors"] += 1
            logger.exception("the connection of %s is closed", remote)
        finally:
            knock.done()
            stream.socket.close()

    async def _meet(self, stream: trio.SocketStream) -> tuple[ByteChannel, bytes]:
        """TLS, then everything up to the end of the first request's head; without that end there is no request."""
        line = await ByteChannel.over(stream, drain_nursery=self._drains, context=self._context, server_side=True)
        try:
            head = b""
            while _END_OF_HEAD not in head and len(head) <= _HEAD_BYTES:
                data = await line.receive()
                if not data:
                    break
                head += data
        except BaseException:
            line.close()
            raise
        return line, head

    async def _receive(self, line: ByteChannel, head: bytes, knock: _Knock) -> None:
        """Answer the first request and serve what it asks for."""
        websocket = ServerWebSocket(max_bytes=self._max_bytes)
        websocket.receive(head)
        if websocket.request_path is None:
            if not websocket.handshake_failed:
                websocket.receive(b"")
            line.send_nowait(websocket.data_to_send())
            return
        arrival = self._answer_upgrade(websocket)
        line.send_nowait(websocket.data_to_send())
        if not websocket.is_open:
            return
        if arrival.entry is Entry.LINK and self._acceptor is not None:
            self.counters["links"] += 1
            await self._acceptor.serve(line, websocket, on_proved=knock.done)
            return
        self.counters["runtimes"] += 1
        knock.done()
        await self._serve_runtime(line, websocket)

    def _answer_upgrade(self, websocket: ServerWebSocket) -> Arrival:
        arrival = arrival_at(websocket.request_path or "")
        try:
            if arrival.entry is Entry.SESSION_MESSAGES:
                websocket.accept()
            elif arrival.entry is Entry.LINK and self._acceptor is not None:
                websocket.allow_bytes(UNPROVED_BYTES)
                websocket.accept(subprotocol=SUBPROTOCOL, is_binary=True)
            else:
                websocket.reject(404, "runtimes connect to /ws\n")
        except PeerError:
            self.counters["failed handshakes"] += 1
        return arrival

    async def _serve_runtime(self, line: ByteChannel, websocket: ServerWebSocket) -> None:
        channel = WebSocketChannel(line, websocket)
        port = RuntimePort(
            next(self._numbers),
            channel,
            bearer=websocket.bearer,
            counters=self._bus.counters,
            now=time.time(),
            bounds=self._queue,
        )
        if line.peer_certificate:
            port.certificate = read_certificate(line.peer_certificate)
        self._bus.connected(port)
        try:
            await serve_messages(self._bus, port, channel)
        finally:
            self._bus.disconnected(port)
