"""A node that could not renew its lease: it promises nothing, and goes on where it was when nobody took its name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.runtime_rig import (
    ALLOCATION,
    SESSION,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)

UNAVAILABLE = (503, "state-unavailable")
ONE_ADDRESS = {"scheme": "comm", "value": {"number": 1}}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def test_fenced_node_refuses_sessions_and_requests_and_takes_them_again(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    rig.bus.fence(1.5)
    rig.bus.fence(1.5)  # a second time changes nothing
    reply = await ana.ask("create", ALLOCATION, ONE_ADDRESS)
    assert code_and_reason(reply) == UNAVAILABLE
    assert reply["body"]["value"] == {"retryAfter": 1.5}
    assert code_and_reason(await ana.ask("read", runtime_address("nobody"))) == UNAVAILABLE
    bo = await rig.runtime()
    reply = await bo.open("bo")
    assert code_and_reason(reply) == UNAVAILABLE
    assert reply["body"]["value"] == {"retryAfter": 1.5}
    assert (await ana.ask("ping", SESSION))["type"] == "pong"
    rig.bus.unfence()
    assert code_and_reason(await ana.ask("create", ALLOCATION, ONE_ADDRESS)) == (200, "")
    assert code_and_reason(await bo.open("bo")) == (200, "")


async def test_what_needs_no_answer_still_reaches_those_who_are_connected(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    rig.bus.fence(1.0)
    await ana.say(a_message("event", ana.address, bo.address, {"value": 1}))
    assert (await bo.next())["body"]["value"] == 1


async def test_node_that_stops_while_it_is_fenced_stays_closed(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    rig.bus.fence(1.0)
    rig.bus.refuse_new(5.0)
    await ana.next()  # that the node stops
    rig.bus.unfence()
    bo = await rig.runtime()
    assert code_and_reason(await bo.open("bo")) == (503, "draining")
    assert (await ana.ask("read", runtime_address("nobody")))["body"]["code"] == 503
