"""Dialect A in HTTP requests: messages are posted to `/messages`, and come back by an event stream or by polls.

A client that posts `open` gets a token, which the `Authorization` header of every further request carries. It stands
for the same kind of session as any other connection does. Refusals that concern the request itself are HTTP errors
with their code; what the bus refuses is a reply like any other. Source: message specification, sections 5.4 and 19.5.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec
import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from msg_node.bus.core.message_queue import QueueBounds
from msg_node.connectors.core.return_log import number_in, poll_answer
from msg_node.connectors.expecting_port import Expected, ExpectingPort, ExpectingQueue, token_in
from msg_node.connectors.http_line import HttpApplication, certificate_of, is_known, line_of, remote_of
from msg_node.connectors.http_session import EventStream, HttpSession, Poll
from msg_node.connectors.reception import Reception
from msg_node.connectors.websocket import hand_over
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.credentials import digest_of
from msg_node.kernel.dialects import MESSAGES_PATH, TWIN_PATH, parameters_of
from msg_node.kernel.proof import Offered
from msg_node.kernel.resources import SESSION_KEY
from msg_node.kernel.session import Dialect
from protofly import codec
from protofly.address import domain_of
from protofly.answer_codes import code_of
from protofly.errors import Code, PeerError
from protofly.limits import (
    HTTP_ENDED_REMEMBERED,
    HTTP_LOST_POLLS,
    HTTP_POLL_SECONDS,
    HTTP_POLL_SECONDS_MAX,
    HTTP_POSTS_PER_SESSION,
    HTTP_QUEUE_MESSAGES,
    HTTP_REPLY_SECONDS,
    HTTP_SESSIONS_PER_ADDRESS,
    SESSIONS,
)
from protofly.message import Message
from wire.core.address_group import address_group

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
PROBLEM: Final = "application/problem+json"
"""Source: RFC 9457."""
LAST_ID: Final = "Last-Event-ID"
LOST_MESSAGES: Final = "Lost-Messages"
_OPENINGS: Final = frozenset({"open", "re-open", "reopen", "re_open"})
_NO_STORE: Final = {"Cache-Control": "no-store"}
_SWEEP_SECONDS: Final = 1.0
_STRANGERS_BYTES: Final = 64 << 10
"""Largest body of who has no session yet: an `open` with its credentials."""


class HttpsOptions(NamedTuple):
    """Settings of runtimes over HTTP.

    `poll_seconds` is the rhythm announced to them: a client without a stream that lets three of them pass is lost.
    `queue_messages` is what may wait for one between polls.
    """

    poll_seconds: float = HTTP_POLL_SECONDS
    queue_messages: int = HTTP_QUEUE_MESSAGES


class HttpsBinding:
    """All runtimes over HTTP.

    Args:
        reception: Where runtimes get their ports.
        options: How they are served.
    """

    def __init__(self, reception: Reception, options: HttpsOptions) -> None:
        self._reception = reception
        self.follow(options)
        self._sessions: dict[str, HttpSession] = {}  # by digest of their tokens
        self._per_address: Counter[str] = Counter()
        self._ended: list[HttpSession] = []
        self._has_ended = trio.Event()
        self._endings: OrderedDict[str, str] = OrderedDict()  # why, by digest, for those who still ask
        routes = [
            Route(MESSAGES_PATH, self._post, methods=["POST"]),
            Route(MESSAGES_PATH, _ReturnChannel(self)),
            Route(TWIN_PATH, self._read_twin, methods=["GET"]),
        ]
        app = Starlette(
            routes=routes,
            middleware=[Middleware(_Admission, reception=reception), Middleware(_Cors, reception=reception)],
            exception_handlers={PeerError: _refuse, HTTPException: _refuse_request, ClientDisconnect: _gone},
        )
        app.router.redirect_slashes = False  # it would send clients, and caches, where a request says
        self.application = HttpApplication(app)
        """What reads and writes HTTP; its bounds are those of the binding."""
        self.serve = self.application.serve
        """Serves a line of the listener; see `HttpApplication.serve`."""

    def follow(self, options: HttpsOptions) -> None:
        """Serve like this from now on; what may wait for a session that is open stays as it was."""
        self._poll_seconds, self._queue_messages = options

    @property
    def live_sessions(self) -> int:
        """Sessions of runtimes over HTTP."""
        return len(self._sessions)

    async def run(self) -> None:
        """Release ports of sessions that have ended, and end those with neither stream nor polls; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._release_ended)
            nursery.start_soon(self._sweep)

    async def _release_ended(self) -> None:
        while True:
            await self._has_ended.wait()
            self._has_ended = trio.Event()
            ended, self._ended = self._ended, []
            for session in ended:
                assert session.port is not None
                self._reception.release(session.port)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(_SWEEP_SECONDS)
            self.end_lost(trio.current_time())

    def end_lost(self, now: float) -> None:
        """End the sessions without stream and polls; `now` is trio time.

        Source: message specification, section 19.5.
        """
        patience = HTTP_LOST_POLLS * self._poll_seconds
        for session in list(self._sessions.values()):
            session.log.forget(now - patience)
            if session.away_since is not None and now - session.away_since > patience:
                self._reception.counters[NodeCount.LOST_POLLS] += 1
                session.ended_because = "no stream and no poll"
                session.end()

    # Sessions.

    def find(self, request: Request) -> HttpSession:
        """The session that a request speaks for.

        Raises:
            PeerError: NO_CREDENTIALS, BAD_TOKEN.
        """
        token = _bearer(request) or parameters_of(request.url.query).get("access_token", "")
        if not token:
            raise PeerError(Code.NO_CREDENTIALS, "the token of the session belongs into the Authorization header")
        digest = digest_of(token)
        session = self._sessions.get(digest)
        if session is None:
            because = self._endings.get(digest)
            raise PeerError(Code.BAD_TOKEN, f"this session has ended: {because}" if because else "no such session here")
        return session

    def _begin(self, request: Request, bearer: str) -> HttpSession:
        """A session that nobody has a token for yet."""
        remote = address_group(remote_of(request.scope))
        if self._per_address[remote] >= HTTP_SESSIONS_PER_ADDRESS or len(self._sessions) >= SESSIONS:
            self._reception.counters[NodeCount.TOO_MANY_HTTP_SESSIONS] += 1
            raise PeerError(Code.OVERLOAD, "too many sessions")
        session = HttpSession(remote, self._end)
        offered = Offered(bearer, certificate_of(request.scope), remote)
        bounds = QueueBounds(self._queue_messages, self._reception.queue.bytes)
        queue = ExpectingQueue(session, counters=self._reception.bus.counters, bounds=bounds)
        session.port = self._reception.welcome_as(ExpectingPort, queue, Dialect.HTTPS, offered)
        session.port.on_opened = partial(_meet, session, request)
        self._per_address[remote] += 1
        return session

    def _end(self, session: HttpSession) -> None:
        self._per_address[session.remote] -= 1
        if not self._per_address[session.remote]:
            del self._per_address[session.remote]
        if self._sessions.get(session.token_digest) is session:
            del self._sessions[session.token_digest]
            self._endings[session.token_digest] = session.ended_because or "closed"
            while len(self._endings) > HTTP_ENDED_REMEMBERED:
                self._endings.popitem(last=False)
        self._ended.append(session)
        self._has_ended.set()

    def _named(self, session: HttpSession, token: str) -> None:
        """A session is known by this token from now on, and by no other."""
        if self._sessions.get(session.token_digest) is session:
            del self._sessions[session.token_digest]
        session.token_digest = digest_of(token)
        self._sessions[session.token_digest] = session
        self._endings.pop(session.token_digest, None)

    # Posts.

    async def _post(self, request: Request) -> Response:
        """One message in; its reply, if it has one, in the answer."""
        session, refusal = self._find_or_refuse(request)
        raw = await _body_of(request, self._reception.max_bytes if session is not None else _STRANGERS_BYTES)
        message, *others = codec.decode(raw)
        if session is None:
            is_opening = message.to_key == SESSION_KEY and message.type in _OPENINGS
            if refusal is not None and not is_opening:
                raise refusal
            session = self._begin(request, _bearer(request))
        else:
            _meet(session, request)
        try:
            return await self._exchange(request, session, raw, message, is_alone=not others)
        finally:
            if not session.token_digest:  # it did not come to be
                session.end()

    def _find_or_refuse(self, request: Request) -> tuple[HttpSession | None, PeerError | None]:
        try:
            return self.find(request), None
        except PeerError as exc:
            return None, exc

    async def _exchange(
        self, request: Request, session: HttpSession, raw: bytes, message: Message, *, is_alone: bool
    ) -> Response:
        port = session.port
        assert port is not None
        if session.posts >= HTTP_POSTS_PER_SESSION:
            raise PeerError(Code.QUOTA, "too many requests of this session are under way")
        wait_seconds = _wait_seconds(request)
        is_waited_for = is_alone and message.expects_reply and message.type != "close" and wait_seconds > 0
        expected = port.queue.expect(message) if is_waited_for else None
        session.posts += 1
        try:
            await hand_over(self._reception.bus, port, [raw])
            if expected is None:
                if message.type == "close":
                    await _wait_ended(session, wait_seconds)
                return Response(status_code=202, headers=_NO_STORE)
            is_overdue = await _wait(request, expected, wait_seconds)
            if not expected.has_come.is_set():
                if is_overdue:  # else who asked has hung up, and nobody was answered
                    port.queue.answered(message)
                raise PeerError(Code.GATEWAY_TIMEOUT, "no reply in time")
            if expected.reply is None:
                raise PeerError(Code.NOT_CONNECTED, "the session has ended")
            return self._reply(session, message, expected.reply)
        finally:
            session.posts -= 1
            if expected is not None:
                port.queue.give_up(message, expected)

    def _reply(self, session: HttpSession, request: Message, reply: Message) -> Response:
        if request.to_key == SESSION_KEY and request.type in _OPENINGS:
            token = token_in(request, reply)
            if token:
                self._named(session, token)
        status = 202 if code_of(reply) == 202 else 200
        return Response(reply.raw, status_code=status, media_type=JSON, headers=_NO_STORE)

    # The return channel.

    async def poll(self, request: Request) -> Response:
        """Messages as an array, as soon as there are some; an empty one when the time is over."""
        session = self.find(request)
        _meet(session, request)
        wait_seconds = _seconds(parameters_of(request.url.query).get("wait", ""), self._poll_seconds)
        poll = Poll()
        session.attach(poll, _last_id(request))
        try:
            async with _until_gone(request):
                with trio.move_on_after(wait_seconds):
                    await poll.is_done.wait()
        finally:
            session.detach(poll)
        headers = {**_NO_STORE, LAST_ID: str(poll.messages[-1].number if poll.messages else session.log.last)}
        if poll.missing:
            headers[LOST_MESSAGES] = str(poll.missing)
        return Response(poll_answer(poll.messages), media_type=JSON, headers=headers)

    async def stream(self, request: Request, send: Send) -> None:
        """Messages as server-sent events, until one side ends it."""
        session = self.find(request)
        _meet(session, request)
        stream = EventStream()
        session.attach(stream, _last_id(request))
        headers = [(b"content-type", EVENT_STREAM.encode()), (b"cache-control", b"no-store")]
        headers.append((b"x-accel-buffering", b"no"))  # asks proxies to pass events on as they come
        try:
            async with _until_gone(request):
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                stream.ping()
                while data := await stream.next():
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    session.flush()
                await send({"type": "http.response.body", "body": b""})
        finally:
            session.detach(stream)

    # The digital twin.

    async def _read_twin(self, request: Request) -> Response:
        """`read` of the twin in the name of the session's runtime; the answer is its value alone."""
        session = self.find(request)
        _meet(session, request)
        assert session.port is not None
        parameters = parameters_of(request.url.query)
        runtime = self._reception.bus.runtimes.runtime_of(session.port)
        resource = parameters.get("resource", "")
        body: dict[str, object] = {"resource": resource} if resource else {}
        body |= {name: number for name in ("page",) if (number := number_in(parameters.get(name, "")))}
        message = codec.build(
            id=f"twin-{secrets.token_urlsafe(9)}",
            type="read",
            from_=runtime,
            to=f"domain://msg-node.{domain_of(runtime)}/twin",
            body=body or None,
        )
        answer = await self._exchange(request, session, message.raw, message, is_alone=True)
        reply = _decode_node_reply(_decode_reply(bytes(answer.body)).body)
        if reply.code != 200:
            return _problem(_code_named(reply.code, reply.reason), reply.description)
        return Response(bytes(reply.value) or b"null", media_type=JSON, headers=_NO_STORE)


