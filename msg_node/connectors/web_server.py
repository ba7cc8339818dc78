"""HTTP servers of ours that strangers reach: the site, and the global registry for laboratories.

Strangers decide how many connections they open and how long they take for everything, so each of these is bounded, per
address (`wire.core.address_group`) before it is in all:

* connections: an address has its share; when there are too many in all, the oldest one of the address with the most is
  closed, so that nobody keeps others out by doing nothing;
* new connections and requests per second: further connections are closed before TLS costs anything, further requests
  are answered 429 before anything is done for them;
* time: TLS handshake and first head together, every further head, every body, and the pace of reading an answer.

A client that goes away, at whatever moment, is no event: health probes do nothing else.

Source: RFC 6585, section 4; RFC 9110, section 10.2.3.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from msg_node.connectors.http_line import Asgi, HttpApplication, read_first_head
from msg_node.connectors.proxies import NO_PROXIES, Fields, Proxies, read_client
from msg_node.kernel.counts import SiteCount
from msg_node.kernel.keyed_rates import KeyedRates
from protofly.counters import Counters
from protofly.errors import Code, PeerError, SettingsError, TransportError
from protofly.limits import (
    HANDSHAKE_SECONDS,
    WEB_BACKLOG_BYTES,
    WEB_BURST_SECONDS,
    WEB_CONNECTIONS,
    WEB_CONNECTIONS_PER_ADDRESS,
    WEB_REQUEST_SECONDS,
    WEB_REQUESTS_PER_SECOND,
)
from wire.core.address_group import address_group
from wire.core.pending import Pending, PendingTable

logger = logging.getLogger("msg_node.site.site")

_WAITING_CONNECTIONS: Final = 256
"""In the kernel, until we take them."""
_ADDRESSES_REMEMBERED: Final = 4096
_CONNECTIONS_PER_REQUEST: Final = 2.0
"""A connection for each request is the worst that is right. Beyond it somebody is not listening to our 429s."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_EXHAUSTED_PAUSE_SECONDS: Final = 0.1
_OURS: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})
"""Errors of `accept` that are about our socket. All others are about one connection that has ended already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebBounds:
    """Limits for unknown clients.

    Attributes:
        connections: In all.
        connections_per_address: Of one address, or of one /64 of IPv6.
        requests_per_second: Of one address.
        request_seconds: For the body of a request.
    """

    connections: int = WEB_CONNECTIONS
    connections_per_address: int = WEB_CONNECTIONS_PER_ADDRESS
    requests_per_second: float = WEB_REQUESTS_PER_SECOND
    request_seconds: float = WEB_REQUEST_SECONDS


@dataclass(frozen=True, slots=True)
class WebListener:
    """A bound address. `url` ends without a slash; `context` is None without TLS."""

    url: str
    socket: socket.socket
    context: ssl.SSLContext | None


def listen(
    host: str, port: int, *, certificate: Path | None, key: Path | None, named: str = "", is_shared: bool = False
) -> WebListener:
    """Bind an address for a server.

    Args:
        host: Address to bind.
        port: 0 lets the system choose one.
        certificate: PEM file with the certificate chain; None serves without TLS.
        key: PEM file with its private key; None: it stands in the certificate's file.
        named: The part of the settings that these are from, for the message of an error.
        is_shared: Other processes of this node listen there, too.

    Raises:
        SettingsError: Address or certificate cannot be used.
    """
    part = f"[{named}] " if named else ""
    context = None if certificate is None else web_context(certificate, key, part)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError as exc:
        listener.close()
        raise SettingsError(f"{part}{host} port {port}: {exc.strerror}") from exc
    bound_host, bound_port = listener.getsockname()[:2]
    shown = f"[{bound_host}]" if ":" in bound_host else bound_host
    return WebListener(f"{'http' if context is None else 'https'}://{shown}:{bound_port}", listener, context)


def web_context(certificate: Path, key: Path | None, part: str) -> ssl.SSLContext:
    """TLS of a server; `part` of the settings is for the message of an error. Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as exc:
        raise SettingsError(f"{part}{certificate}: {exc.strerror or exc}") from exc
    return context


