"""The queue of one runtime in front of a real socket: its bounds, what it drops, and when it gives up."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.testing

from msg_node.bus.runtime_port import (
    ANSWER_BYTES,
    ASKED_ADDRESSES,
    FLUSH_MESSAGES,
    STUCK_SECONDS,
    RuntimePort,
    RuntimeQueue,
)
from msg_node.connectors.websocket import WebSocketChannel
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.session import Line
from protofly.counters import Counters
from protofly.errors import Code
from protofly.limits import OPEN_SECONDS, SESSION_QUEUE_BYTES, SESSION_QUEUE_MESSAGES
from protofly.message import Message
from tests.support.runtime_rig import a_message, parsed, runtime_address
from wire.byte_channel import ByteChannel
from wire.core.websocket import ClientWebSocket, ServerWebSocket

ANA = runtime_address("ana")


@dataclass
class Pair:
    """A port and the runtime's end of its socket."""

    port: RuntimePort
    channel: WebSocketChannel
    client: ClientWebSocket
    far: socket.socket

    @property
    def counters(self) -> Counters:
        return self.port.queue.counters

    def is_closed(self) -> bool:
        return self.port.queue.channel.is_closed

    def is_congested(self) -> bool:
        return self.port.queue.is_congested

    def is_stuck(self) -> bool:
        return bool(self.port.queue.stuck_since)

    def clog(self) -> None:
        """Fill the line, so that everything else stays in the queue."""
        while self.channel.takes_more:
            self.channel.send([b"x" * 100_000])

    async def read(self, *, until: int) -> list[bytes]:
        """Messages that the runtime gets, until it has so many after the clog."""
        far = trio.socket.from_stdlib_socket(self.far)
        messages: list[bytes] = []
        with trio.fail_after(10):
            while len(messages) < until:
                received = self.client.receive(await far.recv(1 << 20))
                messages += [bytes(one) for one in received if one[:1] == b"{"]
        return messages


@pytest.fixture
async def pair(nursery: trio.Nursery) -> AsyncIterator[Pair]:
    near, far = socket.socketpair()
    far.setblocking(False)
    client = ClientWebSocket("ws://a.example/ws", is_binary=False)
    server = ServerWebSocket()
    server.receive(client.data_to_send())
    server.accept()
    client.receive(server.data_to_send())
    line = ByteChannel(near, drain_nursery=nursery)
    channel = WebSocketChannel(line, server)
    port = RuntimePort(Line(1), RuntimeQueue(channel, counters=Counters(NodeCount)), now=0.0)
    line.on_drained = port.queue.flush
    yield Pair(port, channel, client, far)
    line.close()
    far.close()


def an(type_: str, value: object = 1, size: int = 0) -> Message:
    return parsed(a_message(type_, ANA, ANA, {"value": value, "more": "x" * size}, id_=1))


async def test_what_is_queued_goes_out_as_one_block_in_order(pair: Pair) -> None:
    sent = [an("event", number) for number in range(100)]
    for message in sent:
        assert pair.port.queue.enqueue(message) is None
    assert pair.port.queue.queued == 100
    pair.port.queue.flush()
    assert pair.port.queue.queued == 0
    assert await pair.read(until=100) == [message.raw for message in sent]


async def test_a_long_batch_is_written_before_its_end(pair: Pair) -> None:
    for number in range(FLUSH_MESSAGES):
        pair.port.queue.enqueue(an("event", number))
    assert pair.port.queue.queued == 0


async def test_a_full_queue_drops_its_oldest_event_for_a_new_one(pair: Pair) -> None:
    pair.clog()
    for number in range(SESSION_QUEUE_MESSAGES + 5):
        assert pair.port.queue.enqueue(an("event", number)) is None
    assert pair.port.queue.queued == SESSION_QUEUE_MESSAGES
    assert pair.counters["dropped"] == 5
    received = await pair.read(until=SESSION_QUEUE_MESSAGES)
    assert received == [an("event", number).raw for number in range(5, SESSION_QUEUE_MESSAGES + 5)]


async def test_a_full_queue_refuses_requests_and_keeps_those_it_has(pair: Pair) -> None:
    pair.clog()
    for number in range(SESSION_QUEUE_MESSAGES):
        assert pair.port.queue.enqueue(an("read", number)) is None
    assert pair.port.queue.enqueue(an("read", "late")) is Code.OVERLOAD
    assert pair.port.queue.enqueue(an("event", "late")) is None
    assert pair.port.queue.queued == SESSION_QUEUE_MESSAGES
    assert (pair.counters["overload"], pair.counters["dropped"]) == (1, 1)
    assert (await pair.read(until=SESSION_QUEUE_MESSAGES))[-1] == an("read", SESSION_QUEUE_MESSAGES - 1).raw


