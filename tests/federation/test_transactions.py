"""Requests that wait for another domain's reply."""

from __future__ import annotations

import tracemalloc

import pytest

from federation.core import transactions as transactions_module
from federation.core.transactions import (
    ADDRESSED_SECONDS,
    MAX_ADDRESSED,
    Tracking,
    Transactions,
    is_provisional,
    tracking_of,
)
from protofly import codec
from protofly.message import Message


def request(id_: int | str = 1, to: str = "comm://b.example/r") -> Message:
    return codec.build(id=id_, type="read", from_="hyperty://a.example/h", to=to)


def remembered(id_: int | str = 1) -> Message:
    """What is kept of a request: enough to answer it."""
    whole = request(id_)
    return Message(whole.id, "read", whole.from_, whole.to, b"", b"")


def reply(to: Message, code: int) -> Message:
    return codec.response(to, code)


def test_a_final_reply_closes_the_transaction() -> None:
    open_ = Transactions()
    open_.started(request(), 0.0, 15.0)
    assert open_.replied(reply(request(), 200), 1.0)
    assert not open_.replied(reply(request(), 200), 1.0)
    assert open_.expired(99.0) == []


@pytest.mark.parametrize(
    ("code", "is_early"),
    [
        ("100", True),
        ("199", True),
        ('"199"', True),
        ('"200"', False),
        ("200", False),
        ("404", False),
        ("10", False),
        ("1", False),
        ("1000", False),
        ("1999", False),
        ("null", False),
    ],
)
def test_a_reply_is_provisional_by_a_code_of_three_digits_below_200(code: str, is_early: bool) -> None:
    raw = f'{{"id":1,"type":"response","from":"comm://b.example/r","to":"hyperty://a.example/h","body":{{"code":{code}}}}}'
    assert is_provisional(codec.decode(raw.encode())[0]) is is_early


def test_a_message_without_an_id_answers_nothing() -> None:
    without_id = codec.build(id=None, type="event", from_="comm://b.example/r", to="hyperty://a.example/h")
    open_ = Transactions()
    open_.started(request(), 0.0, 15.0)
    open_.addressed(request(), 0.0)
    assert open_.is_open(reply(request(2), 200))  # of those that were notified
    assert not open_.is_open(without_id)
    assert not open_.is_asked(without_id)
    assert not open_.replied(without_id, 1.0)


@pytest.mark.parametrize("from_", ["comm://b.example/r", "comm://b.example/r/changes"])
def test_a_reply_without_an_id_is_late_once_nothing_before_the_start_can_be_meant(from_: str) -> None:
    without_id = codec.build(id=None, type="response", from_=from_, to="hyperty://a.example/h")
    open_ = Transactions(doubt_until=10.0)
    assert not open_.is_late(without_id, 9.9)
    assert open_.is_late(without_id, 10.0)


def test_a_provisional_reply_restarts_the_timer() -> None:
    open_ = Transactions()
    open_.started(request(), 0.0, 15.0)
    assert open_.replied(reply(request(), 183), 14.0)
    assert open_.expired(28.0) == []
    assert open_.expired(29.0) == [remembered()]


def test_silence_ends_a_transaction_once() -> None:
    open_ = Transactions()
    open_.started(request(), 0.0, 15.0)
    assert open_.expired(15.0) == [remembered()]
    assert open_.expired(16.0) == []


def test_numbers_and_texts_are_different_ids() -> None:
    open_ = Transactions()
    open_.started(request(1), 0.0, 15.0)
    assert not open_.replied(reply(request("1"), 200), 1.0)
    assert open_.replied(reply(request(1), 200), 1.0)


def test_a_reply_of_another_address_answers_nothing() -> None:
    open_ = Transactions()
    open_.started(request(), 0.0, 15.0)
    assert not open_.replied(reply(request(to="comm://b.example/other"), 200), 1.0)


@pytest.mark.parametrize("code", ["1XX", "100", "183"])
def test_a_provisional_code_in_any_form_restarts_the_timer(code: str) -> None:
    for member in ("code", "Code", "responseCode"):
        open_ = Transactions()
        open_.started(request(), 0.0, 15.0)
        body = {member: code}
        assert open_.replied(codec.build(id=1, type="response", from_=request().to, to=request().from_, body=body), 9.0)
        assert len(open_) == 1


