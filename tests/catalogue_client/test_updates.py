"""Which version of a stub may run: after a failure here, by the word of the operator, and never against revocation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from catalogue_client.core.state import FailedModule, StubMark, TrustState
from catalogue_client.core.updates import (
    FAILED_MODULES_KEPT,
    UpdateMode,
    UpdateRule,
    failed,
    following_mark,
    held_update,
    predecessor,
    proved,
)
from catalogue_client.core.verify import PermissionsPolicy, held_permissions
from protofly.documents import Permissions, Revoked, TrustLevel
from protofly.errors import Code, HostError, PeerError
from protofly.stub import VerifiedStub
from tests.support.guests import custom_section
from tests.support.repository import MODULE, PublishedDomain, World

WHY = FailedModule(code="stub-trapped", detail="unreachable")


def code_of_release(number: int) -> bytes:
    return MODULE + custom_section("release", str(number).encode())


class Node:
    """A node in front of a domain that publishes one version after the other."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.rule = UpdateRule()
        self.world.client._updates = lambda _domain: self.rule

    async def cached(self, sha256: str) -> bytes | None:
        return self.world.modules.get(sha256)

    def release(self, serial: int, *, code: int = 0) -> None:
        self.world.b.publish_stub(serial=serial, code=code_of_release(code or serial))

    async def runs(self) -> VerifiedStub:
        return await self.world.provide()

    async def fails(self, stub: VerifiedStub) -> bool:
        trust = await self.world.refresh()
        return await self.world.client.versions.fail(trust, stub.name, stub.manifest_sha256, WHY, cached=self.cached)

    @property
    def state(self) -> TrustState:
        found = self.world.state()
        assert found is not None
        return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.world.close()


async def test_after_a_failure_the_version_before_goes_on_over_a_restart_until_there_is_a_newer_one(node: Node) -> None:
    node.release(1)
    await node.runs()
    node.release(2)
    assert await node.fails(await node.runs())
    assert (await node.runs()).serial == 1
    node.world.restart()
    assert (await node.runs()).serial == 1
    node.release(3)
    assert (await node.runs()).serial == 3


async def test_the_same_module_under_a_higher_serial_is_refused_as_well(node: Node) -> None:
    node.release(1)
    await node.runs()
    node.release(2)
    assert await node.fails(await node.runs())
    node.release(3, code=2)
    assert (await node.runs()).serial == 1


async def test_the_version_before_is_the_last_that_did_not_fail(node: Node) -> None:
    for serial in (1, 2, 3):
        node.release(serial)
        stub = await node.runs()
        if serial > 1:
            assert await node.fails(stub)
    assert (await node.runs()).serial == 1
    node.release(4)
    assert await node.fails(await node.runs())
    assert (await node.runs()).serial == 1


async def test_without_a_version_before_nothing_is_marked(node: Node) -> None:
    node.release(1)
    first = await node.runs()
    assert not await node.fails(first)
    assert node.state.failed_modules == {}
    node.release(2)
    second = await node.runs()
    del node.world.modules[first.module_sha256]
    assert not await node.fails(second)
    assert (await node.runs()).serial == 2


async def test_a_failure_of_a_version_that_is_replaced_already_marks_nothing(node: Node) -> None:
    node.release(1)
    await node.runs()
    node.release(2)
    second = await node.runs()
    node.release(3)
    await node.runs()
    assert not await node.fails(second)
    assert (await node.runs()).serial == 3


async def test_a_version_that_its_domain_revoked_does_not_go_on_in_place_of_one_that_failed(node: Node) -> None:
    node.release(1)
    await node.runs()
    node.release(2)
    second = await node.runs()
    assert await node.fails(second)
    node.world.b.publish_live(revoked=Revoked(min_serial={second.name: 2}))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.STUB_ROLLED_BACK):
        await node.runs()


async def test_a_version_on_trial_does_not_open_the_way_back_by_itself(node: Node) -> None:
    """Nobody but a failure that was seen here brings an older version back: not who keeps the newer one from us."""
    node.release(1)
    await node.runs()
    node.release(2)
    second = await node.runs()
    assert node.world.client.versions.is_on_trial(second)
    node.world.b.publish_live(revoked=Revoked(modules=[second.module_sha256]))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.REVOKED):
        await node.runs()


