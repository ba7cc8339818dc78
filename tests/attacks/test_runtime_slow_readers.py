"""A runtime that does not read costs the node a bounded amount, its senders a moment, and its neighbours nothing."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from msg_node.bus.runtime_port import ANSWER_BYTES, LINE_BYTES, SLOW_SECONDS, STUCK_SECONDS, RuntimePort, RuntimeQueue
from msg_node.connectors.websocket import WebSocketChannel
from protofly.errors import Code
from protofly.limits import SESSION_QUEUE_BYTES, SESSION_QUEUE_MESSAGES
from tests.support.flow_rig import KeptMessages
from tests.support.runtime_rig import (
    FOREIGN,
    PATIENCE_SECONDS,
    SESSION,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    parsed,
    runtime_rig,
)
from wire.byte_channel import RECEIVE_BYTES, ByteChannel

KERNEL_BYTES = 16 << 10
MOST_BYTES = LINE_BYTES + 2 * SESSION_QUEUE_BYTES + 8 * RECEIVE_BYTES
"""What one runtime may make the node keep for it: a line on which a full queue was written when it was nearly full,
another queue behind it, and answers to one more read."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def reluctant(rig: RuntimeRig, name: str = "slow") -> tuple[Runtime, RuntimePort]:
    """A runtime for which the kernels keep little, so that what it leaves unread stays with the node."""
    runtime = await rig.opened(name, receive_bytes=KERNEL_BYTES)
    port = rig.port_of(name)
    line_of(port)._sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, KERNEL_BYTES)
    return runtime, port


def line_of(port: RuntimePort) -> ByteChannel:
    assert isinstance(port.queue.channel, WebSocketChannel)
    return port.queue.channel.line


def kept_bytes(port: RuntimePort) -> int:
    return line_of(port).backlog_bytes + port.queue._waiting.size_bytes


def is_closed(port: RuntimePort) -> bool:
    return port.queue.channel.is_closed


def chat(sender: Runtime, receiver: Runtime, number: int, type_: str = "event", size: int = 4000) -> Json:
    id_ = None if type_ == "event" else number
    return a_message(type_, sender.address, receiver.address, {"value": number, "more": "x" * size}, id_=id_)


async def clog(rig: RuntimeRig, sender: Runtime, slow: Runtime, port: RuntimePort) -> int:
    """Send events until the slow runtime's queue has overflowed; how many that took."""
    sent = 0
    while not rig.counters["dropped"]:
        await sender.say(*(chat(sender, slow, sent + number) for number in range(100)))
        await sender.heard()
        sent += 100
        assert kept_bytes(port) <= MOST_BYTES
    return sent


