"""Bounded downloads over HTTPS.

What a stranger's web server can do to us is bounded at each place: lines go only where the `Dialler` allows, the
certificate has to be for the host of the URL, no redirect is followed, only 200 counts, no content coding is taken, and
the bytes on the line - headers included - the whole time and the rate are limited.

HTTP/1.1 itself is h11's, without any I/O of its own: a client library that owns the connection leaves its generators to
the garbage collector when an answer is abandoned half-way, and abandoning answers is what this module is for.

Source: trust and hosts, sections 2.4 and 2.6, section 3.6 step 5, section 7 rows 7, 10 and 12.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

from catalogue_client.fetcher import Dialler, Fetched, Fetcher
from protofly import limits
from protofly.errors import Code, PeerError, TransportError

__all__ = ["Dialler", "HttpFetcher"]

_HEAD_BYTES: Final = 64 << 10
"""Headroom for status lines, headers and chunk sizes: no honest server needs more for one answer."""
_RECEIVE_BYTES: Final = 32 << 10
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One GET, taken apart."""

    scheme: str
    host: str
    port: int
    target: str
    domain: str
    max_bytes: int

    def head(self) -> h11.Request:
        """The request for the line. Names the URL's host wherever the line goes."""
        is_default_port = self.port == _DEFAULT_PORTS[self.scheme]
        host = self.host if is_default_port else f"{self.host}:{self.port}"
        accepted = "application/json, application/wasm;q=0.9, */*;q=0.1"
        headers = [("Host", host), ("Accept", accepted), ("Accept-Encoding", "identity")]
        headers += [("User-Agent", "trapezoid"), ("Connection", "close")]
        return h11.Request(method="GET", target=self.target, headers=headers)


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

        Raises:
            ValueError: The context does not verify.
        """
        if ssl_context.verify_mode is not ssl.CERT_REQUIRED or not ssl_context.check_hostname:
            raise ValueError("the TLS context has to verify certificates and host names")
        ssl_context.hostname_checks_common_name = False
        self._dialler = dialler
        self._ssl_context = ssl_context
        self._insecure_plaintext = frozenset(insecure_plaintext)
        self._minimum_bytes_per_second = minimum_bytes_per_second
        self._minimum_window_seconds = minimum_window_seconds

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
        except h11.RemoteProtocolError as error:
            raise PeerError(Code.BAD_REPLY, str(error)[:200], domain=domain) from error
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
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return _Request(
            scheme=parts.scheme,
            host=host,
            port=port or _DEFAULT_PORTS[parts.scheme],
            target=target,
            domain=domain,
            max_bytes=max_bytes,
        )

    async def _exchange(self, line: trio.abc.Stream, request: _Request) -> Fetched:
        try:
            if request.scheme == "https":
                line = await self._open_tls(line, request)
            answer = _Answer(line, request)
            await answer.send_request()
            headers = await answer.receive_head()
            body = await self._receive_body(answer)
        finally:
            # Without a farewell: a peer that does not answer a TLS close must not hold us.
            await trio.aclose_forcefully(line)
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        return Fetched(body=body, max_age_seconds=_max_age(headers), content_type=content_type)

    async def _open_tls(self, line: trio.abc.Stream, request: _Request) -> trio.SSLStream[trio.abc.Stream]:
        stream = trio.SSLStream(line, self._ssl_context, server_hostname=request.host, https_compatible=True)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            if not isinstance(error.__cause__, ssl.SSLError):
                raise
            raise PeerError(Code.TLS_FAILED, str(error.__cause__)[:200], domain=request.domain) from error
        return stream

    async def _receive_body(self, answer: _Answer) -> bytes:
        body = bytearray()
        window_ends, bytes_at_start = trio.current_time() + self._minimum_window_seconds, 0
        while chunk := await answer.receive_some():
            body += chunk
            now = trio.current_time()
            if now < window_ends:
                continue
            if len(body) - bytes_at_start < self._minimum_bytes_per_second * self._minimum_window_seconds:
                raise TransportError(Code.FETCH_TIMEOUT, "the server drips", phase="read")
            window_ends, bytes_at_start = now + self._minimum_window_seconds, len(body)
        return bytes(body)


class _Answer:
    """One request and its answer on one line; counts every byte that comes in."""

    def __init__(self, line: trio.abc.Stream, request: _Request) -> None:
        self._line = line
        self._request = request
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._body_bytes_left = request.max_bytes
        self._line_bytes_left = request.max_bytes + _HEAD_BYTES

    async def send_request(self) -> None:
        for event in (self._request.head(), h11.EndOfMessage()):
            await self._line.send_all(self._protocol.send(event) or b"")

    async def receive_head(self) -> dict[str, str]:
        """Headers of a final answer that may be read on, names in lower case."""
        while isinstance(event := await self._next_event(), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise PeerError(Code.BAD_REPLY, "the server closed without an answer", domain=self._request.domain)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        _check_head(event.status_code, headers, self._request)
        return headers

    async def receive_some(self) -> bytes:
        """Some bytes of the body; b"" at its end."""
        event = await self._next_event()
        if not isinstance(event, h11.Data):
            return b""
        self._body_bytes_left -= len(event.data)
        if self._body_bytes_left < 0:
            detail = f"more than {self._request.max_bytes} bytes"
            raise PeerError(Code.DOCUMENT_TOO_LARGE, detail, domain=self._request.domain)
        return bytes(event.data)

    async def _next_event(self) -> object:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            chunk = bytes(await self._line.receive_some(_RECEIVE_BYTES))
            self._line_bytes_left -= len(chunk)
            if self._line_bytes_left < 0:
                raise PeerError(Code.DOCUMENT_TOO_LARGE, "the answer does not end", domain=self._request.domain)
            self._protocol.receive_data(chunk)
        return event


def _check_head(status: int, headers: dict[str, str], request: _Request) -> None:
    domain = request.domain
    if 300 <= status < 400:
        raise PeerError(Code.REDIRECT_REFUSED, f"{status} to {headers.get('location', '')[:100]!r}", domain=domain)
    if status != 200:
        raise PeerError(Code.HTTP_STATUS, str(status), domain=domain)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise PeerError(Code.BAD_REPLY, "content coding although none was accepted", domain=domain)
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > request.max_bytes:
        detail = f"{length} bytes announced, at most {request.max_bytes}"
        raise PeerError(Code.DOCUMENT_TOO_LARGE, detail, domain=domain)


def _max_age(headers: dict[str, str]) -> float | None:
    """What the server says about caching, in seconds; None = nothing."""
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
