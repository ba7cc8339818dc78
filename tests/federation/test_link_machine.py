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
    Quarantine,
    Rejected,
    Stalled,
    StubVerified,
    Switched,
    TakeOver,
    Tick,
    WentDown,
)
from federation.core.outbound_queue import OutboundMessage, QueueLimits
from protofly.codec import body_members, build
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
    assert (link.peer_node, link.state) == ("runtime://b.example/mn-1", "live")
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
    link.queue.next_number = (1 << 32) - 1
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


def counted(link: LinkMachine) -> dict[str, int]:
    return {str(name): count for name, count in link.counters.items() if count}


def test_every_message_is_counted_by_its_end() -> None:
    link, line = machine(QueueLimits(waiting_messages=2, in_flight_messages=4)), Line()
    messages = [outbound(request(number)) for number in range(1, 5)]
    assert kinds(link.handle(messages[0], 0.0) + link.handle(messages[1], 0.0)) == [type(NEEDED)] * 2
    assert link.handle(messages[2], 0.0) == [Rejected(messages[2], Code.OVERLOAD)]
    assert counted(link) == {"sent": 2, "overflowed": 1}
    link.handle(CarrierUp(line, "n"), 0.0)
    link.handle(messages[3], 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    ended = link.handle(Refused(3, Code.NO_ROUTE, "nobody"), 1.0)
    assert ended[0] == Ended(messages[3], "rejected", Code.NO_ROUTE)
    assert kinds(ended) == [Ended, Answer]
    assert link.handle(Refused(3, Code.NO_ROUTE, "nobody"), 1.0) == []
    assert link.handle(Accepted(1), 1.0) == [Delivered([messages[0]], relieves=True)]
    assert kinds(link.handle(Convicted(messages[1]), 1.0)) == [Quarantine, Ended, Answer]
    assert counted(link) == {"sent": 3, "overflowed": 1, "rejected": 1, "accepted": 1, "trapped": 1}


def test_what_waits_too_long_ends_with_the_reason_why_nothing_goes() -> None:
    def code_of(refusal: Code | None, last_code: Code | None) -> Code:
        link = machine()
        link.refusal, link.last_code = refusal, last_code
        link.handle(outbound(chat(1), ttl=1.0), 0.0)
        [ended, *_] = link.handle(Tick(2.0), 2.0)
        assert isinstance(ended, Ended)
        assert ended.outcome == "expired"
        assert counted(link) == {"sent": 1, "expired": 1}
        return ended.code

    assert code_of(None, None) is Code.DEPLOY_TIMEOUT
    assert code_of(None, Code.QUARANTINED) is Code.QUARANTINED
    assert code_of(Code.CIRCUIT_OPEN, None) is Code.CIRCUIT_OPEN
    assert code_of(Code.CIRCUIT_OPEN, Code.QUARANTINED) is Code.CIRCUIT_OPEN


def test_a_receipt_follows_what_was_delivered() -> None:
    link, line = machine(), Line()
    link.handle(CarrierUp(line, "n"), 0.0)
    asks = build(id=1, type="event", from_="hyperty://a.example/ana", to="comm://b.example/r", body={"receipt": True})
    link.handle(outbound(asks), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    delivered, answer = link.handle(Accepted(1), 1.0)
    assert isinstance(delivered, Delivered)
    assert isinstance(answer, Answer)
    assert (answer.reply.id, answer.reply.to, counted(link)) == (
        b"1",
        "hyperty://a.example/ana",
        {"sent": 1, "accepted": 1},
    )


def test_a_carrier_is_pumped_again_only_while_something_waits_and_the_stream_is_named_when_nothing_is_under_way() -> (
    None
):
    link, line = machine(), Line()
    link.handle(CarrierUp(line, "n"), 0.0)
    for number in (1, 2, 3):
        link.handle(outbound(chat(number)), 0.0)
    link.queue.take_batch(2, 1 << 20, 0.0)
    assert kinds(link.handle(Accepted(1), 0.0)) == [Delivered, Pump]
    link.queue.next_number = (1 << 32) - 1
    [last] = link.queue.take_batch(2, 1 << 20, 0.0)
    assert kinds(link.handle(Accepted(2), 0.0)) == [Delivered]
    assert kinds(link.handle(Accepted(last.number), 0.0)) == [Delivered, type(NAME_STREAM)]


def test_a_lost_carrier_says_how_much_waits_and_was_under_way() -> None:
    link, line = machine(), Line()
    link.handle(CarrierUp(line, "n"), 0.0)
    for number in (1, 2, 3):
        link.handle(outbound(chat(number)), 0.0)
    link.queue.take_batch(1, 1 << 20, 0.0)
    assert link.handle(CarrierDown(line), 0.0) == [WentDown(line, 3, "", was_active=True, was_last=True)]
    assert (link.state, link.carried_by) == ("disconnected", "")


def test_a_second_carrier_of_a_stalled_link_leaves_it_stalled_whatever_its_stub_did() -> None:
    link = machine()
    link.handle(CarrierUp(Line(), "n"), 0.0)
    link.handle(outbound(request(1)), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    for now in (0.0, 3.0, 6.0):
        link.handle(Tick(0.0), now)
    link.state = "deploying"  # of the stub, which is another carrier
    link.handle(CarrierUp(Line(channel="stub"), "n"), 6.0)
    assert link.state == "stalled"
    assert "1 messages are not taken, 1 requests wait" in link.detail


def test_a_stalled_line_owes_what_waits_and_what_is_under_way_and_says_since_when() -> None:
    link, line = machine(), Line()
    link.handle(CarrierUp(line, "n"), 0.0)
    for number in (1, 2):
        link.handle(outbound(chat(number)), 0.0)
    link.handle(outbound(request(3), ttl=6.0), 0.0)
    link.queue.take_batch(1, 1 << 20, 0.0)
    for now in (0.0, 3.0, 5.5):
        link.handle(Tick(0.0), now)
    assert link.detail == "nothing heard for 6 s; 3 messages are not taken, 1 requests wait for their reply"
    [answer] = link.handle(Tick(0.0), 6.26)
    assert isinstance(answer, Answer)
    assert body_members(answer.reply.body)["value"] == {"link": "stalled", "silentSeconds": 6.3}


@pytest.mark.parametrize("taken", [0, 1])
def test_a_line_that_cannot_be_asked_is_stalled_by_what_waits_and_by_what_is_under_way(taken: int) -> None:
    link = machine()
    link.handle(CarrierUp(Line(), "n"), 0.0)
    link.handle(outbound(chat(1)), 0.0)
    link.queue.take_batch(taken, 1 << 20, 0.0)
    for now in (0.0, 3.0, 6.0):
        if Probe in kinds(link.handle(Tick(0.0), now)):
            link.handle(CannotProbe(), now)
    assert link.state == "stalled"


def test_giving_up_ends_all_messages_and_says_why() -> None:
    link = machine()
    link.handle(outbound(request(1)), 0.0)
    assert kinds(link.handle(GiveUp(Code.REVOKED, "the stub was revoked"), 1.0)) == [Ended, Answer]
    assert (link.detail, link.queue.waiting) == ("the stub was revoked", 0)


def test_a_successor_carries_once_nothing_is_under_way_and_until_then_nobody_takes_more() -> None:
    link, old, new = machine(), Line(), Line()
    link.handle(CarrierUp(old, "n"), 0.0)
    for number in (1, 2):
        link.handle(outbound(chat(number)), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    link.handle(CarrierUp(new, "n"), 1.0)
    assert link.handle(TakeOver(old, new), 1.0) == []
    link.handle(outbound(chat(3)), 1.0)
    assert (link.carriers.may_take(old), link.carriers.may_take(new)) == (False, False)
    assert Switched not in kinds(link.handle(Accepted(1), 2.0))
    last = link.handle(Accepted(2), 2.0)
    assert [action for action in last if isinstance(action, Switched | Pump)] == [Switched(new), Pump(new)]
    assert (link.carriers.may_take(old), link.carriers.may_take(new), link.carriers) == (False, True, [new, old])
    assert [one.number for one in link.queue.take_batch(9, 1 << 20, 2.0)] == [3]
    assert link.handle(CarrierDown(old), 3.0) != []
    assert link.queue.under_way == 1


def test_a_successor_that_must_not_wait_repeats_what_is_under_way_with_the_old_numbers() -> None:
    link, old, new = machine(), Line(), Line()
    link.handle(CarrierUp(old, "n"), 0.0)
    link.handle(outbound(chat(1)), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    link.handle(CarrierUp(new, "n"), 1.0)
    link.handle(TakeOver(old, new), 1.0)
    assert Switched(new) in link.handle(TakeOver(old, new, is_now=True), 31.0)
    assert [one.number for one in link.queue.take_batch(9, 1 << 20, 31.0)] == [1]
    assert kinds(link.handle(Accepted(1), 32.0)) == [Delivered]


def test_a_refusal_of_the_last_message_under_way_lets_the_successor_carry() -> None:
    link, old, new = machine(), Line(), Line()
    link.handle(CarrierUp(old, "n"), 0.0)
    link.handle(outbound(chat(1)), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    link.handle(CarrierUp(new, "n"), 1.0)
    link.handle(TakeOver(old, new), 1.0)
    assert Switched(new) in link.handle(Refused(1, Code.OVERLOAD, ""), 2.0)


@pytest.mark.parametrize("lost", ["old", "new"])
def test_a_handover_ends_with_either_carrier(lost: str) -> None:
    link, old, third, new = machine(), Line(), Line(), Line()
    for line in (old, third, new):
        link.handle(CarrierUp(line, "n"), 0.0)
    link.handle(outbound(chat(1)), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    link.handle(TakeOver(old, new), 1.0)
    link.handle(CarrierDown(old if lost == "old" else new), 2.0)
    carries = new if lost == "old" else old
    assert (link.carriers[0], link.carriers.may_take(carries)) == (carries, True)
    assert link.queue.waiting + link.queue.under_way == 1


def test_nobody_takes_over_from_a_carrier_that_does_not_carry() -> None:
    link, peer, old, new = machine(), Line(), Line(), Line()
    for line in (peer, old):
        link.handle(CarrierUp(line, "n"), 0.0)
    assert link.handle(TakeOver(peer, new), 1.0) == []
    link.handle(CarrierUp(new, "n"), 1.0)
    assert link.handle(TakeOver(old, new), 1.0) == []
    assert link.carriers.may_take(peer)


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
        if self.link.carriers and self.link.carriers.may_take(self.link.carriers[0]):
            self.under_way += self.link.queue.take_batch(most, 1 << 20, self.now)

    @stateful.rule(index=st.integers(0, 2), is_now=st.booleans())
    def take_over(self, index: int, *, is_now: bool) -> None:
        if 0 < index < len(self.link.carriers):
            old, new = self.link.carriers[0], self.link.carriers[index]
            self.feed(TakeOver(old, new, is_now))
            assert self.link.carriers.may_take(new) or (self.under_way and not is_now)
            self.under_way = list(self.link.queue._under_way)

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


def test_a_successor_that_carries_a_stalled_link_makes_it_live() -> None:
    link, old, new = machine(), Line(), Line(channel="stub")
    link.handle(CarrierUp(old, "n"), 0.0)
    link.handle(outbound(request(1)), 0.0)
    link.queue.take_batch(9, 1 << 20, 0.0)
    for now in (0.0, 3.0, 6.0):
        link.handle(Tick(0.0), now)
    assert link.state == "stalled"
    link.handle(CarrierUp(new, "n"), 6.0)
    assert Switched(new) in link.handle(TakeOver(old, new, is_now=True), 7.0)
    assert (link.state, link.detail) == ("live", "")


def test_only_the_carrier_that_carries_has_a_successor_and_only_one_that_is_up() -> None:
    link, first, second, down = machine(), Line(), Line(), Line()
    for carrier in (first, second):
        link.handle(CarrierUp(carrier, "n"), 0.0)
    for old, new in ((second, first), (first, down), (down, second)):
        assert not link.carriers.designate(old, new)
        assert link.carriers.successor is None
    assert link.carriers.designate(first, second)
    assert link.carriers.successor is second
