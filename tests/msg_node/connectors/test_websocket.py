"""The WebSocket listener over real TCP and TLS: sessions from open to close, loss, return, take-over and restart."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme
from trio_websocket import WebSocketConnection, open_websocket_url

from msg_node.kernel.credentials import Credential, digest_of
from msg_node.sessions.core.session_service import RECONNECTION_FAIL
from tests.support.runtime_rig import (
    ALLOCATION,
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    runtime_address,
    runtime_rig,
)

SECRET = "correct horse"
CREDENTIAL = Credential(digest_of(SECRET), runtime_address("ana"))
BEARER = {"credentials": {"kind": "bearer", "token": SECRET}}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture(scope="module")
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def client_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


@pytest.fixture
async def strict_rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, credentials=[CREDENTIAL]) as made:
        yield made


async def until(rig: RuntimeRig, counter: str, count: int = 1) -> None:
    with trio.fail_after(10):
        while rig.counters[counter] < count:
            await trio.lowlevel.checkpoint()


# Other people's clients.


@asynccontextmanager
async def two_connections(
    url: str, context: ssl.SSLContext | None
) -> AsyncIterator[tuple[WebSocketConnection, WebSocketConnection]]:
    with trio.fail_after(10):
        async with (
            open_websocket_url(url, ssl_context=context) as one,
            open_websocket_url(url, ssl_context=context) as two,
        ):
            yield one, two


async def converse(connection: WebSocketConnection, *messages: Json) -> list[Json]:
    for message in messages:
        await connection.send_message(json.dumps(message))
    return [json.loads(await connection.get_message()) for _ in messages]


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_client_of_another_make_opens_allocates_and_talks(
    tmp_path: Path, server_context: ssl.SSLContext, client_context: ssl.SSLContext, is_encrypted: bool
) -> None:
    ana, bo = runtime_address("ana"), runtime_address("bo")
    async with runtime_rig(tmp_path, context=server_context if is_encrypted else None) as rig:
        url = f"{'wss' if is_encrypted else 'ws'}://localhost:{rig.port}/ws"
        async with two_connections(url, client_context if is_encrypted else None) as (one, two):
            (opened,) = await converse(one, a_message("open", ana, SESSION, id_=1))
            await converse(two, a_message("open", bo, SESSION, id_=1))
            (allocated,) = await converse(one, a_message("create", ana, ALLOCATION, {"scheme": "comm"}, id_=2))
            for number in range(50):
                await one.send_message(json.dumps(a_message("event", ana, bo, {"value": number})))
            heard = [json.loads(await two.get_message())["body"]["value"] for _ in range(50)]
        assert one.closed is not None
        assert one.closed.code == 1000
    assert opened["body"]["code"] == 200
    assert len(opened["body"]["runtimeToken"]) >= 22
    assert len(allocated["body"]["value"]["allocated"]) == 1
    assert heard == list(range(50))


async def test_over_tls_messages_of_all_sizes_pass_whole(
    tmp_path: Path, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async with runtime_rig(tmp_path, context=server_context) as rig:
        ana = await rig.opened("ana", context=client_context)
        bo = await rig.opened("bo", context=client_context)
        sizes = [0, 1, 125, 126, 16_000, 16_384, 65_535, 65_536, 400_000, 900_000, 3]
        async with trio.open_nursery() as nursery:
            burst = [a_message("event", ana.address, bo.address, {"value": "x" * size}) for size in sizes]
            nursery.start_soon(ana.say, *burst)
            received = [len((await bo.next())["body"]["value"]) for _ in sizes]
        assert received == sizes


async def test_nobody_speaks_plainly_to_a_tls_listener(tmp_path: Path, server_context: ssl.SSLContext) -> None:
    async with runtime_rig(tmp_path, context=server_context) as rig:
        assert rig.listener is not None
        wire = await rig.connect()
        await wire.write(b"GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in await wire.read_to_end()
        with trio.fail_after(10):
            while rig.listener.half_open:
                await trio.lowlevel.checkpoint()
        assert rig.listener.counters["failed handshakes"] == 1


async def test_a_tls_connection_that_is_cut_parks_its_session(
    tmp_path: Path, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async with runtime_rig(tmp_path, context=server_context) as rig:
        ana = await rig.opened("ana", context=client_context)
        ana.wire.socket.close()  # no close frame, no close_notify
        await until(rig, "sessions lost")
        back = await rig.runtime(context=client_context)
        assert (await back.ask("re-open", SESSION, from_=ana.session_address))["body"]["code"] == 200


# What is no runtime.


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /ws HTTP/1.1\r\nHost: a\r\n\r\n", b"426"),
        (b"GET /else HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
        (b"GET /link HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
        (b"POST /ws HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", b"405"),
    ],
)
async def test_what_is_no_upgrade_is_answered_and_closed(rig: RuntimeRig, request_: bytes, status: bytes) -> None:
    wire = await rig.connect()
    await wire.write(request_)
    answer = await wire.read_to_end()
    assert answer[:12] == b"HTTP/1.1 " + status
    assert rig.bus.send_queues.connections == {}


@pytest.mark.parametrize(
    "noise", [b"nonsense", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n", b"\x00" * 900]
)
async def test_noise_in_place_of_a_request_ends_the_connection(rig: RuntimeRig, noise: bytes) -> None:
    wire = await rig.connect()
    await wire.write(noise + b"\r\n\r\n")
    await wire.read_to_end()
    assert rig.bus.send_queues.connections == {}
    assert (await rig.opened("ana")).token


async def test_a_request_without_end_is_not_waited_for(rig: RuntimeRig) -> None:
    wire = await rig.connect()
    await wire.write(b"GET /ws HTTP/1.1\r\n" + b"X: y\r\n" * 3000)
    await wire.read_to_end()
    assert rig.bus.send_queues.connections == {}


# Session verbs.


async def test_the_verbs_of_a_session_that_is_open_already(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    again = await ana.ask("open", SESSION)
    assert (again["body"]["code"], again["body"]["reason"]) == (409, "duplicate")
    assert "runtimeToken" not in again["body"]
    other = await ana.ask("open", SESSION, from_=runtime_address("second"))
    assert other["body"]["code"] == 409
    pong = await ana.ask("ping", SESSION)
    assert (pong["type"], pong["from"], pong["to"]) == ("pong", SESSION, ana.address)
    unknown = await ana.ask("read", SESSION)
    assert (unknown["body"]["code"], unknown["body"]["reason"]) == (405, "bad-type")
    same = await ana.ask("re-open", SESSION, from_=ana.session_address)
    assert same["body"]["code"] == 200
    assert rig.bus.runtimes.live_sessions == 1


async def test_close_frees_everything_without_a_reply(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    room = await ana.allocated()
    await ana.say(a_message("close", ana.session_address, SESSION, id_=9))
    assert await ana.close_code() == 1000
    assert ana._inbox == []
    for address in (room, ana.address):
        assert (await bo.ask("read", address))["body"]["code"] == 404
    back = await rig.runtime()
    reply = await back.ask("re-open", SESSION, from_=ana.session_address)
    assert reply["body"]["code"] == 500
    assert (await back.open("ana"))["body"]["code"] == 200


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("runtime://beta.example/ana", "spoofed-source"),
        (f"{runtime_address('ana')}/sm", "bad-header"),
        ("hyperty://alpha.example/h", "bad-header"),
        ("runtime://alpha.example/mn-1", "not-owner"),
    ],
)
async def test_a_session_is_for_a_runtime_address_of_ours(rig: RuntimeRig, address: str, reason: str) -> None:
    ana = await rig.runtime()
    reply = await ana.ask("open", SESSION, from_=address)
    assert reply["body"]["reason"] == reason
    assert rig.bus.runtimes.live_sessions == 0


# Loss and return.


async def holding(rig: RuntimeRig) -> tuple[Runtime, Runtime, str, str]:
    """Ana owns a room and listens to one of Bo's."""
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    mine, theirs = await ana.allocated(), await bo.allocated()
    await ana.subscribed(f"{theirs}/changes")
    return ana, bo, mine, theirs


