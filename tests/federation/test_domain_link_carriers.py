"""Carriers that come and go under one link, and the records of what they carried."""

from __future__ import annotations

import time

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from federation.core.carrier import Refused
from federation.core.outbound_queue import QueueLimits
from policy.core.gate import Gate
from protofly.errors import Code
from protofly.records import LinkEvent
from tests.support.policies import one_policy, permit
from tests.support.sides import Bus, MemoryCarrier, Pair, chat, decoded, numbers_of, request

STREAM = "5" * 32


def after(seconds: float) -> float:
    return time.monotonic() + seconds


def live_pair(*, a: Bus | None = None, b: Bus | None = None) -> tuple[Pair, MemoryCarrier]:
    pair = Pair(a=a, b=b)
    carrier = pair.carrier()
    carrier.open()
    return pair, carrier


# Carriers.


def test_the_first_carrier_that_is_up_carries_until_it_is_lost() -> None:
    pair, stub = live_pair()
    peer = pair.carrier(channel="peer")
    peer.open()
    pair.to_b.send(chat(1))
    pair.to_b.flush()
    assert (len(stub.on_the_way), len(peer.on_the_way), pair.to_b.machine.carried_by) == (1, 0, "stub")
    assert (pair.to_b.is_active(stub), pair.to_b.is_active(peer)) == (True, False)
    stub.cut()
    assert (len(peer.on_the_way), pair.to_b.machine.carried_by) == (1, "peer")
    assert not pair.to_b.need.has_arisen


def test_losing_a_carrier_that_does_not_carry_changes_nothing() -> None:
    pair, _ = live_pair()
    peer = pair.carrier(channel="peer")
    peer.open()
    pair.to_b.send(chat(1))
    pair.to_b.flush()
    peer.cut()
    peer.cut()
    assert (pair.to_b.queue.under_way, pair.to_b.queue.waiting) == (1, 0)
    assert pair.a.events == ["up", "up", "down"]
    assert pair.to_b.is_live


def test_the_last_carrier_lost_leaves_the_link_needed_while_something_waits() -> None:
    pair, stub = live_pair()
    stub.cut()
    assert (pair.to_b.state, pair.to_b.need.has_arisen) == ("disconnected", False)
    stub.open()
    pair.to_b.send(chat(1))
    pair.to_b.flush()
    stub.cut()
    assert pair.to_b.need.has_arisen
    [down] = [one for one in pair.a.records if isinstance(one, LinkEvent) and one.event == "down"][-1:]
    assert (down.waiting, down.direction) == (1, "out")


def test_what_waits_is_handed_over_as_soon_as_a_carrier_is_up() -> None:
    pair = Pair()
    pair.to_b.send(chat(1))
    pair.to_b.send(chat(2))
    carrier = pair.carrier()
    carrier.open()
    assert [pending.number for pending in carrier.on_the_way] == [1, 2]
    assert pair.a.came_live == ["b.example"]


def test_an_acceptance_makes_room_for_what_waits() -> None:
    limits = QueueLimits(in_flight_messages=2)
    pair, carrier = live_pair(a=Bus("a.example", limits=limits))
    for number in range(1, 5):
        pair.to_b.send(chat(number))
        pair.to_b.flush()
    assert len(carrier.on_the_way) == 2
    carrier.arrive()
    carrier.acknowledge()
    assert [pending.number for pending in carrier.on_the_way] == [3, 4]


async def test_everybody_who_waits_for_relief_is_woken() -> None:
    pair, carrier = live_pair()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await pair.to_b.senders.wait_relief()
        woken.append(number)

    pair.to_b.send(chat(1))
    pair.to_b.flush()
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(wait, number)
        await trio.testing.wait_all_tasks_blocked()
        carrier.arrive()
        carrier.acknowledge()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert sorted(woken) == [0, 1, 2]


