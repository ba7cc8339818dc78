"""Revocation. Source: trust and hosts, section 7, rows 29 and 30."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue_client.core.verify import judge_running
from protofly.documents import Revoked
from protofly.errors import Code, PeerError
from tests.support.repository import DAY, START, PublishedDomain, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, PublishedDomain("b.example"), PublishedDomain("c.example"))
    yield world
    world.close()


async def test_running_module_that_was_revoked_has_to_stop_at_the_next_refresh(world: World) -> None:
    stub = await world.provide()
    trust = await world.refresh()
    assert judge_running(stub, trust, now=START, grace_seconds=0) is None
    world.b.publish_live(revoked=Revoked(modules=[stub.module_sha256]))
    trust = await world.refresh()
    assert judge_running(stub, trust, now=START, grace_seconds=0) is Code.REVOKED
    with pytest.raises(PeerError) as caught:
        await world.fetch_stub(trust)
    assert caught.value.code is Code.REVOKED


async def test_running_stub_below_the_minimum_serial_has_to_stop(world: World) -> None:
    stub = await world.provide()
    world.b.publish_live(revoked=Revoked(min_serial={"bNodeStub": 2}))
    trust = await world.refresh()
    assert judge_running(stub, trust, now=START, grace_seconds=0) is Code.REVOKED


async def test_running_stub_ends_after_its_documents_and_the_grace(world: World) -> None:
    stub = await world.provide()
    trust = await world.refresh()
    ends = START + 2 * DAY
    assert judge_running(stub, trust, now=ends + DAY - 1, grace_seconds=DAY) is None
    assert judge_running(stub, trust, now=ends + DAY, grace_seconds=DAY) is Code.DOCUMENT_EXPIRED


async def test_revoked_package_key_spoils_an_otherwise_valid_manifest(world: World) -> None:
    stub = await world.provide()
    world.b.publish_live(revoked=Revoked(keys=["P1"]))
    with pytest.raises(PeerError) as caught:
        await world.provide()
    assert caught.value.code is Code.REVOKED
    assert judge_running(stub, await world.refresh(), now=START, grace_seconds=0) is Code.REVOKED
    world.b.rotate_root(pkg_keys=("P1", "P2"))
    world.b.publish_stub(serial=2, signed_by=(world.b.keys["P2"],), is_named_by_live=False)
    world.b.publish_live(revoked=Revoked(keys=["P1"]))
    assert (await world.provide()).serial == 2


async def test_revoked_key_under_a_second_id_stays_revoked(world: World) -> None:
    twin = {"P3": world.b.keys["P1"].record()}
    world.b.keys["P3"] = type(world.b.keys["P1"])("P3", world.b.keys["P1"].private)
    world.b.publish_root(pkg_keys=("P1", "P3"), records=twin)
    world.b.publish_stub(serial=1, signed_by=(world.b.keys["P3"],), is_named_by_live=False)
    world.b.publish_live(revoked=Revoked(keys=["P1"]))
    with pytest.raises(PeerError) as caught:
        await world.provide()
    assert caught.value.code is Code.REVOKED


async def test_one_domain_revoking_a_shared_module_stops_only_itself(world: World) -> None:
    b, c = world.published
    ours = await world.client.fetch_stub(await world.refresh(b))
    theirs = await world.client.fetch_stub(await world.refresh(c))
    assert ours.module_sha256 == theirs.module_sha256
    b.publish_live(revoked=Revoked(modules=[ours.module_sha256]))
    trust_b, trust_c = await world.refresh(b), await world.refresh(c)
    assert judge_running(ours, trust_b, now=START, grace_seconds=0) is Code.REVOKED
    assert judge_running(theirs, trust_c, now=START, grace_seconds=0) is None
    assert (await world.client.fetch_stub(await world.refresh(c))).domain == "c.example"
