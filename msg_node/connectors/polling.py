"""HTTP connections of clients that poll: GETs that hang until there is something to say, POSTs with what they say.

One task per connection reads; a GET is answered by the task that has something for the runtime. Source: reference
nodes, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio

from msg_node.bus.runtime_port import LINE_BYTES, STUCK_SECONDS
from msg_node.connectors.core import engine_io
from msg_node.connectors.core.engine_io import Trouble
from msg_node.connectors.engine_session import EngineSession
from msg_node.connectors.http_line import ClientOf
from msg_node.connectors.socketio import SocketIo
from msg_node.kernel.certificates import PeerCertificate
from msg_node.kernel.dialects import Arrival, EntryPoint, arrival_at
from msg_node.kernel.proof import Offered
from protofly.errors import PeerError
from protofly.limits import HTTP_REQUEST_SECONDS
from wire.byte_channel import ByteChannel
from wire.core.address_group import address_group
from wire.core.http_serving import HttpRequest, HttpServing

_TEXT: Final = "text/plain; charset=UTF-8"
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"


class _RefusedError(Exception):
    """A request is answered without being done."""

    def __init__(self, status: int, body: bytes, *, kind: str = _JSON) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.kind = kind


class PollingConnection:
    """One HTTP connection, which may carry requests of any session; also the `Poll` of the GET that hangs on it.

    Args:
        client_of: Who the client of a request is.
        on_known: Called when the client is no stranger any more.
    """

    def __init__(
        self,
        sessions: SocketIo,
        line: ByteChannel,
        *,
        client_of: ClientOf,
        certificate: PeerCertificate | None,
        on_known: Callable[[], None],
    ) -> None:
        self._sessions = sessions
        self._line = line
        self._client_of = client_of
        self._certificate = certificate
        self._on_known = on_known
        self._http = HttpServing(max_bytes=sessions.payload_bytes, check_head=self._check_head)
        self._scope = trio.CancelScope()
        self._deadline = _request_deadline()
        self._polled: EngineSession | None = None
        self._posting: EngineSession | None = None
        self._origin = ""

    async def serve(self, data: bytes) -> None:
        """Serve requests, the first of which begins with `data`, until the client goes or is not to be served."""
        try:
            while data:
                self._http.receive(data)
                if not await self._answer_all():
                    return
                data = await self._read()
        finally:
            if self._polled is not None:
                self._polled.poll_lost(self)
            self._request_is_done()

    async def _read(self) -> bytes:
        """Wait for more, as long as a request may take; while a GET hangs, as long as that does."""
        data = b""
        with trio.CancelScope() as self._scope:
            self._scope.deadline = math.inf if self._polled is not None else self._deadline
            data = await self._line.receive()
        return b"" if self._polled is not None else data  # no client sends while it waits for an answer

    async def _answer_all(self) -> bool:
        """Answer every request that is whole, and let others have their turn between them.

        Returns True if the connection goes on.
        """
        try:
            while self._polled is None and await self._answer_next():
                await trio.lowlevel.checkpoint()
        except PeerError as exc:
            if self._posting is not None:
                self._posting.drop()
            self._reply(exc.code.status, Trouble.BAD_REQUEST.body(), _JSON, is_last=True)
        self._line.send_nowait(self._http.data_to_send())
        return not self._http.is_over and await self._is_read()

    async def _is_read(self) -> bool:
        """Wait while the client leaves too many answers unread; returns False if it does so for too long."""
        if self._line.backlog_bytes <= LINE_BYTES:
            return True
        with trio.move_on_after(STUCK_SECONDS):
            await self._line.wait_drained()
            return True
        self._line.close()
        return False

    async def _answer_next(self) -> bool:
        """Answer one request, if one is whole or can be refused by its head; whether another may follow."""
        try:
            request = self._http.next_request()
            if request is None:
                return False
            await self._answer(request)
        except _RefusedError as exc:
            self._reply(exc.status, exc.body, exc.kind)
        self._request_is_done()
        return not self._http.is_over

    # Requests.

    def _check_head(self, request: HttpRequest) -> None:
        """Judge a request before its body; what is wrong is answered at once."""
        self._origin = request.headers.get("origin", "")
        if not self._sessions.reception.admits(self._origin):
            self._origin = ""
            raise _RefusedError(403, Trouble.FORBIDDEN.body())
        arrival = arrival_at(request.target)
        if arrival.entry is not EntryPoint.ENGINE_IO:
            raise _RefusedError(404, b"only /socket.io/ here\n", kind=_TEXT)
        if request.method == "OPTIONS":
            return
        self._client_of(request.fields)
        trouble = self._sessions.judge(request.method, arrival.parameters, is_upgrade=False)
        if trouble is not None:
            raise _RefusedError(400, trouble.body())
        session = self._session_of(arrival)
        if session is not None and request.method == "POST":
            if session.is_posting:
                session.drop()
                raise _RefusedError(500, b"")
            session.is_posting = True
            self._posting = session

    def _session_of(self, arrival: Arrival) -> EngineSession | None:
        return self._sessions.find(arrival.parameters.get("sid", ""))

    async def _answer(self, request: HttpRequest) -> None:
        if request.method == "OPTIONS":
            self._reply(200, b"", _TEXT)
            return
        arrival = arrival_at(request.target)
        if not arrival.parameters.get("sid"):
            self._begin(request)
            return
        session = self._session_of(arrival)
        if session is None:  # it has ended since its head was judged
            raise _RefusedError(400, Trouble.UNKNOWN_SID.body())
        self._look_at(session)
        if request.method == "GET":
            self._polled = session
            if not session.polled(self):
                self._polled = None
                raise _RefusedError(500, b"")
        elif request.method == "POST":
            is_binary = request.headers.get("content-type", "").lower().startswith(_BYTES)
            packets = engine_io.decode_payload(request.body, is_binary=is_binary)
            await session.take(self._sessions.reception.bus, packets)
            self._look_at(session)
            self._reply(200, b"ok", "text/html")
        else:
            raise _RefusedError(405, b"GET and POST only\n", kind=_TEXT)

    def _look_at(self, session: EngineSession) -> None:
        """A client whose runtime has its session at the bus is no stranger any more."""
        is_open = session.port is not None and session.port.sid is not None
        if is_open and session.lines.admits(self._line):
            self._on_known()

    def _begin(self, request: HttpRequest) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        client = self._client_of(request.fields)
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        begun = self._sessions.begin_polling(client, Offered(bearer, self._certificate, address_group(client)))
        if begun is None:
            raise _RefusedError(503, Trouble.FORBIDDEN.body())
        session, greeting = begun
        self._reply(200, engine_io.encode_payload([greeting]), _TEXT, sid=session.sid)

    def _request_is_done(self) -> None:
        self._deadline = _request_deadline()
        if self._posting is not None:
            self._posting.is_posting = False
            self._posting = None

    # Answers.

    @property
    def unread_bytes(self) -> int:
        """See `Poll`."""
        return self._line.backlog_bytes

    def respond(self, payload: bytes) -> None:
        """See `Poll`."""
        if self._polled is not None:
            self._look_at(self._polled)
        self._polled = None
        self._reply(200, payload, _TEXT)
        self._line.send_nowait(self._http.data_to_send())
        self._deadline = self._scope.deadline = _request_deadline()

    def _reply(self, status: int, body: bytes, kind: str, *, sid: str = "", is_last: bool = False) -> None:
        headers = {"Content-Type": kind, "Cache-Control": "no-store", "Vary": "Origin"}
        if self._origin:  # nothing but the sid speaks for a session, and no other page knows it
            headers["Access-Control-Allow-Origin"] = self._origin
            headers["Access-Control-Allow-Credentials"] = "true"
            headers["Access-Control-Allow-Headers"] = "Content-Type, Authorization"
            headers["Access-Control-Allow-Methods"] = "GET, POST"
        if sid:
            headers["Set-Cookie"] = f"io={sid}; Path=/socket.io/; HttpOnly"
        self._http.answer(status, headers, body, is_last=is_last)


def _request_deadline() -> float:
    return trio.current_time() + HTTP_REQUEST_SECONDS
