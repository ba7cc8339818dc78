"""From a domain's name to code that may run: cold, warm, stale, tampered, refused, and asked by many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import cast

import msgspec
import pytest
import trio

from catalogue_client.core.state import TrustAnchor
from catalogue_client.trust_store import TrustStore
from federation.core.stub_status import StepTimes, StubStatus
from federation.discovery.attempt_log import AttemptLog
from federation.discovery.domain_documents import DomainDocuments
from federation.discovery.resolver import Resolver
from federation.stubs.chosen_stubs import ChosenStubs, StubChoice
from federation.stubs.stub_provider import StubProvider
from federation.stubs.stub_releases import STUB_TRIES
from msg_node.kernel.data_schemas import check_configuration
from protofly.documents import StubReference, document_sha256
from protofly.errors import Code, HostError, PeerError, TransportError
from sandbox.core.module_check import SCRIPT_SECTION
from sandbox.core.scripts import code_sha256, with_script
from sandbox.host import Sandbox
from stubs_cache.cache import StubsCache
from stubs_cache.core.eviction import CACHE_BYTES, Eviction
from stubs_cache.stub_pins import StubPins
from tests.support.guests import custom_section, echo, stub_section
from tests.support.names import ScriptedNames
from tests.support.repository import DAY, SECRET, PublishedDomain, World

PATIENCE_SECONDS = 30.0


class Compiler:
    """Stands in for the sandbox: the machine code is the module backwards."""

    fingerprint = "engine-1"

    def __init__(self) -> None:
        self.compiled = 0
        self.failure: HostError | None = None

    async def compile(self, module: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        self.compiled += 1
        if self.failure is not None:
            raise self.failure
        return module[::-1]


class Rig:
    """A provider over a world; `restart` makes all of it anew over the same folders."""

    def __init__(self, folder: Path, world: World, anchors: dict[str, TrustAnchor] | None = None) -> None:
        self.folder, self.world, self.anchors = folder, world, anchors or {}
        self.sandbox = Compiler()
        self.cache_bytes = CACHE_BYTES
        self.choices: list[StubChoice] = []
        self.start()

    def start(self) -> None:
        self.cache = StubsCache(
            self.folder / "stubs", secret=SECRET, max_bytes=self.cache_bytes, clock=self.world.clock
        )
        self.names = ScriptedNames()
        self.documents = DomainDocuments(
            resolver=Resolver(self.names, own_domains=["a.example"], log=AttemptLog(self.world.clock)),
            client=self.world.client,
            cache=self.cache,
            anchor_of=lambda domain: self.anchors.get(domain, TrustAnchor.web()),
            clock=self.world.clock,
        )
        self.provider = StubProvider(
            documents=self.documents,
            client=self.world.client,
            cache=self.cache,
            sandbox=cast("Sandbox", self.sandbox),
            chosen=ChosenStubs(self.choices, StubPins(self.folder / "pins", secret=SECRET), check=check_configuration),
        )

    def restart(self) -> None:
        self.world.restart()
        self.start()

    @property
    def requests(self) -> list[str]:
        return self.world.fetcher.requests

    def nobody_answers(self) -> None:
        """The line is dead for every URL."""
        for published in self.world.published:
            for url in published.files:
                self.world.fetcher.failures[url] = TransportError(Code.CONNECT_FAILED, "dead", phase="connect")

    def everybody_answers(self) -> None:
        self.world.fetcher.failures.clear()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    world = World(tmp_path)
    yield Rig(tmp_path, world)
    world.close()


def steps(times: StepTimes) -> list[str]:
    return [name for name, _ in times.steps]


async def test_first_contact_goes_all_the_way_and_reports_each_step(rig: Rig) -> None:
    times = StepTimes()
    package = await rig.provider.package("b.example", times)
    assert package.stub.domain == "b.example"
    assert package.code == rig.world.b.code[::-1]
    assert steps(times) == ["resolve", "live_document", "root", "manifest", "module", "verify", "compile"]
    assert all(milliseconds >= 0 for _, milliseconds in times.steps)
    assert not times.is_warm
    assert len(rig.requests) == 4


async def test_the_second_time_nothing_is_asked_and_nothing_compiled(rig: Rig) -> None:
    await rig.provider.package("b.example", StepTimes())
    asked = len(rig.requests)
    times = StepTimes()
    await rig.provider.package("b.example", times)
    assert (len(rig.requests), rig.sandbox.compiled, times.is_warm) == (asked, 1, True)


async def test_after_a_restart_the_cache_is_enough_and_is_verified_again(rig: Rig) -> None:
    first = await rig.provider.package("b.example", StepTimes())
    rig.restart()
    rig.nobody_answers()
    times = StepTimes()
    package = await rig.provider.package("b.example", times)
    assert (package.code, package.stub.module_sha256) == (first.code, first.stub.module_sha256)
    assert (times.is_warm, rig.sandbox.compiled, rig.names.asked) == (True, 1, [])
    assert "cached documents" in steps(times)
    assert "cached code" in steps(times)


async def test_who_needs_the_same_code_at_once_waits_for_one_compilation(rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(rig.provider.package, "b.example", StepTimes())
    assert rig.sandbox.compiled == 1


async def test_another_engine_compiles_anew(rig: Rig) -> None:
    await rig.provider.package("b.example", StepTimes())
    rig.sandbox.fingerprint = "engine-2"
    await rig.provider.package("b.example", StepTimes())
    assert rig.sandbox.compiled == 2


async def test_many_who_ask_at_once_are_one_refresh(rig: Rig) -> None:
    rig.world.fetcher.is_patient = True
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(rig.provider.package, "b.example", StepTimes())
    live = [url for url in rig.requests if url == rig.world.b.location.well_known_url]
    assert len(live) == 1


async def test_a_cancelled_asker_leaves_the_next_one_a_free_way(rig: Rig) -> None:
    rig.world.fetcher.is_patient = True
    with trio.CancelScope() as scope:
        rig.world.fetcher.on_request = lambda _url: scope.cancel()
        await rig.provider.package("b.example", StepTimes())
    assert scope.cancelled_caught
    rig.world.fetcher.on_request = lambda _url: None
    assert (await rig.provider.package("b.example", StepTimes())).stub.domain == "b.example"


@pytest.mark.parametrize("what", ["MODULE", "DOCUMENTS", "COMPILED"])
async def test_what_was_changed_in_the_cache_is_fetched_or_made_again(rig: Rig, what: str) -> None:
    await rig.provider.package("b.example", StepTimes())
    changed = 0
    for path in (rig.folder / "stubs").rglob("*"):
        if path.is_file() and what.lower()[:4] in str(path.relative_to(rig.folder)).lower():
            path.write_bytes(path.read_bytes()[:-1] + b"!")
            changed += 1
    assert changed
    rig.restart()
    package = await rig.provider.package("b.example", StepTimes())
    assert package.code == rig.world.b.code[::-1]
    assert rig.cache.statistics().tampered >= 1


async def test_documents_that_are_due_serve_on_while_nobody_answers(rig: Rig) -> None:
    await rig.provider.package("b.example", StepTimes())
    rig.world.clock.now += 1.5 * DAY
    rig.nobody_answers()
    assert (await rig.provider.package("b.example", StepTimes())).stub.serial == 1


async def test_documents_that_have_expired_do_not(rig: Rig) -> None:
    await rig.provider.package("b.example", StepTimes())
    rig.world.clock.now += 3 * DAY
    rig.nobody_answers()
    with pytest.raises(TransportError) as caught:
        await rig.provider.package("b.example", StepTimes())
    assert caught.value.code in (Code.CONNECT_FAILED, Code.DISCOVERY_BACKOFF)


async def test_a_refused_document_is_no_accident_and_stale_ones_do_not_hide_it(rig: Rig) -> None:
    await rig.provider.package("b.example", StepTimes())
    rig.world.b.publish_live(serial=0)
    rig.world.clock.now += 1.5 * DAY
    with pytest.raises(PeerError) as caught:
        await rig.documents.trust_of("b.example", is_refresh=True)
    assert caught.value.code in (Code.ROLLBACK, Code.DOCUMENT_MALFORMED)


async def test_a_newer_stub_is_found_by_a_refresh(rig: Rig) -> None:
    await rig.provider.package("b.example", StepTimes())
    rig.world.clock.now += 3_600
    rig.world.b.now = rig.world.clock.now
    rig.world.b.publish_stub(serial=2, code=rig.world.b.code + b"\0\x05\x04more")
    await rig.documents.trust_of("b.example", is_refresh=True)
    package = await rig.provider.package("b.example", StepTimes())
    assert (package.stub.serial, rig.sandbox.compiled) == (2, 2)


async def test_what_cannot_be_compiled_is_refused_with_the_reason(rig: Rig) -> None:
    rig.sandbox.failure = PeerError(Code.MODULE_IMPORTS, "it wants to import", domain="b.example")
    with pytest.raises(PeerError) as caught:
        await rig.provider.package("b.example", StepTimes())
    assert caught.value.code is Code.MODULE_IMPORTS
    rig.sandbox.failure = None
    assert (await rig.provider.package("b.example", StepTimes())).stub.domain == "b.example"


async def test_a_module_that_is_not_the_promised_one_is_refused(rig: Rig) -> None:
    [url] = rig.world.b.manifest.module.urls
    rig.world.b.files[url] = rig.world.b.code[:-1] + b"!"
    with pytest.raises(PeerError) as caught:
        await rig.provider.package("b.example", StepTimes())
    assert caught.value.code is Code.DIGEST_MISMATCH


async def test_a_wrong_pin_refuses_the_domain(tmp_path: Path) -> None:
    world = World(tmp_path)
    rig = Rig(tmp_path, world, {"b.example": TrustAnchor.pinned("A" * 43)})
    with pytest.raises(PeerError) as caught:
        await rig.provider.package("b.example", StepTimes())
    assert caught.value.code is Code.FINGERPRINT_MISMATCH
    rig.anchors["b.example"] = TrustAnchor.pinned(world.b.fingerprint)
    rig.start()
    assert (await rig.provider.package("b.example", StepTimes())).stub.level.value == "pinned"
    world.close()


async def test_a_domain_that_does_not_exist_is_left_alone_after_the_first_attempt(rig: Rig) -> None:
    for _ in range(3):
        with pytest.raises(HostError):
            await rig.provider.package("nowhere.example", StepTimes())
    assert len(rig.requests) <= 2


async def test_a_full_disk_costs_the_cache_and_not_the_stub(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_arguments: object) -> None:
        await trio.lowlevel.checkpoint()
        raise HostError(Code.STORAGE, "no space left on device")

    for name in ("put_module", "put_compiled", "put_documents"):
        monkeypatch.setattr(rig.cache, name, full)
    assert (await rig.provider.package("b.example", StepTimes())).code == rig.world.b.code[::-1]


async def test_a_cache_beyond_its_room_keeps_what_running_stubs_were_started_from(rig: Rig) -> None:
    rig.cache_bytes = 1
    rig.start()
    first = (await rig.provider.package("b.example", StepTimes())).stub
    running = StubStatus("runtime://a.example/node/protostub/1", "b.example")
    running.verified(module_sha256=first.module_sha256, version=first.version)
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.provider.run_sweeper, lambda: [running])
        assert rig.cache.statistics().evictions == 0
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.provider.run_sweeper, tuple)
        assert rig.cache.statistics().evictions == 3
        nursery.cancel_scope.cancel()
    assert not [path for path in (rig.folder / "stubs").rglob("*") if path.is_file()]


async def test_what_makes_the_cache_too_large_is_let_go_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.cache_bytes = 1
    rig.start()
    sweeps, swept = trio.open_memory_channel[int](100)
    evict = rig.cache.evict

    async def reported(*, kept: Collection[str]) -> list[Eviction]:
        evictions = await evict(kept=kept)
        sweeps.send_nowait(len(evictions))
        return evictions

    monkeypatch.setattr(rig.cache, "evict", reported)
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.provider.run_sweeper, tuple)
        await rig.provider.package("b.example", StepTimes())
        with trio.fail_after(PATIENCE_SECONDS):
            while rig.cache.statistics().size_bytes:
                await swept.receive()
        nursery.cancel_scope.cancel()
    assert not [path for path in (rig.folder / "stubs").rglob("*") if path.is_file()]
    assert (await rig.provider.package("b.example", StepTimes())).stub.domain == "b.example"


async def test_a_cache_that_cannot_be_swept_is_reported_and_tried_again(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    folder = rig.folder / "stubs" / "compiled"
    folder.rmdir()
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.provider.run_sweeper, tuple)
        nursery.cancel_scope.cancel()
    assert "cannot be swept" in caplog.text


async def test_the_time_of_the_next_refresh_is_known(rig: Rig) -> None:
    assert rig.documents.seconds_until_refresh("b.example") == 0
    await rig.provider.package("b.example", StepTimes())
    first = rig.documents.seconds_until_refresh("b.example")
    assert first > 0
    rig.world.clock.now += 100
    assert rig.documents.seconds_until_refresh("b.example") == pytest.approx(first - 100)


async def test_a_peer_that_asks_for_news_again_and_again_gets_the_same_answer(rig: Rig) -> None:
    """Strangers with forged tokens of a permitted peer's can make us ask."""
    await rig.documents.trust_of("b.example", is_refresh=False)
    asked = len(rig.requests)
    for _ in range(20):
        await rig.documents.trust_of("b.example", is_refresh=True)
    assert len(rig.requests) == asked
    rig.world.clock.now += 61
    await rig.documents.trust_of("b.example", is_refresh=True)
    assert len(rig.requests) > asked


