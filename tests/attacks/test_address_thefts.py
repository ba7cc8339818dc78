"""A runtime that wants what belongs to another: by look-alike prefixes, by releasing, by claiming, or by sheer number.

Each attack is made over a socket, and afterwards the victim still has and gets everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protofly.limits import ALLOCATION_NUMBER, ALLOCATION_PER_SESSION, RESOURCES_ENTRIES, SUBSCRIPTIONS_PER_SESSION
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    SM,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)

ROOM = f"comm://{DOMAIN}/room"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def still_gets(victim: Runtime, attacker: Runtime, to: str) -> None:
    """The victim gets what is sent to an address of its own, and the attacker does not."""
    await attacker.heard()
    await attacker.say(a_message("create", attacker.address, to, {"value": "for the owner"}, id_=77))
    assert [one for one in await attacker.heard() if one.get("type") == "create"] == []
    assert [one["id"] for one in await victim.heard() if one["to"] == to] == [77]


# Prefixes.


@pytest.mark.parametrize("attacker", ["rt-a", "rt-an", "rt-ana2", "rt-ana-2", "rt"])
async def test_a_runtime_with_a_look_alike_name_gets_and_releases_nothing(rig: RuntimeRig, attacker: str) -> None:
    ana, eve = await rig.opened("rt-ana"), await rig.opened(attacker)
    await ana.ask("create", ALLOCATION, {"value": {"number": 1, "allocationKey": ana.address}})
    owned = (await ana.ask("read", ALLOCATION))["body"]["value"]
    for resource in (eve.address, ana.address, ana.address[:-1], f"{ana.address}/"):
        await eve.ask("delete", ALLOCATION, {"resource": resource})
        await eve.ask("unsubscribe", SM, {"resources": [resource]})
    assert (await ana.ask("read", ALLOCATION))["body"]["value"] == owned
    assert code_and_reason(await eve.subscribed(f"{ana.address}/*")) == (403, "not-owner")
    assert code_and_reason(await eve.subscribed(f"{ana.address}/sm")) == (403, "not-owner")
    assert (await eve.subscribed(f"{eve.address}/*"))["body"]["code"] == 200
    await still_gets(ana, eve, f"{ana.address}/sm")


async def test_what_begins_like_the_address_of_another_is_another_address(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    await ana.subscribed(ROOM)
    assert (await eve.subscribed(f"{ROOM}-2"))["body"]["code"] == 200
    for stolen in (f"{ROOM}/", f"{ROOM.upper()[:4]}{ROOM[4:]}", f"{ROOM}/*", f"{ROOM}/subscription"):
        assert code_and_reason(await eve.subscribed(stolen)) == (403, "not-owner")
    await eve.ask("delete", ALLOCATION, {"resource": f"{ROOM}-2"})
    await still_gets(ana, eve, ROOM)


async def test_an_address_below_that_of_another_is_not_claimed(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    hyperty = await ana.allocated("hyperty")
    assert code_and_reason(await eve.subscribed(f"{hyperty}/x")) == (403, "not-owner")
    refused = await eve.ask("read", ana.address, from_=f"{hyperty}/x")
    assert code_and_reason(refused) == (403, "not-owner")


# Release.


@pytest.mark.parametrize("form", ["resource", "childrenResources", "resources", "value"])
async def test_nobody_releases_the_address_of_another(rig: RuntimeRig, form: str) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    room = await ana.allocated()
    body = (
        {"value": {"childrenResources": [room]}} if form == "value" else {form: room if form == "resource" else [room]}
    )
    reply = await eve.ask("delete", ALLOCATION, body)
    assert (reply["body"]["code"], reply["body"]["value"]) == (200, {"refused": [room]})
    await still_gets(ana, eve, room)


async def test_a_session_address_is_no_key_to_the_block_of_another(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    reply = await ana.ask("create", ALLOCATION, {"value": {"number": 2, "allocationKey": "k"}})
    await eve.ask("create", ALLOCATION, {"value": {"number": 1, "allocationKey": "k"}})
    assert (await eve.ask("delete", ALLOCATION, {"resource": "k"}))["body"]["code"] == 200
    for url in reply["body"]["value"]["allocated"]:
        await still_gets(ana, eve, url)


# Numbers.


async def test_ten_thousand_resources_in_one_request_are_too_large_and_leave_nothing(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    await ana.subscribed(f"{ROOM}/changes")
    reply = await eve.subscribed(*(f"comm://{DOMAIN}/{number}/changes" for number in range(10_000)))
    assert code_and_reason(reply) == (413, "too-large")
    assert (await eve.ask("read", SM))["body"]["value"] == {"resources": []}
    assert (await ana.ask("read", SM))["body"]["value"]["resources"] != []


async def test_ten_thousand_subscriptions_are_the_most_and_neighbours_feel_nothing(rig: RuntimeRig) -> None:
    ana, bo, eve = [await rig.opened(name) for name in ("ana", "bo", "eve")]
    room = await ana.allocated()
    await bo.subscribed(f"{room}/changes")
    for start in range(0, SUBSCRIPTIONS_PER_SESSION, RESOURCES_ENTRIES):
        urls = [f"comm://{DOMAIN}/{number}/changes" for number in range(start, start + RESOURCES_ENTRIES)]
        assert (await eve.subscribed(*urls))["body"]["code"] == 200
    assert code_and_reason(await eve.subscribed(f"{room}/changes")) == (429, "quota")
    assert (await bo.subscribed(f"{room}/children/m"))["body"]["code"] == 200
    await ana.say(a_message("update", room, f"{room}/changes", {"value": 1}))
    await ana.heard()
    assert len(await bo.heard()) == 1
    await eve.ask("unsubscribe", SM, {"resources": [f"comm://{DOMAIN}/0/changes"]})
    assert (await eve.subscribed(f"{room}/changes"))["body"]["code"] == 200


async def test_a_session_that_takes_all_addresses_it_can_leaves_its_neighbours_theirs(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.opened("eve")
    body = {"value": {"number": ALLOCATION_NUMBER}}
    for _ in range(ALLOCATION_PER_SESSION // ALLOCATION_NUMBER):
        assert (await eve.ask("create", ALLOCATION, body))["body"]["code"] == 200
    assert code_and_reason(await eve.ask("create", ALLOCATION)) == (429, "quota")
    assert code_and_reason(await eve.subscribed(f"{ROOM}-eve")) == (429, "quota")
    assert rig.state.owners.owner(f"{ROOM}-eve") is None
    await still_gets(ana, eve, await ana.allocated())


async def test_children_of_a_thousand_names_cost_one_refusal(rig: RuntimeRig) -> None:
    eve = await rig.opened("eve")
    names = [f"c{number}" for number in range(RESOURCES_ENTRIES + 1)]
    reply = await eve.ask("subscribe", SM, {"resource": ROOM, "childrenResources": names})
    assert code_and_reason(reply) == (413, "too-large")
    assert rig.state.listeners.count(rig.state.sessions.by_runtime(runtime_address("eve")) or 0) == 0
