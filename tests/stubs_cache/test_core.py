"""Sealing and eviction, as pure functions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stubs_cache.core.entry import Entry, Kind, compiled_key, seal, unseal
from stubs_cache.core.eviction import Reason, choose_evictions

ENTRIES = st.lists(
    st.builds(
        Entry,
        kind=st.sampled_from(Kind),
        key=st.text("0123456789abcdef", min_size=4, max_size=4),
        size_bytes=st.integers(0, 100),
        used_at=st.floats(0, 1000),
    ),
    max_size=20,
)


@given(data=st.binary(max_size=64), position=st.integers(0, 10_000))
def test_any_changed_byte_breaks_the_seal(data: bytes, position: int) -> None:
    sealed = seal(b"secret", Kind.COMPILED, "k" * 64, data)
    assert unseal(b"secret", Kind.COMPILED, "k" * 64, sealed) == data
    changed = bytearray(sealed)
    changed[position % len(changed)] ^= 0x80
    assert unseal(b"secret", Kind.COMPILED, "k" * 64, bytes(changed)) is None


def test_seal_holds_for_one_secret_kind_and_key_only() -> None:
    sealed = seal(b"secret", Kind.COMPILED, "k" * 64, b"data")
    assert unseal(b"other", Kind.COMPILED, "k" * 64, sealed) is None
    assert unseal(b"secret", Kind.DOCUMENTS, "k" * 64, sealed) is None
    assert unseal(b"secret", Kind.COMPILED, "l" * 64, sealed) is None


@given(raw=st.binary(max_size=80))
def test_bytes_that_nobody_sealed_are_refused(raw: bytes) -> None:
    assert unseal(b"secret", Kind.COMPILED, "k" * 64, raw) is None


def test_compiled_key_depends_on_module_and_engine() -> None:
    keys = {compiled_key(module, engine) for module in ("0" * 64, "1" * 64) for engine in ("a", "b")}
    assert len(keys) == 4


@given(entries=ENTRIES, max_bytes=st.integers(0, 500), kept=st.sets(st.text("0123456789abcdef", max_size=4)))
def test_what_remains_fits_unless_it_is_kept(entries: list[Entry], max_bytes: int, kept: set[str]) -> None:
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
    def entry(key: str, used_at: float) -> Entry:
        return Entry(kind=Kind.MODULE, key=key, size_bytes=10, used_at=used_at)

    entries = [entry("new", 90), entry("old", 10), entry("older", 5), entry("middle", 50)]
    evictions = choose_evictions(entries, now=100, max_bytes=15, unused_seconds=92)
    assert [(eviction.entry.key, eviction.reason) for eviction in evictions] == [
        ("older", Reason.UNUSED),
        ("old", Reason.SPACE),
        ("middle", Reason.SPACE),
    ]
