"""Bounded downloads over HTTPS.

What a stranger's web server can do to us is bounded at each place: lines go only where the `Dialler` allows, the
certificate has to be for the host of the URL, no redirect is followed, only 200 counts, no content coding is taken, and
the bytes on the line - headers included - the whole time and the rate are limited.

HTTP/1.1 itself is `wire.core.http_exchange`, without any I/O of its own: a client library that owns connections leaves
its generators to the garbage collector when an answer is abandoned half-way, and abandoning answers is what this module
is for.

Source: trust and hosts, sections 2.4 and 2.6, section 3.6, step 5, section 7, rows 7, 10 and 12.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import trio

from catalogue_client.fetcher import Dialler, Fetched, Fetcher
from protofly import limits
from protofly.errors import Code, PeerError, TransportError
from wire.core.http_exchange import HttpAnswer, HttpExchange, OutgoingRequest

__all__ = ["Dialler", "HttpFetcher"]

_RECEIVE_BYTES: Final = 32 << 10
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One GET, taken apart."""

    url: str
    scheme: str
    host: str
    port: int
    domain: str
    max_bytes: int


class HttpFetcher(Fetcher):
    """Fetches over HTTP/1.1; one connection per document, closed afterwards."""

    def __init__(
        self,
        dialler: Dialler,
        ssl_context: ssl.SSLContext,
        *,
        insecure_plaintext: Collection[str] = (),
        minimum_bytes_per_second: float = limits.MINIMUM_FETCH_BYTES_PER_SECOND,
        minimum_window_seconds: float = limits.MINIMUM_FETCH_WINDOW_SECONDS,
    ) -> None:
        """`ssl_context` has to verify certificates and names; `http:` works for domains of `insecure_plaintext` only.

        That collection is asked again for each fetch.

        Raises:
            ValueError: The context does not verify.
        """
        self.trust(ssl_context)
        self._dialler = dialler
        self._insecure_plaintext = insecure_plaintext
        self._minimum_bytes_per_second = minimum_bytes_per_second
        self._minimum_window_seconds = minimum_window_seconds

    def trust(self, ssl_context: ssl.SSLContext) -> None:
        """Verify servers by this context from the next fetch on.

        Raises:
            ValueError: It does not verify.
        """
        if ssl_context.verify_mode is not ssl.CERT_REQUIRED or not ssl_context.check_hostname:
            raise ValueError("the TLS context has to verify certificates and host names")
        ssl_context.hostname_checks_common_name = False
        self._ssl_context = ssl_context

    async def fetch(
        self,
        url: str,
        *,
        domain: str,
        max_bytes: int,
        deadline_seconds: float,
        connect_to: tuple[str, int] | None = None,
    ) -> Fetched:
        """See `Fetcher.fetch`."""
        request = self._parse(url, domain, max_bytes)
        try:
            with trio.fail_after(deadline_seconds):
                host, port = connect_to or (request.host, request.port)
                stream = await self._dialler.connect(host, port, domain=domain)
                return await self._exchange(stream, request)
        except trio.TooSlowError as error:
            detail = f"{url} took more than {deadline_seconds:g} s"
            raise TransportError(Code.FETCH_TIMEOUT, detail, phase="read") from error
        except (trio.BrokenResourceError, OSError) as error:
            raise TransportError(Code.CONNECT_FAILED, f"{url}: {error}", phase="read") from error

    def _parse(self, url: str, domain: str, max_bytes: int) -> _Request:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise PeerError(Code.ADDRESS_REFUSED, f"no usable URL: {error}", domain=domain) from error
        is_plaintext_allowed = parts.scheme == "http" and domain in self._insecure_plaintext
        if parts.scheme != "https" and not is_plaintext_allowed:
            raise PeerError(Code.ADDRESS_REFUSED, f"only https, not {parts.scheme[:20]!r}", domain=domain)
        if not host or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
            raise PeerError(Code.ADDRESS_REFUSED, f"no usable URL: {url[:100]!r}", domain=domain)
        return _Request(
            url=url,
            scheme=parts.scheme,
            host=host,
            port=port or _DEFAULT_PORTS[parts.scheme],
            domain=domain,
            max_bytes=max_bytes,
        )

    async def _exchange(self, line: trio.abc.Stream, request: _Request) -> Fetched:
        try:
            if request.scheme == "https":
                line = await self._open_tls(line, request)
            answer = await self._ask(line, request)
        finally:
            # Without a close message: a peer that does not answer a TLS close must not hold us.
            await trio.aclose_forcefully(line)
        content_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        return Fetched(body=answer.body, max_age_seconds=_max_age(answer.headers), content_type=content_type)

    async def _open_tls(self, line: trio.abc.Stream, request: _Request) -> trio.SSLStream[trio.abc.Stream]:
        stream = trio.SSLStream(line, self._ssl_context, server_hostname=request.host, https_compatible=True)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            if not isinstance(error.__cause__, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLEOFError):
                raise  # the line ended: that says nothing about the server
            raise PeerError(Code.TLS_FAILED, str(error.__cause__)[:200], domain=request.domain) from error
        return stream

    async def _ask(self, line: trio.abc.Stream, request: _Request) -> HttpAnswer:
        exchange = HttpExchange(
            OutgoingRequest(url=request.url, headers={"Accept": "application/json, application/wasm;q=0.9, */*;q=0.1"}),
            max_bytes=request.max_bytes,
            domain=request.domain,
            check_head=partial(_check_head, request),
        )
        await line.send_all(exchange.data_to_send())
        window_ends, bytes_at_start = trio.current_time() + self._minimum_window_seconds, 0
        while (answer := _taken(exchange, bytes(await line.receive_some(_RECEIVE_BYTES)))) is None:
            now = trio.current_time()
            if now < window_ends:
                continue
            if exchange.body_bytes - bytes_at_start < self._minimum_bytes_per_second * self._minimum_window_seconds:
                raise TransportError(Code.FETCH_TIMEOUT, "the server drips", phase="read")
            window_ends, bytes_at_start = now + self._minimum_window_seconds, exchange.body_bytes
        return answer


def _taken(exchange: HttpExchange, data: bytes) -> HttpAnswer | None:
    """See `HttpExchange.receive`; where the line ends too early, the line has failed and not the server."""
    try:
        return exchange.receive(data)
    except PeerError as error:
        if data:
            raise
        detail = f"the line ended before the whole answer: {error.detail}"
        raise TransportError(Code.CONNECT_FAILED, detail, phase="read") from error


def _check_head(request: _Request, status: int, headers: Mapping[str, str]) -> None:
    domain = request.domain
    if 300 <= status < 400:
        raise PeerError(Code.REDIRECT_REFUSED, f"{status} to {headers.get('location', '')[:100]!r}", domain=domain)
    if status != 200:
        raise PeerError(Code.HTTP_STATUS, str(status), domain=domain)
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > request.max_bytes:
        detail = f"{length} bytes announced, at most {request.max_bytes}"
        raise PeerError(Code.DOCUMENT_TOO_LARGE, detail, domain=domain)


def _max_age(headers: dict[str, str]) -> float | None:
    """Return the lifetime that the server gives for caching, in seconds; None: it gives none."""
    found: float | None = None
    for directive in headers.get("cache-control", "").lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name in {"no-store", "no-cache"}:
            return 0.0
        if name == "max-age" and _is_number(value):
            found = float(value)
    age = headers.get("age", "")
    return max(0.0, found - float(age)) if found is not None and _is_number(age) else found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12
