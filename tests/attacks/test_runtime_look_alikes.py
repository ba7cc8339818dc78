"""Addresses that look like those of somebody else: none gets a message, a name or a right that is not its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protofly.address import canonical_key
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    SESSION,
    SM,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)

ANA = runtime_address("rt-ana")
SPELLINGS = [
    ANA,
    f"{ANA}/",
    f"{ANA}//",
    f"{ANA}/sm",
    f"{ANA}/registry/changes",
    f"hyperty-runtime://{DOMAIN}/rt-ana",
    f"RUNTIME://{DOMAIN.upper()}./rt-ana",
    f" {ANA} ",
    f"{ANA}#",
    f"{ANA}#1",
    f"{ANA}?x=1",
    f"{ANA}/sm#1/2",
]
"""What ana may call herself, and nobody else."""
NEIGHBOURS = [
    runtime_address("rt-an"),
    runtime_address("rt-anaa"),
    runtime_address("rt-a/../rt-ana"),
    runtime_address("rt-%61na"),
    runtime_address("RT-ANA"),
    runtime_address("rt-ana.x"),
    runtime_address("rt-\u0430na"),  # a letter of another alphabet
    runtime_address("rt-ana\u200b"),
    f"runtime://{DOMAIN}:443/rt-ana",
    f"runtime://x@{DOMAIN}/rt-ana",
    f"runtime:/{DOMAIN}/rt-ana",
]
"""What looks like hers and is another address."""
NOWHERE = [f"runtime:////{DOMAIN}/rt-ana", f"runtime://{DOMAIN}../rt-ana", "runtime://alpha.example\\rt-ana"]
"""What nobody could mean."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def people(rig: RuntimeRig) -> tuple[Runtime, Runtime, Runtime]:
    """Ana, whose names are wanted; eve, whose address begins like hers; bo, who is to be deceived."""
    return await rig.opened("rt-ana"), await rig.opened("rt-a"), await rig.opened("bo")


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_nobody_speaks_in_her_name_however_it_is_spelt(rig: RuntimeRig, spelling: str) -> None:
    ana, eve, bo = await people(rig)
    await eve.say(a_message("read", spelling, bo.address, id_=1), a_message("event", spelling, bo.address))
    (refusal,) = await eve.heard()
    assert code_and_reason(refusal) in ((403, "not-owner"), (403, "spoofed-source"))
    assert await bo.heard() == await ana.heard() == []
    assert rig.counters["refused sources"] == 2


@pytest.mark.parametrize("part", ["", "#", "#1", "?x=1", "#1/2", "/x#1"])
@pytest.mark.parametrize("scheme", ["comm", "hyperty"])
async def test_nobody_takes_a_part_of_her_address(rig: RuntimeRig, scheme: str, part: str) -> None:
    ana, eve, bo = await people(rig)
    address = await ana.allocated(scheme) + part
    if "/" not in part:  # below, an object has children, which others may observe
        assert code_and_reason(await eve.subscribed(address)) == (403, "not-owner")
    await eve.say(a_message("event", address, bo.address, {"value": 1}))
    await eve.heard()
    assert await bo.heard() == []
    await ana.say(a_message("event", address, bo.address, {"value": 2}))
    await ana.heard()
    assert [one["body"]["value"] for one in await bo.heard()] == [2]


@pytest.mark.parametrize("part", ["#1", "?x"])
async def test_nobody_opens_a_session_as_a_part_of_her_runtime(rig: RuntimeRig, part: str) -> None:
    ana, other = await rig.opened("rt-ana"), await rig.runtime()
    assert code_and_reason(await other.open(f"rt-ana{part}")) == (400, "bad-header")
    assert rig.port_of("rt-ana").sid is not None
    assert await ana.heard() == []


