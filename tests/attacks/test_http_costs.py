"""HTTP that costs its reader much more than its sender: tiny chunks, early answers, crowded lines, answers unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from msg_node.bus.runtime_port import LINE_BYTES
from protofly.errors import Code, PeerError
from protofly.limits import HTTP_HEAD_BYTES
from tests.support.http_runtime import opened_http
from tests.support.polling import PATH
from tests.support.runtime_rig import RuntimeRig, runtime_rig
from wire.byte_channel import RECEIVE_BYTES, ByteChannel
from wire.core.http_exchange import HttpExchange, OutgoingRequest
from wire.core.http_serving import HttpServing

CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
OPTIONS = f"OPTIONS {PATH}&transport=polling HTTP/1.1\r\nHost: a\r\n\r\n".encode()
POSTS = {"polling": f"OPTIONS {PATH}&transport=polling".encode(), "https": b"POST /messages"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def check_neighbours(rig: RuntimeRig) -> None:
    await opened_http(rig, "neighbour")
    friend = await rig.opened("friend")
    assert (await friend.ask("ping", "mn:/session"))["type"] == "pong"
    assert rig.listener is not None
    assert rig.listener.counters["internal errors"] == 0


def chunks(number: int, size: int) -> bytes:
    return (b"%x\r\n%b\r\n" % (size, b"x" * size)) * number + b"0\r\n\r\n"


def served(data: bytes) -> bytes:
    """The body that the serving side reads."""
    http = HttpServing(max_bytes=1 << 20, check_head=lambda _request: None)
    http.receive(b"POST / HTTP/1.1\r\nHost: a\r\n" + data)
    request = http.next_request()
    assert request is not None
    return request.body


def answered(data: bytes) -> bytes:
    """The body that the asking side reads."""
    request = OutgoingRequest(url="https://b.example/", headers={})
    answer = HttpExchange(request, max_bytes=1 << 20, domain="b.example").receive(b"HTTP/1.1 200 OK\r\n" + data)
    assert answer is not None
    return answer.body


@pytest.mark.parametrize("read", [served, answered])
@pytest.mark.parametrize(("number", "size"), [(400, 1), (10_000, 1), (600, 60), (2_000, 100)])
def test_a_body_in_tiny_chunks_is_refused(read: object, number: int, size: int) -> None:
    assert callable(read)
    with pytest.raises(PeerError, match="too many small chunks"):
        read(CHUNKED + chunks(number, size))


@pytest.mark.parametrize("read", [served, answered])
@pytest.mark.parametrize(("number", "size"), [(256, 1), (4_000, 128), (1, 1 << 20), (250, 4096)])
def test_a_body_in_chunks_of_some_size_is_read(read: object, number: int, size: int) -> None:
    assert callable(read)
    assert read(CHUNKED + chunks(number, size)) == b"x" * number * size


@pytest.mark.parametrize("read", [served, answered])
def test_trailers_without_end_and_heads_that_are_too_long_are_refused_however_they_come(read: object) -> None:
    assert callable(read)
    for data in (
        CHUNKED + b"0\r\n" + b"a:b\r\n" * 200 + b"\r\n",
        b"a: " + b"b" * HTTP_HEAD_BYTES + b"\r\nContent-Length: 0\r\n\r\n",
    ):
        with pytest.raises(PeerError, check=lambda error: error.code in (Code.PROTOCOL_ERROR, Code.BAD_REPLY)):
            read(data)


def test_early_answers_without_end_are_a_bad_reply() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\n"
    final = b"200 OK\r\nContent-Length: 1\r\n\r\nx"
    assert answered(b"Content-Length: 1\r\n\r\nx") == b"x"
    exchange = HttpExchange(OutgoingRequest(url="https://b.example/", headers={}), max_bytes=1, domain="b.example")
    answer = exchange.receive(early * 16 + b"HTTP/1.1 " + final)
    assert answer is not None
    assert answer.body == b"x"
    exchange = HttpExchange(OutgoingRequest(url="https://b.example/", headers={}), max_bytes=1, domain="b.example")
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_REPLY):
        exchange.receive(early * 17)


@pytest.mark.parametrize("request_line", POSTS.values(), ids=list(POSTS))
async def test_a_stranger_with_tiny_chunks_is_cut_off_at_once(rig: RuntimeRig, request_line: bytes) -> None:
    wire = await rig.connect()
    await wire.write(request_line + b" HTTP/1.1\r\nHost: a\r\n" + CHUNKED + b"1\r\nx\r\n" * 1000)
    assert (await wire.read_to_end())[9:12] in (b"400", b"401", b"413")
    await check_neighbours(rig)


async def test_requests_that_come_at_once_on_one_line_leave_others_their_turns(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, turn, turns = 300, 0, list[int]()
    answer = HttpServing.answer

    def noted(self: HttpServing, status: int, *args: object, **more: object) -> None:
        turns.append(turn)
        answer(self, status, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(HttpServing, "answer", noted)
    wire = await rig.connect()
    async with trio.open_nursery() as nursery:
        await wire.write(OPTIONS * number)
        while len(turns) < number:
            turn += 1
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert max(Counter(turns).values()) <= 2  # two of its turns may meet between two of ours
    await check_neighbours(rig)


async def test_a_stranger_who_reads_no_answers_fills_a_line_and_no_memory(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    send = ByteChannel.send_nowait

    def noted(self: ByteChannel, data: bytes) -> None:
        nonlocal most
        send(self, data)
        most = max(most, self.backlog_bytes)

    monkeypatch.setattr(ByteChannel, "send_nowait", noted)
    wire = await rig.connect(receive_bytes=4096)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.stream.send_all, OPTIONS * 60_000)
        while most <= LINE_BYTES:
            await trio.lowlevel.checkpoint()
        await check_neighbours(rig)
        nursery.cancel_scope.cancel()
    await wire.cut()
    assert most <= LINE_BYTES + 8 * RECEIVE_BYTES
