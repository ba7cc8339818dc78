"""Attacks on what lies on our disk. Source: trust and hosts, section 7, rows 26 and 27."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue_client.core.verify import ManifestRules, PermissionsPolicy, accept_previous
from protofly.documents import Permissions
from protofly.errors import Code, PeerError
from stubs_cache.cache import StubsCache
from stubs_cache.core.entry import CacheKind, compiled_key, documents_key
from tests.support.repository import MODULE, SECRET, START, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def cache(tmp_path: Path) -> StubsCache:
    return StubsCache(tmp_path / "cache", secret=SECRET)


def file_of(tmp_path: Path, kind: CacheKind, key: str) -> Path:
    return tmp_path / "cache" / kind.value / key


def remove_marks(tmp_path: Path) -> None:
    for leftover in tmp_path.glob("trust.sqlite*"):
        leftover.unlink()


# Row 26.


async def test_module_changed_by_hand_is_dropped_counted_and_fetched_again(
    world: World, cache: StubsCache, tmp_path: Path
) -> None:
    stub = await world.client.fetch_stub(await world.refresh(), cached=cache.get_module)
    await cache.put_module(stub.module)
    path = file_of(tmp_path, CacheKind.MODULE, stub.module_sha256)
    path.write_bytes(MODULE[:-1] + b"\x01")
    world.fetcher.requests.clear()
    again = await world.client.fetch_stub(await world.refresh(), cached=cache.get_module)
    assert again.module == MODULE
    assert cache.statistics().tampered == 1
    assert not path.exists()
    assert world.b.manifest.module.urls[0] in world.fetcher.requests


async def test_documents_changed_by_hand_are_dropped_and_counted(
    world: World, cache: StubsCache, tmp_path: Path
) -> None:
    await world.provide()
    assert world.bundle is not None
    await cache.put_documents(world.bundle)
    path = file_of(tmp_path, CacheKind.DOCUMENTS, documents_key("b.example"))
    path.write_bytes(path.read_bytes().replace(b"fresh_until", b"fresh_since"))
    assert await cache.get_documents("b.example") is None
    assert cache.statistics().tampered == 1
    assert not path.exists()


async def test_documents_of_one_domain_under_the_name_of_another_are_dropped(
    world: World, cache: StubsCache, tmp_path: Path
) -> None:
    await world.provide()
    assert world.bundle is not None
    await cache.put_documents(world.bundle)
    theirs = file_of(tmp_path, CacheKind.DOCUMENTS, documents_key("b.example"))
    theirs.rename(file_of(tmp_path, CacheKind.DOCUMENTS, documents_key("c.example")))
    assert await cache.get_documents("c.example") is None


async def test_mark_changed_by_hand_is_noticed_until_the_operator_decides(world: World, tmp_path: Path) -> None:
    world.b.publish_live(serial=5)
    await world.refresh()
    world.store.close()
    with sqlite3.connect(tmp_path / "trust.sqlite") as database:
        (state,) = database.execute("SELECT state FROM trust").fetchone()
        database.execute("UPDATE trust SET state = ?", (state.replace(b'"live_serial":5', b'"live_serial":1'),))
    database.close()
    world.restart()
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.CACHE_TAMPERED
    await world.store.retrust("b.example", world.b.fingerprint)
    assert (await world.refresh()).live.serial == 5


async def test_mark_copied_from_another_domain_is_noticed(world: World, tmp_path: Path) -> None:
    await world.refresh()
    world.store.close()
    with sqlite3.connect(tmp_path / "trust.sqlite") as database:
        database.execute("UPDATE trust SET domain = 'c.example'")
    database.close()
    world.restart()
    with pytest.raises(PeerError) as caught:
        world.state("c.example")
    assert caught.value.code is Code.CACHE_TAMPERED


async def test_rollback_is_refused_by_the_cached_documents_when_the_marks_are_gone(
    world: World, tmp_path: Path
) -> None:
    old = world.b.files[world.b.location.well_known_url]
    world.b.publish_live()
    await world.provide()
    world.store.close()
    remove_marks(tmp_path)
    world.restart()
    world.b.files[world.b.location.well_known_url] = old
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.ROLLBACK
    world.b.publish_live()
    assert (await world.provide()).serial == 1


async def test_rollback_is_refused_by_the_marks_when_the_cache_is_gone(world: World) -> None:
    old = world.b.files[world.b.location.well_known_url]
    world.b.publish_live()
    await world.provide()
    world.bundle = None
    world.modules.clear()
    world.restart()
    world.b.files[world.b.location.well_known_url] = old
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.ROLLBACK


async def test_older_manifest_planted_under_the_hash_of_the_accepted_one_does_not_go_on(world: World) -> None:
    """The domain signed it once, and has not revoked it: only the hash says that it is not the accepted one."""
    old_code, new_code = MODULE + b"\0\x02\x01a", MODULE + b"\0\x02\x01b"
    world.b.publish_stub(serial=1, code=old_code)
    old = await world.provide()
    world.b.publish_stub(serial=2, code=new_code)
    accepted = await world.provide()
    world.b.publish_stub(serial=3, code=MODULE, permissions=Permissions(connect=["mn", "other"], storage_bytes=1))
    assert (await world.provide()).serial == 2  # the update is held
    trust, state = await world.refresh(), world.state()
    assert state is not None
    manifests = {**dict(trust.manifests), accepted.manifest_sha256: old.manifest_envelope}
    tampered = dataclasses.replace(trust, manifests=tuple(manifests.items()))
    with pytest.raises(PeerError) as caught:
        await world.fetch_stub(tampered)
    assert caught.value.code is Code.PERMISSIONS_HELD
    rules = ManifestRules(our_domain="a.example", policy=PermissionsPolicy(), now=START)
    with pytest.raises(PeerError) as caught:
        accept_previous(state, tampered, old.name, rules)
    assert caught.value.code is Code.CACHE_TAMPERED
    assert accept_previous(state, trust, old.name, rules)[0].serial == 2


async def test_cached_document_of_another_domains_keys_raises_no_mark(world: World, tmp_path: Path) -> None:
    forger = World(tmp_path / "forger")
    forger.b.publish_root(live_keys=("L2",))
    forger.b.publish_live(serial=10**6)
    await forger.provide()
    world.bundle = forger.bundle
    assert (await world.refresh()).live.serial == 1
    forger.close()


# Row 27.


async def test_planted_compiled_code_is_never_returned(cache: StubsCache, tmp_path: Path) -> None:
    path = file_of(tmp_path, CacheKind.COMPILED, compiled_key("0" * 64, "engine 1"))
    for planted in (b"\x7fELF native code", bytes(32) + b"\x7fELF native code", b""):
        path.write_bytes(planted)
        assert await cache.get_compiled("0" * 64, "engine 1") is None
        assert not path.exists()
    assert cache.statistics().tampered == 3


async def test_compiled_code_sealed_by_another_node_is_not_returned(cache: StubsCache, tmp_path: Path) -> None:
    other = StubsCache(tmp_path / "cache", secret=b"another node's secret, 32 bytes.")
    await other.put_compiled("0" * 64, "engine 1", b"native")
    assert await cache.get_compiled("0" * 64, "engine 1") is None


async def test_compiled_code_moved_to_another_module_or_engine_is_not_returned(
    cache: StubsCache, tmp_path: Path
) -> None:
    await cache.put_compiled("0" * 64, "engine 1", b"native")
    assert await cache.get_compiled("0" * 64, "engine 2") is None
    path = file_of(tmp_path, CacheKind.COMPILED, compiled_key("0" * 64, "engine 1"))
    path.rename(file_of(tmp_path, CacheKind.COMPILED, compiled_key("1" * 64, "engine 1")))
    assert await cache.get_compiled("1" * 64, "engine 1") is None
    assert cache.statistics().tampered == 1


async def test_links_folders_and_giant_files_in_the_cache_are_not_followed(cache: StubsCache, tmp_path: Path) -> None:
    key = "ab" * 32
    path = file_of(tmp_path, CacheKind.MODULE, key)
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    path.symlink_to(secret)
    assert await cache.get_module(key) is None
    assert secret.read_bytes() == b"secret"
    path.mkdir()
    assert await cache.get_module(key) is None
    path.rmdir()
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert await cache.get_module(key) is None
