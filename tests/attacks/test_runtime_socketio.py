"""Engine.IO and socket.io in hostile hands: order, lengths, foreign sessions, floods, polls that never come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from msg_node.bus.runtime_port import STUCK_SECONDS
from msg_node.connectors.core.engine_io import encode_payload
from protofly.limits import (
    FRAME_BYTES,
    HTTP_HEADERS,
    PAYLOAD_FRAMES,
    SESSION_QUEUE_BYTES,
    SESSION_QUEUE_MESSAGES,
    WAITING_PACKETS,
)
from tests.support.polling import PATH, HttpLine, PollingRuntime, engine_socket, heard, opened_polling, polling, said
from tests.support.runtime_rig import SESSION, Json, Runtime, RuntimeRig, a_message, runtime_address, runtime_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def check_neighbours(rig: RuntimeRig) -> None:
    """Others come, talk, and go on as if nothing had happened."""
    one, other = await opened_polling(rig, "neighbour"), await rig.opened("friend")
    await one.say(a_message("event", one.address, other.address, {"value": 1}))
    assert (await other.next())["body"]["value"] == 1
    assert rig.listener is not None
    assert rig.listener.counters["internal errors"] == 0


async def ended(rig: RuntimeRig, runtime: PollingRuntime) -> None:
    """The session is gone, and its id with it."""
    with trio.fail_after(10):
        while rig.socket_io.find(runtime.sid) is not None:
            await trio.lowlevel.checkpoint()
    line = HttpLine(await rig.connect())
    assert json.loads((await line.fetch("GET", runtime.target)).body)["code"] == 1


# Order and lengths.


@pytest.mark.parametrize(
    "packets",
    [
        [b"0{}"],
        [b"40", b"40", b"3probe", b"6", b"5", b"2probe"],
        [b"41", b"42[]"],
        [b"4"],
        [b"9"],
        [b"42" + b"[" * 10_000],
        [b"42/" + b"x" * 10_000],
        [b"42" + b"9" * 10_000 + b"[]"],
        [b"40/n"] * 10_000,
        [b"2"] * 10_000,
        [b""],
    ],
)
async def test_packets_out_of_order_cost_nobody_else_anything(rig: RuntimeRig, packets: list[bytes]) -> None:
    ana = await opened_polling(rig)
    await ana.posts.ask("POST", ana.target, body=encode_payload(packets))
    assert (await ana.posts.answer()).status in (200, 400)
    session = rig.socket_io.find(ana.sid)
    assert session is None or len(session._packets) <= WAITING_PACKETS
    socket = await engine_socket(rig)
    await socket.say(*packets, b"1")
    await socket.rest()
    await check_neighbours(rig)


@pytest.mark.parametrize(
    "body",
    [b"", b"99999999:4", b"9" * 100_000, b"-1:4", b"\xff" * 1000, b"1:2" * 20_000, "2:4é".encode(), b"0:" * 9000],
)
async def test_payloads_with_false_lengths_end_the_session_and_nothing_else(rig: RuntimeRig, body: bytes) -> None:
    ana = await opened_polling(rig)
    answer = await ana.posts.fetch("POST", ana.target, body=body)
    assert answer.status in (200, 400)
    if answer.status == 400:
        await ended(rig, ana)
    await check_neighbours(rig)


async def test_a_post_that_is_too_long_is_refused_before_it_is_read_whole(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    most = PAYLOAD_FRAMES * FRAME_BYTES
    head = f"POST {ana.target} HTTP/1.1\r\nHost: a\r\nContent-Length: {10 * most}\r\n\r\n".encode()
    wire = ana.posts.wire
    block, written = b"x" * 65_536, 0

    async def write_on() -> None:
        nonlocal written
        await wire.stream.send_all(head)
        while True:
            await wire.stream.send_all(block)
            written += len(block)

    async with trio.open_nursery() as nursery:

        async def flood() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await write_on()

        nursery.start_soon(flood)
        await ended(rig, ana)
    assert written < 3 * most
    await rig.until("sessions lost")
    await check_neighbours(rig)


async def test_a_message_that_is_too_large_closes_the_session(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    large = said(a_message("event", ana.address, ana.address, {"value": "x" * FRAME_BYTES}))
    assert (await ana.post(large)).body == b"ok"
    assert await ana.poll() == [b"41", b"1"]
    await ended(rig, ana)
    socket = await engine_socket(rig)
    await socket.say(large)
    await socket.rest()
    assert socket.websocket.close_code == 1009
    await check_neighbours(rig)


async def test_a_post_without_end_is_given_up(rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = await opened_polling(rig)
    with monkeypatch.context() as patched:
        patched.setattr("msg_node.connectors.polling.HTTP_REQUEST_SECONDS", 0.05)
        wire = await rig.connect()
        await wire.write(f"POST {ana.target} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1:".encode())
        assert await wire.read_to_end() == b""
    session = rig.socket_io.find(ana.sid)
    assert session is not None
    assert not session.is_posting  # the next one may come
    await check_neighbours(rig)


async def test_a_line_on_which_nothing_more_is_asked_is_closed(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("msg_node.connectors.polling.HTTP_REQUEST_SECONDS", 0.05)
        line = HttpLine(await rig.connect())
        await line.fetch("GET", f"{PATH}&transport=polling")
        mock_clock.rate = 1.0  # until here it stood still, so that the question cannot come too late
        assert await line.wire.read_to_end() == b""
    await check_neighbours(rig)


@pytest.mark.parametrize(
    "noise", [b"\x00" * 100 + b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /socket.io/ HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_http_on_a_line_that_was_good_ends_the_line(rig: RuntimeRig, noise: bytes) -> None:
    line = HttpLine(await rig.connect())
    await line.fetch("GET", f"{PATH}&transport=polling")
    await line.wire.write(noise)
    assert (await line.wire.read_to_end()).startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
    await check_neighbours(rig)


@pytest.mark.parametrize("noise", [b"no request\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"X" * 20_000 + b"\r\n\r\n"])
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT"])
async def test_noise_right_behind_a_request_is_answered_after_it(rig: RuntimeRig, method: str, noise: bytes) -> None:
    ana = await opened_polling(rig)
    wire = await rig.connect()
    await wire.write(f"{method} {ana.target} HTTP/1.1\r\nHost: a\r\n\r\n".encode() + noise)
    answers = (await wire.read_to_end()).split(b"HTTP/1.1 ")[1:]
    assert [one[:3] for one in answers] == [b"200" if method == "OPTIONS" else b"405", b"400"]
    assert rig.bus.runtimes.live_sessions == 1
    await check_neighbours(rig)


@pytest.mark.parametrize(("number", "status"), [(HTTP_HEADERS - 1, 200), (HTTP_HEADERS, 413), (2_500, 413)])
async def test_a_head_of_many_fields_is_refused(rig: RuntimeRig, number: int, status: int) -> None:
    fields = "".join(f"{one:x}:\r\n" for one in range(number))
    wire = await rig.connect()
    head = f"GET {PATH}&transport=polling HTTP/1.1\r\nHost: a\r\n{fields}\r\n"
    await wire.write(head.encode())
    assert (await wire.read()).startswith(f"HTTP/1.1 {status} ".encode())
    await check_neighbours(rig)


async def test_a_poll_for_a_session_that_has_just_ended_is_answered(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    await ana.post(b"1", b"2")  # gone, and still there
    assert (await ana.gets.fetch("GET", ana.target)).status == 400
    await ended(rig, ana)
    await check_neighbours(rig)


async def test_requests_in_a_row_without_waiting_are_served_or_end_the_line(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    wire = await rig.connect()
    ping = f"POST {ana.target} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n1:2".encode()
    await wire.write(ping * 20)
    answers = b""
    while answers.count(b"HTTP/1.1 200") < 20:
        data = await wire.read()
        assert data
        answers += data
    assert await ana.poll() == [b"3"] * 20
    await wire.write(f"GET {ana.target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    await trio.testing.wait_all_tasks_blocked()
    await wire.write(ping)  # nobody speaks while it waits for an answer
    assert await wire.read_to_end() == b""
    await ended(rig, ana)
    await check_neighbours(rig)


# Sessions of others.


async def test_a_guessed_session_id_opens_nothing(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    for sid in (ana.sid[:-1], ana.sid.lower() + "x", "", "__proto__", "%00"):
        socket = await engine_socket(rig, sid=sid or "%20")
        assert not socket.websocket.is_open
        line = HttpLine(await rig.connect())
        assert (await line.fetch("POST", f"{PATH}&transport=polling&sid={sid or '%20'}", body=b"1:1")).status == 400
    assert (await ana.ask("ping", SESSION))["type"] == "pong"


async def test_a_session_that_has_moved_cannot_be_moved_again_or_polled(rig: RuntimeRig) -> None:
    ana, bo = await opened_polling(rig), await rig.opened("bo")
    socket = await ana.web_socket()
    await socket.say(b"2probe", b"5")
    assert await socket.next() == b"3probe"
    with trio.fail_after(10):
        while rig.socket_io._polling:
            await trio.lowlevel.checkpoint()
    thief = await ana.web_socket()
    assert not thief.websocket.is_open
    for method in ("GET", "POST"):
        line = HttpLine(await rig.connect())
        assert json.loads((await line.fetch(method, ana.target)).body)["code"] == 3
    await bo.say(a_message("event", bo.address, ana.address, {"value": 1}))
    assert (await socket.message())["body"]["value"] == 1


async def test_of_two_websockets_that_probe_only_the_first_is_heard(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    first = await ana.web_socket()
    second = await ana.web_socket()
    assert not second.websocket.is_open
    await first.say(b"2probe")
    assert await first.next() == b"3probe"
    await first.say(b"2probe")  # twice is once too often
    assert await first.rest() == []
    assert (await ana.ask("ping", SESSION))["type"] == "pong"
    await check_neighbours(rig)


async def test_a_session_that_ends_while_it_moves_takes_its_websocket_with_it(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    socket = await ana.web_socket()
    await socket.say(b"2probe")
    assert await socket.next() == b"3probe"
    await ana.post(b"1")
    await socket.say(b"5", said(a_message("ping", ana.address, SESSION, id_=1)))
    assert heard(await socket.rest()) == []
    await ended(rig, ana)
    await check_neighbours(rig)


# Floods.


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_two_requests_of_a_kind_at_once_end_the_session(rig: RuntimeRig, method: str) -> None:
    ana = await opened_polling(rig)
    if method == "GET":
        await ana.gets.ask("GET", ana.target)
    else:
        head = f"POST {ana.target} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".encode()
        await ana.posts.wire.write(head)
    await trio.testing.wait_all_tasks_blocked()
    line = HttpLine(await rig.connect())
    assert (await line.fetch(method, ana.target, body=b"1:2" if method == "POST" else b"")).status == 500
    if method == "GET":
        assert (await ana.gets.answer()).packets == [b"1"]
    await ended(rig, ana)
    await rig.until("sessions lost")
    await check_neighbours(rig)


async def test_a_flood_of_posts_on_one_session_is_served_in_order_and_disturbs_nobody(rig: RuntimeRig) -> None:
    ana, bo = await opened_polling(rig), await rig.opened("bo")
    for number in range(200):
        await ana.say(a_message("event", ana.address, bo.address, {"value": number}))
    assert [(await bo.next())["body"]["value"] for _ in range(200)] == list(range(200))
    await check_neighbours(rig)


async def test_who_asks_and_never_fetches_the_answers_is_dropped(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    for _ in range(WAITING_PACKETS + 1):
        if (await ana.post(b"2")).status != 200:
            break
    await ended(rig, ana)
    await check_neighbours(rig)


async def fill(rig: RuntimeRig, bo: Runtime, address: str) -> None:
    """Send events until they are dropped."""
    while not rig.counters["dropped"]:
        await bo.say(*(a_message("event", bo.address, address, {"value": "x" * 4000}) for _ in range(200)))
        await bo.heard()


async def test_a_client_that_never_polls_has_a_bounded_queue_and_is_then_closed(rig: RuntimeRig) -> None:
    ana, bo = await opened_polling(rig), await rig.opened("bo")
    await fill(rig, bo, ana.address)
    port = rig.port_of("ana")
    assert port.queue.queued <= SESSION_QUEUE_MESSAGES
    assert port.queue._waiting.size_bytes <= SESSION_QUEUE_BYTES
    refused = await bo.ask("read", ana.address, {"value": "x" * 5000})
    assert (refused["body"]["code"], refused["body"]["reason"]) == (503, "overload")
    for _ in range(3):
        await ana.post(b"2")  # signs of life do not help who does not read
    port.check(port.heard_at, ping_seconds=30)
    assert not port.queue.channel.is_closed
    port.queue.stuck_since -= STUCK_SECONDS
    port.check(port.heard_at, ping_seconds=30)
    await ended(rig, ana)
    assert rig.counters["stuck runtimes"] == 1
    await check_neighbours(rig)


async def test_a_client_that_polls_late_gets_what_was_kept(rig: RuntimeRig) -> None:
    ana, bo = await opened_polling(rig), await rig.opened("bo")
    await fill(rig, bo, ana.address)
    assert len(heard(await ana.poll())) > 500
    await bo.say(a_message("event", bo.address, ana.address, {"value": "after"}))
    assert (await ana.next())["body"]["value"] == "after"


async def test_polls_on_many_lines_whose_answers_are_not_read_keep_no_more_than_one_queue(
    rig: RuntimeRig,
) -> None:
    ana, bo = await opened_polling(rig), await rig.opened("bo")
    kept: list[Json] = []
    for number in range(20):
        line = HttpLine(await rig.connect(receive_bytes=8192))
        await line.ask("GET", ana.target)
        await trio.testing.wait_all_tasks_blocked()
        if rig.socket_io.find(ana.sid) is None:
            break
        for _ in range(4):
            await bo.say(a_message("event", bo.address, ana.address, {"value": "x" * 900_000, "n": number}))
        await bo.heard()
        kept.append({"n": number})
    assert len(kept) < 10
    await ended(rig, ana)
    await check_neighbours(rig)


async def test_polling_sessions_that_stop_half_way_are_not_kept(rig: RuntimeRig) -> None:
    strangers = [await polling(rig, f"rt-{number}") for number in range(20)]
    assert len(rig.bus.send_queues.connections) == 20
    for port in list(rig.bus.send_queues.connections.values()):
        port.check(port.heard_at + 31, ping_seconds=30)
    for stranger in strangers:
        await ended(rig, stranger)
    assert not rig.bus.send_queues.connections
    assert not rig.socket_io._polling
    await check_neighbours(rig)


async def test_a_sid_of_one_runtime_does_not_speak_for_another(rig: RuntimeRig) -> None:
    ana, bo = await opened_polling(rig), await opened_polling(rig, "bo")
    await ana.say(a_message("read", bo.address, runtime_address("ana"), id_=1))
    assert (await ana.next())["body"]["reason"] == "not-owner"
