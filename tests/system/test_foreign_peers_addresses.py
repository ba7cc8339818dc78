"""Nodes of other makes learn our addresses: their runtimes write first, and both sides observe objects abroad."""

from __future__ import annotations

from pathlib import Path

from .dialects import Dialect, bruno_of, each_dialect
from .peer_stubs import OURS, THEIRS, peering

SM = f"domain://msg-node.{THEIRS}/sm"
STAY = "stay_connected = true\n"
OBJECTS_ONLY = """
id = "objects-only"
version = "1"
rule_combining_algorithm = "first-applicable"

[[rules]]
id = "no-hyperties"
effect = "deny"
condition = { hook = { equals = "in" }, dstScheme = { equals = "hyperty" } }
"""


@each_dialect
async def test_we_observe_an_object_of_theirs_also_after_their_node_was_started_anew(
    tmp_path: Path, dialect: Dialect
) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub) as system:
        anna, changes = system.anna, f"comm://{THEIRS}/room/changes"
        answer = await anna.client.request("subscribe", anna.client.runtime, SM, {"resources": [changes]})
        assert answer.is_ok
        bruno, hyperty = await bruno_of(system.node)
        bruno.say("update", hyperty, changes, {"value": 1})
        assert await anna.hear_numbers(hyperty, 1) == [1]
        await node.kill()
        await system.wait_state("disconnected")
        await node.start()
        await node.wait_received(type="subscribe", resource=changes, count=2)
        bruno, hyperty = await bruno_of(system.node)
        bruno.say("update", hyperty, changes, {"value": 2})
        assert await anna.hear_numbers(hyperty, 1) == [2]


@each_dialect
async def test_they_write_to_an_address_of_ours_that_never_wrote_to_them(tmp_path: Path, dialect: Dialect) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY) as system:
        await node.wait_received(type="subscribe", resource=system.anna.hyperty)
        bruno, hyperty = await bruno_of(system.node)
        assert (await bruno.ask("create", hyperty, system.anna.hyperty, {"value": 8}))["code"] == 200
        carla = await system.talker("carla")  # one that came later
        await node.wait_received(type="subscribe", resource=carla.hyperty)
        assert (await bruno.ask("create", hyperty, carla.hyperty, {"value": 9}))["code"] == 200
        assert (system.anna.numbers_from(hyperty), carla.numbers_from(hyperty)) == ([8], [9])
        await carla.client.close()
        await node.wait_received(type="unsubscribe", resource=carla.hyperty)


@each_dialect
async def test_they_observe_an_object_of_ours_by_a_subscription_at_their_own_node(
    tmp_path: Path, dialect: Dialect
) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY) as system:
        anna = system.anna
        [room] = await anna.client.at(OURS).allocate("comm", 1)
        await node.wait_received(type="subscribe", resource=f"{room}/subscription")
        bruno, _ = await bruno_of(system.node)
        assert (await bruno.ask("subscribe", bruno.url, SM, {"resources": [f"{room}/changes"]}))["code"] == 200
        await anna.client.notify("update", anna.hyperty, f"{room}/changes", {"value": 5})
        await bruno.wait_for(lambda: bruno.numbers_from(anna.hyperty) == [5])


@each_dialect
async def test_they_hear_of_no_address_that_the_policy_keeps_from_them(tmp_path: Path, dialect: Dialect) -> None:
    node = dialect.make(THEIRS)
    async with peering(tmp_path, node, dialect.stub, more=STAY, policy=OBJECTS_ONLY) as system:
        [shown] = await system.anna.client.at(OURS).allocate("comm", 1)
        await node.wait_received(type="subscribe", resource=f"{shown}/subscription")
        named = {one for message in node.received for one in (message.get("body") or {}).get("resources", [])}
        assert named == {shown, f"{shown}/subscription"}
