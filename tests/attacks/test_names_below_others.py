"""A runtime at one node wants the names below what a runtime at another node of the domain owns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import Runtime, a_message, code_and_reason

AGENT = "thing://alpha.example/dev"


async def asked(asker: Runtime, target: str, *types: str) -> None:
    """Send messages of anybody to an address; their answers do not matter."""
    for type_ in types:
        await asker.say(a_message(type_, asker.address, target, {"value": "for the owner"}, id_=type_))


@pytest.mark.parametrize("below", ["/x", "/x/y", "?x", "#x"])
async def test_what_is_below_a_hyperty_at_another_node_is_nobody_elses(tmp_path: Path, below: str) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, mallory, bo = await one.opened("ana"), await two.opened("mallory"), await two.opened("bo")
        name = await ana.allocated("hyperty") + below
        assert code_and_reason(await mallory.subscribed(name)) == (409, "address-taken")
        assert code_and_reason(await mallory.subscribed(name)) == (409, "address-taken")
        await asked(bo, name, "read", "execute", "update", "event")
        assert await mallory.heard() == []
        assert two.state.owners.claimant(name) is None
        assert name not in node_of(two).directory.claims


@pytest.mark.parametrize("below", ["/lamp", "/lamp/actions/on"])
async def test_what_is_below_an_agent_at_another_node_is_heard_and_not_owned(tmp_path: Path, below: str) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, mallory, bo = await one.opened("ana"), await two.opened("mallory"), await two.opened("bo")
        assert code_and_reason(await ana.subscribed(AGENT)) == (200, "")
        name = AGENT + below
        assert code_and_reason(await mallory.subscribed(name)) == (200, "")
        await asked(bo, name, "read", "execute")
        assert [(await ana.next())["type"] for _ in range(2)] == ["read", "execute"]
        assert await mallory.heard() == []
        reply = await mallory.ask("read", bo.address, from_=name)
        assert code_and_reason(reply) == (403, "not-owner")
        assert name not in node_of(two).directory.claims


async def test_a_child_in_the_oldest_spelling_of_an_object_at_another_node_is_not_owned(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, mallory, bo = await one.opened("ana"), await two.opened("mallory"), await two.opened("bo")
        child = f"{await ana.allocated('comm')}/1"
        assert code_and_reason(await mallory.subscribed(child)) == (200, "")
        await asked(bo, child, "read", "execute")
        assert await mallory.heard() == []
        assert two.state.owners.claimant(child) is None


async def test_nobody_says_how_an_object_at_another_node_is(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, mallory, bo = await one.opened("ana"), await two.opened("mallory"), await two.opened("bo")
        status = f"{await ana.allocated('comm')}/status"
        assert code_and_reason(await bo.subscribed(status)) == (200, "")
        await mallory.say(a_message("event", mallory.address, status, {"value": "forged"}))
        await mallory.say(a_message("update", mallory.address, status, {"value": "forged"}))
        await mallory.heard()
        assert await bo.heard() == []
