"""Frames between host and worker: a worker that was taken over can say nothing that hurts the host."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import Code, PeerError, StubFaultError
from sandbox.core.frames import (
    CALL,
    COMMAND,
    LENGTH,
    REPLY,
    Command,
    GuestFault,
    Reply,
    clean_text,
    decode_compiled,
    decode_reply,
    encode_command,
    encode_exchange,
    encode_reply,
)

replies = st.builds(
    Reply,
    st.sampled_from(GuestFault),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.lists(st.binary(max_size=50), max_size=5),
    st.text("abc xyz", max_size=40),
)


@given(reply=replies)
def test_reply_comes_back_as_it_was(reply: Reply) -> None:
    frame = encode_reply(reply)
    assert decode_reply(frame, 5) == reply
    assert LENGTH.unpack_from(frame)[0] == len(frame) - LENGTH.size


@given(frame=st.binary(max_size=200), most=st.integers(0, 8))
def test_any_frame_gives_a_reply_or_a_stub_fault(frame: bytes, most: int) -> None:
    with contextlib.suppress(StubFaultError):
        reply = decode_reply(frame, most)
        assert len(reply.outputs) <= most


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(REPLY.size - 1),
        REPLY.pack(0, 99, 0, 0, 0, 0),
        REPLY.pack(0, 0, 2, 0, 0, 0) + bytes(8),
        REPLY.pack(0, 0, 1, 0, 0, 0),
        REPLY.pack(0, 0, 1, 0, 0, 0) + LENGTH.pack(2**32 - 1),
    ],
    ids=["empty", "short", "unknown fault", "one output too many", "no table", "output past the end"],
)
def test_impossible_reply_is_refused(frame: bytes) -> None:
    with pytest.raises(StubFaultError) as caught:
        decode_reply(frame, 1)
    assert caught.value.code is Code.STUB_OUTPUT
    assert caught.value.fault == "worker"


def test_exchange_carries_a_table_and_then_the_calls() -> None:
    frame = encode_exchange([(2, b"abc"), (1, b"de")])
    length, command, count = COMMAND.unpack_from(frame)
    assert (length, command, count) == (len(frame) - 4, Command.EXCHANGE, 2)
    assert frame[COMMAND.size :] == CALL.pack(3, 2) + CALL.pack(2, 1) + b"abcde"


def test_command_counts_its_blocks() -> None:
    frame = encode_command(Command.LOAD, b"12", b"345")
    assert COMMAND.unpack_from(frame) == (len(frame) - 4, Command.LOAD, 0)


@given(raw=st.binary(max_size=600))
def test_foreign_text_becomes_short_printable_ascii(raw: bytes) -> None:
    text = clean_text(raw)
    assert len(text) <= 300
    assert all(" " <= char <= "~" for char in text)


def test_refused_module_is_the_peers_fault() -> None:
    with pytest.raises(PeerError) as caught:
        decode_compiled(encode_reply(Reply(GuestFault.REFUSED, 0, 0, 0, [], "type mismatch")))
    assert caught.value.code is Code.MODULE_MALFORMED
    assert caught.value.detail == "type mismatch"


def test_every_fault_has_a_code_and_back() -> None:
    for fault in GuestFault:
        assert GuestFault.of(fault.code) is fault
    assert GuestFault.of(Code.RATE) is GuestFault.REFUSED


@pytest.mark.parametrize(
    ("fault", "outputs"), [(GuestFault.NONE, []), (GuestFault.REFUSED, []), (GuestFault.REFUSED, [b"machine code"])]
)
def test_a_compile_child_that_does_not_hand_over_one_module_has_refused_it(
    fault: GuestFault, outputs: list[bytes]
) -> None:
    with pytest.raises(PeerError) as caught:
        decode_compiled(encode_reply(Reply(fault, 0, 0, 0, outputs, "why")))
    assert (caught.value.code, caught.value.detail) == (Code.MODULE_MALFORMED, "why")
    assert decode_compiled(encode_reply(Reply(GuestFault.NONE, 0, 0, 0, [b"machine code"], ""))) == b"machine code"
