"""Runtimes of other domains: what they lease is counted for their domain as a whole, and ends with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.rules import Rules
from tests.support.runtime_house import (
    ALLOCATION,
    DOMAIN,
    FOREIGN,
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeHouse,
    code_and_reason,
    runtime_address,
    runtime_house,
)

THIRD = "gamma.example"
CREDENTIALS = [
    Credential(digest_of("beta"), f"runtime://{FOREIGN}/*"),
    Credential(digest_of("gamma"), f"runtime://{THIRD}/*"),
    Credential(digest_of("ops"), runtime_address("ops"), frozenset({"operator"})),
]


@asynccontextmanager
async def guest_house(folder: Path) -> AsyncIterator[RuntimeHouse]:
    rules = Rules(guest_addresses=3)
    async with runtime_house(folder, credentials=CREDENTIALS, allows_guests=True, rules=rules) as house:
        yield house


async def session_of(house: RuntimeHouse, address: str, token: str) -> Runtime:
    runtime = await house.runtime(bearer=token)
    runtime.address = address
    assert (await runtime.ask("open", SESSION))["body"]["code"] == 200
    return runtime


async def guest(house: RuntimeHouse, name: str) -> Runtime:
    return await session_of(house, f"runtime://{FOREIGN}/{name}", "beta")


async def leased(runtime: Runtime, number: int) -> Json:
    return await runtime.ask("create", ALLOCATION, {"value": {"number": number}})


async def test_guests_of_one_domain_share_its_quota_and_others_do_not_notice(tmp_path: Path) -> None:
    async with guest_house(tmp_path) as house:
        bo, eve = await guest(house, "bo"), await guest(house, "eve")
        other = await session_of(house, f"runtime://{THIRD}/rt", "gamma")
        ana = await house.opened("ana")
        assert code_and_reason(await leased(bo, 2)) == (200, "")
        assert code_and_reason(await leased(eve, 2)) == (429, "quota")
        assert code_and_reason(await leased(eve, 1)) == (200, "")
        claim = {"resources": [f"hyperty://{DOMAIN}/self-made"]}
        assert code_and_reason(await eve.ask("subscribe", SM, claim)) == (429, "quota")
        assert code_and_reason(await leased(other, 3)) == (200, "")
        assert code_and_reason(await leased(ana, 50)) == (200, "")


async def test_what_a_guest_leased_is_free_again_when_its_connection_ends(tmp_path: Path) -> None:
    async with guest_house(tmp_path) as house:
        bo, eve = await guest(house, "bo"), await guest(house, "eve")
        assert code_and_reason(await leased(bo, 3)) == (200, "")
        assert code_and_reason(await leased(eve, 1)) == (429, "quota")
        await bo.wire.cut()
        await house.until("sessions closed")
        assert code_and_reason(await leased(eve, 3)) == (200, "")


async def test_released_leases_can_be_had_again(tmp_path: Path) -> None:
    async with guest_house(tmp_path) as house:
        bo = await guest(house, "bo")
        allocated = (await leased(bo, 3))["body"]["value"]["allocated"]
        assert code_and_reason(await leased(bo, 1)) == (429, "quota")
        await bo.ask("delete", ALLOCATION, {"childrenResources": allocated[:1]})
        assert code_and_reason(await leased(bo, 1)) == (200, "")


async def test_operators_see_what_the_guests_of_a_domain_have(tmp_path: Path) -> None:
    async with guest_house(tmp_path) as house:
        bo, eve = await guest(house, "bo"), await guest(house, "eve")
        await leased(bo, 1)
        await leased(eve, 1)
        ops = await session_of(house, runtime_address("ops"), "ops")
        value = (await ops.ask("read", ALLOCATION, {"resource": FOREIGN}))["body"]["value"]
        assert (value["limit"], [one["guest"] for one in value["resources"]]) == (3, [True, True])
        assert (await ops.ask("read", ALLOCATION, {"resource": THIRD}))["body"]["value"] == {"resources": []}
        own = (await eve.ask("read", ALLOCATION, {"resource": FOREIGN}))["body"]["value"]
        assert len(own["resources"]) == 1
