from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trio
import trustme

from catalogue_client.client import CatalogueClient
from catalogue_client.core.legacy import decode_descriptor, decode_source_package
from catalogue_client.core.location import Location
from catalogue_client.core.state import TrustAnchor
from catalogue_client.fetcher import Dialler
from catalogue_client.http_fetcher import HttpFetcher
from catalogue_client.trust_store import TrustStore
from msg_node.settings.model import Settings
from msg_node.settings.tables.listeners import ListenSettings, SiteSettings
from msg_node.settings.tables.node import NodeSettings
from msg_node.settings.tables.publish import PublishSettings
from msg_node.site.publication import SiteFolder
from msg_node.site.publisher import Publisher, live_options, make_publisher
from msg_node.site.site import Site
from msg_node.storage.key_files import load_online_keys
from protofly.documents import TrustLevel, decode_envelope, decode_live, document_sha256
from protofly.errors import SettingsError
from stubkit.keys import KeyRing, make_keys, save_keys
from trapezoid.publish_options import SigningSite, default_module
from trapezoid.publish_request import PublishRequest
from trapezoid.publishing import publish

DOMAIN = "a.example"
NOW = 1_795_219_200.0


@dataclass(frozen=True)
class Published:
    folder: Path
    keys: KeyRing
    settings: Settings

    @property
    def site(self) -> Path:
        return self.folder / "site"

    def publish(self, *, keys: KeyRing | None = None, now: float = NOW, revoke: list[str] | None = None) -> None:
        site = SigningSite(domain=DOMAIN, keys=keys or self.keys, path=self.site, now=now)
        publish(site, PublishRequest(module=default_module(), url=f"http://{DOMAIN}", revoke=revoke))


def settings_for(folder: Path, **changes: Any) -> Settings:
    return Settings(
        node=NodeSettings(domain=DOMAIN, data_dir=folder / "data"),
        listen=ListenSettings(insecure_plaintext=True),
        site=SiteSettings(port=0, insecure_plaintext=True, **changes),
        publish=PublishSettings(
            keys_dir=folder / "keys", site_dir=folder / "site", endpoint_url="wss://mn.a.example:8443/link"
        ),
    )


@pytest.fixture
def published(tmp_path: Path) -> Published:
    keys = make_keys()
    save_keys(keys, tmp_path / "keys")
    (tmp_path / "data").mkdir()
    made = Published(tmp_path, keys, settings_for(tmp_path))
    made.publish()
    return made