async def test_trust_that_the_operator_takes_back_ends_at_once_and_comes_back_when_undone(rig: Rig) -> None:
    """The command writes into the store beside the running node; nothing waits for the next look-up."""
    await rig.provider.package("b.example", StepTimes())
    with TrustStore(rig.world.folder / "trust.sqlite", secret=SECRET) as beside:
        await beside.retrust("b.example", "A" * 43)
        assert rig.documents.is_forgotten("b.example")
        with pytest.raises(PeerError) as caught:
            await rig.documents.trust_of("b.example", is_refresh=False)
        assert caught.value.code is Code.FINGERPRINT_MISMATCH
        with pytest.raises(PeerError):
            await rig.provider.package("b.example", StepTimes())
        await beside.forget("b.example")
    assert not rig.documents.is_forgotten("b.example")


# Several stubs of one domain.


def offer_two(world: World, *, serial: int = 1) -> None:
    """Two stubs that lead to the domain: `default`, and `default-2` with a module of its own."""
    b = world.b
    b.publish_stub(name="first", serial=serial, is_named_by_live=False)
    first = reference_to(b)
    b.publish_stub(
        name="second",
        serial=serial,
        code=b.code + custom_section("second", b"2"),
        urls=[f"https://catalogue.{b.domain}/.well-known/sourcepackage/Second"],
        is_named_by_live=False,
    )
    b.publish_live(stubs={"default": first, "default-2": reference_to(b)})