def test_observers_may_acknowledge_in_the_name_of_the_object_for_a_minute() -> None:
    notified = request(to="comm://a.example/r/changes")
    transactions = Transactions()
    transactions.addressed(notified, 0.0)
    assert [transactions.is_open(reply(notified, 200)) for _ in range(2)] == [True, True]
    assert not transactions.is_open(reply(request(to="comm://a.example/other/changes"), 200))
    assert transactions.expired(ADDRESSED_SECONDS) == []
    assert not transactions.is_open(reply(notified, 200))


def test_who_was_addressed_is_remembered_within_bounds() -> None:
    transactions = Transactions()
    for number in range(MAX_ADDRESSED + 1):
        transactions.addressed(request(to=f"comm://a.example/{number}/changes"), 0.0)
    assert not transactions.is_open(reply(request(to="comm://a.example/0/changes"), 200))
    assert transactions.is_open(reply(request(to="comm://a.example/1/changes"), 200))


_ONE, _ANY, _NOTHING = Tracking.ONE_REPLY, Tracking.ANY_REPLIES, Tracking.NOTHING


@pytest.mark.parametrize(
    ("type_", "to", "tracking"),
    [
        ("read", "comm://b.example/r", _ONE),
        ("create", "hyperty://b.example/h", _ONE),
        ("create", "comm://b.example/r/children/messages", _ANY),
        ("delete", "comm://a.example/r/changes", _ANY),
        ("delete", "comm://a.example/r", _ONE),
        ("subscribe", "comm://b.example/r/subscription", _ONE),
        ("update", "comm://b.example/r/changes", _NOTHING),
        ("response", "hyperty://b.example/h", _NOTHING),
    ],
)
def test_what_is_answered_by_rule_is_tracked(type_: str, to: str, tracking: Tracking) -> None:
    assert tracking_of(codec.build(id=1, type=type_, from_="hyperty://a.example/h", to=to)) is tracking
    assert tracking_of(codec.build(id=None, type=type_, from_="hyperty://a.example/h", to=to)) is _NOTHING


def test_of_many_that_expired_a_few_are_answered_at_a_time_and_each_once() -> None:
    open_ = Transactions()
    for number in range(10):
        open_.started(request(number), number / 10, 15.0)
    assert open_.replied(reply(request(4), 200), 1.0)
    assert open_.replied(reply(request(5), 183), 2.0)
    notified = []
    while some := open_.expired(16.5, most=3):
        assert len(some) <= 3
        notified += [one.id for one in some]
    assert notified == [str(number).encode() for number in range(10) if number not in (4, 5)]
    assert open_.expired(17.0) == [remembered(5)]
    assert len(open_) == 0


def test_answered_requests_leave_nothing_behind_however_many_there_are() -> None:
    open_ = Transactions()
    for number in range(10_000):
        open_.started(request(number), 0.0, 15.0)
        open_.replied(reply(request(number), 200), 0.0)
    assert (len(open_), len(open_._deadlines) <= 1_001) == (0, True)
    open_.started(request(), 0.0, 15.0)
    assert open_.expired(15.0) == [remembered()]


def test_of_a_request_that_waits_only_its_header_is_kept() -> None:
    tracemalloc.start()
    open_ = Transactions()
    for number in range(100):
        body = {"value": "x" * 100_000, "ttl": 86_400, "receipt": True, "class": "event"}
        large = codec.build(id=number, type="read", from_="hyperty://a.example/h", to="comm://b.example/r", body=body)
        open_.started(large, 0.0, 86_400.0)
    del large
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 500_000
    assert all(one.expects_reply for one in open_.expired(99_999.0, most=100))


def notified(number: int) -> Message:
    return request(to=f"comm://a.example/{number}/changes")


def heard(transactions: Transactions, count: int) -> list[int]:
    """Which of the observers of so many objects may still acknowledge."""
    return [number for number in range(count) if transactions.is_open(reply(notified(number), 200))]


