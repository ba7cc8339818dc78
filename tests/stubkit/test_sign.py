"""Signed documents, read by the client that other domains use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue_client.client import CatalogueClient
from catalogue_client.core.location import Location
from catalogue_client.core.state import TrustAnchor
from catalogue_client.fetcher import Fetched, Fetcher
from catalogue_client.trust_store import TrustStore
from protofly.documents import (
    Endpoint,
    Root,
    decode_envelope,
    decode_root,
    key_set_fingerprint,
)
from protofly.errors import Code, PeerError, SettingsError
from stubkit.keys import KeyRing, make_key, make_keys
from stubkit.sign import RootTerms, StubRelease, sign_manifest, sign_root
from tests.support.live_documents import sign_live

NOW = 1_795_219_200.0
DOMAIN = "b.example"
MODULE = (Path(__file__).parents[2] / "examples" / "stubs" / "trapezoid_link" / "link.wasm").read_bytes()
MODULE_URL = f"https://{DOMAIN}/.well-known/sourcepackage/TrapezoidLink"
RELEASE = StubRelease(domain=DOMAIN, name="trapezoid-link", serial=1, version="1.0.0", urls=[MODULE_URL])
ENDPOINTS = [Endpoint(name="mn", url="wss://mn.b.example/link")]


class Shelf(Fetcher):
    """Serves what lies on it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {MODULE_URL: MODULE}

    async def fetch(
        self,
        url: str,
        *,
        domain: str,
        max_bytes: int,
        deadline_seconds: float,  # noqa: ARG002 - nothing here takes time
        connect_to: tuple[str, int] | None = None,  # noqa: ARG002
    ) -> Fetched:
        if url not in self.files:
            raise PeerError(Code.HTTP_STATUS, "404", domain=domain)
        assert len(self.files[url]) <= max_bytes
        return Fetched(body=self.files[url], max_age_seconds=None, content_type="application/json")


class Publisher:
    """A domain that publishes with the kit, and a client of another domain that reads it."""

    def __init__(self, store: TrustStore) -> None:
        self.now = NOW
        self.shelf = Shelf()
        self.location = Location.of(DOMAIN)
        self.client = CatalogueClient(
            self.shelf, store, our_domain="a.example", clock=lambda: self.now, draw=lambda: 0.5
        )

    def publish(
        self, keys: KeyRing, *, version: int = 1, serial: int = 1, previous: KeyRing | None = None, threshold: int = 1
    ) -> Root:
        terms = RootTerms(version=version, threshold=threshold)
        root = sign_root(keys, domain=DOMAIN, now=self.now, terms=terms, previous=previous)
        manifest = sign_manifest(keys, MODULE, RELEASE, now=self.now)
        live = sign_live(
            keys, root_envelope=root, serial=serial, endpoints=ENDPOINTS, manifests={"default": manifest}, now=self.now
        )
        self.shelf.files[self.location.root_url(version)] = root
        self.shelf.files[self.location.manifest_url(RELEASE.name)] = manifest
        self.shelf.files[self.location.well_known_url] = live
        return decode_root(decode_envelope(root).payload, domain=DOMAIN)


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    store = TrustStore(tmp_path / "trust.sqlite", secret=bytes(32))
    yield Publisher(store)
    store.close()


async def test_what_the_kit_signs_is_believed_by_a_client_that_pinned_the_keys(publisher: Publisher) -> None:
    root = publisher.publish(make_keys())
    trust = await publisher.client.refresh(publisher.location, TrustAnchor.pinned(key_set_fingerprint(root)))
    stub = await publisher.client.fetch_stub(trust)
    assert (stub.name, stub.module, stub.manifest.permissions.connect) == ("trapezoid-link", MODULE, ["mn"])
    assert stub.endpoints["mn"].url == "wss://mn.b.example/link"


async def test_rotated_root_signed_by_old_and_new_keys_is_followed(publisher: Publisher) -> None:
    old, new = make_keys(), make_keys()
    publisher.publish(old)
    await publisher.client.refresh(publisher.location, TrustAnchor.web())
    publisher.publish(new, version=2, serial=2, previous=old)
    trust = await publisher.client.refresh(publisher.location, TrustAnchor.web())
    assert trust.root.version == 2


async def test_rotated_root_without_the_old_keys_is_refused(publisher: Publisher) -> None:
    publisher.publish(make_keys())
    await publisher.client.refresh(publisher.location, TrustAnchor.web())
    publisher.publish(make_keys(), version=2, serial=2)
    with pytest.raises(PeerError):
        await publisher.client.refresh(publisher.location, TrustAnchor.web())


async def test_several_root_keys_with_a_threshold_are_believed(publisher: Publisher) -> None:
    first, second = make_keys(), make_key("root", alg="p256")
    keys = KeyRing(root=(*first.root, second), live=first.live, pkg=first.pkg, node=first.node)
    publisher.publish(keys, threshold=2)
    trust = await publisher.client.refresh(publisher.location, TrustAnchor.web())
    assert trust.root.roles.root.threshold == 2


@pytest.mark.parametrize("role", ["root", "live", "pkg"])
def test_root_without_a_role_is_not_signed(role: str) -> None:
    keys = make_keys()
    missing = KeyRing(**{name: getattr(keys, name) for name in ("root", "live", "pkg") if name != role})
    with pytest.raises(SettingsError, match=f"no {role} key"):
        sign_root(missing, domain=DOMAIN, now=NOW)


def test_a_manifest_needs_a_key_of_its_role() -> None:
    with pytest.raises(SettingsError, match="no pkg key"):
        sign_manifest(KeyRing(), MODULE, RELEASE, now=NOW)


@pytest.mark.parametrize(
    "changes", [{"name": "default"}, {"name": "a/b"}, {"domain": "B.example"}, {"serial": 0}, {"urls": ["ftp://x/"]}]
)
def test_manifest_that_readers_would_refuse_is_not_signed(changes: dict[str, object]) -> None:
    values = {name: getattr(RELEASE, name) for name in RELEASE.__slots__} | changes
    with pytest.raises(SettingsError, match="would be refused"):
        sign_manifest(make_keys(), MODULE, StubRelease(**values), now=NOW)


def test_document_larger_than_readers_take_is_not_signed() -> None:
    values = {name: getattr(RELEASE, name) for name in RELEASE.__slots__}
    values["for_domains"] = [f"{'x' * 60}{number}.example" for number in range(500)]
    with pytest.raises(SettingsError, match="readers take"):
        sign_manifest(make_keys(), MODULE, StubRelease(**values), now=NOW)