async def _wait_ended(session: HttpSession, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await session.ended.wait()


class _Reply(msgspec.Struct):
    body: msgspec.Raw


class _NodeReply(msgspec.Struct):
    """The body of a reply of the node itself."""

    code: int
    reason: str = ""
    description: str = ""
    value: msgspec.Raw = msgspec.Raw()


_decode_reply = msgspec.json.Decoder(_Reply).decode
_decode_node_reply = msgspec.json.Decoder(_NodeReply).decode


def _code_named(status: int, word: str) -> Code:
    return next((code for code in Code if code.value == (status, word)), Code.INTERNAL)


class _ReturnChannel:
    """`GET /messages`: a stream for who accepts one, else a poll. Written down to ASGI, since a stream has no end."""

    def __init__(self, binding: HttpsBinding) -> None:
        self._binding = binding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        if request.method != "GET":
            raise HTTPException(405)
        if EVENT_STREAM in request.headers.get("accept", ""):
            await self._binding.stream(request, send)
            return
        answer = await self._binding.poll(request)
        await answer(scope, receive, send)


class _Admission:
    """Keeps out pages whose origin may not connect; what is no browser names none."""

    def __init__(self, app: object, reception: Reception) -> None:
        self._app = app
        self._reception = reception

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._reception.admits(Headers(scope=scope).get("origin", "")):
            refusal = _problem(Code.POLICY, "pages of this origin may not connect")
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)  # type: ignore[operator]


