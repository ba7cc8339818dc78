"""Dialects B and C at the listener: command frames and query, refusals, return, goodbyes."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
import trio
import trustme
from trio_websocket import open_websocket_url

from msg_node.kernel.credentials import Credential, digest_of
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    runtime_address,
    runtime_rig,
)
from wire.core.websocket import ClientWebSocket

SECRET = "correct horse"
CREDENTIAL = Credential(digest_of(SECRET), runtime_address("ana"))
CONNECTED: Json = {"cmd": "connect", "response": 200, "data": {"msg": "connected"}}
INVALID: Json = {"cmd": "connect", "response": 403, "data": {"msg": "Invalid handshake!"}}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


@pytest.fixture
async def strict_rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, credentials=[CREDENTIAL]) as made:
        yield made


def connecting(name: str = "ana") -> Json:
    return {"cmd": "connect", "data": {"runtimeURL": runtime_address(name)}}


async def connected(rig: RuntimeRig, target: str, **headers: str) -> Runtime:
    """A WebSocket at a target, whether it was taken or not."""
    wire = await rig.connect()
    runtime = Runtime(wire, ClientWebSocket(f"ws://localhost{target}", is_binary=False, headers=headers))
    await wire.write(runtime.websocket.data_to_send())
    while runtime.websocket.is_waiting and (data := await wire.read()):
        runtime._take(data)
    return runtime


async def dialect_b(rig: RuntimeRig, name: str = "ana", query: str = "", **headers: str) -> Runtime:
    runtime = await connected(rig, f"/stub/connect{query}", **headers)
    await runtime.say(connecting(name))
    runtime.address = runtime_address(name)
    return runtime


async def connected_b(rig: RuntimeRig, name: str = "ana") -> Runtime:
    runtime = await dialect_b(rig, name)
    assert await runtime.next() == CONNECTED
    return runtime


def query(name: str, more: str = "") -> str:
    return f"/stub/connect?runtimeURL={quote(runtime_address(name), safe='')}{more}"


async def dialect_c(rig: RuntimeRig, name: str = "ana", more: str = "", **headers: str) -> Runtime:
    runtime = await connected(rig, query(name, more), **headers)
    runtime.address = runtime_address(name)
    return runtime


DIALECTS = {"b": connected_b, "c": dialect_c}


# The beginning.


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_runtime_connects_and_is_reached_by_its_plain_address(rig: RuntimeRig, dialect: str) -> None:
    ana, bo = await DIALECTS[dialect](rig), await rig.opened("bo")
    assert ana.websocket.is_open
    await ana.say(a_message("event", ana.address, bo.address, {"value": 1}))
    assert (await bo.next())["from"] == ana.address
    for address in (ana.address, f"{ana.address}/sm", f"{ana.address}/anything"):
        await bo.say(a_message("read", bo.address, address, id_=3))
        assert (await ana.next())["to"] == address
        await ana.say(a_message("response", address, bo.address, {"code": 200}, id_=3))
        assert (await bo.next())["body"]["code"] == 200
    assert (await ana.ask("ping", SESSION))["type"] == "pong"
    (session,) = [one for one in rig.state.sessions if one.runtime == ana.address]
    assert session.dialect.value == dialect
    assert session.row().dialect.value == dialect


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_it_allocates_and_subscribes_and_answers_have_no_desc(rig: RuntimeRig, dialect: str) -> None:
    ana, bo = await DIALECTS[dialect](rig), await rig.opened("bo")
    allocated = await ana.ask("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
    assert allocated["body"]["description"] == "OK"
    (mine,) = allocated["body"]["value"]["allocated"]
    theirs = await bo.allocated()
    subscribed = await ana.ask("subscribe", SM, {"resources": [f"{theirs}/changes"]})
    assert (subscribed["body"]["code"], "desc" in subscribed["body"]) == (200, False)
    await bo.say(a_message("update", theirs, f"{theirs}/changes", {"value": 1}))
    assert (await ana.next())["to"] == f"{theirs}/changes"
    await bo.say(a_message("read", bo.address, mine, id_=4))
    assert (await ana.next())["to"] == mine
    for refused in (
        await ana.ask("read", f"hyperty://{DOMAIN}/nobody"),
        await ana.ask("read", SESSION),
        await ana.ask("open", SESSION, from_=runtime_address("other")),
    ):
        assert refused["body"]["code"] >= 400
        assert refused["body"]["description"]
        assert "desc" not in refused["body"]
    await ana.say({"id": 9, "type": "read", "from": ana.address})
    assert "desc" not in (await ana.next())["body"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_open_and_re_open_as_messages_change_nothing(rig: RuntimeRig, dialect: str) -> None:
    ana = await DIALECTS[dialect](rig)
    for verb in ("open", "re-open"):
        body = (await ana.ask(verb, SESSION))["body"]
        assert body["code"] == 200
        assert "runtimeToken" not in body
    assert rig.bus.runtimes.live_sessions == 1


@pytest.mark.parametrize(
    "first",
    [
        b"{}",
        b"[]",
        b"nonsense",
        b'{"cmd":"connect"}',
        b'{"cmd":"connect","data":{}}',
        b'{"cmd":"connect","data":{"runtimeURL":7}}',
        b'{"cmd":"disconnect","data":{"runtimeURL":"runtime://alpha.example/ana"}}',
        b'{"cmd":"connect","data":{"runtimeURL":"runtime://alpha.example/' + b"x" * 3000 + b'"}}',
        json.dumps(a_message("open", runtime_address("ana"), SESSION, id_=1)).encode(),
    ],
)
async def test_a_first_frame_that_is_no_handshake_is_refused_and_closed(rig: RuntimeRig, first: bytes) -> None:
    ana = await connected(rig, "/stub/connect")
    await ana.say_raw(first)
    assert await ana.next() == INVALID
    assert await ana.close_code() == 1008
    assert rig.bus.runtimes.live_sessions == 0


@pytest.mark.parametrize(
    ("runtime", "code", "reason"),
    [
        ("runtime://beta.example/ana", 403, "spoofed-source"),
        (f"{runtime_address('ana')}/sm", 400, "bad-header"),
        ("hyperty://alpha.example/h", 400, "bad-header"),
        ("runtime://alpha.example/mn-1", 403, "not-owner"),
    ],
)
async def test_only_runtime_addresses_of_ours_connect(rig: RuntimeRig, runtime: str, code: int, reason: str) -> None:
    ana = await connected(rig, "/stub/connect")
    await ana.say({"cmd": "connect", "data": {"runtimeURL": runtime}})
    reply = await ana.next()
    assert (reply["response"], reply["data"]["reason"]) == (code, reason)
    assert await ana.close_code() == 1008
    bo = await connected(rig, f"/stub/connect?runtimeURL={quote(runtime, safe='')}")
    assert "403" in bo.websocket.refusal


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/stub/else", "Invalid request path!"),
        ("/stub", "Invalid request path!"),
        ("/stub/connect/", "Invalid request path!"),
        ("/stub/connect?runtimeURL=", "runtimeURL Parameter is missing!"),
        ("/stub/connect?runtimeURL", "runtimeURL Parameter is missing!"),
        ("/stub/connect?runtimeURL=a&runtimeURL=b", "runtimeURL Parameter is missing!"),
    ],
)
async def test_wrong_paths_and_queries_get_403_with_the_reason_where_stubs_look(
    rig: RuntimeRig, target: str, text: str
) -> None:
    wire = await rig.connect()
    websocket = ClientWebSocket(f"ws://localhost{target}", is_binary=False)
    await wire.write(websocket.data_to_send())
    head, _, body = (await wire.read_to_end()).decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 403")
    assert f"X-WebSocket-Reject-Reason: {text}" in head
    assert body == f"{text}\n"


async def test_a_request_that_is_no_upgrade_opens_nothing(rig: RuntimeRig) -> None:
    holder = await dialect_c(rig)
    wire = await rig.connect()
    await wire.write(f"GET {query('bo')} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert (await wire.read_to_end()).startswith(b"HTTP/1.1 426")
    assert rig.bus.runtimes.live_sessions == 1
    assert await holder.heard() == []


@pytest.mark.parametrize("target", ["/ws", "/stub/connect", query("ana")])
async def test_pages_of_origins_that_are_not_named_do_not_connect(tmp_path: Path, target: str) -> None:
    async with runtime_rig(tmp_path, origins=["https://app.example"]) as rig:
        for origin, is_taken in (("https://evil.example", False), ("https://app.example", True)):
            runtime = await connected(rig, target, Origin=origin)
            assert runtime.websocket.is_open == is_taken
            assert ("403" in runtime.websocket.refusal) != is_taken
            assert rig.bus.runtimes.live_sessions == (is_taken and "?" in target)


# Return and take-over.


async def sessions_lost(rig: RuntimeRig, runtime: Runtime) -> None:
    await runtime.wire.cut()
    await rig.until("sessions lost")


@pytest.mark.parametrize("by", ["query", "header"])
@pytest.mark.parametrize("dialect", ["b", "c"])
async def test_who_proves_its_identity_comes_back_to_what_it_had(strict_rig: RuntimeRig, dialect: str, by: str) -> None:
    async def come() -> Runtime:
        proof = {"Authorization": f"Bearer {SECRET}"} if by == "header" else {}
        token = f"access_token={quote(SECRET)}" if by == "query" else ""
        if dialect == "c":
            return await dialect_c(strict_rig, more=f"&{token}", **proof)
        runtime = await dialect_b(strict_rig, query=f"?{token}", **proof)
        assert await runtime.next() == CONNECTED
        return runtime

    ana = await come()
    room = await ana.allocated()
    await sessions_lost(strict_rig, ana)
    back, bo = await come(), await strict_rig.opened("bo")
    await bo.say(a_message("read", bo.address, room, id_=1))
    assert (await back.next())["to"] == room
    third = await come()
    assert await back.close_code() == 4001
    await bo.say(a_message("read", bo.address, room, id_=2))
    assert (await third.next())["id"] == 2


@pytest.mark.parametrize("token", ["", "&access_token=guess"])
async def test_who_proves_nothing_does_not_get_at_a_proven_session(strict_rig: RuntimeRig, token: str) -> None:
    ana = await dialect_c(strict_rig, more=f"&access_token={quote(SECRET)}")
    thief = await dialect_c(strict_rig, more=token)
    assert thief.websocket.refusal
    thief = await dialect_b(strict_rig, query=f"?{token[1:]}")
    assert (await thief.next())["response"] in (401, 409)
    assert await ana.heard() == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_without_proof_a_live_session_stays_and_a_lost_one_gives_way(rig: RuntimeRig, dialect: str) -> None:
    ana = await DIALECTS[dialect](rig)
    room = await ana.allocated()
    assert (await (await dialect_b(rig)).next())["response"] == 409
    assert "403" in (await dialect_c(rig)).websocket.refusal
    await sessions_lost(rig, ana)
    back = await DIALECTS[dialect](rig)
    assert back.websocket.is_open
    bo = await rig.opened("bo")
    assert (await bo.ask("read", room))["body"]["reason"] == "not-connected"  # parked until its grace ends
    assert (await back.ask("read", bo.address, from_=room))["body"]["reason"] == "not-owner"


async def test_after_a_restart_a_proven_runtime_has_its_addresses(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, credentials=[CREDENTIAL]) as rig:
        room = await (await dialect_c(rig, more=f"&access_token={quote(SECRET)}")).allocated()
    async with runtime_rig(tmp_path, credentials=[CREDENTIAL]) as rig:
        ana = await dialect_c(rig, more=f"&access_token={quote(SECRET)}")
        bo = await rig.opened("bo")
        await bo.say(a_message("read", bo.address, room, id_=1))
        assert (await ana.next())["to"] == room


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_by_its_address_a_lost_runtime_comes_back_to_what_it_had_also_after_a_restart(
    tmp_path: Path, dialect: str
) -> None:
    async with runtime_rig(tmp_path, returns_by_address=True) as rig:
        ana = await DIALECTS[dialect](rig)
        room = await ana.allocated()
        changes = f"comm://{DOMAIN}/of-bo/changes"
        await ana.subscribed(changes)
        assert (await (await dialect_b(rig)).next())["response"] == 409  # not while she is there
        assert "403" in (await dialect_c(rig)).websocket.refusal
        await sessions_lost(rig, ana)
        await said_and_heard(rig, await DIALECTS[dialect](rig), room, changes)
    async with runtime_rig(tmp_path, returns_by_address=True) as rig:
        await said_and_heard(rig, await DIALECTS[dialect](rig), room, changes)


async def said_and_heard(rig: RuntimeRig, ana: Runtime, room: str, changes: str) -> None:
    """Ana speaks as her room, and hears what is sent to it and what she subscribed."""
    bo = await rig.opened("bo")
    await bo.subscribed(changes.replace("/changes", "/subscription"))
    await ana.say(a_message("event", room, bo.address))
    assert (await bo.next())["from"] == room
    await bo.say(a_message("read", bo.address, room, id_=1), a_message("update", bo.address, changes))
    assert [(await ana.next())["to"] for _ in range(2)] == [room, changes]
    await bo.say(a_message("close", bo.address, SESSION))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_by_its_address_nobody_gets_at_what_a_proof_or_a_token_protects(tmp_path: Path, dialect: str) -> None:
    async with runtime_rig(tmp_path, credentials=[CREDENTIAL], returns_by_address=True) as rig:
        ana = await dialect_c(rig, more=f"&access_token={quote(SECRET)}")
        room = await ana.allocated()
        cy = await rig.opened("cy")
        theirs = await cy.allocated()
        await sessions_lost(rig, ana)
        assert (await (await dialect_b(rig)).next())["response"] == 409
        assert "403" in (await dialect_c(rig)).websocket.refusal
        await cy.wire.cut()
        await rig.until("sessions lost", 2)
        eve = await DIALECTS[dialect](rig, "cy")
        for address in (room, theirs):
            assert (await eve.ask("read", runtime_address("bo"), from_=address))["body"]["reason"] == "not-owner"


async def test_nothing_goes_to_a_runtime_before_it_heard_that_it_is_connected(rig: RuntimeRig) -> None:
    bo = await rig.opened("bo")
    ana = await connected(rig, "/stub/connect")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bo.say, *(a_message("event", bo.address, runtime_address("ana")) for _ in range(50)))
        await ana.say(connecting())
        assert await ana.next() == CONNECTED
    ana.address = runtime_address("ana")
    assert {one["type"] for one in await ana.heard()} <= {"event"}


# The end.


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("member", ["data", "body"])
async def test_disconnect_frees_everything_and_closes(rig: RuntimeRig, dialect: str, member: str) -> None:
    ana, bo = await DIALECTS[dialect](rig), await rig.opened("bo")
    room = await ana.allocated()
    last = a_message("event", ana.address, bo.address, {"value": "last"})
    await ana.say(last, {"cmd": "disconnect", member: {"runtimeURL": ana.address}}, last)
    assert await ana.close_code() == 1000
    assert [one["body"]["value"] for one in await bo.heard()] == ["last"]
    for address in (room, ana.address):
        assert (await bo.ask("read", address))["body"]["code"] == 404
    assert rig.bus.runtimes.live_sessions == 1


@pytest.mark.parametrize("frame", [{"cmd": "disconnect", "data": {"runtimeURL": runtime_address("bo")}}, connecting()])
async def test_a_command_that_is_not_for_this_connection_changes_nothing(rig: RuntimeRig, frame: Json) -> None:
    ana, bo = await connected_b(rig), await dialect_c(rig, "bo")
    await ana.say(frame)
    assert await ana.next() == INVALID
    assert await ana.heard() == []
    assert await bo.heard() == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_node_that_stops_says_so(rig: RuntimeRig, dialect: str) -> None:
    ana = await DIALECTS[dialect](rig)
    rig.stop()
    assert await ana.close_code() == 1001
    (notice,) = ana._inbox
    assert (notice["to"], notice["body"]["value"]) == (f"{ana.address}/status", "draining")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_who_answers_no_ping_is_lost(rig: RuntimeRig, dialect: str) -> None:
    await DIALECTS[dialect](rig)
    port = rig.port_of("ana")
    for seconds in (31, 61, 91):
        port.check(port.heard_at + seconds, ping_seconds=30)
    await rig.until("sessions lost")


# Another make of client, and TLS.


async def test_a_client_of_another_make_connects_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).configure_cert(server)
    authority.configure_trust(client)
    async with runtime_rig(tmp_path, context=server) as rig:
        base = f"wss://localhost:{rig.port}"
        with trio.fail_after(10):
            async with (
                open_websocket_url(base + query("ana"), ssl_context=client) as ana,
                open_websocket_url(f"{base}/stub/connect", ssl_context=client) as bo,
            ):
                await bo.send_message(json.dumps(connecting("bo")))
                assert json.loads(await bo.get_message()) == CONNECTED
                await ana.send_message(json.dumps(a_message("event", runtime_address("ana"), runtime_address("bo"))))
                assert json.loads(await bo.get_message())["from"] == runtime_address("ana")
