"""Message specification, section 21: spellings of addresses. One test per row, through a node over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.runtime_rig import (
    DOMAIN,
    NODE,
    SESSION,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)

REGISTRY = f"domain://registry.{DOMAIN}"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


@pytest.mark.parametrize("to", ["global://registry", "global://registry/", "global://registry.", "global://registry/."])
async def test_row_7_spellings_of_the_global_registry_are_one_and_the_reply_mirrors_them(
    rig: RuntimeRig, to: str
) -> None:
    ana = await rig.opened("ana")
    reply = await ana.ask("read", to, {"resource": "user-guid://x"})
    assert (reply["from"], reply["body"]["reason"]) == (to, "connector-off")


@pytest.mark.parametrize("to", [REGISTRY, f"{REGISTRY}/", f"{REGISTRY}.", f"{REGISTRY}./"])
async def test_row_8_spellings_of_the_domain_registry_are_one(rig: RuntimeRig, to: str) -> None:
    ana = await rig.opened("ana")
    reply = await ana.ask("read", to, {"resource": f"/hyperty/user/user://{DOMAIN}/x"})
    assert (reply["from"], code_and_reason(reply)) == (to, (404, "not-registered"))


async def test_row_9_both_runtime_schemes_are_one_key_and_texts_stay(rig: RuntimeRig) -> None:
    ana = await rig.runtime()
    ana.address = f"hyperty-runtime://{DOMAIN}/ana"
    assert (await ana.ask("open", SESSION))["body"]["code"] == 200
    bo = await rig.opened("bo")
    for to in (f"runtime://{DOMAIN}/ana/sm", f"hyperty-runtime://{DOMAIN}/ana/sm"):
        await bo.say(a_message("event", bo.address, to))
        await bo.heard()
        assert [one["to"] for one in await ana.heard()] == [to]
    refused = await ana.ask("read", f"hyperty://{DOMAIN}/nobody")
    assert refused["body"]["source"] == NODE == f"runtime://{DOMAIN}/mn-1"


async def test_row_10_ctxt_and_context_are_two_objects(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    assert (await ana.subscribed(f"ctxt://{DOMAIN}/x"))["body"]["code"] == 200
    assert (await bo.subscribed(f"context://{DOMAIN}/x"))["body"]["code"] == 200
    await ana.say(a_message("event", ana.address, f"context://{DOMAIN}/x"))
    await ana.heard()
    assert len(await bo.heard()) == 1


async def test_row_72_a_single_slash_is_a_key_of_its_own(rig: RuntimeRig) -> None:
    ana = await rig.runtime()
    ana.address = "runtime:/ana"
    assert (await ana.ask("open", SESSION))["body"]["code"] == 200
    other, bo = await rig.opened("ana"), await rig.opened("bo")
    for to, receiver in (("runtime:/ana/sm", ana), ("runtime:///ana", ana), (f"runtime://{DOMAIN}/ana/sm", other)):
        await bo.say(a_message("event", bo.address, to))
        await bo.heard()
        for runtime in (ana, other):
            assert [one["to"] for one in await runtime.heard()] == ([to] if runtime is receiver else [])


@pytest.mark.parametrize("component", ["registry", "discovery"])
async def test_row_73_a_last_slash_is_no_difference_and_stays_in_the_text(rig: RuntimeRig, component: str) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    address = f"hyperty://{DOMAIN}/{component}"
    await bo.subscribed(address)
    for to in (address, f"{address}/", f"{runtime_address('bo')}/{component}/"):
        await ana.say(a_message("create", ana.address, to, id_=1))
        await ana.heard()
        assert [one["to"] for one in await bo.heard()] == [to]


async def test_row_74_a_guid_keeps_its_scheme_in_messages_and_is_found_with_and_without(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    hyperty = await ana.allocated("hyperty")
    value = {
        "url": hyperty,
        "user": f"user://{DOMAIN}/ana",
        "guid": "user-guid://kS3Qd0x",
        "descriptor": "d",
        "runtime": ana.address,
    }
    assert (await ana.ask("create", REGISTRY, {"value": value}))["body"]["code"] == 200
    for guid in ("user-guid://kS3Qd0x", "kS3Qd0x"):
        found = await bo.ask("read", REGISTRY, {"resource": f"/hyperty/guid/{guid}"})
        assert list(found["body"]["value"]) == [hyperty]
    await ana.say(a_message("event", ana.address, bo.address, {"identity": {"guid": "user-guid://kS3Qd0x"}}))
    await ana.heard()
    assert [one["body"]["identity"] for one in await bo.heard()] == [{"guid": "user-guid://kS3Qd0x"}]
