"""Recordings as bytes: what is none is refused, whatever it is."""

from __future__ import annotations

import msgspec
import pytest

from protofly.errors import Code, PeerError
from sandbox.core.recording import (
    SPEC,
    Exchange,
    FlightLog,
    RecordedStub,
    Recording,
    decode_recording,
    encode_recording,
)

STUB = RecordedStub(domain="b.example", name="x", version="1", sha256="ab" * 32, budget=b"")


def recording(spec: str = SPEC) -> Recording:
    exchanges = [Exchange(calls=[(1, b"in")], outputs=[b"out"])]
    return Recording(spec=spec, stub=STUB, exchanges=exchanges, is_whole=True, fault="", at=1.5)


def test_recording_comes_back_as_it_was() -> None:
    assert decode_recording(encode_recording(recording())) == recording()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"spec": 1}),
        b"\x81\xa4spec\xa1\xff",  # no UTF-8
        b"\x81\xa1x" + b"\x91" * 100_000 + b"\x90",  # a member that nobody knows, deeper than any stack
        encode_recording(recording("rmn-stub-recording/2")),
    ],
    ids=["nothing", "no-msgpack", "types", "utf-8", "depth", "other-form"],
)
def test_what_is_no_recording_is_malformed(raw: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode_recording(raw)
    assert caught.value.code is Code.DOCUMENT_MALFORMED


def test_log_beyond_its_bound_keeps_the_first_exchange_and_the_last_ones() -> None:
    log = FlightLog(3000)
    for number in range(9):
        log.handed([(1, bytes([number]) * 500)])
        log.answered([])
    kept = log.recording(STUB, fault="", at=0.0)
    assert [one.calls[0][1][0] for one in kept.exchanges] == [0, 7, 8]
    assert not kept.is_whole
