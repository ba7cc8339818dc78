"""Dialects B and C, of the Matrix family: plain messages over a WebSocket, and commands or the query around them.

Neither knows a token: the session address is the runtime address, and a client that comes back to it has a proof or
follows the rules for those without one. Source: message specification, sections 5.2 and 5.3.
"""

from __future__ import annotations

import time

import trio

from msg_node.bus.runtime_port import LINE_BYTES, RuntimePort
from msg_node.connectors.core.command_frames import (
    CONNECT,
    CONNECTED,
    DISCONNECT,
    INVALID_HANDSHAKE,
    Command,
    connect_answer,
    read_command,
)
from msg_node.connectors.reception import OnOpened, Reception
from msg_node.connectors.websocket import WebSocketChannel, hand_over, is_read
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.proof import Offered
from msg_node.kernel.resources import SESSION_KEY
from msg_node.kernel.session import Dialect
from protofly import codec
from protofly.address import canonical_key
from protofly.errors import Code, PeerError
from protofly.limits import HANDSHAKE_SECONDS, HEADER_CHARS
from protofly.message import Message
from wire.byte_channel import ByteChannel
from wire.core.websocket import POLICY, ServerWebSocket

REASON_HEADER = "X-WebSocket-Reject-Reason"


class MatrixChannel(WebSocketChannel):
    """A WebSocket that carries no message before its runtime was notified that it is connected."""

    __slots__ = ("is_connected",)

    def __init__(self, line: ByteChannel, websocket: ServerWebSocket) -> None:
        super().__init__(line, websocket)
        self.is_connected = False

    @property
    def takes_more(self) -> bool:
        """See `MessageChannel`."""
        return self.is_connected and super().takes_more


class Matrix:
    """Serves runtimes of dialects B and C."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception

    async def serve_command_frames(
        self, line: ByteChannel, websocket: ServerWebSocket, offered: Offered, on_opened: OnOpened
    ) -> None:
        """Dialect B: the WebSocket is open, its first frame says who it is."""
        channel = MatrixChannel(line, websocket)
        port = self._reception.welcome(channel, Dialect.COMMAND_FRAMES, offered, on_opened)
        try:
            frames: list[bytes] = []
            with trio.move_on_after(HANDSHAKE_SECONDS):
                frames = await _first_frames(channel)
            if not frames:
                return
            command = read_command(frames[0])
            if command is None or command.word != CONNECT or not command.runtime:
                self._refuse(channel, 403, INVALID_HANDSHAKE)
                return
            refusal = await self._open(port, command.runtime)
            if refusal is not None:
                self._refuse(channel, *refusal)
                return
            channel.send([connect_answer(200, CONNECTED)])
            channel.is_connected = True
            await self._converse(port, channel, frames[1:])
        finally:
            self._reception.release(port)

    async def serve_query(
        self, line: ByteChannel, websocket: ServerWebSocket, runtime: str, offered: Offered, on_opened: OnOpened
    ) -> None:
        """Dialect C: the request, a valid upgrade, says who it is, and is answered when the session is open."""
        channel = MatrixChannel(line, websocket)
        port = self._reception.welcome(channel, Dialect.QUERY, offered, on_opened)
        try:
            refusal = await self._open(port, runtime)
            if refusal is None and port.queue.is_closing:  # somebody has taken over before we could say yes
                refusal = Code.ADDRESS_TAKEN.status, Code.ADDRESS_TAKEN.description, Code.ADDRESS_TAKEN.word
            if refusal is not None:
                status, text, _ = refusal
                reject(websocket, status if status in (401, 403) else 403, text)
                channel.write_control()
                return
            websocket.accept()
            channel.write_control()
            channel.is_connected = True
            await self._converse(port, channel, [])
        finally:
            self._reception.release(port)

    async def _open(self, port: RuntimePort, runtime: str) -> tuple[int, str, str] | None:
        """Open the session of a runtime; status, text and word of the refusal, if it is one."""
        if len(runtime) > HEADER_CHARS:
            return 403, INVALID_HANDSHAKE, ""
        settled = trio.Event()
        replies: list[Message] = []

        def answered(reply: Message) -> None:
            replies.append(reply)
            settled.set()

        opening = codec.build(id=1, type="open", from_=runtime, to=SESSION_KEY)
        self._reception.bus.runtimes.ask_session(port, opening, answered, now=time.time())
        await settled.wait()
        body = codec.body_members(replies[0].body)
        if body["code"] == 200:
            return None
        assert isinstance(body["code"], int)
        return body["code"], str(body["description"]), str(body.get("reason", ""))

    def _refuse(self, channel: MatrixChannel, status: int, text: str, reason: str = "") -> None:
        self._reception.counters[NodeCount.REFUSED_CONNECTS] += 1
        channel.send([connect_answer(status, text, reason=reason)])
        channel.close(POLICY, text)

    async def _converse(self, port: RuntimePort, channel: MatrixChannel, frames: list[bytes]) -> None:
        """Read messages and commands until the WebSocket ends."""
        line, websocket, bus = channel.line, channel.websocket, self._reception.bus
        line.on_drained = port.queue.flush
        port.queue.flush()
        while True:
            await self._take(port, frames)
            channel.write_control()
            if not is_read(port, websocket):
                return
            if line.backlog_bytes > LINE_BYTES:
                port.queue.flush()
                await line.wait_drained()
            data = await line.receive()
            frames = websocket.receive(data)
            if not data:
                await hand_over(bus, port, frames)
                return
            port.heard(time.time())

    async def _take(self, port: RuntimePort, frames: list[bytes]) -> None:
        bus = self._reception.bus
        messages: list[bytes] = []
        for raw in frames:
            command = read_command(raw)
            if command is None:
                messages.append(raw)
                continue
            await hand_over(bus, port, messages)
            messages = []
            self._obey(port, command)
            if port.queue.is_closing:
                return
        await hand_over(bus, port, messages)

    def _obey(self, port: RuntimePort, command: Command) -> None:
        """`disconnect` of this runtime ends its session; all else is no command of an open connection."""
        bus = self._reception.bus
        runtime = bus.runtimes.runtime_of(port)
        if command.word != DISCONNECT or not runtime or not _is_same(command.runtime or runtime, runtime):
            port.queue.channel.send([connect_answer(403, INVALID_HANDSHAKE)])
            return
        closing = codec.build(id=None, type="close", from_=runtime, to=SESSION_KEY)
        bus.runtimes.ask_session(port, closing, lambda _reply: None, now=time.time())


async def _first_frames(channel: MatrixChannel) -> list[bytes]:
    """Wait for the first frames; none when the connection ends before."""
    while channel.websocket.is_open:
        data = await channel.line.receive()
        frames = channel.websocket.receive(data)
        channel.write_control()
        if frames or not data:
            return frames
    return []


def _is_same(one: str, other: str) -> bool:
    try:
        return canonical_key(one) == canonical_key(other)
    except PeerError:
        return False


def reject(websocket: ServerWebSocket, status: int, text: str) -> None:
    """Answer an upgrade request with a refusal, its reason where the stubs of this family look for it."""
    websocket.reject(status, text + "\n", headers={REASON_HEADER: text})
