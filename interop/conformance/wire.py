"""Connections to a node, one interface for all transports: send text, receive parsed objects, ping, close, abort.

A line never interprets messages. What breaks the transport's own rules is a `WireFaultError`: a finding like any other.
"""

from __future__ import annotations

import abc
import os
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
)

from interop.bounded_websocket import Buffers, open_bounded
from interop.conformance.jsontext import Json, NotJsonError, parse, shorten
from interop.conformance.model import Dialect
from interop.processes import leaves
from protofly.errors import Code, TransportError

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
CONNECT_SECONDS: Final = 10.0
DROP_SECONDS: Final = 1.0
MESSAGE_BYTES: Final = 16 << 20
_NO_UPGRADE: Final = (HandshakeError, ConnectionClosed, trio.TooSlowError)
_QUEUE_MESSAGES: Final = 4096
_READ_BYTES: Final = 65_536
DIALECTS_OF_PATHS: Final = {
    "/ws": (Dialect.A,),
    "/socket.io": (Dialect.SOCKETIO, Dialect.POLLING),
    "/stub/connect": (Dialect.B, Dialect.C),
}


class LineClosedError(Exception):
    """The node closed the connection. `code` is the WebSocket's close code, None when there was none."""

    def __init__(self, code: int | None, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"the node closed the connection (code {code}) {shorten(detail)}".rstrip())


class LineRefusedError(Exception):
    """The node answered the upgrade with an HTTP status other than 101, or did not speak HTTP."""

    def __init__(self, status: int, detail: str = "") -> None:
        self.status = status
        super().__init__(f"the upgrade was refused with HTTP {status} {detail}".rstrip())


class WireFaultError(Exception):
    """The node sent what the transport or the dialect does not allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Address of a node. `prefix` stands before the paths of the dialects."""

    host: str
    port: int
    prefix: str = ""
    context: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        """Host and port, for the `Host` header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The target for people."""
        return f"{'wss' if self.context else 'ws'}://{self.authority}{self.prefix}"


def parse_target(url: str, context: ssl.SSLContext) -> tuple[Target, tuple[Dialect, ...]]:
    """Read what people write after `--url`.

    Returns:
        The target, and the dialects that it may speak: all, unless the URL ends with the path of some.

    Raises:
        TransportError: CONNECT_FAILED when it is no URL of a node.
    """
    parts = urlsplit(url if "://" in url else f"wss://{url}")
    is_secure = parts.scheme in {"wss", "https"}
    try:
        port = parts.port or (443 if is_secure else 80)
    except ValueError as exc:
        raise TransportError(Code.CONNECT_FAILED, f"{url}: {exc}", phase="connect") from exc
    if parts.scheme not in {"ws", "wss", "http", "https"} or not parts.hostname:
        detail = f"{url}: not the URL of a node; write for example wss://mn.example.org:8443"
        raise TransportError(Code.CONNECT_FAILED, detail, phase="connect")
    path = parts.path.rstrip("/")
    named = next((known for known in DIALECTS_OF_PATHS if path.endswith(known)), "")
    prefix, dialects = path.removesuffix(named), DIALECTS_OF_PATHS.get(named, tuple(Dialect))
    return Target(host=parts.hostname, port=port, prefix=prefix, context=context if is_secure else None), dialects


async def dial(target: Target) -> Stream:
    """A TCP connection, with TLS if the target wants it.

    Raises:
        TransportError: CONNECT_FAILED or TLS_FAILED.
    """
    try:
        with trio.fail_after(CONNECT_SECONDS):
            stream = await trio.open_tcp_stream(target.host, target.port)
            if target.context is None:
                return stream
            encrypted = trio.SSLStream(stream, target.context, server_hostname=target.host, https_compatible=True)
            try:
                await encrypted.do_handshake()
            except BaseException:
                await drop_stream(encrypted)
                raise
            return encrypted
    except OSError as exc:
        raise TransportError(Code.CONNECT_FAILED, f"{target.url}: {exc}", phase="connect") from exc
    except trio.TooSlowError as exc:
        detail = f"{target.url}: no connection within {CONNECT_SECONDS:g} s"
        raise TransportError(Code.CONNECT_FAILED, detail, phase="connect") from exc
    except trio.BrokenResourceError as exc:
        detail = f"{target.url}: {exc.__cause__ or exc!r}"
        raise TransportError(Code.TLS_FAILED, detail, phase="connect") from exc


async def drop_stream(stream: Stream) -> None:
    """End TCP at once, also when the task is being cancelled."""
    with trio.move_on_after(DROP_SECONDS, shield=True):
        await trio.aclose_forcefully(stream)