class WebServer:
    """Serves an ASGI application over HTTP/1.1.

    Args:
        app: The application.
        listener: Where it listens; the server owns its socket from here on.
        bounds: What strangers may take.

    Attributes:
        counters: What was refused, and why.
        context: TLS of the next connection.
        proxies: Those in front, for the next connection.
    """

    def __init__(self, app: Asgi, listener: WebListener, bounds: WebBounds = WebBounds()) -> None:
        self._application = HttpApplication(
            app, request_seconds=bounds.request_seconds, backlog_bytes=WEB_BACKLOG_BYTES
        )
        self._listener = listener
        self.context = listener.context
        self.proxies = NO_PROXIES
        self._table: PendingTable[trio.CancelScope] = PendingTable(
            most=bounds.connections, most_per_address=bounds.connections_per_address
        )
        self._requests, self._arrivals = _rates_of(bounds)
        self.counters = Counters(SiteCount)

    def bound(self, bounds: WebBounds) -> None:
        """Let other bounds count from now on, but for the time of a body; every address has its whole burst again."""
        self._table.bound(most=bounds.connections, most_per_address=bounds.connections_per_address)
        self._requests, self._arrivals = _rates_of(bounds)

    @property
    def open_connections(self) -> int:
        """Connections that are being served."""
        return len(self._table)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        with trio.socket.from_stdlib_socket(self._listener.socket) as accepting:
            accepting.listen(_WAITING_CONNECTIONS)
            async with trio.open_nursery() as drains, trio.open_nursery() as connections:
                task_status.started()
                while True:
                    await self._accept(accepting, connections, drains)

    async def _accept(self, accepting: trio.socket.SocketType, connections: trio.Nursery, drains: trio.Nursery) -> None:
        """Take one connection, or refuse it before it costs more than this."""
        try:
            sock, address = await accepting.accept()
        except OSError as exc:
            if exc.errno in _OURS:
                raise
            if exc.errno in _EXHAUSTED:
                logger.error("the site accepts no connection: %s", exc.strerror)
                await trio.sleep(_EXHAUSTED_PAUSE_SECONDS)
            return
        remote = str(address[0])
        if self.proxies.include(remote):  # whose it is will be known; until then it is one of nobody else
            entry = self._enter(f"{remote} port {address[1]}", trio.CancelScope())
        else:
            entry = self._enter_client(remote, trio.CancelScope())
        if entry is None:
            sock.close()
        else:
            connections.start_soon(self._serve, sock, remote, entry, drains)

    def _enter_client(self, remote: str, scope: trio.CancelScope) -> Pending[trio.CancelScope] | None:
        group = address_group(remote)
        if self._arrivals.take(group, trio.current_time()) > 0.0:
            self.counters[SiteCount.TOO_OFTEN] += 1
            return None
        return self._enter(group, scope)

    def _enter(self, group: str, scope: trio.CancelScope) -> Pending[trio.CancelScope] | None:
        entry, displaced = self._table.enter(group, scope)
        if entry is None:
            self.counters[SiteCount.TOO_MANY] += 1
        if displaced is not None:
            self.counters[SiteCount.DISPLACED] += 1
            displaced.holder.cancel()
        return entry

    async def _serve(
        self, sock: trio.socket.SocketType, remote: str, entry: Pending[trio.CancelScope], drains: trio.Nursery
    ) -> None:
        proxies = self.proxies
        place: Pending[trio.CancelScope] | None = entry
        try:
            with entry.holder as scope:
                if proxies.begin_with_header and proxies.include(remote):
                    remote = await self._client_behind(sock, remote)
                    self._table.leave(entry)
                    place = self._enter_client(remote, scope)
                if place is not None:
                    await self._serve_requests(trio.SocketStream(sock), remote, proxies, drains)
        except PeerError as exc:
            self.counters[SiteCount.PROXY_HEADERS] += 1
            logger.warning("a connection of the proxy %s is refused: %s", remote, exc)
        except (TransportError, OSError) as exc:  # also of a socket that was reset before we looked
            self.counters[SiteCount.FAILED_HANDSHAKES] += 1
            logger.debug("handshake with %s failed: %s", remote, exc)
        except Exception:  # a defect of ours may cost this connection, never the node
            self.counters[SiteCount.INTERNAL_ERRORS] += 1
            logger.exception("the connection of %s is closed", remote)
        finally:
            if place is not None:
                self._table.leave(place)
            sock.close()

    async def _client_behind(self, sock: trio.socket.SocketType, proxy: str) -> str:
        """Read the PROXY header of a connection. Raises PeerError PROXY_HEADER, also when it does not come in time."""
        with trio.move_on_after(HANDSHAKE_SECONDS):
            return await read_client(sock, proxy)
        raise PeerError(Code.PROXY_HEADER, "the PROXY header does not come in time")

    async def _serve_requests(
        self, stream: trio.SocketStream, remote: str, proxies: Proxies, drains: trio.Nursery
    ) -> None:
        line = None
        with trio.move_on_after(HANDSHAKE_SECONDS):
            line, head = await read_first_head(stream, drain_nursery=drains, context=self.context)
        if line is None:
            self.counters[SiteCount.SLOW_HANDSHAKES] += 1
            return
        async with line:
            client_of = partial(self._client_of, proxies, remote)
            await self._application.serve(line, head, client_of=client_of, judge=self._judge)
            await line.aclose()

    def _client_of(self, proxies: Proxies, remote: str, fields: Fields) -> str:
        try:
            return proxies.client_of(remote, fields)
        except PeerError as exc:
            self.counters[SiteCount.PROXY_HEADERS] += 1
            logger.warning("a request over the proxy %s is refused: %s", remote, exc)
            raise

    def _judge(self, client: str) -> float:
        wait_seconds = self._requests.take(address_group(client), trio.current_time())
        self.counters[SiteCount.REQUESTS_TOO_OFTEN] += wait_seconds > 0.0
        return wait_seconds


def _rates_of(bounds: WebBounds) -> tuple[KeyedRates, KeyedRates]:
    """Of requests, and of connections."""
    per_second = bounds.requests_per_second
    requests, connections = (
        KeyedRates(per_second=rate, burst_seconds=WEB_BURST_SECONDS, most=_ADDRESSES_REMEMBERED)
        for rate in (per_second, per_second * _CONNECTIONS_PER_REQUEST)
    )
    return requests, connections
