"""Block lists as they are published, and what is refused of them."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.block_list import (
    ENTRIES_MAX,
    LIST_BYTES,
    PAYLOAD_TYPE,
    BlockedDomain,
    BlockList,
    read_block_list,
    sign_block_list,
)
from protofly.errors import Code, PeerError
from protofly.signatures import SigningKey, sign_envelope

KEY, OTHER = SigningKey.from_seed("k", bytes(32)), SigningKey.from_seed("k", b"1" * 32)
NOW = 1_000_000.0
LIST = BlockList(
    author="a.example",
    serial=7,
    issued=NOW - 10,
    expires=NOW + 3600,
    entries=(BlockedDomain(domain="evil.example", reason="flood in 3 hours"),),
)


def read(raw: bytes, *, least_serial: int = 0, now: float = NOW) -> BlockList:
    keys = [OTHER.record(), KEY.record()]
    return read_block_list(raw, author="a.example", keys=keys[1:], now=now, least_serial=least_serial)


def changed(**members: object) -> bytes:
    return sign_block_list(msgspec.structs.replace(LIST, **members), KEY)


def signed(payload: bytes, kind: str = PAYLOAD_TYPE) -> bytes:
    return sign_envelope(payload, kind, [KEY])


def test_a_list_is_read_as_it_was_published() -> None:
    assert read(sign_block_list(LIST, KEY), least_serial=7) == LIST


def test_one_of_several_keys_is_enough() -> None:
    keys = [OTHER.record(), KEY.record()]
    assert read_block_list(sign_block_list(LIST, KEY), author="a.example", keys=keys, now=NOW) == LIST


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.ENVELOPE_MALFORMED),
        (b"[" * 100_000, Code.ENVELOPE_MALFORMED),
        (b" " * (LIST_BYTES + 1), Code.DOCUMENT_TOO_LARGE),
        (sign_block_list(LIST, OTHER), Code.TOO_FEW_SIGNATURES),
        (signed(msgspec.json.encode(LIST), "application/vnd.other+json"), Code.TOO_FEW_SIGNATURES),
        (signed(b"{}"), Code.DOCUMENT_MALFORMED),
        (signed(b'{"author": 1}'), Code.DOCUMENT_MALFORMED),
        (signed(msgspec.json.encode(LIST).replace(b"evil.example", b"Evil Example")), Code.DOCUMENT_MALFORMED),
        (signed(msgspec.json.encode(LIST).replace(b"flood", b"\\u001b[1m")), Code.DOCUMENT_MALFORMED),
        (changed(entries=LIST.entries * 2), Code.DOCUMENT_MALFORMED),
        (
            changed(entries=tuple(BlockedDomain(domain=f"d{number}.example") for number in range(ENTRIES_MAX + 1))),
            Code.DOCUMENT_MALFORMED,
        ),
        (changed(author="c.example"), Code.WRONG_DOMAIN),
        (changed(serial=6), Code.ROLLBACK),
        (changed(expires=NOW), Code.DOCUMENT_EXPIRED),
        (changed(issued=NOW + 301), Code.DOCUMENT_EXPIRED),
        (changed(expires=NOW + 8 * 86_400), Code.DOCUMENT_EXPIRED),
    ],
)
def test_what_is_no_list_of_the_author_that_holds_now_is_refused(raw: bytes, code: Code) -> None:
    with pytest.raises(PeerError) as caught:
        read(raw, least_serial=7)
    assert (caught.value.code, caught.value.domain) == (code, "a.example")


@given(st.binary(max_size=60), st.integers(0, 600))
def test_a_list_that_was_changed_on_its_way_is_refused_or_says_the_same(noise: bytes, at: int) -> None:
    raw = sign_block_list(LIST, KEY)
    with suppress(PeerError):
        assert read(raw[:at] + noise + raw[at + len(noise) :]) == LIST
