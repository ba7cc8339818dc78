"""What the operator grants to the stub of a domain: needs beyond it are refused, other wishes withheld."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from federation.core.stub_grant import StubGrant
from federation.core.stub_status import StepTimes
from federation.stubs.chosen_stubs import StubChoice
from protofly.documents import Needs, TrustLevel
from protofly.errors import Code, PeerError, StubFaultError
from protofly.limits import MEMORY_BYTES
from protofly.stub import VerifiedStub
from sandbox.core.budget import PAGE_BYTES, Budget
from sandbox.core.exchange import ChannelKind
from tests.federation.test_stub_provider import Rig
from tests.support.repository import PublishedDomain, World

NODE = Budget(memory_bytes=8 << 20)


def verified_stub(**changes: Any) -> VerifiedStub:
    """The stub of b.example, with these members of its manifest."""
    b = PublishedDomain()
    b.publish_stub(**changes)
    manifest = b.manifest
    return VerifiedStub._create(
        domain=b.domain,
        name=manifest.name,
        serial=manifest.serial,
        version=manifest.version,
        module=b.code,
        module_sha256=manifest.module.sha256,
        manifest=manifest,
        manifest_sha256=manifest.module.sha256,
        manifest_envelope=b.manifest_raw,
        level=TrustLevel.WEB,
        expires=2e9,
        endpoints={one.name: one for one in b.live.endpoints},
    )


def budget(grant: StubGrant, memory_bytes: int = 0, call_ms: int = 0, node: Budget = NODE) -> Budget:
    needs = Needs(memory_bytes=memory_bytes, call_ms=call_ms)
    return grant.budget(verified_stub(needs=needs).manifest, node)


def test_what_a_stub_needs_within_its_grant_is_its_budget() -> None:
    made = budget(StubGrant(memory_bytes=4 << 20, call_ms=30), memory_bytes=1 << 20, call_ms=10)
    assert (made.memory_bytes, made.cpu_milliseconds) == (1 << 20, 10)
    made = budget(StubGrant(memory_bytes=4 << 20, call_ms=30))
    assert (made.memory_bytes, made.cpu_milliseconds) == (4 << 20, 30)
    made = budget(StubGrant())
    assert (made.memory_bytes, made.cpu_milliseconds) == (8 << 20, NODE.cpu_milliseconds)
    assert budget(StubGrant(), memory_bytes=8 << 20, call_ms=NODE.cpu_milliseconds) == made


@pytest.mark.parametrize(
    ("grant", "memory_bytes", "call_ms", "remedy"),
    [
        (StubGrant(), (8 << 20) + 1, 0, "raise `sandbox.memory_bytes`"),
        (StubGrant(memory_bytes=PAGE_BYTES), PAGE_BYTES + 1, 0, "raise `grant.memory_bytes`"),
        (StubGrant(), MEMORY_BYTES + 1, 0, "no node gives that"),
        (StubGrant(call_ms=5), 0, 6, "raise `grant.call_ms`"),
        (StubGrant(call_ms=5), 0, NODE.cpu_milliseconds, "raise `grant.call_ms`"),
        (StubGrant(), 0, NODE.cpu_milliseconds + 1, "no node gives that"),
    ],
)
def test_who_needs_more_is_refused_and_the_detail_says_what_to_do(
    grant: StubGrant, memory_bytes: int, call_ms: int, remedy: str
) -> None:
    with pytest.raises(PeerError, match=remedy) as caught:
        budget(grant, memory_bytes, call_ms)
    assert (caught.value.code, caught.value.domain) == (Code.STUB_NEEDS_MORE, "b.example")


def test_what_is_not_granted_is_withheld_and_named() -> None:
    stub = verified_stub()
    assert stub.manifest.permissions.auth
    everything = StubGrant().permissions(stub)
    assert (everything.endpoints, everything.auth, everything.http) == (frozenset({"mn"}), True, True)
    assert StubGrant().withheld(stub) == []
    modest = verified_stub(permissions=msgspec.structs.replace(stub.manifest.permissions, auth=False))
    assert not StubGrant().permissions(modest).auth
    assert StubGrant(auth=False).withheld(modest) == []
    less = StubGrant(endpoints=frozenset({"other"}), auth=False, http=False)
    given = less.permissions(stub)
    assert (given.endpoints, given.auth, given.http) == (frozenset(), False, False)
    assert less.withheld(stub) == ["endpoint mn", "auth", "http"]
    with pytest.raises(StubFaultError, check=lambda fault: fault.code is Code.STUB_DENIED):
        given.check_open("mn", ChannelKind.WEBSOCKET)
    with pytest.raises(StubFaultError, check=lambda fault: fault.code is Code.STUB_DENIED):
        given.check_auth()


async def test_stub_that_needs_more_is_refused_before_it_is_compiled_and_others_are_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.b.publish_stub(serial=2, needs=Needs(memory_bytes=2 << 20))
    rig = Rig(tmp_path, world)
    rig.choices = [StubChoice(domain="b.example", grant=StubGrant(memory_bytes=1 << 20))]
    rig.start()
    with pytest.raises(PeerError, check=lambda error: error.code is Code.STUB_NEEDS_MORE):
        await rig.provider.package("b.example", StepTimes())
    assert rig.sandbox.compiled == 0
    rig.choices = [StubChoice(domain="c.example", grant=StubGrant(memory_bytes=1 << 20))]
    rig.start()
    package = await rig.provider.package("b.example", StepTimes())
    assert (package.terms.budget.memory_bytes, package.terms.grant) == (2 << 20, StubGrant())
    world.close()
