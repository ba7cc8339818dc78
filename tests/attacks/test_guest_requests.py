"""A stub of another domain that wants something for everything it hears. Trust and hosts, section 7, row 46."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from protofly.errors import Code
from protofly.limits import STUB_REQUESTS_PER_ANSWER, STUB_STATES_PER_SECOND
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from tests.support.hosted import StubHouse, link_module, stub_house
from tests.support.link_endpoint import PATIENCE_SECONDS, Documents, make_world
from tests.support.scripted_stub import ScriptedProcess, act, status
from tests.support.sides import chat

A_SECOND = (1_000).to_bytes(4, "little")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[StubHouse]:
    world = make_world(tmp_path, code=link_module())
    world.b.publish_stub(serial=2, permissions=world.b.manifest.permissions.__class__(connect=["mn"], auth=False))
    yield await stub_house(world, Documents(world))
    world.close()


async def test_a_stub_whose_every_answer_asks_for_more_answers_is_ended(
    house: StubHouse, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="federation")
    process = ScriptedProcess(lambda _event: [act(Action.VERIFY_PEER, 1, b"x.y.z")] * 64)
    async with house.running(process):
        with trio.fail_after(PATIENCE_SECONDS):
            while house.fault is None:
                await trio.lowlevel.checkpoint()
    assert house.fault.code is Code.STUB_OUTPUT
    assert len(process.seen) <= 1 + 64
    assert len(caplog.records) <= 64 + STUB_REQUESTS_PER_ANSWER
    assert house.link.state != "live"


@pytest.mark.parametrize("op", [Action.SET_TIMER, Action.STATUS, Action.REQUEST_AUTH_TOKEN, Action.OPEN])
async def test_a_stub_that_asks_for_thousands_of_things_at_once_is_ended(house: StubHouse, op: Action) -> None:
    payload = {Action.SET_TIMER: A_SECOND, Action.STATUS: b"in-progress"}.get(op, b"")
    process = ScriptedProcess(lambda _event: [act(op, 1, payload)] * 100_000)
    async with house.running(process):
        with trio.fail_after(PATIENCE_SECONDS):
            while house.fault is None:
                await trio.lowlevel.checkpoint()
    assert house.fault.code is Code.STUB_OUTPUT


async def test_a_stub_that_comes_and_goes_all_the_time_is_ended_and_does_not_fill_the_books(house: StubHouse) -> None:
    process = ScriptedProcess(lambda _event: [status("live"), status("disconnected")] * STUB_STATES_PER_SECOND)
    async with house.running(process):
        with trio.fail_after(PATIENCE_SECONDS):
            while house.fault is None:
                await trio.lowlevel.checkpoint()
    assert house.fault.code is Code.STUB_OUTPUT
    assert 0 < house.bus.events.count("up") <= STUB_STATES_PER_SECOND
    assert not house.link.is_live


async def test_a_stub_may_set_a_timer_anew_for_each_message_of_a_long_batch(house: StubHouse) -> None:
    def wind_up(event: GuestEvent) -> list[GuestAction]:
        if event.op == Event.START:
            return [status("live")]
        if event.op == Event.MESSAGE:
            return [act(Action.SET_TIMER, 1, A_SECOND), act(Action.ACCEPTED, event.arg)]
        return []

    process = ScriptedProcess(wind_up)
    async with house.running(process):
        with trio.fail_after(PATIENCE_SECONDS):
            await house.link.effects.wait_live()
            house.send(*[chat(number) for number in range(1, 4 * STUB_REQUESTS_PER_ANSWER)])
            while house.link.queue.waiting or house.link.queue.under_way:
                await trio.lowlevel.checkpoint()
        assert max(process.batches) > STUB_REQUESTS_PER_ANSWER
    assert house.fault is None