async def check_holdings(ana: Runtime, bo: Runtime, mine: str, theirs: str) -> None:
    await bo.say(a_message("update", theirs, f"{theirs}/changes", {"value": 1}))
    await bo.say(a_message("read", bo.address, mine, id_=77))
    assert await bo.heard() == []
    assert [one["to"] for one in await ana.heard()] == [f"{theirs}/changes", mine]


async def returned(rig: RuntimeRig, lost: Runtime) -> Runtime:
    back = await rig.runtime()
    back.address, back.token = lost.address, lost.token
    reply = await back.ask("re-open", SESSION, from_=lost.session_address)
    assert reply["body"]["code"] == 200
    assert "runtimeToken" not in reply["body"]
    return back


async def test_a_runtime_that_comes_back_has_its_addresses_and_subscriptions(rig: RuntimeRig) -> None:
    ana, bo, mine, theirs = await holding(rig)
    await ana.wire.cut()
    await until(rig, "sessions lost")
    assert (await bo.ask("read", mine))["body"]["reason"] == "not-connected"
    await check_holdings(await returned(rig, ana), bo, mine, theirs)


async def test_who_comes_back_before_its_loss_is_noticed_replaces_its_old_connection(rig: RuntimeRig) -> None:
    ana, bo, mine, theirs = await holding(rig)
    back = await returned(rig, ana)
    assert await ana.close_code() == 4001
    await check_holdings(back, bo, mine, theirs)
    assert rig.bus.runtimes.live_sessions == 2


