"""A share of the messages goes by a newer version: which ones, and that pairs of addresses keep their order."""

from __future__ import annotations

from collections import defaultdict

import hypothesis.strategies as st
import pytest
from hypothesis import given

from federation.core.awaited_replies import LinkNames
from federation.core.canary_lane import CanaryLane
from federation.core.canary_machine import CanaryMachine
from federation.core.carrier import Accepted, Carrier, CarrierDown, CarrierProved, CarrierUp, Convicted, Refused
from federation.core.link_machine import Answer, Delivered, Ended, LinkMachine, Pump, Quarantine, Tick, queues_of
from federation.core.outbound_queue import OutboundMessage, OutboundQueue, QueueLimits
from protofly.codec import build
from protofly.errors import Code
from tests.federation.test_outbound_queue import pending as queued

STREAM = "0123456789abcdef" * 2
PAIRS = [f"hyperty://a.example/{index}" for index in range(40)]


def message(pair: str, number: int = 1) -> OutboundMessage:
    made = queued()
    made.message = build(id=number, type="create", from_=pair, to="hyperty://b.example/bo", body={})
    return made


def lane(percent: int = 50, stream: str = STREAM) -> CanaryLane:
    return CanaryLane(stream, percent, QueueLimits())


@pytest.mark.parametrize("percent", [0, 10, 50])
def test_the_share_is_about_so_many_of_the_pairs(percent: int) -> None:
    share = lane(percent)
    taken = sum(share.takes(message(f"hyperty://a.example/{index}").message) for index in range(2000))
    assert abs(taken - 20 * percent) < 100


def test_which_pairs_are_of_the_share_differs_from_stream_to_stream() -> None:
    shares = {tuple(lane(stream=f"{seed:032x}").takes(message(pair).message) for pair in PAIRS) for seed in range(8)}
    assert len(shares) == 8


class Side:
    """A link whose main carrier and share are lists; `arrived` is what the far end took, in its order."""

    def __init__(self) -> None:
        self.main, self.lane = OutboundQueue("f" * 32), lane()
        self.arrived: dict[str, list[int]] = defaultdict(list)
        self.is_lane_there = False
        self._acknowledged: dict[str, int] = defaultdict(int)

    def submit(self, pair: str, number: int) -> None:
        pending = message(pair, number)
        queue = self.lane.queue_for(pending.message, self.main) if self.is_lane_there else self.main
        assert queue.submit(pending) is None

    def take(self, queue: OutboundQueue, count: int, *, is_acknowledged: bool) -> None:
        """The far end takes some; what has come before is known by its number. The acknowledgement may be lost."""
        for pending in queue.take_batch(count, 1 << 20, 0.0):
            if pending.number > self._acknowledged[queue.stream]:
                self._acknowledged[queue.stream] = pending.number
                self.arrived[pending.message.from_].append(int(pending.message.id or b"0"))
        if is_acknowledged:
            queue.resume(self._acknowledged[queue.stream])

    def open(self) -> None:
        self.main.resume(self._acknowledged["f" * 32])
        if self.main.is_clear:
            self.is_lane_there = True
            self.lane.open(self.main)

    def close(self) -> None:
        self.lane.close(30.0)
        self.lane.queue.carrier_lost(0.0)
        while not self.lane.is_finished:
            self.take(self.lane.queue, 5, is_acknowledged=True)
        assert self.lane.join(self.main) == 0
        self.is_lane_there = False


_STEP = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(PAIRS[:6])),
    st.tuples(st.sampled_from(["main", "lane"]), st.booleans()),
    st.sampled_from([("open", True), ("close", True)]),
)


@given(st.lists(_STEP, max_size=80))
def test_each_pair_keeps_its_order_and_nothing_is_lost_or_doubled(steps: list[tuple[str, str | bool]]) -> None:
    side, sent = Side(), defaultdict(list)
    for number, (step, value) in enumerate(steps, start=1):
        if step == "submit":
            assert isinstance(value, str)
            sent[value].append(number)
            side.submit(value, number)
        elif step == "main":
            side.take(side.main, 3, is_acknowledged=bool(value))
        elif step == "lane" and side.is_lane_there:
            side.take(side.lane.queue, 3, is_acknowledged=bool(value))
        elif step == "open" and not side.is_lane_there:
            side.open()
        elif step == "close" and side.is_lane_there:
            side.close()
    if side.is_lane_there:
        side.close()
    while side.main.waiting or side.main.under_way:
        side.main.carrier_lost(0.0)
        side.take(side.main, 100, is_acknowledged=True)
    assert dict(side.arrived) == dict(sent)


def test_what_nobody_says_the_fate_of_is_counted_when_the_share_joins() -> None:
    share, main = lane(100), OutboundQueue("f" * 32)
    share.open(main)
    for number in (1, 2, 3):
        share.queue_for(message(PAIRS[0]).message, main).submit(message(PAIRS[0], number))
    share.queue.take_batch(2, 1 << 20, 0.0)
    share.close(30.0)
    assert (share.is_finished, share.held.waiting) == (False, 1)
    assert share.join(main) == 2
    assert [pending.message.id for pending in main] == [b"1", b"2", b"3"]
    assert all(not pending.number for pending in main)


# The machine of the share.


class Taker(Carrier):
    """A carrier of which nothing but its name counts."""

    channel = "stub"

    def pump(self) -> None:
        """It takes nothing by itself."""

    def end(self) -> None:
        """Nothing ends."""

    def cut_off(self, code: Code) -> None:
        """Nothing ends."""


