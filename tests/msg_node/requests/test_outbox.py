"""Actions between domains, seen from either node: kept until the other one answers, done once, reported once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from federation.links.link_context import Refusal
from protofly import codec
from protofly.errors import Code
from protofly.limits import OUTBOX_ASK_SECONDS, OUTBOX_GRACE_SECONDS
from tests.msg_node.requests.test_actions import AGENT, DELIVERY, action, an_agent, answer_to
from tests.support.runtime_rig import (
    FOREIGN,
    PATIENCE_SECONDS,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

THEIR_SWITCH = f"thing://{FOREIGN}/agent-9/lamp-1/actions/switch"
THEIR_DELIVERY = f"domain://msg-node.{FOREIGN}/delivery"
BO = f"hyperty://{FOREIGN}/h-bo"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


def from_them(rig: RuntimeRig, *messages: Json, domain: str = FOREIGN) -> list[Code | None]:
    return rig.bus.from_links.take(domain, [parsed(one) for one in messages])


async def sent(rig: RuntimeRig, number: int = 1) -> list[Json]:
    """What left for another domain, as soon as so much has."""
    with trio.fail_after(PATIENCE_SECONDS):
        while len(rig.domains.sent) < number:
            await trio.lowlevel.checkpoint()
    return rig.domains.take()


async def parked_abroad(rig: RuntimeRig, ana: Runtime, id_: int = 1) -> str:
    rig.domains.away.add(FOREIGN)
    await ana.say(action(ana.address, id_, to=THEIR_SWITCH))
    reply = await ana.next()
    assert (reply["body"]["code"], reply["body"]["status"]) == (202, "pending")
    assert rig.domains.take() == []
    return str(reply["body"]["requestId"])


def link_returns(rig: RuntimeRig) -> None:
    rig.domains.away.discard(FOREIGN)
    rig.bus.from_links.link_is_live(FOREIGN)


async def test_over_a_live_link_the_action_goes_at_once_with_its_id_and_time_and_its_answer_comes_back(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1, to=THEIR_SWITCH, ttl=60))
    (request,) = await sent(rig)
    assert 0 < request["body"]["ttl"] <= 60
    request_id = request["body"]["requestId"]
    body = {"code": 200, "requestId": request_id, "status": "completed", "value": 7}
    assert from_them(rig, answer_to(request, body)) == [None]
    reply = await ana.next()
    assert (reply["id"], reply["body"]["status"], reply["body"]["value"]) == (1, "completed", 7)
    assert len(rig.state.delivery.parking) == 0


async def test_an_action_for_a_domain_that_is_away_is_parked_and_goes_once_when_its_link_is_there(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    request_id = await parked_abroad(rig, ana)
    assert rig.domains.reached == [FOREIGN]
    assert rig.bus.from_links.is_wanted(FOREIGN)
    link_returns(rig)
    (request,) = await sent(rig)
    assert request["body"]["requestId"] == request_id
    their_word = {"code": 202, "requestId": request_id, "status": "pending"}
    assert from_them(rig, answer_to(request, their_word)) == [None]
    assert (await ana.ask("read", DELIVERY, {"resource": request_id}))["body"]["value"]["status"] == "pending"
    body = {"class": "event", "requestId": request_id, "status": "completed", "code": 200, "value": 7}
    event = a_message("update", THEIR_DELIVERY, f"{ana.address}/inbox", body, id_=9)
    assert from_them(rig, event, event) == [None, None]
    notice = await ana.next()
    assert (notice["from"], notice["body"]["requestId"], notice["body"]["value"]) == (DELIVERY, request_id, 7)
    assert not rig.bus.from_links.is_wanted(FOREIGN)


async def test_after_every_new_link_what_is_open_is_asked_again_under_its_id_and_ends_by_the_answer(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    request_id = await parked_abroad(rig, ana)
    link_returns(rig)
    (request,) = await sent(rig)
    from_them(rig, answer_to(request, {"code": 202, "requestId": request_id, "status": "delivered"}))
    assert (await ana.next())["body"]["status"] == "delivered"
    rig.bus.from_links.link_is_live(FOREIGN)
    (again,) = await sent(rig)
    assert again["body"]["requestId"] == request_id
    from_them(rig, answer_to(again, {"code": 200, "requestId": request_id, "status": "completed"}))
    assert (await ana.next())["body"]["status"] == "completed"
    assert await ana.heard() == []


async def test_what_a_link_gives_back_waits_for_the_next_one(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    request_id = await parked_abroad(rig, ana)
    link_returns(rig)
    (request,) = await sent(rig)
    rig.domains.away.add(FOREIGN)
    rig.bus.refusals.answer(codec.refusal(parsed(request), Code.DEPLOY_TIMEOUT))
    assert await ana.heard() == []
    link_returns(rig)
    assert [one["body"]["requestId"] for one in await sent(rig)] == [request_id]


@pytest.mark.parametrize("is_away", [False, True])
async def test_what_our_gate_refuses_is_refused_at_once(rig: RuntimeRig, is_away: bool) -> None:
    ana = await rig.opened("ana")
    if is_away:
        rig.domains.away.add(FOREIGN)
    rig.domains.refusals[FOREIGN] = Refusal(Code.POLICY)
    await ana.say(action(ana.address, 1, to=THEIR_SWITCH))
    assert code_and_reason(await ana.next()) == (403, "policy")
    assert len(rig.state.delivery.parking) == 0


async def test_what_the_gate_refuses_when_the_link_is_back_has_failed(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    request_id = await parked_abroad(rig, ana)
    rig.domains.refusals[FOREIGN] = Refusal(Code.POLICY)
    link_returns(rig)
    event = await ana.next()
    assert (event["body"]["requestId"], event["body"]["status"], event["body"]["code"]) == (request_id, "failed", 403)


async def test_words_about_our_requests_count_from_their_own_domain_only(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    request_id = await parked_abroad(rig, ana)
    link_returns(rig)
    (request,) = await sent(rig)
    forged = {"code": 200, "requestId": request_id, "status": "completed", "class": "event"}
    from_them(rig, answer_to(request, forged), domain="gamma.example")
    event = a_message("update", "domain://msg-node.gamma.example/delivery", f"{ana.address}/inbox", forged, id_=9)
    from_them(rig, event, domain="gamma.example")
    assert rig.state.delivery.parking.find("", request_id) is not None


async def test_an_action_of_another_domain_waits_here_and_its_result_goes_to_the_senders_inbox_there(
    rig: RuntimeRig,
) -> None:
    request = action(BO, 5, requestId="d-0123456789", ttl=60)
    assert from_them(rig, request) == [None]
    (reply,) = await sent(rig)
    assert (reply["id"], reply["to"], reply["body"]["code"]) == (5, BO, 202)
    assert reply["body"]["requestId"] == "d-0123456789"
    assert from_them(rig, request) == [None]
    assert [one["body"]["status"] for one in await sent(rig)] == ["pending"]
    agent = await an_agent(rig)
    (taken,) = await agent.heard()
    await agent.say(answer_to(taken, {"code": 200, "value": 7}))
    (event,) = await sent(rig)
    assert (event["type"], event["from"], event["to"]) == ("update", DELIVERY, f"{BO}/inbox")
    assert (event["body"]["requestId"], event["body"]["value"]) == ("d-0123456789", 7)


async def test_what_another_domain_hands_over_again_is_not_done_again_even_after_its_end(rig: RuntimeRig) -> None:
    agent = await an_agent(rig)
    request = action(BO, 5, requestId="d-0123456789", ttl=60)
    from_them(rig, request, request)
    (taken,) = await agent.heard()
    await agent.say(answer_to(taken, {"code": 200, "value": 7}))
    (reply,) = await sent(rig)
    assert (reply["type"], reply["body"]["value"]) == ("response", 7)
    from_them(rig, request)
    (again,) = await sent(rig)
    assert (again["id"], again["body"]["status"], again["body"]["value"]) == (5, "completed", 7)
    assert await agent.heard() == []


async def test_another_domain_neither_reads_nor_cancels_what_is_not_its_own(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1))
    request_id = (await ana.next())["body"]["requestId"]
    for type_ in ("read", "delete"):
        from_them(rig, a_message(type_, BO, DELIVERY, {"resource": request_id}, id_=3))
        assert [code_and_reason(one) for one in await sent(rig)] == [(404, "no-such-request")]
    assert len(rig.state.delivery.parking.queues.entries(AGENT)) == 1


async def test_cancelling_what_the_other_node_has_is_asked_there_and_its_answer_decides(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    request_id = await parked_abroad(rig, ana)
    link_returns(rig)
    (request,) = await sent(rig)
    from_them(rig, answer_to(request, {"code": 202, "requestId": request_id, "status": "pending"}))
    reply = await ana.ask("delete", DELIVERY, {"resource": request_id})
    assert reply["body"]["code"] == 202
    (wish,) = await sent(rig)
    assert (wish["type"], wish["to"], wish["body"]["resource"]) == ("delete", THEIR_DELIVERY, request_id)
    from_them(rig, answer_to(wish, {"code": 200, "value": {"status": "cancelled"}}))
    event = await ana.next()
    assert (event["body"]["requestId"], event["body"]["status"]) == (request_id, "cancelled")


async def test_the_other_node_cancels_its_own_request_here(rig: RuntimeRig) -> None:
    from_them(rig, action(BO, 5, requestId="d-0123456789", ttl=60))
    await sent(rig)
    wish = a_message("delete", THEIR_DELIVERY, DELIVERY, {"resource": "d-0123456789"}, id_=8)
    from_them(rig, wish)
    with trio.fail_after(PATIENCE_SECONDS):
        while len(rig.domains.sent) < 1:
            await trio.lowlevel.checkpoint()
    replies = rig.domains.take()
    assert [one["body"]["code"] for one in replies if one["type"] == "response"] == [200]
    agent = await an_agent(rig)
    assert await agent.heard() == []


async def test_a_node_that_keeps_a_request_is_asked_again_after_a_while_and_heard_a_little_after_its_time(
    rig: RuntimeRig,
) -> None:
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1, to=THEIR_SWITCH, ttl=400))
    (request,) = await sent(rig)
    request_id = request["body"]["requestId"]
    kept = answer_to(request, {"code": 202, "requestId": request_id, "status": "pending"})
    from_them(rig, kept)
    assert (await ana.next())["body"]["code"] == 202
    now = time.time()
    rig.bus.parked_actions.tick(now)
    assert rig.domains.take() == []
    rig.bus.parked_actions.tick(now + OUTBOX_ASK_SECONDS)
    assert [one["body"]["requestId"] for one in await sent(rig)] == [request_id]
    from_them(rig, kept)
    rig.bus.parked_actions.sweep(now + 401)
    assert rig.state.delivery.parking.find("", request_id) is not None
    body = {"class": "event", "requestId": request_id, "status": "completed", "code": 200}
    from_them(rig, a_message("update", THEIR_DELIVERY, f"{ana.address}/inbox", body, id_=9))
    assert (await ana.next())["body"]["status"] == "completed"


async def test_a_node_that_keeps_a_request_and_says_nothing_is_not_waited_for(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    await ana.say(action(ana.address, 1, to=THEIR_SWITCH, ttl=400))
    (request,) = await sent(rig)
    from_them(rig, answer_to(request, {"code": 202, "status": "pending"}))
    await ana.next()
    rig.bus.parked_actions.sweep(time.time() + 401)
    rig.bus.parked_actions.sweep(time.time() + 401 + OUTBOX_GRACE_SECONDS)
    assert (await ana.next())["body"]["status"] == "expired"
