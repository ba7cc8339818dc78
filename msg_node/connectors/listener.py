"""One listener for local runtimes of every dialect and for the stubs of other domains.

A connection is half-open, with a deadline that runs from the connect, until a session has been opened on it or its
domain is proved (`half_open.py`). The target of its first request decides who serves it
(`msg_node/kernel/dialects.py`).
Source: message specification, section 5; design, section 3.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

import trio

from federation.core.link_frames import SUBPROTOCOL
from federation.links.link_acceptor import LinkAcceptor
from msg_node.bus.bus import Bus
from msg_node.bus.core.message_queue import QueueBounds
from msg_node.connectors.half_open import HalfOpen, Newcomer
from msg_node.connectors.http_line import ClientOf, refusal_of
from msg_node.connectors.https import HttpsBinding, HttpsOptions
from msg_node.connectors.matrix import REASON_HEADER, Matrix
from msg_node.connectors.polling import PollingConnection
from msg_node.connectors.proxies import NO_PROXIES, Proxies, fields_of, read_client
from msg_node.connectors.reception import ANY_ORIGIN, OnOpened, Reception
from msg_node.connectors.socketio import SocketIo
from msg_node.connectors.websocket import WebSocketChannel, serve_messages
from msg_node.kernel.certificates import PeerCertificate, read_certificate
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.dialects import Arrival, EntryPoint, arrival_at
from msg_node.kernel.proof import Offered
from msg_node.kernel.session import Dialect
from protofly.counters import Counters
from protofly.errors import PeerError, TransportError
from protofly.limits import FRAME_BYTES, HANDSHAKE_SECONDS, UNOPENED_PER_SECOND
from wire.byte_channel import ByteChannel
from wire.core.address_group import address_group
from wire.core.websocket import POLICY, TRY_AGAIN_LATER, ServerWebSocket

logger = logging.getLogger("msg_node")

UNPROVED_BYTES: Final = 64 << 10
"""Largest frame of a link that has not proved its domain yet."""
_HEAD_BYTES: Final = 16 << 10
_END_OF_HEAD: Final = b"\r\n\r\n"


class ListenerOptions(NamedTuple):
    """Limits of runtimes: who may connect, what they may send and leave unread.

    Attributes:
        max_bytes: Largest message of a runtime.
        queue: What may wait for one runtime.
        origins: Web origins whose pages may connect as runtimes; `*` is any.
        https: How runtimes over HTTP are served; None: not at all.
        unopened_per_second: Connections of one address that may stay without a session or proof.
        proxies: In front of the listener.
    """

    max_bytes: int = FRAME_BYTES
    queue: QueueBounds = QueueBounds()
    origins: Collection[str] = (ANY_ORIGIN,)
    https: HttpsOptions | None = HttpsOptions()
    unopened_per_second: float = UNOPENED_PER_SECOND
    proxies: Proxies = NO_PROXIES


class Listener:
    """Accepts connections of runtimes and of the links of other domains.

    Args:
        context: TLS, or None for a listener without it.
        acceptor: Serves links of other domains; None when this node takes none.
        options: For runtimes.

    Attributes:
        context: TLS of the next connection.
        proxies: Those in front, for the next connection.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        context: ssl.SSLContext | None,
        acceptor: LinkAcceptor | None,
        options: ListenerOptions = ListenerOptions(),  # noqa: B008 - frozen
    ) -> None:
        self.context = context
        self.proxies = options.proxies
        self._acceptor = acceptor
        self.counters = Counters(NodeCount)
        self.half_open = HalfOpen(self.counters, options.unopened_per_second)
        self.reception = Reception(bus, options.max_bytes, options.queue, options.origins, self.counters)
        self._matrix = Matrix(self.reception)
        self._https = None if options.https is None else HttpsBinding(self.reception, options.https)

    def follow(self, options: ListenerOptions) -> None:
        """Let other limits of runtimes count for those who come; whether HTTP is served stays."""
        self.reception.max_bytes = options.max_bytes
        self.reception.queue, self.reception.origins = options.queue, options.origins
        self.half_open.bound(options.unopened_per_second)
        self.proxies = options.proxies
        if self._https is not None and options.https is not None:
            self._https.follow(options.https)

    async def run(
        self, listeners: list[trio.SocketListener], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as drains, trio.open_nursery() as connections:
            self._drains = drains
            self._socket_io = SocketIo(self.reception, connections, self.half_open)
            connections.start_soon(self.half_open.run)
            if self._https is not None:
                connections.start_soon(self._https.run)
            task_status.started()
            await trio.serve_listeners(self._serve, listeners, handler_nursery=connections)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            remote, port = stream.socket.getpeername()[:2]
        except OSError:  # reset before we looked
            stream.socket.close()
            return
        is_of_proxy = self.proxies.include(remote)
        key = f"{remote} port {port}" if is_of_proxy else remote
        newcomer = Newcomer(self.half_open, key, is_client=not is_of_proxy)
        try:
            if not newcomer.is_refused:
                with newcomer.scope:
                    await self._serve_newcomer(stream, newcomer, remote, self.proxies)
        except PeerError as exc:
            self.counters[NodeCount.PROXY_HEADERS] += 1
            logger.warning("a connection of the proxy %s is refused: %s", remote, exc)
        except (TransportError, OSError) as exc:
            self.counters[NodeCount.FAILED_HANDSHAKES] += 1
            logger.debug("handshake with %s failed: %s", remote, exc)
        except Exception:  # a defect of ours may cost this connection, never the node
            self.counters[NodeCount.INTERNAL_ERRORS] += 1
            logger.exception("the connection of %s is closed", remote)
        finally:
            newcomer.ended()
            stream.socket.close()

    async def _serve_newcomer(
        self, stream: trio.SocketStream, newcomer: Newcomer, remote: str, proxies: Proxies
    ) -> None:
        line = None
        with trio.move_on_after(HANDSHAKE_SECONDS) as handshake:
            if proxies.begin_with_header and proxies.include(remote):
                newcomer.phase = "no PROXY header"
                remote = await read_client(stream.socket, remote)
                newcomer.comes_from(remote)
                newcomer.phase = "no TLS"
            if not newcomer.is_refused:
                line, head = await self._meet(stream, newcomer)
        if line is None:
            if handshake.cancelled_caught:
                self.counters[NodeCount.SLOW_HANDSHAKES] += 1
                self.counters[NodeCount.SLOW_HANDSHAKES_BY_PHASE.of(newcomer.phase)] += 1
            return
        async with line:
            try:
                client_of = partial(proxies.client_of, remote)
                client = client_of(fields_of(head)) if proxies.networks else remote
            except PeerError as exc:
                line.send_nowait(refusal_of(exc))
                await line.aclose()
                raise
            if client != remote:
                newcomer.comes_from(client)
            if not newcomer.is_refused:
                await self._receive(line, head, newcomer, client, client_of)
            await line.aclose()

    async def _meet(self, stream: trio.SocketStream, newcomer: Newcomer) -> tuple[ByteChannel, bytes]:
        """TLS, then everything up to the end of the first request's head; without that end there is no request."""
        line = await ByteChannel.over(stream, drain_nursery=self._drains, context=self.context, server_side=True)
        try:
            head = b""
            newcomer.phase = "no request"
            while _END_OF_HEAD not in head and len(head) <= _HEAD_BYTES:
                data = await line.receive()
                if not data:
                    break
                head += data
                newcomer.phase = "half a request"
        except BaseException:
            line.close()
            raise
        return line, head

    async def _receive(
        self, line: ByteChannel, head: bytes, newcomer: Newcomer, client: str, client_of: ClientOf
    ) -> None:
        """Answer the first request and serve what it asks for."""
        arrival = _arrival_in(head)
        certificate = read_certificate(line.peer_certificate) if line.peer_certificate else None
        if arrival.entry is EntryPoint.ENGINE_IO and arrival.parameters.get("transport") != "websocket":
            polling = PollingConnection(
                self._socket_io,
                line,
                client_of=client_of,
                certificate=certificate,
                on_known=newcomer.opened,
            )
            await polling.serve(head)
            return
        if arrival.entry is EntryPoint.HTTPS and self._https is not None:
            await self._https.serve(line, head, client_of=client_of, certificate=certificate, on_known=newcomer.opened)
            return
        websocket = ServerWebSocket(max_bytes=self.reception.max_bytes)
        websocket.receive(head)
        if websocket.request_path is None:
            if not websocket.handshake_failed:
                websocket.receive(b"")
        elif self._may_enter(websocket, arrival):
            try:
                await self._serve_websocket(line, websocket, arrival, certificate, newcomer, client)
            except trio.Cancelled:
                if newcomer.scope.cancel_called:  # and not the whole node
                    self._say_why(websocket, newcomer)
                    line.send_nowait(websocket.data_to_send())
                raise
            finally:
                self.counters[NodeCount.BROKEN_CONNECTIONS] += websocket.is_broken
        else:
            self.counters[NodeCount.FAILED_HANDSHAKES] += 1
        line.send_nowait(websocket.data_to_send())

    def _say_why(self, websocket: ServerWebSocket, newcomer: Newcomer) -> None:
        if newcomer.is_late:
            websocket.close(POLICY, "no session was opened in time")
        else:
            websocket.close(TRY_AGAIN_LATER, "too many connections without a session")

    def _may_enter(self, websocket: ServerWebSocket, arrival: Arrival) -> bool:
        """True if an upgrade request is for something here and may have it; else it is answered."""
        if arrival.entry in (EntryPoint.NOBODY, EntryPoint.HTTPS) or (
            arrival.entry is EntryPoint.LINK and self._acceptor is None
        ):
            headers = {REASON_HEADER: arrival.text} if arrival.status == 403 else {}
            websocket.reject(arrival.status or 404, f"{arrival.text or 'nobody is served here'}\n", headers=headers)
        elif not websocket.is_upgrade:
            with contextlib.suppress(PeerError):
                websocket.accept()
        elif arrival.entry is not EntryPoint.LINK and not self.reception.admits(websocket.header("Origin")):
            websocket.reject(403, "pages of this origin may not connect\n")
        elif arrival.entry is EntryPoint.ENGINE_IO:
            trouble = self._socket_io.judge("GET", arrival.parameters, is_upgrade=True)
            if trouble is None:
                return True
            websocket.reject(400, trouble.body().decode(), headers={"Content-Type": "application/json"})
        else:
            return True
        return False

    async def _serve_websocket(
        self,
        line: ByteChannel,
        websocket: ServerWebSocket,
        arrival: Arrival,
        certificate: PeerCertificate | None,
        newcomer: Newcomer,
        remote: str,
    ) -> None:
        if arrival.entry is EntryPoint.LINK and self._acceptor is not None:
            websocket.allow_bytes(UNPROVED_BYTES)
            websocket.accept(subprotocol=SUBPROTOCOL, is_binary=True)
            line.send_nowait(websocket.data_to_send())
            self.counters[NodeCount.LINKS] += 1
            await self._acceptor.serve(line, websocket, remote=remote, on_proved=newcomer.opened)
            self.counters[NodeCount.REFUSED_LINKS] = self._acceptor.refused
            return
        token = websocket.bearer
        if arrival.entry in (EntryPoint.COMMAND_FRAMES, EntryPoint.QUERY):
            token = token or arrival.parameters.get("access_token", "")
        offered = Offered(token, certificate, address_group(remote))
        if arrival.entry is EntryPoint.QUERY:
            runtime = arrival.parameters["runtimeURL"]
            await self._matrix.serve_query(line, websocket, runtime, offered, newcomer.opened)
            return
        websocket.accept()
        line.send_nowait(websocket.data_to_send())
        if arrival.entry is EntryPoint.COMMAND_FRAMES:
            await self._matrix.serve_command_frames(line, websocket, offered, newcomer.opened)
        elif arrival.entry is EntryPoint.ENGINE_IO:
            websocket.allow_bytes(_event_bytes(self.reception.max_bytes))
            sid = arrival.parameters.get("sid", "")
            await self._socket_io.serve_websocket(line, websocket, sid, offered, newcomer.opened)
        else:
            await self._serve_messages(line, websocket, offered, newcomer.opened)

    async def _serve_messages(
        self, line: ByteChannel, websocket: ServerWebSocket, offered: Offered, on_opened: OnOpened
    ) -> None:
        channel = WebSocketChannel(line, websocket)
        port = self.reception.welcome(channel, Dialect.SESSION_MESSAGES, offered, on_opened)
        try:
            await serve_messages(self.reception.bus, port, channel)
        finally:
            self.reception.release(port)


def _arrival_in(head: bytes) -> Arrival:
    """Read the request line of a head; the rest of the head is not checked here."""
    if _END_OF_HEAD not in head:
        return Arrival(EntryPoint.NOBODY, status=400)
    parts = head.partition(b"\r\n")[0].split(b" ")
    return arrival_at(parts[1].decode("latin-1") if len(parts) == 3 else "")


def _event_bytes(message_bytes: int) -> int:
    """Return the largest packet that carries a message as text in a text."""
    return 2 * message_bytes + 1024