@contextlib.asynccontextmanager
async def serving(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    async with trio.open_nursery() as nursery:
        await nursery.start(site.run)
        async with httpx.AsyncClient(base_url=site.url, trust_env=False) as client:
            yield client
        nursery.cancel_scope.cancel()


class LoopbackDialler(Dialler):
    def __init__(self, site: Site) -> None:
        self._port = int(site.url.rpartition(":")[2])

    async def connect(self, host: str, port: int, *, domain: str) -> trio.SocketStream:  # noqa: ARG002
        return await trio.open_tcp_stream("127.0.0.1", self._port)


async def test_a_foreign_node_gets_a_verified_stub_from_what_we_publish(published: Published) -> None:
    site = Site.from_settings(published.settings)
    async with serving(site):
        fetcher = HttpFetcher(
            LoopbackDialler(site), ssl.create_default_context(), insecure_plaintext=frozenset({DOMAIN})
        )
        location = Location(domain=DOMAIN, well_known_url=f"http://{DOMAIN}/.well-known/rethink-mn")
        with TrustStore(published.folder / "trust.sqlite", secret=b"s" * 32) as store:
            client = CatalogueClient(fetcher, store, our_domain="b.example")
            trust = await client.refresh(location, TrustAnchor.web())
            stub = await client.fetch_stub(trust)

    assert stub.module == default_module().read_bytes()
    assert stub.level is TrustLevel.WEB
    assert trust.live.endpoints[0].url == "wss://mn.a.example:8443/link"
    assert list(trust.live.node_keys) == [published.keys.node[0].key_id]
    assert site.node_key is not None
    assert site.node_key.key_id in trust.live.node_keys


async def test_an_original_client_reads_the_same_stub_from_the_catalogue(published: Published) -> None:
    async with serving(Site.from_settings(published.settings)) as client:
        types = await client.get("/.well-known/")
        names = await client.get("/.well-known/protocolstub")
        descriptor = await client.get("/.well-known/protocolstub/default")
        version = await client.get("/.well-known/protocolstub/default/version")
        package = await client.get("/.well-known/sourcepackage/TrapezoidLink")
        code = await client.get("/.well-known/sourcepackage/TrapezoidLink/sourceCode")

    assert types.json() == ["dataschema", "hyperty", "idp-proxy", "policy", "protocolstub", "runtime", "sourcepackage"]
    assert names.json() == ["trapezoid-link"]
    read = decode_descriptor(descriptor.content, domain=DOMAIN)
    assert (read.object_name, read.language) == ("trapezoid-link", "WASM")
    assert read.source_package_url == f"hyperty-catalogue://{DOMAIN}/.well-known/sourcepackage/TrapezoidLink"
    assert version.text == read.version, "one attribute alone is text without quotes"
    assert decode_source_package(package.content, domain=DOMAIN).code == default_module().read_bytes()
    assert code.text == package.json()["sourceCode"]
    for answer in (types, names, descriptor, version, package, code):
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["access-control-allow-origin"] == "*"


async def test_the_catalogue_never_believes_the_host_header(published: Published) -> None:
    async with serving(Site.from_settings(published.settings)) as client:
        answer = await client.get(
            "/.well-known/protocolstub/default", headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
        )
    assert "evil" not in answer.text


@pytest.mark.parametrize(
    ("constraints", "status"),
    [
        ({}, 200),
        ({"constraints": {"wasm": True, "wss": True, "browser": False}}, 200),
        ({"constraints": {"wasm": "true", "wss": "true"}}, 200),
        ({"constraints": {"wasm": True}}, 404),
        ({"constraints": {"wasm": False, "wss": True}}, 404),
        ({"interworking": False}, 200),
        ({"interworking": True}, 404),
        ({"attributeThatItLacks": 1}, 404),
        ({"constraints": "text"}, 404),
    ],
)
async def test_constraints_choose_as_in_an_original_catalogue(
    published: Published, constraints: dict[str, object], status: int
) -> None:
    async with serving(Site.from_settings(published.settings)) as client:
        answer = await client.post("/.well-known/protocolstub/default", json=constraints)
        names = await client.post("/.well-known/protocolstub", json=constraints)
    assert answer.status_code == status
    assert names.json() == (["trapezoid-link"] if status == 200 else [])


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/protocolstub/unknown",
        "/.well-known/protocolstub/default/unknown",
        "/.well-known/hyperty/default",
        "/.well-known/restart",
        "/.well-known/database",
        "/.well-known/rethink-mn/root/2",
        "/.well-known/rethink-mn/root/-1",
        "/.well-known/rethink-mn/root/" + "9" * 300,
        "/.well-known/rethink-mn/root/" + "9" * 5000,
        "/.well-known/rethink-mn/root/%D9%A1",
        "/.well-known/rethink-mn/manifest/unknown",
        "/.well-known/rethink-mn/manifest/..%2F..%2Fpublication",
        "/.well-known/rethink-mn/module/..%2Fpublication.wasm",
        "/.well-known/rethink-mn/module/" + "0" * 64 + ".wasm",
        "/.well-known/protocolstub/..%2F..%2Fkeys",
        "/keys/live.pem",
    ],
)
async def test_what_is_not_published_is_not_found(published: Published, path: str) -> None:
    async with serving(Site.from_settings(published.settings)) as client:
        assert (await client.get(path)).status_code == 404


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"[]", 400), (b"[" * 40_000, 400), (b" " * 70_000, 413)])
async def test_broken_constraints_are_refused(published: Published, body: bytes, status: int) -> None:
    async with serving(Site.from_settings(published.settings)) as client:
        answer = await client.post("/.well-known/protocolstub/default", content=body)
        assert answer.status_code == status
        assert (await client.get("/livez")).status_code == 200


async def test_live_is_cacheable_and_answers_a_matching_tag_with_304(published: Published) -> None:
    async with serving(Site.from_settings(published.settings)) as client:
        first = await client.get("/.well-known/rethink-mn")
        second = await client.get("/.well-known/rethink-mn", headers={"If-None-Match": first.headers["etag"]})
        module_path = f"/.well-known/rethink-mn/module/{hashlib.sha256(default_module().read_bytes()).hexdigest()}.wasm"
        module = await client.get(module_path)

    assert first.headers["content-type"] == "application/json"
    assert first.headers["cache-control"] == "public, max-age=3600"
    assert (second.status_code, second.content) == (304, b"")
    assert module.headers["content-type"] == "application/wasm"
    assert "immutable" in module.headers["cache-control"]


def test_live_is_signed_again_at_half_of_its_life_with_a_higher_serial(published: Published) -> None:
    publisher, _ = make_publisher(published.settings)
    assert publisher.refresh(now=NOW)
    assert publisher.live is not None
    first = publisher.live.document
    assert not publisher.refresh(now=NOW + 86_000)
    assert publisher.refresh(now=NOW + 86_400)
    assert publisher.live.document.serial > first.serial
    assert publisher.live.document.expires > first.expires
    assert publisher.cache_control(now=NOW + 86_400 * 2 - 60) == "public, max-age=60"


