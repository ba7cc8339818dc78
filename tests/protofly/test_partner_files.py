"""Headers of files that partners hand over: believed when signed, for us, and new."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import PeerError
from protofly.partner_files import CLOCK_SECONDS, FILE_BYTES_MAX, PartnerFile, header_of, read_header
from protofly.signatures import SigningKey, base64url

KEY, OTHER = SigningKey.from_seed("k", bytes(32)), SigningKey.from_seed("o", b"o" * 32)
NOW = 1_800_000_000.0
FILE = PartnerFile(author="a.example", reader="b.example", name="2026-03-02.totals", size=5, sha256="0" * 64, sent=NOW)


def read(text: str, **changes: Any) -> PartnerFile:
    of: dict[str, Any] = {"author": "a.example", "reader": "b.example", "keys": [KEY.record()], "now": NOW}
    return read_header(text, **(of | changes))


def signed(facts: bytes) -> str:
    return f"{base64url(facts)}.{base64url(KEY.sign(b'trapezoid-file/1' + bytes([10]) + facts))}"


def test_a_header_is_read_as_it_was_written() -> None:
    assert read(header_of(FILE, KEY)) == FILE
    assert read(header_of(FILE, KEY), keys=[OTHER.record(), KEY.record()], now=NOW + CLOCK_SECONDS) == FILE


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        ("", {}, "auth-malformed"),
        ("x" * 3000, {}, "auth-malformed"),
        (header_of(FILE, OTHER), {}, "auth-signature"),
        ("A" + header_of(FILE, KEY), {}, "auth-signature"),
        (header_of(FILE, KEY), {"keys": []}, "auth-signature"),
        (header_of(FILE, KEY), {"reader": "c.example"}, "auth-audience"),
        (header_of(FILE, KEY), {"author": "c.example"}, "auth-audience"),
        (header_of(FILE, KEY), {"now": NOW + CLOCK_SECONDS + 1}, "auth-stale"),
        (header_of(FILE, KEY), {"now": NOW - CLOCK_SECONDS - 1}, "auth-stale"),
        (signed(b"{}"), {}, "auth-malformed"),
        (signed(b"[" * 1000), {}, "auth-malformed"),
        *(
            (signed(msgspec.json.encode(FILE).replace(b"2026-03-02.totals", name)), {}, "auth-malformed")
            for name in (b"../x", b".hidden", b"a/b", b"", b"A", b"x" * 101)
        ),
        (signed(msgspec.json.encode(FILE).replace(b'"size":5', b'"size":-5')), {}, "auth-malformed"),
    ],
)
def test_what_is_not_signed_for_us_and_new_is_refused_with_its_code(
    text: str, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PeerError) as refused:
        read(text, **changes)
    assert refused.value.code.word == reason


@given(st.text(max_size=300))
def test_any_text_is_refused_and_nothing_else_happens(text: str) -> None:
    with pytest.raises(PeerError):
        read(text)


@pytest.mark.parametrize(
    ("size", "is_taken"), [(-1, False), (0, True), (FILE_BYTES_MAX, True), (FILE_BYTES_MAX + 1, False)]
)
def test_a_file_may_be_empty_and_has_a_greatest_size(size: int, *, is_taken: bool) -> None:
    facts = msgspec.json.encode(FILE).replace(b'"size":5', b'"size":%d' % size)
    if is_taken:
        assert read(signed(facts)).size == size
    else:
        with pytest.raises(PeerError):
            read(signed(facts))
