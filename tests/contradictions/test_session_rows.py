"""Message specification, section 21: sessions. One test per row, through a node over a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from msg_node.kernel.credentials import Credential, digest_of
from tests.support.runtime_rig import (
    DOMAIN,
    SESSION,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)
from wire.core.websocket import ClientWebSocket


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as running:
        yield running


async def test_row_41_a_session_that_cannot_be_re_opened_is_a_500(rig: RuntimeRig) -> None:
    ana = await rig.runtime()
    reply = await ana.ask("re-open", SESSION, from_=f"{runtime_address('ana')}/no-such-token")
    assert reply["body"]["code"] == 500
    assert "Reconnection fail" in reply["body"]["desc"]


async def test_row_42_nobody_gets_the_session_of_another_by_opening_again(rig: RuntimeRig) -> None:
    ana, eve = await rig.opened("ana"), await rig.runtime()
    reply = await eve.open("ana")
    assert code_and_reason(reply) == (409, "address-taken")
    assert ana.token not in json.dumps(reply)


async def test_row_42_who_proves_an_identity_gets_its_session_under_a_new_token(tmp_path: Path) -> None:
    credential = Credential(digest_of("proof"), runtime_address("ana"))
    async with runtime_rig(tmp_path, credentials=[credential]) as rig:
        body = {"credentials": {"kind": "bearer", "token": "proof"}}
        first, second = await rig.runtime(), await rig.runtime()
        await first.open("ana", body)
        assert (await second.open("ana", body))["body"]["code"] == 200
        assert second.token not in ("", first.token)


async def entered(rig: RuntimeRig, path: str) -> Runtime:
    runtime = Runtime(await rig.connect(), ClientWebSocket(f"ws://localhost{path}", is_binary=False))
    runtime.address = runtime_address("old")
    await runtime.shake_hands()
    return runtime


@pytest.mark.parametrize("dialect", ["a", "b", "c"])
async def test_row_43_runtimes_of_all_three_dialects_are_served(rig: RuntimeRig, dialect: str) -> None:
    ana = await rig.opened("ana")
    address = runtime_address("old")
    if dialect == "a":
        old = await rig.opened("old")
    elif dialect == "b":
        old = await entered(rig, "/stub/connect")
        await old.say({"cmd": "connect", "data": {"runtimeURL": address}})
        assert await old.next() == {"cmd": "connect", "response": 200, "data": {"msg": "connected"}}
    else:
        old = await entered(rig, f"/stub/connect?runtimeURL={quote(address, safe='')}")
        await rig.until("sessions opened", 2)
    await ana.say(a_message("event", ana.address, f"{address}/sm"))
    assert (await old.next())["type"] == "event"
    reply = await old.ask("read", f"domain://msg-node.{DOMAIN}/sm")
    assert (reply["body"]["code"], "desc" in reply["body"]) == (200, dialect == "a")


async def test_row_44_messages_inherit_the_token_of_their_channel_and_lose_their_own(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(
        a_message("event", ana.address, bo.address, {"value": 1}),
        a_message("event", ana.address, bo.address, {"value": 2, "sessionToken": ana.token}),
    )
    await ana.heard()
    assert [one["body"] for one in await bo.heard()] == [{"value": 1}, {"value": 2}]