async def test_who_waits_for_a_carrier_is_woken_and_a_lost_one_does_not_count() -> None:
    pair, carrier = live_pair()
    await pair.to_b.effects.wait_live()
    carrier.cut()
    woken: list[int] = []

    async def wait() -> None:
        await pair.to_b.effects.wait_live()
        woken.append(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        carrier.open()
        await trio.testing.wait_all_tasks_blocked()
        assert woken == [1]


async def test_a_reader_waits_while_our_bus_has_no_room() -> None:
    pair = Pair()
    pair.a.room = trio.Event()
    with trio.move_on_after(0) as scope:
        await pair.to_b.wait_for_room()
    assert scope.cancelled_caught
    pair.a.room.set()
    await pair.to_b.wait_for_room()


def test_when_the_numbers_are_used_up_another_stream_begins_and_nothing_is_lost() -> None:
    pair, carrier = live_pair()
    old = pair.to_b.queue.stream
    pair.to_b.queue.next_number = 0xFFFFFFFF
    for number in (1, 2):
        pair.to_b.send(chat(number))
        pair.to_b.flush()
    assert [pending.number for pending in carrier.on_the_way] == [0xFFFFFFFF]
    carrier.arrive()
    carrier.acknowledge()
    assert carrier.is_ended
    carrier.cut()
    again = pair.carrier()
    again.open()
    assert pair.to_b.queue.stream != old
    assert [pending.number for pending in again.on_the_way] == [1]
    again.arrive()
    again.acknowledge()
    assert numbers_of(pair.b.delivered) == [1, 2]


# The records.


def test_both_sides_write_down_the_same_message() -> None:
    pair, carrier = live_pair()
    message = chat(1, text="grüße")
    pair.to_b.stub.started_sha256 = "ab" * 32
    pair.to_b.send(message)
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    [sent], [received] = pair.a.message_records, pair.b.message_records
    assert (sent.msg_id, sent.digest) == (received.msg_id, received.digest)
    assert len(sent.msg_id) == len(sent.digest) == 32
    for record in (sent, received):
        assert (record.src_domain, record.dst_domain) == ("a.example", "b.example")
        assert (record.src_key, record.dst_key, record.msg_type) == (message.from_, message.to, "create")
        assert (record.outcome, record.outcome_code, record.decision) == ("delivered", None, "permit")
        assert record.attempt == 1
    assert (sent.role, sent.channel, sent.size_in) == ("out", "stub", len(message.raw))
    assert (received.role, received.channel, received.size_in) == ("in", None, len(message.raw))
    assert sent.size_wire == received.size_wire
    assert sent.size_wire is not None
    assert sent.size_wire > sent.size_in
    assert abs(sent.ts_us - time.time() * 1e6) < 60e6
    assert sent.d_peer_us is not None
    assert sent.d_total_us is not None
    assert 0 <= sent.d_peer_us <= sent.d_total_us


def test_the_rule_and_revision_that_let_a_message_pass_are_written_down() -> None:
    policies = one_policy(permit("chat-is-fine"))
    pair, carrier = live_pair(a=Bus("a.example", gate=Gate(policies)))
    pair.to_b.send(chat(1))
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    [sent] = pair.a.message_records
    assert (sent.rule_id, sent.policy_rev) == ("s/chat-is-fine", policies.revision)


def test_each_message_has_one_line_per_side_whatever_happens_to_it() -> None:
    pair, carrier = live_pair()
    for number in range(1, 6):
        pair.to_b.send(request(number))
    pair.to_b.flush()
    carrier.arrive(2)
    carrier.acknowledge()
    pair.to_b.handle(Refused(3, Code.NO_ROUTE, ""))
    carrier.cut()
    pair.to_b.tick(after(60))
    assert [record.outcome for record in pair.a.message_records] == [
        "delivered",
        "delivered",
        "rejected",
        "expired",
        "expired",
    ]
    assert len({record.msg_id for record in pair.a.message_records}) == 5


def test_a_traced_message_can_be_followed_hop_by_hop() -> None:
    pair, carrier = live_pair()
    pair.to_b.send(chat(1, trace="t-1"))
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    [ours], [theirs] = pair.a.traces.snapshot(), pair.b.traces.snapshot()
    assert [hop["name"] for hop in ours["hops"]] == ["gate out", "stub", "acknowledged"]  # type: ignore[attr-defined]
    assert [hop["name"] for hop in theirs["hops"]] == ["link in", "bus"]  # type: ignore[attr-defined]


SPACE = st.sampled_from(["", " ", "\n", "  "])


@settings(max_examples=150, deadline=None)
@given(spaces=st.lists(SPACE, min_size=12, max_size=12), order=st.permutations(range(5)), members=st.integers(0, 2))
def test_however_a_message_is_written_both_sides_hash_the_same(
    spaces: list[str], order: list[int], members: int
) -> None:
    s = iter(spaces)
    inner = ("," + next(s)).join(f'"m{number}"{next(s)}:{next(s)}{number}' for number in range(members))
    parts = [
        f'"id":{next(s)}1',
        '"type":"create"',
        '"from":"hyperty://a.example/ana"',
        '"to":"hyperty://b.example/bo"',
        f'"body":{{{next(s)}{inner}{next(s)}}}',
    ]
    raw = "{" + next(s) + ",".join(parts[index] for index in order) + next(s) + "}"
    pair, carrier = live_pair()
    assert pair.to_b.send(decoded(raw.encode())) is None
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    [sent], [received] = pair.a.message_records, pair.b.message_records
    assert (sent.msg_id, sent.digest) == (received.msg_id, received.digest)


# Any order of events.


class LinkMachine(RuleBasedStateMachine):
    """Two links, carriers that come and go, acknowledgements that are late: all arrive once, in order."""

    def __init__(self) -> None:
        super().__init__()
        limits = QueueLimits(waiting_messages=30, in_flight_messages=20, in_flight_bytes=1 << 20)
        self.pair = Pair(a=Bus("a.example", limits=limits), b=Bus("b.example"))
        self.up: list[MemoryCarrier] = []
        self.count = 0

    @rule(some=st.integers(1, 8))
    def send(self, some: int) -> None:
        for _ in range(some):
            if self.pair.to_b.send(chat(self.count + 1)) is None:
                self.count += 1
        self.pair.to_b.flush()

    @precondition(lambda self: len(self.up) < 3)
    @rule(channel=st.sampled_from(["stub", "peer"]))
    def come(self, channel: str) -> None:
        carrier = self.pair.carrier(channel=channel)
        self.up.append(carrier)
        carrier.open()

    @precondition(lambda self: self.up)
    @rule(which=st.integers(0, 2), some=st.integers(0, 5))
    def go(self, which: int, some: int) -> None:
        """Some of what was on the way still arrives; its acknowledgement does not."""
        carrier = self.up.pop(which % len(self.up))
        carrier.arrive(some)
        carrier.cut()

    @precondition(lambda self: self.up)
    @rule(some=st.integers(0, 10))
    def arrive(self, some: int) -> None:
        self.up[0].arrive(some)

    @precondition(lambda self: self.up)
    @rule()
    def acknowledge(self) -> None:
        self.up[0].acknowledge()

    @invariant()
    def what_arrived_is_a_beginning_of_what_was_sent(self) -> None:
        numbers = numbers_of(self.pair.b.delivered)
        assert numbers == list(range(1, len(numbers) + 1))

    def teardown(self) -> None:
        if not self.up:
            self.come("stub")
        carrier = self.up[0]
        while self.pair.to_b.queue.waiting or self.pair.to_b.queue.under_way:
            carrier.arrive()
            carrier.acknowledge()
        assert numbers_of(self.pair.b.delivered) == list(range(1, self.count + 1))
        outcomes = [record.outcome for record in self.pair.a.message_records if record.outcome != "rejected"]
        assert outcomes == ["delivered"] * self.count


TestLinkMachine = LinkMachine.TestCase
TestLinkMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
