"""Hostile clients of the HTTPS binding: each is refused with a code or cut off, and the node serves others on."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trustme

from msg_node.connectors import http_line, https
from msg_node.connectors.http_session import HttpSession
from tests.support.http_runtime import MESSAGES, HttpRuntime, http_runtime, opened_http
from tests.support.polling import Answer, HttpLine
from tests.support.runtime_rig import SESSION, RuntimeRig, Wire, a_message, runtime_address, runtime_rig

ANA = runtime_address("ana")
AN_EVENT = json.dumps(a_message("event", ANA, ANA)).encode()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, max_bytes=10_000) as rig:
        yield rig
        with trio.fail_after(10):
            reply = await (await rig.opened("bystander")).ask("read", runtime_address("nobody"))
        assert reply["body"]["reason"] == "no-route"
        assert rig.counters["internal errors"] == rig.listener.counters["internal errors"] == 0  # type: ignore[union-attr]


def refusal(answer: Answer) -> tuple[int, str]:
    """Status and reason of a refusal, which says both twice."""
    problem = json.loads(answer.body)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status
    return answer.status, problem["reason"]


async def head_of_answer(wire: Wire) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and (more := await wire.read()):
        data += more
    return data


async def forgotten(rig: RuntimeRig) -> None:
    """Wait until no connection is half-open any more."""
    assert rig.listener is not None
    with trio.fail_after(10):
        while rig.listener.half_open:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("token", ["", "guess", "x" * 10_000])
async def test_nobody_speaks_without_a_token_of_their_own(rig: RuntimeRig, token: str) -> None:
    await opened_http(rig)
    other = await http_runtime(rig)
    other.token = token
    expected = (401, "bad-token" if token else "no-credentials")
    assert refusal(await other.post(AN_EVENT)) == expected
    assert refusal(await other.poll()) == expected


async def test_a_token_speaks_for_its_own_session_only(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await opened_http(rig, "bob")
    reply = await ana.ask("read", bob.address, from_=bob.address)
    assert (reply["body"]["code"], reply["body"]["reason"]) == (403, "not-owner")
    assert (await bob.poll(wait=0)).body == b"[]"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", (400, "broken-json")),
        (b"\x00\xff", (400, "broken-json")),
        (b"[1]", (400, "broken-json")),
        (b'{"type":"read"}', (400, "bad-header")),
        (b'{"type":"read","from":"x","to":"y","body":[]}', (400, "bad-body")),
        (b'{"type":"read","from":"x","to":"y","body":' + b'{"a":' * 70 + b"1" + b"}" * 71, (400, "too-deep")),
        (b'{"type":"event","from":"a","to":"' + b"b" * 3000 + b'"}', (413, "too-large")),
    ],
)
async def test_a_body_that_is_no_message_is_refused(rig: RuntimeRig, body: bytes, expected: tuple[int, str]) -> None:
    ana = await opened_http(rig)
    assert refusal(await ana.post(body)) == expected
    assert (await ana.post(AN_EVENT)).status == 202


async def test_a_body_that_says_it_is_too_large_is_refused_by_its_head(rig: RuntimeRig) -> None:
    ana = await opened_http(rig)
    wire = await rig.connect()
    await wire.write(
        f"POST /messages HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ana.token}\r\n".encode()
        + b"Content-Length: 99999999\r\n\r\n"
    )
    assert (await wire.read_to_end()).startswith(b"HTTP/1.1 413 ")


async def test_a_body_without_an_end_is_refused_when_it_is_too_large(rig: RuntimeRig) -> None:
    ana = await opened_http(rig)
    wire = await rig.connect()
    await wire.write(
        f"POST /messages HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ana.token}\r\n".encode()
        + b"Transfer-Encoding: chunked\r\n\r\n"
    )
    for _ in range(100):
        await wire.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
    assert b" 413 " in (await wire.read_to_end())[:20]


async def test_a_stranger_with_a_long_body_is_refused_and_cut_off(rig: RuntimeRig) -> None:
    wire = await rig.connect()
    await wire.write(b"POST /messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(70):
        await wire.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
    assert (await wire.read_to_end()).startswith(b"HTTP/1.1 413 ")
    await forgotten(rig)


async def test_an_answer_leaves_although_nobody_reads_the_rest_of_a_body(rig: RuntimeRig) -> None:
    """More of a body than is read before an answer: neither side may wait for the other for ever."""
    wire = await rig.connect()
    await wire.write(b"POST /messages/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    await wire.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
    with contextlib.suppress(trio.BrokenResourceError):
        for _ in range(100):
            await wire.write(b"1\r\nx\r\n" * 1000)
    with trio.fail_after(5):
        await wire.read_to_end()
    await forgotten(rig)


async def test_a_body_that_drips_is_given_up(rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = await opened_http(rig)
    monkeypatch.setattr(rig.https.application, "request_seconds", 0.05)
    wire = await rig.connect()
    await wire.write(
        f"POST /messages HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ana.token}\r\n".encode()
        + b"Content-Length: 100\r\n\r\n{"
    )
    assert (await wire.read_to_end()).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("start", [b"", b"G", b"GET /messages HTTP/1.1\r\nHost: a\r\n"])
async def test_a_second_request_whose_head_drips_is_given_up(
    rig: RuntimeRig, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_line, "HTTP_KEEP_ALIVE_SECONDS", 0.05)
    wire = await rig.connect()
    await wire.write(b"GET /messages HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b" 401 " in await head_of_answer(wire)
    await wire.write(start)
    await wire.read_to_end()
    await forgotten(rig)


async def test_a_head_without_an_end_is_refused_when_it_is_too_long(rig: RuntimeRig) -> None:
    for start in (
        b"GET /messages HTTP/1.1\r\n",
        b"GET /messages HTTP/1.1\r\nHost: a\r\n\r\nGET /messages HTTP/1.1\r\n",
    ):
        wire = await rig.connect()
        await wire.write(start + b"X: y\r\n" * 20_000)
        assert b"HTTP/1.1 4" in await wire.read_to_end()
    await forgotten(rig)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "PATCH", "BREW"])
async def test_other_methods_are_refused(rig: RuntimeRig, method: str) -> None:
    line = HttpLine(await rig.connect())
    if method == "HEAD":
        await line.wire.write(b"HEAD /messages HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 405 " in await head_of_answer(line.wire)
        return
    assert refusal(await line.fetch(method, MESSAGES)) == (405, "bad-type")


async def test_other_paths_on_the_same_line_are_refused(rig: RuntimeRig) -> None:
    line = HttpLine(await rig.connect())
    assert (await line.fetch("GET", MESSAGES)).status == 401
    assert refusal(await line.fetch("GET", "/ws")) == (404, "no-such-service")
    assert refusal(await line.fetch("GET", "/messages/../../etc")) == (404, "no-such-service")


@pytest.mark.parametrize(("upgrade", "status"), [(b"websocket", b" 401 "), (b"h2c", b" 401 ")])
async def test_no_other_protocol_is_spoken_at_this_path(rig: RuntimeRig, upgrade: bytes, status: bytes) -> None:
    wire = await rig.connect()
    await wire.write(
        b"GET /messages HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + upgrade + b"\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert (await head_of_answer(wire)).startswith(b"HTTP/1.1" + status)
    await wire.cut()
    await forgotten(rig)


async def test_pages_of_other_origins_may_not_connect(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, origins=["https://app.alpha.example"]) as rig:
        ana = await http_runtime(rig)
        an_open = a_message("open", ANA, SESSION, id_=1)
        assert refusal(await ana.post(an_open, Origin="https://evil.example")) == (403, "policy")
        assert rig.state.sessions.by_runtime(ANA) is None
        answer = await ana.post(an_open, Origin="https://app.alpha.example")
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.alpha.example"
        asked = await ana.posts.fetch(
            "OPTIONS",
            MESSAGES,
            headers={
                "Origin": "https://app.alpha.example",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,last-event-id",
            },
        )
        assert asked.status == 200
        assert "POST" in asked.headers["access-control-allow-methods"]


async def test_one_address_gets_a_bounded_number_of_sessions(rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "HTTP_SESSIONS_PER_ADDRESS", 2)
    first = await opened_http(rig)
    await opened_http(rig, "bob")
    third = await http_runtime(rig, "carol")
    assert refusal(await third.post(a_message("open", third.address, SESSION, id_=1))) == (503, "overload")
    await first.post(a_message("close", ANA, SESSION, id_=1))
    assert (await third.open())["body"]["code"] == 200


async def test_opens_that_are_refused_leave_nothing_behind(rig: RuntimeRig) -> None:
    await rig.opened("ana")
    for _ in range(20):
        other = await http_runtime(rig)
        assert (await other.open())["body"]["code"] == 409
    assert (rig.https.live_sessions, dict(rig.https._per_address)) == (0, {})
    with trio.fail_after(10):
        while len(rig.bus.send_queues.connections) > 1:
            await trio.lowlevel.checkpoint()


async def test_one_session_has_a_bounded_number_of_posts_under_way(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "HTTP_POSTS_PER_SESSION", 2)
    ana, bob = await opened_http(rig), await rig.opened("bob")
    for number in range(2):
        line = HttpLine(await rig.connect())
        body = json.dumps(a_message("read", ANA, bob.address, id_=number)).encode()
        await line.ask("POST", MESSAGES, body=body, headers=ana.headers)
        await bob.next()
    assert refusal(await ana.post(AN_EVENT)) == (429, "quota")


async def test_who_does_not_read_its_stream_loses_it_and_costs_a_bounded_queue(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_line, "STUCK_SECONDS", 0.1)
    ana = await opened_http(rig, receive_bytes=4096)
    bob = await rig.opened("bob")
    await ana.stream()
    session = rig.port_of("ana").queue.channel
    assert isinstance(session, HttpSession)
    with trio.fail_after(30):
        while session.away_since is None:
            await bob.say(*(a_message("event", bob.address, ANA, {"value": "x" * 8000}) for _ in range(50)))
            await bob.heard()
    assert rig.port_of("ana").queue.queued <= 200
    again = await ana.stream(after="0")
    assert await again.event() is not None


async def test_the_node_stops_although_a_stream_is_not_read(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with runtime_rig(tmp_path) as rig:
            ana = await opened_http(rig, receive_bytes=4096)
            bob = await rig.opened("bob")
            await ana.stream()
            channel = rig.port_of("ana").queue.channel
            while channel.takes_more:
                await bob.say(*(a_message("event", bob.address, ANA, {"value": "x" * 8000}) for _ in range(50)))
                await bob.heard()
            rig.stop()


async def test_requests_in_one_write_are_answered_one_after_the_other(rig: RuntimeRig) -> None:
    ana: HttpRuntime = await opened_http(rig)
    wire = await rig.connect()
    one = (
        f"POST /messages HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ana.token}\r\n".encode()
        + f"Content-Length: {len(AN_EVENT)}\r\n\r\n".encode()
        + AN_EVENT
    )
    await wire.write(one * 5 + b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    text = await wire.read_to_end()
    assert text.count(b"HTTP/1.1 202 ") == 5
    assert text.count(b"HTTP/1.1 404 ") == 1


async def test_over_tls_it_is_the_same(tmp_path: Path) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    async with runtime_rig(tmp_path, context=server) as rig:
        ana, bob = await opened_http(rig, context=client), await rig.opened("bob", context=client)
        stream = await ana.stream()
        await bob.say(a_message("event", bob.address, ANA, {"value": "x" * 100_000}))
        assert (await stream.message())["body"]["value"] == "x" * 100_000
