"""The channels of one hosted stub: the stub names an endpoint, we open the line.

The stub never sees a socket, a host name, TLS or WebSocket framing; it hands over bytes and gets bytes. Every line
goes through the judged dialler, every certificate is checked for the endpoint's host and against the pins of the
`live` document. Source: docs/abi.md; trust and hosts, sections 2.6 and 2.7.
"""

from __future__ import annotations

import hashlib
import logging
import math
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from secrets import randbelow
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import trio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from catalogue_client.fetcher import Dialler
from federation.core.service_tokens import ServiceTokens, cleaned
from protofly.documents import ALTERNATES, Endpoint
from protofly.errors import Code, HostError, PeerError, SettingsError, TransportError
from protofly.limits import HANDSHAKE_SECONDS, HTTP_ANSWER_BYTES, HTTP_EXCHANGE_SECONDS, STUB_LINES_PER_SECOND
from protofly.signatures import base64url
from sandbox.core.exchange import EVENT_PAYLOAD_BYTES, ChannelKind, Event, GuestEvent
from sandbox.core.grants import denied
from sandbox.core.open_request import OpenRequest, check_open, decode_open
from wire.byte_channel import ByteChannel
from wire.core.http_exchange import HttpExchange, OutgoingRequest
from wire.core.websocket import ClientWebSocket

logger = logging.getLogger("federation")

KEEPALIVE_SECONDS = 20.0
HIGH_WATER_BYTES = 1 << 20
TEXT = 1
_SCHEMES = {ChannelKind.WEBSOCKET: "wss", ChannelKind.TCP_TLS: "tls", ChannelKind.HTTP: "https"}
_PLAINTEXT_SCHEMES = {"ws": "wss", "http": "https"}


@dataclass(frozen=True, slots=True)
class EgressRules:
    """The endpoints that one domain's stub may reach.

    `endpoints` are those of its manifest that the `live` document knows; `allows_plaintext` is the operator's
    `insecure_plaintext` for this peer. `tokens` are the access tokens that we keep for it; `read_token` gives the one
    of the operator, and raises SettingsError.
    """

    domain: str
    endpoints: Mapping[str, Endpoint]
    allows_plaintext: bool = False
    tokens: ServiceTokens = field(default_factory=ServiceTokens)
    read_token: Callable[[], str] | None = None

    def read_request(self, raw: bytes) -> tuple[OpenRequest, Endpoint]:
        """Read the bytes of `open`.

        Raises:
            StubFaultError: STUB_OUTPUT when they cannot be read, STUB_DENIED when there is no such endpoint.
        """
        request = decode_open(raw)
        endpoint = self.endpoints.get(request.endpoint)
        if endpoint is None:
            raise denied("connect", f"endpoint {request.endpoint[:64]!r} is not granted")
        return request, endpoint

    def url_of(self, endpoint: Endpoint, kind: int, request: OpenRequest) -> str:
        """The URL of a request that may be opened.

        Raises:
            StubFaultError: STUB_DENIED when path, headers, kind or token are not allowed.
        """
        check_open(request, kind)
        scheme = urlsplit(endpoint.url).scheme
        if self.allows_plaintext:
            scheme = _PLAINTEXT_SCHEMES.get(scheme, scheme)
        if scheme != _SCHEMES[ChannelKind(kind)]:
            raise denied("connect", f"endpoint {request.endpoint[:64]!r} is not for this kind of channel")
        if request.token:
            self.tokens.check(request.token, endpoint.url)
        return endpoint.url.rstrip("/") + request.path if request.path else endpoint.url


