"""One HTTP/1.1 request and its answer as bytes: no socket, no clock.

The answer is not trusted: its size is bounded while it is read, redirects are returned and never followed, and content
codings, which were not asked for, are refused.

Source: RFC 9110; RFC 9112.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import h11

from protofly.errors import Code, PeerError
from protofly.limits import HTTP_HEAD_BYTES, HTTP_HEADERS
from wire.core.strict_http import StrictConnection

_FRAMING_BYTES: Final = 64 << 10
_EARLY_ANSWERS: Final = 16
_DEFAULT_PORTS: Final = {"https": ":443", "http": ":80"}
_FORGOTTEN: Final = frozenset({"set-cookie", "connection", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer; header names in lower case, repeated ones joined by commas, no cookies."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """One request; the caller has checked URL and headers.

    Attributes:
        url: `https:` or `http:`.
        headers: Further headers, besides `Host`, `User-Agent` and those about the body.
        method: A standard method; `HEAD` has an answer without body.
        body: Sent unless it is empty.
        keeps_line: Another request follows on the same line.
    """

    url: str
    headers: Mapping[str, str]
    method: str = "GET"
    body: bytes = b""
    keeps_line: bool = False

    def data(self, protocol: h11.Connection) -> bytes:
        """The request as bytes to send."""
        parts = urlsplit(self.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.netloc.removesuffix(_DEFAULT_PORTS[parts.scheme])
        whole = [("Host", host), ("User-Agent", "trapezoid"), ("Accept-Encoding", "identity")]
        whole += [*([] if self.keeps_line else [("Connection", "close")]), *self.headers.items()]
        if self.body or self.method not in {"GET", "HEAD"}:
            whole.append(("Content-Length", str(len(self.body))))
        request = h11.Request(method=self.method, target=target, headers=whole)
        events = [request, *([h11.Data(data=self.body)] if self.body else []), h11.EndOfMessage()]
        return b"".join(protocol.send(event) or b"" for event in events)


class HttpExchange:
    """Use: send `data_to_send` once, then call `receive` with the bytes that arrive until it returns the answer.

    Args:
        request: The request.
        max_bytes: Largest body of the answer.
        domain: The domain of the server, for errors.
        check_head: Called with status and headers before a byte of the body is taken; may raise.
    """

    def __init__(
        self,
        request: OutgoingRequest,
        *,
        max_bytes: int,
        domain: str,
        check_head: Callable[[int, Mapping[str, str]], None] | None = None,
    ) -> None:
        self._domain = domain
        self._check_head = check_head
        self._protocol = StrictConnection(h11.CLIENT, max_incomplete_event_size=HTTP_HEAD_BYTES)
        self._body = bytearray()
        self._bytes_left = max_bytes
        self._line_bytes_left = max_bytes + _FRAMING_BYTES
        self._early_answers_left = _EARLY_ANSWERS
        self._status = 0
        self._headers: dict[str, str] = {}
        self._request = request.data(self._protocol)

    @property
    def body_bytes(self) -> int:
        """Bytes of the body received so far."""
        return len(self._body)

    def data_to_send(self) -> bytes:
        """The request."""
        return self._request

    def receive(self, data: bytes) -> HttpAnswer | None:
        """Take received bytes, b"" at the end of the connection. Returns the answer once it is complete.

        Raises:
            PeerError: BAD_REPLY when it is not HTTP or ends too early, DOCUMENT_TOO_LARGE.
        """
        self._line_bytes_left -= len(data)
        if self._line_bytes_left < 0:
            raise PeerError(Code.DOCUMENT_TOO_LARGE, "the answer does not end", domain=self._domain)
        try:
            self._protocol.receive_data(data)
            while (event := self._protocol.next_event()) is not h11.NEED_DATA:
                if isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                    return self._whole()
                self._take(event)
        except h11.RemoteProtocolError as exc:
            raise PeerError(Code.BAD_REPLY, str(exc)[:200], domain=self._domain) from exc
        return None

    def _take(self, event: object) -> None:
        if isinstance(event, h11.InformationalResponse):
            self._early_answers_left -= 1
            if self._early_answers_left < 0:
                raise PeerError(Code.BAD_REPLY, "early answers without end", domain=self._domain)
        elif isinstance(event, h11.Response):
            if len(event.headers) > HTTP_HEADERS:
                raise PeerError(Code.BAD_REPLY, "too many header fields", domain=self._domain)
            self._status = event.status_code
            for raw_name, raw_value in event.headers:
                name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
                if name not in _FORGOTTEN:
                    self._headers[name] = f"{self._headers[name]}, {value}" if name in self._headers else value
            if self._check_head is not None:
                self._check_head(self._status, self._headers)
            if self._headers.get("content-encoding", "identity").lower() != "identity":
                raise PeerError(Code.BAD_REPLY, "content coding although none was accepted", domain=self._domain)
        elif isinstance(event, h11.Data):
            self._bytes_left -= len(event.data)
            if self._bytes_left < 0:
                raise PeerError(Code.DOCUMENT_TOO_LARGE, "the body is too large", domain=self._domain)
            self._body += event.data

    def _whole(self) -> HttpAnswer:
        return HttpAnswer(self._status, self._headers, bytes(self._body))
