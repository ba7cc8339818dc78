"""Releasing addresses where their owner is at another node of the domain."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from msg_node.cluster.directory import Claim
from protofly.errors import Code, HostError
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import ALLOCATION, Json, Runtime, code_and_reason


async def released(runtime: Runtime, *addresses: str, **more: object) -> Json:
    body: Json = (await runtime.ask("delete", ALLOCATION, {"childrenResources": list(addresses), **more}))["body"]
    return body


async def test_an_address_is_released_at_another_node_as_little_as_at_one(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo, cy = await one.opened("ana"), await two.opened("bo"), await one.opened("cy")
        room, own = await ana.allocated(), await bo.allocated()
        nobody = f"{own}-of-nobody"
        alone, apart = await released(cy, room, nobody), await released(bo, room, nobody)
        assert alone == apart
        assert apart["value"] == {"refused": [room]}
        detailed = await released(bo, room, own, detail=True)
        assert detailed["code"] == 207
        assert [(each["resource"], each["code"]) for each in detailed["value"]["resources"]] == [
            (room, 403),
            (own, 200),
        ]
        refused = await bo.ask("delete", ALLOCATION, {"resource": room})
        assert refused["body"]["value"] == {"refused": [room]}
        assert (await ana.ask("read", ALLOCATION))["body"]["value"]["resources"][0]["url"] == room


async def test_what_is_ones_own_or_nobodys_is_released_as_at_one_node(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, _):
        ana = await one.opened("ana")
        own = await ana.allocated()
        first, again = await released(ana, own), await released(ana, own)
        assert first == again
        assert first["code"] == 200
        assert "value" not in first
        assert await node_of(one).directory.find([own]) == {}


async def test_a_release_is_refused_while_it_is_not_known_who_owns_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(_: Collection[str]) -> dict[str, Claim]:
        raise HostError(Code.STATE_UNAVAILABLE, "the engine is away")

    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        room, own = await ana.allocated(), await bo.allocated()
        monkeypatch.setattr(node_of(two).directory, "find", find)
        refused = await bo.ask("delete", ALLOCATION, {"childrenResources": [room, own]})
        assert code_and_reason(refused) == (503, "state-unavailable")
        assert (await bo.ask("read", ALLOCATION))["body"]["value"]["resources"][0]["url"] == own
        assert (await bo.ask("delete", ALLOCATION, {"childrenResources": [own]}))["body"]["code"] == 200