async def test_a_version_is_on_trial_until_it_is_proved(node: Node) -> None:
    node.release(1)
    first = await node.runs()
    assert not node.world.client.versions.is_on_trial(first)
    node.release(2)
    second = await node.runs()
    assert node.world.client.versions.is_on_trial(second)
    assert not node.world.client.versions.is_on_trial(first)
    trust = await node.world.refresh()
    assert (await node.world.client.fetch_predecessor(trust, second.name, node.cached)).serial == 1
    await node.world.client.versions.prove(first)
    assert node.world.client.versions.is_on_trial(second)
    await node.world.client.versions.prove(second)
    assert not node.world.client.versions.is_on_trial(second)
    assert await node.fails(second), "the operator may still go back"
    assert (await node.runs()).serial == 1


async def test_what_the_operator_approves_is_tried_again(node: Node) -> None:
    node.release(1)
    await node.runs()
    node.release(2)
    second = await node.runs()
    await node.fails(second)
    await node.world.store.approve("b.example", second.name)
    assert (await node.runs()).serial == 2
    with pytest.raises(HostError, check=lambda error: error.code is Code.NOT_REGISTERED):
        await node.world.store.approve("b.example", second.name)


async def test_only_so_many_failed_modules_are_kept(node: Node) -> None:
    node.release(1)
    await node.runs()
    for serial in range(2, FAILED_MODULES_KEPT + 5):
        node.release(serial)
        assert await node.fails(await node.runs())
        assert (await node.runs()).serial == 1
    assert len(node.state.failed_modules) == FAILED_MODULES_KEPT


# The word of the operator.


async def test_held_updates_wait_and_the_first_version_runs(node: Node) -> None:
    node.rule = UpdateRule("hold")
    node.release(1)
    first = await node.runs()
    node.release(2)
    assert (await node.runs()).serial == 1
    assert node.state.held[first.name].excess == ["to be version 1.2.0"]
    await node.world.store.approve("b.example", first.name)
    assert (await node.runs()).serial == 2
    node.release(3)
    assert (await node.runs()).serial == 2
    node.rule = UpdateRule("hold", frozenset({first.module_sha256, node.world.b.manifest.module.sha256}))
    assert (await node.runs()).serial == 3


async def test_pinned_modules_are_the_only_ones_that_run(node: Node) -> None:
    node.release(1)
    node.rule = UpdateRule("pinned", frozenset({"0" * 64}))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.DIGEST_NOT_APPROVED):
        await node.runs()
    node.rule = UpdateRule("pinned", frozenset({node.world.b.manifest.module.sha256}))
    assert (await node.runs()).serial == 1
    node.release(2)
    assert (await node.runs()).serial == 1
    node.rule = UpdateRule("pinned", frozenset({node.world.b.manifest.module.sha256}))
    assert (await node.runs()).serial == 2
    node.rule = UpdateRule("pinned", frozenset({"0" * 64}))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.DIGEST_NOT_APPROVED):
        await node.runs()


SOME = StubMark(
    serial=2, manifest_sha256="m2", permissions=Permissions(), module_sha256="c2", previous_sha256="m1", is_proved=False
)


def state_with(mark: StubMark) -> TrustState:
    return TrustState(domain="b.example", level=TrustLevel.WEB, stubs={"s": mark})


@pytest.mark.parametrize("name", ["previous_sha256", "module_sha256"])
def test_version_without_a_predecessor_or_a_known_module_is_not_marked_as_failed(name: str) -> None:
    state = state_with(msgspec.structs.replace(SOME, **{name: ""}))
    assert failed(state, "s", "m2", WHY) is state


def test_a_module_that_fails_again_is_the_newest_and_pushes_no_other_out() -> None:
    others = {f"d{number}": WHY for number in range(FAILED_MODULES_KEPT - 1)}
    again = msgspec.structs.replace(WHY, detail="again")
    state = msgspec.structs.replace(state_with(SOME), failed_modules={"d0": WHY, "c2": WHY, **others})
    assert list(failed(state, "s", "m2", again).failed_modules.items()) == [*others.items(), ("c2", again)]
    state = msgspec.structs.replace(state, failed_modules={**others, "e": WHY})
    assert list(failed(state, "s", "m2", WHY).failed_modules) == [*list(others)[1:], "e", "c2"]


