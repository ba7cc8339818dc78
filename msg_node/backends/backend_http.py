"""HTTP to a back-end that the operator named in the settings: one request on a line of its own, bounded in every way.

The address is the operator's word and is not judged; everything that comes back is a stranger's. No redirect is
followed, no content coding taken, no proxy of the environment used. HTTP/1.1 itself is `wire.core.http_exchange`.

Source: data formats, sections 4.1 and 5.1; RFC 9110.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import trio

from protofly.errors import Code, PeerError, SettingsError, TransportError
from wire.core.http_exchange import HttpAnswer, HttpExchange, OutgoingRequest

_RECEIVE_BYTES = 32 << 10
_DEFAULT_PORTS = {"https": 443, "http": 80}


class BackendHttp:
    """Asks one back-end.

    Args:
        base_url: `https://host[:port][/prefix]`, or `http:` where the settings allow it; no query.
        ssl_context: Has to verify certificates and names; it is not used for `http:`. Or what gives one for each
            connection.
        max_bytes: Largest body of an answer.

    Raises:
        SettingsError: That is no such URL.
    """

    def __init__(
        self, base_url: str, ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext], *, max_bytes: int
    ) -> None:
        try:
            parts = urlsplit(base_url)
            host, port = parts.hostname, parts.port
        except ValueError as exc:
            raise SettingsError(f"{base_url!r} is not a URL: {exc}") from exc
        if parts.scheme not in _DEFAULT_PORTS or not host or "@" in parts.netloc or parts.query or parts.fragment:
            raise SettingsError(f"{base_url!r} is not https://host[:port][/path]")
        self.base_url = base_url.rstrip("/")
        self.host = host
        self._port = port or _DEFAULT_PORTS[parts.scheme]
        self._ssl_context = ssl_context if parts.scheme == "https" else None
        self._max_bytes = max_bytes

    async def ask(
        self,
        method: str,
        path: str,
        *,
        seconds: float,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Ask once; whatever status it answers with is an answer.

        Args:
            method: A standard method.
            path: From the slash on, encoded as a URL wants it.
            seconds: For the whole of it, the name look-up included.
            body: Sent when it is not empty.
            headers: Further request headers.

        Raises:
            TransportError: CONNECT_FAILED, FETCH_TIMEOUT.
            PeerError: TLS_FAILED, BAD_REPLY (not HTTP, or cut), DOCUMENT_TOO_LARGE.
        """
        exchange = HttpExchange(
            OutgoingRequest(
                url=self.base_url + path,
                method=method,
                headers={"Accept": "application/json", **(headers or {})},
                body=body,
            ),
            max_bytes=self._max_bytes,
            domain=self.host,
        )
        try:
            with trio.fail_after(seconds):
                return await self._exchange(exchange)
        except trio.TooSlowError as exc:
            detail = f"{self.base_url}: no whole answer within {seconds:g} s"
            raise TransportError(Code.FETCH_TIMEOUT, detail, phase="read") from exc
        except (trio.BrokenResourceError, OSError) as exc:
            raise TransportError(Code.CONNECT_FAILED, f"{self.base_url}: {exc}"[:200], phase="connect") from exc

    async def _exchange(self, exchange: HttpExchange) -> HttpAnswer:
        line: trio.abc.Stream = await trio.open_tcp_stream(self.host, self._port)
        try:
            if self._ssl_context is not None:
                context = self._ssl_context
                line = await self._open_tls(line, context if isinstance(context, ssl.SSLContext) else context())
            await line.send_all(exchange.data_to_send())
            while (answer := exchange.receive(bytes(await line.receive_some(_RECEIVE_BYTES)))) is None:
                pass
            return answer
        finally:
            await trio.aclose_forcefully(line)  # a far end that does not answer a close message must not hold us

    async def _open_tls(self, line: trio.abc.Stream, context: ssl.SSLContext) -> trio.abc.Stream:
        stream = trio.SSLStream(line, context, server_hostname=self.host, https_compatible=True)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as exc:
            if not isinstance(exc.__cause__, ssl.SSLError):
                raise
            raise PeerError(Code.TLS_FAILED, str(exc.__cause__)[:200], domain=self.host) from exc
        return stream
