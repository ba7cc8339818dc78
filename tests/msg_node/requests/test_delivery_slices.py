"""However much expires, or is to be reported, at once: one turn of the bus does some of it, the next ones the rest."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from msg_node.bus import sweeper
from msg_node.requests.core.delivery_status import EXPIRED
from msg_node.requests.core.guaranteed_events import GuaranteedEvents
from protofly.limits import (
    GUARANTEED_RETRY_SECONDS,
    INBOX_NOTIFIED_AT_ONCE,
    PARKED_EXPIRED_AT_ONCE,
    REQUEST_TTL_SECONDS,
)
from tests.msg_node.requests.test_actions import SWITCH, action, parked
from tests.support.runtime_rig import (
    FOREIGN,
    PATIENCE_SECONDS,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    parsed,
    runtime_rig,
)

MANY = 3 * PARKED_EXPIRED_AT_ONCE + 1
AGENT = SWITCH.partition("/lamp-1")[0]
TTL_SECONDS = 60


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        made.state.delivery.queues.announce(AGENT, {"expires": TTL_SECONDS, "max": MANY})
        yield made


def sweep_all(rig: RuntimeRig) -> None:
    """End all that will be over when the time of what waits now is."""
    while rig.bus.parked_actions.sweep(time.time() + TTL_SECONDS + 1):
        pass


def numbers(messages: list[Json]) -> list[str]:
    return [one["body"]["requestId"] for one in messages]


async def next_of(runtime: Runtime, count: int) -> list[Json]:
    return [await runtime.next() for _ in range(count)]


async def test_of_what_expires_at_once_one_turn_ends_a_few_and_the_next_ones_the_rest(rig: RuntimeRig) -> None:
    ana, parking = await rig.opened("ana"), rig.state.delivery.parking
    request_ids = await parked(ana, *range(MANY))
    over = time.time() + TTL_SECONDS + 1
    left = []
    while rig.bus.parked_actions.sweep(over):
        left.append(len(parking))
    steps = [before - after for before, after in zip([MANY, *left], left, strict=False)]
    assert max(steps) == PARKED_EXPIRED_AT_ONCE
    assert left[-1] == 0
    events = await next_of(ana, MANY)
    assert numbers(events) == request_ids
    assert {one["body"]["status"] for one in events} == {"expired"}


async def test_of_many_senders_who_waited_long_enough_one_turn_notifies_a_few(rig: RuntimeRig) -> None:
    agent = await rig.opened("lamps")
    await agent.subscribed(AGENT)
    ana = await rig.opened("ana")
    await ana.say(*(action(ana.address, one) for one in range(MANY)))
    await next_of(agent, MANY)
    late = time.time() + REQUEST_TTL_SECONDS + 1
    assert rig.bus.parked_actions.sweep(late)
    assert len(rig.state.delivery.parking.owed.overdue(late, most=MANY)) == MANY - PARKED_EXPIRED_AT_ONCE
    while rig.bus.parked_actions.sweep(late):
        pass
    replies = await next_of(ana, MANY)
    assert sorted(one["id"] for one in replies) == list(range(MANY))
    assert {one["body"]["code"] for one in replies} == {202}


async def test_marks_of_another_domains_requests_are_forgotten_a_few_at_a_time(rig: RuntimeRig) -> None:
    parking = rig.state.delivery.parking
    for one in range(MANY):
        request = action(f"hyperty://{FOREIGN}/h", one, ttl=TTL_SECONDS, requestId=f"d-{one:012d}")
        assert rig.bus.from_links.take(FOREIGN, [parsed(request)]) == [None]
    for entry in parking.queues.entries(AGENT):
        rig.bus.parked_actions.recorder.finish(entry, EXPIRED)
    assert parking.finished.forget_old(time.time()) == 0
    assert parking.finished.forget_old(time.time() + TTL_SECONDS + 1) == PARKED_EXPIRED_AT_ONCE
    sweep_all(rig)
    assert (len(parking), [one for one in range(MANY) if parking.finished.find(FOREIGN, f"d-{one:012d}")]) == (0, [])


async def test_a_runtime_that_comes_back_receives_all_it_missed_in_order_a_few_in_each_turn(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    many = 3 * INBOX_NOTIFIED_AT_ONCE
    request_ids = await parked(ana, *range(many))
    await ana.wire.cut()
    await rig.until("sessions lost")
    sweep_all(rig)
    inboxes = rig.state.delivery.inboxes
    assert len(inboxes.unnotified(ana.address)) == many
    back = await rig.runtime()
    back.address = ana.session_address
    await back.ask("re-open", "mn:/session")
    assert len(inboxes.unnotified(ana.address)) == many - INBOX_NOTIFIED_AT_ONCE
    assert rig.bus.parked_actions.sweep(time.time())
    assert len(inboxes.unnotified(ana.address)) == many - 2 * INBOX_NOTIFIED_AT_ONCE
    assert rig.bus.parked_actions.sweep(time.time())
    assert not rig.bus.parked_actions.sweep(time.time())
    assert numbers(await next_of(back, many)) == request_ids


async def test_who_has_no_room_is_notified_later_and_nothing_is_dropped(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    request_ids = await parked(ana, 1, 2)
    port = rig.port_of("ana")
    most = port.queue._waiting.max_messages
    port.queue._waiting.max_messages = -1  # as if its queue were full
    assert port.queue.is_congested
    sweep_all(rig)
    assert len(rig.state.delivery.inboxes.unnotified(ana.address)) == 2
    port.queue._waiting.max_messages = most
    assert rig.bus.parked_actions.sweep(time.time())
    assert numbers(await next_of(ana, 2)) == request_ids


def test_of_many_events_that_nobody_acknowledged_one_turn_repeats_a_few() -> None:
    events = GuaranteedEvents()
    for one in range(10):
        event = a_message("event", "thing://a.example/agent", "thing://a.example/agent/events/motion", {}, id_=one)
        assert events.begin(parsed(event), [1, 2], 0.0, 60.0)
    due = GUARANTEED_RETRY_SECONDS
    reported: list[tuple[int, int]] = []
    while some := events.due(due, lives=lambda _: True, most=4):
        assert len(some) == 4 or len(reported) == 16
        reported += [(number, json.loads(event.raw)["id"]) for number, event in some]
    assert reported == [(number, one) for one in range(10) for number in (1, 2)]


async def test_the_sweeper_goes_on_until_nothing_is_over(rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "SWEEP_SECONDS", 0.05)
    ana = await rig.opened("ana")
    await parked(ana, *range(MANY))
    for entry in rig.state.delivery.parking.queues.entries(AGENT):
        rig.state.delivery.parking.look_again(entry, 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.bus.sweeper.run)
        with trio.fail_after(PATIENCE_SECONDS):
            await next_of(ana, MANY)
        nursery.cancel_scope.cancel()
    assert len(rig.state.delivery.parking) == 0
