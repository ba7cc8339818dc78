"""Actions on one node, over real sockets: at once, parked, in order, answered once, while others come, go and guess."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from msg_node.kernel.credentials import Credential, digest_of
from msg_node.requests.core.delivery_state import DeliveryRules
from msg_node.requests.core.parking import Bounds
from protofly.errors import Code, HostError
from tests.support.runtime_rig import (
    DOMAIN,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    commits_held,
    runtime_address,
    runtime_rig,
)

AGENT = f"thing://{DOMAIN}/agent-4"
SWITCH = f"{AGENT}/lamp-1/actions/switch"
DELIVERY = f"domain://msg-node.{DOMAIN}/delivery"
INBOX = f"domain://msg-node.{DOMAIN}/inbox"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


def action(sender: str, id_: object, on: object = True, *, to: str = SWITCH, **members: Any) -> Json:
    body = {"class": "action", "method": "switch", "params": {"on": on}, **members}
    return a_message("execute", sender, to, body, id_=id_)


def answer_to(request: Json, body: Json) -> Json:
    return a_message("response", request["to"], request["from"], body, id_=request["id"])


async def an_agent(rig: RuntimeRig, name: str = "lamps") -> Runtime:
    agent = await rig.opened(name)
    reply = await agent.subscribed(AGENT)
    assert reply["body"]["code"] == 200
    return agent


async def parked(sender: Runtime, *ids: int) -> list[str]:
    await sender.say(*(action(sender.address, one, one) for one in ids))
    replies = [await sender.next() for _ in ids]
    assert [(one["id"], one["body"]["code"], one["body"]["status"]) for one in replies] == [
        (one, 202, "pending") for one in ids
    ]
    return [one["body"]["requestId"] for one in replies]


async def test_an_agent_that_is_there_gets_the_action_and_its_result_is_the_answer(rig: RuntimeRig) -> None:
    agent, ana = await an_agent(rig), await rig.opened("ana")
    await ana.say(action(ana.address, 122))
    request = await agent.next()
    assert request["body"].pop("requestId").startswith("d-")
    assert request == action(ana.address, 122)
    await agent.say(answer_to(request, {"code": 200, "value": {"on": True}}))
    reply = await ana.next()
    assert (reply["id"], reply["from"], reply["to"]) == (122, SWITCH, ana.address)
    assert reply["body"]["status"] == "completed"
    assert reply["body"]["value"] == {"on": True}
    assert await ana.heard() == []
    assert len(rig.state.delivery.parking) == 0
    assert rig.state.delivery.inboxes.of_owner(ana.address) == []


async def test_an_absent_agents_actions_are_parked_and_handed_over_in_order_and_the_results_come_as_events(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    ids = await parked(ana, 1, 2, 3)
    agent = await an_agent(rig)
    requests = [await agent.next() for _ in ids]
    assert [one["body"]["requestId"] for one in requests] == ids
    assert [one["body"]["params"]["on"] for one in requests] == [1, 2, 3]
    for request in requests:
        await agent.say(answer_to(request, {"code": 200, "value": request["body"]["params"]["on"]}))
    events = [await ana.next() for _ in ids]
    assert [(one["type"], one["to"], one["from"]) for one in events] == [
        ("update", f"{ana.address}/inbox", DELIVERY)
    ] * 3
    assert [(one["body"]["requestId"], one["body"]["status"], one["body"]["value"]) for one in events] == [
        (request_id, "completed", number) for number, request_id in enumerate(ids, 1)
    ]
    assert {one["body"]["source"] for one in events} == {f"{AGENT}/lamp-1"}
    assert {one["body"]["class"] for one in events} == {"event"}


async def test_end_that_is_read_has_become_durable_before(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    [request_id] = await parked(ana, 1)
    agent = await an_agent(rig)
    request = await agent.next()
    with commits_held(rig):
        await agent.say(answer_to(request, {"code": 200}))
        await agent.heard()
        await ana.say(
            a_message("read", ana.address, DELIVERY, {"resource": request_id}, id_=7),
            a_message("read", ana.address, INBOX, id_=8),
        )
        assert await ana.heard() == []
    said = [await ana.next() for _ in range(3)]
    values = {one["id"]: one["body"]["value"] for one in said if one["type"] == "response"}
    assert values[7]["status"] == "completed"
    assert [one["requestId"] for one in values[8]] == [request_id]


async def test_a_new_action_stands_behind_the_parked_ones(rig: RuntimeRig) -> None:
    rig.state.delivery.queues.announce(AGENT, {"max": 1})
    ana = await rig.opened("ana")
    await parked(ana, 1, 2)
    agent = await an_agent(rig)
    first = await agent.next()
    await ana.say(action(ana.address, 3, 3))
    assert (await ana.next())["body"]["code"] == 202
    assert await agent.heard() == []
    requests = [first]
    for _ in range(2):
        await agent.say(answer_to(requests[-1], {"code": 200}))
        requests.append(await agent.next())
        assert await agent.heard() == []
    assert [one["body"]["params"]["on"] for one in requests] == [1, 2, 3]


async def test_what_an_agent_took_and_did_not_answer_comes_again_and_what_it_acknowledged_does_not(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    taken, acknowledged, answered = await parked(ana, 1, 2, 3)
    agent = await an_agent(rig)
    requests = [await agent.next() for _ in range(3)]
    await agent.say(answer_to(requests[1], {"code": 100}), answer_to(requests[2], {"code": 200}))
    assert [(one["body"]["requestId"], one["body"]["status"]) for one in [await ana.next(), await ana.next()]] == [
        (acknowledged, "delivered"),
        (answered, "completed"),
    ]
    await agent.wire.cut()
    await rig.until("sessions lost")
    again = await rig.runtime()
    again.address = agent.session_address
    reply = await again.ask("re-open", "mn:/session")
    assert reply["body"]["code"] == 200
    (request,) = await again.heard()
    assert request["body"]["requestId"] == taken
    await again.say(answer_to(requests[1], {"code": 200, "value": 2}), answer_to(request, {"code": 500}))
    events = [await ana.next(), await ana.next()]
    assert [(one["body"]["requestId"], one["body"]["status"]) for one in events] == [
        (acknowledged, "completed"),
        (taken, "failed"),
    ]
    assert await ana.heard() == []


async def test_an_agent_that_dies_while_its_sender_waits_leaves_the_action_parked(rig: RuntimeRig) -> None:
    agent, ana = await an_agent(rig), await rig.opened("ana")
    await ana.say(action(ana.address, 1))
    await agent.next()
    await agent.wire.cut()
    reply = await ana.next()
    assert (reply["body"]["code"], reply["body"]["status"]) == (202, "pending")


async def test_results_for_a_sender_who_is_away_wait_in_its_inbox_and_are_reported_once(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    (request_id,) = await parked(ana, 1)
    await ana.wire.cut()
    await rig.until("sessions lost")
    agent = await an_agent(rig)
    await agent.say(answer_to(await agent.next(), {"code": 200, "value": 7}))
    await rig.until("actions completed")
    for is_first in (True, False):
        back = await rig.runtime()
        back.address = ana.session_address
        await back.ask("re-open", "mn:/session")
        back.address = ana.address
        events = [await back.next()] if is_first else await back.heard()
        assert [one["body"]["requestId"] for one in events] == [request_id] * is_first
        if is_first:
            await back.wire.cut()
            await rig.until("sessions lost", 2)
    listed = (await back.ask("read", INBOX))["body"]["value"]
    assert [(one["requestId"], one["status"], one["value"]) for one in listed] == [(request_id, "completed", 7)]
    reply = await back.ask("delete", INBOX, {"resources": [listed[0]["id"]]})
    assert reply["body"]["value"] == {"acknowledged": 1}
    assert (await back.ask("read", INBOX))["body"]["value"] == []


@pytest.mark.parametrize(
    ("ttl", "code", "reason"),
    [(0, 410, "expired"), (-5, 410, "expired"), ("soon", 400, "bad-body"), ([], 400, "bad-body")],
)
async def test_an_action_without_time_or_with_nonsense_for_one_is_refused(
    rig: RuntimeRig, ttl: object, code: int, reason: str
) -> None:
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1, ttl=ttl))
    assert code_and_reason(await ana.next()) == (code, reason)
    assert len(rig.state.delivery.parking) == 0


async def test_an_action_of_the_far_future_waits_no_longer_than_the_agent_allows(rig: RuntimeRig) -> None:
    rig.state.delivery.queues.announce(AGENT, {"expires": 60})
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1, ttl=1e300))
    assert (await ana.next())["body"]["code"] == 202
    (entry,) = rig.state.delivery.parking.queues.entries(AGENT)
    assert entry.expires_at - entry.accepted_at == pytest.approx(60.0)


async def test_an_action_that_nobody_took_in_time_ends_as_expired(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1, ttl=60))
    request_id = (await ana.next())["body"]["requestId"]
    rig.bus.parked_actions.sweep(time.time() + 59)
    assert await ana.heard() == []
    rig.bus.parked_actions.sweep(time.time() + 61)
    event = await ana.next()
    assert (event["body"]["requestId"], event["body"]["status"], event["body"]["code"]) == (request_id, "expired", 410)
    agent = await an_agent(rig)
    assert await agent.heard() == []


async def test_senders_cancel_what_waits_and_the_agent_never_sees_it(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    cancelled, kept = await parked(ana, 1, 2)
    reply = await ana.ask("delete", DELIVERY, {"resource": cancelled})
    assert (reply["body"]["code"], reply["body"]["value"]["status"]) == (200, "cancelled")
    assert code_and_reason(await ana.ask("delete", DELIVERY, {"resource": cancelled})) == (409, "already-final")
    agent = await an_agent(rig)
    assert [one["body"]["requestId"] for one in await agent.heard()] == [kept]


@pytest.mark.parametrize(("agent_says", "status"), [(200, "cancelled"), (409, None)])
async def test_cancelling_what_an_agent_has_is_its_decision(
    rig: RuntimeRig, agent_says: int, status: str | None
) -> None:
    ana = await rig.opened("ana")
    (request_id,) = await parked(ana, 1)
    agent = await an_agent(rig)
    request = await agent.next()
    reply = await ana.ask("delete", DELIVERY, {"resource": request_id})
    assert (reply["body"]["code"], reply["body"]["value"]["status"]) == (202, "delivered")
    wish = await agent.next()
    assert (wish["type"], wish["to"], wish["body"]["resource"]) == ("delete", SWITCH, request_id)
    await agent.say(answer_to(wish, {"code": agent_says}))
    await agent.heard()
    if status is None:
        await agent.say(answer_to(request, {"code": 200}))
    event = await ana.next()
    assert (event["body"]["requestId"], event["body"]["status"]) == (request_id, status or "completed")
    assert await ana.heard() == []


async def test_a_cancelled_action_does_not_go_to_an_agent_that_comes_back(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    (request_id,) = await parked(ana, 1)
    agent = await an_agent(rig)
    await agent.next()
    await ana.ask("delete", DELIVERY, {"resource": request_id})
    await agent.wire.cut()
    event = await ana.next()
    assert (event["body"]["requestId"], event["body"]["status"]) == (request_id, "cancelled")


async def test_to_strangers_the_requests_of_others_do_not_exist(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    (request_id,) = await parked(ana, 1)
    for type_ in ("read", "delete"):
        assert code_and_reason(await eve.ask(type_, DELIVERY, {"resource": request_id})) == (404, "no-such-request")
        assert code_and_reason(await eve.ask(type_, DELIVERY, {"resource": "d-1"})) == (404, "no-such-request")
    assert (await eve.ask("read", DELIVERY, {"criteria": {"to": SWITCH}}))["body"]["value"] == []
    assert (await eve.ask("read", INBOX))["body"]["value"] == []
    read = await ana.ask("read", DELIVERY, {"resource": request_id})
    assert (read["body"]["value"]["status"], read["body"]["value"]["to"]) == ("pending", SWITCH)
    agent = await an_agent(rig)
    listed = await agent.ask("read", DELIVERY, {"criteria": {"status": "delivered"}})
    assert [one["requestId"] for one in listed["body"]["value"]] == [request_id]
    await agent.say(answer_to(action(ana.address, 1), {"code": 200}))
    event = await ana.next()
    assert event["body"]["status"] == "completed"
    assert (await ana.ask("read", DELIVERY, {"resource": request_id}))["body"]["value"]["status"] == "completed"
    assert code_and_reason(await eve.ask("read", DELIVERY, {"resource": request_id})) == (404, "no-such-request")


async def test_an_answer_of_somebody_else_than_the_agent_ends_nothing(rig: RuntimeRig) -> None:
    agent, ana, eve = await an_agent(rig), await rig.opened("ana"), await rig.opened("eve")
    await ana.say(action(ana.address, 1))
    request = await agent.next()
    await eve.say(answer_to(request, {"code": 200, "value": "forged"}))
    await eve.heard()
    assert await ana.heard() == []
    await agent.say(answer_to(request, {"code": 200, "value": "true"}))
    assert (await ana.next())["body"]["value"] == "true"


async def test_a_sender_that_repeats_itself_gets_the_same_request_and_the_agent_one_copy(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    assert await parked(ana, 1) == await parked(ana, 1)
    agent = await an_agent(rig)
    assert len(await agent.heard()) == 1


@pytest.mark.parametrize("ahead_seconds", [7_200.0, -7_200.0])
async def test_an_action_that_is_repeated_after_the_clock_was_set_runs_once(
    rig: RuntimeRig, ahead_seconds: float
) -> None:
    ana, now = await rig.opened("ana"), rig.clocks.now
    first = await parked(ana, 1)
    rig.clocks.now = lambda: now() + ahead_seconds
    assert await parked(ana, 1) == first, "while it is open"
    agent = await an_agent(rig)
    [request] = [one for one in await agent.heard() if one["type"] == "execute"]
    await agent.say(answer_to(request, {"code": 200, "value": "done"}))
    await rig.until("actions completed")
    rig.clocks.now = lambda: now() + 2 * ahead_seconds
    await ana.say(action(ana.address, 1, 1))
    while (reply := await ana.next())["type"] != "response":
        pass  # the notice to its inbox
    assert reply["body"]["value"] == "done"
    assert await agent.heard() == [], "after its end"


async def test_another_action_under_an_id_that_is_open_goes_under_a_fresh_one_and_is_answered_under_its_own(
    rig: RuntimeRig,
) -> None:
    agent, ana = await an_agent(rig), await rig.opened("ana")
    await ana.say(action(ana.address, 1, "first"), action(ana.address, 1, "second"))
    requests = [await agent.next(), await agent.next()]
    assert len({str(one["id"]) for one in requests}) == 2
    for request in reversed(requests):
        await agent.say(answer_to(request, {"code": 200, "value": request["body"]["params"]["on"]}))
    replies = [await ana.next(), await ana.next()]
    assert [(one["id"], one["body"]["value"]) for one in replies] == [(1, "second"), (1, "first")]


async def test_rpc_is_never_parked(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    assert code_and_reason(await ana.ask("execute", SWITCH, {"class": "rpc"})) == (404, "no-route")
    assert code_and_reason(await ana.ask("read", f"{AGENT}/lamp-1/properties/on")) == (404, "no-route")
    agent = await an_agent(rig)
    await agent.wire.cut()
    await rig.until("sessions lost")
    assert code_and_reason(await ana.ask("execute", SWITCH, {"class": "rpc"})) == (503, "not-connected")
    assert len(rig.state.delivery.parking) == 0


async def test_a_request_to_a_thing_goes_to_its_agent(rig: RuntimeRig) -> None:
    agent, ana = await an_agent(rig), await rig.opened("ana")
    await ana.say(a_message("read", ana.address, f"{AGENT}/lamp-1/properties/on", id_=5))
    request = await agent.next()
    await agent.say(answer_to(request, {"code": 200, "value": False}))
    assert (await ana.next())["body"]["value"] is False


async def test_an_action_of_an_address_that_comes_later_reaches_the_one_that_claims_it(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    hyperty = f"hyperty://{DOMAIN}/h-bo"
    await ana.say(action(ana.address, 1, to=hyperty))
    assert (await ana.next())["body"]["code"] == 202
    await bo.ask("subscribe", SM, {"resources": [hyperty], "source": hyperty})
    assert (await bo.next())["to"] == hyperty


async def test_an_agent_that_answers_twice_is_heard_once(rig: RuntimeRig) -> None:
    agent, ana = await an_agent(rig), await rig.opened("ana")
    await ana.say(action(ana.address, 1))
    request = await agent.next()
    for value in ("first", "second"):
        await agent.say(answer_to(request, {"code": 200, "value": value}))
    assert await agent.heard() == []
    assert [one["body"]["value"] for one in await ana.heard()] == ["first"]
    assert rig.counters["late answers"] == 1


async def test_an_agent_that_renews_its_session_gets_nothing_again(tmp_path: Path) -> None:
    token = Credential(digest_of("secret"), runtime_address("lamps"), frozenset())
    proof = {"credentials": {"kind": "bearer", "token": "secret"}}
    async with runtime_rig(tmp_path, credentials=[token]) as rig:
        agent, ana = await rig.runtime(), await rig.opened("ana")
        assert (await agent.open("lamps", proof))["body"]["code"] == 200
        await agent.subscribed(AGENT)
        await ana.say(action(ana.address, 1))
        await agent.next()
        assert (await agent.ask("open", "mn:/session", proof))["body"]["code"] == 200
        assert await agent.heard() == []


async def test_an_agent_that_takes_its_session_over_gets_what_the_other_connection_left(tmp_path: Path) -> None:
    token = Credential(digest_of("secret"), runtime_address("lamps"), frozenset())
    proof = {"credentials": {"kind": "bearer", "token": "secret"}}
    async with runtime_rig(tmp_path, credentials=[token]) as rig:
        agent, ana = await rig.runtime(), await rig.opened("ana")
        assert (await agent.open("lamps", proof))["body"]["code"] == 200
        await agent.subscribed(AGENT)
        await ana.say(action(ana.address, 1))
        request = await agent.next()
        other = await rig.runtime()
        assert (await other.open("lamps", proof))["body"]["code"] == 200
        assert await other.next() == request


async def test_a_full_queue_refuses_newcomers_and_takes_nothing_from_others(tmp_path: Path) -> None:
    bounds = Bounds(per_queue=3, per_sender=2)
    async with runtime_rig(tmp_path, delivery=DeliveryRules(bounds=bounds)) as rig:
        ana, bo = await rig.opened("ana"), await rig.opened("bo")
        await parked(ana, 1, 2)
        await ana.say(action(ana.address, 3))
        assert code_and_reason(await ana.next()) == (429, "quota")
        await parked(bo, 1)
        await bo.say(action(bo.address, 2))
        assert code_and_reason(await bo.next()) == (429, "quota")
        await bo.say(action(bo.address, 3, to=f"thing://{DOMAIN}/agent-5/lamp-1/actions/switch"))
        assert (await bo.next())["body"]["code"] == 202
        agent = await an_agent(rig)
        assert len(await agent.heard()) == 3


async def test_an_action_that_the_disk_does_not_take_is_refused_and_nobody_gets_it(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise HostError(Code.STORAGE, "no space left")

    ana = await rig.opened("ana")
    with monkeypatch.context() as full_disk:
        full_disk.setattr(rig.store, "submit", refuse)
        await ana.say(action(ana.address, 1))
        assert code_and_reason(await ana.next()) == (500, "storage")
    agent = await an_agent(rig)
    assert await agent.heard() == []


async def test_a_cancelled_action_stays_cancelled_when_the_node_is_killed(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        ana = await rig.opened("ana")
        cancelled, kept = await parked(ana, 1, 2)
        assert (await ana.ask("delete", DELIVERY, {"resource": cancelled}))["body"]["code"] == 200
    async with runtime_rig(tmp_path) as again:
        agent = await again.opened("lamps")
        await agent.say(a_message("subscribe", agent.address, SM, {"resources": [AGENT]}, id_=1))
        await agent.next()
        assert (await agent.next())["body"]["requestId"] == kept
        assert await agent.heard() == []


async def test_what_an_agent_works_on_and_is_cancelled_while_it_is_away_is_asked_for_when_it_is_back(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    (request_id,) = await parked(ana, 1)
    agent = await an_agent(rig)
    await agent.say(answer_to(await agent.next(), {"code": 100}))
    assert (await ana.next())["body"]["status"] == "delivered"
    await agent.wire.cut()
    await rig.until("sessions lost")
    assert (await ana.ask("delete", DELIVERY, {"resource": request_id}))["body"]["code"] == 202
    back = await rig.runtime()
    back.address = agent.session_address
    await back.ask("re-open", "mn:/session")
    wish = await back.next()
    assert (wish["type"], wish["body"]["resource"]) == ("delete", request_id)


async def test_operators_see_and_cancel_everything_and_the_sender_is_notified(tmp_path: Path) -> None:
    token = Credential(digest_of("secret"), runtime_address("boss"), frozenset({"operator"}))
    async with runtime_rig(tmp_path, credentials=[token]) as rig:
        ana, boss = await rig.opened("ana"), await rig.runtime()
        await boss.open("boss", {"credentials": {"kind": "bearer", "token": "secret"}})
        (request_id,) = await parked(ana, 1)
        listed = await boss.ask("read", DELIVERY, {"criteria": {"from": ana.address}})
        assert [one["requestId"] for one in listed["body"]["value"]] == [request_id]
        assert (await boss.ask("delete", DELIVERY, {"resource": request_id}))["body"]["code"] == 200
        event = await ana.next()
        assert (event["body"]["requestId"], event["body"]["status"]) == (request_id, "cancelled")


@pytest.mark.parametrize("to", ["publisher", "user://alpha.example/ana", "thing://alpha.example", "mn:/x"])
async def test_an_action_for_an_address_that_nobody_can_own_is_refused(rig: RuntimeRig, to: str) -> None:
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1, to=to))
    assert (await ana.next())["body"]["code"] == 404
    assert len(rig.state.delivery.parking) == 0
