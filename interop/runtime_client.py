"""A runtime, as an independent party would write it: dialect A of the message specification over WebSocket.

It stands on trio-websocket and the standard library's JSON on purpose. The node's own codec and WebSocket adapter
take no part in it, so a
mistake in them cannot hide by being made twice.

Source: message specification, sections 5.1, 7.1, 8, 10.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, cast
from urllib.parse import urlsplit

import trio
from msgspec import Struct
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection

from interop.bounded_websocket import Buffers, open_bounded
from protofly.errors import Code, TransportError
from protofly.limits import FRAME_BYTES

Members = Mapping[str, object]
_Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 3.0  # How long a stub waits for the node to close; message specification, section 5.1.
QUEUE_MESSAGES: Final = 64
READ_BYTES: Final = 65_536
encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""The text of what a runtime sends."""


class Incoming(Struct, frozen=True, kw_only=True):
    """One message that the node handed to this runtime. `arrived_ns` is monotonic."""

    id: object
    type: str
    from_: str
    to: str
    body: Members
    arrived_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The final response to one request. `taken_ns` is the time from sending to the arrival of the response."""

    code: int
    reason: str
    value: object
    body: Members
    taken_ns: int

    @property
    def is_ok(self) -> bool:
        """True if the request was granted."""
        return 200 <= self.code < 300


class UnexpectedAnswerError(Exception):
    """A party answered otherwise than the conversation foresees."""

    def __init__(self, what: str, answer: Answer) -> None:
        self.answer = answer
        super().__init__(
            f"{what}: answered {answer.code} {answer.reason} {answer.body.get('description', '')}".rstrip()
        )


@dataclass(slots=True)
class _Transaction:
    sent_ns: int
    done: trio.Event
    answer: Answer | None = None


class RuntimeClient:
    """One runtime with one session at its messaging node.

    Use: `await nursery.start(client.run)` connects and opens the session; requests follow; `await client.close()`
    ends it.
    Everything that is not an answer to a request goes to `on_message`, at once and in order.

    Attributes:
        events_bear_ids: Its node wants an id in messages that ask for no answer as well.
    """

    events_bear_ids: ClassVar[bool] = False

    def __init__(
        self,
        *,
        url: str,
        runtime: str,
        ssl_context: ssl.SSLContext | None,
        on_message: Callable[[Incoming], None],
    ) -> None:
        self.runtime = runtime
        self.token = ""
        self.received = 0
        self._url = url
        self._ssl_context = ssl_context
        self._on_message = on_message
        self._connection: WebSocketConnection | None = None
        self._transactions: dict[int, _Transaction] = {}
        self._last_id = 0
        self.abandoned: set[int] = set()
        """Ids of requests that ended without an answer; theirs may still come, after the session is open again."""
        self.closed = trio.Event()
        """Set once the connection has ended, or is let go."""

    @property
    def session_address(self) -> str:
        """Runtime address and token: the name of the session, once it is open."""
        return f"{self.runtime}/{self.token}" if self.token else self.runtime

    @property
    def next_id(self) -> int:
        """Id of the next request."""
        return self._last_id + 1

    async def run(self, *, task_status: trio.TaskStatus[Answer] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, open the session (or re-open it when there is a token), then read until the connection ends.

        Raises:
            TransportError: CONNECT_FAILED when no WebSocket can be made.
            UnexpectedAnswerError: when the node refuses the session.
        """
        self.closed = trio.Event()
        stream = await self._dial()
        try:
            async with trio.open_nursery() as nursery:
                connection = await self._upgrade(nursery, stream)
                self._connection = connection
                nursery.start_soon(self._read, connection)
                task_status.started(await (self._re_open() if self.token else self._open()))
                await self.closed.wait()
                with trio.move_on_after(CLOSE_SECONDS):
                    await connection.aclose()
                nursery.cancel_scope.cancel()
        finally:
            await trio.aclose_forcefully(stream)

    async def _dial(self) -> _Stream:
        parts = urlsplit(self._url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "wss" else 80)
        try:
            with trio.fail_after(CONNECT_SECONDS):
                stream = await trio.open_tcp_stream(host, port)
                if self._ssl_context is None:
                    return stream
                encrypted = trio.SSLStream(stream, self._ssl_context, server_hostname=host, https_compatible=True)
                await encrypted.do_handshake()
                return encrypted
        except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
            raise TransportError(Code.CONNECT_FAILED, _why(self._url, error), phase="connect") from error

    async def _upgrade(self, nursery: trio.Nursery, stream: _Stream) -> WebSocketConnection:
        parts = urlsplit(self._url)
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return await open_bounded(
                    nursery,
                    stream,
                    parts.netloc,
                    parts.path,
                    buffers=Buffers(queue_messages=QUEUE_MESSAGES, message_bytes=FRAME_BYTES, read_bytes=READ_BYTES),
                )
        except (OSError, HandshakeError, trio.TooSlowError) as error:
            raise TransportError(Code.CONNECT_FAILED, _why(self._url, error), phase="connect") from error

    async def _read(self, connection: WebSocketConnection) -> None:
        try:
            while True:
                text = await connection.get_message()
                self._take(text, time.monotonic_ns())
        except ConnectionClosed:
            self.closed.set()
            for transaction in self._transactions.values():
                transaction.done.set()

    def _take(self, text: str | bytes, arrived_ns: int) -> None:
        self.received += 1
        members = json.loads(text)
        kind = str(members.get("type", "")).lower()
        body = cast("Members", members.get("body") or {})
        if kind in {"response", "pong"} and self._settle(members.get("id"), body, arrived_ns):
            return
        message = Incoming(
            id=members.get("id"),
            type=kind,
            from_=members["from"],
            to=members["to"],
            body=body,
            arrived_ns=arrived_ns,
        )
        self._on_message(message)

    def _settle(self, id_: object, body: Members, arrived_ns: int) -> bool:
        """Note the answer to one of our requests; False when none of them waits for it, or for a second one."""
        transaction = self._transactions.get(id_) if isinstance(id_, int) else None
        code = body.get("code", 200)
        if transaction is None or transaction.answer is not None or not isinstance(code, int):
            return False
        if code >= 200:
            transaction.answer = Answer(
                code=code,
                reason=str(body.get("reason", "")),
                value=body.get("value"),
                body=body,
                taken_ns=arrived_ns - transaction.sent_ns,
            )
            transaction.done.set()
        return True

    async def notify(self, type_: str, from_: str, to: str, body: Members) -> None:
        """Send an event: no `id`, no answer.

        Raises:
            TransportError: LINK_LOST when the connection is gone.
        """
        await self._send({"type": type_, "from": from_, "to": to, "body": body})

    async def respond(self, request: Incoming, body: Members) -> None:
        """Answer `request` with the mirrored header."""
        await self._send({"id": request.id, "type": "response", "from": request.to, "to": request.from_, "body": body})

    async def request(self, type_: str, from_: str, to: str, body: Members | None = None) -> Answer:
        """Send a request and wait for its final answer.

        Raises:
            TransportError: LINK_LOST when the connection ends first, GATEWAY_TIMEOUT when nobody answers in time.
        """
        self._last_id += 1
        id_ = self._last_id
        message: dict[str, object] = {"id": id_, "type": type_, "from": from_, "to": to}
        if body is not None:
            message["body"] = body
        transaction = self._transactions[id_] = _Transaction(time.monotonic_ns(), trio.Event())
        try:
            with trio.move_on_after(ANSWER_SECONDS) as scope:
                await self._send(message)
                await transaction.done.wait()
        finally:
            del self._transactions[id_]
            if transaction.answer is None:
                self.abandoned.add(id_)
        if scope.cancelled_caught:
            raise TransportError(Code.GATEWAY_TIMEOUT, f"no answer to {type_} for {to}")
        if transaction.answer is None:
            raise TransportError(Code.LINK_LOST, f"the connection ended before the answer to {type_} for {to}")
        return transaction.answer

    async def _send(self, message: Members) -> None:
        if self._connection is None:
            raise TransportError(Code.NOT_CONNECTED, self.runtime, phase="write")
        try:
            await self._connection.send_message(encode(message))
        except ConnectionClosed as error:
            raise TransportError(Code.LINK_LOST, self.runtime, phase="write") from error

    async def _open(self) -> Answer:
        answer = await self.request("open", self.runtime, "mn:/session")
        token = answer.body.get("runtimeToken", "")
        if not answer.is_ok or not isinstance(token, str):
            raise UnexpectedAnswerError(f"open {self.runtime}", answer)
        self.token = token
        return answer

    async def _re_open(self) -> Answer:
        answer = await self.request("re-open", self.session_address, "mn:/session")
        if not answer.is_ok:
            raise UnexpectedAnswerError(f"re-open {self.runtime}", answer)
        return answer

    async def ping(self) -> Answer:
        """Ask the session manager for a sign of life."""
        return await self.request("ping", self.session_address, "mn:/session")

    async def close(self) -> bool:
        """End the session; True when the node closed the connection within its time."""
        await self._send({"id": self._last_id + 1, "type": "close", "from": self.session_address, "to": "mn:/session"})
        with trio.move_on_after(CLOSE_SECONDS) as scope:
            await self.closed.wait()
        self.closed.set()
        return not scope.cancelled_caught

    def drop(self) -> None:
        """Let the connection go without `close`: the node keeps the session for its grace time."""
        self.closed.set()

    def at(self, domain: str) -> DomainServices:
        """The services of a domain."""
        return DomainServices(self, domain)

    async def granted(self, type_: str, from_: str, to: str, body: Members | None = None) -> Answer:
        """Send a request that must succeed.

        Raises:
            UnexpectedAnswerError: for any other final code.
            TransportError: as `request`.
        """
        answer = await self.request(type_, from_, to, body)
        if not answer.is_ok:
            raise UnexpectedAnswerError(f"{type_} for {to}", answer)
        return answer