async def test_a_response_is_never_dropped_and_takes_the_place_of_an_event(pair: Pair) -> None:
    pair.clog()
    pair.port.queue.enqueue(an("event"))
    for number in range(SESSION_QUEUE_MESSAGES + 9):
        assert pair.port.queue.enqueue(an("response", number)) is None
    assert pair.counters["dropped"] == 1
    received = await pair.read(until=SESSION_QUEUE_MESSAGES + 9)
    assert received == [an("response", number).raw for number in range(SESSION_QUEUE_MESSAGES + 9)]


async def test_nobody_looks_through_a_full_queue_of_answers_again_for_each_further_one(pair: Pair) -> None:
    class Watched(list[Message]):
        looks = 0

        def __getitem__(self, index: Any) -> Any:
            self.looks += 1
            return super().__getitem__(index)

    pair.clog()
    pair.port.queue._waiting.messages = queue = Watched()
    for number in range(5 * SESSION_QUEUE_MESSAGES):
        assert pair.port.queue.enqueue(an("response", number)) is None
    assert queue.looks <= len(queue) == 5 * SESSION_QUEUE_MESSAGES
    received = await pair.read(until=len(queue))
    assert len(received) == 5 * SESSION_QUEUE_MESSAGES
    pair.clog()
    for type_ in ("event", "response"):
        for number in range(SESSION_QUEUE_MESSAGES):
            pair.port.queue.enqueue(an(type_, number))
    assert pair.counters["dropped"] == SESSION_QUEUE_MESSAGES
    assert {message.type for message in queue} == {"response"}


