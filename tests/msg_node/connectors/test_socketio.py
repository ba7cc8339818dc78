"""socket.io at the listener, packet by packet: polling, the move to a WebSocket, refusals, silence, goodbyes."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from msg_node.connectors.core.engine_io import encode_payload
from msg_node.kernel.credentials import Credential, digest_of
from protofly.limits import HALF_OPEN_PER_ADDRESS, PARKED_PER_RUNTIME, POLLING_SESSIONS_PER_ADDRESS
from tests.support.polling import (
    PATH,
    HttpLine,
    engine_socket,
    opened_polling,
    polling,
    said,
)
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    SESSION,
    SM,
    Json,
    RuntimeRig,
    a_message,
    runtime_address,
    runtime_rig,
)

GREETING = "Grüße, 日本 \U0001f600"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def no_sessions_left(rig: RuntimeRig) -> None:
    with trio.fail_after(10):
        while rig.socket_io._sessions or rig.bus.send_queues.connections:
            await trio.lowlevel.checkpoint()
    assert not rig.socket_io._polling


# The beginning.


async def test_the_first_answer_greets_and_the_second_connects(rig: RuntimeRig) -> None:
    line = HttpLine(await rig.connect())
    answer = await line.fetch("GET", f"{PATH}&transport=polling&b64=1")
    (greeting,) = answer.packets
    hello = json.loads(greeting[1:])
    assert greeting[:1] == b"0"
    assert answer.body.startswith(b"97:0{")
    assert (hello["upgrades"], hello["pingInterval"], hello["pingTimeout"]) == (["websocket"], 25_000, 60_000)
    assert len(hello["sid"]) == 20
    assert answer.headers["set-cookie"].startswith(f"io={hello['sid']};")
    assert (await line.fetch("GET", f"{PATH}&transport=polling&sid={hello['sid']}")).body == b"2:40"


async def test_a_websocket_without_polling_is_greeted_and_connected_at_once(rig: RuntimeRig) -> None:
    socket = await engine_socket(rig)
    hello = json.loads((await socket.next())[1:])
    assert hello["upgrades"] == []
    assert await socket.next() == b"40"
    await socket.say(said(a_message("open", runtime_address("ana"), SESSION, id_=1)))
    assert (await socket.message())["body"]["code"] == 200
    await socket.say(b"2")
    assert await socket.next() == b"3"


@pytest.mark.parametrize(
    ("method", "query", "status", "number"),
    [
        ("GET", "?EIO=3&transport=polling&sid=unknown", 400, 1),
        ("POST", "?EIO=3&transport=polling&sid=unknown", 400, 1),
        ("GET", "?EIO=3&transport=flashsocket", 400, 0),
        ("GET", "?EIO=3", 400, 0),
        ("GET", "", 400, 0),
        ("POST", "?EIO=3&transport=polling", 400, 2),
        ("GET", "?EIO=4&transport=polling", 400, 5),
        ("GET", "?EIO=3&transport=polling&j=0", 400, 3),
    ],
)
async def test_requests_that_make_no_sense_are_answered_as_the_reference_server_does(
    rig: RuntimeRig, method: str, query: str, status: int, number: int
) -> None:
    line = HttpLine(await rig.connect())
    answer = await line.fetch(method, f"/socket.io/{query}", body=b"1:2" if method == "POST" else b"")
    assert (answer.status, json.loads(answer.body)["code"]) == (status, number)
    assert not rig.socket_io._sessions


@pytest.mark.parametrize("query", ["&sid=unknown", ""])
async def test_a_request_for_a_websocket_that_is_no_upgrade_is_refused(rig: RuntimeRig, query: str) -> None:
    line = HttpLine(await rig.connect())
    assert (await line.fetch("GET", f"{PATH}&transport=websocket{query}")).status in (400, 426)
    assert not rig.bus.send_queues.connections


# A session.


async def test_on_polling_a_runtime_opens_allocates_subscribes_and_talks(rig: RuntimeRig) -> None:
    ana, bo = await opened_polling(rig), await rig.opened("bo")
    allocated = await ana.ask("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
    (mine,) = allocated["body"]["value"]["allocated"]
    theirs = await bo.allocated()
    assert (await ana.ask("subscribe", SM, {"resources": [f"{theirs}/changes"]}))["body"]["code"] == 200
    await bo.say(a_message("update", theirs, f"{theirs}/changes", {"value": GREETING}))
    assert (await ana.next())["body"]["value"] == GREETING
    for address in (mine, ana.address, f"{ana.address}/sm"):
        await bo.say(a_message("read", bo.address, address, {"value": GREETING}, id_=5))
        assert (await ana.next())["to"] == address
        await ana.say(a_message("response", address, bo.address, {"code": 200, "value": GREETING}, id_=5))
        assert (await bo.next())["body"]["value"] == GREETING


async def test_an_object_in_place_of_its_text_is_taken_as_well(rig: RuntimeRig) -> None:
    ana = await polling(rig)
    await ana.post(b"42" + json.dumps(["message", a_message("open", ana.address, SESSION, id_=1)]).encode())
    assert (await ana.next())["body"]["code"] == 200


async def test_a_post_in_the_framing_for_bytes_is_read_too(rig: RuntimeRig) -> None:
    ana = await polling(rig)
    packet = said(a_message("open", ana.address, SESSION, {"value": GREETING}, id_=1))
    head = b"\x00" + bytes(int(digit) for digit in str(len(packet))) + b"\xff"
    answer = await ana.posts.fetch(
        "POST", ana.target, body=head + packet, headers={"Content-Type": "application/octet-stream"}
    )
    assert answer.body == b"ok"
    assert (await ana.next())["body"]["code"] == 200


async def test_there_is_no_token_and_open_and_re_open_may_be_repeated(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    for verb in ("open", "re-open", "open"):
        body = (await ana.ask(verb, SESSION))["body"]
        assert (body["code"], body["desc"]) == (200, "OK")
        assert "runtimeToken" not in body
    assert rig.bus.runtimes.live_sessions == 1
    await ana.say(a_message("open", runtime_address("other"), SESSION, id_=2))
    assert (await ana.next())["body"]["code"] == 409
    fresh = await polling(rig, "bo")
    assert (await fresh.ask("re-open", SESSION))["body"]["code"] == 200
    assert rig.port_of("bo").sid is not None


async def test_refusals_are_numbers_with_desc(rig: RuntimeRig) -> None:
    ana = await polling(rig)
    before = await ana.ask("create", ALLOCATION, {"scheme": "comm"})
    assert (before["body"]["code"], before["body"]["reason"]) == (401, "no-credentials")
    await ana.ask("open", SESSION)
    refused = (await ana.ask("read", f"hyperty://{DOMAIN}/nobody"))["body"]
    assert (refused["code"], refused["desc"]) == (404, refused["description"])


async def test_the_header_of_the_first_request_proves_who_it_is(tmp_path: Path) -> None:
    credential = Credential(digest_of("secret"), runtime_address("ana"))
    async with runtime_rig(tmp_path, credentials=[credential]) as rig:
        first = await polling(rig, Authorization="Bearer secret")
        await first.ask("open", SESSION)
        room = (await first.ask("create", ALLOCATION, {"scheme": "comm"}))["body"]["value"]["allocated"][0]
        await first.gets.wire.cut()
        await first.posts.wire.cut()
        second = await polling(rig, Authorization="Bearer secret")
        assert (await second.ask("open", SESSION))["body"]["code"] == 200
        bo = await rig.opened("bo")
        await bo.say(a_message("read", bo.address, room, id_=1))
        assert (await second.next())["to"] == room


async def test_who_comes_back_without_proof_is_not_locked_out_by_what_it_left_behind(rig: RuntimeRig) -> None:
    for number in range(2 * PARKED_PER_RUNTIME):
        ana = await polling(rig)
        assert (await ana.ask("open", SESSION))["body"]["code"] == 200
        await ana.ask("create", ALLOCATION, {"scheme": "comm"})
        await ana.post(b"1")
        await rig.until("sessions lost", number + 1)
    assert len(rig.state.sessions) == PARKED_PER_RUNTIME + 1


async def test_by_its_address_a_lost_runtime_comes_back_to_what_it_had(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, returns_by_address=True) as rig:
        ana, bo = await opened_polling(rig), await rig.opened("bo")
        reply = await ana.ask("create", ALLOCATION, {"scheme": "comm"})
        (room,) = reply["body"]["value"]["allocated"]
        eve = await polling(rig)
        assert (await eve.ask("open", SESSION))["body"]["reason"] == "address-taken"  # not while she is there
        await ana.post(b"1")
        await rig.until("sessions lost")
        back = await opened_polling(rig)
        await bo.say(a_message("read", bo.address, room, id_=1))
        assert (await back.next())["to"] == room
        assert len(rig.state.sessions) == 2


# The move.


async def test_a_session_moves_to_a_websocket_with_everything_it_has(rig: RuntimeRig) -> None:
    ana, bo = await opened_polling(rig), await rig.opened("bo")
    await ana.gets.ask("GET", ana.target)
    socket = await ana.web_socket()
    await socket.say(b"2probe")
    assert await socket.next() == b"3probe"
    assert (await ana.gets.answer()).body == b"1:6"  # the hanging GET is let go
    assert await ana.poll() == [b"6"]  # and so is the next one, while the move lasts
    await bo.say(a_message("event", bo.address, ana.address, {"value": 1}))
    await bo.heard()
    await socket.say(b"5", said(a_message("ping", ana.address, SESSION, id_=3)))
    assert (await socket.message())["body"]["value"] == 1
    assert (await socket.message())["id"] == 3
    refused = await ana.posts.fetch("POST", ana.target, body=b"1:2")
    assert (refused.status, json.loads(refused.body)["code"]) == (400, 3)
    assert rig.bus.runtimes.live_sessions == 2
    assert not rig.socket_io._polling


@pytest.mark.parametrize("first", [b"5", b"2", b"2else", b"40", b"", said({"a": 1})])
async def test_a_client_that_does_not_begin_with_the_probe_loses_only_its_websocket(
    rig: RuntimeRig, first: bytes
) -> None:
    ana = await opened_polling(rig)
    socket = await ana.web_socket()
    await socket.say(first)
    assert await socket.rest() == []
    assert (await ana.ask("ping", SESSION))["type"] == "pong"
    again = await ana.web_socket()
    await again.say(b"2probe")
    assert await again.next() == b"3probe"


async def test_a_move_that_is_not_finished_in_time_is_given_up(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msg_node.connectors.socketio.UPGRADE_SECONDS", 0.02)
    ana = await opened_polling(rig)
    socket = await ana.web_socket()
    await socket.say(b"2probe")
    assert await socket.rest() == [b"3probe"]
    assert (await ana.ask("ping", SESSION))["type"] == "pong"


# Web pages.


async def test_pages_of_any_origin_may_poll_and_read_the_answers_by_default(rig: RuntimeRig) -> None:
    line = HttpLine(await rig.connect())
    origin = {"Origin": "https://app.example"}
    asked = await line.fetch("OPTIONS", f"{PATH}&transport=polling", headers=origin)
    assert (asked.status, asked.headers["access-control-allow-headers"]) == (200, "Content-Type, Authorization")
    answer = await line.fetch("GET", f"{PATH}&transport=polling", headers=origin)
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert answer.headers["access-control-allow-credentials"] == "true"
    wrong = await line.fetch("GET", f"{PATH}&transport=polling&sid=x", headers=origin)
    assert wrong.headers["access-control-allow-origin"] == "https://app.example"


async def test_pages_of_origins_that_are_not_named_get_nothing(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, origins=["https://app.example"]) as rig:
        for origin, status in (("https://app.example", 200), ("https://evil.example", 403), ("null", 403)):
            line = HttpLine(await rig.connect())
            answer = await line.fetch("GET", f"{PATH}&transport=polling", headers={"Origin": origin})
            assert answer.status == status
            assert ("access-control-allow-origin" in answer.headers) == (status == 200)
            assert (await engine_socket(rig, origin=origin)).websocket.is_open == (status == 200)
        assert await polling(rig)  # no browser, no origin


# The end.


async def test_a_close_packet_or_a_hung_up_get_parks_the_session(rig: RuntimeRig) -> None:
    ana, bo = await opened_polling(rig), await opened_polling(rig, "bo")
    await ana.gets.ask("GET", ana.target)
    await ana.post(b"1")
    assert (await ana.gets.answer()).packets == [b"1"]
    await bo.gets.ask("GET", bo.target)
    await trio.testing.wait_all_tasks_blocked()
    await bo.gets.wire.cut()
    await rig.until("sessions lost", 2)
    assert len(rig.state.sessions) == 2
    await no_sessions_left(rig)


@pytest.mark.parametrize("hangs", [True, False])
async def test_close_is_answered_by_the_goodbye_of_socket_io(rig: RuntimeRig, hangs: bool) -> None:
    ana = await opened_polling(rig)
    if hangs:
        await ana.gets.ask("GET", ana.target)
    await ana.say(a_message("close", ana.address, SESSION, id_=1))
    packets = (await ana.gets.answer()).packets if hangs else await ana.poll()
    assert packets == [b"41", b"1"]
    await no_sessions_left(rig)
    assert len(rig.state.sessions) == 0


async def test_a_node_that_stops_says_so_on_polling_and_on_a_websocket(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    socket = await engine_socket(rig)
    await socket.say(said(a_message("open", runtime_address("bo"), SESSION, id_=1)))
    await socket.message()
    await ana.gets.ask("GET", ana.target)
    await trio.testing.wait_all_tasks_blocked()
    rig.stop()
    (notice,) = (await ana.gets.answer()).packets
    assert b'"draining"' in notice
    await ana.gets.ask("GET", ana.target)
    assert (await ana.gets.answer()).packets == [b"41", b"1"]
    notice, *goodbye = await socket.rest()
    assert b'"draining"' in notice
    assert goodbye == [b"41"]
    assert socket.websocket.close_code == 1001
    await no_sessions_left(rig)
    assert len(rig.state.sessions) == 2


async def test_three_periods_without_a_ping_are_the_end(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    await ana.gets.ask("GET", ana.target)
    await trio.testing.wait_all_tasks_blocked()
    port = rig.port_of("ana")
    for seconds in (31, 61, 89):
        port.check(port.heard_at + seconds, ping_seconds=30)
    assert not port.queue.channel.is_closed
    await ana.post(b"2")
    assert (await ana.gets.answer()).packets == [b"3"]
    assert port.pings_unanswered == 0
    for seconds in (31, 61, 91):
        port.check(port.heard_at + seconds, ping_seconds=30)
    await rig.until("sessions lost")
    await no_sessions_left(rig)


async def test_a_session_that_was_never_opened_is_not_kept(rig: RuntimeRig) -> None:
    await polling(rig)
    (port,) = rig.bus.send_queues.connections.values()
    port.check(time.time() + 31, ping_seconds=30)
    await no_sessions_left(rig)


async def test_one_address_gets_so_many_polling_sessions(rig: RuntimeRig) -> None:
    line = HttpLine(await rig.connect())
    for number in range(POLLING_SESSIONS_PER_ADDRESS):
        answer = await line.fetch("GET", f"{PATH}&transport=polling")
        assert answer.status == 200
        sid = json.loads(answer.packets[0][1:])["sid"]
        opening = said(a_message("open", runtime_address(f"rt-{number}"), SESSION, id_=1))
        await line.fetch("POST", f"{PATH}&transport=polling&sid={sid}", body=encode_payload([opening]))
    assert (await line.fetch("GET", f"{PATH}&transport=polling")).status == 503
    assert (await engine_socket(rig)).websocket.is_open
    assert (await rig.opened("bo")).token


async def test_one_address_gets_so_many_polling_sessions_that_open_nothing(rig: RuntimeRig) -> None:
    line = HttpLine(await rig.connect())
    for _ in range(HALF_OPEN_PER_ADDRESS - 1):  # the connection itself is one more
        assert (await line.fetch("GET", f"{PATH}&transport=polling")).status == 200
    assert (await line.fetch("GET", f"{PATH}&transport=polling")).status == 503


# Packets that are not carried.


async def test_whatever_a_namespace_is_called_the_answer_is_text(rig: RuntimeRig) -> None:
    socket = await engine_socket(rig)
    await socket.say(b"40/" + "日本".encode() * 40)
    assert (await socket.next(), await socket.next(), await socket.next())[2] == b'44/,"Invalid namespace"'


@pytest.mark.parametrize("packet", [b"b4AQID", b'451-["message",{"_placeholder":true,"num":0}]', b"461-[]"])
async def test_bytes_are_refused_in_words(rig: RuntimeRig, packet: bytes) -> None:
    ana = await opened_polling(rig)
    await ana.post(packet)
    assert await ana.poll() == [b'44"binary packets are not carried"', b"41", b"1"]
    socket = await engine_socket(rig)
    await socket.say(packet)
    assert (await socket.rest())[2:] == [b'44"binary packets are not carried"', b"41"]
    assert socket.websocket.close_code == 1003


async def test_another_namespace_is_refused_and_the_session_stays(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    await ana.post(b"40/chat")
    assert await ana.poll() == [b'44/chat,"Invalid namespace"']
    assert (await ana.ask("ping", SESSION))["type"] == "pong"


async def test_broken_json_is_answered_by_the_validator_as_in_every_dialect(rig: RuntimeRig) -> None:
    ana = await opened_polling(rig)
    broken: Json = {"id": 4, "type": "read", "from": ana.address}
    await ana.post(said(broken))
    reply = await ana.next()
    assert (reply["from"], reply["body"]["code"], reply["id"]) == ("mn:/validator", 400, 4)


async def test_one_line_may_carry_requests_of_many_sessions(rig: RuntimeRig) -> None:
    line = HttpLine(await rig.connect())
    runtimes = [await polling(rig, name) for name in ("ana", "bo")]
    for runtime in runtimes:
        packet = said(a_message("open", runtime.address, SESSION, id_=1))
        assert (await line.fetch("POST", runtime.target, body=encode_payload([packet]))).body == b"ok"
        assert (await runtime.next())["body"]["code"] == 200
    assert rig.bus.runtimes.live_sessions == 2
