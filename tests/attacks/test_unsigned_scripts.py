"""Scripts straight from unsigned catalogues: only pinned code runs, whatever the catalogue serves."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from federation.core.contact_trouble import Side, advice
from federation.stubs.catalogue_scripts import CatalogueScript, CatalogueScripts
from federation.stubs.shipped_files import interpreter_file
from protofly.documents import Endpoint, TrustLevel
from protofly.errors import Code, PeerError, TransportError
from protofly.stub import VerifiedStub
from sandbox.core.scripts import script_of
from stubs_cache.cache import StubsCache
from tests.support.repository import SECRET, PublishedDomain, World

BASE = "https://catalogue.b.example/.well-known"
DESCRIPTOR_URL, PACKAGE_URL = f"{BASE}/protocolstub/default", f"{BASE}/sourcepackage/Theirs"
CODE = b"function activate(url, bus, config) { return {name: 'x', instance: {}}; }\n"
ENDPOINT = Endpoint(name="mn", url="wss://mn.b.example/ws")


def package(code: bytes = CODE) -> dict[str, str]:
    return {"sourceCodeClassname": "Theirs", "encoding": "base64", "sourceCode": base64.b64encode(code).decode()}


@dataclass
class Rig:
    """A catalogue, and a node whose operator pinned one script of it."""

    world: World
    cache: StubsCache
    scripts: CatalogueScripts
    pinned: CatalogueScript

    def serve(self, code: bytes = CODE, **descriptor: object) -> None:
        stated = {"objectName": "Theirs", "sourcePackageURL": "/sourcepackage/Theirs", **descriptor}
        self.world.b.files = {
            DESCRIPTOR_URL: json.dumps(stated).encode(),
            PACKAGE_URL: json.dumps(package(code)).encode(),
        }

    async def load(self) -> VerifiedStub:
        return await self.scripts.load("b.example", self.pinned, ENDPOINT)

    async def refused(self) -> PeerError:
        with pytest.raises(PeerError) as caught:
            await self.load()
        return caught.value


def pinned(code: bytes = CODE) -> CatalogueScript:
    return CatalogueScript(authority="catalogue.b.example", name="default", sha256=hashlib.sha256(code).hexdigest())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    world = World(tmp_path, PublishedDomain())
    cache = StubsCache(tmp_path / "stubs", secret=SECRET)
    made = Rig(world, cache, CatalogueScripts(world.client, cache, interpreter_file()), pinned())
    made.serve()
    yield made
    world.close()


async def test_pinned_script_becomes_an_unsigned_stub_with_one_endpoint_and_nothing_of_its_descriptor(rig: Rig) -> None:
    rig.serve(configuration={"url": "wss://evil.example/", "adapter": {"subscriptions": "none"}}, version="99")
    stub = await rig.load()
    assert stub.level is TrustLevel.UNSIGNED
    assert {name: one.url for name, one in stub.endpoints.items()} == {"mn": ENDPOINT.url}
    assert not stub.manifest.permissions.auth
    content = script_of(stub.module)
    assert content.endswith(b"\n" + CODE)
    assert b"evil.example" not in content
    assert json.loads(content.partition(b"\n")[0])["configuration"] == {}


async def test_other_code_behind_the_same_name_is_held_with_both_digests_and_what_to_do(rig: Rig) -> None:
    rig.serve(b"evil()")
    error = await rig.refused()
    assert error.code is Code.DIGEST_NOT_APPROVED
    assert rig.pinned.sha256 in error.detail
    assert hashlib.sha256(b"evil()").hexdigest() in error.detail
    assert "change `sha256` in its [[peer]] entry" in advice(Side.DOCUMENTS, str(error), 0.0)
    assert await rig.cache.get_module(hashlib.sha256(b"evil()").hexdigest()) is None


async def test_pinned_script_runs_on_when_the_catalogue_changes_and_the_operator_learns_of_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    first = await rig.load()
    rig.serve(b"evil()")
    again = CatalogueScripts(rig.world.client, rig.cache, interpreter_file())  # after a restart
    assert (await again.load("b.example", rig.pinned, ENDPOINT)).module == first.module
    for _ in range(3):
        await again.look_for_change("b.example", rig.pinned)
    assert caplog.text.count("the stub of b.example stays as pinned: digest-not-approved") == 1
    assert rig.world.fetcher.requests.count(PACKAGE_URL) == 2  # once a day


async def test_cached_script_that_somebody_changed_is_fetched_again(rig: Rig, tmp_path: Path) -> None:
    await rig.load()
    for path in (tmp_path / "stubs").rglob("*"):
        if path.is_file():
            path.write_bytes(b"evil()")
    assert script_of((await rig.load()).module).endswith(CODE)


async def test_bundle_of_200_kilobytes_is_taken_and_one_of_2_megabytes_is_not(rig: Rig) -> None:
    bundle = CODE + b"// " + b"x" * 230_000
    rig.pinned = pinned(bundle)
    for embedded in (False, True):
        rig.serve(bundle, **({"sourcePackage": package(bundle)} if embedded else {}))
        assert len((await rig.load()).module) > 230_000
    huge = CODE + b"// " + b"x" * (2 << 20)
    rig.pinned = pinned(huge)
    rig.serve(huge)
    assert (await rig.refused()).code in (Code.DOCUMENT_TOO_LARGE, Code.MODULE_LIMITS)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", Code.DOCUMENT_MALFORMED),
        (b"[]", Code.DOCUMENT_MALFORMED),
        (b"\xff\xfe", Code.DOCUMENT_MALFORMED),
        (b"[" * 60_000, Code.DOCUMENT_MALFORMED),
        (b'{"objectName": "x", "objectName": "y"}', Code.DOCUMENT_MALFORMED),
        (b'{"objectName": "default"}', Code.DOCUMENT_MALFORMED),
        (b'{"objectName": "x", "sourcePackageURL": 5}', Code.ADDRESS_REFUSED),
        (b'{"objectName": "x", "sourcePackage": {"sourceCode": "%", "encoding": "base64"}}', Code.DOCUMENT_MALFORMED),
        (
            b'{"objectName": "x", "sourcePackageURL": "https://127.0.0.1/.well-known/sourcepackage/X"}',
            Code.ADDRESS_REFUSED,
        ),
        (b'{"objectName": "x", "sourcePackageURL": "https://evil.example/sourcepackage/X"}', Code.ADDRESS_REFUSED),
        (b'{"objectName": "x", "sourcePackageURL": "/sourcepackage/../../status"}', Code.ADDRESS_REFUSED),
    ],
)
async def test_nonsense_and_descriptors_that_point_elsewhere_are_refused_with_a_code(
    rig: Rig, content: bytes, code: Code
) -> None:
    rig.world.b.files[DESCRIPTOR_URL] = content
    assert (await rig.refused()).code is code
    assert rig.world.fetcher.requests == [DESCRIPTOR_URL]


async def test_catalogue_of_a_domain_that_signs_is_not_asked(rig: Rig) -> None:
    rig.world.b.publish_stub(serial=1)
    rig.world.b.publish_root()
    rig.world.b.publish_live()
    await rig.world.refresh()
    asked = len(rig.world.fetcher.requests)
    assert (await rig.refused()).code is Code.UNSIGNED_REFUSED
    assert len(rig.world.fetcher.requests) == asked


async def test_catalogue_that_does_not_answer_is_a_line_that_failed(rig: Rig) -> None:
    rig.world.fetcher.failures[DESCRIPTOR_URL] = TransportError(Code.FETCH_TIMEOUT, "slow")
    with pytest.raises(TransportError):
        await rig.load()