@dataclass(slots=True)
class LineOpener:
    """Opens lines with the judged dialler, and with TLS against the authorities that the node trusts.

    Another `tls_context` counts from the next line on.
    """

    dialler: Dialler
    tls_context: ssl.SSLContext

    async def open(self, url: str, *, domain: str, drain_nursery: trio.Nursery) -> ByteChannel:
        """Open a line to the host and port of `url`, under the address rules of `domain`; `ws` and `http` have no TLS.

        Raises:
            PeerError: The address is refused, or TLS fails.
            TransportError: Nobody answers.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_plain = parts.scheme in _PLAINTEXT_SCHEMES
        stream = await self.dialler.connect(host, parts.port or (80 if is_plain else 443), domain=domain)
        context = None if is_plain else self.tls_context
        return await ByteChannel.over(stream, drain_nursery=drain_nursery, context=context, server_hostname=host)


class LineUser(Protocol):
    """The stub instance whose lines these are."""

    def emit(self, event: GuestEvent) -> None:
        """Queue one event; events arrive in the order in which they were queued."""

    async def wait_for_room(self) -> None:
        """Wait while it has too much to read."""


class Channel:
    """One line of a stub."""

    __slots__ = ("bytes_channel", "endpoint", "is_open", "kind", "number", "scope", "websocket")

    def __init__(self, number: int, kind: int, endpoint: Endpoint) -> None:
        self.number = number
        self.kind = kind
        self.endpoint = endpoint
        self.bytes_channel: ByteChannel | None = None
        self.websocket: ClientWebSocket | None = None
        self.is_open = False
        self.scope = trio.CancelScope()


class Egress:
    """All lines of one stub instance.

    Args:
        rules: What the stub may reach.
        opener: Opens its lines.
        guest: Whose lines they are.
        handler_nursery: Runs one task per line.
        on_ended: Called with each line that has ended, and why, before the guest gets the event `closed`.
    """

    def __init__(
        self,
        rules: EgressRules,
        opener: LineOpener,
        guest: LineUser,
        *,
        handler_nursery: trio.Nursery,
        on_ended: Callable[[Channel, str], None],
    ) -> None:
        self.rules = rules
        self._opener = opener
        self._nursery = handler_nursery
        self._guest = guest
        self._on_ended = on_ended
        self._channels: dict[int, Channel] = {}
        self._heard_seconds = 0.0
        self._digesting = 0
        self._next_opening = -math.inf  # less a second: so much of the rate may come at once
        self._openings = count(randbelow(ALTERNATES + 1))  # instances begin at different nodes of a domain

    @property
    def backlog_bytes(self) -> int:
        """Bytes that no line has taken yet; the stub gets no more messages while there are many."""
        return sum(
            channel.bytes_channel.backlog_bytes
            for channel in self._channels.values()
            if channel.bytes_channel is not None
        )

    @property
    def heard_seconds(self) -> float:
        """Monotonic seconds of the last data on any connection; 0 before the first."""
        if self._digesting:  # the guest has enough to read: that is no silence of the far end
            return time.monotonic()
        return self._heard_seconds

    async def wait_drained(self) -> None:
        """Wait until every line has taken its bytes."""
        for channel in list(self._channels.values()):
            if channel.bytes_channel is not None:
                await channel.bytes_channel.wait_drained()

    def probe(self) -> bool:
        """Ping on every open WebSocket; False when there is none."""
        is_asked = False
        for channel in self._channels.values():
            line, websocket = channel.bytes_channel, channel.websocket
            if line is not None and websocket is not None and websocket.is_open:
                websocket.ping()
                line.send_nowait(websocket.data_to_send())
                is_asked = True
        return is_asked

    def channel(self, number: int) -> Channel:
        """An open or opening line.

        Raises:
            StubFaultError: STUB_DENIED when the stub has no such channel.
        """
        found = self._channels.get(number)
        if found is None:
            raise denied("channel", f"channel {number} is not open")
        return found

    def open(self, number: int, kind: int, request: OpenRequest, endpoint: Endpoint) -> None:
        """Start opening a line that was granted; the event `opened` or `closed` follows.

        Openings beyond `STUB_LINES_PER_SECOND` wait their turn, else one domain could have us connect to another all
        the time. Of an endpoint with alternates each opening takes the next place.

        Raises:
            StubFaultError: STUB_DENIED when path, headers or kind are not allowed.
        """
        place = endpoint.place(next(self._openings))
        url = self.rules.url_of(place, kind, request)
        channel = Channel(number, kind, place)
        self._channels[number] = channel
        self._nursery.start_soon(self._run, channel, url, request)

    async def _run(self, channel: Channel, url: str, request: OpenRequest) -> None:
        reason = "closed"
        try:
            with channel.scope:
                await self._wait_turn()
                with trio.fail_after(HANDSHAKE_SECONDS):
                    early = await self._open(channel, url, request)
                channel.is_open = True
                reason = await self._carry(channel, url, request, early)
        except trio.TooSlowError:
            reason = Code.FETCH_TIMEOUT.word
        except HostError as exc:
            reason = f"{exc.code.word} {exc.detail}".strip()
        finally:
            if channel.bytes_channel is not None:
                channel.bytes_channel.close()
            if self._channels.get(channel.number) is channel:
                del self._channels[channel.number]
        self._on_ended(channel, reason)
        self._guest.emit(GuestEvent(Event.CLOSED, channel.number, reason.encode()[:256]))

    async def _wait_turn(self) -> None:
        """Wait until one more line may be opened; they are opened in the order in which they were asked for."""
        self._next_opening = max(self._next_opening, trio.current_time() - 1.0) + 1 / STUB_LINES_PER_SECOND
        await trio.sleep_until(self._next_opening)

    async def _open(self, channel: Channel, url: str, request: OpenRequest) -> list[bytes]:
        """Connect, with the WebSocket handshake where there is one; returns the messages that came behind it."""
        await self._connect(channel, url)
        return await self._upgrade(channel, url, request) if channel.kind == ChannelKind.WEBSOCKET else []

    async def _carry(self, channel: Channel, url: str, request: OpenRequest, early: list[bytes]) -> str:
        """Notify the guest that its channel is open, and carry until it ends; returns why it ended."""
        flags = TEXT if request.text else 0
        subprotocol = channel.websocket.subprotocol.encode() if channel.websocket else b""
        self._guest.emit(GuestEvent(Event.OPENED, channel.number, subprotocol))
        for message in early:
            self._guest.emit(GuestEvent(Event.DATA, channel.number, message, flags))
        if channel.kind != ChannelKind.HTTP:
            return await self._read(channel, flags)
        with trio.fail_after(HTTP_EXCHANGE_SECONDS):
            return await self._exchange_with_token(channel, url, request)

    async def _connect(self, channel: Channel, url: str) -> None:
        domain = self.rules.domain
        channel.bytes_channel = await self._opener.open(url, domain=domain, drain_nursery=self._nursery)
        if channel.endpoint.spki:
            check_pin(channel, domain=domain)

    async def _upgrade(self, channel: Channel, url: str, request: OpenRequest) -> list[bytes]:
        """Do the WebSocket handshake; returns what the server said in the same breath."""
        websocket = ClientWebSocket(
            url,
            subprotocol=request.subprotocol,
            headers=request.headers,
            is_binary=not request.text,
            max_bytes=EVENT_PAYLOAD_BYTES,
        )
        line = channel.bytes_channel
        assert line is not None
        line.send_nowait(websocket.data_to_send())
        early: list[bytes] = []
        while websocket.is_waiting:
            data = await line.receive()
            early += websocket.receive(data)
            line.send_nowait(websocket.data_to_send())
            if websocket.refusal or not data:
                raise TransportError(
                    Code.CONNECT_FAILED, websocket.refusal or "closed during the handshake", phase="connect"
                )
        channel.websocket = websocket
        return early

    async def _exchange_with_token(self, channel: Channel, url: str, request: OpenRequest) -> str:
        """The same with the access token that the stub has named, which it never gets to see.

        Raises:
            HostError: See `_exchange`; what the service says in it is cleaned as its answers are.
        """
        token = await self._token(request.token)
        try:
            return await self._exchange(channel, url, request, token)
        except PeerError as exc:
            detail = cleaned(exc.detail.encode(), token).decode() if token else exc.detail
            raise PeerError(exc.code, detail, domain=exc.domain) from None

    async def _token(self, handle: str) -> str:
        """The token behind a handle, "" for no handle; what lies in a file may have been replaced since the last time.

        Raises:
            PeerError: BAD_TOKEN when it is not to be had any more.
        """
        if not handle:
            return ""
        token = self.rules.tokens.of_user(handle)
        if not token and self.rules.read_token is not None:
            try:
                token = await trio.to_thread.run_sync(self.rules.read_token)
            except SettingsError as exc:
                logger.error(
                    "the access token for the stub of %s: %s",
                    self.rules.domain,
                    exc.detail,
                    extra={"domain": self.rules.domain},
                )
        if not token:
            raise PeerError(Code.BAD_TOKEN, "the access token is not to be had", domain=self.rules.domain)
        return token

    async def _exchange(self, channel: Channel, url: str, request: OpenRequest, token: str) -> str:
        """Send one request and hand over its answer; redirects are the stub's to understand."""
        line = channel.bytes_channel
        assert line is not None
        headers = {**request.headers, "Authorization": f"Bearer {token}"} if token else request.headers
        exchange = HttpExchange(
            OutgoingRequest(url=url, method=request.method or "GET", headers=headers, body=request.body.encode()),
            max_bytes=HTTP_ANSWER_BYTES,
            domain=self.rules.domain,
        )
        line.send_nowait(exchange.data_to_send())
        while (answer := exchange.receive(await line.receive())) is None:
            self._heard_seconds = time.monotonic()
        self._heard_seconds = time.monotonic()
        await self._guest.wait_for_room()
        head = msgspec.json.encode({"status": answer.status, "headers": answer.headers})
        whole = head + b"\n" + answer.body
        shown = cleaned(whole, token) if token else whole
        if len(shown) > EVENT_PAYLOAD_BYTES:  # a token of one letter is shorter than what stands in its place
            raise PeerError(Code.DOCUMENT_TOO_LARGE, "the answer without the token", domain=self.rules.domain)
        self._guest.emit(GuestEvent(Event.HTTP_RESPONSE, channel.number, shown))
        return "closed"

    async def _read(self, channel: Channel, flags: int) -> str:
        line, websocket = channel.bytes_channel, channel.websocket
        assert line is not None
        if websocket is not None and not websocket.is_open:
            return _end_of(websocket)
        while True:
            data = b""
            with trio.move_on_after(KEEPALIVE_SECONDS) as idle:
                data = await line.receive()
            if data:
                self._heard_seconds = time.monotonic()
            if idle.cancelled_caught and websocket is not None:
                with trio.move_on_after(KEEPALIVE_SECONDS) as silent:
                    websocket.ping()
                    line.send_nowait(websocket.data_to_send())
                    data = await line.receive()
                    self._heard_seconds = time.monotonic()
                if silent.cancelled_caught:
                    return Code.TIMEOUT.word + " the far end is silent"
            elif idle.cancelled_caught:
                continue
            answer = b""
            if websocket is None:
                if not data:
                    return "closed"
                self._guest.emit(GuestEvent(Event.DATA, channel.number, data))
            else:
                for message in websocket.receive(data):
                    self._guest.emit(GuestEvent(Event.DATA, channel.number, message, flags))
                answer = websocket.data_to_send()
                line.send_nowait(answer)
                if not data or not websocket.is_open:
                    return _end_of(websocket)
            if answer and line.backlog_bytes > HIGH_WATER_BYTES:
                # Who does not read our answers is not read either. What the stub sends is no reason to stop: two sides
                # that send much at once would wait for each other for ever.
                await line.wait_drained()
            self._digesting += 1
            try:
                await self._guest.wait_for_room()
            finally:
                self._digesting -= 1

    def send(self, number: int, payloads: list[bytes]) -> None:
        """Send on a line: one WebSocket message per payload, one write for all.

        Raises:
            StubFaultError: STUB_DENIED when the stub has no such channel, or one of kind `http`: its request is whole.
        """
        channel = self.channel(number)
        if channel.kind == ChannelKind.HTTP:
            raise denied("channel", f"channel {number} is an http exchange")
        line = channel.bytes_channel
        if line is None:
            return
        if channel.websocket is None:
            line.send_nowait(b"".join(payloads))
        else:
            channel.websocket.send(payloads)
            line.send_nowait(channel.websocket.data_to_send())

    def close(self, number: int) -> None:
        """Close a line; `closed` follows."""
        channel = self._channels.get(number)
        if channel is None:
            return
        if channel.websocket is not None and channel.bytes_channel is not None:
            channel.websocket.close()
            channel.bytes_channel.send_nowait(channel.websocket.data_to_send())
        channel.scope.cancel()


def _end_of(websocket: ClientWebSocket) -> str:
    """Return what a stub gets when a WebSocket ends: the code of the side that closed it, if one was given."""
    return f"closed {websocket.close_code or websocket.fault_code or ''}".strip()


def check_pin(channel: Channel, *, domain: str) -> None:
    """Check the key of a channel's certificate against the pins of its endpoint.

    Raises:
        PeerError: TLS_FAILED when it is none of them.
    """
    assert channel.bytes_channel is not None
    certificate = channel.bytes_channel.peer_certificate
    public = x509.load_der_x509_certificate(certificate).public_key() if certificate else None
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) if public is not None else b""
    if base64url(hashlib.sha256(spki).digest()) not in channel.endpoint.spki:
        raise PeerError(
            Code.TLS_FAILED,
            "the key of the certificate is not one that the domain publishes",
            domain=domain,
        )
