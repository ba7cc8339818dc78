"""An ASGI application on a line: what clients get from applications that answer, fail, or say nothing."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from msg_node.connectors import http_line
from msg_node.connectors.http_line import HttpApplication
from protofly.errors import PeerError
from wire.byte_channel import ByteChannel

GET = b"GET /a%20b?c=d HTTP/1.1\r\nHost: a\r\n\r\n"
Handler = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class Client:
    """The far end of a line."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def ask(self, request: bytes) -> bytes:
        """Send something; everything that comes until the line is idle or ends."""
        await self.stream.send_all(request)
        return await self.read()

    async def read(self) -> bytes:
        """What comes next; b"" at the end."""
        with trio.fail_after(10):
            return bytes(await self.stream.receive_some(1 << 20))

    async def read_to_end(self) -> bytes:
        """Everything until the end of the line."""
        data = b""
        while more := await self.read():
            data += more
        return data


@asynccontextmanager
async def serving(handler: Handler, head: bytes = GET, **bounds: Any) -> AsyncIterator[Client]:
    """Serve a line whose first request is `head`; the block ends with the line."""
    ours, theirs = socket.socketpair()
    async with trio.open_nursery() as nursery:
        line = ByteChannel(ours, drain_nursery=nursery)

        async def serve() -> None:
            await HttpApplication(handler, **bounds).serve(line, head, client_of=lambda _: "192.0.2.1")
            await line.aclose()

        theirs.setblocking(False)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        nursery.start_soon(serve)
        yield Client(stream)
        await stream.aclose()


def answering(body: bytes, *, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> Handler:
    """An application that answers everything alike."""

    async def app(_scope: dict[str, Any], _receive: Any, send: Any) -> None:
        named = [(b"content-length", b"%d" % len(body))] if headers is None else headers
        await send({"type": "http.response.start", "status": status, "headers": named})
        await send({"type": "http.response.body", "body": body})

    return app


async def test_the_application_sees_the_request_as_it_was_sent() -> None:
    seen: list[dict[str, Any]] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append(scope)
        await answering(b"hello")(scope, receive, send)

    async with serving(app) as client:
        answer = await client.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\nhello")
    assert b"\r\ndate: " in answer
    [scope] = seen
    assert (scope["method"], scope["path"], scope["raw_path"], scope["query_string"]) == (
        "GET", "/a b", b"/a%20b", b"c=d",
    )  # fmt: skip
    assert (scope["http_version"], scope["headers"]) == ("1.1", [(b"host", b"a")])
    assert http_line.remote_of(scope) == "192.0.2.1"


async def failing(_scope: dict[str, Any], _receive: Any, _send: Any) -> None:
    raise RuntimeError("a defect")


async def silent(_scope: dict[str, Any], _receive: Any, _send: Any) -> None:
    return


@pytest.mark.parametrize("app", [failing, silent])
async def test_an_application_that_does_not_answer_costs_its_client_a_500_and_the_line(
    app: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        async with serving(app) as client:
            answer = await client.read_to_end()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"connection: close" in answer


async def test_an_answer_that_breaks_off_ends_the_line(caplog: pytest.LogCaptureFixture) -> None:
    async def app(_scope: dict[str, Any], _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("a defect")

    with caplog.at_level(logging.CRITICAL):
        async with serving(app) as client:
            answer = await client.read_to_end()
    assert answer.endswith(b"\r\n\r\nhalf")


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
async def test_an_answer_that_has_no_body_has_none_and_the_next_one_has_its_own(method: bytes, status: int) -> None:
    app = answering(b"hello", status=status)
    async with serving(app, GET.replace(b"GET", method)) as client:
        assert (await client.read()).endswith(b"\r\n\r\n")
        assert (await client.ask(GET)).startswith(b"HTTP/1.1 %d " % status)


async def test_an_answer_of_unknown_length_is_chunked_or_ends_with_the_line() -> None:
    app = answering(b"hello", headers=[])
    async with serving(app) as client:
        assert (await client.read()).endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    async with serving(app, GET.replace(b"1.1", b"1.0")) as client:
        assert (await client.read_to_end()).endswith(b"\r\n\r\nhello")


async def test_requests_in_one_write_are_answered_in_order() -> None:
    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await answering(scope["raw_path"])(scope, receive, send)

    async with serving(app, GET + b"GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") as client:
        first, second = (await client.read_to_end()).split(b"HTTP/1.1 200")[1:]
    assert (first[-6:], second[-2:]) == (b"/a%20b", b"/2")


async def test_the_last_request_of_a_line_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_line, "_REQUESTS_PER_LINE", 2)
    async with serving(answering(b"")) as client:
        assert b"connection: close" not in await client.read()
        assert b"connection: close" in await client.ask(GET)
        assert await client.read() == b""


async def test_a_client_that_waits_for_the_go_ahead_gets_it() -> None:
    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        await answering(body)(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    async with serving(app, head) as client:
        assert (await client.read()).startswith(b"HTTP/1.1 100 ")
        assert (await client.ask(b"hello")).endswith(b"hello")


async def test_a_body_that_breaks_is_refused_once_whatever_the_application_does_then() -> None:
    received: list[str] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        received.extend([(await receive())["type"], (await receive())["type"]])
        await answering(b"done")(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    async with serving(app, head) as client:
        await client.stream.send_all(b"nonsense\r\n")
        answer = await client.read_to_end()
    assert received == ["http.request", "http.disconnect"]
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


async def test_an_application_notices_that_its_client_has_gone() -> None:
    ended: list[str] = []

    async def app(_scope: dict[str, Any], receive: Any, _send: Any) -> None:
        await receive()
        ended.append((await receive())["type"])

    async with serving(app) as client:
        await client.stream.aclose()
    assert ended == ["http.disconnect"]


async def test_two_tasks_of_an_application_may_wait_for_its_client() -> None:
    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            nursery.start_soon(receive)
        await answering(b"both")(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1"
    async with serving(app, head) as client:
        assert (await client.ask(b"2")).endswith(b"both")


async def test_a_body_that_does_not_come_is_a_timeout_for_the_application() -> None:
    codes: list[str] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        try:
            await receive()
        except PeerError as exc:
            codes.append(exc.code.word)
        await answering(b"")(scope, receive, send)

    async with serving(app, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n", request_seconds=0.05) as client:
        assert (await client.read()).startswith(b"HTTP/1.1 200 ")
    assert codes == ["timeout"]


async def test_waiting_for_the_client_to_go_has_no_deadline_once_the_body_is_there(
    mock_clock: trio.testing.MockClock,
) -> None:
    ended: list[str] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        async def wait_for_the_client_to_go() -> None:
            ended.append((await receive())["type"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)  # reads the body's end while the other one waits for its turn
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(wait_for_the_client_to_go)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.5)
            await client.stream.send_all(b"0\r\n\r\n")
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(2.0)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert ended == []
            await answering(b"late")(scope, receive, send)
            nursery.cancel_scope.cancel()

    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(app, head, request_seconds=1.0) as client:
        assert (await client.stream.receive_some(1 << 20)).endswith(b"late")
    assert ended == []
