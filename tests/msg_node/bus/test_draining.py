"""A bus that stops: what is new is refused with a hint, what is under way goes on, what runtimes have sent is taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.support.runtime_rig import SESSION, RuntimeRig, a_message, code_and_reason, runtime_rig
from wire.core.websocket import GOING_AWAY

RETRY_SECONDS = 5.0
HINT = {"retryAfter": RETRY_SECONDS}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def test_a_new_request_is_refused_with_a_hint_and_one_under_way_is_answered(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("read", ana.address, bo.address, {"ttl": 10}, id_=7))
    request = await bo.next()
    rig.bus.refuse_new(RETRY_SECONDS)
    assert [(await one.next())["body"]["value"] for one in (ana, bo)] == ["draining"] * 2
    await ana.say(a_message("read", ana.address, bo.address, id_=8))
    refusal = await ana.next()
    assert (refusal["id"], *code_and_reason(refusal)) == (8, 503, "draining")
    assert refusal["body"]["value"] == HINT
    assert rig.bus.unfinished == 1
    await bo.say(a_message("response", bo.address, ana.address, {"code": 200}, id_=request["id"]))
    assert (await ana.next())["id"] == 7
    assert rig.bus.unfinished == 0


async def test_events_go_on_and_the_node_itself_still_serves(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    rig.bus.refuse_new(RETRY_SECONDS)
    await ana.next()
    await bo.next()
    await ana.say(a_message("event", ana.address, bo.address, {"value": 1}))
    assert (await bo.next())["type"] == "event"
    assert (await ana.ask("ping", SESSION))["type"] == "pong"


async def test_runtimes_are_referred_to_the_other_nodes_of_the_domain(rig: RuntimeRig) -> None:
    ana, others = await rig.opened("ana"), ("wss://mn2.a.example/ws", "wss://mn3.a.example/ws")
    rig.bus.refuse_new(RETRY_SECONDS, others)
    assert (await ana.next())["body"]["resource"] == others[0]
    reply = await (await rig.runtime()).open("bo")
    assert reply["body"]["value"] == HINT | {"alternatives": list(others)}


async def test_no_session_is_opened_or_brought_back(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    rig.bus.refuse_new(RETRY_SECONDS)
    bo = await rig.runtime()
    reply = await bo.open("bo")
    assert code_and_reason(reply) == (503, "draining")
    assert reply["body"]["value"] == HINT
    back = await rig.runtime()
    reply = await back.ask("re-open", SESSION, from_=ana.session_address)
    assert code_and_reason(reply) == (503, "draining")


async def test_an_action_is_stored_and_its_sender_gets_202_at_once(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("execute", ana.address, bo.address, {"class": "action", "method": "switch"}, id_=7))
    await bo.next()
    rig.bus.refuse_new(RETRY_SECONDS)
    await ana.next()
    rig.bus.parked_actions.recorder.park_owed()
    answer = await ana.next()
    assert (answer["id"], answer["body"]["code"]) == (7, 202)
    assert len(rig.state.delivery.parking) == 1


async def test_what_has_no_reply_in_the_end_is_answered_503(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(a_message("read", ana.address, bo.address, {"ttl": 10}, id_=7))
    await bo.next()
    rig.bus.answer_rest()
    answer = await ana.next()
    assert (answer["id"], *code_and_reason(answer)) == (7, 503, "draining")


async def test_what_a_runtime_had_sent_when_it_got_the_close_is_taken(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(a_message("event", ana.address, "hyperty://b.example/bo", {"value": 1}))
    await rig.until("frames in", 2)
    assert rig.bus.runtimes.finish() == 0
    event = a_message("event", ana.address, "hyperty://b.example/bo", {"value": 2})
    await ana.say(event)  # it has not read the close yet
    assert await ana.close_code() == GOING_AWAY
    with trio.fail_after(10):
        while rig.bus.send_queues.connections:
            await trio.lowlevel.checkpoint()
    assert rig.counters["frames in"] == 3


async def test_what_a_runtime_writes_that_never_answers_the_close_is_not_taken_for_ever(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    rig.bus.runtimes.finish()
    event = a_message("event", ana.address, "hyperty://b.example/bo", {"value": 1})
    await ana.say(event)  # it reads nothing, so that it sees no close
    await rig.until("frames in", 2)
    rig.bus.runtimes.stop_reading()
    await ana.say(event)
    with trio.fail_after(10):
        while rig.bus.send_queues.connections:
            await trio.lowlevel.checkpoint()
    assert rig.counters["frames in"] == 2
