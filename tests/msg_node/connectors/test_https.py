"""Runtimes over HTTP at the listener: posts, polls, streams of events, and the one kind of session behind them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from msg_node.connectors.https import HttpsOptions
from msg_node.connectors.listener import ListenerOptions
from msg_node.kernel.credentials import Credential, digest_of
from policy.core.session_class import roles_in
from tests.support.http_runtime import MESSAGES, HttpRuntime, ServerEvent, http_runtime, opened_http
from tests.support.polling import HttpLine
from tests.support.runtime_rig import (
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)

ANA = runtime_address("ana")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as rig:
        yield rig


async def send_events(sender: Runtime, receiver: str, *values: object) -> None:
    """Events from a runtime on a WebSocket."""
    await sender.say(*(a_message("event", sender.address, receiver, {"value": value}) for value in values))


def values(messages: list[Json]) -> list[object]:
    return [message["body"]["value"] for message in messages]


# Posts.


async def test_who_posts_open_receives_a_token_and_the_rhythm_of_polls(rig: RuntimeRig) -> None:
    ana = await http_runtime(rig)
    reply = await ana.open()
    assert reply["body"]["code"] == 200
    assert len(reply["body"]["runtimeToken"]) >= 32
    assert reply["body"]["session"]["poll"] == 10.0
    assert rig.state.sessions.by_runtime(ANA) is not None


async def test_a_request_is_answered_in_the_answer_to_its_post(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _bob() -> None:
            request = await bob.next()
            await bob.say(a_message("response", bob.address, ANA, {"code": 100}, id_=request["id"]))
            await bob.say(a_message("response", bob.address, ANA, {"code": 200, "value": 7}, id_=request["id"]))

        reply = await ana.ask("read", bob.address)
    assert reply["body"] == {"code": 200, "value": 7}
    [provisional] = await ana.polled()
    assert provisional["body"] == {"code": 100}


async def test_a_ping_is_answered_in_the_answer_to_its_post(rig: RuntimeRig) -> None:
    ana = await opened_http(rig)
    assert (await ana.ask("ping", SESSION))["type"] == "pong"


async def test_what_the_bus_refuses_is_a_reply_like_any_other(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    assert code_and_reason(await ana.ask("read", runtime_address("nobody"))) == (404, "no-route")
    assert code_and_reason(await ana.ask("read", ANA, from_=bob.address)) == (403, "not-owner")


async def test_events_are_accepted_and_reach_runtimes_of_other_dialects(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    answer = await ana.post(a_message("event", ANA, bob.address, {"value": 1}))
    assert (answer.status, answer.body) == (202, b"")
    assert (await bob.next())["body"] == {"value": 1}


async def test_an_event_that_wants_a_receipt_gets_it_in_the_answer(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    lamp = "comm://alpha.example/lamp"
    await ana.ask("subscribe", SM, {"resources": [lamp, f"{lamp}/subscription"]})
    await bob.subscribed(f"{lamp}/changes")
    reply = await ana.ask("update", f"{lamp}/changes", {"value": 1, "receipt": True})
    assert reply["body"]["code"] == 200
    assert (await bob.next())["body"]["value"] == 1


async def test_who_does_not_want_to_wait_gets_the_reply_by_the_return_channel(rig: RuntimeRig) -> None:
    ana = await opened_http(rig)
    answer = await ana.post(a_message("read", ANA, runtime_address("nobody"), id_=5), Prefer="respond-async")
    assert (answer.status, answer.body) == (202, b"")
    [reply] = await ana.polled()
    assert (reply["id"], reply["body"]["code"]) == (5, 404)


@pytest.mark.parametrize("wants", [True, False])
async def test_a_reply_after_the_504_is_late_and_for_those_who_want_such(rig: RuntimeRig, wants: bool) -> None:
    ana, bob = await http_runtime(rig), await rig.opened("bob")
    assert (await ana.open({"late": wants}))["body"]["code"] == 200
    async with trio.open_nursery() as nursery:
        answers = []

        @nursery.start_soon
        async def _ana() -> None:
            answers.append(await ana.post(a_message("read", ANA, bob.address, id_=8), Prefer="wait=1"))

        request = await bob.next()
    [answer] = answers
    assert (answer.status, json.loads(answer.body)["reason"]) == (504, "timeout")
    for code in (183, 200, 200):
        await bob.say(a_message("response", bob.address, ANA, {"code": code}, id_=request["id"]))
    await bob.ask("ping", SESSION)
    assert [one["body"] for one in await ana.polled(wait=0)] == [
        {"code": code, "late": True} for code in ((183, 200, 200) if wants else ())
    ]
    assert rig.counters["late replies" if wants else "late replies kept back"] == 3
    answer = await ana.post(a_message("read", ANA, runtime_address("nobody"), id_=8))  # the id is free again
    assert json.loads(answer.body)["body"]["reason"] == "no-route"


async def test_a_reply_whose_poster_has_gone_takes_the_return_channel(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    line = HttpLine(await rig.connect())
    body = json.dumps(a_message("read", ANA, bob.address, id_=9)).encode()
    await line.ask("POST", MESSAGES, body=body, headers=ana.headers)
    request = await bob.next()
    await line.wire.cut()
    port = rig.port_of("ana")
    with trio.fail_after(5):
        while port.queue._expected:  # type: ignore[attr-defined]
            await trio.lowlevel.checkpoint()
    await bob.say(a_message("response", bob.address, ANA, {"code": 200}, id_=request["id"]))
    [reply] = await ana.polled()
    assert reply["id"] == 9


async def test_a_message_to_several_is_accepted_and_its_replies_come_by_the_return_channel(
    rig: RuntimeRig,
) -> None:
    ana = await opened_http(rig)
    message = {**a_message("read", ANA, "", id_=3), "to": [runtime_address("x"), runtime_address("y")]}
    assert (await ana.post(message)).status == 202
    replies = await ana.polled()
    assert [(reply["id"], reply["body"]["code"]) for reply in replies] == [(3, 404), (3, 404)]


# The return channel.


async def test_a_poll_brings_what_waits_in_order(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    await send_events(bob, ANA, 1, 2, 3)
    await bob.heard()
    assert values(await ana.polled()) == [1, 2, 3]


async def test_a_poll_hangs_until_there_is_something(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    async with trio.open_nursery() as nursery:
        got: list[Json] = []

        @nursery.start_soon
        async def _poll() -> None:
            got.extend(await ana.polled())

        port = rig.port_of("ana")
        while not port.queue.channel.takes_more:
            await trio.lowlevel.checkpoint()
        await send_events(bob, ANA, "now")
    assert values(got) == ["now"]


async def test_a_poll_without_anything_to_say_is_answered_empty_in_time(rig: RuntimeRig) -> None:
    ana = await opened_http(rig)
    answer = await ana.poll(wait=0)
    assert (answer.status, answer.body) == (200, b"[]")


async def test_messages_that_are_not_acknowledged_come_again(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    await send_events(bob, ANA, 1, 2)
    await bob.heard()
    first = await ana.poll()
    again = await ana.poll(after="0")
    assert again.body == first.body
    await send_events(bob, ANA, 3)
    await bob.heard()
    rest = await ana.poll(after="1")
    assert values(json.loads(rest.body)) == [2, 3]
    assert rest.headers["last-event-id"] == "3"
    assert (await ana.poll(wait=0, after="3")).body == b"[]"


async def test_a_stream_brings_messages_as_events_with_type_and_number(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    stream = await ana.stream()
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
    await send_events(bob, ANA, 1)
    raw = json.dumps(a_message("event", bob.address, ANA, {"value": 2}), indent=1).encode()
    await bob.say_raw(raw)
    first, second = await stream.event(), await stream.event()
    assert first is not None
    assert second is not None
    assert (first.name, first.id, json.loads(first.data)["body"]) == ("event", "1", {"value": 1})
    assert (second.id, second.data.encode()) == ("2", raw)


async def test_a_broken_stream_goes_on_behind_the_last_event_that_was_read(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    stream = await ana.stream()
    await send_events(bob, ANA, 1, 2, 3)
    first = await stream.event()
    assert first is not None
    await stream.wire.cut()
    await send_events(bob, ANA, 4)
    again = await ana.stream(after=first.id)
    got = [await again.message() for _ in range(3)]
    assert values(got) == [2, 3, 4]


async def test_the_newest_stream_takes_the_place_of_the_older_one(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    old = await ana.stream()
    new = await ana.stream()
    ending = await old.event()
    assert ending is not None
    assert ending.name == "close"
    assert await old.event() is None
    await send_events(bob, ANA, 1)
    assert (await new.message())["body"] == {"value": 1}


async def test_what_cannot_be_sent_again_is_said_to_be_lost(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    stream = await ana.stream()
    await send_events(bob, ANA, 1, 2, 3)
    for _ in range(3):
        await stream.event()
    rig.https.end_lost(trio.current_time() + 1e6)  # so old that nobody can ask
    again = await ana.stream(after="1")
    lost = await again.event()
    assert lost == ServerEvent("lost", "", '{"code":410,"reason":"expired","messages":2}')


async def test_pages_that_cannot_set_headers_may_name_their_token_in_the_query(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    token, ana.token = ana.token, ""
    stream = await ana.stream(target=f"{MESSAGES}?access_token={token}")
    await send_events(bob, ANA, 1)
    assert (await stream.message())["body"] == {"value": 1}


# Sessions.


async def test_a_session_without_stream_and_polls_is_lost_and_comes_back_by_its_token(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    address = "comm://alpha.example/mine"
    await ana.subscribed(address)
    rig.https.end_lost(trio.current_time() + 29)
    assert rig.https.live_sessions == 1
    rig.https.end_lost(trio.current_time() + 31)
    assert rig.https.live_sessions == 0
    await rig.until("sessions lost")
    assert code_and_reason(await bob.ask("read", ANA)) == (503, "not-connected")
    answer = await ana.post(a_message("event", ANA, bob.address))
    assert (answer.status, json.loads(answer.body)["reason"]) == (401, "bad-token")
    assert "no stream and no poll" in json.loads(answer.body)["detail"]
    back = await ana.ask("re-open", SESSION, from_=f"{ANA}/{ana.token}")
    assert back["body"]["code"] == 200
    await send_events(bob, address, "still mine")
    assert values(await ana.polled()) == ["still mine"]


async def test_a_session_with_a_stream_or_a_hanging_poll_is_not_lost(rig: RuntimeRig) -> None:
    ana = await opened_http(rig)
    await ana.stream()
    rig.https.end_lost(trio.current_time() + 1e6)
    assert rig.state.sessions.by_runtime(ANA) is not None
    assert rig.port_of("ana").sid is not None


async def test_close_ends_the_session_and_its_stream(rig: RuntimeRig) -> None:
    ana = await opened_http(rig)
    stream = await ana.stream()
    assert (await ana.post(a_message("close", ANA, SESSION, id_=1))).status == 202
    assert await stream.event() == ServerEvent("close", "", '{"code":1000,"reason":""}')
    assert await stream.event() is None
    assert rig.state.sessions.by_runtime(ANA) is None


async def test_a_second_opener_with_a_proof_takes_over_and_the_first_is_notified(tmp_path: Path) -> None:
    credential = Credential(digest_of("secret"), ANA, frozenset({"viewer"}))
    async with runtime_rig(tmp_path, credentials=[credential]) as rig:
        first = await http_runtime(rig)
        answer = await first.post(a_message("open", ANA, SESSION, id_=1), Authorization="Bearer secret")
        first.token = json.loads(answer.body)["body"]["runtimeToken"]
        assert roles_in(rig.port_of("ana").roles) == {"viewer"}
        stream = await first.stream()
        second = await rig.runtime(bearer="secret")
        assert (await second.open("ana"))["body"]["code"] == 200
        notice = await stream.message()
        assert (notice["to"], notice["body"]["value"]) == (f"{ANA}/status", "taken-over")
        assert await stream.event() == ServerEvent("close", "", '{"code":4001,"reason":"taken-over"}')
        late = await first.post(a_message("event", ANA, ANA))
        assert (late.status, json.loads(late.body)["detail"]) == (401, "this session has ended: taken-over")


async def test_a_second_opener_without_a_proof_is_refused(rig: RuntimeRig) -> None:
    await opened_http(rig)
    other = await http_runtime(rig)
    assert code_and_reason(await other.open()) == (409, "address-taken")
    assert rig.https.live_sessions == 1


async def test_who_opens_again_on_its_session_has_a_new_token_and_the_old_one_is_void(tmp_path: Path) -> None:
    credential = Credential(digest_of("secret"), ANA)
    async with runtime_rig(tmp_path, credentials=[credential]) as rig:
        ana = await http_runtime(rig)
        proof = {"credentials": {"kind": "bearer", "token": "secret"}}
        await ana.open(proof)
        old = ana.token
        assert (await ana.open(proof))["body"]["code"] == 200
        assert ana.token != old
        assert (await ana.post(a_message("event", ANA, ANA))).status == 202
        ana.token = old
        assert (await ana.post(a_message("event", ANA, ANA))).status == 401


async def test_a_runtime_moves_from_a_websocket_to_http_and_back_with_its_session(rig: RuntimeRig) -> None:
    ana, bob = await rig.opened("ana"), await rig.opened("bob")
    await ana.subscribed("comm://alpha.example/mine")
    over_http = await http_runtime(rig)
    back = await over_http.ask("re-open", SESSION, from_=ana.session_address)
    assert back["body"]["code"] == 200
    over_http.token = ana.token
    await send_events(bob, "comm://alpha.example/mine", 1)
    assert values(await over_http.polled()) == [1]
    again = await rig.runtime()
    reply = await again.ask("re-open", SESSION, from_=ana.session_address)
    assert reply["body"]["code"] == 200
    await send_events(bob, "comm://alpha.example/mine", 2)
    assert (await again.next())["body"] == {"value": 2}


async def test_the_queue_between_polls_drops_old_events_and_keeps_replies(rig: RuntimeRig) -> None:
    ana, bob = await opened_http(rig), await rig.opened("bob")
    await ana.post(a_message("read", ANA, runtime_address("nobody"), id_=1), Prefer="respond-async")
    await send_events(bob, ANA, *range(250))
    await bob.heard()
    reply = await bob.ask("read", ANA)
    assert code_and_reason(reply) == (503, "overload")
    messages = await ana.polled()
    assert messages[0]["type"] == "response"
    assert values(messages[1:]) == list(range(51, 250))


async def test_a_runtime_of_another_domain_is_refused_in_a_reply_and_leaves_nothing(rig: RuntimeRig) -> None:
    runtime: HttpRuntime = await http_runtime(rig)
    answer = await runtime.post(a_message("open", "runtime://other.example/x", SESSION, id_=1))
    assert json.loads(answer.body)["body"]["reason"] == "spoofed-source"
    assert rig.https.live_sessions == 0


async def test_pages_of_origins_that_are_named_later_may_connect_and_those_of_before_no_more(rig: RuntimeRig) -> None:
    runtime = await http_runtime(rig)
    assert rig.listener is not None
    asked = {"Origin": "https://b.example", "Access-Control-Request-Method": "POST"}
    before = await runtime.posts.fetch("OPTIONS", MESSAGES, headers=asked)
    assert before.headers["access-control-allow-origin"] == "*"
    rig.listener.follow(ListenerOptions(origins=("https://b.example",), https=HttpsOptions(poll_seconds=7.0)))
    after = await runtime.posts.fetch("OPTIONS", MESSAGES, headers=asked)
    assert after.headers["access-control-allow-origin"] == "https://b.example"
    other = await runtime.posts.fetch("OPTIONS", MESSAGES, headers={**asked, "Origin": "https://c.example"})
    assert other.status == 403