@pytest.mark.parametrize(
    ("mode", "accepted", "offered", "is_held"),
    [
        ("hold", 2, 3, True),
        ("hold", 2, 2, False),
        ("hold", 0, 3, False),
        ("hold", None, 3, False),
        ("auto", 2, 3, False),
        ("pinned", 2, 3, False),
    ],
)
def test_another_version_than_the_accepted_one_waits_where_updates_are_held(
    mode: UpdateMode, accepted: int | None, offered: int, *, is_held: bool
) -> None:
    mark = None if accepted is None else msgspec.structs.replace(SOME, serial=accepted)
    manifest = msgspec.structs.replace(PublishedDomain("b.example").manifest, serial=offered)
    assert bool(held_update(mark, manifest, UpdateRule(mode))) is is_held
    approved = UpdateRule(mode, frozenset({manifest.module.sha256}))
    assert held_update(mark, manifest, approved) == []


def test_a_new_name_is_compared_with_accepted_stubs_only() -> None:
    wanted = Permissions(auth=True, storage_bytes=0)
    manifest = msgspec.structs.replace(PublishedDomain("b.example").manifest, name="new", permissions=wanted)
    for serial, held in ((1, ["auth"]), (0, [])):
        state = state_with(msgspec.structs.replace(SOME, serial=serial))
        assert held_permissions(manifest, "x", state, PermissionsPolicy()) == held


@pytest.mark.parametrize(
    ("granted", "held"),
    [
        ([Permissions(clock="wall"), Permissions(random=True)], ["random"]),
        ([Permissions(), Permissions(random=True)], ["clock wall"]),
        ([Permissions(), Permissions(clock="wall", random=True)], []),
        ([Permissions(auth=True)], ["clock wall", "random"]),
    ],
)
def test_a_new_name_gets_what_one_accepted_stub_has_and_not_what_several_have_together(
    granted: list[Permissions], held: list[str]
) -> None:
    manifest = PublishedDomain("b.example").manifest
    wanted = Permissions(connect=["mn"], clock="wall", random=True)
    manifest = msgspec.structs.replace(manifest, name="new", permissions=wanted)
    stubs = {f"s{place}": msgspec.structs.replace(SOME, permissions=one) for place, one in enumerate(granted)}
    state = TrustState(domain="b.example", level=TrustLevel.WEB, stubs=stubs)
    assert held_permissions(manifest, "x", state, PermissionsPolicy(endpoints=frozenset({"mn"}))) == held


def test_what_was_accepted_under_other_keys_is_no_predecessor_whether_it_failed_or_not() -> None:
    manifest = PublishedDomain("b.example").manifest
    before = msgspec.structs.replace(SOME, serial=0, manifest_sha256="", approved=["m9"])  # as `trust` leaves it
    for failed_modules in ({}, {SOME.module_sha256: WHY}):
        state = msgspec.structs.replace(state_with(before), failed_modules=failed_modules)
        state = msgspec.structs.replace(state, stubs={manifest.name: before})
        mark = following_mark(state, manifest, "m5")
        assert (mark.manifest_sha256, mark.previous_sha256, mark.is_proved, mark.approved) == ("m5", "", True, ["m9"])


@pytest.mark.parametrize(
    ("changes", "failed_modules", "expected"),
    [
        ({}, {}, "m1"),
        ({"is_proved": True}, {}, ""),
        ({}, {"c2": WHY}, ""),
        ({}, {"c1": WHY}, "m1"),
    ],
    ids=["on trial", "proved", "failed", "another failed"],
)
def test_only_a_version_on_trial_has_its_predecessor_beside_it(
    changes: dict[str, bool], failed_modules: dict[str, FailedModule], expected: str
) -> None:
    state = state_with(msgspec.structs.replace(SOME, **changes))
    state = msgspec.structs.replace(state, failed_modules=failed_modules)
    assert predecessor(state, "s") == expected
    assert predecessor(state, "unknown") == ""


async def test_the_cache_gets_the_newest_four_manifests_of_a_domain(node: Node) -> None:
    trust = await node.world.refresh()
    known = tuple((f"m{number}", b"") for number in range(3))
    assert list(replace(trust, manifests=known).bundle().manifests) == ["m0", "m1", "m2"]
    more = (*known, ("m3", b""), ("m4", b""))
    assert list(replace(trust, manifests=more).bundle().manifests) == ["m1", "m2", "m3", "m4"]


def test_failures_and_proofs_count_for_the_accepted_version_only() -> None:
    state = state_with(SOME)
    for name, manifest in (("s", "m1"), ("other", "m2"), ("other", "")):
        assert failed(state, name, manifest, WHY) is state
        assert proved(state, name, manifest) is state
    assert failed(state, "s", "m2", WHY).failed_modules == {"c2": WHY}
    known = proved(state, "s", "m2")
    assert known.stubs["s"].is_proved
    assert proved(known, "s", "m2") is known