@pytest.fixture
def machine() -> LinkMachine:
    made = LinkMachine(
        LinkNames("b.example", "runtime://a.example/mn-1", frozenset({"a.example"})), "f" * 32, QueueLimits()
    )
    made.canary = lane(50)
    made.canary.open(made.queue)
    return made


def sent(machine: LinkMachine, pairs: list[str]) -> CanaryLane:
    for number, pair in enumerate(pairs, start=1):
        machine.handle(message(pair, number), 0.0)
    assert machine.canary is not None
    return machine.canary


def test_a_machine_with_a_share_divides_what_is_submitted(machine: LinkMachine) -> None:
    share = sent(machine, PAIRS)
    assert {pending.message.from_ for pending in share.queue} == {
        pair for pair in PAIRS if share.takes(message(pair).message)
    }
    assert machine.queue.waiting + share.queue.waiting == len(PAIRS)
    assert [queue.waiting for queue in queues_of(machine)] == [machine.queue.waiting, share.queue.waiting, 0]


def test_the_carrier_of_a_share_is_pumped_and_its_acknowledgements_are_counted(machine: LinkMachine) -> None:
    share, carrier = sent(machine, PAIRS), Taker()
    events = CanaryMachine(machine, share)
    assert Pump(carrier) in events.handle(CarrierUp(carrier, ""), 0.0)
    taken = share.queue.take_batch(3, 1 << 20, 0.0)
    [delivered, *rest] = events.handle(Accepted(2), 0.0)
    assert isinstance(delivered, Delivered)
    assert (delivered.messages, share.delivered) == (taken[:2], 2)
    assert rest == [Pump(carrier)]


def test_what_the_newer_version_refuses_is_answered_and_counted_against_it(machine: LinkMachine) -> None:
    share = sent(machine, PAIRS)
    events = CanaryMachine(machine, share)
    share.queue.take_batch(2, 1 << 20, 0.0)
    [ended, answered] = events.handle(Refused(1, Code.STUB_REFUSED, "no"), 0.0)
    assert isinstance(ended, Ended)
    assert isinstance(answered, Answer)
    assert (ended.code, share.refused) == (Code.STUB_REFUSED, 1)
    assert events.handle(Refused(1, Code.STUB_REFUSED, "no"), 0.0) == []


def test_a_message_that_kills_the_newer_version_twice_is_quarantined(machine: LinkMachine) -> None:
    share = sent(machine, PAIRS)
    [convicted] = share.queue.take_batch(1, 1 << 20, 0.0)
    [quarantined, *_] = CanaryMachine(machine, share).handle(Convicted(convicted), 0.0)
    assert quarantined == Quarantine(convicted)


def test_what_a_lost_carrier_of_a_share_had_waits_with_its_numbers(machine: LinkMachine) -> None:
    share, carrier = sent(machine, PAIRS), Taker()
    events = CanaryMachine(machine, share)
    events.handle(CarrierUp(carrier, ""), 0.0)
    taken = share.queue.take_batch(3, 1 << 20, 0.0)
    assert events.handle(CarrierProved(carrier, frozenset()), 0.0) == []
    assert events.handle(CarrierDown(Taker()), 0.0) == []
    assert [share.carrier] == [carrier]
    assert events.handle(CarrierDown(carrier), 0.0) == []
    assert [share.carrier] == [None]
    assert [pending.number for pending in share.queue][:4] == [*(one.number for one in taken), 0]


def test_as_many_messages_of_a_share_may_wait_as_while_a_carrier_is_up_and_while_its_end_is_awaited() -> None:
    share, carrier = CanaryLane(STREAM, 100, QueueLimits(waiting_messages=1, in_flight_messages=3)), Taker()
    machine = LinkMachine(LinkNames("b.example", "", frozenset()), "f" * 32, QueueLimits())
    share.open(machine.queue)

    def taken(queue: OutboundQueue) -> list[bool]:
        return [queue.submit(message(PAIRS[0], number)) is None for number in range(4)]

    CanaryMachine(machine, share).handle(CarrierUp(carrier, ""), 0.0)
    assert taken(share.queue) == [True, True, True, False]
    share.close(30.0)
    assert taken(share.held) == [False] * 4  # the three have moved there
    share.held.abandon()
    assert taken(share.held) == [True, True, True, False]


def test_what_waits_too_long_in_a_share_is_answered_as_anything_else(machine: LinkMachine) -> None:
    share = sent(machine, PAIRS)
    share.close(30.0)
    actions = machine.handle(Tick(0.0), 1e6)
    assert not any(queue.waiting for queue in queues_of(machine))
    assert sum(isinstance(action, Ended) for action in actions) == len(PAIRS)


def test_a_receipt_follows_what_went_by_a_share(machine: LinkMachine) -> None:
    share = machine.canary
    assert share is not None
    for number, pair in enumerate(PAIRS, start=1):
        asking = message(pair, number)
        to = "hyperty://b.example/bo"
        asking.message = build(id=number, type="event", from_=pair, to=to, body={"receipt": True})
        machine.handle(asking, 0.0)
    [first, *_] = share.queue.take_batch(3, 1 << 20, 0.0)
    [_, receipt, *_] = CanaryMachine(machine, share).handle(Accepted(1), 0.0)
    assert isinstance(receipt, Answer)
    assert receipt.reply.id == first.message.id
