"""Messages that two HTTP readers would read in different ways are refused by each reader of ours.

Behind a proxy, what one reader takes for a body is the next client's request for the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from socket import SHUT_WR

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import Code, PeerError
from tests.support.http_runtime import opened_http
from tests.support.runtime_rig import RuntimeRig, runtime_rig
from tests.support.web import web_rig
from wire.core.http_exchange import HttpExchange, OutgoingRequest
from wire.core.http_serving import HttpRequest, HttpServing
from wire.core.websocket import ServerWebSocket

CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
FRAMINGS = {
    "length and coding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "coding and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + CHUNKS,
    "in other letters": b"cOnTent-lEngth: 5\r\ntRansfer-eNcoding: CHUNKED\r\n\r\n" + CHUNKS,
    "length 0 and coding": b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
    "a list of equal lengths": b"Content-Length: 5, 5\r\n\r\nhello",
    "a list of lengths": b"Content-Length: 5, 0\r\n\r\nhello",
    "a length with a sign": b"Content-Length: +5\r\n\r\nhello",
    "a negative length": b"Content-Length: -1\r\n\r\nhello",
    "a hexadecimal length": b"Content-Length: 0x5\r\n\r\nhello",
    "a length with an underscore": b"Content-Length: 0_5\r\n\r\nhello",
    "an empty length": b"Content-Length:\r\n\r\nhello",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "a list of codings": b"Transfer-Encoding: identity, chunked\r\n\r\n" + CHUNKS,
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "space before the colon": b"Content-Length : 5\r\n\r\nhello",
    "tab before the colon": b"Transfer-Encoding\t: chunked\r\n\r\n" + CHUNKS,
    "a folded length": b"X-A: b\r\n Content-Length: 5\r\n\r\nhello",
    "a folded coding": b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "a folded field with a tab": b"X-A: b\r\n\tc\r\nContent-Length: 5\r\n\r\nhello",
    "bare LF behind a field": b"X-A: b\nContent-Length: 5\r\n\r\nhello",
    "bare LF in every place": b"Content-Length: 5\n\nhello",
    "bare LF before the body": b"Content-Length: 5\r\n\nhello",
    "bare CR in a field": b"X-A: b\rContent-Length: 5\r\n\r\n",
    "NUL in a field": b"X-A: b\0c\r\nContent-Length: 5\r\n\r\nhello",
    "no colon": b"Content-Length\r\n\r\n",
    "bare LF behind a chunk's size": b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "bare LF at the end of the chunks": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\n",
    "bare LF in the trailers": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\n\r\n",
    "a folded trailer": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\r\n c\r\n\r\n",
    "bare CR behind a chunk's size": b"Transfer-Encoding: chunked\r\n\r\n5;x\ry\r\nhello\r\n0\r\n\r\n",
    "bare CR behind the last chunk's size": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0;x\ry\r\n\r\n",
    "NUL behind a chunk's size": b"Transfer-Encoding: chunked\r\n\r\n5;x\0y\r\nhello\r\n0\r\n\r\n",
    "a chunk of 2^64 + 5": b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
    "a chunk of 2^64": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10000000000000000\r\n\r\n",
    "a chunk of many noughts": b"Transfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r\n0\r\n\r\n",
    "a negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than said": b"Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
}
"""What follows the first line and `Host`, by what is wrong with it."""
VERSIONS = {
    "coding in HTTP/1.0": (b"HTTP/1.0", b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS),
    "HTTP/1.2": (b"HTTP/1.2", b"Content-Length: 5\r\n\r\nhello"),
    "HTTP/2.0": (b"HTTP/2.0", b"Content-Length: 5\r\n\r\nhello"),
    "HTTP/0.9": (b"HTTP/0.9", b"Content-Length: 5\r\n\r\nhello"),
}
REQUESTS = {
    **{name: b"POST %b HTTP/1.1\r\nHost: a\r\n" + rest for name, rest in FRAMINGS.items()},
    **{name: b"POST %b " + version + b"\r\nHost: a\r\n" + rest for name, (version, rest) in VERSIONS.items()},
    "bare LF behind the first line": b"POST %b HTTP/1.1\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "space before the first field": b"POST %b HTTP/1.1\r\n Host: a\r\nContent-Length: 5\r\n\r\nhello",
    "two hosts": b"POST %b HTTP/1.1\r\nHost: a\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "no host": b"POST %b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
}
WHOLE = b"POST /socket.io/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"


def served(data: bytes) -> list[HttpRequest]:
    """Requests that the serving side reads, each answered at once."""
    http = HttpServing(max_bytes=1000, check_head=lambda _request: None)
    http.receive(data)
    requests = []
    while (request := http.next_request()) is not None:
        requests.append(request)
        http.answer(200, {}, b"")
    return requests


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("before", [b"", WHOLE], ids=["first", "second"])
def test_serving_side_refuses_a_request_that_can_be_read_in_two_ways(name: str, before: bytes) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.PROTOCOL_ERROR):
        served(before + REQUESTS[name] % b"/socket.io/" + SMUGGLED)


def test_serving_side_reads_what_is_framed_well() -> None:
    assert [one.body for one in served(WHOLE + SMUGGLED)] == [b"hello", b""]
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-A: b\r\n\r\n"
    assert [one.body for one in served(chunked + SMUGGLED)] == [b"hello", b""]
    assert [one.body for one in served(WHOLE.replace(b"1.1", b"1.0"))] == [b"hello"]


ANSWERS = {
    **{name: b"HTTP/1.1 200 OK\r\n" + rest for name, rest in FRAMINGS.items()},
    **{name: version + b" 200 OK\r\n" + rest for name, (version, rest) in VERSIONS.items()},
    "bare LF behind the first line": b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello",
    "a wrong one before it": b"HTTP/1.1 103 Early\r\nX-A: b\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_asking_side_refuses_an_answer_that_can_be_read_in_two_ways(name: str) -> None:
    exchange = HttpExchange(OutgoingRequest(url="https://b.example/", headers={}), max_bytes=1000, domain="b.example")
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_REPLY):
        exchange.receive(ANSWERS[name]) or exchange.receive(b"")


@given(st.lists(st.integers(0, 120), max_size=4), st.sampled_from(sorted(REQUESTS)))
def test_verdict_does_not_depend_on_how_the_bytes_are_cut(cuts: list[int], name: str) -> None:
    data = REQUESTS[name] % b"/socket.io/"
    edges = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    http = HttpServing(max_bytes=1000, check_head=lambda _request: None)
    with pytest.raises(PeerError):  # noqa: PT012 - it may come with any piece
        for start, end in pairwise(edges):
            http.receive(data[start:end])
            assert http.next_request() is None


@pytest.mark.parametrize("name", REQUESTS)
def test_upgrade_with_a_body_or_a_broken_head_opens_no_websocket(name: str) -> None:
    head = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    head += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    data = (REQUESTS[name] % b"/ws").replace(b"POST", b"GET")
    first, _, rest = data.partition(b"\r\n")
    websocket = ServerWebSocket(max_bytes=1000)
    websocket.receive(first + b"\r\n" + head + rest)
    assert websocket.request_path is None


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, max_bytes=10_000) as rig:
        yield rig
        assert rig.listener is not None
        assert rig.listener.counters["internal errors"] == 0


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("path", [b"/messages", b"/socket.io/?EIO=3&transport=polling", b"/twin"])
async def test_listener_answers_once_and_closes(rig: RuntimeRig, path: bytes, name: str) -> None:
    wire = await rig.connect()
    await wire.write(REQUESTS[name] % path + SMUGGLED)
    wire.socket.shutdown(SHUT_WR)  # it does not have to wait for the rest of a body
    answer = await wire.read_to_end()
    assert answer.count(b"HTTP/1.1 ") <= 1, "what was smuggled has no answer"
    status = int(answer[9:12]) if answer else 400
    assert 400 <= status <= 505


@pytest.mark.parametrize("name", REQUESTS)
async def test_site_answers_once_and_closes(name: str) -> None:
    async with web_rig() as site:
        wire = await site.wire()
        await wire.write(REQUESTS[name] % b"/.well-known/" + SMUGGLED)
        wire.socket.shutdown(SHUT_WR)
        answer = await wire.read_to_end()
        await wire.cut()
    assert answer.count(b"HTTP/1.1 ") == 1
    assert 400 <= int(answer[9:12]) <= 505


async def test_nothing_of_a_smuggled_request_is_done_in_a_session(rig: RuntimeRig) -> None:
    ana = await opened_http(rig)
    wire = await rig.connect()
    event = b'{"type":"event","from":"x","to":"y"}'
    smuggled = b"POST /messages HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b" % (
        ana.token.encode(), len(event), event,
    )  # fmt: skip
    taken = rig.counters.copy()
    await wire.write(
        b"POST /messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + smuggled
    )
    assert (await wire.read_to_end()).startswith(b"HTTP/1.1 400 ")
    assert rig.counters == taken
