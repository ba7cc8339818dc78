"""The queue towards a foreign domain: nothing is lost, nothing is repeated, the order holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from federation.core import outbound_queue
from federation.core.outbound_queue import OutboundMessage, OutboundQueue, QueueLimits, deadline_of
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.lifetime import NOTICED_SECONDS
from protofly.limits import CROSSING_BYTES, WAITING_MESSAGES
from protofly.message import Message

STREAM = "0" * 32
LIMITS = QueueLimits(
    waiting_messages=4, waiting_bytes=4_000, waiting_seconds=15.0, in_flight_messages=8, in_flight_bytes=8_000
)


def pending(name: str = "x", *, at: float = 0.0, size: int = 100, ttl: float = 15.0) -> OutboundMessage:
    message = codec.build(id=1, type="create", from_="hyperty://a.example/h", to=f"comm://b.example/{name}")
    return OutboundMessage(message, b"x" * size, b"", "", 0, at, "", "", 0, ttl)


def live_queue(limits: QueueLimits = LIMITS) -> OutboundQueue:
    queue = OutboundQueue(STREAM, limits)
    queue.is_carried = True
    return queue


def asks_to_pause(queue: OutboundQueue) -> bool:
    return queue.is_congested


def submit(queue: OutboundQueue, count: int) -> list[OutboundMessage]:
    batch = [pending(str(index)) for index in range(count)]
    assert [queue.submit(one) for one in batch] == [None] * count
    return batch


def test_a_queue_is_clear_while_no_carrier_has_taken_any_of_what_is_in_it() -> None:
    queue = live_queue()
    seen = [queue.is_clear]
    submit(queue, 2)
    seen.append(queue.is_clear)
    queue.take_batch(1, 1 << 20, 0.0)
    seen.append(queue.is_clear)
    queue.carrier_lost(0.0)  # what it had taken waits again, with its number
    seen.append(queue.is_clear)
    assert seen == [True, True, False, False]


def test_messages_wait_in_order_until_a_carrier_takes_them() -> None:
    queue = OutboundQueue(STREAM, LIMITS)
    batch = submit(queue, 3)
    queue.is_carried = True
    assert queue.take_batch(10, 10_000, 1.0) == batch
    assert [one.number for one in batch] == [1, 2, 3]


def test_only_a_few_may_wait_while_nobody_carries() -> None:
    queue = OutboundQueue(STREAM, LIMITS)
    submit(queue, 4)
    assert queue.submit(pending()) is Code.OVERLOAD
    assert queue.waiting == 4


@given(
    st.integers(1, 12),
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(st.sampled_from([100, 900_000, 2_000_000]), max_size=12),
)
def test_a_run_is_queued_as_its_messages_are_one_by_one_until_senders_should_pause(
    most: int, before: int, under_way: int, sizes: list[int]
) -> None:
    limits = QueueLimits(in_flight_messages=most)
    one_by_one, at_once = live_queue(limits), live_queue(limits)
    for queue in (one_by_one, at_once):
        for _ in range(before):
            queue.submit(pending())
        queue.take_batch(under_way, 1 << 30, 1.0)
    taken = 0
    for size in sizes:
        if one_by_one.is_congested:
            break
        assert one_by_one.submit(pending(size=size)) is None
        taken += 1
    assert at_once.submit_run(iter([pending(size=size) for size in sizes])) == taken
    assert at_once.is_congested == one_by_one.is_congested
    assert list(at_once) == list(one_by_one)
    assert at_once._waiting_bytes == one_by_one._waiting_bytes


def test_a_run_waits_for_no_carrier_and_is_made_no_further_than_it_is_taken() -> None:
    assert OutboundQueue(STREAM).submit_run([pending()]) == 0
    messages = (pending() for _ in range(9))
    assert live_queue(QueueLimits(in_flight_messages=6)).submit_run(messages) == 4
    assert len(list(messages)) == 5


def refuse_odd(message: Message) -> None:
    if message.to[-1] in "13":
        raise PeerError(Code.NO_ROUTE)


def test_what_may_not_go_after_all_leaves_the_queue_and_makes_room() -> None:
    queue = OutboundQueue(STREAM, LIMITS)
    batch = submit(queue, 4)
    assert queue.withdraw(refuse_odd) == [(batch[1], Code.NO_ROUTE), (batch[3], Code.NO_ROUTE)]
    submit(queue, 2)
    assert queue.submit(pending()) is Code.OVERLOAD
    queue.is_carried = True
    assert [one.message.to[-1] for one in queue.take_batch(10, 10_000, 1.0)] == ["0", "2", "0", "1"]


def test_what_was_handed_back_and_may_not_go_any_more_takes_nobodys_place() -> None:
    queue = live_queue()
    batch = submit(queue, 4)
    queue.take_batch(10, 10_000, 0.0)
    queue.carrier_lost(1.0)
    assert [one for one, _ in queue.withdraw(refuse_odd)] == [batch[1], batch[3]]
    submit(queue, 4)
    assert queue.submit(pending()) is Code.OVERLOAD
    queue.is_carried = True
    assert [one.number for one in queue.take_batch(10, 10_000, 2.0)] == [1, 3, 5, 6, 7, 8]


def test_bytes_that_wait_without_a_carrier_are_bounded_and_ask_senders_to_pause() -> None:
    queue = OutboundQueue(STREAM, LIMITS)
    assert queue.submit(pending(size=2_000)) is None
    assert not asks_to_pause(queue)  # exactly half
    assert queue.submit(pending(size=1)) is None
    assert asks_to_pause(queue)
    assert queue.submit(pending(size=2_000)) is Code.OVERLOAD
    assert queue.submit(pending(size=1_999)) is None
    assert queue.submit(pending(size=1)) is Code.OVERLOAD
    queue.expire(15.0)
    assert not asks_to_pause(queue)
    assert queue.submit(pending(size=4_000)) is None


def test_messages_that_wait_without_a_carrier_ask_senders_to_pause() -> None:
    queue = OutboundQueue(STREAM, LIMITS)
    submit(queue, 2)
    assert not asks_to_pause(queue)  # exactly half
    submit(queue, 1)
    assert asks_to_pause(queue)


def test_messages_under_way_ask_senders_to_pause() -> None:
    queue = live_queue()
    submit(queue, 2)
    queue.take_batch(10, 10_000, 0.0)
    submit(queue, 2)
    assert not asks_to_pause(queue)  # exactly half of the window
    submit(queue, 1)
    assert asks_to_pause(queue)


def test_a_queue_has_limits_of_its_own() -> None:
    queue = OutboundQueue(STREAM)
    submit(queue, WAITING_MESSAGES)
    assert queue.submit(pending()) is Code.OVERLOAD


def test_what_a_lost_carrier_gave_back_asks_nobody_to_pause() -> None:
    queue = live_queue()
    for _ in range(3):
        assert queue.submit(pending(size=2_000)) is None
    queue.take_batch(10, 10_000, 0.0)
    queue.carrier_lost(1.0)
    assert not asks_to_pause(queue)
    assert queue.submit(pending(size=2_000)) is None
    assert not asks_to_pause(queue)
    assert queue.submit(pending(size=1)) is None
    assert asks_to_pause(queue)


def test_bytes_under_way_ask_senders_to_pause() -> None:
    queue = live_queue()
    assert queue.submit(pending(size=4_000)) is None
    queue.take_batch(10, 10_000, 0.0)
    assert not asks_to_pause(queue)  # exactly half of the window
    assert queue.submit(pending(size=1)) is None
    assert asks_to_pause(queue)
    queue.accepted(1)
    assert not asks_to_pause(queue)


def test_only_what_waits_can_be_taken() -> None:
    queue = live_queue()
    found = [queue.may_take]
    submit(queue, 1)
    found.append(queue.may_take)
    queue.take_batch(10, 10_000, 1.0)
    found.append(queue.may_take)
    assert found == [False, True, False]


def test_when_the_numbers_are_used_up_only_what_has_one_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_queue, "LAST_NUMBER", 2)
    queue = live_queue()
    batch = submit(queue, 4)
    assert queue.take_batch(10, 10_000, 1.0) == batch[:2]
    assert (queue.is_exhausted, queue.may_take, queue.take_batch(10, 10_000, 1.0)) == (True, False, [])
    queue.carrier_lost(1.0)
    queue.is_carried = True
    assert queue.may_take
    assert queue.take_batch(10, 10_000, 1.0) == batch[:2]
    assert queue.accepted(2) == batch[:2]
    queue.begin_stream("1" * 32)
    assert queue.take_batch(10, 10_000, 1.0) == batch[2:]
    assert [one.number for one in batch] == [1, 2, 1, 2]


def test_a_batch_stays_inside_the_window() -> None:
    queue = live_queue()
    submit(queue, 8)
    assert len(queue.take_batch(100, 450, 0.0)) == 4
    assert len(queue.take_batch(100, 10_000, 0.0)) == 4
    assert queue.submit(pending()) is None
    assert queue.take_batch(100, 10_000, 0.0) == []


def test_a_message_larger_than_the_batch_goes_alone() -> None:
    queue = live_queue()
    queue.submit(pending(size=900))
    queue.submit(pending())
    assert len(queue.take_batch(10, 100, 0.0)) == 1


def test_what_was_accepted_leaves_in_order() -> None:
    queue = live_queue()
    batch = submit(queue, 3)
    queue.take_batch(10, 10_000, 0.0)
    assert queue.accepted(2) == batch[:2]
    assert queue.accepted(2) == []
    assert queue.accepted(99) == batch[2:]


def test_what_a_lost_carrier_had_goes_again_with_the_same_numbers() -> None:
    queue = live_queue()
    batch = submit(queue, 4)
    queue.take_batch(2, 10_000, 0.0)
    queue.carrier_lost(5.0)
    queue.is_carried = True
    assert queue.take_batch(10, 10_000, 6.0) == batch
    assert [one.number for one in batch] == [1, 2, 3, 4]


def test_what_the_far_end_has_already_is_not_handed_over_again() -> None:
    queue = live_queue()
    batch = submit(queue, 3)
    queue.take_batch(10, 10_000, 0.0)
    queue.carrier_lost(5.0)
    assert queue.resume(2) == batch[:2]
    queue.is_carried = True
    assert queue.take_batch(10, 10_000, 6.0) == batch[2:]


def test_messages_that_waited_too_long_expire_and_the_rest_stays() -> None:
    queue = OutboundQueue(STREAM, LIMITS)
    early, late = pending("early", at=0.0), pending("late", at=10.0)
    queue.submit(early)
    queue.submit(late)
    assert queue.expire(14.9) == []
    assert queue.expire(15.0) == [early]
    assert queue.waiting == 1
    assert queue.expire(24.9) == []
    assert queue.expire(25.0) == [late]


def test_a_short_life_ends_the_waiting_earlier() -> None:
    queue = OutboundQueue(STREAM, LIMITS)
    short = pending(ttl=2.0)
    queue.submit(short)
    assert queue.expire(2.0) == [short]


def test_a_message_that_kills_alone_twice_is_convicted() -> None:
    queue = live_queue()
    [killer] = submit(queue, 1)
    queue.take_batch(10, 10_000, 0.0)
    assert queue.suspect([1]) is None
    queue.carrier_lost(0.0)
    queue.is_carried = True
    queue.take_batch(10, 10_000, 0.0)
    assert queue.suspect([1]) is killer
    assert queue.under_way == 0
    assert queue.submit(pending("large", size=8_000)) is None
    assert len(queue.take_batch(10, 8_000, 0.0)) == 1  # its bytes are not under way any more
    assert queue.submit(pending("larger", size=8_000)) is None
    queue.accepted(10)
    assert queue.may_take


def test_only_what_the_stub_held_is_suspected() -> None:
    queue = live_queue()
    batch = submit(queue, 3)
    queue.take_batch(10, 10_000, 0.0)
    assert queue.suspect([2]) is None
    assert [one.suspected for one in batch] == [0, 1, 0]
    assert queue.suspect([2]) is batch[1]
    assert queue.under_way == 2


def test_several_suspects_of_two_deaths_are_not_convicted_and_nobody_is_for_nothing() -> None:
    queue = live_queue()
    batch = submit(queue, 2)
    queue.take_batch(10, 10_000, 0.0)
    assert [queue.suspect([1, 2]), queue.suspect([1, 2]), queue.suspect([]), queue.suspect([9])] == [None] * 4
    assert [one.suspected for one in batch] == [2, 2]
    assert queue.under_way == 2


@pytest.mark.parametrize(("now", "goes"), [(0.0, True), (4.0, True), (4.9, True), (5.0, False), (6.0, False)])
def test_what_waited_for_the_whole_life_of_its_message_goes_no_more(now: float, goes: bool) -> None:
    queue = live_queue()
    message = codec.build(id=1, type="create", from_="hyperty://a.example/h", to="comm://b.example/r", body={"ttl": 5})
    timed = OutboundMessage(message, message.raw, b"", "", 0, 0.0, "", "", 0, 15.0, ttl_seconds=5.0)
    other = pending()
    assert (queue.submit(timed), queue.submit(other)) == (None, None)
    assert queue.take_batch(10, 10_000, now) == ([timed, other] if goes else [other])
    assert queue.expire(now) == ([] if goes else [timed])


def test_a_batch_takes_what_just_fits() -> None:
    queue = live_queue()
    batch = submit(queue, 3)
    assert queue.take_batch(10, 200, 0.0) == batch[:2]


def test_nothing_more_is_taken_while_the_window_of_bytes_is_full() -> None:
    queue = live_queue()
    assert queue.submit(pending("a", size=8_000)) is None
    [first] = queue.take_batch(10, 10_000, 0.0)
    assert queue.submit(pending("b", size=1)) is None
    found = [queue.may_take]
    assert queue.take_batch(10, 10_000, 0.0) == []
    queue.accepted(first.number)
    found.append(queue.may_take)
    assert found == [False, True]


def test_suspects_are_handed_over_one_at_a_time_until_all_are_through() -> None:
    queue = live_queue()
    batch = submit(queue, 3)
    queue.take_batch(10, 10_000, 0.0)
    assert queue.suspect([1, 2, 3]) is None
    queue.carrier_lost(0.0)
    queue.is_carried = True
    found = [queue.may_take]
    assert queue.take_batch(10, 10_000, 0.0) == batch[:1]
    found.append(queue.may_take)
    assert queue.take_batch(10, 10_000, 0.0) == []
    queue.accepted(1)
    found.append(queue.may_take)
    assert found == [True, False, True]
    assert queue.take_batch(10, 10_000, 0.0) == batch[1:2]
    assert queue.suspect([2]) is batch[1]
    queue.carrier_lost(0.0)
    queue.is_carried = True
    assert queue.take_batch(10, 10_000, 0.0) == batch[2:]


def test_once_all_suspects_are_through_messages_go_together_again() -> None:
    queue = live_queue()
    submit(queue, 2)
    queue.take_batch(10, 10_000, 0.0)
    queue.suspect([1, 2])
    queue.carrier_lost(0.0)
    queue.is_carried = True
    submit(queue, 3)
    sizes = []
    for number in (1, 2, 5):
        sizes.append(len(queue.take_batch(10, 10_000, 0.0)))
        queue.accepted(number)
    assert sizes == [1, 1, 3]


def test_a_refused_message_leaves_and_the_others_stay() -> None:
    queue = live_queue()
    batch = submit(queue, 3)
    queue.take_batch(10, 10_000, 0.0)
    assert queue.refused(2) is batch[1]
    assert queue.refused(2) is None
    assert queue.accepted(3) == [batch[0], batch[2]]


class Looked(deque[OutboundMessage]):
    """Counts how many of its messages are looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[OutboundMessage]:
        self.looks += len(self)
        return super().__iter__()


