"""The WebSocket door: local runtimes at `/ws`, the stubs of other domains at `/link`, one listener for both.

Per connection one task reads, hands whole batches on and writes nothing but what the WebSocket itself has to say;
everything else is written by the bus. Source: message specification, section 5.1; design, section 3.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections import Counter
from itertools import count

import trio

from federation.byte_channel import ByteChannel
from federation.core.link_frames import SUBPROTOCOL
from federation.peer_session import LinkAcceptor
from msg_node.bus import Bus
from msg_node.runtime_port import LINE_BYTES, QueueBounds, RuntimePort
from protofly.errors import PeerError, TransportError
from protofly.limits import FRAME_BYTES, HANDSHAKE_SECONDS
from protofly.websocket import ServerWebSocket

logger = logging.getLogger("msg_node")

RUNTIME_PATH = "/ws"
LINK_PATH = "/link"
HALF_OPEN_PER_ADDRESS = 256
UNPROVED_BYTES = 64 << 10
"""Largest frame of a link that has not proved its domain yet."""
_HANDSHAKE_BYTES = 16 << 10


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


class WebSocketDoor:
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
                line, websocket = await self._handshake(stream)
            if line is None:
                self.counters["slow handshakes"] += 1
                return
            async with line:
                if websocket.is_open:
                    await self._dispatch(line, websocket, knock)
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

    async def _handshake(self, stream: trio.SocketStream) -> tuple[ByteChannel, ServerWebSocket]:
        """TLS, then the WebSocket upgrade; answers what is no upgrade."""
        line = await ByteChannel.over(stream, drain_nursery=self._drains, context=self._context, server_side=True)
        try:
            websocket = ServerWebSocket(max_bytes=self._max_bytes)
            received = 0
            while websocket.request_path is None:
                data = await line.receive()
                received += len(data)
                websocket.receive(data)
                if not data or websocket.handshake_failed or received > _HANDSHAKE_BYTES:
                    line.send_nowait(websocket.data_to_send())
                    line.close()
                    return line, websocket
            self._answer_upgrade(websocket)
            line.send_nowait(websocket.data_to_send())
        except BaseException:
            line.close()
            raise
        return line, websocket

    def _answer_upgrade(self, websocket: ServerWebSocket) -> None:
        path = (websocket.request_path or "").partition("?")[0]
        try:
            if path == RUNTIME_PATH:
                websocket.accept()
            elif path == LINK_PATH and self._acceptor is not None:
                websocket.allow_bytes(UNPROVED_BYTES)
                websocket.accept(subprotocol=SUBPROTOCOL, is_binary=True)
            else:
                websocket.reject(404, "runtimes connect to /ws\n")
        except PeerError:
            self.counters["failed handshakes"] += 1

    async def _dispatch(self, line: ByteChannel, websocket: ServerWebSocket, knock: _Knock) -> None:
        if websocket.is_binary and self._acceptor is not None:
            self.counters["links"] += 1
            await self._acceptor.serve(line, websocket, on_proved=knock.done)
        else:
            self.counters["runtimes"] += 1
            knock.done()
            await self._serve_runtime(line, websocket)

    async def _serve_runtime(self, line: ByteChannel, websocket: ServerWebSocket) -> None:
        bearer = websocket.bearer
        port = RuntimePort(
            next(self._numbers),
            line,
            websocket,
            bearer=bearer,
            counters=self._bus.counters,
            now=time.time(),
            bounds=self._queue,
        )
        line.on_drained = port.flush
        self._bus.connected(port)
        try:
            while True:
                data = await line.receive()
                frames = websocket.receive(data)
                if not frames and data:
                    port.heard_at, port.pings_unanswered = time.time(), 0
                await self._hand_over(port, frames)
                port.write_control()
                if not data or not websocket.is_open:
                    return
                if line.backlog_bytes > LINE_BYTES:
                    port.flush()  # notes since when; who does not read our answers is not read either
                    await line.wait_drained()
        finally:
            self._bus.disconnected(port)

    async def _hand_over(self, port: RuntimePort, frames: list[bytes]) -> None:
        """Give frames to the bus as fast as it takes them."""
        while not port.is_closing:
            frames = frames[self._bus.from_session(port, frames) :] if frames else frames
            if port.blockers or not self._bus.is_accepting:
                await self._bus.wait_for_port(port)
            if not frames:
                return
