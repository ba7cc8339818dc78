"""One connection as bytes: a plain non-blocking socket, with TLS as a sans-I/O layer on top.

Reading waits; writing does not: `send_nowait` hands the bytes to the kernel at once and keeps what does not fit, so
that the message path writes one block per destination without a task switch, with TLS as without. A drain task exists
only while something is left over.

OpenSSL keeps errors for a whole thread, and takes any of them for the reason why a call wants more bytes. An error that
somebody has left there, such as a parser of certificates, would end the next connection that reads, whosever it is.
Python takes an error away when it raises it. So a read that fails is made once more: what ends a connection fails
again. Handshakes begin without old errors, and writes never want more; see SSL_get_error(3).

Why not `trio.SSLStream`: its lock and retry loop cost 40-70 µs per lone message and it cannot write without waiting
(performance study, section 5).
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import trio

from protofly.errors import Code, TransportError

RECEIVE_BYTES = 64 << 10
DRAIN_BYTES = 256 << 10
"""What is left over goes to the kernel in pieces of about this size, each of which is copied once."""
_NOTHING = memoryview(b"")


class ByteChannel:
    """A connected socket.

    Args:
        sock: Connected; the channel owns it from here on.
        tls: TLS state that reads from `incoming` and writes to `outgoing`, for an encrypted connection.
        drain_nursery: Where the drain task runs while the kernel does not take everything.
    """

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_closed",
        "_drained",
        "_incoming",
        "_may_have_more",
        "_nursery",
        "_outgoing",
        "_piece",
        "_sock",
        "_tls",
        "on_drained",
        "peer_certificate",
        "receive_bytes",
    )

    def __init__(
        self,
        sock: socket.socket,
        *,
        drain_nursery: trio.Nursery,
        tls: tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO] | None = None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._tls: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO | None = None
        self._outgoing: ssl.MemoryBIO | None = None
        if tls is not None:
            self._tls, self._incoming, self._outgoing = tls
        self._nursery = drain_nursery
        self._backlog: deque[bytes] = deque()
        self._piece = _NOTHING  # the front of what is left over, which the kernel has taken in part
        self._backlog_bytes = 0
        self._drained: trio.Event | None = None
        self._closed = False
        self._may_have_more = True
        self.peer_certificate = b""
        """The far end's certificate in DER, b"" without one."""
        self.on_drained: Callable[[], None] | None = None
        self.receive_bytes = RECEIVE_BYTES
        """Most that one read takes."""

    @classmethod
    async def over(
        cls,
        stream: trio.SocketStream,
        *,
        drain_nursery: trio.Nursery,
        context: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        server_side: bool = False,
    ) -> Self:
        """Take over the socket of `stream` and, with a context, do the TLS handshake. The caller sets the time limit.

        Raises:
            TransportError: TLS_FAILED, CONNECT_FAILED.
        """
        inner = stream.socket
        family, kind, proto = inner.family, inner.type, inner.proto
        sock = socket.socket(family, kind, proto, fileno=inner.detach())
        tls = None
        if context is not None:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = (context.wrap_bio(incoming, outgoing, server_side, server_hostname), incoming, outgoing)
        channel = cls(sock, drain_nursery=drain_nursery, tls=tls)
        try:
            await channel._handshake()
        except BaseException:
            channel.close()
            raise
        return channel

    async def _handshake(self) -> None:
        if self._tls is None:
            return
        assert self._incoming is not None
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush_tls()
                data = await self._receive_raw()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError as exc:
                self._flush_tls()
                raise TransportError(
                    Code.TLS_FAILED, getattr(exc, "verify_message", "") or exc.reason or str(exc), phase="tls"
                ) from exc
            else:
                self._flush_tls()
                # Now: once the far end has gone, the TLS object may say that there was no handshake.
                self.peer_certificate = self._tls.getpeercert(binary_form=True) or b""
                return

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._backlog_bytes

    @property
    def is_closed(self) -> bool:
        """True if the channel was closed from this side or failed."""
        return self._closed

    @property
    def peer_certificate_sha256(self) -> bytes:
        """Hash of the far end's certificate, b"" without one. Source: RFC 5929 (tls-server-end-point)."""
        certificate = self.peer_certificate
        return hashlib.sha256(certificate).digest() if certificate else b""

    async def receive(self) -> bytes:
        """Wait for bytes; b"" at the end of the stream, orderly or not."""
        if self._tls is None:
            return await self._receive_raw()
        assert self._incoming is not None
        while True:
            plain = self._read_tls()
            if plain is not None:
                await trio.lowlevel.cancel_shielded_checkpoint()
                return plain
            data = await self._receive_raw()
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def _read_tls(self) -> bytes | None:
        """Everything that can be decrypted now; None when more bytes are needed, b"" at the end."""
        parts: list[bytes] = []
        ended = self._decrypt(parts)
        if ended is None:
            ended = self._decrypt(parts) is not False
        self._flush_tls()
        return b"".join(parts) if parts or ended else None

    def _decrypt(self, parts: list[bytes]) -> bool | None:
        """Add what can be decrypted now: False when more bytes are needed, True at the end, None after an error."""
        assert self._tls is not None
        try:
            while part := self._tls.read(RECEIVE_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            return None
        return True

    async def _receive_raw(self) -> bytes:
        if self._may_have_more:
            try:
                data = self._sock.recv(self.receive_bytes)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                await trio.lowlevel.checkpoint()
                return b""
            else:
                self._may_have_more = len(data) == self.receive_bytes
                # A reader that never pauses must not starve others; what was read is never lost.
                await trio.lowlevel.cancel_shielded_checkpoint()
                return data
        while True:
            try:
                await trio.lowlevel.wait_readable(self._sock)
                data = self._sock.recv(self.receive_bytes)
            except (BlockingIOError, InterruptedError):
                continue
            except (OSError, trio.ClosedResourceError):
                return b""
            # The kernel had less than fits: asking again at once would only cost a call that fails.
            self._may_have_more = len(data) == self.receive_bytes
            return data

    def send_nowait(self, data: bytes) -> None:
        """Send as much as the kernel takes now and keep the rest for the drain task. Nothing after a failure."""
        if self._closed or not data:
            return
        if self._tls is not None:
            try:
                self._tls.write(data)
            except ssl.SSLError:
                self.close()
                return
            self._flush_tls()
        else:
            self._send_raw(data)

    def _flush_tls(self) -> None:
        assert self._outgoing is not None
        if self._outgoing.pending and not self._closed:
            self._send_raw(self._outgoing.read())

    def _send_raw(self, data: bytes) -> None:
        if not self._backlog_bytes:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.close()
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._drained = trio.Event()
            self._backlog.append(data)
            self._nursery.start_soon(self._drain)
        else:
            self._backlog.append(data)
        self._backlog_bytes += len(data)

    async def _drain(self) -> None:
        while self._backlog_bytes and not self._closed:
            try:
                await trio.lowlevel.wait_writable(self._sock)
                sent = self._sock.send(self._next_piece())
            except (BlockingIOError, InterruptedError):
                continue
            except (OSError, trio.ClosedResourceError):
                self.close()
                break
            self._piece = self._piece[sent:]
            self._backlog_bytes -= sent
        if self._drained is not None:
            self._drained.set()
        if self.on_drained is not None:
            self.on_drained()

    def _next_piece(self) -> memoryview:
        """The front of what is left over. A rest is a view of the same bytes: a copy would cost its whole length."""
        if not self._piece:
            blocks, size_bytes = [], 0
            while self._backlog and size_bytes < DRAIN_BYTES:
                blocks.append(self._backlog.popleft())
                size_bytes += len(blocks[-1])
            self._piece = memoryview(blocks[0] if len(blocks) == 1 else b"".join(blocks))
        return self._piece

    async def wait_drained(self) -> None:
        """Wait until nothing is left over, or the channel has failed."""
        if self._backlog_bytes and self._drained is not None and not self._closed:
            await self._drained.wait()
        else:
            await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Close at once; a reader that waits gets b""."""
        if self._closed:
            return
        self._closed = True
        self._may_have_more = True  # a read fails at once; nobody waits on a closed socket
        self._backlog.clear()
        self._piece = _NOTHING
        self._backlog_bytes = 0
        self.on_drained = None  # it holds this object: an ended connection must not wait for the garbage collector
        if self._drained is not None:
            self._drained.set()
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()

    async def aclose(self, *, within_seconds: float = 1.0) -> None:
        """Write what is left over, say goodbye on TLS, close."""
        with trio.move_on_after(within_seconds, shield=True):
            await self.wait_drained()
        if self._tls is not None and not self._closed:
            with contextlib.suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
            self._flush_tls()
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
