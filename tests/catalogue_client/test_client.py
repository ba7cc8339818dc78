"""The client in front of a simulated domain: first contact, updates, warm start, recovery."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from catalogue_client.core.location import Location
from catalogue_client.core.state import TrustAnchor
from catalogue_client.core.verify import PermissionsPolicy
from catalogue_client.trust_store import TrustStore
from protofly import limits
from protofly.documents import Endpoint, ModuleReference, Permissions, TrustLevel
from protofly.errors import Code, PeerError, SettingsError, TransportError
from tests.support.repository import DAY, MODULE, SECRET, START, PublishedDomain, World, signing_key


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


async def test_first_contact_fetches_four_documents_and_gives_a_verified_stub(world: World) -> None:
    steps: list[str] = []
    trust = await world.client.refresh(world.b.location, world.anchor, on_step=lambda name, _: steps.append(name))
    stub = await world.client.fetch_stub(trust, on_step=lambda name, _: steps.append(name))
    assert steps == ["live_document", "root", "manifest", "module", "verify"]
    assert (stub.domain, stub.name, stub.serial, stub.module) == ("b.example", "bNodeStub", 1, MODULE)
    assert stub.level is TrustLevel.WEB
    assert set(stub.endpoints) == {"mn"}
    assert stub.expires == START + 2 * DAY
    assert len(world.fetcher.requests) == 4


async def test_second_refresh_asks_for_the_live_document_only(world: World) -> None:
    await world.refresh()
    world.fetcher.requests.clear()
    await world.refresh()
    assert world.fetcher.requests == [world.b.location.well_known_url]


async def test_warm_start_needs_no_network_at_all(world: World) -> None:
    stub = await world.provide()
    world.restart()
    world.fetcher.requests.clear()
    assert world.bundle is not None
    trust = world.client.restore(Location.of("b.example"), world.anchor, world.bundle)
    assert trust is not None
    again = await world.fetch_stub(trust)
    assert (again.module_sha256, again.manifest_sha256) == (stub.module_sha256, stub.manifest_sha256)
    assert world.fetcher.requests == []


async def test_warm_start_with_stale_documents_asks_again_unless_nobody_answers(world: World) -> None:
    await world.provide()
    world.clock.now += 1.9 * DAY
    assert world.bundle is not None
    assert world.client.restore(world.b.location, world.anchor, world.bundle) is None
    trust = world.client.restore(world.b.location, world.anchor, world.bundle, is_stale_allowed=True)
    assert trust is not None
    assert not trust.is_fresh(world.clock.now)
    world.clock.now = trust.expires_at
    with pytest.raises(PeerError) as caught:
        world.client.restore(world.b.location, world.anchor, world.bundle, is_stale_allowed=True)
    assert caught.value.code is Code.DOCUMENT_EXPIRED


async def test_cache_alone_is_no_trust_anchor(world: World, tmp_path: Path) -> None:
    await world.provide()
    stranger = World(tmp_path / "other node")
    assert world.bundle is not None
    assert stranger.client.restore(world.b.location, world.anchor, world.bundle) is None
    stranger.close()


async def test_cached_times_that_no_fetch_can_have_produced_are_not_believed(world: World) -> None:
    await world.provide()
    assert world.bundle is not None
    far = msgspec.structs.replace(world.bundle, fresh_until=START + 365 * DAY)
    assert world.client.restore(world.b.location, world.anchor, far) is None
    future = msgspec.structs.replace(world.bundle, fetched_at=START + 1000, fresh_until=START + 2000)
    assert world.client.restore(world.b.location, world.anchor, future) is None


async def test_pin_in_the_history_raises_the_level_and_a_foreign_pin_is_refused(world: World) -> None:
    await world.refresh()
    world.anchor = TrustAnchor.pinned(world.b.fingerprint)
    assert (await world.refresh()).level is TrustLevel.PINNED
    world.anchor = TrustAnchor.web()
    assert (await world.refresh()).level is TrustLevel.PINNED
    world.anchor = TrustAnchor.pinned("A" * 43)
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.FINGERPRINT_MISMATCH
    state = world.state()
    assert state is not None
    assert state.level is TrustLevel.PINNED


async def test_old_pin_is_followed_through_the_chain_to_the_current_root(world: World) -> None:
    world.anchor = TrustAnchor.pinned(world.b.fingerprint)
    world.b.rotate_root(root_keys=("K2",))
    world.b.rotate_root()
    world.b.publish_live()
    trust = await world.refresh()
    assert trust.level is TrustLevel.PINNED
    assert trust.root.version == 3


async def test_validated_dns_fingerprint_anchors_and_an_unvalidated_one_only_warns(tmp_path: Path) -> None:
    world = World(tmp_path)
    hint = Location(domain="b.example", well_known_url=world.b.location.well_known_url, pin_hint="wrong")
    trust = await world.client.refresh(hint, world.anchor)
    assert trust.level is TrustLevel.WEB
    assert "DNS is ignored" in trust.warnings[0]
    world.close()

    world = World(tmp_path / "validated")
    bound = Location(
        domain="b.example",
        well_known_url=world.b.location.well_known_url,
        pin_hint=world.b.fingerprint,
        pin_is_validated=True,
    )
    assert (await world.client.refresh(bound, world.anchor)).level is TrustLevel.DNSSEC
    world.close()


async def test_retrust_forgets_the_domain_and_believes_only_the_named_keys(world: World) -> None:
    await world.refresh()
    rebuilt = PublishedDomain("b.example")
    rebuilt.keys["K9"] = signing_key("K9")
    rebuilt.publish_root(root_keys=("K9",))
    rebuilt.publish_stub(serial=1)
    world.fetcher.published = (rebuilt,)
    with pytest.raises(PeerError):
        await world.refresh()
    await world.store.retrust("b.example", "B" * 43)
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.FINGERPRINT_MISMATCH
    await world.store.retrust("b.example", rebuilt.fingerprint)
    trust = await world.refresh()
    assert trust.level is TrustLevel.PINNED


async def test_retrust_stops_what_was_believed_under_the_old_root(world: World) -> None:
    trust = await world.refresh()
    await world.store.retrust("b.example", "B" * 43)
    with pytest.raises(PeerError) as caught:
        await world.fetch_stub(trust)
    assert caught.value.code is Code.BROKEN_TRUST
    state = world.state()
    assert state is not None
    assert state.stubs == {}


@pytest.mark.parametrize("said", ["retrust", "forget"])
async def test_what_the_operator_says_while_documents_are_on_their_way_is_not_overwritten(
    world: World, said: str
) -> None:
    await world.refresh()
    world.b.publish_root(version=2)
    world.b.publish_stub(serial=2)

    async def command() -> None:
        with TrustStore(world.folder / "trust.sqlite", secret=SECRET) as beside:
            await (beside.forget("b.example") if said == "forget" else beside.retrust("b.example", "A" * 43))

    def say(url: str) -> None:
        if "/root/" in url:  # another process, with a loop of its own
            operator = threading.Thread(target=trio.run, args=(command,))
            operator.start()
            operator.join()

    world.fetcher.on_request = say
    with pytest.raises(PeerError) as caught:
        await world.refresh()
    assert caught.value.code is Code.BROKEN_TRUST
    state = world.state()
    assert (None if state is None else state.fingerprints) == (None if said == "forget" else ["A" * 43])


async def test_trust_that_the_operator_takes_back_does_not_count_any_more(world: World) -> None:
    trust = await world.refresh()
    assert world.client.is_remembered(trust)
    await world.store.retrust("b.example", "A" * 43)
    assert not world.client.is_remembered(trust)
    assert world.client.is_forgotten("b.example")
    await world.store.forget("b.example")
    assert world.client.is_remembered(trust)
    await world.store.forget("b.example")
    assert not world.client.is_remembered(trust)


async def test_module_is_taken_from_the_next_place_when_the_first_lies(world: World) -> None:
    places = ["https://mirror.example/stub.wasm", "https://catalogue.b.example/stub.wasm"]
    world.b.publish_stub(serial=2, urls=places)
    world.b.files[places[0]] = MODULE[:-1] + b"x"
    assert (await world.provide()).module == MODULE
    assert world.fetcher.requests[-2:] == places


async def test_module_inside_an_original_source_package_is_unpacked(world: World) -> None:
    package = {
        "sourceCodeClassname": "BNodeStub",
        "encoding": "base64",
        "sourceCode": base64.b64encode(MODULE).decode(),
    }
    world.b.files[world.b.manifest.module.urls[0]] = json.dumps(package).encode()
    assert (await world.provide()).module == MODULE


async def test_planted_module_in_the_cache_is_ignored_and_fetched_again(world: World) -> None:
    stub = await world.provide()
    world.modules[stub.module_sha256] = b"\0asm\x01\0\0\0 planted"
    assert (await world.provide()).module == MODULE


async def test_planted_manifest_in_the_cache_is_ignored_and_fetched_again(world: World) -> None:
    stub = await world.provide()
    assert world.bundle is not None
    world.bundle = msgspec.structs.replace(world.bundle, manifests={stub.manifest_sha256: b"{}"})
    assert (await world.provide()).serial == 1


async def test_held_update_lets_the_old_version_go_on_until_the_operator_approves(world: World) -> None:
    await world.provide()
    wants_more = Permissions(connect=["mn", "other"], clock="monotonic", random=True, auth=True)
    world.b.publish_stub(serial=2, code=MODULE + b"\0\x01\0", permissions=wants_more)
    assert (await world.provide()).serial == 1
    state = world.state()
    assert state is not None
    assert state.held["bNodeStub"].excess == ["connect other"]
    await world.store.approve("b.example", "bNodeStub")
    assert (await world.provide()).serial == 2
    state = world.state()
    assert state is not None
    assert state.held == {}


async def test_held_update_without_a_cached_predecessor_is_refused(world: World) -> None:
    await world.provide()
    world.bundle = None
    world.b.publish_stub(serial=2, permissions=Permissions(connect=["mn", "other"]))
    with pytest.raises(PeerError) as caught:
        await world.provide()
    assert caught.value.code is Code.PERMISSIONS_HELD


async def test_growth_inside_a_pre_approved_policy_is_accepted(world: World) -> None:
    await world.provide()
    world.b.publish_stub(serial=2, permissions=Permissions(connect=["mn", "other"]))
    stub = await world.provide(PermissionsPolicy(endpoints=frozenset({"mn", "other"}), is_growth_approved=True))
    assert stub.serial == 2


@pytest.mark.parametrize(
    ("max_age_seconds", "life_seconds"),
    [(None, 86_400.0), (0.0, 300.0), (3600.0, 3600.0), (10.0**9, 172_800.0)],
)
async def test_life_of_a_fetched_document_is_clamped(
    world: World, max_age_seconds: float | None, life_seconds: float
) -> None:
    world.fetcher.max_age_seconds = max_age_seconds
    trust = await world.refresh()
    assert trust.fresh_until - trust.fetched_at == life_seconds
    assert trust.refresh_at - trust.fetched_at == pytest.approx(0.8 * life_seconds)


async def test_line_failure_leaves_everything_as_it_was(world: World) -> None:
    await world.refresh()
    before = world.state()
    world.fetcher.failures[world.b.location.well_known_url] = TransportError(Code.CONNECT_FAILED)
    with pytest.raises(TransportError):
        await world.refresh()
    assert world.state() == before


async def test_live_document_of_a_foreign_content_type_is_refused(world: World) -> None:
    url = world.b.location.manifest_url("bNodeStub").replace("/.well-known/rethink-mn", "/elsewhere")
    world.b.files[url] = world.b.files[world.b.location.well_known_url]
    elsewhere = Location(domain="b.example", well_known_url=url)
    with pytest.raises(PeerError) as caught:
        await world.client.refresh(elsewhere, world.anchor)
    assert caught.value.code is Code.BAD_REPLY


async def test_module_larger_than_this_host_takes_is_refused_before_it_is_fetched(world: World) -> None:
    reference = ModuleReference(sha256="0" * 64, size=limits.MODULE_BYTES + 1, urls=["https://b.example/big.wasm"])
    world.b.publish_stub(serial=2, module=reference)
    with pytest.raises(PeerError) as caught:
        await world.provide()
    assert caught.value.code is Code.MODULE_LIMITS
    assert "https://b.example/big.wasm" not in world.fetcher.requests


async def test_cancelled_refresh_leaves_no_lock_and_no_mark(world: World) -> None:
    with trio.CancelScope() as scope:
        world.fetcher.on_request = lambda _url: scope.cancel()
        world.fetcher.is_patient = True
        await world.refresh()
    assert scope.cancelled_caught
    assert world.state() is None
    world.fetcher.on_request = lambda _url: None
    world.fetcher.is_patient = False
    assert (await world.provide()).serial == 1


async def test_refreshes_of_one_domain_at_the_same_time_agree(world: World) -> None:
    world.fetcher.is_patient = True
    found: list[int] = []

    async def refresh() -> None:
        found.append((await world.refresh()).live.serial)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(refresh)
    assert found == [1] * 5
    assert world.fetcher.requests.count(world.b.location.root_url(1)) == 1


def test_pinned_anchor_without_a_fingerprint_is_refused() -> None:
    with pytest.raises(SettingsError, match="fingerprint"):
        TrustAnchor(TrustLevel.PINNED)


async def test_a_stub_gets_the_endpoints_that_it_asks_for_and_its_domain_declares(world: World) -> None:
    world.b.publish_stub(permissions=Permissions(connect=["mn", "later"]))
    url = "wss://mn.b.example/link"
    world.b.publish_live(endpoints=[Endpoint(name=name, url=url) for name in ("other", "mn")])
    assert list((await world.provide()).endpoints) == ["mn"]
