"""Dialect A as the stubs of the Node.js node speak it: Engine.IO sessions, by id, and the WebSockets that carry them.

A session begins with a GET (long-polling) or with a WebSocket, and a polling one may move to a WebSocket. The runtime's
session with the node hangs on the Engine.IO session, not on a connection. Source: reference nodes, section 3.1.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from msg_node.bus.runtime_port import LINE_BYTES
from msg_node.connectors.core import engine_io
from msg_node.connectors.core.engine_io import Kind, Packet, Trouble
from msg_node.connectors.engine_session import EngineSession
from msg_node.connectors.half_open import Entry, HalfOpen
from msg_node.connectors.reception import OnOpened, Reception
from msg_node.connectors.websocket import WebSocketChannel, is_read
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.proof import Offered
from msg_node.kernel.session import Dialect
from protofly.limits import PAYLOAD_FRAMES, POLLING_SESSIONS_PER_ADDRESS, SESSIONS, UPGRADE_SECONDS
from wire.byte_channel import ByteChannel
from wire.core.address_group import address_group
from wire.core.websocket import ServerWebSocket

PROBE_PACKET: Final = Packet(Kind.PING, engine_io.PROBE)


class SocketIo:
    """All Engine.IO sessions.

    Args:
        nursery: Where sessions are kept until their end.
        half_open: Where polling sessions count until the runtime has opened its session.
    """

    def __init__(self, reception: Reception, nursery: trio.Nursery, half_open: HalfOpen) -> None:
        self.reception = reception
        self._nursery = nursery
        self._half_open = half_open
        self._sessions: dict[str, EngineSession] = {}
        self._polling: Counter[str] = Counter()

    @property
    def payload_bytes(self) -> int:
        """Largest body of a post."""
        return PAYLOAD_FRAMES * self.reception.max_bytes

    def find(self, sid: str) -> EngineSession | None:
        """The session with that id, while it lasts."""
        session = self._sessions.get(sid)
        return None if session is None or session.is_closed else session

    def judge(self, method: str, parameters: Mapping[str, str], *, is_upgrade: bool) -> Trouble | None:
        """Check a request by the rules of the reference server; None if it is good."""
        if parameters.get("EIO", engine_io.PROTOCOL) != engine_io.PROTOCOL:
            return Trouble.UNKNOWN_PROTOCOL
        if parameters.get("transport") != ("websocket" if is_upgrade else "polling"):
            return Trouble.BAD_REQUEST if parameters.get("transport") == "websocket" else Trouble.UNKNOWN_TRANSPORT
        if "j" in parameters:  # answers as scripts, for browsers that none of our runtimes runs in
            return Trouble.BAD_REQUEST
        sid = parameters.get("sid", "")
        if not sid:
            return Trouble.BAD_HANDSHAKE_METHOD if method != "GET" else None
        session = self.find(sid)
        if session is None:
            return Trouble.UNKNOWN_SID
        is_done = session.is_upgraded or (is_upgrade and session.has_suitor)
        return Trouble.BAD_REQUEST if is_done else None

    # Beginning and end.

    def begin_polling(self, remote: str, offered: Offered) -> tuple[EngineSession, bytes] | None:
        """A session for a client that polls, and the packet to greet it with; None when there are too many."""
        network = address_group(remote)
        is_full = self._polling[network] >= POLLING_SESSIONS_PER_ADDRESS or len(self._sessions) >= SESSIONS
        session = EngineSession(secrets.token_urlsafe(engine_io.SID_BYTES), max_bytes=self.reception.max_bytes)
        entry = None if is_full else self._half_open.enter(remote, session.drop)
        if entry is None:
            self.reception.counters[NodeCount.TOO_MANY_POLLING_SESSIONS] += 1
            return None
        self._begin(session, offered, partial(self._half_open.opened, entry))
        self._polling[network] += 1
        self._nursery.start_soon(self._keep, session, network, entry)
        session.say(engine_io.CONNECTED)
        return session, self._greeting(session, ["websocket"])

    def _begin(self, session: EngineSession, offered: Offered, on_opened: OnOpened) -> None:
        session.port = self.reception.welcome(session, Dialect.SOCKET_IO, offered, on_opened)
        self._sessions[session.sid] = session
        self.reception.counters[NodeCount.SOCKETIO_SESSIONS] += 1

    def _greeting(self, session: EngineSession, upgrades: list[str]) -> bytes:
        return engine_io.open_packet(
            session.sid, upgrades=upgrades, ping_seconds=self.reception.bus.options.ping_seconds
        )

    async def _keep(self, session: EngineSession, network: str, entry: Entry) -> None:
        """Notify the bus when a polling session has ended, for any reason."""
        try:
            await session.left_polling.wait()
            self._polling[network] -= 1
            if not self._polling[network]:
                del self._polling[network]
            await session.ended.wait()
        finally:
            self._half_open.leave(entry)
            self._end(session)

    def _end(self, session: EngineSession) -> None:
        session.end()
        self._sessions.pop(session.sid, None)
        assert session.port is not None
        self.reception.release(session.port)

    # WebSockets.

    async def serve_websocket(
        self,
        line: ByteChannel,
        websocket: ServerWebSocket,
        sid: str,
        offered: Offered,
        on_opened: OnOpened,
    ) -> None:
        """Serve an accepted WebSocket: a session of its own, or with `sid` the move of a polling one."""
        socket = WebSocketChannel(line, websocket)
        if sid:
            await self._serve_move(self._sessions[sid], socket, on_opened)
            return
        session = EngineSession(secrets.token_urlsafe(engine_io.SID_BYTES), max_bytes=self.reception.max_bytes)
        self._begin(session, offered, on_opened)
        try:
            session.moved_to(socket)
            session.say(self._greeting(session, []))
            session.say(engine_io.CONNECTED)
            await self._read(session, socket, [])
        finally:
            self._end(session)

    async def _serve_move(self, session: EngineSession, socket: WebSocketChannel, on_moved: OnOpened) -> None:
        """Probe and upgrade packet, in this order and in time; anything else costs only the WebSocket.

        From then on the session is what counts, which has its own place while it is half-open.
        """
        session.has_suitor = True
        rest: list[bytes] | None = None
        try:
            with trio.move_on_after(UPGRADE_SECONDS):
                rest = await self._wait_upgrade(session, socket)
        finally:
            if rest is None:
                session.give_up_move()
        if rest is None:
            self.reception.counters[NodeCount.FAILED_UPGRADES] += 1
            socket.close(1000, "")
            return
        on_moved()
        try:
            session.moved_to(socket)
            await self._read(session, socket, rest)
        finally:
            session.end()

    async def _wait_upgrade(self, session: EngineSession, socket: WebSocketChannel) -> list[bytes] | None:
        """Wait for the upgrade packet and return what follows it; None if the client did something else."""
        is_answered = False
        while socket.websocket.is_open:
            data = await socket.line.receive()
            packets = socket.websocket.receive(data)
            for index, raw in enumerate(packets):
                packet = engine_io.read_packet(raw)
                if session.is_closed:
                    return None
                if is_answered and packet.kind is Kind.UPGRADE:
                    return packets[index + 1 :]
                if is_answered or packet != PROBE_PACKET:
                    return None
                session.probed(socket)
                is_answered = True
            socket.write_control()
            if not data:
                return None
        return None

    async def _read(self, session: EngineSession, socket: WebSocketChannel, packets: list[bytes]) -> None:
        """Read packets until the WebSocket ends."""
        line, websocket, port = socket.line, socket.websocket, session.port
        assert port is not None
        while True:
            await session.take(self.reception.bus, packets)
            socket.write_control()
            if not is_read(port, websocket) or session.is_closed:
                return
            if line.backlog_bytes > LINE_BYTES:
                port.queue.flush()
                await line.wait_drained()
            data = await line.receive()
            if not data:
                return
            packets = websocket.receive(data)
