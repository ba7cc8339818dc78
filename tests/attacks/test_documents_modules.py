"""Attacks on the module. Source: trust and hosts, section 7, row 25 (its inside is judged by the sandbox)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from protofly.documents import Manifest, Revoked
from protofly.errors import Code, MisuseError, PeerError
from protofly.stub import VerifiedStub
from sandbox.core.module_check import inspect_module
from tests.support.repository import MODULE, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


async def refused(world: World, code: Code) -> None:
    """Refused with `code`; no mark was raised for what could not be had."""
    with pytest.raises(PeerError) as caught:
        await world.provide()
    assert caught.value.code is code
    state = world.state()
    assert state is not None
    assert state.stubs == {}


def serve_instead(world: World, body: bytes) -> None:
    world.b.files[world.b.manifest.module.urls[0]] = body


@pytest.mark.parametrize("position", range(0, len(MODULE), 5))
async def test_one_changed_byte_is_refused(world: World, position: int) -> None:
    changed = bytearray(MODULE)
    changed[position] ^= 1
    serve_instead(world, bytes(changed))
    await refused(world, Code.DIGEST_MISMATCH)
    assert world.modules == {}


@pytest.mark.parametrize("body", [b"", MODULE[:-1], MODULE + b"\0", MODULE * 2])
async def test_truncated_or_longer_module_is_refused(world: World, body: bytes) -> None:
    serve_instead(world, body)
    await refused(world, Code.DIGEST_MISMATCH)


async def test_far_longer_body_is_cut_by_the_fetcher(world: World) -> None:
    serve_instead(world, MODULE + bytes(100_000))
    await refused(world, Code.DOCUMENT_TOO_LARGE)


@pytest.mark.parametrize(
    "code", [b"#!/bin/sh\nexit 0\n", b"\0asm\x0d\0\1\0component", b"\0asm\x02\0\0\0version", b"\x7fELF" + bytes(60)]
)
async def test_right_hash_of_something_that_is_no_core_module_is_refused(world: World, code: bytes) -> None:
    world.b.publish_stub(serial=2, code=code)
    await refused(world, Code.MODULE_MALFORMED)


def section(number: int, *content: int) -> bytes:
    return bytes([number, len(content), *content])


TYPE = section(1, 1, 0x60, 0, 0)
HOSTILE = {
    "import": (TYPE + section(2, 1, 1, 0x61, 1, 0x62, 0, 0), Code.MODULE_IMPORTS),
    "memory without maximum": (section(5, 1, 0, 1), Code.MODULE_LIMITS),
    "a million functions": (TYPE + section(3, 0xC0, 0x84, 0x3D), Code.MODULE_LIMITS),
    "section that ends outside": (b"\x01\xff\xff\xff\x0f", Code.MODULE_MALFORMED),
    "no word about its contract": (b"", Code.ABI_UNSUPPORTED),
}


@pytest.mark.parametrize(("inside", "code"), HOSTILE.values(), ids=HOSTILE.keys())
async def test_well_signed_hostile_module_is_refused_by_the_gate(world: World, inside: bytes, code: Code) -> None:
    world.b.publish_stub(serial=2, code=b"\0asm\x01\0\0\0" + inside)
    stub = await world.provide()
    with pytest.raises(PeerError) as caught:
        inspect_module(stub.module)
    assert caught.value.code is code


@pytest.mark.parametrize(
    "package",
    [
        {"sourceCode": "not base64!", "encoding": "base64"},
        {"encoding": "base64"},
        {"sourceCode": 5},
        {"sourceCode": base64.b64encode(MODULE + b"x").decode(), "encoding": "base64"},
        {"sourceCode": base64.b64encode(MODULE).decode()},
    ],
)
async def test_broken_source_package_is_refused(world: World, package: dict[str, object]) -> None:
    serve_instead(world, json.dumps(package).encode())
    with pytest.raises(PeerError) as caught:
        await world.provide()
    assert caught.value.code in {Code.DOCUMENT_MALFORMED, Code.DIGEST_MISMATCH}


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_failed_update_lets_the_old_version_go_on(world: World, is_restarted: bool) -> None:
    await world.provide()
    world.b.publish_stub(serial=2, code=MODULE + b"\0\x01\0")
    serve_instead(world, b"garbage")
    if is_restarted:
        world.restart()
    assert (await world.provide()).serial == 1
    assert (await world.provide()).serial == 1
    state = world.state()
    assert state is not None
    assert state.stubs["bNodeStub"].serial == 1
    serve_instead(world, world.b.code)
    assert (await world.provide()).serial == 2


async def test_failed_update_does_not_bring_back_a_revoked_version(world: World) -> None:
    old = await world.provide()
    world.b.publish_stub(serial=2, code=MODULE + b"\0\x01\0", is_named_by_live=False)
    world.b.publish_live(revoked=Revoked(modules=[old.module_sha256]))
    serve_instead(world, b"garbage")
    with pytest.raises(PeerError) as caught:
        await world.provide()
    assert caught.value.code is Code.DIGEST_MISMATCH


def test_verified_stub_cannot_be_made_by_hand(world: World) -> None:
    manifest: Manifest = world.b.manifest
    with pytest.raises(MisuseError):
        VerifiedStub(domain="b.example", module=b"", manifest=manifest)  # type: ignore[call-arg]
