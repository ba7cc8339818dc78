"""Actions between two real nodes, each of them killed: parked, done once, reported once."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from interop.runtime_client import Answer, Incoming
from interop.talker import Talker

from .systems import System, running_system

AGENT = "thing://b.example/agent-1"
SWITCH = f"{AGENT}/lamp/actions/switch"
ACTIONS = 20

pytestmark = pytest.mark.long


async def act(talker: Talker, number: int, to: str = SWITCH) -> Answer:
    body = {"class": "action", "method": "switch", "value": number, "ttl": 600}
    return await talker.client.request("execute", talker.hyperty, to, body)


def actions(talker: Talker) -> list[Incoming]:
    return [one for one in talker.heard if one.type == "execute"]


def finals(talker: Talker) -> list[tuple[str, object, object]]:
    return [
        (cast("str", one.body["requestId"]), one.body["status"], one.body.get("value"))
        for one in talker.heard
        if one.to == f"{talker.hyperty}/inbox" and one.body["status"] not in ("pending", "delivered")
    ]


async def parked(talker: Talker) -> list[str]:
    answers = [await act(talker, number) for number in range(ACTIONS)]
    assert [(one.code, one.body["status"]) for one in answers] == [(202, "pending")] * ACTIONS
    return [cast("str", one.body["requestId"]) for one in answers]


async def an_agent(system: System) -> Talker:
    agent = await system.talker(system.b, "agent")
    await agent.client.at("b.example").subscribe([AGENT])
    return agent


async def test_actions_for_an_unreachable_domain_survive_our_own_kill_and_are_done_once_when_it_is_there(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path / "system") as system:
        anna = await system.talker(system.a, "anna")
        await system.kill(system.b)
        ids = await parked(anna)
        await system.kill(system.a)
        await system.start(system.a)
        await anna.open(system.nursery)
        await system.start(system.b)
        agent = await an_agent(system)
        await anna.wait_for(lambda: len(finals(anna)) >= ACTIONS)
        assert finals(anna) == [(request_id, "completed", number) for number, request_id in enumerate(ids)]
        assert [one.body["requestId"] for one in actions(agent)] == ids


async def test_actions_parked_at_the_other_node_survive_its_kill_and_their_results_that_of_ours(
    tmp_path: Path,
) -> None:
    async with running_system(tmp_path / "system") as system:
        anna, _ = await system.couple()  # the link is up: what follows waits at the other node
        ids = await parked(anna)
        await system.kill(system.b)
        await system.kill(system.a)
        await system.start(system.b)
        agent = await an_agent(system)
        await agent.wait_for(lambda: len(actions(agent)) >= ACTIONS)
        await system.start(system.a)
        await anna.open(system.nursery)
        await anna.wait_for(lambda: len(finals(anna)) >= ACTIONS)
        assert sorted(finals(anna)) == sorted((one, "completed", number) for number, one in enumerate(ids))
        assert [one.body["requestId"] for one in actions(agent)] == ids
