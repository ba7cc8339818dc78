"""One HTTP/1.1 connection that is used again and again: what long polling needs, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import h11
import trio

from interop.conformance.wire import LineClosedError, Stream, Target, WireFaultError, dial, drop_stream
from wire.core.strict_http import StrictConnection

_READ_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """Status and body of one answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpLine:
    """Requests over one TCP connection, one after the other; connects anew when the node has closed it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stream: Stream | None = None
        self._machine = StrictConnection(h11.CLIENT)

    async def request(self, method: str, resource: str, body: bytes = b"") -> HttpAnswer:
        """Send one request and read its answer.

        Raises:
            TransportError: nothing listens.
            LineClosedError: the node closed before the answer was complete.
            WireFaultError: the answer is no HTTP.
        """
        if self._stream is None or self._machine.our_state is not h11.IDLE:
            await self.drop()
            self._stream, self._machine = await dial(self._target), StrictConnection(h11.CLIENT)
        headers = [("Host", self._target.authority), ("Content-Length", str(len(body)))]
        if body:
            headers.append(("Content-Type", "text/plain; charset=UTF-8"))
        request = h11.Request(method=method, target=resource, headers=headers)
        sending = [self._machine.send(event) for event in (request, h11.Data(data=body), h11.EndOfMessage())]
        try:
            await self._stream.send_all(b"".join(block or b"" for block in sending))
            return await self._read_answer(self._stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise LineClosedError(None, "while waiting for an HTTP answer") from exc
        except h11.RemoteProtocolError as exc:
            raise WireFaultError(f"not HTTP/1.1: {exc}") from exc

    async def _read_answer(self, stream: Stream) -> HttpAnswer:
        status, headers, body = 0, dict[str, str](), b""
        while True:
            event = self._machine.next_event()
            if event is h11.NEED_DATA:
                data = await stream.receive_some(_READ_BYTES)
                if not data and self._machine.their_state is h11.SEND_RESPONSE:
                    raise LineClosedError(None, "instead of an HTTP answer")
                self._machine.receive_data(bytes(data))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                if self._machine.our_state is h11.DONE and self._machine.their_state is h11.DONE:
                    self._machine.start_next_cycle()
                return HttpAnswer(status=status, headers=headers, body=body)

    async def drop(self) -> None:
        """End TCP."""
        if self._stream is not None:
            await drop_stream(self._stream)
            self._stream = None
