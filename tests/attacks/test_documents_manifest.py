"""Attacks on manifests. Source: trust and hosts, section 7, row 24."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catalogue_client.core.verify import PermissionsPolicy
from protofly.documents import Abi, Permissions, Revoked, StubReference, document_sha256, encode_document
from protofly.errors import Code, PeerError
from tests.support.repository import DAY, MODULE, START, PublishedDomain, World, moment


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.b.publish_stub(serial=5)
    yield world
    world.close()


async def refused(world: World, code: Code, policy: PermissionsPolicy | None = None) -> None:
    """Refused with `code`; the mark of the stub is as before."""
    before = world.state()
    world.bundle = None
    with pytest.raises(PeerError) as caught:
        await world.provide(policy)
    assert caught.value.code is code
    after = world.state()
    assert after is not None
    assert after.stubs == (before.stubs if before else {})


async def test_manifest_of_another_domain_is_refused_even_with_its_hash_in_live(world: World) -> None:
    await world.provide()
    other = PublishedDomain("c.example")
    world.b.files[world.b.location.manifest_url("bNodeStub")] = other.manifest_raw
    world.b.manifest_raw = other.manifest_raw
    world.b.publish_live()
    await refused(world, Code.TOO_FEW_SIGNATURES)


async def test_manifest_that_speaks_for_another_domain_is_refused(world: World) -> None:
    await world.provide()
    world.b.publish_stub(serial=6, domain="c.example")
    await refused(world, Code.WRONG_DOMAIN)


@pytest.mark.parametrize("changes", [{"name": "otherStub"}, {"serial": 7}])
async def test_manifest_that_is_not_the_named_one_is_mix_and_match(world: World, changes: dict[str, Any]) -> None:
    await world.provide()
    world.b.publish_stub(serial=6)
    reference = msgspec.structs.replace(world.b.live.stubs["default"], **changes)
    world.b.publish_live(stubs={"default": reference})
    world.b.files[world.b.location.manifest_url(reference.name)] = world.b.manifest_raw
    await refused(world, Code.MIX_AND_MATCH)


async def test_lower_serial_is_a_rollback(world: World) -> None:
    await world.provide()
    world.b.publish_stub(serial=4)
    await refused(world, Code.ROLLBACK)


async def test_equal_serial_with_another_module_is_a_rollback(world: World) -> None:
    await world.provide()
    world.b.publish_stub(serial=5, code=MODULE + b"\0\x01\0")
    await refused(world, Code.ROLLBACK)


async def test_serial_that_jumps_is_a_fast_forward(world: World) -> None:
    await world.provide()
    world.b.publish_stub(serial=10**9)
    await refused(world, Code.FAST_FORWARD)


async def test_serial_below_the_minimum_of_live_is_revoked(world: World) -> None:
    world.b.publish_live(revoked=Revoked(min_serial={"bNodeStub": 6}))
    await refused(world, Code.REVOKED)


BAD_MANIFESTS: list[tuple[dict[str, Any], Code]] = [
    ({"expires": moment(START)}, Code.DOCUMENT_EXPIRED),
    ({"released": moment(START + DAY)}, Code.ISSUED_IN_FUTURE),
    ({"for_domains": ["c.example"]}, Code.WRONG_DOMAIN),
    ({"abi": Abi(name="rmn-stub", version="1.2")}, Code.ABI_UNSUPPORTED),
    ({"abi": Abi(name="trapezoid-stub", version="2.0")}, Code.ABI_UNSUPPORTED),
    ({"permissions": Permissions(connect=["mn"], storage_bytes=1)}, Code.PERMISSIONS_HELD),
]


@pytest.mark.parametrize(("changes", "code"), BAD_MANIFESTS)
async def test_manifest_that_does_not_fit_is_refused(world: World, changes: dict[str, Any], code: Code) -> None:
    await world.provide()
    world.b.publish_stub(serial=6, **changes)
    await refused(world, code)


async def test_manifest_with_another_hash_than_live_says_is_refused(world: World) -> None:
    await world.provide()
    named = world.b.live
    world.b.publish_stub(serial=6, is_named_by_live=False)
    world.b.publish_live(stubs=named.stubs)
    await refused(world, Code.DIGEST_MISMATCH)


async def test_manifest_signed_by_the_live_key_is_refused(world: World) -> None:
    await world.provide()
    world.b.publish_stub(serial=6, signed_by=(world.b.keys["L1"],))
    await refused(world, Code.TOO_FEW_SIGNATURES)


async def test_permission_beyond_the_policy_is_held_at_first_contact(world: World) -> None:
    await refused(world, Code.PERMISSIONS_HELD, PermissionsPolicy(auth=False))
    state = world.state()
    assert state is not None
    assert state.held["bNodeStub"].excess == ["auth"]


async def test_permission_growth_inside_the_policy_is_held_in_an_update(world: World) -> None:
    world.b.publish_stub(serial=6, permissions=Permissions(connect=["mn"]))
    await world.provide()
    world.b.publish_stub(serial=7, permissions=Permissions(connect=["mn"], clock="wall", random=True))
    await refused(world, Code.PERMISSIONS_HELD)
    state = world.state()
    assert state is not None
    assert state.held["bNodeStub"].excess == ["clock wall", "random"]


async def test_approval_counts_for_the_approved_manifest_only(world: World) -> None:
    world.b.publish_stub(serial=6, permissions=Permissions(connect=["mn"]))
    await world.provide()
    world.b.publish_stub(serial=7, permissions=Permissions(connect=["mn"], random=True))
    await refused(world, Code.PERMISSIONS_HELD)
    await world.store.approve("b.example", "bNodeStub")
    world.b.publish_stub(serial=8, permissions=Permissions(connect=["mn"], random=True, auth=True))
    await refused(world, Code.PERMISSIONS_HELD)


async def test_reference_to_a_stub_called_default_or_with_a_path_is_refused(world: World) -> None:
    await world.provide()
    for name in ("default", "../../etc/passwd", "a/b", "", "x" * 65):
        digest = document_sha256(world.b.manifest_raw)
        world.b.publish_live(stubs={"default": StubReference(name=name, serial=6, version="1", manifest_sha256=digest)})
        await refused(world, Code.DOCUMENT_MALFORMED)


# Interworking stubs: what they may claim is signed with the rest.


def claiming(*ranges: str) -> Permissions:
    return Permissions(connect=["mn"], ranges=list(ranges))


@pytest.mark.parametrize(
    ("is_flagged", "ranges"),
    [
        (True, ()),
        (False, ("sip://legacy.example",)),
        (True, ("sip://*",)),
        (True, ("user://a.example",)),
        (True, ("hyperty://a.example",)),
        (True, ("domain://registry.a.example",)),
    ],
)
async def test_flag_without_ranges_ranges_without_flag_and_ranges_of_ours_are_malformed(
    world: World, *, is_flagged: bool, ranges: tuple[str, ...]
) -> None:
    await world.provide()
    world.b.publish_stub(serial=6, interworking=is_flagged, permissions=claiming(*ranges))
    await refused(world, Code.DOCUMENT_MALFORMED)


async def test_flag_that_is_flipped_after_signing_is_refused(world: World) -> None:
    world.b.publish_stub(serial=6, interworking=True, permissions=claiming("sip://legacy.example"))
    assert (await world.provide()).manifest.interworking
    envelope = msgspec.json.decode(world.b.publish_stub(serial=7))
    flipped = msgspec.structs.replace(world.b.manifest, interworking=True, permissions=claiming("sip://legacy.example"))
    envelope["payload"] = base64.b64encode(encode_document(flipped)).decode()
    world.b.files[world.b.location.manifest_url("bNodeStub")] = msgspec.json.encode(envelope)
    await refused(world, Code.DIGEST_MISMATCH)
    digest = hashlib.sha256(encode_document(flipped)).hexdigest()
    world.b.publish_live(
        stubs={"default": StubReference(name="bNodeStub", serial=7, version="1", manifest_sha256=digest)}
    )
    await refused(world, Code.TOO_FEW_SIGNATURES)


async def test_update_that_begins_to_interwork_or_claims_more_is_held(world: World) -> None:
    world.b.publish_stub(serial=6, permissions=Permissions(connect=["mn"]))
    await world.provide()
    world.b.publish_stub(serial=7, interworking=True, permissions=claiming("tel:+4930*"))
    await refused(world, Code.PERMISSIONS_HELD)
    await world.store.approve("b.example", "bNodeStub")
    assert (await world.provide()).manifest.permissions.ranges == ["tel:+4930*"]
    world.b.publish_stub(serial=8, interworking=True, permissions=claiming("tel:+49301*", "tel:+49*"))
    await refused(world, Code.PERMISSIONS_HELD)
    state = world.state()
    assert state is not None
    assert state.held["bNodeStub"].excess == ["range tel:+49*"]
