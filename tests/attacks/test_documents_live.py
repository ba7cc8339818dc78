"""Attacks on the live document, and on our clock. Source: trust and hosts, section 7, rows 22, 23 and 28."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protofly.documents import RootReference
from protofly.errors import Code, PeerError
from tests.support.repository import DAY, START, World, moment


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


async def refused(world: World, code: Code) -> PeerError:
    """Refused with `code`; every mark is as before, and the last good documents still restore."""
    before = world.state()
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is code
    assert world.state() == before
    return caught.value


async def still_running(world: World) -> None:
    """The version that was accepted before goes on."""
    assert world.bundle is not None
    trust = world.client.restore(world.b.location, world.anchor, world.bundle)
    assert trust is not None
    assert (await world.fetch_stub(trust)).serial == 1


# Row 22.


async def test_lower_serial_is_a_rollback(world: World) -> None:
    old = world.b.files[world.b.location.well_known_url]
    world.b.publish_live()
    await world.provide()
    world.b.files[world.b.location.well_known_url] = old
    await refused(world, Code.ROLLBACK)
    await still_running(world)


async def test_equal_serial_with_other_bytes_is_a_rollback(world: World) -> None:
    await world.provide()
    world.b.publish_live(serial=world.b.live_serial, contact="mailto:else@b.example")
    await refused(world, Code.ROLLBACK)
    await still_running(world)


async def test_serial_that_jumps_is_a_fast_forward(world: World) -> None:
    await world.provide()
    world.b.publish_live(serial=world.b.live_serial + 10**9)
    await refused(world, Code.FAST_FORWARD)
    await still_running(world)


BAD_TIMES: list[tuple[dict[str, Any], Code]] = [
    ({"issued": moment(START - 3 * DAY), "expires": moment(START - DAY)}, Code.DOCUMENT_EXPIRED),
    ({"expires": moment(START)}, Code.DOCUMENT_EXPIRED),
    ({"issued": moment(START + 301), "expires": moment(START + DAY)}, Code.ISSUED_IN_FUTURE),
    ({"expires": moment(START + 3650 * DAY)}, Code.VALIDITY_TOO_LONG),
]


@pytest.mark.parametrize(("changes", "code"), BAD_TIMES)
async def test_impossible_times_are_refused(world: World, changes: dict[str, Any], code: Code) -> None:
    await world.provide()
    world.b.publish_live(**changes)
    await refused(world, code)
    await still_running(world)


async def test_frozen_document_is_refused_when_it_has_ended(world: World) -> None:
    await world.provide()
    world.clock.now += 2 * DAY
    await refused(world, Code.DOCUMENT_EXPIRED)


@pytest.mark.parametrize("sha256", ["0" * 64, "f" * 64])
async def test_document_of_another_root_is_mix_and_match(world: World, sha256: str) -> None:
    await world.provide()
    world.b.publish_live(root=RootReference(version=1, sha256=sha256))
    await refused(world, Code.MIX_AND_MATCH)
    await still_running(world)


async def test_live_document_over_its_size_is_refused(world: World) -> None:
    await world.provide()
    world.b.files[world.b.location.well_known_url] = b" " * (51 << 10)
    await refused(world, Code.DOCUMENT_TOO_LARGE)
    await still_running(world)


# Row 23.


async def test_domain_recovers_from_fast_forward_by_rotating_the_live_key(world: World) -> None:
    await world.provide()
    world.b.publish_live(serial=10**6)
    await world.refresh()
    world.b.publish_live(serial=5)
    await refused(world, Code.ROLLBACK)
    world.b.rotate_root(live_keys=("L2",))
    world.b.publish_live(serial=5)
    assert (await world.refresh()).live.serial == 5
    state = world.state()
    assert state is not None
    assert state.live_serial == 5


async def test_adding_a_live_key_without_removing_one_resets_nothing(world: World) -> None:
    await world.provide()
    world.b.publish_live(serial=100)
    await world.refresh()
    world.b.rotate_root(live_keys=("L1", "L2"))
    world.b.publish_live(serial=5)
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.ROLLBACK


async def test_domain_recovers_from_burnt_package_serials_by_rotating_the_package_key(world: World) -> None:
    world.b.publish_stub(serial=10**6)
    await world.provide()
    world.b.publish_stub(serial=7)
    assert (await world.provide()).serial == 10**6
    world.b.rotate_root(pkg_keys=("P2",))
    world.b.publish_stub(serial=7)
    assert (await world.provide()).serial == 7


# Row 28.


async def test_clock_set_back_a_year_stops_judging_and_says_so(world: World) -> None:
    world.clock.now = START
    await world.provide()
    world.clock.now = START - 200 * DAY
    error = await refused(world, Code.CLOCK_WRONG)
    assert "our own clock" in error.detail
    assert world.bundle is not None
    with pytest.raises(PeerError) as caught:
        world.client.restore(world.b.location, world.anchor, world.bundle, is_stale_allowed=True)
    assert caught.value.code is Code.CLOCK_WRONG


async def test_clock_before_this_code_existed_is_wrong_at_first_contact_too(world: World) -> None:
    world.clock.now = 0.0
    await refused(world, Code.CLOCK_WRONG)


async def test_clock_set_forward_ten_years_accepts_nothing_and_recovers(world: World) -> None:
    await world.provide()
    world.clock.now = START + 3650 * DAY
    error = await refused(world, Code.DOCUMENT_EXPIRED)
    assert "ended" in error.detail
    world.clock.now = START + 60
    assert (await world.provide()).serial == 1
