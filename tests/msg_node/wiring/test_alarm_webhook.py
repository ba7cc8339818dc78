"""The webhook of alarms, against a real server."""

from __future__ import annotations

import ssl

import trio

from msg_node.backends.backend_http import BackendHttp
from msg_node.wiring.alarms import post_alarm
from protofly.errors import Code, HostError


async def answered(status: str) -> tuple[bytes, HostError | None]:
    """What a server that answers so was sent, and the error of the caller."""
    received = b""

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal received
        async with stream:
            while not received.endswith(b"}"):
                received += await stream.receive_some()
            await stream.send_all(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, serve, [listener])
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/hook"
            http = BackendHttp(url, ssl.create_default_context(), max_bytes=100)
            error = None
            try:
                await post_alarm(http, 10.0, b'{"alarm":"x"}')
            except HostError as exc:
                error = exc
            nursery.cancel_scope.cancel()
    return received, error


async def test_a_call_is_a_post_of_json_and_anything_but_success_is_an_error() -> None:
    received, error = await answered("204 No Content")
    assert error is None
    assert received.startswith(b"POST /hook HTTP/1.1\r\n")
    assert b"content-type: application/json" in received.lower()
    assert received.endswith(b'{"alarm":"x"}')
    for status in ("302 Found", "404 Not Found", "500 Internal Server Error"):
        _, error = await answered(status)
        assert error is not None
        assert error.code is Code.HTTP_STATUS
