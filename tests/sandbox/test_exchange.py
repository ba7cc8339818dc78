"""The record codec: what goes in comes out, and foreign bytes give actions or STUB_OUTPUT, nothing else."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import limits
from protofly.errors import Code, MisuseError, StubFaultError
from sandbox.core.exchange import (
    PROLOGUE_BYTES,
    RECORD,
    RECORD_BYTES,
    Action,
    ChannelKind,
    Event,
    GuestAction,
    GuestEvent,
    action_limit,
    decode_actions,
    encode_events,
    output_limit,
    split_calls,
)
from tests.support.guest_records import decode_events, encode_actions

RANDOM = bytes(range(16))
ARGUMENTS = st.integers(0, 2**32 - 1)
FLAGS = st.integers(0, 255)
events = st.builds(GuestEvent, st.sampled_from([int(op) for op in Event]), ARGUMENTS, st.binary(max_size=300), FLAGS)
actions = st.builds(GuestAction, st.sampled_from([int(op) for op in Action]), ARGUMENTS, st.binary(max_size=300), FLAGS)


def fault_of(buffer: bytes, most: int | None = None) -> StubFaultError:
    with pytest.raises(StubFaultError) as caught:
        decode_actions(buffer, most)
    return caught.value


@given(batch=st.lists(events, max_size=20), now_ms=st.integers(0, 2**64 - 1))
def test_events_come_back_as_they_were(batch: list[GuestEvent], now_ms: int) -> None:
    assert decode_events(encode_events(batch, now_ms, RANDOM)) == (now_ms, RANDOM, batch)


@given(batch=st.lists(actions, max_size=20))
def test_actions_come_back_as_they_were(batch: list[GuestAction]) -> None:
    decoded = decode_actions(encode_actions(batch), len(batch))
    assert decoded == batch
    assert all(type(action) is GuestAction for action in decoded)


@given(buffer=st.binary(max_size=400))
def test_any_bytes_give_actions_or_a_stub_fault(buffer: bytes) -> None:
    with contextlib.suppress(StubFaultError):
        assert encode_actions(decode_actions(buffer)) == buffer


@given(batch=st.lists(actions, min_size=1, max_size=5), cut=st.integers(1, 11))
def test_cut_buffer_is_refused(batch: list[GuestAction], cut: int) -> None:
    assert fault_of(encode_actions(batch)[:-cut]).code is Code.STUB_OUTPUT


def test_layout_is_the_contract() -> None:
    buffer = encode_events([GuestEvent(Event.MESSAGE, 0x01020304, b"hi", 1)], 0x0A, RANDOM)
    assert buffer == bytes([10, 0, 0, 0, 0, 0, 0, 0]) + RANDOM + bytes([2, 1, 0, 0, 4, 3, 2, 1, 2, 0, 0, 0]) + b"hi"


@pytest.mark.parametrize("op", [0, 13, 255])
def test_unknown_action_is_refused(op: int) -> None:
    assert fault_of(RECORD.pack(op, 0, 0, 0, 0)).fault == "bad-record"


def test_reserved_bits_are_refused() -> None:
    assert fault_of(RECORD.pack(1, 0, 1, 0, 0)).fault == "bad-record"


@pytest.mark.parametrize("length", [1, 5, 2**32 - 1])
def test_length_past_the_end_is_refused(length: int) -> None:
    good = encode_actions([GuestAction(Action.LOG, 0, b"good")])
    for buffer in (RECORD.pack(1, 0, 0, 0, length), good + RECORD.pack(1, 0, 0, 0, length)):
        assert fault_of(buffer).fault == fault_of(buffer, 2).fault == "cut-short"


def test_one_action_too_many_is_refused_and_the_limit_itself_is_not() -> None:
    buffer = encode_actions([GuestAction(Action.LOG, 0, b"")] * 5)
    assert len(decode_actions(buffer, 5)) == 5
    assert fault_of(buffer, 4).fault == "action-flood"


def test_empty_answer_is_no_action() -> None:
    assert decode_actions(b"", 0) == []


@given(sizes=st.lists(st.integers(0, 200), max_size=40), call_bytes=st.integers(40, 600))
def test_calls_hold_every_event_and_stay_small(sizes: list[int], call_bytes: int) -> None:
    batch = [GuestEvent(Event.DATA, 0, bytes(size)) for size in sizes]
    counts = split_calls(batch, call_bytes)
    assert sum(counts) == len(batch)
    position = 0
    for count in counts:
        assert count > 0
        size = len(encode_events(batch[position : position + count], 0, RANDOM))
        assert size <= call_bytes or count == 1
        position += count
        if position < len(batch):
            assert size + RECORD_BYTES + len(batch[position][2]) > call_bytes, "no call more than is needed"


def test_one_event_as_large_as_the_largest_window_passes_and_a_larger_one_is_our_bug() -> None:
    room = limits.INPUT_BYTES_MAX - PROLOGUE_BYTES - RECORD_BYTES
    assert split_calls([GuestEvent(Event.DATA, 0, bytes(room))]) == [1]
    with pytest.raises(MisuseError):
        split_calls([GuestEvent(Event.DATA, 0, bytes(room + 1))])


def test_random_bytes_of_another_length_are_our_bug() -> None:
    with pytest.raises(MisuseError):
        encode_events([], 0, b"short")


def test_limits_are_those_of_the_contract() -> None:
    assert output_limit(100) == (256 << 10) + 400
    assert action_limit(2, 160) == 138


def test_numbers_of_the_contract_are_those_of_its_page() -> None:
    """Stubs are compiled against docs/abi.md: a number that moves breaks every one that is published."""
    page = (Path(__file__).parents[2] / "docs/abi.md").read_text(encoding="utf-8")
    rows = {word.upper(): int(number) for number, word in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)}
    assert {name: int(one) for kind in (Event, Action) for name, one in kind.__members__.items()} == rows
    [kinds] = re.findall(r"(\d) `websocket`, (\d) `tcp-tls`, (\d) `http`", page)
    assert [str(int(kind)) for kind in (ChannelKind.WEBSOCKET, ChannelKind.TCP_TLS, ChannelKind.HTTP)] == list(kinds)
    assert len(ChannelKind) == 3


def test_a_call_is_filled_to_its_last_byte() -> None:
    batch = [GuestEvent(Event.DATA, 0, bytes(10))] * 5
    assert split_calls(batch, PROLOGUE_BYTES + 2 * (RECORD_BYTES + 10)) == [2, 2, 1]
