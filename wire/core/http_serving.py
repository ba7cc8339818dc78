"""The serving side of one HTTP/1.1 connection as bytes: no socket, no clock.

Requests come from strangers: head and body are bounded while they are read, and a request can be refused by its head,
before a byte of its body is kept. One request at a time; what follows waits until the answer is written.

Source: RFC 9110; RFC 9112.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import h11

from protofly.errors import Code, PeerError
from protofly.limits import HTTP_HEAD_BYTES, HTTP_HEADERS
from wire.core.strict_http import StrictConnection

_BOTH_DONE: Final = {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}
_REASONS: Final = {200: b"OK", 400: b"Bad Request", 403: b"Forbidden", 405: b"Method Not Allowed"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; header names in lower case, one that is given twice is left out. `fields` are all of them."""

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    fields: Sequence[tuple[bytes, bytes]] = field(default=(), compare=False)


class HttpServing:
    """Use: `receive` what comes until `next_request` has one, `answer` it, write `data_to_send`, and so on.

    Args:
        max_bytes: Largest body of a request.
        check_head: Called with a request before its body is read; may raise.
    """

    def __init__(self, *, max_bytes: int, check_head: Callable[[HttpRequest], None]) -> None:
        self._protocol = StrictConnection(h11.SERVER, max_incomplete_event_size=HTTP_HEAD_BYTES)
        self._max_bytes = max_bytes
        self._check_head = check_head
        self._head: HttpRequest | None = None
        self._wants_body = True
        self._body = bytearray()
        self._to_send: list[bytes] = []

    @property
    def is_over(self) -> bool:
        """True if this connection carries no further request once everything is written."""
        return self._protocol.our_state in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)

    @property
    def is_answered(self) -> bool:
        """True if no request waits for its answer."""
        return self._protocol.our_state is not h11.SEND_RESPONSE

    def receive(self, data: bytes) -> None:
        """Take what came, b"" for the end of the line; not while a request waits for its answer."""
        self._protocol.receive_data(data)

    def next_request(self) -> HttpRequest | None:
        """A request, once it is whole.

        Raises:
            PeerError: PROTOCOL_ERROR when it is not HTTP, TOO_LARGE; whatever `check_head` raises.
        """
        try:
            while isinstance(event := self._protocol.next_event(), (h11.Request, h11.Data, h11.EndOfMessage)):
                request = self._take(event)
                if request is not None:
                    return request
        except h11.RemoteProtocolError as exc:
            raise PeerError(Code.PROTOCOL_ERROR, str(exc)[:200]) from exc
        return None

    def _take(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> HttpRequest | None:
        if isinstance(event, h11.Request):
            self._head = _head_of(event)
            self._wants_body = self._head.method != "HEAD"
            self._check_head(self._head)
            if self._protocol.they_are_waiting_for_100_continue:
                self._send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        elif isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > self._max_bytes:
                raise PeerError(Code.TOO_LARGE, "the body is too large")
        else:
            assert self._head is not None
            head, body, self._head, self._body = self._head, bytes(self._body), None, bytearray()
            return replace(head, body=body)
        return None

    def answer(self, status: int, headers: Mapping[str, str], body: bytes, *, is_last: bool = False) -> None:
        """Answer the request, whether its body has come or not.

        `is_last` closes the connection behind the answer, which is also what becomes of it when the body has not come.
        """
        if self._protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        whole = [*headers.items(), ("Content-Length", str(len(body)))]
        if is_last or self._protocol.their_state is not h11.DONE:
            whole.append(("Connection", "close"))
        self._send(h11.Response(status_code=status, headers=whole, reason=_REASONS.get(status, b"")))
        if self._wants_body:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        self._wants_body = True  # the next answer may be one to something that is no request
        if self._protocol.states == _BOTH_DONE:
            self._protocol.start_next_cycle()

    def _send(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._to_send.append(self._protocol.send(event) or b"")

    def data_to_send(self) -> bytes:
        """One block of everything to write, b"" when there is nothing."""
        data, self._to_send = b"".join(self._to_send), []
        return data


def _head_of(request: h11.Request) -> HttpRequest:
    if len(request.headers) > HTTP_HEADERS:
        raise PeerError(Code.TOO_LARGE, "too many header fields")
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    times = Counter(name for name, _ in pairs)
    headers = {name: value for name, value in pairs if times[name] == 1}
    return HttpRequest(
        request.method.decode("latin-1"), request.target.decode("latin-1"), headers, fields=tuple(request.headers)
    )