class DomainServices:
    """Services of a domain's node and registry, as one runtime uses them. Errors are those of `granted`."""

    def __init__(self, client: RuntimeClient, domain: str) -> None:
        self._client = client
        self._domain = domain

    async def allocate(self, scheme: str, number: int) -> list[str]:
        """Addresses of `scheme` in the domain, made by the node and owned by this session."""
        answer = await self._client.granted(
            "create",
            f"{self._client.runtime}/address-allocation",
            f"domain://msg-node.{self._domain}/address-allocation",
            {"scheme": scheme, "value": {"number": number, "allocationKey": f"{self._client.runtime}/{scheme}"}},
        )
        value = answer.value
        allocated = value.get("allocated") if isinstance(value, dict) else None
        if not isinstance(allocated, list) or len(allocated) != number:
            raise UnexpectedAnswerError(f"allocation of {number} {scheme} addresses", answer)
        return [str(address) for address in allocated]

    async def release(self, scheme: str) -> Answer:
        """Give back the block that `allocate` got for `scheme`."""
        return await self._client.granted(
            "delete",
            f"{self._client.runtime}/address-allocation",
            f"domain://msg-node.{self._domain}/address-allocation",
            {"resource": f"{self._client.runtime}/{scheme}"},
        )

    async def register(self, entry: Members) -> Answer:
        """Put a hyperty or a data object into the registry of the domain."""
        return await self._client.granted(
            "create", f"{self._client.runtime}/registry", f"domain://registry.{self._domain}", {"value": entry}
        )

    async def unregister(self, url: str) -> Answer:
        """Mark a registry entry as disconnected."""
        body = {"resource": url, "attribute": "status", "value": "disconnected"}
        return await self._client.granted(
            "update", f"{self._client.runtime}/registry", f"domain://registry.{self._domain}", body
        )

    async def look_up(self, from_: str, user: str) -> Answer:
        """Ask the registry of the domain for the hyperties of `user`."""
        body = {"resource": f"/hyperty/user/{user}", "criteria": {"resources": ["chat"], "dataSchemes": ["comm"]}}
        return await self._client.granted("read", from_, f"domain://registry.{self._domain}", body)

    async def subscribe(self, resources: Sequence[str]) -> Answer:
        """Become a listener of `resources` at the node of the domain."""
        return await self._manage("subscribe", resources)

    async def unsubscribe(self, resources: Sequence[str]) -> Answer:
        """Take that back."""
        return await self._manage("unsubscribe", resources)

    async def _manage(self, type_: str, resources: Sequence[str]) -> Answer:
        return await self._client.granted(
            type_,
            f"{self._client.runtime}/sm",
            f"domain://msg-node.{self._domain}/sm",
            {"resources": list(resources), "source": self._client.runtime},
        )


def _why(url: str, error: Exception) -> str:
    """Why there is no connection, in words."""
    return f"{url}: {str(error) or 'no answer in time'}"