FIRST = with_script(echo(), statement=b'{"abi":1,"name":"echo","version":"1"}', script=b"1")


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (FIRST + custom_section(SCRIPT_SECTION, b"2"), Code.MODULE_MALFORMED),
        (FIRST + stub_section(), Code.MODULE_MALFORMED),
        (with_script(echo(), statement=b'{"abi":2,"name":"echo","version":"1"}', script=b"1"), Code.ABI_UNSUPPORTED),
    ],
    ids=["two scripts", "two statements", "another contract"],
)
async def test_package_whose_code_is_cached_for_another_is_checked_itself(rig: Rig, code: bytes, word: Code) -> None:
    rig.world.b.publish_stub(code=FIRST)
    await rig.provider.package("b.example", StepTimes())
    assert code_sha256(code) == code_sha256(FIRST)
    rig.world.clock.now += 3_600
    rig.world.b.now = rig.world.clock.now
    rig.world.b.publish_stub(serial=2, code=code)
    await rig.documents.trust_of("b.example", is_refresh=True)
    package = await rig.provider.package("b.example", StepTimes())
    assert (package.stub.serial, rig.sandbox.compiled) == (1, 1)  # the version before it goes on
    state = rig.world.store.load("b.example")
    assert state is not None
    assert [one.code for one in state.failed_modules.values()] == [word.word]


