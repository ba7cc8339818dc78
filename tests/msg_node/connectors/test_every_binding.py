"""One battery for every binding: events, actions and requests, with both ends on it, and with the connection lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bindings import BoundRuntime, MakeRuntime, OverMqtt
from tests.support.runtime_rig import DOMAIN, Json, RuntimeRig, a_message, code_and_reason, runtime_rig

AGENT = f"thing://{DOMAIN}/agent-4"
LAMP = f"{AGENT}/lamp-1"
MOTION = f"{LAMP}/events/motion"
SWITCH = f"{LAMP}/actions/switch"
DELIVERY = f"domain://msg-node.{DOMAIN}/delivery"
INBOX = f"domain://msg-node.{DOMAIN}/inbox"
TWIN = f"domain://msg-node.{DOMAIN}/twin"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, returns_by_address=True) as made:
        yield made


def action(sender: BoundRuntime, id_: object, on: object = True, **members: Any) -> Json:
    body = {"class": "action", "method": "switch", "params": {"on": on}, **members}
    return a_message("execute", sender.address, SWITCH, body, id_=id_)


def answer_to(request: Json, body: Json) -> Json:
    return a_message("response", request["to"], request["from"], body, id_=request["id"])


async def an_agent(make: MakeRuntime) -> BoundRuntime:
    agent = await make("lamps")
    await agent.subscribed(AGENT)
    return agent


# Connections.


async def test_a_runtime_counts_for_the_network_that_it_is_connected_from(rig: RuntimeRig, make: MakeRuntime) -> None:
    ana = await make("ana")
    network = rig.port_of("ana").line.offered.network
    assert network == ("mqtt" if isinstance(ana, OverMqtt) else "127.0.0.1")


# Events.


async def test_events_reach_those_who_listen_and_nobody_later(make: MakeRuntime) -> None:
    agent, ana, bob = await an_agent(make), await make("ana"), await make("bob")
    for listener in (ana, bob):
        await listener.subscribed(f"{LAMP}/changes")
    await bob.lose()
    change = {"attribute": "on", "value": 1}
    await agent.say(a_message("update", LAMP, f"{LAMP}/changes", change))
    assert (await ana.next())["body"] == change
    await bob.begin()
    assert await bob.heard() == []


async def test_an_event_with_a_receipt_is_confirmed_whether_anybody_listens_or_not(make: MakeRuntime) -> None:
    agent = await an_agent(make)
    reply = await agent.ask("update", MOTION, {"class": "event", "value": 1, "receipt": True}, from_=LAMP)
    assert reply["body"]["code"] == 200


# Requests.


async def test_a_request_is_answered_by_whom_it_is_for(make: MakeRuntime) -> None:
    ana, bob = await make("ana"), await make("bob")
    await ana.say(a_message("read", ana.address, bob.address, {"value": "x" * 5000}, id_=7))
    request = await bob.next()
    assert request["body"]["value"] == "x" * 5000
    await bob.say(answer_to(request, {"code": 200, "value": "y" * 5000}))
    reply = await ana.next()
    assert (reply["id"], reply["body"]["value"]) == (7, "y" * 5000)


async def test_a_request_to_somebody_who_is_away_is_refused_and_never_comes(make: MakeRuntime) -> None:
    ana, bob = await make("ana"), await make("bob")
    await bob.lose()
    assert code_and_reason(await ana.ask("read", bob.address)) == (503, "not-connected")
    await bob.begin()
    assert await bob.heard() == []
    assert code_and_reason(await ana.ask("read", f"runtime://{DOMAIN}/nobody")) == (404, "no-route")


# Actions.


async def test_an_action_of_an_agent_that_is_there_is_answered_with_its_result(make: MakeRuntime) -> None:
    agent, ana = await an_agent(make), await make("ana")
    await ana.say(action(ana, 122))
    request = await agent.next()
    await agent.say(answer_to(request, {"code": 200, "value": {"on": True}}))
    reply = await ana.next()
    assert (reply["id"], reply["body"]["status"], reply["body"]["value"]) == (122, "completed", {"on": True})
    assert await ana.heard() == []


async def test_actions_wait_for_an_agent_and_their_results_come_to_the_inbox(make: MakeRuntime) -> None:
    agent, ana = await an_agent(make), await make("ana")
    await agent.lose()
    await ana.say(*(action(ana, number, number) for number in (1, 2, 3)))
    replies = [await ana.next() for _ in range(3)]
    assert [(one["id"], one["body"]["code"], one["body"]["status"]) for one in replies] == [
        (number, 202, "pending") for number in (1, 2, 3)
    ]
    ids = [one["body"]["requestId"] for one in replies]
    await agent.begin()
    requests = [await agent.next() for _ in ids]
    assert [one["body"]["requestId"] for one in requests] == ids
    for request in requests:
        await agent.say(answer_to(request, {"code": 200, "value": request["body"]["params"]["on"]}))
    events = [await ana.next() for _ in ids]
    assert [(one["to"], one["body"]["requestId"], one["body"]["status"], one["body"]["value"]) for one in events] == [
        (f"{ana.address}/inbox", request_id, "completed", number) for number, request_id in enumerate(ids, 1)
    ]


async def test_a_result_waits_for_a_sender_who_is_away(make: MakeRuntime) -> None:
    agent, ana = await an_agent(make), await make("ana")
    await agent.lose()
    reply = await ana.ask("execute", SWITCH, {"class": "action", "method": "switch"})
    await ana.lose()
    await agent.begin()
    await agent.say(answer_to(await agent.next(), {"code": 200}))
    await agent.heard()
    await ana.begin()
    event = await ana.next()
    assert (event["body"]["requestId"], event["body"]["status"]) == (reply["body"]["requestId"], "completed")
    kept = (await ana.ask("read", INBOX))["body"]["value"]
    assert len(kept) == 1


async def test_a_parked_action_can_be_asked_about_and_cancelled(make: MakeRuntime) -> None:
    agent, ana = await an_agent(make), await make("ana")
    await agent.lose()
    request_id = (await ana.ask("execute", SWITCH, {"class": "action", "method": "switch"}))["body"]["requestId"]
    where = await ana.ask("read", DELIVERY, {"resource": request_id})
    assert where["body"]["code"] == 200
    assert (await ana.ask("delete", DELIVERY, {"resource": request_id}))["body"]["code"] == 200
    await agent.begin()
    assert await agent.heard() == []


# The twin.


async def test_a_thing_is_described_and_read_with_its_values(make: MakeRuntime) -> None:
    agent, ana = await make("lamps"), await make("ana")
    reply = await agent.ask("create", TWIN, {"resource": LAMP, "value": {"title": "Lamp"}, "queue": {"max": 2}})
    assert reply["body"]["code"] == 200
    reply = await agent.ask("update", MOTION, {"class": "event", "value": 5, "receipt": True}, from_=LAMP)
    assert reply["body"]["code"] == 200
    found = (await ana.ask("read", TWIN, {"resource": LAMP}))["body"]["value"]
    assert (found["description"], found["values"]["events/motion"]["value"]) == ({"title": "Lamp"}, 5)
