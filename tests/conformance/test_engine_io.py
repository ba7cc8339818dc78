"""The suite's own reading of Engine.IO payloads, against the frames that were observed on running peers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interop.conformance.engine_io import decode_payload, encode_payload
from interop.conformance.wire import WireFaultError

OBSERVED = {
    b"2:40": ["40"],
    b"1:6": ["6"],
    b"2:401:6": ["40", "6"],
    # The length counts the bytes of UTF-8 (c3 bc), and those bytes are encoded once more (c3 83 c2 bc).
    b"3:4\xc3\x83\xc2\xbc": ["4\u00fc"],
}


@pytest.mark.parametrize(("body", "packets"), OBSERVED.items(), ids=lambda value: repr(value)[:20])
def test_observed_payloads_are_read_and_written(body: bytes, packets: list[str]) -> None:
    assert list(decode_payload(body)) == packets
    assert encode_payload(packets) == body


@given(st.lists(st.text(min_size=1), max_size=5))
def test_payloads_hold_any_text(packets: list[str]) -> None:
    assert list(decode_payload(encode_payload(packets))) == packets


BROKEN = {
    "too-short": b"5:40",
    "no-length": b"40",
    "length-in-words": b"two:40",
    "negative-length": b"-1:1:6",
    "characters-counted": "2:4\u00fc".encode(),
    "no-utf-8": b"2:4\xff",
    "encoded-once": "3:4\u4e00".encode(),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_payload_that_is_counted_or_encoded_otherwise_is_a_fault(body: bytes) -> None:
    with pytest.raises(WireFaultError):
        list(decode_payload(body))
