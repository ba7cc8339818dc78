"""A stub of another domain that wants something for everything it hears. Trust and hosts, section 7, row 46."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from catalogue_client.fetcher import Dialler
from protofly.errors import Code, TransportError
from protofly.limits import (
    STUB_CHANNELS,
    STUB_CPU_BURST_SECONDS,
    STUB_CPU_SHARE,
    STUB_LINES_PER_SECOND,
    STUB_REQUESTS_PER_ANSWER,
    STUB_STATES_PER_SECOND,
    STUB_TIMERS,
    STUB_UNASKED_BURST_SECONDS,
    STUB_UNASKED_PER_SECOND,
)
from protofly.records import StubEvent
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from tests.support.hosted import StubRig, link_module, stub_rig
from tests.support.link_endpoint import Documents, make_world
from tests.support.scripted_stub import ScriptedProcess, act, opening, status
from tests.support.services import PATIENCE_SECONDS
from tests.support.sides import Clock, chat

A_SECOND = (1_000).to_bytes(4, "little")
A_MILLISECOND = (1).to_bytes(4, "little")
RINGING = frozenset({Event.START, Event.TIMER})


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[StubRig]:
    world = make_world(tmp_path, code=link_module())
    world.b.publish_stub(serial=2, permissions=world.b.manifest.permissions.__class__(connect=["mn"], auth=False))
    yield await stub_rig(world, Documents(world))
    world.close()


async def test_a_stub_whose_every_answer_asks_for_more_answers_is_ended(
    rig: StubRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="federation")
    process = ScriptedProcess(lambda _event: [act(Action.VERIFY_PEER, 1, b"x.y.z")] * 64)
    async with rig.running(process):
        with trio.fail_after(PATIENCE_SECONDS):
            while rig.fault is None:
                await trio.lowlevel.checkpoint()
    assert rig.fault.code is Code.STUB_OUTPUT
    assert len(process.seen) <= 1 + 64
    assert len(caplog.records) <= 64 + STUB_REQUESTS_PER_ANSWER
    assert rig.link.state != "live"


@pytest.mark.parametrize("op", [Action.SET_TIMER, Action.STATUS, Action.REQUEST_AUTH_TOKEN, Action.OPEN])
async def test_a_stub_that_asks_for_thousands_of_things_at_once_is_ended(rig: StubRig, op: Action) -> None:
    payload = {Action.SET_TIMER: A_SECOND, Action.STATUS: b"in-progress"}.get(op, b"")
    process = ScriptedProcess(lambda _event: [act(op, 1, payload)] * 100_000)
    async with rig.running(process):
        with trio.fail_after(PATIENCE_SECONDS):
            while rig.fault is None:
                await trio.lowlevel.checkpoint()
    assert rig.fault.code is Code.STUB_OUTPUT


async def test_a_stub_that_comes_and_goes_all_the_time_is_ended_and_does_not_fill_the_records(rig: StubRig) -> None:
    process = ScriptedProcess(lambda _event: [status("live"), status("disconnected")] * STUB_STATES_PER_SECOND)
    async with rig.running(process):
        with trio.fail_after(PATIENCE_SECONDS):
            while rig.fault is None:
                await trio.lowlevel.checkpoint()
    assert rig.fault.code is Code.STUB_OUTPUT
    assert 0 < rig.bus.events.count("up") <= STUB_STATES_PER_SECOND
    assert not rig.link.is_live


class _Refusing(Dialler):
    """Nobody is there, which is quickly found out."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def connect(self, host: str, port: int, *, domain: str) -> trio.SocketStream:
        self.times.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        raise TransportError(Code.CONNECT_FAILED, f"{host} {port} of {domain}", phase="connect")


