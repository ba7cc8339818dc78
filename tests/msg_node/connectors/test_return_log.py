"""What went out over a return channel: numbered, kept within bounds, sent again, and never passed off as complete."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.connectors.core.return_log import ReturnLog, number_in, poll_answer, stream_event


def raw(number: int, size: int = 0) -> bytes:
    return json.dumps({"type": "event", "from": "a", "to": "b", "body": {"n": number, "x": "x" * size}}).encode()


def numbers(log: ReturnLog, after: int) -> tuple[int, list[int]]:
    missing, messages = log.after(after)
    return missing, [one.number for one in messages]


def test_what_follows_on_a_number_comes_again_and_the_rest_is_forgotten() -> None:
    log = ReturnLog()
    log.add([raw(1), raw(2), raw(3)], now=0.0)
    assert numbers(log, 1) == (0, [2, 3])
    assert numbers(log, 0) == (1, [2, 3])
    assert numbers(log, 3) == (0, [])
    assert numbers(log, 99) == (0, [])


def test_what_had_to_make_room_is_missing() -> None:
    log = ReturnLog(max_messages=2)
    log.add([raw(1), raw(2), raw(3)], now=0.0)
    assert numbers(log, 0) == (1, [2, 3])
    log = ReturnLog(max_bytes=len(raw(1)))
    log.add([raw(1), raw(2)], now=0.0)
    assert numbers(log, 0) == (1, [2])


def test_what_is_old_is_forgotten() -> None:
    log = ReturnLog()
    log.add([raw(1)], now=1.0)
    log.add([raw(2)], now=2.0)
    log.forget(2.0)
    assert numbers(log, 0) == (1, [2])


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60), st.integers(0, 12)), max_size=30))
def test_missing_and_kept_are_always_all_that_followed(steps: list[tuple[int, int, int]]) -> None:
    log, sent = ReturnLog(max_messages=6, max_bytes=400), 0
    for count, size, after in steps:
        log.add([raw(sent + 1 + index, size) for index in range(count)], now=float(sent))
        sent += count
        missing, messages = log.after(after)
        assert missing + len(messages) == max(sent - after, 0)
        assert [one.number for one in messages] == list(range(sent - len(messages) + 1, sent + 1))
        assert sum(len(one.raw) for one in messages) <= 400


def test_an_event_has_type_number_and_every_line_of_its_text() -> None:
    [one] = ReturnLog().add([b'{"type":"update",\r\n"from":"a",\n"to":"b"}'], now=0.0)
    assert stream_event(one) == b'event: update\nid: 1\ndata: {"type":"update",\ndata: "from":"a",\ndata: "to":"b"}\n\n'


@given(st.text(max_size=32))
def test_no_type_writes_lines_of_its_own_into_a_stream(type_: str) -> None:
    [one] = ReturnLog().add([json.dumps({"type": type_, "from": "a", "to": "b"}).encode()], now=0.0)
    head, *rest = stream_event(one).decode().split("\n")
    assert head.startswith("event: ")
    assert "\r" not in head
    assert [line.partition(":")[0] for line in rest] == ["id", "data", "", ""]


@pytest.mark.parametrize(
    ("type_", "word"),
    [("re-open_2", "re-open_2"), ("a b", "message"), ("é", "message"), ("a:b", "message"), ("--", "message")],
)
def test_an_event_is_called_by_its_type_if_that_is_a_plain_word(type_: str, word: str) -> None:
    [one] = ReturnLog().add([json.dumps({"type": type_, "from": "a", "to": "b"}).encode()], now=0.0)
    assert stream_event(one).startswith(f"event: {word}\n".encode())


def test_an_answer_to_a_poll_is_an_array_of_the_bytes_that_came() -> None:
    added = ReturnLog().add([b'{ "a": 1 }', b"{}"], now=0.0)
    assert poll_answer(added) == b'[{ "a": 1 },{}]'
    assert poll_answer([]) == b"[]"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("17", 17),
        ("0", 0),
        ("", None),
        ("-1", None),
        ("1e3", None),
        ("٣", None),
        ("9" * 19, None),
        ("9" * 18, 10**18 - 1),
    ],
)
def test_only_plain_numbers_count(text: str, number: int | None) -> None:
    assert number_in(text) == number