class _Cors:
    """Answers what browsers ask about the origins that may connect, which may change."""

    def __init__(self, app: ASGIApp, reception: Reception) -> None:
        self._app = app
        self._reception = reception
        self._origins: Collection[str] | None = None
        self._answers: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._origins is not self._reception.origins:
            self._origins = self._reception.origins
            self._answers = CORSMiddleware(
                self._app,
                allow_origins=tuple(self._origins),
                allow_methods=("GET", "POST"),
                allow_headers=("Authorization", "Content-Type", LAST_ID, "Prefer"),
                expose_headers=(LAST_ID, LOST_MESSAGES),
            )
        await self._answers(scope, receive, send)


def _meet(session: HttpSession, request: Request) -> None:
    """The client of a request speaks for a session: it is no stranger any more, unless that has lines enough."""
    if session.lines.admits(line_of(request.scope)):
        is_known(request.scope)


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _body_of(request: Request, max_bytes: int) -> bytes:
    """The whole body, in time.

    Raises:
        PeerError: TOO_LARGE, TIMEOUT.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise PeerError(Code.TOO_LARGE, f"a message has at most {max_bytes} bytes")
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise PeerError(Code.TOO_LARGE, f"a message has at most {max_bytes} bytes")
        if not message.get("more_body", False):
            return bytes(body)


@asynccontextmanager
async def _until_gone(request: Request) -> AsyncIterator[None]:
    """Run until done, or until the client has gone: then nothing of it goes on."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_when_gone, request, nursery.cancel_scope)
        yield
        nursery.cancel_scope.cancel()


