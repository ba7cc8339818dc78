"""Messages over a WebSocket, one text frame each, as dialects A, B and C carry them.

Per connection one task reads, hands whole batches on and writes nothing but what the WebSocket itself has to say;
everything else is written by the bus. Source: message specification, section 5; design, section 3.
"""

from __future__ import annotations

import time
from typing import Final

import trio

from msg_node.bus.bus import Bus
from msg_node.bus.runtime_port import LINE_BYTES, STUCK_SECONDS, RuntimePort
from wire.byte_channel import ByteChannel
from wire.core.websocket import WebSocket

UNANSWERED_PINGS: Final = 2
"""Silence of one period is asked about, so two pings make three periods. Source: message specification, section 5.4."""


class WebSocketChannel:
    """A runtime's WebSocket on its line; see `MessageChannel`."""

    __slots__ = ("line", "websocket")

    silent_periods: int = UNANSWERED_PINGS
    stuck_seconds: float = STUCK_SECONDS

    def __init__(self, line: ByteChannel, websocket: WebSocket) -> None:
        self.line = line
        self.websocket = websocket

    @property
    def is_closed(self) -> bool:
        """See `MessageChannel`."""
        return self.line.is_closed

    @property
    def takes_more(self) -> bool:
        """See `MessageChannel`."""
        line = self.line
        return line.backlog_bytes <= LINE_BYTES and not line.is_closed

    def send(self, messages: list[bytes]) -> None:
        """See `MessageChannel`."""
        self.websocket.send(messages)
        self.line.send_nowait(self.websocket.data_to_send())

    def ping(self) -> None:
        """See `MessageChannel`."""
        self.websocket.ping()
        self.write_control()

    def close(self, code: int, reason: str) -> None:
        """See `MessageChannel`."""
        self.websocket.close(code, reason)
        self.write_control()

    def drop(self) -> None:
        """See `MessageChannel`."""
        self.line.close()

    def write_control(self) -> None:
        """Write what the WebSocket itself has to say: pongs, closes."""
        self.line.send_nowait(self.websocket.data_to_send())


async def serve_messages(bus: Bus, port: RuntimePort, channel: WebSocketChannel) -> None:
    """Read a runtime's messages until its WebSocket ends; the bus knows the port."""
    line, websocket = channel.line, channel.websocket
    line.on_drained = port.queue.flush
    while True:
        data = await line.receive()
        frames = websocket.receive(data)
        if not frames and data:
            port.heard(time.time())
        await hand_over(bus, port, frames)
        channel.write_control()
        if not data or not is_read(port, websocket):
            return
        if line.backlog_bytes > LINE_BYTES:
            port.queue.flush()  # notes since when; who does not read our answers is not read either
            await line.wait_drained()


def is_read(port: RuntimePort, websocket: WebSocket) -> bool:
    """True while what a runtime sends counts: when the node stops, until the runtime has answered our close."""
    return websocket.is_open or (websocket.is_listening and not port.queue.is_closing)


async def hand_over(bus: Bus, port: RuntimePort, frames: list[bytes]) -> None:
    """Give frames to the bus as fast as it takes them."""
    queues = bus.send_queues
    while not port.queue.is_closing:
        frames = frames[bus.from_sessions.take(port, frames) :] if frames else frames
        if port.blockers or not queues.records.is_accepting:
            await queues.wait_for_port(port)
        elif frames:
            await trio.lowlevel.checkpoint()
        if not frames:
            return
