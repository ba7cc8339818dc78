"""Where requests stand, asked at any node of a domain: shown, listed and cancelled wherever they wait."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from msg_node.cluster.core.node_contents import QUESTION, numbered
from msg_node.requests.core.delivery_status import Status
from protofly.address import canonical_key
from tests.msg_node.requests.test_actions import AGENT, DELIVERY, action, an_agent, answer_to, parked
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import (
    FOREIGN,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    commits_held,
    parsed,
)


async def until_open(rig: RuntimeRig, count: int) -> None:
    with trio.fail_after(30):
        while len(rig.state.delivery.parking) != count:  # noqa: ASYNC110  another node decides
            await trio.sleep(0.01)


async def next_of(runtime: Runtime, type_: str) -> Json:
    while (message := await runtime.next()).get("type") != type_:
        pass
    return message


async def status_of(runtime: Runtime, request_id: str) -> str:
    reply = await runtime.ask("read", DELIVERY, {"resource": request_id})
    assert reply["body"]["code"] == 200, reply
    return str(reply["body"]["value"]["status"])


async def listed(runtime: Runtime) -> list[str]:
    reply = await runtime.ask("read", DELIVERY)
    assert reply["body"]["code"] == 200, reply
    return [one["requestId"] for one in reply["body"]["value"]]


async def away(two: RuntimeRig, agent: Runtime) -> None:
    """The agent loses its connection at another node, which parks what comes for it."""
    await agent.wire.cut()
    with trio.fail_after(30):
        while two.bus.send_queues.ports:  # noqa: ASYNC110  its listener decides
            await trio.sleep(0.01)


async def test_a_request_that_waits_at_another_node_is_shown_listed_and_cancelled_from_here(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        agent, ana, eve = await an_agent(two), await one.opened("ana"), await three.opened("eve")
        await away(two, agent)
        ids = await parked(ana, 1, 2)
        assert [len(rig.state.delivery.parking) for rig in (one, two, three)] == [0, 2, 0]
        assert await listed(ana) == ids
        assert await status_of(ana, ids[0]) == "pending"
        for verb in ("read", "delete"):
            assert code_and_reason(await eve.ask(verb, DELIVERY, {"resource": ids[0]})) == (404, "no-such-request")
        assert await listed(eve) == []
        reply = await ana.ask("delete", DELIVERY, {"resource": ids[0]})
        assert reply["body"]["value"] == {"requestId": ids[0], "status": "cancelled"}
        assert await listed(ana) == ids[1:]
        assert await status_of(ana, ids[0]) == "cancelled"
        reply = await ana.ask("delete", DELIVERY, {"resource": ids[0]})
        assert code_and_reason(reply) == (409, "already-final")
        assert two.store.load()  # what was promised is stored there
        await until_open(two, 1)


async def test_a_cancellation_is_answered_when_the_other_node_has_stored_it(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent, ana = await an_agent(two), await one.opened("ana")
        await away(two, agent)
        (request_id,) = await parked(ana, 1)
        with commits_held(two):
            await ana.say(a_message("delete", ana.address, DELIVERY, {"resource": request_id}, id_=9))
            await until_open(two, 0)
            assert await ana.heard() == []
        assert (await ana.next())["body"]["value"]["status"] == "cancelled"


async def test_an_agent_is_asked_to_leave_undone_what_is_cancelled_at_another_node(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana = await one.opened("ana")
        (request_id,) = await parked(ana, 1)
        agent = await an_agent(two)
        await next_of(agent, "execute")
        reply = await ana.ask("delete", DELIVERY, {"resource": request_id})
        assert reply["body"]["code"] == 202
        asked = await next_of(agent, "delete")
        assert asked["body"]["resource"] == request_id


async def test_while_a_node_cannot_be_asked_nobody_says_that_there_is_no_such_request(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent, ana = await an_agent(two), await one.opened("ana")
        await away(two, agent)
        (request_id,) = await parked(ana, 1)
        node_of(one).bus.cut("n2")
        for verb in ("read", "delete"):
            reply = await ana.ask(verb, DELIVERY, {"resource": request_id})
            assert code_and_reason(reply) == (503, "not-connected")
        assert await listed(ana) == []
        node_of(one).bus.mend("n2")
        assert await status_of(ana, request_id) == "pending"


async def test_a_request_that_has_gone_to_another_node_is_as_it_is_there(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana = await one.opened("ana")
        (request_id,) = await parked(ana, 1)
        agent = await an_agent(two)
        request = await next_of(agent, "execute")
        assert await status_of(ana, request_id) == "delivered"
        await agent.say(answer_to(request, {"code": 200, "value": 1}))
        await until_open(two, 0)
        assert await status_of(ana, request_id) == "completed"
        assert await status_of(agent, request_id) == "completed"


async def test_a_request_between_two_nodes_is_neither_denied_nor_shown(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, _):
        ana = await one.opened("ana")
        (request_id,) = await parked(ana, 1)
        node_of(one).work._moved.give_requests(AGENT, "n3", 0.0)
        reply = await ana.ask("read", DELIVERY, {"resource": request_id})
        assert code_and_reason(reply) == (503, "not-connected")


async def test_another_domain_cancels_at_the_node_of_its_link_what_waits_at_another_one(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent = await an_agent(two)
        await away(two, agent)
        one.bus.from_links.take(FOREIGN, [parsed(action(f"runtime://{FOREIGN}/eva", 1))])
        await until_open(two, 1)
        (taken,) = one.domains.take()
        request_id = taken["body"]["requestId"]
        node = f"domain://msg-node.{FOREIGN}/delivery"
        wish = a_message("delete", node, DELIVERY, {"resource": request_id}, id_=5)
        one.bus.from_links.take(FOREIGN, [parsed(wish)])
        await until_open(two, 0)
        finished = two.state.delivery.parking.finished.find(FOREIGN, request_id)
        assert finished is not None
        assert finished.word.status is Status.CANCELLED


@pytest.mark.parametrize("text", [b"", b"{}", b'{"viewer":{},"message":3}', b"[" * 5000])
async def test_questions_that_cannot_be_read_cost_a_node_nothing(tmp_path: Path, text: bytes) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana = await one.opened("ana")
        assert two.bus.from_nodes is not None
        two.bus.from_nodes.taken("n1", [numbered(QUESTION, 1, b"d" + text)])
        (request_id,) = await parked(ana, 1)
        assert await status_of(ana, request_id) == "pending"
        assert canonical_key(ana.address) == ana.address