class Line(abc.ABC):
    """One connection to a node."""

    @abc.abstractmethod
    async def send(self, text: str) -> None:
        """Send the text of one message.

        Raises:
            LineClosedError: the connection is gone.
        """

    async def send_together(self, texts: list[str]) -> None:
        """Send several messages as close together as the transport can.

        Raises:
            LineClosedError: the connection is gone.
        """
        for text in texts:
            await self.send(text)

    @abc.abstractmethod
    async def receive(self) -> Json:
        """The next message, parsed.

        Raises:
            LineClosedError: the node closed.
            WireFaultError: it sent something else than a message.
        """

    @abc.abstractmethod
    async def ping(self) -> None:
        """Send the transport's own keep-alive and wait for its answer.

        Raises:
            LineClosedError: the connection is gone.
        """

    @abc.abstractmethod
    async def drop(self) -> None:
        """Let the connection go without a word of the dialect, as a lost transport does."""

    async def send_malformed(self, payload: bytes) -> None:
        """Send a text frame of less than 64 KiB whose bytes are no UTF-8; only where the transport has frames."""
        raise NotImplementedError


class WebSocketLine(Line):
    """JSON texts in WebSocket frames."""

    def __init__(self, stream: Stream, connection: WebSocketConnection) -> None:
        self._stream = stream
        self._connection = connection

    @classmethod
    async def connect(
        cls, nursery: trio.Nursery, target: Target, resource: str, *, authorization: str = ""
    ) -> WebSocketLine:
        """Connect and upgrade.

        Raises:
            TransportError: nothing listens.
            LineRefusedError: the node does not upgrade.
        """
        stream = await dial(target)
        headers = [(b"Authorization", authorization.encode())] if authorization else []
        connection = await nursery.start(_hold, stream, target.authority, target.prefix + resource, headers)
        return cls(stream, connection)

    async def send(self, text: str) -> None:
        """One text frame."""
        try:
            await self._connection.send_message(text)
        except ConnectionClosed as exc:
            raise _closed(exc) from exc

    async def receive_text(self) -> str:
        """The next text frame."""
        try:
            frame = await self._connection.get_message()
        except ConnectionClosed as exc:
            raise _closed(exc) from exc
        if isinstance(frame, bytes):
            raise WireFaultError(f"a binary frame of {len(frame)} bytes; messages are text frames")
        return frame

    async def receive(self) -> Json:
        """The next text frame, parsed."""
        return parsed(await self.receive_text())

    async def ping(self) -> None:
        """WebSocket ping, and its pong."""
        try:
            await self._connection.ping()
        except ConnectionClosed as exc:
            raise _closed(exc) from exc

    async def drop(self) -> None:
        """End TCP without a close frame."""
        await drop_stream(self._stream)

    async def send_malformed(self, payload: bytes) -> None:
        """The frame, past the library that would not write it. Source: RFC 6455, section 5.2."""
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        await self._stream.send_all(b"\x81\xfe" + len(payload).to_bytes(2, "big") + mask + masked)


async def _hold(
    stream: Stream,
    authority: str,
    resource: str,
    headers: list[tuple[bytes, bytes]],
    *,
    task_status: trio.TaskStatus[WebSocketConnection],
) -> None:
    """Keep one connection in a nursery of its own: the library lets a refused upgrade end the nursery that reads.

    Raises:
        LineRefusedError: the node does not upgrade.
    """
    try:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(CONNECT_SECONDS):
                connection = await open_bounded(
                    nursery,
                    stream,
                    authority,
                    resource,
                    extra_headers=headers,
                    buffers=Buffers(
                        queue_messages=_QUEUE_MESSAGES, message_bytes=MESSAGE_BYTES, read_bytes=_READ_BYTES
                    ),
                )
            task_status.started(connection)
            await trio.sleep_forever()
    except BaseExceptionGroup as group:
        errors = list(leaves(group))
        refusal = next((error for error in errors if isinstance(error, ConnectionRejected)), None)
        if refusal is not None:
            body = shorten((refusal.body or b"").decode("latin-1"), 200)
            raise LineRefusedError(refusal.status_code, body) from refusal
        failure = next((error for error in errors if isinstance(error, _NO_UPGRADE)), None)
        if failure is None:
            raise
        raise LineRefusedError(0, repr(failure)) from failure
    finally:
        await drop_stream(stream)


def parsed(text: str) -> Json:
    """Parse a text of the node as strict JSON.

    Raises:
        WireFaultError: it is no JSON, or has duplicate members.
    """
    try:
        return parse(text)
    except NotJsonError as exc:
        raise WireFaultError(f"not JSON as a node may write it ({exc}): {shorten(text)}") from exc


def _closed(exc: ConnectionClosed) -> LineClosedError:
    reason = exc.reason
    return LineClosedError(None) if reason is None else LineClosedError(reason.code, reason.reason or "")
