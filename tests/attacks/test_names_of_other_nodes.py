"""Runtimes that use names whose owners are at another node of the domain: they are refused like at one node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster_rig import cluster_rig
from tests.support.runtime_rig import DOMAIN, Json, Runtime, RuntimeRig, a_message, code_and_reason

REGISTRY = f"domain://registry.{DOMAIN}"


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[tuple[RuntimeRig, RuntimeRig]]:
    async with cluster_rig(tmp_path) as (one, two):
        yield one, two


async def heard_until(runtime: Runtime, mark: str) -> list[Json]:
    """What a runtime hears before a mark of the attacker, which is sent last."""
    heard = []
    while (message := await runtime.next()).get("body") != {"mark": mark}:
        heard.append(message)
    return heard


async def test_nobody_speaks_as_a_runtime_or_an_address_of_another_node(nodes: tuple[RuntimeRig, RuntimeRig]) -> None:
    one, two = nodes
    ana, bo, eve = await one.opened("ana"), await one.opened("bo"), await two.opened("eve")
    address = await ana.allocated()
    for name in (ana.address, f"{ana.address}/hyperty", address, f"{address}/changes"):
        assert code_and_reason(await eve.ask("read", bo.address, from_=name)) == (403, "not-owner"), name
        await eve.say(a_message("message", name, bo.address, {"spoof": name}))
    await eve.say(a_message("message", eve.address, bo.address, {"mark": "end"}))
    assert await heard_until(bo, "end") == []


async def test_nobody_becomes_the_reporter_of_an_object_of_another_node(nodes: tuple[RuntimeRig, RuntimeRig]) -> None:
    one, two = nodes
    ana, bo, eve = await one.opened("ana"), await one.opened("bo"), await two.opened("eve")
    thing = await ana.allocated("comm")
    assert (await bo.subscribed(f"{thing}/changes"))["body"]["code"] == 200
    assert code_and_reason(await eve.subscribed(f"{thing}/subscription")) == (403, "not-owner")
    for name in (eve.address, thing):
        await eve.say(a_message("update", name, f"{thing}/changes", {"value": "forged"}))
    await eve.say(a_message("message", eve.address, bo.address, {"mark": "end"}))
    assert await heard_until(bo, "end") == []


async def test_who_claims_an_address_of_another_node_does_not_have_it_for_a_moment(
    nodes: tuple[RuntimeRig, RuntimeRig],
) -> None:
    one, two = nodes
    ana, bo, eve = await one.opened("ana"), await two.opened("bo"), await two.opened("eve")
    contested = f"comm://{DOMAIN}/contested"
    assert (await ana.subscribed(contested))["body"]["code"] == 200
    claim = a_message("subscribe", eve.address, f"domain://msg-node.{DOMAIN}/sm", {"resources": [contested]}, id_=1)
    forged = a_message("message", contested, bo.address, {"spoof": 1})
    entry = {"user": f"user://{DOMAIN}/eve", "url": contested, "descriptor": "x", "expires": 60}
    entry |= {"dataSchemes": ["comm"], "resources": ["chat"], "runtime": eve.address}
    register = a_message("create", eve.address, REGISTRY, {"value": entry}, id_=2)
    end = a_message("message", eve.address, bo.address, {"mark": "end"})
    await eve.say(claim, forged, register, end)  # in one read
    assert await heard_until(bo, "end") == []
    answers = {reply["id"]: code_and_reason(reply) for reply in [await eve.next() for _ in range(2)]}
    assert answers == {1: (409, "address-taken"), 2: (403, "not-owner")}
    await bo.say(a_message("message", bo.address, contested, {"n": 1}))
    assert (await ana.next())["body"] == {"n": 1}
    assert two.state.listeners.targets(contested) == ()
    assert await eve.heard() == []