def test_live_names_root_and_manifest_as_published(published: Published) -> None:
    publisher, _ = make_publisher(published.settings)
    publisher.refresh(now=NOW)
    assert publisher.live is not None
    live = decode_live(decode_envelope(publisher.live.envelope).payload, domain=DOMAIN)
    folder = SiteFolder(published.site)
    assert live.root.sha256 == document_sha256(folder.root(1).read_bytes())
    assert live.stubs["default"].manifest_sha256 == document_sha256(folder.manifest("trapezoid-link").read_bytes())
    assert {signature.key_id for signature in decode_envelope(publisher.live.envelope).signatures} == {
        published.keys.live[0].key_id
    }


def test_serials_grow_over_restarts_and_after_lost_state(published: Published) -> None:
    serials = []
    for moment in (NOW, NOW + 1, NOW + 2):
        publisher, _ = make_publisher(published.settings)
        publisher.refresh(now=moment)
        assert publisher.live is not None
        serials.append(publisher.live.document.serial)
    assert serials == [serials[0], serials[0] + 1, serials[0] + 2]
    (published.folder / "data" / "live-serial").unlink()
    publisher, _ = make_publisher(published.settings)
    publisher.refresh(now=NOW + 600)
    assert publisher.live is not None
    assert publisher.live.document.serial > serials[-1]


def test_a_new_publication_is_signed_at_once(published: Published) -> None:
    publisher, _ = make_publisher(published.settings)
    publisher.refresh(now=NOW)
    published.publish(revoke=["f" * 64])
    os.utime(published.site / "publication.json", (NOW + 5, NOW + 5))
    assert publisher.refresh(now=NOW + 10)
    assert publisher.live is not None
    assert publisher.live.document.revoked.modules == ["f" * 64]


def test_other_options_are_signed_at_the_next_look_and_the_same_ones_never(published: Published) -> None:
    publisher, _ = make_publisher(published.settings)
    publisher.refresh(now=NOW)
    publish = published.settings.publish
    assert publish is not None
    same = live_options(published.settings, publish)
    other = live_options(published.settings, msgspec.structs.replace(publish, contact="mailto:ops@a.example"))
    publisher.follow(same, 5.0)
    assert not publisher.refresh(now=NOW + 5)
    publisher.follow(other, 5.0)
    assert publisher.refresh(now=NOW + 10)
    assert publisher.live is not None
    assert publisher.live.document.contact == "mailto:ops@a.example"
    assert publisher.cache_control(now=NOW + 10) == "public, max-age=5"
    assert not publisher.refresh(now=NOW + 15)


def test_a_spoilt_publication_leaves_the_old_one_in_force(published: Published) -> None:
    publisher, _ = make_publisher(published.settings)
    publisher.refresh(now=NOW)
    before = publisher.live
    (published.site / "publication.json").write_text("{")
    with pytest.raises(SettingsError, match=r"publication\.json"):
        publisher.refresh(now=NOW + 10)
    assert publisher.live is before


def test_keys_that_others_may_read_are_refused(published: Published) -> None:
    (path,) = (published.folder / "keys").glob("live-*.pem")
    path.chmod(0o640)
    with pytest.raises(SettingsError, match="open to others"):
        Site.from_settings(published.settings)


def test_a_node_does_not_need_the_offline_keys(published: Published) -> None:
    for pattern in ("root-*.pem", "pkg-*.pem"):
        for path in (published.folder / "keys").glob(pattern):
            path.unlink()
    assert Site.from_settings(published.settings).node_key is not None


def test_the_newest_node_key_signs_and_all_are_published(published: Published) -> None:
    later = make_keys().node[0]
    save_keys(KeyRing(node=(later,)), published.folder / "keys")
    os.utime(published.folder / "keys" / f"{later.key_id}.pem", (NOW * 2, NOW * 2))
    assert load_online_keys(published.folder / "keys", "node")[0].key_id == later.key_id
    publisher, node_key = make_publisher(published.settings)
    publisher.refresh(now=NOW)
    assert publisher.live is not None
    assert node_key.key_id == later.key_id
    assert set(publisher.live.document.node_keys) == {later.key_id, published.keys.node[0].key_id}


def test_a_publication_of_another_domain_is_refused(published: Published) -> None:
    settings = Settings(
        node=NodeSettings(domain="c.example", data_dir=published.folder / "data"),
        site=published.settings.site,
        publish=published.settings.publish,
    )
    with pytest.raises(SettingsError, match=r"the site of a\.example"):
        Site.from_settings(settings)


def test_an_alias_that_the_root_does_not_name_is_refused(published: Published) -> None:
    settings = Settings(
        node=NodeSettings(domain=DOMAIN, aliases=("x.example",), data_dir=published.folder / "data"),
        site=published.settings.site,
        publish=published.settings.publish,
    )
    with pytest.raises(SettingsError, match=r"x\.example"):
        Site.from_settings(settings)