@pytest.mark.parametrize("number", [0, 1_001, (1 << 32) - 1, 700])
def test_a_refusal_of_what_is_not_under_way_does_not_look_through_the_window(number: int) -> None:
    """A far end may send a hundred thousand of them in a second, with as much under way as it likes."""
    queue = live_queue(QueueLimits(in_flight_messages=1_000, in_flight_bytes=1 << 20))
    submit(queue, 1_000)
    queue.take_batch(1_000, 1 << 20, 0.0)
    gone = queue.refused(700)
    assert gone is not None
    assert gone.number == 700
    queue._under_way = window = Looked(queue._under_way)
    window.looks = 0
    assert queue.refused(number) is None
    assert window.looks < 20
    assert len(window) == 999


def test_giving_up_returns_everything_oldest_first() -> None:
    queue = live_queue()
    batch = submit(queue, 4)
    queue.take_batch(2, 10_000, 0.0)
    assert queue.abandon() == batch
    assert (queue.waiting, queue.under_way) == (0, 0)


def test_a_life_time_that_is_no_number_counts_as_none() -> None:
    message = codec.build(id=1, type="create", from_="a", to="b", body={"ttl": "soon"})
    assert deadline_of(message) == 15.0


class QueueMachine(RuleBasedStateMachine):
    """Any order of events: each message leaves exactly once, in order, with one number for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = OutboundQueue(STREAM, QueueLimits(50, 50_000, 15.0, 20, 20_000))
        self.inside: list[OutboundMessage] = []
        self.numbers: dict[str, int] = {}
        self.now = 0.0
        self.count = 0

    def _left(self, gone: list[OutboundMessage]) -> None:
        for one in gone:
            self.inside.remove(one)

    @rule(size=st.integers(1, 2_000))
    def submit(self, size: int) -> None:
        one = pending(at=self.now, size=size)
        one.digest = str(self.count)
        self.count += 1
        if self.queue.submit(one) is None:
            self.inside.append(one)

    @rule(messages=st.integers(1, 30), size=st.integers(1, 30_000))
    def take(self, messages: int, size: int) -> None:
        if self.queue.is_carried:
            self.queue.take_batch(messages, size, self.now)

    @rule(number=st.integers(0, 60))
    def accept(self, number: int) -> None:
        gone = self.queue.resume(number)
        assert all(0 < one.number <= number for one in gone)
        self._left(gone)

    @rule()
    def carrier_comes(self) -> None:
        self.queue.is_carried = True

    @rule()
    def carrier_goes(self) -> None:
        self.queue.carrier_lost(self.now)

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._left(self.queue.expire(self.now))

    @precondition(lambda self: self.queue.under_way)
    @rule()
    def stub_dies(self) -> None:
        numbers = [one.number for one in self.inside if one.number]
        convicted = self.queue.suspect(numbers)
        if convicted is not None:
            self._left([convicted])
        self.queue.carrier_lost(self.now)

    @invariant()
    def nothing_is_lost_or_repeated(self) -> None:
        assert self.queue.waiting + self.queue.under_way == len(self.inside)

    @invariant()
    def numbers_stay_and_grow(self) -> None:
        numbered = [one for one in self.inside if one.number]
        assert [one.number for one in numbered] == sorted(one.number for one in numbered)
        for one in numbered:
            assert self.numbers.setdefault(one.digest, one.number) == one.number


TestQueueMachine = QueueMachine.TestCase


# What has left takes no place any more.


def holds_nothing(queue: OutboundQueue) -> bool:
    """True when half of the window may be queued before senders should pause, and not a byte more."""
    queue.is_carried = True
    assert queue.submit(pending(size=4_000)) is None
    is_free = not queue.is_congested
    assert queue.submit(pending(size=1)) is None
    return is_free and queue.is_congested and queue.under_way == 0


def taken(count: int = 3) -> OutboundQueue:
    queue = live_queue()
    submit(queue, count)
    queue.take_batch(10, 10_000, 0.0)
    return queue


def handed_back(count: int = 3) -> OutboundQueue:
    queue = taken(count)
    queue.carrier_lost(1.0)
    return queue


def refuse_all(_message: Message) -> None:
    raise PeerError(Code.NO_ROUTE)


def after_a_conviction() -> OutboundQueue:
    queue = taken(1)
    assert queue.suspect([1]) is None
    assert queue.suspect([1]) is not None
    return queue


def after_everything() -> OutboundQueue:
    queue = taken(2)
    submit(queue, 2)
    queue.abandon()
    assert queue.abandon() == queue.expire(99.0) == []
    return queue


def after_overdue(count: int = 2) -> OutboundQueue:
    queue = OutboundQueue(STREAM, LIMITS)
    submit(queue, count)
    assert len(queue.expire(15.0, most=1)) == 1
    assert len(queue.abandon()) == count - 1
    assert queue.abandon() == []
    return queue


def begun_with(count: int) -> OutboundQueue:
    """A queue that goes on for another one, which had so many messages that nothing had taken."""
    queue = OutboundQueue(STREAM, LIMITS)
    queue.begin_stream(STREAM, 1, [pending(str(index)) for index in range(count)])
    return queue


def of_another_queue() -> OutboundQueue:
    queue = begun_with(3)
    queue.is_carried = True
    assert len(queue.take_batch(10, 10_000, 0.0)) == len(queue.accepted(3)) == 3
    return queue


WAYS_OUT: dict[str, Callable[[], OutboundQueue]] = {
    "accepted": lambda: (one := taken(), one.accepted(3))[0],
    "accepted by the next carrier": lambda: (one := handed_back(), one.resume(3))[0],
    "refused": lambda: (one := taken(2), one.refused(2), one.refused(1))[0],
    "withdrawn": lambda: (one := handed_back(), one.withdraw(refuse_all))[0],
    "expired": lambda: (one := handed_back(), one.expire(16.0))[0],
    "convicted": after_a_conviction,
    "abandoned": after_everything,
    "abandoned when overdue": after_overdue,
    "taken out": lambda: (one := handed_back(), one.take_out(lambda _: True))[0],
    "accepted after a move": of_another_queue,
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_what_has_left_takes_no_place_any_more(way: str) -> None:
    assert holds_nothing(WAYS_OUT[way]())


def second_and_third(pending: OutboundMessage) -> bool:
    return pending.message.to in {"comm://b.example/1", "comm://b.example/2"}


def refuse_second_and_third(message: Message) -> None:
    if message.to in {"comm://b.example/1", "comm://b.example/2"}:
        raise PeerError(Code.NO_ROUTE)


def overdue_second_and_third(queue: OutboundQueue) -> list[OutboundMessage]:
    for one in queue:
        one.deadline_seconds = 9.0 if second_and_third(one) else 20.0
    return queue.expire(9.0)


@pytest.mark.parametrize(
    "leave",
    [
        lambda queue: queue.take_out(second_and_third),
        lambda queue: [one for one, code in queue.withdraw(refuse_second_and_third) if code is Code.NO_ROUTE],
        overdue_second_and_third,
    ],
)
def test_what_was_handed_back_and_has_left_is_no_room_for_others(
    leave: Callable[[OutboundQueue], list[OutboundMessage]],
) -> None:
    for queue in (begun_with(3), handed_back(3)):
        submit(queue, 1)  # waits as a newcomer, and stays one
        assert [one.message.to[-1] for one in leave(queue)] == ["1", "2"]
        assert [one.message.to[-1] for one in queue] == ["0", "0"]
        assert [queue.submit(pending()) for _ in range(4)] == [None, None, None, Code.OVERLOAD]


def test_what_was_handed_back_and_has_left_is_no_room_for_bytes_of_others() -> None:
    for count in (1, 2):
        queue = handed_back(count)
        queue.take_out(lambda pending: pending.number == 1)
        assert queue.submit(pending(size=4_000)) is None
        assert queue.submit(pending(size=1)) is Code.OVERLOAD


def test_what_a_lost_carrier_had_waits_as_long_as_a_new_message() -> None:
    queue = taken(1)
    queue.carrier_lost(10.0)
    assert queue.expire(24.9) == []
    assert len(queue.expire(25.0)) == 1


def test_a_batch_stays_inside_the_window_of_what_is_under_way_already() -> None:
    queue = taken(5)
    submit(queue, 5)
    assert [one.number for one in queue.take_batch(10, 10_000, 0.0)] == [6, 7, 8]


def timed(*, ttl: float = 5.0) -> OutboundMessage:
    message = codec.build(id=1, type="create", from_="a:b", to="c:d", body={"ttl": ttl})
    return OutboundMessage(message, message.raw, b"", "", 0, 0.0, "", "", 0, 15.0, ttl_seconds=ttl)


@pytest.mark.parametrize("now", [0.0, 1.0, 5.0])
def test_a_message_that_grows_or_ends_while_it_waits_is_counted_as_it_is(now: float) -> None:
    queue = live_queue()
    assert queue.submit(timed(ttl=5.0)) is None
    queue.take_batch(10, 10_000, now)
    queue.expire(now)
    queue.accepted(1)
    assert holds_nothing(queue)


@pytest.mark.parametrize(("now", "is_changed"), [(NOTICED_SECONDS - 0.001, False), (NOTICED_SECONDS, True)])
def test_time_that_is_noticed_is_taken_off_what_is_left_to_a_message(now: float, is_changed: bool) -> None:
    queue, one = live_queue(), timed()
    before = one.wire
    queue.submit(one)
    queue.take_batch(10, 10_000, now)
    assert (one.wire != before) is is_changed
    assert (one.digest != "") is is_changed


# Runs.


def run_of(limits: QueueLimits, sizes: list[int], *, before: int = 0, under_way: int = 0) -> tuple[int, int]:
    """How many messages of a run are queued, and how many were made."""
    queue, made = live_queue(limits), []
    for _ in range(under_way):
        queue.submit(pending(size=100))
    queue.take_batch(10, 10_000, 0.0)
    for _ in range(before):
        queue.submit(pending(size=100))

    def messages() -> Iterator[OutboundMessage]:
        for size in sizes:
            made.append(size)
            yield pending(size=size)

    count = queue.submit_run(messages())
    assert queue.waiting == before + count
    return count, len(made)


def test_a_run_ends_with_the_message_by_which_more_than_half_of_the_window_is_queued() -> None:
    half = 2 * CROSSING_BYTES
    limits = QueueLimits(in_flight_messages=8, in_flight_bytes=2 * half)
    assert run_of(limits, [100] * 9) == (5, 5)
    assert run_of(limits, [100] * 9, before=2) == (3, 3)
    assert run_of(limits, [100] * 9, under_way=2) == (3, 3)
    assert run_of(limits, [100] * 9, before=1, under_way=1) == (3, 3)
    assert run_of(limits, [100] * 3) == (3, 3)
    assert run_of(limits, [half // 2] * 9) == (3, 3)
    assert run_of(limits, [half // 2] * 9, under_way=1) == (2, 2)
    assert run_of(limits, [half // 2] * 9, before=1) == (2, 2)
    assert run_of(limits, [half + 1] * 9) == (1, 1)


def test_a_window_in_which_two_longest_messages_have_no_place_takes_no_run() -> None:
    assert run_of(QueueLimits(in_flight_bytes=2 * CROSSING_BYTES), [100]) == (1, 1)
    assert run_of(QueueLimits(in_flight_bytes=2 * CROSSING_BYTES - 1), [100]) == (0, 0)


@pytest.mark.parametrize(("ttl", "deadline"), [(2.0, 7.0), (15.0, 20.0), (100.0, 20.0)])
def test_messages_of_a_run_wait_as_long_as_others(ttl: float, deadline: float) -> None:
    queue, one, other = live_queue(QueueLimits()), pending(at=5.0, ttl=ttl), pending(at=5.0, ttl=ttl)
    queue.submit_run([one])
    queue.submit(other)
    assert one.deadline_seconds == other.deadline_seconds == deadline


def test_what_is_taken_out_leaves_room_for_as_many_bytes() -> None:
    queue = OutboundQueue(STREAM, LIMITS)
    for _ in range(3):
        submit(queue, 4)
        assert len(queue.take_out(lambda _pending: True)) == 4
    assert (queue.waiting, queue._waiting_bytes) == (0, 0)
    submit(queue, 2)
    assert [len(queue.take_out(lambda pending: pending.message.to.endswith("/1"))), queue._waiting_bytes] == [1, 100]
