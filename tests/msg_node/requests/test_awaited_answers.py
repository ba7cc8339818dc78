"""Requests with a `ttl` between runtimes of one node: one final answer each, in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from msg_node.requests.core import awaited_answers
from msg_node.requests.core.awaited_answers import Answered, AwaitedAnswers
from protofly import codec
from protofly.limits import AWAITED_ANSWERS_PER_SESSION
from protofly.message import Message

ANA, BO = "runtime://alpha.example/ana", "runtime://alpha.example/bo"


def request(id_: object = 1, *, from_: str = ANA) -> Message:
    assert isinstance(id_, int | str)
    return codec.build(id=id_, type="read", from_=from_, to=BO, body={"ttl": 5, "value": "x" * 1000})


def reply(to: Message, code: int = 200) -> Message:
    return codec.response(to, code)


def begun(sid: int = 1, ttl: float = 5.0) -> AwaitedAnswers:
    awaited = AwaitedAnswers()
    awaited.began(request(), sid, ttl, 0.0)
    return awaited


def test_silence_is_due_once_with_what_it_takes_to_answer_it() -> None:
    awaited = begun()
    assert awaited.expired(4.9) == []
    (late,) = awaited.expired(5.0)
    assert (late.sid, late.request.id, late.request.from_, late.request.to) == (1, b"1", ANA, BO)
    assert late.request.expects_reply
    assert late.request.raw == b""  # bodies are not kept
    assert awaited.expired(1e9) == []


def test_an_answer_in_time_ends_it_and_the_next_is_of_something_else() -> None:
    awaited = begun()
    assert awaited.came(reply(request()), 4.0) is Answered.IN_TIME
    assert not awaited
    assert awaited.came(reply(request()), 4.0) is Answered.UNKNOWN
    assert awaited.expired(1e9) == []


@pytest.mark.parametrize("other", [request(2), request("1"), request(from_=f"{ANA}2")])
def test_the_answer_to_something_else_ends_nothing(other: Message) -> None:
    awaited = begun()
    assert awaited.came(reply(other), 1.0) is Answered.UNKNOWN
    assert len(awaited.expired(5.0)) == 1


def test_a_provisional_answer_restarts_the_time() -> None:
    awaited = begun()
    assert awaited.came(reply(request(), 100), 4.0) is Answered.IN_TIME
    assert awaited.expired(8.9) == []
    assert len(awaited.expired(9.0)) == 1


def test_what_comes_after_the_504_is_late_until_the_request_is_sent_anew() -> None:
    awaited = begun()
    awaited.expired(5.0)
    assert [awaited.came(reply(request(), code), 6.0) for code in (100, 200, 200)] == [Answered.LATE] * 3
    awaited.began(request(), 1, 5.0, 7.0)
    assert awaited.came(reply(request()), 8.0) is Answered.IN_TIME
    assert awaited.expired(1e9) == []


def test_the_same_request_again_restarts_the_time() -> None:
    awaited = begun()
    awaited.began(request(), 1, 5.0, 3.0)
    assert awaited.expired(7.9) == []
    assert len(awaited.expired(8.0)) == 1


def test_when_nobody_waits_any_longer_all_that_is_open_is_due_and_late_from_then_on() -> None:
    awaited = begun()
    awaited.began(request(2), 1, 5.0, 0.0)
    awaited.abandon()
    assert [one.request.id for one in awaited.expired(0.0)] == [b"1", b"2"]
    assert awaited.came(reply(request()), 0.0) is Answered.LATE


def test_the_same_request_in_a_newer_session_outlives_the_older_one() -> None:
    awaited = begun(sid=1)
    awaited.began(request(), 2, 5.0, 1.0)
    awaited.session_ended(1)
    assert awaited.expired(5.0) == []
    assert [one.sid for one in awaited.expired(6.0)] == [2]


def test_what_nobody_read_in_time_is_due_at_once_and_only_once() -> None:
    awaited = begun()
    assert awaited.ended_unread(request())
    assert len(awaited.expired(1.0)) == 1
    assert awaited.ended_unread(request())
    assert awaited.expired(1e9) == []
    assert not AwaitedAnswers().ended_unread(request())


def test_a_session_that_ended_is_answered_nothing_and_leaves_nothing() -> None:
    awaited = begun()
    awaited.began(request(2), 1, 1.0, 0.0)
    assert len(awaited.expired(2.0)) == 1
    awaited.session_ended(1)
    assert not awaited
    assert awaited.expired(1e9) == []


def test_who_asks_too_much_at_once_gets_the_oldest_answered_and_nobody_else_does() -> None:
    awaited = begun(sid=2, ttl=1e6)
    for number in range(2, AWAITED_ANSWERS_PER_SESSION + 5):
        awaited.began(request(number), 1, 1e6, 0.0)
    early = awaited.expired(0.0)
    assert [(one.sid, one.request.id) for one in early] == [(1, b"2"), (1, b"3"), (1, b"4")]
    assert awaited.came(reply(request()), 1.0) is Answered.IN_TIME


def test_a_full_table_costs_those_who_filled_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_answers, "AWAITED_ANSWERS", 100)
    awaited = AwaitedAnswers()
    for number in range(100):
        awaited.began(request(number, from_=f"{ANA}-{number % 2}"), 1 + number % 2, 1e6, 0.0)
    awaited.began(request(1000), 3, 1e6, 0.0)
    awaited.began(request(1001, from_=f"{ANA}-0"), 1, 1e6, 0.0)
    assert {one.sid for one in awaited.expired(0.0)} == {1}
    assert (len(awaited), awaited.came(reply(request(1000)), 0.0)) == (100, Answered.IN_TIME)


def test_answered_requests_leave_no_deadline_behind_however_many_there_are() -> None:
    awaited = AwaitedAnswers()
    for number in range(2_500):
        awaited.began(request(number), 1, 5.0, 0.0)
        awaited.came(reply(request(number)), 0.0)
    assert (len(awaited), len(awaited._deadlines) <= 1_001) == (0, True)
    awaited.began(request(), 1, 5.0, 0.0)
    assert len(awaited.expired(5.0)) == 1


def late_ones(awaited: AwaitedAnswers, numbers: range, sid: int) -> list[int]:
    """Those whose answers are known to be late."""
    return [one for one in numbers if awaited.came(reply(request(one, from_=f"{ANA}-{sid}")), 2.0) is Answered.LATE]


def overdue(awaited: AwaitedAnswers, number: int, sid: int) -> None:
    awaited.began(request(number, from_=f"{ANA}-{sid}"), sid, 1.0, 0.0)
    assert len(awaited.expired(1.0)) == 1


def test_a_session_s_late_answers_are_known_for_so_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_answers, "AWAITED_ANSWERS_PER_SESSION", 3)
    awaited = AwaitedAnswers()
    overdue(awaited, 0, 2)
    for number in range(5):
        overdue(awaited, number, 1)
    assert late_ones(awaited, range(5), 1) == [2, 3, 4]
    assert late_ones(awaited, range(1), 2) == [0], "others lose nothing"


@pytest.mark.parametrize(("by", "left"), [("many", (range(1, 21), range(2))), ("few", (range(1, 20), range(3)))])
def test_in_all_late_answers_are_known_for_so_many_and_who_has_many_makes_room_among_its_own(
    monkeypatch: pytest.MonkeyPatch, by: str, left: tuple[range, range]
) -> None:
    monkeypatch.setattr(awaited_answers, "AWAITED_ANSWERS", 22)
    awaited = AwaitedAnswers()
    for number in range(20):
        overdue(awaited, number, 1)
    for number in range(2):
        overdue(awaited, number, 2)
    overdue(awaited, 20, 1) if by == "many" else overdue(awaited, 2, 2)
    assert (late_ones(awaited, range(21), 1), late_ones(awaited, range(3), 2)) == (list(left[0]), list(left[1]))


class OneAnswerEach(RuleBasedStateMachine):
    """Whatever happens: of a request either the recipient's final answer counts or the node's, never both."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited, self.now = AwaitedAnswers(), 0.0
        self.open: dict[int, float] = {}
        self.overdue: set[int] = set()

    @rule(number=st.integers(0, 4), ttl=st.integers(0, 5))
    def begin(self, number: int, ttl: int) -> None:
        self.awaited.began(request(number), 1, float(ttl), self.now)
        self.open[number] = self.now + ttl
        self.overdue.discard(number)

    @rule(number=st.integers(0, 4))
    def answer(self, number: int) -> None:
        expected = Answered.IN_TIME if number in self.open else Answered.UNKNOWN
        expected = Answered.LATE if number in self.overdue else expected
        assert self.awaited.came(reply(request(number)), self.now) is expected
        self.open.pop(number, None)

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        due = {number for number, deadline in self.open.items() if deadline <= self.now}
        found = self.awaited.expired(self.now)
        assert sorted(int(one.request.id or b"") for one in found) == sorted(due)
        self.overdue |= due
        for number in due:
            del self.open[number]

    @rule()
    def end(self) -> None:
        self.awaited.session_ended(1)
        self.open.clear()
        self.overdue.clear()

    @invariant()
    def knows_no_more_than_it_has_to(self) -> None:
        assert len(self.awaited) == len(self.open)
        assert bool(self.awaited) == bool(self.open or self.overdue)


OneAnswerEach.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestOneAnswerEach = OneAnswerEach.TestCase