async def test_a_taken_port_is_one_plain_settings_error(published: Published) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = SiteSettings(port=taken.getsockname()[1], insecure_plaintext=True)
        with pytest.raises(SettingsError, match="Address already in use"):
            await Site(settings).run()


async def test_a_broken_certificate_is_one_plain_settings_error(tmp_path: Path) -> None:
    certificate = tmp_path / "c.pem"
    certificate.write_text("nonsense")
    with pytest.raises(SettingsError, match=r"c\.pem"):
        await Site(SiteSettings(port=0, certificate=certificate, key=certificate)).run()


async def test_the_site_speaks_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    issued.private_key_pem.write_to_path(str(key))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(certificate), append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    site = Site(SiteSettings(port=0, certificate=certificate, key=key))
    async with trio.open_nursery() as nursery:
        await nursery.start(site.run)
        async with httpx.AsyncClient(verify=context, trust_env=False) as client:
            assert (await client.get(f"{site.url}/livez")).text == "ok\n"
        nursery.cancel_scope.cancel()


async def test_readiness_says_what_is_missing() -> None:
    site = Site(SiteSettings(port=0, insecure_plaintext=True))
    problems = ["state store: disk full"]
    site.serve_readiness(lambda: problems)
    async with serving(site) as client:
        broken = await client.get("/readyz")
        problems.clear()
        ready = await client.get("/readyz")
        asked_as_elsewhere = await client.get("/readyz?verbose")
    assert (asked_as_elsewhere.status_code, asked_as_elsewhere.content) == (200, ready.content)
    assert (broken.status_code, broken.json()) == (
        503,
        {"ready": False, "problems": ["state store: disk full"], "warnings": []},
    )
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "problems": [], "warnings": []})


async def test_status_without_tls_is_for_the_bearer_of_the_token() -> None:
    without_token = Site(SiteSettings(port=0, insecure_plaintext=True))
    async with serving(without_token) as client:
        assert (await client.get("/status")).status_code == 404
        without_token.serve_status(lambda: {"links": []})
        refused = await client.get("/status")
    assert (refused.status_code, "status_token_sha256" in refused.text) == (403, True)

    token_sha256 = hashlib.sha256(b"secret").hexdigest()
    guarded = Site(SiteSettings(port=0, insecure_plaintext=True, status_token_sha256=token_sha256))
    guarded.serve_status(lambda: {"links": []})
    async with serving(guarded) as client:
        assert (await client.get("/status")).status_code == 403
        assert (await client.get("/status", headers={"Authorization": "Bearer wrong"})).status_code == 403
        assert (await client.get("/status", headers={"Authorization": "Bearer secret"})).status_code == 200


async def test_without_publish_there_is_health_only(published: Published) -> None:
    async with serving(Site(SiteSettings(port=0, insecure_plaintext=True))) as client:
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/.well-known/rethink-mn")).status_code == 404


async def test_old_roots_stay_after_a_key_change(published: Published) -> None:
    changed = KeyRing(**{**_rings(published.keys), "pkg": make_keys().pkg})
    published.publish(keys=changed, now=NOW + 60)
    async with serving(Site.from_settings(published.settings)) as client:
        first = await client.get("/.well-known/rethink-mn/root/1")
        second = await client.get("/.well-known/rethink-mn/root/2")
    assert first.status_code == second.status_code == 200
    assert json.loads(decode_envelope(second.content).payload)["version"] == 2


def _rings(keys: KeyRing) -> dict[str, Any]:
    return {role: getattr(keys, role) for role in ("root", "live", "pkg", "node")}


def test_a_live_document_that_readers_would_refuse_is_never_signed(published: Published) -> None:
    assert published.settings.publish is not None
    settings = msgspec.structs.replace(
        published.settings,
        publish=msgspec.structs.replace(published.settings.publish, endpoint_url="wss://MN.a.example/link"),
    )
    with pytest.raises(SettingsError, match="readers would refuse"):
        make_publisher(settings)[0].refresh(now=NOW)


def test_a_live_document_that_is_larger_than_readers_take_is_not_served(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, _ = make_publisher(published.settings)
    monkeypatch.setattr("protofly.limits.LIVE_BYTES", 1_000)
    with pytest.raises(SettingsError, match=r"readers take 1,000"):
        publisher.refresh(now=NOW)
    assert publisher.live is None


def test_a_publisher_that_has_signed_nothing_has_nothing_to_cache(published: Published) -> None:
    publisher: Publisher = make_publisher(published.settings)[0]
    assert publisher.cache_control(now=NOW) == "public, max-age=0"
