"""The genuine link stub in a real worker, against the product's acceptor on loopback TLS: both ways, cut, resumed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
import trio
import trio.lowlevel
import trio.testing

from federation.core.outbound_queue import QueueLimits
from protofly.errors import Code
from protofly.message import Message
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event
from sandbox.host import Sandbox, StubProcess
from tests.support import guests
from tests.support.guest_records import encode_actions
from tests.support.hosted import LINK_BUDGET, StubRig, link_module, start_worker, stub_rig
from tests.support.lines import certificate_of
from tests.support.link_endpoint import Documents, LinkEndpoint, make_world
from tests.support.repository import World
from tests.support.scripted_stub import act, status
from tests.support.services import until
from tests.support.sides import Bus, MemoryCarrier, chat, numbers_of, request


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = make_world(tmp_path, code=link_module())
    yield made
    made.close()


# The genuine stub in a real worker, against the product's acceptor on loopback TLS.


class Trapezoid:
    """RuntimeA's domain with the stub, RuntimeB's domain with the endpoint."""

    def __init__(self, a: StubRig, endpoint: LinkEndpoint) -> None:
        self.a, self.b = a, endpoint

    @property
    def is_live(self) -> bool:
        return self.a.link.is_live and self.b.link.is_live

    def send_back(self, *messages: Message) -> None:
        for message in messages:
            assert self.b.link.send(message) is None
        self.b.link.flush()

    @property
    def is_quiet(self) -> bool:
        queues = (self.a.link.queue, self.b.link.queue)
        return not any(queue.waiting or queue.under_way for queue in queues)


@asynccontextmanager
async def trapezoid(world: World, *, a: Bus | None = None, b: Bus | None = None) -> AsyncIterator[Trapezoid]:
    documents = Documents(world)
    endpoint = LinkEndpoint(documents, bus=b)
    rig = await stub_rig(world, documents, bus=a)
    async with trio.open_nursery() as nursery:
        rig.dialler.places["mn_b_example"] = await nursery.start(endpoint.run)
        yield Trapezoid(rig, endpoint)
        nursery.cancel_scope.cancel()
    assert endpoint.failures == []


def back(number: int, **body: object) -> Message:
    return chat(number, from_="b.example", to="a.example", **body)


async def test_the_genuine_stub_carries_both_ways_over_one_link(world: World, sandbox: Sandbox) -> None:
    count = 500
    async with trapezoid(world) as rig:
        rig.a.send(*[chat(number) for number in range(1, 51)])  # these wait for the first contact
        async with rig.a.running(await start_worker(sandbox, link_module())):
            await until(lambda: rig.is_live)
            rig.a.send(*[chat(number) for number in range(51, count + 1)])
            rig.send_back(*[back(number) for number in range(1, count + 1)])
            await until(lambda: rig.is_quiet)
            assert (rig.a.link.machine.carried_by, rig.b.link.machine.carried_by) == ("stub", "peer")
            assert rig.a.link.machine.peer_node == "runtime://b.example/mn-1"
    assert numbers_of(rig.b.bus.delivered) == list(range(1, count + 1))
    assert numbers_of(rig.a.bus.delivered) == list(range(1, count + 1))
    assert rig.a.states == ["created", "in-progress", "live"]
    assert rig.a.dialler.asked == [("mn.b.example", 443, "b.example")]


async def test_both_records_agree(world: World, sandbox: Sandbox) -> None:
    async with trapezoid(world) as rig, rig.a.running(await start_worker(sandbox, link_module())):
        await until(lambda: rig.is_live)
        rig.a.send(*[chat(number, text="ä" * number) for number in range(1, 20)])
        await until(lambda: rig.is_quiet)
    sent, received = rig.a.bus.message_records, rig.b.bus.message_records
    assert [(one.msg_id, one.digest, one.src_key, one.dst_key) for one in sent] == [
        (one.msg_id, one.digest, one.src_key, one.dst_key) for one in received
    ]
    assert {(one.role, one.outcome, one.channel) for one in sent} == {("out", "delivered", "stub")}
    assert {(one.role, one.outcome, one.channel) for one in received} == {("in", "delivered", "peer")}


async def test_huge_and_tiny_messages_keep_their_order(world: World, sandbox: Sandbox) -> None:
    sizes = [0, 1_900_000, 1, 70_000, 60_000, 0, 245_000, 2]
    unhurried = replace(LINK_BUDGET, cpu_milliseconds=2_000, batch_seconds=10.0)  # order is the matter, not the speed
    async with trapezoid(world) as rig, rig.a.running(await start_worker(sandbox, link_module(), unhurried)):
        await until(lambda: rig.is_live)
        rig.a.send(*[chat(number, text="x" * size) for number, size in enumerate(sizes)])
        rig.send_back(*[back(number, text="x" * size) for number, size in enumerate(sizes)])
        await until(lambda: rig.is_quiet)
    assert numbers_of(rig.b.bus.delivered) == numbers_of(rig.a.bus.delivered) == list(range(len(sizes)))


async def test_the_stub_comes_back_by_itself_when_the_line_breaks(world: World, sandbox: Sandbox) -> None:
    async with trapezoid(world) as rig, rig.a.running(await start_worker(sandbox, link_module())):
        await until(lambda: rig.is_live)
        rig.a.send(chat(1))
        rig.send_back(back(1))
        await until(lambda: rig.is_quiet)
        rig.a.cut()
        await until(lambda: not rig.a.link.is_live and not rig.b.link.is_live)
        rig.a.send(chat(2))
        rig.send_back(back(2))
        await until(lambda: rig.is_live and rig.is_quiet)
    assert numbers_of(rig.b.bus.delivered) == numbers_of(rig.a.bus.delivered) == [1, 2]
    words = [word for word, _ in groupby(state.split()[0] for state in rig.a.states[2:])]
    assert words == ["live", "disconnected", "in-progress", "live"]
    assert rig.b.sessions == 2


async def turns(count: int) -> None:
    """So many turns of the scheduler."""
    for _ in range(count):
        await trio.lowlevel.checkpoint()


class RandomTraffic:
    """`COUNT` messages each way, a few at a time, over lines and instances that end at random."""

    COUNT = 400

    def __init__(self, rig: Trapezoid, seed: int) -> None:
        self.rig = rig
        self._chance = random.Random(seed)
        self._sent = self._sent_back = self._runs = 0

    @property
    def is_done(self) -> bool:
        return self._sent == self._sent_back == self.COUNT and self.rig.is_quiet

    async def run(self, process: StubProcess) -> None:
        """The life of one instance."""
        self._runs += 1
        async with self.rig.a.running(process):
            await until(lambda: self.rig.is_live)
            for _ in range(self._chance.randrange(1, 4)):
                await self._send_some()
            if self._runs > 12:
                await until(lambda: self.rig.is_quiet)
            if self._chance.random() < 0.5:
                self.rig.a.cut()
            elif self._chance.random() < 0.5:
                self.rig.b.cut()
            await turns(self._chance.randrange(5))
        await until(lambda: not self.rig.b.link.is_live)

    async def _send_some(self) -> None:
        chance = self._chance
        first, self._sent = self._sent + 1, min(self.COUNT, self._sent + chance.randrange(80))
        self.rig.a.send(*[_padded(chat, number, chance) for number in range(first, self._sent + 1)])
        first, self._sent_back = self._sent_back + 1, min(self.COUNT, self._sent_back + chance.randrange(80))
        self.rig.send_back(*[_padded(back, number, chance) for number in range(first, self._sent_back + 1)])
        await turns(chance.randrange(40))


@pytest.mark.parametrize("seed", range(4))
async def test_lines_and_instances_may_end_at_any_point(world: World, sandbox: Sandbox, seed: int) -> None:
    """Traffic both ways; line and instance end at random; a new instance resumes. Nothing lost, nothing twice."""
    count = RandomTraffic.COUNT
    limits = QueueLimits(waiting_messages=count, waiting_bytes=32 << 20, waiting_seconds=600.0)
    async with trapezoid(world, a=Bus("a.example", limits=limits), b=Bus("b.example", limits=limits)) as rig:
        traffic = RandomTraffic(rig, seed)
        while not traffic.is_done:
            process = await start_worker(sandbox, link_module())
            await traffic.run(process)
            process.close()
    assert numbers_of(rig.b.bus.delivered) == numbers_of(rig.a.bus.delivered) == list(range(1, count + 1))
    for bus in (rig.a.bus, rig.b.bus):
        delivered = [one for one in bus.message_records if one.role == "out"]
        assert [one.outcome for one in delivered] == ["delivered"] * count


def _padded(make: Callable[..., Message], number: int, chance: random.Random) -> Message:
    return make(number, pad="x" * chance.choice((0, 10, 3_000, 30_000)))


async def test_an_inbound_link_carries_and_the_own_stub_takes_over_when_it_is_lost(
    world: World, sandbox: Sandbox
) -> None:
    async with trapezoid(world) as rig:
        inbound = MemoryCarrier(rig.a.link, rig.b.link, channel="peer")
        inbound.open()
        async with rig.a.running(await start_worker(sandbox, link_module())):
            await until(lambda: rig.b.link.is_live)
            rig.a.send(chat(1), chat(2), chat(3))
            assert len(inbound.on_the_way) == 3
            inbound.arrive(1)
            inbound.cut()
            await until(lambda: rig.is_quiet)
            rig.a.send(chat(4))
            await until(lambda: rig.is_quiet)
            assert rig.a.link.machine.carried_by == "stub"
    assert numbers_of(rig.b.bus.delivered) == [1, 2, 3, 4]


async def test_drain_says_goodbye_and_leaves_nothing_behind(world: World, sandbox: Sandbox) -> None:
    async with trapezoid(world) as rig, rig.a.running(await start_worker(sandbox, link_module())):
        await until(lambda: rig.is_live)
        rig.a.send(chat(1))
        await until(lambda: rig.is_quiet)
        rig.a.hosted.drain()
        await until(lambda: not rig.b.link.is_live and not rig.a.link.is_live)
        assert rig.a.states[-1] == "disconnected drained"


async def test_a_far_end_that_is_not_there_is_reported_and_asked_again(world: World, sandbox: Sandbox) -> None:
    rig = await stub_rig(world, Documents(world))
    async with rig.running(await start_worker(sandbox, link_module())):
        await until(lambda: len(rig.dialler.asked) == 2)
    assert rig.states[1].startswith("disconnected connect-failed")
    assert not rig.link.is_live


async def test_an_endpoint_with_a_certificate_for_another_name_gets_no_word(world: World, sandbox: Sandbox) -> None:
    documents = Documents(world)
    endpoint = LinkEndpoint(documents, certificate=certificate_of("mn.c.example"))
    rig = await stub_rig(world, documents)
    async with trio.open_nursery() as nursery:
        rig.dialler.places["mn_b_example"] = await nursery.start(endpoint.run)
        async with rig.running(await start_worker(sandbox, link_module())):
            await until(lambda: len(rig.states) == 2)
        nursery.cancel_scope.cancel()
    assert rig.states[1].startswith("disconnected tls-failed")
    assert endpoint.sessions == 0


LIVE = encode_actions([status("live")])


async def test_a_message_that_kills_a_real_guest_is_quarantined(world: World, sandbox: Sandbox) -> None:
    """A guest in WAT: says `live` at the start, accepts messages, traps on one whose text begins with `[`."""
    accepted = encode_actions([act(Action.ACCEPTED, 0)])
    module = guests.guest(
        f"""(if (i32.eq (i32.load8_u offset=24 (local.get $p)) (i32.const {Event.START:d}))
              (then (return {guests.answer(guests.OUTPUT_AT, f"(i32.const {len(LIVE)})")})))
            (if (i32.eq (i32.load8_u offset=24 (local.get $p)) (i32.const {Event.MESSAGE:d}))
              (then
                (if (i32.eq (i32.load8_u offset=37 (local.get $p)) (i32.const {ord("x")})) (then (unreachable)))
                (i32.store offset={guests.OUTPUT_AT + 1028} (i32.const 0) (i32.load offset=28 (local.get $p)))
                (return {guests.answer(guests.OUTPUT_AT + 1024, f"(i32.const {len(accepted)})")})))
            {guests.answer(guests.OUTPUT_AT, "(i32.const 0)")}""",
        extra=guests.data(guests.OUTPUT_AT, LIVE) + guests.data(guests.OUTPUT_AT + 1024, accepted),
    )
    world.b.publish_stub(
        serial=2, code=module, permissions=world.b.manifest.permissions.__class__(connect=["mn"], auth=False)
    )
    rig = await stub_rig(world, Documents(world))
    process = await start_worker(sandbox, module, Budget())
    faults = []
    rig.link.send(request(1))
    [pending] = rig.link.queue._waiting
    pending.wire = b"{x" + pending.wire
    while rig.link.queue.waiting:
        async with rig.running(process):
            await until(lambda: rig.fault)
        assert rig.fault is not None
        faults.append(rig.fault.code)
        process = await start_worker(sandbox, module, Budget())
    assert faults == [Code.STUB_TRAPPED] * 2
    assert rig.bus.answer_codes == [Code.QUARANTINED]
    assert [record.outcome for record in rig.bus.message_records] == ["trapped"]
    async with rig.running(process):
        rig.send(request(2))
        await until(lambda: not (rig.link.queue.waiting or rig.link.queue.under_way))
    assert rig.bus.message_records[-1].outcome == "delivered"