async def test_after_the_end_of_the_process_runtimes_come_back_to_what_they_had(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as before:
        ana, bo, mine, theirs = await holding(before)
    async with runtime_rig(tmp_path) as after:
        await check_holdings(await returned(after, ana), await returned(after, bo), mine, theirs)


async def test_what_was_answered_is_there_after_a_restart_and_what_was_closed_is_not(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as before:
        ana, bo = await before.opened("ana"), await before.opened("bo")
        await ana.say(a_message("close", ana.session_address, SESSION, id_=1))
        await ana.close_code()
    async with runtime_rig(tmp_path) as after:
        assert [one.runtime for one in after.state.sessions] == [bo.address]


@pytest.mark.parametrize("token", ["wrong", "", "5b1de06c-6a0e-4c0f-9d0a-1f2f0f7f0c11"])
async def test_a_wrong_token_brings_nothing_back(rig: RuntimeRig, token: str) -> None:
    ana = await rig.opened("ana")
    thief = await rig.runtime()
    reply = await thief.ask("re-open", SESSION, from_=f"{ana.address}/{token}")
    assert (reply["body"]["code"], reply["body"]["reason"]) == (500, "bad-token")
    assert reply["body"]["desc"] == RECONNECTION_FAIL
    assert await ana.heard() == []


async def test_the_token_of_one_runtime_opens_no_other(rig: RuntimeRig) -> None:
    short, long = await rig.opened("rt-a"), await rig.opened("rt-ana")
    thief = await rig.runtime()
    for owner, other in ((short, long), (long, short)):
        reply = await thief.ask("re-open", SESSION, from_=f"{other.address}/{owner.token}")
        assert reply["body"]["code"] == 500
    assert rig.bus.runtimes.live_sessions == 2


# Take-over.


async def test_who_proves_its_identity_takes_its_session_over(strict_rig: RuntimeRig) -> None:
    ana = await strict_rig.runtime()
    assert (await ana.open("ana", BEARER))["body"]["code"] == 200
    mine = await ana.allocated()
    bo = await strict_rig.opened("bo")
    second = await strict_rig.runtime()
    reply = await second.open("ana", BEARER)
    assert reply["body"]["code"] == 200
    assert second.token != ana.token
    assert await ana.close_code() == 4001
    await bo.say(a_message("read", bo.address, mine, id_=1))
    assert await bo.heard() == []
    assert [one["to"] for one in await second.heard()] == [mine]


async def test_the_header_of_the_upgrade_proves_as_much(strict_rig: RuntimeRig) -> None:
    ana = await strict_rig.runtime()
    await ana.open("ana", BEARER)
    second = await strict_rig.runtime(bearer=SECRET)
    assert (await second.open("ana"))["body"]["code"] == 200
    assert await ana.close_code() == 4001


async def test_who_proves_nothing_gets_nothing_and_the_holder_is_asked_for_a_sign(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    second = await rig.runtime()
    reply = await second.open("ana")
    assert (reply["body"]["code"], reply["body"]["reason"]) == (409, "address-taken")
    assert reply["body"]["value"]["retryAfter"] > 0
    assert ana.token not in json.dumps(reply)
    await ana.say(a_message("ping", ana.address, SESSION, id_="alive"))
    data = await ana.wire.read()
    assert b"\x89\x00" in data  # a ping frame of the node, before or after the pong
    assert rig.bus.runtimes.live_sessions == 1


@pytest.mark.parametrize(("answers", "code"), [(True, 409), (False, 200)])
async def test_a_holder_that_answered_the_ping_keeps_its_session_and_one_that_did_not_loses_it(
    rig: RuntimeRig, answers: bool, code: int
) -> None:
    ana = await rig.opened("ana")
    assert (await (await rig.runtime()).open("ana"))["body"]["code"] == 409
    if answers:
        await ana.heard()
    (session,) = rig.state.sessions
    assert session.contested_at is not None
    session.heard_at -= 31
    session.contested_at -= 31
    rig.port_of("ana").heard_at -= 30 if answers else 40
    assert (await (await rig.runtime()).open("ana"))["body"]["code"] == code


@pytest.mark.parametrize("body", [{}, {"credentials": {"kind": "bearer", "token": "guess"}}])
async def test_a_session_with_a_credential_is_not_taken_without(
    strict_rig: RuntimeRig, body: dict[str, object]
) -> None:
    ana = await strict_rig.runtime()
    await ana.open("ana", BEARER)
    thief = await strict_rig.runtime()
    assert (await thief.open("ana", body))["body"]["code"] in (401, 409)
    assert await ana.heard() == []


# Silence.


async def test_a_connection_without_a_session_is_not_kept(rig: RuntimeRig) -> None:
    silent = await rig.runtime()
    (port,) = rig.bus.send_queues.connections.values()
    port.check(time.time() + 31, ping_seconds=rig.bus.options.ping_seconds)
    assert await silent.close_code() is None
    await until_no_connections(rig)


async def until_no_connections(rig: RuntimeRig) -> None:
    with trio.fail_after(10):
        while rig.bus.send_queues.connections:
            await trio.lowlevel.checkpoint()


async def test_who_is_silent_for_three_ping_periods_is_lost(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    port = rig.port_of("ana")
    for period in range(1, 3):
        port.check(port.heard_at + period * 30 - 1, ping_seconds=30)
        assert port.pings_unanswered == period - 1
        port.check(port.heard_at + period * 30 + 1, ping_seconds=30)
        assert port.pings_unanswered == period
    port.check(port.heard_at + 89, ping_seconds=30)
    assert rig.counters["silent runtimes"] == 0
    port.check(port.heard_at + 91, ping_seconds=30)
    assert port.queue.channel.is_closed
    assert rig.counters["silent runtimes"] == 1
    await until(rig, "sessions lost")
    assert (await bo.ask("read", ana.address))["body"]["reason"] == "not-connected"


async def test_a_pong_is_a_sign_of_life(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    port = rig.port_of("ana")
    port.check(port.heard_at + 31, ping_seconds=rig.bus.options.ping_seconds)
    assert port.pings_unanswered == 1
    await ana.heard()
    assert port.pings_unanswered == 0


# The end of sessions and nodes.


async def test_a_node_that_stops_says_so_to_each_session_and_closes_with_1001(rig: RuntimeRig) -> None:
    runtimes = [await rig.opened(name) for name in ("ana", "bo")]
    stranger = await rig.runtime()
    rig.stop()
    for runtime in runtimes:
        assert await runtime.close_code() == 1001
        (notice,) = runtime._inbox
        assert (notice["type"], notice["from"], notice["to"]) == ("update", SESSION, f"{runtime.address}/status")
        assert notice["body"] == {"value": "draining"}
    assert await stranger.close_code() == 1001
    await until_no_connections(rig)
    assert len(rig.state.sessions) == 2  # parked, not ended: they come back to the next process


# Records that take no more.


async def test_a_node_whose_records_are_full_stops_reading_and_goes_on_later(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    rig.records.is_accepting = False
    burst = [a_message("event", ana.address, bo.address, {"value": number}) for number in range(3)]
    await ana.say(burst[0])
    assert (await bo.next())["body"]["value"] == 0
    await ana.say(*burst[1:])
    await trio.testing.wait_all_tasks_blocked()
    assert rig.counters["delivered"] == 1
    rig.records.is_accepting = True
    rig.records.room.set()
    assert [(await bo.next())["body"]["value"] for _ in range(2)] == [1, 2]


async def test_a_subscription_is_for_the_subscriber_and_ends_at_its_request(rig: RuntimeRig) -> None:
    ana, bo, _, theirs = await holding(rig)
    reply = await ana.ask("unsubscribe", SM, {"resources": [f"{theirs}/changes"]})
    assert reply["body"]["code"] == 200
    await bo.say(a_message("update", theirs, f"{theirs}/changes", {"value": 1}))
    await bo.heard()
    assert await ana.heard() == []