def test_observers_may_acknowledge_for_a_minute_from_when_they_were_addressed_last() -> None:
    transactions = Transactions()
    for number, now in ((0, 0.0), (1, 10.0), (2, 20.0), (0, 50.0)):
        transactions.addressed(notified(number), now)
    assert (transactions.expired(69.9), heard(transactions, 3)) == ([], [0, 1, 2])
    assert (transactions.expired(70.0), heard(transactions, 3)) == ([], [0, 2])
    assert (transactions.expired(109.9), heard(transactions, 3)) == ([], [0])
    assert (transactions.expired(110.0), heard(transactions, 3)) == ([], [])


def test_an_open_request_is_open_for_its_reply_alone() -> None:
    transactions = Transactions()
    transactions.started(request(), 0.0, 15.0)
    for to, is_it in (("comm://b.example/r", True), ("comm://b.example/s", False)):
        answer = reply(request(to=to), 200)
        assert (transactions.is_open(answer), transactions.is_asked(answer)) == (is_it, is_it)
    assert not transactions.is_open(reply(request(2), 200))
    transactions.addressed(notified(0), 0.0)
    assert transactions.is_open(reply(notified(0), 200))
    assert not transactions.is_asked(reply(notified(0), 200))


def test_of_too_many_that_several_may_answer_the_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_module, "MAX_SHARED", 2)
    transactions = Transactions()
    replies = [codec.response(request(number), 200, extra={"source": f"a:{number}"}) for number in range(3)]
    for number in range(3):
        transactions.started(request(number), 0.0, 15.0)
        assert transactions.replied(replies[number], 0.0)
    others = [codec.response(request(number), 200, extra={"source": "a:other"}) for number in range(3)]
    assert [transactions.is_late(other, 1.0) for other in others] == [True, False, False]


def test_of_too_many_that_ended_in_doubt_the_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_module, "MAX_ENDED", 2)
    transactions = Transactions(doubt_until=100.0)
    for number in (0, 1, 0, 2):
        transactions.started(request(number), 0.0, 15.0)
        assert transactions.answered(request(number), 0.0)
        assert not transactions.answered(request(number), 0.0)
    assert [transactions.is_late(reply(request(number), 200), 1.0) for number in range(3)] == [True, False, True]
    assert transactions.is_late(reply(request(1), 200), 100.0)


def test_requests_expire_in_their_order_however_many_others_ended_in_between() -> None:
    transactions = Transactions()
    for id_, ttl in (("late", 30.0), ("middle", 20.0), ("early", 10.0)):
        transactions.started(request(id_), 1_000.0, ttl)
    for number in range(1_200):
        transactions.started(request(number), 1_000.0, 5.0)
        transactions.answered(request(number), 1_000.0)
    assert transactions.expired(1_009.9) == []
    expired = [transactions.expired(now) for now in (1_010.0, 1_020.0, 1_030.0)]
    assert expired == [[remembered("early")], [remembered("middle")], [remembered("late")]]
    assert len(transactions) == 0


def test_what_is_handed_over_goes_on_elsewhere_with_the_time_that_is_left() -> None:
    here, there = Transactions(), Transactions()
    here.started(request(), 0.0, 15.0)
    here.addressed(notified(0), 4.0)
    [moved], [pair] = here.hand_over(10.0)
    assert (len(here), heard(here, 1), here.expired(1e6)) == (0, [], [])
    assert (moved.left_seconds, moved.ttl_seconds, pair.left_seconds) == (5.0, 15.0, 54.0)
    there.restore_request(moved.message, 1_000.0 + moved.left_seconds, moved.ttl_seconds)  # by another clock
    there.restore_addressed(pair.from_, pair.to, 1_000.0 + pair.left_seconds)
    assert there.replied(reply(request(), 183), 1_004.0)  # begins its time anew
    assert (there.expired(1_018.9), heard(there, 1)) == ([], [0])
    assert there.expired(1_019.0) == [remembered()]
    assert (there.expired(1_053.9), heard(there, 1)) == ([], [0])
    assert (there.expired(1_054.0), heard(there, 1)) == ([], [])
