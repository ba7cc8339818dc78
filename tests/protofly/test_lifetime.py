"""What is left of a message's time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import codec
from protofly.lifetime import NOTICED_SECONDS, TTL_MAX_SECONDS, aged, ttl_of, with_ttl
from protofly.message import Message


def message(ttl: str) -> Message:
    raw = f'{{"id":1,"type":"read","from":"a","to":"b","body":{{"ttl":{ttl},"value": 1e400}}}}'
    return codec.decode(raw.encode())[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5.0), ("0.5", 0.5), ("0", 0.0), ("-3", 0.0), ("1e999", TTL_MAX_SECONDS), ('"5"', None), ("null", None)],
)
def test_only_numbers_are_a_time_to_live_and_a_day_is_the_most(text: str, seconds: float | None) -> None:
    assert ttl_of(message(text)) == seconds


def test_a_message_without_one_lives_as_long_as_it_takes() -> None:
    plain = codec.build(id=1, type="read", from_="a", to="b")
    assert aged(plain, 1e9) is plain


def test_time_spent_is_subtracted_and_other_values_keep_their_bytes() -> None:
    older = aged(message("5"), 2.0)
    assert older is not None
    assert older.body == b'{"ttl":3.000,"value":1e400}'
    assert ttl_of(older) == 3.0


def test_time_that_is_over_ends_the_message() -> None:
    assert aged(message("5"), 5.0) is None
    assert aged(message("0"), 0.0) is None


@given(ttl=st.floats(0.02, 1000), waits=st.lists(st.floats(0, 100), max_size=6))
def test_a_message_never_lives_longer_than_it_said(ttl: float, waits: list[float]) -> None:
    current: Message | None = message(str(ttl))
    for spent in waits:
        before = ttl_of(current) if current is not None else None
        current = aged(current, spent) if current is not None else None
        if current is not None:
            assert before is not None
            assert (ttl_of(current) or 0.0) <= before


def test_time_is_subtracted_from_the_first_that_is_noticed_on() -> None:
    waited = message("5")
    assert aged(waited, NOTICED_SECONDS - 0.001) is waited
    assert aged(waited, 0.009) is waited
    assert aged(waited, 0.02) is not waited
    older = aged(waited, NOTICED_SECONDS)
    assert older is not None
    assert ttl_of(older) == pytest.approx(5.0 - NOTICED_SECONDS)


@pytest.mark.parametrize(("seconds", "written"), [(0.5, b"0.500"), (1.0, b"1.000"), (0.0, b"0.001"), (-3.0, b"0.001")])
def test_what_is_left_is_written_in_milliseconds_and_is_never_nothing(seconds: float, written: bytes) -> None:
    assert with_ttl(b'{"ttl":9,"value":1}', seconds) == b'{"ttl":' + written + b',"value":1}'
