"""One Engine.IO session: a runtime whose transport may change from long-polling to a WebSocket under its feet.

It is the channel of the runtime's port. Towards the runtime it writes to the WebSocket once there is one, before that
to a poll that hangs; without either, messages wait in the port's queue, with the bounds and the patience that every
slow runtime meets. The session has no task: requests and frames come in through `take`, and `ended` notifies its
owner. Source: reference nodes, section 3.1.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

import trio

from msg_node.bus.bus import Bus
from msg_node.bus.runtime_port import STUCK_SECONDS, RuntimePort
from msg_node.connectors.core import engine_io
from msg_node.connectors.core.engine_io import Kind
from msg_node.connectors.half_open import SessionLines
from msg_node.connectors.websocket import WebSocketChannel, hand_over
from msg_node.kernel.counts import NodeCount
from protofly.limits import WAITING_PACKETS
from wire.core.websocket import PROTOCOL_ERROR, TOO_BIG, UNSUPPORTED

_NAMESPACE_BYTES: Final = 64


class Poll(Protocol):
    """A GET that hangs until there is something to say."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of earlier answers on the same line that the client has not read yet."""

    def respond(self, payload: bytes) -> None:
        """Answer it; once."""


class HangingPoll:
    """The poll of a session that waits for an answer: at most one at a time."""

    def __init__(self) -> None:
        self._poll: Poll | None = None
        self._last: Poll | None = None

    def __bool__(self) -> bool:
        return self._poll is not None

    def accept(self, poll: Poll) -> bool:
        """Let a poll hang. Returns False if one hangs already, or the client has not read the last answer."""
        if self._poll is not None or (self._last is not None and self._last.unread_bytes):
            return False
        self._poll = self._last = poll
        return True

    def lose(self, poll: Poll) -> bool:
        """The client hung up on a poll. Returns True if it was the one that hangs."""
        if self._poll is not poll:
            return False
        self._poll = None
        return True

    def answer(self, packets: list[bytes]) -> None:
        """Answer the poll that hangs; there must be one."""
        assert self._poll is not None
        poll, self._poll = self._poll, None
        poll.respond(engine_io.encode_payload(packets))


