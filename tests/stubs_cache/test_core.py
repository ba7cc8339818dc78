"""Sealing and eviction, as pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stubs_cache.core.entry import SEAL_BYTES, CacheEntry, CacheKind, compiled_key, is_key, seal, unseal
from stubs_cache.core.eviction import Reason, choose_evictions

ENTRIES = st.lists(
    st.builds(
        CacheEntry,
        kind=st.sampled_from(CacheKind),
        key=st.text("0123456789abcdef", min_size=4, max_size=4),
        size_bytes=st.integers(0, 100),
        used_at=st.floats(0, 1000),
    ),
    max_size=20,
)


@given(data=st.binary(max_size=64), position=st.integers(0, 10_000))
def test_any_changed_byte_breaks_the_seal(data: bytes, position: int) -> None:
    sealed = seal(b"secret", CacheKind.COMPILED, "k" * 64, data)
    assert unseal(b"secret", CacheKind.COMPILED, "k" * 64, sealed) == data
    changed = bytearray(sealed)
    changed[position % len(changed)] ^= 0x80
    assert unseal(b"secret", CacheKind.COMPILED, "k" * 64, bytes(changed)) is None


def test_seal_holds_for_one_secret_kind_and_key_only() -> None:
    sealed = seal(b"secret", CacheKind.COMPILED, "k" * 64, b"data")
    assert unseal(b"other", CacheKind.COMPILED, "k" * 64, sealed) is None
    assert unseal(b"secret", CacheKind.DOCUMENTS, "k" * 64, sealed) is None
    assert unseal(b"secret", CacheKind.COMPILED, "l" * 64, sealed) is None


@given(raw=st.binary(max_size=80))
def test_bytes_that_nobody_sealed_are_refused(raw: bytes) -> None:
    assert unseal(b"secret", CacheKind.COMPILED, "k" * 64, raw) is None


def test_compiled_key_depends_on_module_and_engine() -> None:
    keys = {compiled_key(module, engine) for module in ("0" * 64, "1" * 64) for engine in ("a", "b")}
    assert len(keys) == 4


@given(entries=ENTRIES, max_bytes=st.integers(0, 500), kept=st.sets(st.text("0123456789abcdef", max_size=4)))
def test_what_remains_fits_unless_it_is_kept(entries: list[CacheEntry], max_bytes: int, kept: set[str]) -> None:
    evictions = choose_evictions(entries, now=1000, max_bytes=max_bytes, unused_seconds=500, kept=kept)
    gone = [eviction.entry for eviction in evictions]
    remaining = list(entries)
    for entry in gone:
        remaining.remove(entry)
        assert entry.key not in kept
    assert sum(entry.size_bytes for entry in remaining) <= max_bytes or all(
        entry.key in kept or entry.size_bytes == 0 for entry in remaining
    )
    assert all(entry.key in kept or entry.used_at >= 500 for entry in remaining)


def test_unused_goes_before_space_and_the_oldest_first() -> None:
    def entry(key: str, used_at: float) -> CacheEntry:
        return CacheEntry(kind=CacheKind.MODULE, key=key, size_bytes=10, used_at=used_at)

    entries = [entry("new", 90), entry("old", 10), entry("older", 5), entry("middle", 50)]
    evictions = choose_evictions(entries, now=100, max_bytes=15, unused_seconds=92)
    assert [(eviction.entry.key, eviction.reason) for eviction in evictions] == [
        ("older", Reason.UNUSED),
        ("old", Reason.SPACE),
        ("middle", Reason.SPACE),
    ]


def entry_of(key: str, used_at: float, size_bytes: int = 10) -> CacheEntry:
    return CacheEntry(kind=CacheKind.MODULE, key=key, size_bytes=size_bytes, used_at=used_at)


def test_what_runs_is_kept_however_old_and_large_it_is() -> None:
    entries = [entry_of("kept", 0, 100), entry_of("other", 99, 10)]
    assert choose_evictions(entries, now=100, max_bytes=200, unused_seconds=50, kept={"kept"}) == []
    gone = choose_evictions(entries, now=100, max_bytes=50, unused_seconds=50, kept={"kept"})
    assert [(one.entry.key, one.reason) for one in gone] == [("other", Reason.SPACE)]


def test_an_entry_goes_when_it_was_unused_for_longer_and_not_for_just_as_long() -> None:
    entries = [entry_of("a", 50.0), entry_of("b", 49.9)]
    assert [one.entry.key for one in choose_evictions(entries, now=100, unused_seconds=50)] == ["b"]


def test_what_fits_to_the_last_byte_stays() -> None:
    entries = [entry_of("a", 1), entry_of("b", 2)]
    assert choose_evictions(entries, now=3, max_bytes=20) == []
    assert [one.entry.key for one in choose_evictions(entries, now=3, max_bytes=19)] == ["a"]
    assert [one.entry.key for one in choose_evictions(entries, now=3, max_bytes=10)] == ["a"]


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 65, "0" * 63 + "g", "A" * 64, "../" + "0" * 61, "٣" * 64])
def test_only_the_hex_of_a_hash_is_a_key(text: str) -> None:
    assert not is_key(text)
    assert is_key("0123456789abcdef" * 4)


def test_a_seal_is_32_bytes_and_a_cut_one_is_none() -> None:
    sealed = seal(b"secret", CacheKind.MODULE, "k" * 64, b"")
    assert len(sealed) == SEAL_BYTES == 32
    assert unseal(b"secret", CacheKind.MODULE, "k" * 64, sealed) == b""
    assert unseal(b"secret", CacheKind.MODULE, "k" * 64, sealed[:-1]) is None
