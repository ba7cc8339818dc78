"""Attacks on the chain of roots. Source: trust and hosts, section 7, row 21."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue_client.core.state import TrustAnchor
from protofly import limits
from protofly.errors import Code, PeerError, TransportError
from tests.support.repository import DAY, World, moment


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


async def refused(world: World, code: Code, *, root_version: int = 1) -> None:
    """Refused with `code`; the remembered root is `root_version`, and the running stub's documents still restore."""
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is code
    state = world.state()
    assert state is not None
    assert state.root_version == root_version


async def test_chain_is_followed_one_version_at_a_time(world: World) -> None:
    await world.provide()
    world.b.rotate_root(root_keys=("K2",))
    world.b.rotate_root(root_keys=("K1", "K2"), threshold=2)
    world.b.publish_live()
    trust = await world.refresh()
    assert trust.root.version == 3
    assert world.fetcher.requests[-2:] == [world.b.location.root_url(2), world.b.location.root_url(3)]


async def test_root_that_skips_a_version_is_refused(world: World) -> None:
    await world.provide()
    skipping = world.b.rotate_root(version=3)
    world.b.publish_live()
    world.b.files[world.b.location.root_url(2)] = skipping
    await refused(world, Code.ROOT_CHAIN)


async def test_missing_link_is_refused(world: World) -> None:
    await world.provide()
    world.b.rotate_root(version=3)
    world.b.publish_live()
    await refused(world, Code.HTTP_STATUS)


async def test_same_version_with_other_bytes_is_refused(world: World) -> None:
    await world.provide()
    world.b.publish_root(live_keys=("L2",))
    world.b.publish_live(signed_by=(world.b.keys["L1"],))
    await refused(world, Code.MIX_AND_MATCH)


async def test_lower_version_is_refused(world: World) -> None:
    old_root, old_live = world.b.root_raw, world.b.files[world.b.location.well_known_url]
    await world.provide()
    world.b.rotate_root()
    world.b.publish_live()
    await world.provide()
    world.b.files[world.b.location.root_url(1)] = old_root
    world.b.files[world.b.location.well_known_url] = old_live
    await refused(world, Code.ROLLBACK, root_version=2)


async def test_next_root_signed_only_by_the_old_keys_is_refused(world: World) -> None:
    await world.provide()
    world.b.rotate_root(root_keys=("K2",), signed_by=("K1",))
    world.b.publish_live()
    await refused(world, Code.TOO_FEW_SIGNATURES)


async def test_next_root_signed_only_by_the_new_keys_is_broken_trust(world: World) -> None:
    await world.provide()
    world.b.rotate_root(root_keys=("K2",), signed_by=("K2",))
    world.b.publish_live()
    await refused(world, Code.BROKEN_TRUST)


async def test_more_rotations_than_the_limit_are_refused_without_fetching_them(world: World) -> None:
    await world.provide()
    for _ in range(limits.ROOT_STEPS + 1):
        world.b.rotate_root()
    world.b.publish_live()
    asked = len(world.fetcher.requests)
    await refused(world, Code.ROOT_CHAIN)
    assert len(world.fetcher.requests) == asked + 1


async def test_as_many_rotations_as_the_limit_are_followed(world: World) -> None:
    await world.provide()
    for _ in range(limits.ROOT_STEPS):
        world.b.rotate_root()
    world.b.publish_live()
    assert (await world.refresh()).root.version == limits.ROOT_STEPS + 1


async def test_claimed_version_far_ahead_costs_one_request(world: World) -> None:
    claims = world.b.live.root.__class__(version=10**15, sha256="0" * 64)
    world.b.publish_live(root=claims)
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.HTTP_STATUS
    assert len(world.fetcher.requests) == 2


async def test_expired_final_root_is_refused_and_an_expired_one_on_the_way_is_not(world: World) -> None:
    await world.provide()
    world.b.rotate_root(expires=moment(world.b.now - DAY))
    world.b.publish_live()
    await refused(world, Code.DOCUMENT_EXPIRED, root_version=2)
    world.b.rotate_root()
    world.b.publish_live()
    assert (await world.refresh()).root.version == 3


async def test_endless_history_before_a_pin_is_walked_back_a_limited_way(world: World) -> None:
    for _ in range(limits.ROOT_STEPS + 5):
        world.b.rotate_root()
    world.b.publish_live()
    world.anchor = TrustAnchor.pinned("A" * 43)
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.FINGERPRINT_MISMATCH
    assert len(world.fetcher.requests) == limits.ROOT_STEPS + 1
    assert world.state() is None


@pytest.mark.parametrize("interrupted_at", [2, 3, 4])
async def test_interruption_after_each_step_and_restart_continues_there(world: World, interrupted_at: int) -> None:
    await world.provide()
    world.b.rotate_root(root_keys=("K2",))
    world.b.rotate_root(root_keys=("K1",))
    world.b.rotate_root(root_keys=("K2",))
    world.b.publish_live()
    url = world.b.location.root_url(interrupted_at)
    world.fetcher.failures[url] = TransportError(Code.CONNECT_FAILED)
    with pytest.raises(TransportError):
        await world.refresh()
    world.restart()
    state = world.state()
    assert state is not None
    assert state.root_version == interrupted_at - 1
    world.fetcher.failures.clear()
    world.fetcher.requests.clear()
    assert (await world.refresh()).root.version == 4
    assert world.fetcher.requests[1] == url