@pytest.mark.parametrize("text", NEIGHBOURS)
async def test_what_only_looks_like_her_name_reaches_her_as_what_it_is(rig: RuntimeRig, text: str) -> None:
    ana, eve, bo = await people(rig)
    assert canonical_key(text) != canonical_key(ANA)
    await eve.say(a_message("event", text, bo.address, {"value": 1}), a_message("read", text, ana.address, id_=1))
    refusals = await eve.heard()
    for message in (*await bo.heard(), *await ana.heard()):
        assert canonical_key(message["from"]) == canonical_key(text)
    assert {one["body"]["code"] for one in refusals} <= {403, 404}
    await bo.say(a_message("event", bo.address, text, {"value": 2}))
    await bo.heard()
    assert await ana.heard() == []  # nor does she get what is sent there


@pytest.mark.parametrize("text", NOWHERE)
async def test_what_nobody_could_mean_is_refused(rig: RuntimeRig, text: str) -> None:
    ana, eve, bo = await people(rig)
    await eve.say(a_message("read", text, bo.address, id_=1), a_message("read", eve.address, text, id_=2))
    first, second = await eve.heard()
    assert code_and_reason(first) == code_and_reason(second) == (400, "bad-header")
    assert await bo.heard() == await ana.heard() == []


@pytest.mark.parametrize("below", ["", "/*", "/sm", "/inbox", "/subscription", "/registry/x"])
async def test_nobody_listens_where_only_she_may(rig: RuntimeRig, below: str) -> None:
    ana, eve, bo = await people(rig)
    for spelling in (f"{ANA}{below}", f"hyperty-runtime://{DOMAIN}/rt-ana{below}"):
        assert code_and_reason(await eve.subscribed(spelling)) == (403, "not-owner")
    await bo.say(a_message("read", bo.address, f"{ANA}{below}" if below != "/*" else ANA, {"value": 1}, id_=1))
    await bo.heard()
    assert [one["body"]["value"] for one in await ana.heard()] == [1]
    assert await eve.heard() == []


async def test_nobody_gives_back_what_she_was_given(rig: RuntimeRig) -> None:
    ana, eve, bo = await people(rig)
    address = await ana.allocated()
    for resource in (address, f"{address}/", address.replace("comm", "COMM").replace(DOMAIN, f"{DOMAIN}.")):
        for body in ({"resource": resource}, {"resources": [resource]}, {"childrenResources": [resource]}):
            assert (await eve.ask("delete", ALLOCATION, body))["body"]["value"] == {"refused": [resource]}
    begins_alike = await eve.ask("delete", ALLOCATION, {"resource": address[:-1], "childrenResources": [address[-1]]})
    assert begins_alike["body"]["code"] == 200  # an address that nobody has
    assert rig.state.owners.owner(address) == rig.port_of("rt-ana").sid
    await bo.say(a_message("read", bo.address, address, {"value": 1}, id_=1))
    await bo.heard()
    assert [one["body"]["value"] for one in await ana.heard()] == [1]
    assert (await ana.ask("delete", ALLOCATION, {"resources": [address]}))["body"]["code"] == 200


async def test_the_session_address_of_another_opens_and_closes_nothing(rig: RuntimeRig) -> None:
    ana, eve, bo = await people(rig)
    for type_ in ("close", "re-open", "open"):
        for sender in (ANA, ana.session_address[:-1], f"{ANA}/{eve.token}", f"{eve.address}/{ana.token}"):
            await eve.say(a_message(type_, sender, SM, id_=1))
            other = await rig.runtime()
            await other.say(a_message(type_, sender, SESSION, id_=1))
            if type_ == "close":
                assert await other.close_code() == 1000
            else:
                (reply,) = await other.heard()
                assert reply["body"]["code"] in (400, 409, 500)
    assert rig.port_of("rt-ana").sid is not None
    assert await ana.heard() == []
    await bo.say(a_message("event", bo.address, ANA, {"value": 1}))
    await bo.heard()
    assert [one["body"]["value"] for one in await ana.heard()] == [1]