def reference_to(b: PublishedDomain) -> StubReference:
    manifest = b.manifest
    return StubReference(
        name=manifest.name,
        serial=manifest.serial,
        version=manifest.version,
        manifest_sha256=document_sha256(b.manifest_raw),
    )


async def test_second_stub_is_taken_when_the_first_cannot_be_loaded(rig: Rig) -> None:
    offer_two(rig.world)
    url = rig.world.b.location.manifest_url("first")
    rig.world.fetcher.failures[url] = PeerError(Code.HTTP_STATUS, "404", domain="b.example")
    package = await rig.provider.package("b.example", StepTimes())
    assert package.stub.name == "second"
    rig.everybody_answers()
    assert (await rig.provider.package("b.example", StepTimes())).stub.name == "first"


async def test_another_stub_is_tried_after_a_failed_start_and_the_first_again_after_all(rig: Rig) -> None:
    offer_two(rig.world)
    names = []
    for _ in range(4):
        package = await rig.provider.package("b.example", StepTimes())
        names.append(package.stub.name)
        assert package.has_alternatives
        rig.provider.releases.start_failed(package.stub)
    assert names == ["first", "second", "first", "second"]
    assert rig.sandbox.compiled == 2


async def test_failed_starts_of_manifests_that_are_offered_no_more_count_for_nothing(rig: Rig) -> None:
    offer_two(rig.world)
    for serial in range(2, 5):  # each time `first` fails, and is published anew
        package = await rig.provider.package("b.example", StepTimes())
        assert package.stub.name == "first"
        rig.provider.releases.start_failed(package.stub)
        rig.world.clock.now += 3_600
        rig.world.b.now = rig.world.clock.now
        offer_two(rig.world, serial=serial)
        await rig.documents.trust_of("b.example", is_refresh=True)


async def test_what_the_first_stub_met_is_reported_when_none_can_be_run(rig: Rig) -> None:
    offer_two(rig.world)
    rig.sandbox.failure = PeerError(Code.COMPILE_LIMITS, "too large", domain="b.example")
    with pytest.raises(PeerError, check=lambda error: error.code is Code.COMPILE_LIMITS):
        await rig.provider.package("b.example", StepTimes())
    assert rig.sandbox.compiled >= 2


async def test_a_domain_that_offers_very_many_stubs_is_tried_a_few_times_only(rig: Rig) -> None:
    offer_two(rig.world)
    second = reference_to(rig.world.b)
    wrong = {
        f"default-{number:02}": msgspec.structs.replace(second, manifest_sha256=f"{number:064}") for number in range(60)
    }
    rig.world.b.publish_live(stubs={"default": msgspec.structs.replace(second, manifest_sha256="f" * 64), **wrong})
    asked = len(rig.requests)
    with pytest.raises(PeerError):
        await rig.provider.package("b.example", StepTimes())
    assert len(rig.requests) - asked <= 2 * STUB_TRIES + 4