@pytest.mark.parametrize("type_", ["event", "response", "read"])
async def test_a_runtime_that_reads_gets_more_at_once_than_its_queue_holds(pair: Pair, type_: str) -> None:
    large = [an(type_, number, 400_000) for number in range(3 * SESSION_QUEUE_BYTES // 400_000)]
    received: list[bytes] = []
    for start in range(0, len(large), 11):
        for message in large[start : start + 11]:
            assert pair.port.queue.enqueue(message) is None
        pair.port.queue.flush()
        received += await pair.read(until=len(large[start : start + 11]))
    assert received == [message.raw for message in large]
    assert pair.counters == {}


@pytest.mark.parametrize("type_", ["response", "pong"])
async def test_even_answers_have_a_bound_and_beyond_it_the_runtime_is_closed(pair: Pair, type_: str) -> None:
    pair.clog()
    taken = 0
    while pair.port.queue.enqueue(an(type_, taken, 1_000_000)) is None:
        taken += 1
        assert pair.port.queue._waiting.size_bytes <= ANSWER_BYTES + 1_000_100
    assert taken * 1_000_000 >= ANSWER_BYTES - 1_000_000
    assert pair.is_closed()
    assert (pair.port.queue.queued, pair.port.queue._waiting.size_bytes) == (0, 0)


async def test_the_queue_is_bounded_in_bytes_as_well(pair: Pair) -> None:
    pair.clog()
    size = 100_000
    for number in range(SESSION_QUEUE_BYTES // size):
        pair.port.queue.enqueue(an("read", number, size))
    assert pair.port.queue.enqueue(an("read", "late", size)) is Code.OVERLOAD
    assert pair.port.queue._waiting.size_bytes <= SESSION_QUEUE_BYTES


async def test_one_large_event_displaces_as_many_small_ones_as_it_needs(pair: Pair) -> None:
    pair.clog()
    while pair.port.queue._waiting.size_bytes < SESSION_QUEUE_BYTES - 10_000:
        pair.port.queue.enqueue(an("event", "small", 5_000))
    before = pair.port.queue.queued
    for _ in range(4):
        pair.port.queue.enqueue(an("event", "large", 1_000_000))
        assert pair.port.queue._waiting.size_bytes <= SESSION_QUEUE_BYTES
    assert pair.port.queue.queued < before
    assert pair.counters["dropped"] > 4


async def test_bytes_are_counted_right_whatever_is_dropped(pair: Pair) -> None:
    pair.clog()
    for number in range(3 * SESSION_QUEUE_MESSAGES):
        pair.port.queue.enqueue(an(("event", "read", "update")[number % 3], number, number % 50))
    assert pair.port.queue._waiting.size_bytes == sum(len(message.raw) for message in pair.port.queue._waiting.messages)


async def test_a_queue_that_is_half_full_asks_senders_to_pause_until_it_is_read(pair: Pair) -> None:
    pair.clog()
    assert not pair.is_congested()
    for number in range(SESSION_QUEUE_MESSAGES // 2 + 1):
        pair.port.queue.enqueue(an("event", number))
    assert pair.is_congested()
    relieved = trio.Event()

    async def wait() -> None:
        await pair.port.queue.wait_relief()
        relieved.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not relieved.is_set()
        await pair.read(until=SESSION_QUEUE_MESSAGES // 2 + 1)
    assert relieved.is_set()
    assert not pair.is_congested()


async def test_a_runtime_that_reads_again_in_time_is_spared(pair: Pair) -> None:
    pair.clog()
    pair.port.queue.enqueue(an("event"))
    pair.port.queue.flush()
    assert pair.is_stuck()
    await pair.read(until=1)
    assert not pair.is_stuck()
    assert not pair.port.queue.close_stuck(trio.current_time() + 10 * STUCK_SECONDS)


async def test_a_runtime_that_never_reads_is_closed_after_its_time_and_not_before(pair: Pair) -> None:
    pair.clog()
    pair.port.queue.enqueue(an("event"))
    pair.port.queue.flush()
    assert not pair.port.queue.close_stuck(pair.port.queue.stuck_since + STUCK_SECONDS - 0.1)
    assert not pair.is_closed()
    assert pair.port.queue.close_stuck(pair.port.queue.stuck_since + STUCK_SECONDS)
    assert pair.is_closed()
    assert pair.port.queue.enqueue(an("event")) is None  # late messages do no harm
    pair.port.queue.flush()


async def test_close_says_what_waits_and_then_goodbye(pair: Pair) -> None:
    pair.port.queue.enqueue(an("event", "the last"))
    pair.port.queue.close(1001, "the node stops")
    assert await pair.read(until=1) == [an("event", "the last").raw]
    assert pair.client.close_code == 1001
    assert pair.port.queue.is_closing
    assert not pair.is_closed()


async def test_who_was_asked_last_is_remembered_longest(pair: Pair) -> None:
    def asked(name: str) -> Message:
        return parsed(a_message("read", ANA, f"hyperty://alpha.example/{name}", id_=1))

    old, kept = asked("old"), asked("kept")
    pair.port.queue.enqueue(old)
    pair.port.queue.enqueue(kept)
    for number in range(ASKED_ADDRESSES - 2):
        pair.port.queue.enqueue(asked(str(number)))
    pair.port.queue.enqueue(kept)
    pair.port.queue.enqueue(asked("another"))
    assert not pair.port.queue.was_asked(old.to_key)
    assert pair.port.queue.was_asked(kept.to_key)


@pytest.mark.parametrize("type_", ["event", "response", "pong"])
async def test_only_a_request_asks(pair: Pair, type_: str) -> None:
    pair.port.queue.enqueue(an(type_))
    assert not pair.port.queue.was_asked(ANA)


# Messages that count their time.


async def test_time_that_a_message_waited_is_subtracted_and_what_outlived_it_is_reported(
    pair: Pair, autojump_clock: trio.testing.MockClock
) -> None:
    overdue: list[Message] = []
    pair.port.queue.on_expired = overdue.append
    pair.clog()
    for number, ttl in enumerate((5.0, 60.0, None)):
        body = {"n": number} if ttl is None else {"n": number, "ttl": ttl}
        message = parsed(a_message("read", "hyperty://alpha.example/h", ANA, body, id_=number))
        assert pair.port.queue.enqueue(message) is None
    await trio.sleep(10)
    bodies = [json.loads(raw)["body"] for raw in await pair.read(until=2)]
    assert bodies == [{"n": 1, "ttl": 50.0}, {"n": 2}]
    assert [message.id for message in overdue] == [b"0"]


async def test_a_message_that_did_not_wait_keeps_its_bytes(pair: Pair) -> None:
    message = parsed(a_message("read", "hyperty://alpha.example/h", ANA, {"ttl": 5}, id_=1))
    pair.port.queue.enqueue(message)
    pair.port.queue.flush()
    assert await pair.read(until=1) == [message.raw]


@pytest.mark.parametrize("ahead_seconds", [7_200.0, -7_200.0])
async def test_a_runtime_counts_as_silent_no_sooner_and_hardly_later_when_the_clock_is_set(
    pair: Pair, ahead_seconds: float
) -> None:
    port, ping_seconds = pair.port, 30.0
    port.sid = 1
    port.heard(10_000.0)
    now = 10_000.0 + ahead_seconds + 10.0
    port.clock_set(now, ahead_seconds)
    silent_at = now + (20.0 if ahead_seconds > 0.0 else 30.0)
    port.check(silent_at, ping_seconds=ping_seconds)
    assert port.pings_unanswered == 0
    port.check(silent_at + 0.1, ping_seconds=ping_seconds)
    assert port.pings_unanswered == 1


@pytest.mark.parametrize("ahead_seconds", [7_200.0, -7_200.0])
async def test_a_connection_has_its_time_to_open_a_session_when_the_clock_is_set(
    pair: Pair, ahead_seconds: float
) -> None:
    now = ahead_seconds + 1.0
    pair.port.clock_set(now, ahead_seconds)
    pair.port.check(now + OPEN_SECONDS - 1.0, ping_seconds=30.0)
    assert not pair.is_closed()
    pair.port.check(now + OPEN_SECONDS + 0.1, ping_seconds=30.0)
    assert pair.is_closed()
