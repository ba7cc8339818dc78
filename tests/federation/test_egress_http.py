"""HTTP channels of a stub: one request, one answer or one reason; nothing bends the request, nothing is followed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from federation.stubs.egress import EgressRules
from protofly.errors import Code, StubFaultError
from protofly.limits import HTTP_ANSWER_BYTES, HTTP_EXCHANGE_SECONDS
from sandbox.core.exchange import ChannelKind, Event, GuestEvent
from tests.support.egress_lines import URL, endpoints, lines, nothing
from wire.byte_channel import ByteChannel

HTTP_URL = "https://mn.b.example/api"
HTTP_RULES = EgressRules("b.example", endpoints(HTTP_URL))


class HttpFar:
    """Answers one request with the given bytes and keeps what it was asked."""

    def __init__(self, answer: bytes, *, request_ends: bytes = b"\r\n\r\n") -> None:
        self.answer = answer
        self.request_ends = request_ends
        self.asked = b""

    async def serve(self, line: ByteChannel) -> None:
        while not self.asked.endswith(self.request_ends):
            data = await line.receive()
            if not data:
                return
            self.asked += data
        line.send_nowait(self.answer)
        await line.wait_drained()


def answer_of(event: GuestEvent) -> tuple[dict[str, Any], bytes]:
    head, _, body = event.payload.partition(b"\n")
    return json.loads(head), body


async def test_an_http_request_is_answered_by_one_event_and_closed() -> None:
    far = HttpFar(
        b"HTTP/1.1 201 Created\r\nX-Room: 7\r\nSet-Cookie: a=b\r\nContent-Length: 5\r\n\r\na\nb\nc", request_ends=b"hi"
    )
    async with lines(far.serve, rules=HTTP_RULES) as ours:
        ours.open(
            kind=ChannelKind.HTTP, method="POST", path="/rooms?x=1", headers={"Content-Type": "text/plain"}, body="hi"
        )
        assert (await ours.wait_for(Event.CLOSED)).payload == b"closed"
        assert [event.op for event in ours.events] == [Event.OPENED, Event.HTTP_RESPONSE, Event.CLOSED]
        head, body = answer_of(ours.events[1])
    assert head == {"status": 201, "headers": {"x-room": "7", "content-length": "5"}}
    assert body == b"a\nb\nc"
    assert far.asked.startswith(b"POST /api/rooms?x=1 HTTP/1.1\r\nHost: mn.b.example\r\n")
    assert b"Content-Type: text/plain\r\n" in far.asked


async def test_a_redirect_is_handed_over_and_not_followed() -> None:
    far = HttpFar(b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1/secret\r\nContent-Length: 0\r\n\r\n")
    async with lines(far.serve, rules=HTTP_RULES) as ours:
        ours.open(kind=ChannelKind.HTTP)
        head, _ = answer_of(await ours.wait_for(Event.HTTP_RESPONSE))
        await ours.wait_for(Event.CLOSED)
    assert (head["status"], head["headers"]["location"]) == (302, "https://127.0.0.1/secret")
    assert len(ours.dialler.asked) == 1


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (b"SSH-2.0-what\r\n\r\n", b"bad-reply"),
        (b"", b"bad-reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", b"bad-reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", b"bad-reply"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(HTTP_ANSWER_BYTES + 1), b"document-too-large"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000, b"bad-reply early answers without end"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 20), b"bad-reply"),
    ],
    ids=["no-http", "nothing", "cut-short", "coded", "large-body", "endless-head", "large-head"],
)
async def test_a_broken_http_answer_closes_the_channel_with_its_code(answer: bytes, word: bytes) -> None:
    async with lines(HttpFar(answer).serve, rules=HTTP_RULES) as ours:
        ours.open(kind=ChannelKind.HTTP)
        assert (await ours.wait_for(Event.CLOSED)).payload.startswith(word)
        assert [event.op for event in ours.events] == [Event.OPENED, Event.CLOSED]


async def test_an_http_channel_takes_no_further_bytes() -> None:
    far = HttpFar(b"", request_ends=b"never")
    async with lines(far.serve, rules=HTTP_RULES) as ours:
        ours.open(kind=ChannelKind.HTTP)
        await ours.wait_for(Event.OPENED)
        with pytest.raises(StubFaultError) as caught:
            ours.egress.send(1, [b"GET /smuggled HTTP/1.1\r\n\r\n"])
        assert caught.value.code is Code.STUB_DENIED
        ours.egress.close(1)
        await ours.wait_for(Event.CLOSED)
    assert b"smuggled" not in far.asked


async def test_an_http_answer_that_does_not_come_ends_the_channel(mock_clock: trio.testing.MockClock) -> None:
    far = HttpFar(b"", request_ends=b"never")
    async with lines(far.serve, rules=HTTP_RULES) as ours:
        ours.open(kind=ChannelKind.HTTP)
        await ours.wait_for(Event.OPENED)
        mock_clock.jump(HTTP_EXCHANGE_SECONDS)
        assert (await ours.wait_for(Event.CLOSED)).payload == b"fetch-timeout"


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (ChannelKind.WEBSOCKET, {"method": "POST"}),
        (ChannelKind.WEBSOCKET, {"body": "x"}),
        (ChannelKind.HTTP, {"headers": {"Content-Length": "0"}}),
        (ChannelKind.HTTP, {"headers": {"Transfer-Encoding": "chunked"}}),
        (ChannelKind.HTTP, {"headers": {"X": " led"}}),
        (ChannelKind.HTTP, {"headers": {"X": "a\r\nHost: other"}}),
        (ChannelKind.HTTP, {"path": "/a b"}),
        (ChannelKind.HTTP, {"path": "@other.example/"}),
    ],
)
async def test_what_would_bend_a_request_is_denied_before_a_connection(
    kind: ChannelKind, members: dict[str, Any]
) -> None:
    url = HTTP_URL if kind is ChannelKind.HTTP else URL
    async with lines(nothing, rules=EgressRules("b.example", endpoints(url))) as ours:
        with pytest.raises(StubFaultError) as caught:
            ours.open(kind=kind, **members)
        assert caught.value.code is Code.STUB_DENIED
    assert ours.dialler.asked == []


@pytest.mark.parametrize("raw", [b'{"endpoint":"mn","body":"\\ud800"}', b'{"endpoint":"mn","method":"TRACE"}'])
async def test_an_unreadable_http_request_is_a_fault(raw: bytes) -> None:
    async with lines(nothing, rules=HTTP_RULES) as ours:
        with pytest.raises(StubFaultError) as caught:
            ours.egress.rules.read_request(raw)
        assert caught.value.code is Code.STUB_OUTPUT
