"""Message specification, section 21: allocation and release. One test per row, through a node over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msg_node.kernel.rules import Rules
from tests.support.runtime_rig import ALLOCATION, DOMAIN, Runtime, RuntimeRig, code_and_reason, runtime_rig

HYPERTY_ALLOCATION = f"domain://msg-node.{DOMAIN}/hyperty-address-allocation"
OBJECT_ALLOCATION = f"domain://msg-node.{DOMAIN}/object-address-allocation"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def block(runtime: Runtime, number: int, key: str = "") -> list[str]:
    value = {"number": number, **({"allocationKey": key} if key else {})}
    reply = await runtime.ask("create", ALLOCATION, {"scheme": "comm", "value": value})
    addresses: list[str] = reply["body"]["value"]["allocated"]
    return addresses


async def owned(runtime: Runtime) -> set[str]:
    reply = await runtime.ask("read", ALLOCATION)
    return {one["url"] for one in reply["body"]["value"]["resources"]}


@pytest.mark.parametrize(
    ("to", "scheme"), [(ALLOCATION, "hyperty"), (HYPERTY_ALLOCATION, "hyperty"), (OBJECT_ALLOCATION, "comm")]
)
async def test_row_11_all_three_end_points_give_addresses(rig: RuntimeRig, to: str, scheme: str) -> None:
    ana = await rig.opened("ana")
    reply = await ana.ask("CREATE", to, {"value": {"number": 2}})
    assert reply["from"] == to
    assert [url.partition("://")[0] for url in reply["body"]["value"]["allocated"]] == [scheme] * 2


@pytest.mark.parametrize("body", [None, {}, {"value": {}}])
async def test_row_12_without_a_number_one_address_is_given(rig: RuntimeRig, body: dict[str, object] | None) -> None:
    ana = await rig.opened("ana")
    reply = await ana.ask("create", ALLOCATION, body)
    assert len(reply["body"]["value"]["allocated"]) == 1


async def test_row_13_release_takes_the_key_first_then_an_owned_address(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    (room,) = await block(ana, 1)
    await block(ana, 2, key=room)  # a key that is an owned address as well
    assert (await ana.ask("delete", ALLOCATION, {"resource": room}))["body"]["code"] == 200
    assert await owned(ana) == {room}
    assert (await ana.ask("delete", ALLOCATION, {"resource": room}))["body"]["code"] == 200
    assert await owned(ana) == set()


async def test_row_13_an_object_is_released_with_the_names_of_its_children(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    (room,) = await block(ana, 1)
    await ana.subscribed(f"{room}/children/m", f"{room}/m")
    reply = await ana.ask("delete", OBJECT_ALLOCATION, {"resource": room, "childrenResources": ["m"]})
    assert (reply["body"]["code"], await owned(ana)) == (200, set())
    assert rig.state.listeners.targets(f"{room}/children/m") == ()


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_row_14_lists_inside_lists_are_flattened(rig: RuntimeRig, depth: int) -> None:
    ana = await rig.opened("ana")
    listed: object = await block(ana, 3)
    for _ in range(depth):
        listed = [listed]
    assert (await ana.ask("delete", ALLOCATION, {"childrenResources": listed}))["body"]["code"] == 200
    assert await owned(ana) == set()


@pytest.mark.parametrize("member", ["childrenResources", "allocated"])
async def test_row_15_the_list_may_be_inside_value(rig: RuntimeRig, member: str) -> None:
    ana = await rig.opened("ana")
    first, second = await block(ana, 2)
    body = {"value": {member: [first]}, "childrenResources": [second]}
    assert (await ana.ask("delete", ALLOCATION, body))["body"]["code"] == 200
    assert await owned(ana) == set()


async def test_row_16_nobody_else_releases_and_learns_what_was_refused(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    mine = await block(ana, 2, key="block")
    reply = await eve.ask("delete", ALLOCATION, {"resource": "block", "childrenResources": mine})
    assert (reply["body"]["code"], reply["body"]["value"]) == (200, {"refused": mine})
    assert await owned(ana) == set(mine)


async def test_row_16_a_switch_restores_the_way_of_the_old_suite(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, rules=Rules(strict_release=False)) as rig:
        ana, other = await rig.opened("ana"), await rig.opened("other")
        await block(ana, 2, key="block")
        assert (await other.ask("delete", ALLOCATION, {"resource": "block"}))["body"]["code"] == 200
        assert await owned(ana) == set()


async def test_row_17_addresses_are_given_out_and_claimed(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    given = await block(ana, 1)
    claimed = f"hyperty://{DOMAIN}/self-made"
    assert (await ana.subscribed(claimed))["body"]["code"] == 200
    assert await owned(ana) == {*given, claimed}
    assert code_and_reason(await eve.subscribed(claimed)) == (403, "not-owner")