async def test_a_stub_that_opens_lines_all_the_time_opens_so_many_in_a_second(
    rig: StubRig, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert autojump_clock.autojump_threshold == 0
    dialler, numbers = _Refusing(), count(1)
    monkeypatch.setattr(rig, "dialler", dialler)

    def insist(event: GuestEvent) -> list[GuestAction]:
        if event.op == Event.START:
            return [opening(next(numbers)) for _ in range(STUB_CHANNELS)]
        return [opening(next(numbers))] if event.op == Event.CLOSED else []

    async with rig.running(ScriptedProcess(insist)):
        await trio.sleep(10)
    assert rig.fault is None
    opened = len(dialler.times)
    assert 9 * STUB_LINES_PER_SECOND < opened <= 11 * STUB_LINES_PER_SECOND
    busiest = max(len([one for one in dialler.times if 0 <= one - at < 1.0]) for at in range(1, 10))
    assert busiest <= STUB_LINES_PER_SECOND + 1


async def test_a_stub_may_set_a_timer_anew_for_each_message_of_a_long_batch(rig: StubRig) -> None:
    def wind_up(event: GuestEvent) -> list[GuestAction]:
        if event.op == Event.START:
            return [status("live")]
        if event.op == Event.MESSAGE:
            return [act(Action.SET_TIMER, 1, A_SECOND), act(Action.ACCEPTED, event.arg)]
        return []

    process = ScriptedProcess(wind_up)
    async with rig.running(process):
        with trio.fail_after(PATIENCE_SECONDS):
            await rig.link.effects.wait_live()
            rig.send(*[chat(number) for number in range(1, 4 * STUB_REQUESTS_PER_ANSWER)])
            while rig.link.queue.waiting or rig.link.queue.under_way:
                await trio.lowlevel.checkpoint()
        assert max(process.batches) > STUB_REQUESTS_PER_ANSWER
    assert rig.fault is None


async def test_a_stub_that_has_itself_called_for_ever_gets_its_share_of_the_processor(
    rig: StubRig, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert autojump_clock.autojump_threshold == 0
    rig.bus.clock = Clock(monotonic=trio.current_time)
    process = ScriptedProcess(lambda event: [act(Action.SET_TIMER, 1, A_MILLISECOND)] if event.op in RINGING else ())
    process.cpu_us = 40_000  # a millisecond later it is called again
    async with rig.running(process):
        await trio.sleep(10 * STUB_CPU_BURST_SECONDS)
        used_seconds = rig.meters.cpu_us / 1e6
        assert used_seconds < STUB_CPU_SHARE * 11 * STUB_CPU_BURST_SECONDS + 0.1
        assert used_seconds > STUB_CPU_SHARE * 10 * STUB_CPU_BURST_SECONDS
        assert rig.meters.processor.is_used_up(trio.current_time())
        assert rig.meters.paused_us > 0
    assert rig.fault is None
    [line] = [one for one in caplog.messages if Code.STUB_THROTTLED.word in one]
    assert "grant.cpu_share" in line
    recorded = [(one.state, one.code) for one in rig.bus.records if isinstance(one, StubEvent)]
    assert recorded == [("throttled", "stub-throttled")]


async def test_a_stub_that_winds_up_all_its_timers_for_ever_costs_the_node_a_bounded_number_of_them(
    rig: StubRig, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert autojump_clock.autojump_threshold == 0
    rig.bus.clock = Clock(monotonic=trio.current_time)
    wound_up = 0

    def wind_up(event: GuestEvent) -> list[GuestAction]:
        nonlocal wound_up
        numbers = range(1, STUB_TIMERS + 1) if event.op == Event.START else [event.arg] * 8
        wound_up += len(numbers)
        return [act(Action.SET_TIMER, number, A_MILLISECOND) for number in numbers]

    async with rig.running(ScriptedProcess(wind_up)):
        await trio.sleep(60)
        assert wound_up > STUB_UNASKED_PER_SECOND * 60
        assert wound_up < STUB_UNASKED_PER_SECOND * (60 + STUB_UNASKED_BURST_SECONDS) + STUB_REQUESTS_PER_ANSWER
        assert rig.meters.is_used_up(trio.current_time())
    assert rig.fault is None
    [line] = [one for one in caplog.messages if Code.STUB_THROTTLED.word in one]
    assert "beyond what it hears" in line