async def test_what_is_kept_for_a_slow_runtime_is_bounded_and_what_is_dropped_is_counted(rig: RuntimeRig) -> None:
    ana, (slow, port) = await rig.opened("ana"), await reluctant(rig)
    sent = await clog(rig, ana, slow, port)
    await ana.say(*(chat(ana, slow, sent + number) for number in range(500)))
    await ana.heard()
    assert kept_bytes(port) <= MOST_BYTES
    assert port.queue.queued <= SESSION_QUEUE_MESSAGES
    numbers = [one["body"]["value"] for one in await slow.heard()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == sent + 500 - rig.counters["dropped"]
    assert numbers[-1] == sent + 499  # the newest are kept


async def test_requests_to_a_full_queue_are_answered_and_responses_are_all_kept(rig: RuntimeRig) -> None:
    ana, bo, (slow, port) = await rig.opened("ana"), await rig.opened("bo"), await reluctant(rig)
    sent = await clog(rig, ana, slow, port)
    await bo.say(*(chat(bo, slow, number, "response", 10) for number in range(50)))
    await bo.heard()
    refusal = await ana.ask("read", slow.address, {"value": "x" * 8000})
    assert (refusal["body"]["code"], refusal["body"]["reason"]) == (503, "overload")
    heard = await slow.heard()
    assert [one["body"]["value"] for one in heard if one["type"] == "response"] == list(range(50))
    events = [one["body"]["value"] for one in heard if one["type"] == "event"]
    assert len(events) == sent - rig.counters["dropped"]
    assert rig.counters["overload"] == 1


async def test_neighbours_of_a_slow_runtime_talk_at_their_pace(rig: RuntimeRig) -> None:
    ana, bo, cleo = [await rig.opened(name) for name in ("ana", "bo", "cleo")]
    slow, port = await reluctant(rig)
    await clog(rig, ana, slow, port)
    started = trio.current_time()
    for number in range(100):
        await bo.say(chat(bo, cleo, number))
        assert (await cleo.next())["body"]["value"] == number
    assert trio.current_time() - started < 100 * SLOW_SECONDS  # no sender paused for each message
    await ana.say(chat(ana, slow, 0), chat(ana, bo, 1))  # its own senders pause once, not for each message
    assert (await bo.next())["body"]["value"] == 1
    assert port.queue.is_slow


async def test_listeners_of_one_object_do_not_wait_for_the_slow_one_among_them(rig: RuntimeRig) -> None:
    ana, bo, (slow, port) = await rig.opened("ana"), await rig.opened("bo"), await reluctant(rig)
    room = await ana.allocated()
    await bo.subscribed(f"{room}/changes")
    await slow.subscribed(f"{room}/changes")
    heard: list[int] = []

    async def listen() -> None:
        while len(heard) < 2000:
            heard.append((await bo.next())["body"]["value"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        for start in range(0, 2000, 200):
            await ana.say(
                *(
                    a_message("update", room, f"{room}/changes", {"value": number, "more": "x" * 4000})
                    for number in range(start, start + 200)
                )
            )
    assert heard == list(range(2000))
    assert rig.counters["dropped"] > 0
    assert kept_bytes(port) <= MOST_BYTES


async def test_a_link_is_not_held_up_by_one_slow_runtime(rig: RuntimeRig) -> None:
    ana, bo, (slow, port) = await rig.opened("ana"), await rig.opened("bo"), await reluctant(rig)
    await clog(rig, ana, slow, port)
    port.queue.is_slow = False  # as if it had just read a little
    far = f"hyperty://{FOREIGN}/h"
    wire = [
        a_message("event", far, slow.address, {"value": 1}),
        a_message("read", far, slow.address, {"x": "y" * 9000}, id_=1),
    ]
    assert rig.bus.from_links.take(FOREIGN, [parsed(one) for one in wire]) == [None, Code.OVERLOAD]
    with trio.fail_after(PATIENCE_SECONDS):
        await rig.bus.send_queues.wait_for_room()
    assert port.queue.is_slow
    rig.bus.from_links.take(FOREIGN, [parsed(a_message("event", far, bo.address, {"value": 2}))])
    assert rig.bus.send_queues.link_blockers == set()  # nobody waits for it any more
    await rig.bus.send_queues.wait_for_room()
    assert [one["body"]["value"] for one in await bo.heard()] == [2]


async def test_a_crowd_of_slow_runtimes_holds_up_a_link_no_longer_than_one(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    crowd = []
    for number in range(60):  # one after the other, they would take 15 s
        queue = RuntimeQueue(KeptMessages(), counters=rig.counters)
        queue.channel.takes_more = False  # type: ignore[misc]
        while not queue.is_congested:
            queue.enqueue(parsed(a_message("event", ana.address, bo.address, {"value": number})))
        crowd.append(queue)
    rig.bus.send_queues.link_blockers.update(crowd)
    with trio.fail_after(60 * SLOW_SECONDS / 2):
        await rig.bus.send_queues.wait_for_room()
    assert all(queue.is_slow for queue in crowd)
    rig.bus.from_links.take(FOREIGN, [parsed(a_message("event", f"hyperty://{FOREIGN}/h", bo.address, {"value": 2}))])
    assert [one["body"]["value"] for one in await bo.heard()] == [2]


async def test_a_runtime_that_never_reads_is_closed_and_parked(rig: RuntimeRig) -> None:
    ana, (slow, port) = await rig.opened("ana"), await reluctant(rig)
    await clog(rig, ana, slow, port)
    port.check(time.time(), ping_seconds=rig.bus.options.ping_seconds)
    assert not is_closed(port)
    port.queue.stuck_since -= STUCK_SECONDS
    port.check(time.time(), ping_seconds=rig.bus.options.ping_seconds)
    assert is_closed(port)
    with trio.fail_after(10):
        while rig.counters["sessions lost"] < 1:
            await trio.lowlevel.checkpoint()
    assert rig.counters["stuck runtimes"] == 1
    assert (await ana.ask("read", slow.address))["body"]["reason"] == "not-connected"
    back = await rig.runtime()
    assert (await back.ask("re-open", SESSION, from_=slow.session_address))["body"]["code"] == 200


async def test_a_flood_of_responses_to_a_slow_runtime_ends_its_connection_before_the_memory(
    rig: RuntimeRig,
) -> None:
    ana, (slow, port) = await rig.opened("ana"), await reluctant(rig)
    for number in range(40):
        await ana.say(chat(ana, slow, number, "response", 500_000))
        await ana.heard()
        assert kept_bytes(port) <= LINE_BYTES + SESSION_QUEUE_BYTES + ANSWER_BYTES
        if is_closed(port):
            break
    assert is_closed(port)
    assert (await ana.ask("read", slow.address))["body"]["reason"] == "not-connected"


async def flood(runtime: Runtime, block: bytes) -> None:
    """Write for ever; the node decides how much it takes."""
    while True:
        await runtime.wire.stream.send_all(block)


async def stuck(port: RuntimePort) -> None:
    with trio.fail_after(10):
        while not port.queue.stuck_since:
            await trio.lowlevel.checkpoint()
            assert kept_bytes(port) <= MOST_BYTES


@pytest.mark.parametrize("kind", ["refused-requests", "broken-headers", "session-verbs", "pings"])
async def test_who_asks_for_ever_and_never_reads_the_answers_is_not_read_any_more(rig: RuntimeRig, kind: str) -> None:
    bo, cleo = await rig.opened("bo"), await rig.opened("cleo")
    slow, port = await reluctant(rig)
    if kind == "pings":
        for _ in range(500):
            slow.websocket.ping(b"x" * 125)
    else:
        text = {
            "refused-requests": a_message("read", slow.address, "hyperty://alpha.example/nobody", id_=1),
            "broken-headers": {"id": 1, "type": "read", "from": slow.address},
            "session-verbs": a_message("ping", slow.address, SESSION, id_="x" * 100),
        }[kind]
        slow.websocket.send([json.dumps(text).encode()] * 500)
    block = slow.websocket.data_to_send()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood, slow, block)
        await stuck(port)
        for number in range(50):  # many more rounds of the scheduler
            await bo.say(chat(bo, cleo, number))
            assert (await cleo.next())["body"]["value"] == number
            assert kept_bytes(port) <= MOST_BYTES
        nursery.cancel_scope.cancel()
    port.queue.stuck_since -= STUCK_SECONDS
    port.check(time.time(), ping_seconds=rig.bus.options.ping_seconds)
    assert is_closed(port)
    assert kept_bytes(port) <= SESSION_QUEUE_BYTES
