"""Actions between nodes of one domain: taken by the node of the agent, parked where they can be, never stranded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from msg_node.bus.core.moved_session import move_out
from protofly.address import canonical_key
from tests.msg_node.requests.test_actions import AGENT, SWITCH, action, an_agent, answer_to, parked
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import SESSION, SM, Json, Runtime, RuntimeRig, a_message


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110  another node decides
            await trio.sleep(0.01)


async def next_of(runtime: Runtime, type_: str) -> Json:
    while (message := await runtime.next()).get("type") != type_:
        pass
    return message


async def moved(runtime: Runtime, rig: RuntimeRig) -> Runtime:
    """Bring a session back at another node."""
    again = await rig.runtime()
    again.address, again.token = runtime.address, runtime.token
    reply = await again.ask("re-open", SESSION, from_=runtime.session_address)
    assert reply["body"]["code"] == 200, reply
    return again


def open_at(*rigs: RuntimeRig) -> list[int]:
    return [len(rig.state.delivery.parking) for rig in rigs]


async def test_an_agent_at_another_node_gets_an_action_like_one_here(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent, ana = await an_agent(two), await one.opened("ana")
        await ana.say(action(ana.address, 122))
        request = await agent.next()
        assert request["body"].pop("requestId").startswith("d-")
        assert request == action(ana.address, 122)
        await agent.say(answer_to(request, {"code": 200, "value": {"on": True}}))
        reply = await ana.next()
        assert (reply["id"], reply["from"], reply["to"]) == (122, SWITCH, ana.address)
        assert (reply["body"]["status"], reply["body"]["value"]) == ("completed", {"on": True})
        assert open_at(one, two) == [0, 0]


async def test_an_action_for_an_agent_that_is_away_at_another_node_is_parked_there_and_done_when_it_returns(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent, ana = await an_agent(two), await one.opened("ana")
        await agent.wire.cut()
        await until(lambda: not two.bus.send_queues.ports)
        (request_id,) = await parked(ana, 1)
        assert open_at(one, two) == [0, 1]
        again = await moved(agent, two)
        request = await next_of(again, "execute")
        assert request["body"]["requestId"] == request_id
        await again.say(answer_to(request, {"code": 200, "value": 7}))
        event = await next_of(ana, "update")
        assert (event["body"]["requestId"], event["body"]["status"], event["body"]["value"]) == (
            request_id, "completed", 7,
        )  # fmt: skip
        await until(lambda: open_at(one, two) == [0, 0])
        assert two.state.delivery.inboxes.of_owner(canonical_key(ana.address)) == []


async def test_parked_actions_go_to_the_node_where_their_agent_appears_in_order_and_once(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana = await one.opened("ana")
        ids = await parked(ana, 1, 2, 3)
        assert open_at(one, two, three) == [3, 0, 0]
        agent = await an_agent(two)
        requests = [await next_of(agent, "execute") for _ in ids]
        assert [one["body"]["requestId"] for one in requests] == ids
        assert open_at(one, two, three) == [0, 3, 0]
        agent = await moved(agent, three)  # before it has answered
        requests = [await next_of(agent, "execute") for _ in ids]
        assert [one["body"]["requestId"] for one in requests] == ids
        for request in requests:
            await agent.say(answer_to(request, {"code": 200}))
        events = [await next_of(ana, "update") for _ in ids]
        assert [(one["body"]["requestId"], one["body"]["status"]) for one in events] == [
            (request_id, "completed") for request_id in ids
        ]
        assert open_at(one, two, three) == [0, 0, 0]
        assert await agent.heard() == []


async def test_the_inbox_of_a_sender_follows_it_to_another_node(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana = await one.opened("ana")
        (request_id,) = await parked(ana, 1)
        ana = await moved(ana, two)
        agent = await one.opened("lamps")
        await agent.say(a_message("subscribe", agent.address, SM, {"resources": [AGENT]}, id_=1))
        request = await next_of(agent, "execute")
        await agent.say(answer_to(request, {"code": 200}))
        event = await next_of(ana, "update")
        assert (event["body"]["requestId"], event["body"]["status"]) == (request_id, "completed")
        assert [len(rig.state.delivery.inboxes) for rig in (one, two)] == [0, 1], "until it is acknowledged"


async def test_work_stays_while_the_node_of_its_recipient_is_cut_off_and_goes_when_it_is_back(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bus = await one.opened("ana"), node_of(one).bus
        (request_id,) = await parked(ana, 1)
        bus.cut("n2")
        agent = await an_agent(two)
        looks = node_of(one).directory
        await until(lambda: looks.claims.get(AGENT) is not None)
        assert await agent.heard() == []
        assert open_at(one, two) == [1, 0]
        bus.mend("n2")
        assert (await next_of(agent, "execute"))["body"]["requestId"] == request_id


async def test_an_action_for_an_agent_of_a_node_that_cannot_be_reached_is_parked_and_done_once_when_it_can(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent, ana = await an_agent(two), await one.opened("ana")
        await ana.say(action(ana.address, 1))  # so its place is known
        request = await next_of(agent, "execute")
        await agent.say(answer_to(request, {"code": 200}))
        assert (await next_of(ana, "response"))["body"]["status"] == "completed"
        bus = node_of(one).bus
        bus.cut("n2")
        first, second = await parked(ana, 2, 3)
        assert [entry.is_stored for entry in one.state.delivery.parking.queues.entries(AGENT)] == [True, True]
        bus.mend("n2")
        for request_id in (first, second):
            request = await next_of(agent, "execute")
            assert request["body"]["requestId"] == request_id
            await agent.say(answer_to(request, {"code": 200}))
            event = await next_of(ana, "update")
            assert (event["body"]["requestId"], event["body"]["status"]) == (request_id, "completed")
        assert await agent.heard() == []


async def test_an_action_for_an_agent_of_a_node_that_has_died_is_done_where_the_agent_comes_back(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        agent, ana = await an_agent(two), await one.opened("ana")
        session = two.state.sessions.get(two.state.sessions.by_runtime(agent.address) or 0)
        assert session is not None
        stored = move_out(two.state, session)
        node_of(two).bus.leave()
        (request_id,) = await parked(ana, 1)  # its place has to be looked up
        for rig in (one, three):
            node_of(rig).dead.add("n2")
            node_of(rig).stored[agent.address] = stored
        back = await moved(agent, three)
        assert (await next_of(back, "execute"))["body"]["requestId"] == request_id
        await until(lambda: open_at(one, three) == [0, 1])
