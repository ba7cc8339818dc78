"""The machine of a link, by values: what it promises over any history, and what single events lead to."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st

from federation.core.awaited_replies import LinkNames
from federation.core.carrier import Accepted, Carrier, CarrierDown, CarrierUp, Convicted, Refused
from federation.core.link_machine import (
    NAME_STREAM,
    NEEDED,
    Answer,
    CannotProbe,
    Delivered,
    EndCarrier,
    Ended,
    GiveUp,
    LinkAction,
    LinkEvent,
    LinkMachine,
    NewStream,
    Probe,
    Pump,
    Rejected,
    Stalled,
    StubVerified,
    Tick,
    WentDown,
)
from federation.core.outbound_queue import OutboundMessage, QueueLimits
from protofly.errors import Code, PeerError
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import Message
from tests.support.sides import chat, request

NAMES = LinkNames("b.example", "runtime://a.example/mn-1", frozenset({"a.example"}))
LIMITS = QueueLimits(waiting_messages=6, in_flight_messages=4)
STREAM = "5" * 32


class Line(Carrier):
    """A carrier that does nothing by itself."""

    def __init__(self, origin: str = "", *, channel: Literal["stub", "peer"] = "peer") -> None:
        self.origin, self.channel = origin, channel

    def end(self) -> None:
        raise AssertionError("a machine performs nothing")

    def cut_off(self, code: Code) -> None:  # noqa: ARG002
        raise AssertionError("a machine performs nothing")

    def pump(self) -> None:
        raise AssertionError("a machine performs nothing")


def machine(limits: QueueLimits = LIMITS) -> LinkMachine:
    return LinkMachine(NAMES, STREAM, limits)


def outbound(message: Message, *, at: float = 0.0, ttl: float = REQUEST_TTL_SECONDS) -> OutboundMessage:
    return OutboundMessage(message, message.raw, b"", "", 0, at, "", "", 0, ttl)


def kinds(actions: list[LinkAction]) -> list[type]:
    return [type(action) for action in actions]


def test_a_first_message_asks_for_a_carrier_and_the_next_carrier_is_pumped() -> None:
    link, line = machine(), Line()
    assert link.handle(outbound(chat(1)), 0.0) == [NEEDED]
    up = link.handle(CarrierUp(line, "runtime://b.example/mn-1"), 1.0)
    assert Pump(line) in up
    assert link.handle(outbound(chat(2)), 2.0) == []
    assert [one.number for one in link.queue.take_batch(9, 1 << 20, 2.0)] == [1, 2]


def test_the_first_carrier_carries_until_it_is_down_and_the_next_repeats_with_the_old_numbers() -> None:
    link, first, second = machine(), Line(), Line()
    link.handle(CarrierUp(first, "n"), 0.0)
    link.handle(CarrierUp(second, "n"), 0.0)
    link.handle(outbound(chat(1)), 0.0)
    [sent] = link.queue.take_batch(9, 1 << 20, 0.0)
    down = link.handle(CarrierDown(first), 1.0)
    assert down == [WentDown(first, 1, "", True, False), Pump(second)]
    assert [one.number for one in link.queue.take_batch(9, 1 << 20, 1.0)] == [sent.number]
    assert link.handle(CarrierDown(first), 1.0) == []


def test_the_same_origin_that_comes_again_ends_its_older_carrier() -> None:
    link, old, new = machine(), Line("node"), Line("node")
    link.handle(CarrierUp(old, "n"), 0.0)
    actions = link.handle(CarrierUp(new, "n"), 1.0)
    assert EndCarrier(old) in actions
    assert link.carriers == [new]


def test_of_numbered_messages_each_comes_in_once_and_those_without_a_number_always() -> None:
    link = machine()
    run = [(1, b"a"), (2, b"b"), (0, b"c"), (2, b"b"), (3, b"d")]
    assert link.unseen(run, STREAM) == ([b"a", b"b", b"c", b"d"], 3)
    link.streams.heard(STREAM, 3)
    assert link.unseen([(3, b"d"), (0, b"c")], STREAM) == ([b"c"], 3)
    assert link.unseen([(3, b"d")], STREAM) == ([], 3)
    assert link.unseen([(4, b"e")], STREAM) == ((b"e",), 4)
    assert link.counters["duplicates"] == 3


def test_a_silent_line_is_asked_and_then_called_stalled_until_it_is_heard() -> None:
    link, line = machine(), Line()
    link.handle(CarrierUp(line, "n"), 0.0)
    link.handle(outbound(request(1), at=0.0), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    assert link.handle(Tick(0.0), 0.0) == []
    assert link.handle(Tick(0.0), 3.0) == [Probe(line)]
    [stalled] = link.handle(Tick(0.0), 6.0)
    assert isinstance(stalled, Stalled)
    assert (link.state, link.silent_seconds(6.0)) == ("stalled", 6.0)
    link.handle(Tick(7.0), 7.0)
    assert (link.state, link.silent_seconds(7.0)) == ("live", 0.0)


def test_a_line_that_cannot_be_asked_is_not_stalled_by_a_reply_that_takes_its_time() -> None:
    link, line = machine(), Line()
    link.handle(CarrierUp(line, "n"), 0.0)
    link.handle(outbound(request(1)), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    link.handle(Accepted(1), 0.0)
    for now in range(14):
        if link.handle(Tick(0.0), float(now)) == [Probe(line)]:
            link.handle(CannotProbe(), float(now))
    assert link.state == "live"


def test_used_up_numbers_ask_for_a_name_and_end_every_carrier() -> None:
    link, line = machine(), Line()
    link.handle(CarrierUp(line, "n"), 0.0)
    link.queue._next_number = (1 << 32) - 1
    link.handle(outbound(chat(1)), 0.0)
    [last] = link.queue.take_batch(9, 1 << 20, 0.0)
    assert NAME_STREAM in link.handle(Accepted(last.number), 0.0)
    assert link.handle(NewStream("6" * 32), 0.0) == [EndCarrier(line)]


def test_a_refusal_holds_while_no_carrier_is_up_and_until_its_time() -> None:
    link = machine()
    link.refusal, link.refuse_until = Code.CIRCUIT_OPEN, 5.0
    with pytest.raises(PeerError) as caught:
        link.check_accepting(4.0)
    assert caught.value.code is Code.CIRCUIT_OPEN
    link.check_accepting(5.0)
    link.handle(CarrierUp(Line(), "n"), 4.0)
    assert link.refusal is None


def test_a_refusal_is_over_once_a_carrier_was_up_and_holds_nobody_back_while_one_is() -> None:
    link, line = machine(), Line()
    link.refusal, link.refuse_until = Code.CIRCUIT_OPEN, 5.0
    link.handle(CarrierUp(line, "n"), 1.0)
    link.refusal = Code.CIRCUIT_OPEN
    link.check_accepting(2.0)
    link.refusal = None
    link.handle(CarrierDown(line), 3.0)
    link.check_accepting(4.0)


def test_carriers_of_different_origins_stay_beside_each_other() -> None:
    link, lines = machine(), [Line("node-1"), Line("node-2"), Line(), Line()]
    for line in lines:
        assert EndCarrier not in kinds(link.handle(CarrierUp(line, "n"), 0.0))
    assert link.carriers == lines


class Histories(stateful.RuleBasedStateMachine):
    """Any history of one link. Nothing is lost, each message ends once, and a tick that is repeated does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.link = machine()
        self.now = 0.0
        self.count = 0
        self.taken: dict[int, OutboundMessage] = {}
        self.ended: Counter[int] = Counter()
        self.delivered: list[int] = []
        self.answered: Counter[bytes] = Counter()
        self.replied: set[bytes] = set()
        self.under_way: list[OutboundMessage] = []

    def feed(self, event: LinkEvent) -> list[LinkAction]:
        actions = self.link.handle(event, self.now)
        for action in actions:
            match action:
                case Delivered(messages=messages):
                    self.delivered += [int(one.message.id or b"") for one in messages]
                    self.ended.update(int(one.message.id or b"") for one in messages)
                case Ended(message=message):
                    self.ended[int(message.message.id or b"")] += 1
                case Answer(reply=reply):
                    self.answered[reply.id or b""] += 1
        return actions

    @stateful.rule(is_request=st.booleans(), ttl=st.sampled_from([1.0, REQUEST_TTL_SECONDS]))
    def submit(self, *, is_request: bool, ttl: float) -> None:
        self.count += 1
        message = outbound((request if is_request else chat)(self.count), at=self.now, ttl=ttl)
        actions = self.feed(message)
        if Rejected not in kinds(actions):
            self.taken[self.count] = message

    @stateful.rule(origin=st.sampled_from(["", "x", "y"]))
    def carrier_up(self, origin: str) -> None:
        if len(self.link.carriers) < 3:
            self.feed(CarrierUp(Line(origin), "n"))
            self.under_way = list(self.link.queue._under_way)

    @stateful.rule(index=st.integers(0, 2))
    def carrier_down(self, index: int) -> None:
        if index < len(self.link.carriers):
            self.feed(CarrierDown(self.link.carriers[index]))
            self.under_way = list(self.link.queue._under_way)

    @stateful.rule(most=st.integers(1, 5))
    def take(self, most: int) -> None:
        if self.link.carriers:
            self.under_way += self.link.queue.take_batch(most, 1 << 20, self.now)

    @stateful.rule(index=st.integers(0, 3))
    def accept(self, index: int) -> None:
        if index < len(self.under_way):
            self.feed(Accepted(self.under_way[index].number))
            del self.under_way[: index + 1]

    @stateful.rule(index=st.integers(0, 3))
    def refuse(self, index: int) -> None:
        if index < len(self.under_way):
            self.feed(Refused(self.under_way.pop(index).number, Code.NO_ROUTE, ""))

    @stateful.rule(index=st.integers(0, 3))
    def die(self, index: int) -> None:
        if index < len(self.under_way):
            message = self.under_way[index]
            convicted = self.link.queue.suspect([message.number])
            if convicted is not None:
                self.under_way.remove(convicted)
                self.feed(Convicted(convicted))

    @stateful.rule()
    def give_up(self) -> None:
        self.feed(GiveUp(Code.CIRCUIT_OPEN, ""))
        self.under_way.clear()

    @stateful.rule()
    def verify_stub(self) -> None:
        def check(message: Message) -> None:
            if int(message.id or b"") % 3 == 0:
                raise PeerError(Code.BAD_TYPE)

        self.feed(StubVerified(check))

    @stateful.rule(seconds=st.floats(0.0, 20.0))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        while set(kinds(self.feed(Tick(self.now)))) & {Ended, Answer}:
            pass
        before = (self.link.queue.waiting, self.link.queue.under_way, self.link.state, dict(self.link.counters))
        assert self.feed(Tick(self.now)) == []
        after = (self.link.queue.waiting, self.link.queue.under_way, self.link.state, dict(self.link.counters))
        assert before == after

    @stateful.invariant()
    def each_message_is_here_or_ended_once(self) -> None:
        assert set(self.ended) <= set(self.taken)
        assert all(count == 1 for count in self.ended.values())
        here = self.link.queue.waiting + self.link.queue.under_way + len(self.link.queue._overdue)
        assert here + len(self.ended) == len(self.taken)

    @stateful.invariant()
    def messages_arrive_in_order(self) -> None:
        assert self.delivered == sorted(self.delivered)

    @stateful.invariant()
    def a_sender_gets_one_answer_at_most(self) -> None:
        assert all(count == 1 for count in self.answered.values())

    @stateful.invariant()
    def only_one_carrier_carries(self) -> None:
        assert self.link.queue.is_carried == bool(self.link.carriers)

    def teardown(self) -> None:
        self.feed(GiveUp(Code.OVERLOAD, ""))
        assert set(self.ended) == set(self.taken)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
