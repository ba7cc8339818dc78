"""The cache: what was put is got, atomically, privately, and no more than fits."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest
import trio

from protofly.documents import DocumentBundle
from protofly.errors import HostError, SettingsError
from stubs_cache.cache import StubsCache
from stubs_cache.core.entry import CacheKind
from stubs_cache.core.eviction import Reason
from stubs_cache.store import FileStore, load_secret, write_whole

SECRET = b"a secret of this node, 32 bytes."
BUNDLE = DocumentBundle(
    domain="b.example", live=b"\0envelope", manifests={"a" * 64: b"\xff"}, fetched_at=1.5, fresh_until=2.5
)


@pytest.fixture
def cache(tmp_path: Path) -> StubsCache:
    return StubsCache(tmp_path / "cache", secret=SECRET)


async def test_what_was_put_is_got_also_after_a_restart(cache: StubsCache, tmp_path: Path) -> None:
    key = await cache.put_module(b"module")
    await cache.put_documents(BUNDLE)
    await cache.put_compiled(key, "engine", b"native")
    again = StubsCache(tmp_path / "cache", secret=SECRET)
    assert key == hashlib.sha256(b"module").hexdigest()
    assert await again.get_module(key) == b"module"
    assert await again.get_documents("b.example") == BUNDLE
    assert await again.get_compiled(key, "engine") == b"native"
    assert again.statistics().hits == 3


async def test_what_was_never_put_is_a_miss(cache: StubsCache) -> None:
    assert await cache.get_module("0" * 64) is None
    assert await cache.get_documents("b.example") is None
    assert await cache.get_compiled("0" * 64, "engine") is None
    assert cache.statistics().misses == 3


async def test_dropped_documents_are_gone(cache: StubsCache) -> None:
    await cache.put_documents(BUNDLE)
    await cache.drop_documents("b.example")
    await cache.drop_documents("b.example")
    assert await cache.get_documents("b.example") is None


async def test_domain_longer_than_a_file_name_is_kept(cache: StubsCache) -> None:
    domain = ".".join(["a" * 60] * 4) + ".example"
    bundle = DocumentBundle(domain=domain, live=b"x", fetched_at=0, fresh_until=0)
    await cache.put_documents(bundle)
    assert await cache.get_documents(domain) == bundle


async def test_files_and_folders_are_for_their_owner_only(cache: StubsCache, tmp_path: Path) -> None:
    key = await cache.put_module(b"module")
    assert mode_of(tmp_path / "cache" / "modules" / key) == 0o600
    assert mode_of(tmp_path / "cache" / "modules") == 0o700
    assert mode_of(tmp_path / "cache") == 0o700


async def test_eviction_removes_the_least_recently_used_and_keeps_the_running(tmp_path: Path) -> None:
    cache = StubsCache(tmp_path / "cache", secret=SECRET, max_bytes=250)
    keys = [await cache.put_module(bytes([number]) * 100) for number in range(4)]
    evictions = await cache.evict(kept={keys[0]})
    assert len(evictions) == 2
    assert {eviction.reason for eviction in evictions} == {Reason.SPACE}
    assert await cache.get_module(keys[0]) is not None
    assert cache.statistics().evictions == 2


async def test_writes_beyond_the_room_are_reported_until_there_is_room_again(tmp_path: Path) -> None:
    cache = StubsCache(tmp_path / "cache", secret=SECRET, max_bytes=250)
    for number in range(3):
        await cache.put_module(bytes([number]) * 100)
    await cache.wait_full()
    assert cache.statistics().size_bytes == 300
    assert len(await cache.evict()) == 1
    assert cache.statistics().size_bytes == 200
    with trio.move_on_after(0) as scope:
        await cache.wait_full()
    assert scope.cancelled_caught


async def test_what_is_no_file_of_ours_is_neither_counted_nor_removed(tmp_path: Path) -> None:
    cache = StubsCache(tmp_path / "cache", secret=SECRET, max_bytes=1)
    by_hand = tmp_path / "cache" / "modules"
    (by_hand / "README").write_text("put here by hand")
    (by_hand / ("a" * 64)).mkdir()
    (by_hand / ("b" * 64)).symlink_to(by_hand / "README")
    assert await cache.evict() == []
    assert cache.statistics().size_bytes == 0
    assert len(list(by_hand.iterdir())) == 3


async def test_folder_that_went_missing_is_a_storage_error(cache: StubsCache, tmp_path: Path) -> None:
    (tmp_path / "cache" / "compiled").rmdir()
    with pytest.raises(HostError, match="stubs cache"):
        await cache.evict()


async def test_key_that_is_no_hash_never_becomes_a_path(cache: StubsCache) -> None:
    for key in ("../../etc/passwd", "", "A" * 64, "0" * 63, "0" * 63 + "/"):
        with pytest.raises(ValueError, match="SHA-256"):
            await cache.get_module(key)


async def test_disk_that_takes_nothing_is_a_storage_error_and_the_old_entry_stays(
    cache: StubsCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.put_documents(BUNDLE)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("stubs_cache.store.os.fsync", full)
        with pytest.raises(HostError, match="No space left"):
            await cache.put_documents(DocumentBundle(domain="b.example", live=b"new", fetched_at=0, fresh_until=0))
    assert await cache.get_documents("b.example") == BUNDLE


def test_interrupted_write_leaves_nothing_behind_and_leftovers_are_cleared(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    leftover = tmp_path / "modules" / ".writing-0123"
    leftover.write_bytes(b"half")
    assert store.entries() == []
    FileStore(tmp_path)
    assert not leftover.exists()
    with pytest.raises(TypeError):
        write_whole(tmp_path / "modules" / "x", "text")  # type: ignore[arg-type]
    assert list((tmp_path / "modules").iterdir()) == []


def test_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="stubs cache"):
        FileStore(tmp_path / "file")


def test_entries_know_kind_and_size(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.write(CacheKind.COMPILED, "ab" * 32, b"12345")
    (entry,) = store.entries()
    assert (entry.kind, entry.key, entry.size_bytes) == (CacheKind.COMPILED, "ab" * 32, 5)


def test_secret_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "node" / "secret"
    secret = load_secret(path)
    assert len(secret) == 32
    assert load_secret(path) == secret
    assert mode_of(path) == 0o600


def test_secret_that_others_may_read_or_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    load_secret(path)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        load_secret(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(SettingsError, match="32 bytes"):
        load_secret(path)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
