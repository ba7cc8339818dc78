"""One run of a stub: what the host does with the guest's actions, and the genuine link stub end to end."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from federation.core.carrier import Accepted, CarrierDown
from federation.core.outbound_queue import QueueLimits
from protofly.errors import Code, StubFaultError
from protofly.limits import STUB_LOG_LINES_PER_SECOND, STUB_TIMERS
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from sandbox.stub_process import Fault
from tests.support.hosted import StubRig, link_module, stub_rig
from tests.support.link_endpoint import Documents, make_world
from tests.support.repository import World
from tests.support.scripted_stub import Answer, Script, ScriptedProcess, act, opening, status
from tests.support.services import until
from tests.support.sides import MemoryCarrier, chat, numbers_of, request, text


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = make_world(tmp_path, code=link_module())
    yield made
    made.close()


# A stub of the test's own: no authentication in its manifest, so that it is live when it says so.


@pytest.fixture
async def free(world: World) -> StubRig:
    world.b.publish_stub(serial=2, permissions=world.b.manifest.permissions.__class__(connect=["mn"], auth=False))
    return await stub_rig(world, Documents(world))


def live_at_start(script: Script = lambda _event: ()) -> Script:
    return lambda event: [status("live")] if event.op == Event.START else script(event)


def accepting(event: GuestEvent) -> Answer:
    return [act(Action.ACCEPTED, event.arg)] if event.op == Event.MESSAGE else []


async def test_the_first_event_says_where_the_stub_is(free: StubRig) -> None:
    process = ScriptedProcess()
    free.link.inbound([], "f" * 32)
    async with free.running(process):
        await until(lambda: process.seen)
    [start] = process.events(Event.START)
    assert start.arg == 0
    assert json.loads(start.payload) == {
        "abi": 1,
        "our_domain": "a.example",
        "our_node": "runtime://a.example/mn-1",
        "stub_url": "runtime://a.example/mn-1/protostub/b7c1",
        "peer_domain": "b.example",
        "endpoints": ["mn"],
        "stream": free.link.queue.stream,
        "peer_stream": "f" * 32,
        "delivered": 0,
        "configuration": {},
        "tokens": [],
    }


async def test_messages_come_only_once_the_stub_is_live(free: StubRig) -> None:
    process = ScriptedProcess(lambda event: [status("live")] if event.op == Event.TIMER else accepting(event))
    free.send(chat(1), chat(2))
    async with free.running(process):
        await until(lambda: process.seen)
        await trio.testing.wait_all_tasks_blocked()
        assert process.events(Event.MESSAGE) == []
        free.hosted.running.emit(GuestEvent(Event.TIMER, 0, b""))
        await until(lambda: not free.link.queue.under_way and not free.link.queue.waiting)
    assert [event.arg for event in process.events(Event.MESSAGE)] == [1, 2]
    assert [record.outcome for record in free.bus.message_records] == ["delivered", "delivered"]


async def test_what_piles_up_becomes_one_batch(free: StubRig) -> None:
    process = ScriptedProcess(live_at_start(accepting))
    async with free.running(process):
        await until(lambda: free.link.is_live)
        before = len(process.batches)
        free.send(*[chat(number) for number in range(1, 201)])
        await until(lambda: not free.link.queue.waiting and not free.link.queue.under_way)
    assert len(process.batches) - before <= 3
    assert [event.arg for event in process.events(Event.MESSAGE)] == list(range(1, 201))


async def test_a_far_end_that_accepts_nothing_stops_the_traffic_and_not_the_node(free: StubRig) -> None:
    """The window is full and messages wait: the exchange has to sleep, or everything else in the process stands."""
    free.bus.limits = QueueLimits(in_flight_messages=4)
    free.link = free.bus.link_to("b.example")
    process = ScriptedProcess(live_at_start())
    take, empty = free.link.queue.take_batch, 0

    def guarded(max_messages: int, max_bytes: int, now: float) -> Any:
        nonlocal empty
        batch = take(max_messages, max_bytes, now)
        empty = 0 if batch else empty + 1
        if empty > 100:
            raise AssertionError("the exchange spins without a pause")
        return batch

    free.link.queue.take_batch = guarded  # type: ignore[method-assign]
    async with free.running(process):
        await until(lambda: free.link.is_live)
        for number in range(1, 5):
            free.send(chat(number))
        await until(lambda: free.link.queue.under_way == 4)
        free.send(chat(5))
        await trio.testing.wait_all_tasks_blocked()
        assert (free.link.queue.under_way, free.link.queue.waiting) == (4, 1)
        free.link.handle(Accepted(4))
        await until(lambda: len(process.events(Event.MESSAGE)) == 5)


async def test_a_stub_that_is_not_the_active_carrier_takes_no_messages(free: StubRig) -> None:
    process = ScriptedProcess(live_at_start(accepting))
    active = MemoryCarrier(free.link, channel="peer")
    active.open()
    async with free.running(process):
        await until(lambda: free.hosted.is_live)
        active.is_blocked = True
        free.send(chat(1))
        free.hosted.running.emit(GuestEvent(Event.TIMER, 0, b""))
        await until(lambda: process.events(Event.TIMER))
        await trio.testing.wait_all_tasks_blocked()
        assert process.events(Event.MESSAGE) == []
        free.link.handle(CarrierDown(active))
        await until(lambda: process.events(Event.MESSAGE))


async def test_deliveries_reach_the_bus_as_one_batch_and_count_in_the_named_stream(free: StubRig) -> None:
    batch = [act(Action.DELIVER, number, chat(number, from_="b.example", to="a.example").raw) for number in (1, 2, 3)]
    script = live_at_start(lambda _event: [act(Action.PEER_STREAM, 0, "e" * 32), *batch])
    process = ScriptedProcess(script)
    async with free.running(process):
        await until(lambda: free.link.is_live)
        free.hosted.running.emit(GuestEvent(Event.TIMER, 0, b""))
        await until(lambda: free.bus.delivered)
    assert [numbers_of(batch) for batch in free.bus.batches] == [[1, 2, 3]]
    assert free.link.machine.streams.newest() == ("e" * 32, 3)


async def test_what_is_delivered_before_the_stub_is_live_reaches_nobody(free: StubRig) -> None:
    early = act(Action.DELIVER, 1, text())
    process = ScriptedProcess(lambda _event: [early])
    async with free.running(process):
        await until(lambda: process.seen)
        await trio.testing.wait_all_tasks_blocked()
    assert free.bus.delivered == []
    assert free.hosted.running.ledger.denials == 1


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (status("perfect"), Code.STUB_OUTPUT),
        (status(""), Code.STUB_OUTPUT),
        (status("live\xff"), Code.STUB_OUTPUT),
        (status("verify-failed"), Code.STUB_OUTPUT),
        (status("failed for good"), Code.STUB_FAILED),
        (act(Action.OPEN, 1, b"{not json", 1), Code.STUB_OUTPUT),
        (act(Action.OPEN, 1, b"[" * 60_000, 1), Code.STUB_OUTPUT),
        (opening(1, surprise=1), Code.STUB_OUTPUT),
        (GuestAction(99, 0, b""), Code.STUB_OUTPUT),
    ],
)
async def test_a_stub_that_breaks_the_contract_is_ended_with_the_reason(
    free: StubRig, action: GuestAction, code: Code
) -> None:
    process = ScriptedProcess(lambda _event: [action])
    await free.run(process)
    assert free.fault is not None
    assert free.fault.code is code
    assert not free.link.is_live


@pytest.mark.parametrize(
    "action",
    [
        opening(1, endpoint="elsewhere"),
        opening(0),
        opening(70_000),
        opening(1, path="http://evil.example/"),
        opening(1, path="/../../x y"),
        opening(1, headers={"Host": "evil.example"}),
        opening(1, headers={"Authorization": "Basic x"}),
        opening(1, headers={"Sec-WebSocket-Key": "x"}),
        opening(1, headers={"X": "a\r\nHost: evil.example"}),
        act(Action.OPEN, 1, b'{"endpoint":"mn"}', 3),
        act(Action.OPEN, 1, b'{"endpoint":"mn"}', 77),
        act(Action.OPEN, 1, b'{"endpoint":"mn"}', 2),
        act(Action.SEND, 5, b"into nowhere"),
        act(Action.SET_TIMER, 1, b"\x01"),
        act(Action.REQUEST_AUTH_TOKEN, 1, b"x" * 32),
    ],
)
async def test_what_a_stub_may_not_do_is_refused_counted_and_connects_nowhere(
    free: StubRig, action: GuestAction
) -> None:
    process = ScriptedProcess(lambda event: [action] if event.op == Event.START else [])
    async with free.running(process):
        await until(lambda: process.seen)
        await trio.testing.wait_all_tasks_blocked()
        assert free.is_running
        if action.op == Action.OPEN:
            [closed] = process.events(Event.CLOSED)
            assert closed.payload.startswith(b"stub-denied")
    assert free.dialler.asked == []


async def test_a_refused_action_is_counted_whatever_it_was(free: StubRig) -> None:
    process = ScriptedProcess(
        lambda event: [act(Action.REQUEST_AUTH_TOKEN, 1, b"x" * 32)] if event.op == Event.START else []
    )
    async with free.running(process):
        await until(lambda: process.events(Event.AUTH_TOKEN))
        assert free.hosted.running.ledger.denials == 1


async def test_a_stub_that_does_nothing_but_ask_for_what_it_may_not_is_ended(free: StubRig) -> None:
    process = ScriptedProcess(lambda _event: [act(Action.SEND, 9, b"x"), act(Action.SEND, 8, b"x")] * 600)
    await free.run(process)
    assert free.fault is not None
    assert free.fault.code is Code.STUB_DENIED


async def test_a_timer_rings_once_and_can_be_set_anew_and_cancelled(
    free: StubRig, autojump_clock: trio.testing.MockClock
) -> None:
    def script(event: GuestEvent) -> Answer:
        if event.op == Event.START:
            delays = ((1, 5_000), (2, 9_000), (2, 3_000), (3, 1_000), (3, 0))
            return [act(Action.SET_TIMER, timer, delay.to_bytes(4, "little")) for timer, delay in delays]
        return []

    process = ScriptedProcess(script)
    async with free.running(process):
        await trio.sleep(20)
    assert [event.arg for event in process.events(Event.TIMER)] == [2, 1]


async def test_timers_are_limited(free: StubRig, autojump_clock: trio.testing.MockClock) -> None:
    timers = [act(Action.SET_TIMER, number, (60_000).to_bytes(4, "little")) for number in range(STUB_TIMERS + 8)]
    process = ScriptedProcess(lambda event: timers if event.op == Event.START else [])
    async with free.running(process):
        await trio.sleep(61)
    assert sorted(event.arg for event in process.events(Event.TIMER)) == list(range(STUB_TIMERS))
    assert free.hosted.running.ledger.denials == 8


async def test_two_lines_that_wait_for_room_both_go_on(free: StubRig) -> None:
    process = ScriptedProcess()
    went_on: list[int] = []
    async with free.running(process), trio.open_nursery() as nursery:
        await until(lambda: process.seen)

        async def wait(number: int) -> None:
            await free.hosted.running.wait_for_room()
            went_on.append(number)

        free.hosted.running.emit(GuestEvent(Event.DATA, 1, b"x" * (2 << 20)))
        nursery.start_soon(wait, 1)
        nursery.start_soon(wait, 2)
        await until(lambda: len(went_on) == 2)


async def test_a_message_that_the_stub_refuses_is_answered(free: StubRig) -> None:
    refusing = live_at_start(lambda event: [act(Action.REFUSED, event.arg, "404 no-route nobody there")])
    async with free.running(ScriptedProcess(refusing)):
        await until(lambda: free.link.is_live)
        free.send(request(1))
        await until(lambda: free.bus.answers)
    assert free.bus.answer_codes == [Code.NO_ROUTE]


async def test_a_dead_worker_loses_no_message(free: StubRig) -> None:
    dying = StubFaultError(Code.STUB_DIED, "killed")
    first = ScriptedProcess(live_at_start(lambda event: dying if event.op == Event.MESSAGE else []))
    free.send(chat(1), chat(2))
    await free.run(first)
    assert free.fault is dying
    assert (free.link.is_live, free.link.queue.waiting) == (False, 2)
    second = ScriptedProcess(live_at_start(accepting))
    async with free.running(second):
        await until(lambda: not free.link.queue.waiting and not free.link.queue.under_way)
    assert [event.arg for event in second.events(Event.MESSAGE)] == [1, 2]


async def test_a_fault_convicts_the_message_that_was_alone_and_the_others_go_on(free: StubRig) -> None:
    """Three deaths at most: all together, then one at a time until the killer has killed twice."""

    def deadly(event: GuestEvent) -> Answer:
        if event.op == Event.MESSAGE and b'"value":2' in event.payload:
            return Fault(Code.STUB_TRAPPED, "unreachable", 0, 1)
        return accepting(event)

    free.send(*[request(number) for number in range(1, 5)])
    faults = 0
    while free.link.queue.waiting:
        process = ScriptedProcess(live_at_start(deadly))
        async with free.running(process):
            await until(lambda: free.fault or not (free.link.queue.waiting or free.link.queue.under_way))
        faults += free.fault is not None
        assert faults <= 3
    assert [pending.message.id for pending in free.bus.quarantined] == [b"2"]
    assert free.bus.answer_codes == [Code.QUARANTINED]
    outcomes = {record.msg_id: record.outcome for record in free.bus.message_records}
    assert sorted(outcomes.values()) == ["delivered"] * 3 + ["trapped"]


async def test_log_lines_beyond_the_allowance_are_dropped_and_counted(
    free: StubRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="federation")
    lines = [GuestAction(Action.LOG, 1, b"hello there")] * (3 * STUB_LOG_LINES_PER_SECOND)
    process = ScriptedProcess(live_at_start(lambda event: lines if event.op == Event.TIMER else ()))
    async with free.running(process):
        await until(lambda: free.link.is_live)
        free.hosted.running.emit(GuestEvent(Event.TIMER, 0, b""))
        await until(lambda: caplog.text.count("hello there") + free.meters.log_lines_dropped >= len(lines))
    assert caplog.text.count("hello there") + free.meters.log_lines_dropped == len(lines)
    assert free.meters.totals()["log_lines_dropped"] > STUB_LOG_LINES_PER_SECOND


async def test_meters_add_up(free: StubRig) -> None:
    process = ScriptedProcess(live_at_start(accepting))
    async with free.running(process):
        await until(lambda: free.link.is_live)
        free.send(chat(1))
        await until(lambda: not free.link.queue.under_way)
    assert free.meters.calls == free.meters.fuel == free.meters.cpu_us == len(process.batches)
