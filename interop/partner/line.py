"""One connection of LINK/1, from either side: frames over a WebSocket over TLS, with a transcript."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from interop.conformance.outcome import NodeFaultError
from interop.partner.core.frames import BYE, MESSAGES, WELCOME, BrokenFrameError, Frame, pack_messages, unpack

FRAME_BYTES: Final = 16 << 20
QUEUED_FRAMES: Final = 1024
_SHOWN_BYTES: Final = 160
Note = Callable[[str], None]
LOST: Final = (ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError, OSError, ssl.SSLError)


class PartnerLine:
    """One connection. `number` is that of the next message that we send on it; certificates are DER."""

    def __init__(
        self,
        stream: trio.SSLStream[trio.SocketStream],
        websocket: WebSocketConnection,
        note: Note,
        *,
        own_certificate: bytes = b"",
    ) -> None:
        self.stream = stream
        self.own_certificate = own_certificate
        self.number = 1
        self.closed_with = ""
        self._websocket = websocket
        self._note = note

    async def send(self, *frames: bytes) -> None:
        """Send frames; what a connection that is gone does not take is left."""
        with suppress(*LOST):
            for raw in frames:
                self._note(f"→ {_shown(raw)}")
                await self._websocket.send_message(raw)

    async def send_text(self, text: str) -> None:
        """Send a text message, which LINK/1 does not have."""
        with suppress(*LOST):
            await self._websocket.send_message(text)

    async def send_messages(self, *raws: bytes) -> None:
        """Send messages with the next numbers."""
        first, self.number = self.number, self.number + len(raws)
        await self.send(pack_messages(first, raws))

    async def receive(self) -> Frame | None:
        """The next frame, None at the end of the connection.

        Raises:
            NodeFaultError: The node sent what is no frame.
        """
        try:
            raw = await self._websocket.get_message()
        except ConnectionClosed as exc:
            self.closed_with = self.closed_with or str(getattr(exc.reason, "reason", "") or "")
            self._note(f"← end {self.closed_with}")
            return None
        if isinstance(raw, str):
            raise NodeFaultError("the node sent a text message; frames are binary")
        self._note(f"← {_shown(raw)}")
        try:
            frame = unpack(raw)
        except BrokenFrameError as exc:
            raise NodeFaultError(f"the node sent {exc}") from exc
        if frame.kind == BYE:
            self.closed_with = frame.payload.decode(errors="replace")
        return frame

    async def receive_kind(self, kind: int) -> Frame:
        """The next frame of a kind, others left aside.

        Raises:
            NodeFaultError: The connection ended before.
        """
        while (frame := await self.receive()) is not None:
            if frame.kind == kind:
                return frame
        raise NodeFaultError(f"the node ended the connection ({self.closed_with or 'no reason given'})")

    async def wait_end(self) -> str:
        """Wait until the node ends the connection; returns its reason.

        Raises:
            NodeFaultError: It welcomed us instead.
            NoAnswerError: It did neither.
        """
        while (frame := await self.receive()) is not None:
            if frame.kind == WELCOME:
                raise NodeFaultError("the node welcomed what it has to refuse")
            if frame.kind == MESSAGES:
                raise NodeFaultError("the node sent messages to a partner that has proved nothing")
        return self.closed_with

    async def cut(self) -> None:
        """End the connection as a cable does."""
        self._note("→ cut")
        await trio.aclose_forcefully(self.stream)


def _shown(raw: bytes) -> str:
    try:
        frame = unpack(raw)
    except BrokenFrameError:
        return f"{raw[:_SHOWN_BYTES]!r}"
    text = frame.payload[:_SHOWN_BYTES].decode(errors="replace")
    return f"{frame.name} {frame.arg} {text if text.isprintable() else repr(frame.payload[:_SHOWN_BYTES])}".rstrip()