class EngineSession:
    """A session from its handshake to its end; see `MessageChannel`.

    Args:
        sid: Its id, which is all that a request needs to speak for it.
        max_bytes: Largest message of a runtime.
    """

    silent_periods: int = 2
    """The client pings by itself, more often than once a period: two empty ones after the first are its time-out."""
    stuck_seconds: float = STUCK_SECONDS

    def __init__(self, sid: str, *, max_bytes: int) -> None:
        self.sid = sid
        self.ended = trio.Event()
        self.left_polling = trio.Event()
        self.port: RuntimePort | None = None
        self.is_posting = False
        self.lines = SessionLines()
        self.has_suitor = False
        """A WebSocket is there that wants to carry it."""
        self._is_probed = False
        self._max_bytes = max_bytes
        self._polls = HangingPoll()
        self._socket: WebSocketChannel | None = None
        self._packets: list[bytes] = []
        self._goodbye: list[bytes] = []

    # What the port asks for.

    @property
    def is_closed(self) -> bool:
        """See `MessageChannel`."""
        return self.ended.is_set()

    @property
    def takes_more(self) -> bool:
        """See `MessageChannel`."""
        if self.ended.is_set():
            return False
        return bool(self._polls) if self._socket is None else self._socket.takes_more

    def send(self, messages: list[bytes]) -> None:
        """See `MessageChannel`."""
        self._packets += map(engine_io.event_packet, messages)
        if not self._polls or self.port is None or not self.port.queue.is_closing:
            self._write()  # else the goodbye, which comes next, goes into the same answer

    def ping(self) -> None:
        """See `MessageChannel`: in Engine.IO 3 only the client pings."""

    def close(self, code: int, reason: str) -> None:
        """See `MessageChannel`: the socket.io goodbye, then that of the transport."""
        if self._goodbye or self.is_closed:
            return
        if self._socket is not None:
            self._packets.append(engine_io.DISCONNECTED)
            self._write()
            self._goodbye = [engine_io.CLOSE]
            self._socket.close(code, reason)
        else:
            self._goodbye = [engine_io.DISCONNECTED, engine_io.CLOSE]
            self._write()

    def drop(self) -> None:
        """See `MessageChannel`."""
        self.end()
        if self._socket is not None:
            self._socket.drop()

    # What the transports report.

    @property
    def is_upgraded(self) -> bool:
        """True if it lives on a WebSocket."""
        return self._socket is not None

    def say(self, packet: bytes) -> None:
        """Send a packet of the session's own, now or with the next poll."""
        if len(self._packets) >= WAITING_PACKETS:  # it asks and asks, and does not fetch the answers
            self.drop()
            return
        self._packets.append(packet)
        self._write()

    def polled(self, poll: Poll) -> bool:
        """A GET hangs; False when one hangs already or an answer is still unread, which ends the session."""
        if not self._polls.accept(poll):
            self.drop()
            return False
        if self.port is not None:
            self.port.queue.flush()
        if self._is_probed and self._polls:
            self._packets.append(engine_io.NOOP)  # so that the client can turn to its WebSocket
        self._write()
        return True

    def poll_lost(self, poll: Poll) -> None:
        """The client hung up on a GET, which ends the session."""
        if self._polls.lose(poll):
            self.drop()

    def probed(self, socket: WebSocketChannel) -> None:
        """A WebSocket wants to take over; a hanging poll is let go."""
        self._is_probed = True
        socket.websocket.send([engine_io.PROBE_ANSWER])
        socket.write_control()
        if self._polls:
            self.say(engine_io.NOOP)

    def moved_to(self, socket: WebSocketChannel) -> None:
        """From here on everything goes over a WebSocket."""
        if self._polls:
            self._packets.append(engine_io.NOOP)
            self._write()
        self._socket = socket
        self.give_up_move()
        self.left_polling.set()
        self._write()
        if self.port is not None:
            socket.line.on_drained = self.port.queue.flush
            self.port.queue.flush()

    def give_up_move(self) -> None:
        """No WebSocket wants to carry it any more, or one does."""
        self.has_suitor = self._is_probed = False

    def _write(self) -> None:
        """Send what waits, if there is somewhere to send it."""
        if self._socket is not None:
            packets, self._packets = self._packets, []
            if packets:
                self._socket.send(packets)
            return
        packets = self._packets + self._goodbye
        if not self._polls or not packets:
            return
        self._packets = []
        self._polls.answer(packets)
        if self._goodbye:
            self.end()

    async def take(self, bus: Bus, packets: list[bytes]) -> None:
        """Do what packets of the client ask for, in order."""
        port = self.port
        assert port is not None
        if port.queue.is_closing:
            return
        port.heard(time.time())
        messages: list[bytes] = []
        for raw in packets:
            packet = engine_io.read_packet(raw)
            if packet.kind is Kind.MESSAGE and len(packet.data) <= self._max_bytes:
                messages.append(packet.data)
                continue
            await hand_over(bus, port, messages)
            messages = []
            self._obey(port, packet)
            if port.queue.is_closing or self.is_closed:
                return
        await hand_over(bus, port, messages)

    def _obey(self, port: RuntimePort, packet: engine_io.Packet) -> None:
        match packet.kind:
            case Kind.PING:
                self.say(engine_io.PONG)
            case Kind.NAMESPACE:
                name = packet.data[:_NAMESPACE_BYTES].decode("ascii", "ignore").encode()
                self.say(engine_io.error_packet("Invalid namespace", namespace=name))
            case Kind.MESSAGE:
                port.queue.close(TOO_BIG, "too-large")
            case Kind.BINARY:
                port.queue.counters[NodeCount.BINARY_PACKETS] += 1
                self.say(engine_io.error_packet("binary packets are not carried"))
                port.queue.close(UNSUPPORTED, "binary packets are not carried")
            case Kind.CLOSE:
                self.drop()
            case Kind.BROKEN:
                port.queue.close(PROTOCOL_ERROR, "a broken packet")
            case Kind.UPGRADE | Kind.IGNORED:
                pass

    def end(self) -> None:
        """It is over: nothing more is taken, and a poll that still hangs is let go. May be called again."""
        if self.ended.is_set():
            return
        self.ended.set()
        self.left_polling.set()
        if self.port is not None:
            self.port.queue.is_closing = True
        if self._polls:
            self._polls.answer([engine_io.CLOSE])
