"""Requests that wait for another domain's reply."""

from __future__ import annotations

import pytest

from federation.core.transactions import Transactions, is_tracked
from protofly import codec
from protofly.message import Message


def request(id_: int | str = 1, to: str = "comm://b.example/r") -> Message:
    return codec.build(id=id_, type="read", from_="hyperty://a.example/h", to=to)


def reply(to: Message, code: int) -> Message:
    return codec.response(to, code)


def test_a_final_reply_closes_the_transaction() -> None:
    open_ = Transactions()
    open_.started(request(), 0.0, 15.0)
    assert open_.replied(reply(request(), 200), 1.0)
    assert not open_.replied(reply(request(), 200), 1.0)
    assert open_.expired(99.0) == []


def test_a_provisional_reply_restarts_the_timer() -> None:
    open_ = Transactions()
    open_.started(request(), 0.0, 15.0)
    assert open_.replied(reply(request(), 183), 14.0)
    assert open_.expired(28.0) == []
    assert open_.expired(29.0) == [request()]


def test_silence_ends_a_transaction_once() -> None:
    open_ = Transactions()
    open_.started(request(), 0.0, 15.0)
    assert open_.expired(15.0) == [request()]
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


@pytest.mark.parametrize(
    ("type_", "to", "tracked"),
    [
        ("read", "comm://b.example/r", True),
        ("create", "hyperty://b.example/h", True),
        ("create", "comm://b.example/r/children/messages", False),
        ("subscribe", "comm://b.example/r/subscription", True),
        ("update", "comm://b.example/r/changes", False),
        ("response", "hyperty://b.example/h", False),
    ],
)
def test_only_what_is_answered_by_rule_is_tracked(type_: str, to: str, *, tracked: bool) -> None:
    assert is_tracked(codec.build(id=1, type=type_, from_="hyperty://a.example/h", to=to)) is tracked