async def _cancel_when_gone(request: Request, scope: trio.CancelScope) -> None:
    with suppress(PeerError):  # a body that nobody asked for, and that does not come in time
        while (await request.receive())["type"] != "http.disconnect":
            pass
    scope.cancel()


async def _wait(request: Request, expected: Expected, seconds: float) -> bool:
    """Wait for a reply; whether it did not come in time. False as well when who asked has gone."""
    with trio.move_on_after(seconds) as patience:
        async with _until_gone(request):
            await expected.has_come.wait()
    return patience.cancelled_caught


def _wait_seconds(request: Request) -> float:
    """Return the seconds that a post waits for its reply, by `Prefer`. Source: RFC 7240, sections 4.1 and 4.3."""
    preferences = [one.strip().lower() for one in request.headers.get("prefer", "").split(",")]
    if "respond-async" in preferences:
        return 0.0
    waits = [one.partition("=")[2].strip() for one in preferences if one.startswith("wait=")]
    return _seconds(waits[0], HTTP_REPLY_SECONDS) if waits else HTTP_REPLY_SECONDS


def _seconds(text: str, default: float) -> float:
    number = number_in(text)
    return default if number is None else min(float(number), HTTP_POLL_SECONDS_MAX)


def _last_id(request: Request) -> int | None:
    return number_in(request.headers.get(LAST_ID, parameters_of(request.url.query).get("after", "")))


def _problem(code: Code, detail: str) -> Response:
    """A refusal of a request. Source: RFC 9457."""
    problem = {"title": code.description, "status": code.status, "reason": code.word, "detail": detail}
    headers = {**_NO_STORE, "WWW-Authenticate": "Bearer"} if code.status == 401 else _NO_STORE
    return Response(msgspec.json.encode(problem), status_code=code.status, media_type=PROBLEM, headers=headers)


async def _refuse(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, PeerError)
    return _problem(exc.code, exc.detail)


async def _refuse_request(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    if exc.status_code == 405:
        return _problem(Code.BAD_TYPE, "POST brings a message, GET fetches some")
    return _problem(Code.NO_SUCH_SERVICE, "there is nothing here")


async def _gone(_request: Request, _exc: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it
