"""One HTTP/1.1 request and its answer as bytes: no socket, no clock.

The answer comes from foreign code: its size is bounded while it is read, redirects are handed over and never followed,
content codings were not asked for and are refused.

Source: RFC 9110; RFC 9112.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import h11

from protofly.errors import Code, PeerError
from wire.core.strict_http import StrictConnection

_HEAD_BYTES_MAX: Final = 64 << 10
_DEFAULT_PORTS: Final = {"https": ":443", "http": ":80"}
_FORGOTTEN: Final = frozenset({"set-cookie", "connection", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer; header names in lower case, repeated ones joined by commas, no cookies."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpExchange:
    """Use: send `data_to_send` once, then call `receive` with what comes until it returns the answer.

    Args:
        url: `https:` or `http:`; the caller has judged it.
        method: A standard method; `HEAD` has an answer without body.
        headers: Further request headers; the caller has judged them.
        body: Sent when it is not empty.
        max_bytes: Largest body of the answer.
        domain: Who is asked, for errors.
        check_head: Called with status and headers before a byte of the body counts; may raise.
    """

    def __init__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str],
        body: bytes = b"",
        max_bytes: int,
        domain: str,
        check_head: Callable[[int, Mapping[str, str]], None] | None = None,
    ) -> None:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.netloc.removesuffix(_DEFAULT_PORTS[parts.scheme])
        whole = [("Host", host), ("User-Agent", "trapezoid"), ("Accept-Encoding", "identity")]
        whole += [("Connection", "close"), *headers.items()]
        if body or method not in {"GET", "HEAD"}:
            whole.append(("Content-Length", str(len(body))))
        self._domain = domain
        self._check_head = check_head
        self._protocol = StrictConnection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._body = bytearray()
        self._bytes_left = max_bytes
        self._line_bytes_left = max_bytes + _HEAD_BYTES_MAX
        self._status = 0
        self._headers: dict[str, str] = {}
        request = h11.Request(method=method, target=target, headers=whole)
        events = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        self._request = b"".join(self._protocol.send(event) or b"" for event in events)

    @property
    def body_bytes(self) -> int:
        """How much of the body has come."""
        return len(self._body)

    def data_to_send(self) -> bytes:
        """The request."""
        return self._request

    def receive(self, data: bytes) -> HttpAnswer | None:
        """Take what came, b"" for the end of the line; the answer once it is whole.

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
        if isinstance(event, h11.Response):
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
        if not self._status:
            raise PeerError(Code.BAD_REPLY, "closed without an answer", domain=self._domain)
        return HttpAnswer(self._status, self._headers, bytes(self._body))
