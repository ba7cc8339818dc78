"""A domain that publishes documents, behind our own fetcher: nothing but dictionaries, no network, no real clock.

`PublishedDomain` signs whatever a test asks for, right or wrong. `RepositoryFetcher` serves it. `World` puts a client
with its own trust store in front, so that a test reads: publish, refresh, look at what is believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import trio

from catalogue_client.client import CatalogueClient
from catalogue_client.core.location import Location
from catalogue_client.core.state import DomainTrust, TrustAnchor, TrustState
from catalogue_client.core.verify import PermissionsPolicy
from catalogue_client.fetcher import Fetched, Fetcher
from catalogue_client.trust_store import TrustStore
from protofly.documents import (
    LIVE_TYPE,
    MANIFEST_TYPE,
    ROOT_TYPE,
    Abi,
    DocumentBundle,
    Endpoint,
    KeyRecord,
    Live,
    Manifest,
    ModuleReference,
    Permissions,
    Role,
    Roles,
    Root,
    RootReference,
    SigningKey,
    StubReference,
    document_sha256,
    encode_document,
    key_set_fingerprint,
    sign_envelope,
)
from protofly.errors import Code, PeerError
from protofly.stub import VerifiedStub

START = datetime(2026, 11, 20, 6, tzinfo=UTC).timestamp()
DAY = 86_400.0
SECRET = b"a secret of this node, 32 bytes."
MODULE = b"\0asm\x01\0\0\0" + b"\0\x05\x04test" + b"\0" * 3


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def signing_key(key_id: str, *, of: str = "b.example", alg: Any = "ed25519") -> SigningKey:
    """The same key for the same name and domain, at every run."""
    return SigningKey.from_seed(key_id, hashlib.sha256(f"{of} {key_id}".encode()).digest(), alg=alg)


class Clock:
    """Unix time that stands still until a test moves it."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class PublishedDomain:
    """What one domain serves. Every publishing method takes members to replace, and keys to sign with instead."""

    def __init__(self, domain: str = "b.example", *, code: bytes = MODULE, keys_of: str = "") -> None:
        self.domain = domain
        self.now = START
        self.keys = {name: signing_key(name, of=keys_of or domain) for name in ("K1", "K2", "L1", "L2", "P1", "P2")}
        self.files: dict[str, bytes] = {}
        self.location = Location.of(domain)
        self.code = code
        self.live_serial = 0
        self.publish_root()
        self.publish_stub()

    def publish_root(
        self,
        *,
        version: int = 1,
        root_keys: tuple[str, ...] = ("K1",),
        live_keys: tuple[str, ...] = ("L1",),
        pkg_keys: tuple[str, ...] = ("P1",),
        threshold: int = 1,
        signed_by: tuple[str, ...] | None = None,
        records: dict[str, KeyRecord] | None = None,
        **changes: Any,
    ) -> bytes:
        """Sign and serve a root; `records` adds or replaces key records, `changes` replaces members."""
        names = {*root_keys, *live_keys, *pkg_keys}
        root = Root(
            spec="rmn-root/1",
            domain=self.domain,
            version=version,
            issued=moment(self.now),
            expires=moment(self.now + 365 * DAY),
            keys={name: self.keys[name].record() for name in sorted(names) if name in self.keys} | (records or {}),
            roles=Roles(
                root=Role(keys=list(root_keys), threshold=threshold),
                live=Role(keys=list(live_keys)),
                pkg=Role(keys=list(pkg_keys)),
            ),
        )
        self.root = msgspec.structs.replace(root, **changes)
        signers = [self.keys[name] for name in (root_keys if signed_by is None else signed_by)]
        raw = sign_envelope(encode_document(self.root), ROOT_TYPE, signers)
        self.root_raw = raw
        self.files[self.location.root_url(version)] = raw
        return raw

    def rotate_root(self, *, signed_by: tuple[str, ...] | None = None, **changes: Any) -> bytes:
        """Serve the next root version, signed by the old and the new root keys unless given otherwise."""
        old = tuple(self.root.roles.root.keys)
        new = changes.get("root_keys", old)
        everyone = tuple(dict.fromkeys((*old, *new)))
        signers = everyone if signed_by is None else signed_by
        return self.publish_root(
            version=changes.pop("version", self.root.version + 1), signed_by=signers, **{"root_keys": old, **changes}
        )

    def publish_live(
        self,
        *,
        signed_by: tuple[SigningKey, ...] | None = None,
        payload_type: str = LIVE_TYPE,
        payload: bytes | None = None,
        **changes: Any,
    ) -> bytes:
        """Sign and serve a live document with the next serial."""
        self.live_serial = changes.get("serial", self.live_serial + 1)
        live = Live(
            spec="rmn-live/1",
            domain=self.domain,
            serial=self.live_serial,
            issued=moment(self.now),
            expires=moment(self.now + 2 * DAY),
            root=RootReference(version=self.root.version, sha256=document_sha256(self.root_raw)),
            endpoints=[Endpoint(name="mn", url=f"wss://mn.{self.domain}/link")],
            stubs={
                "default": StubReference(
                    name=self.manifest.name,
                    serial=self.manifest.serial,
                    version=self.manifest.version,
                    manifest_sha256=document_sha256(self.manifest_raw),
                )
            },
        )
        self.live = msgspec.structs.replace(live, **changes)
        signers = [self.keys[name] for name in self.root.roles.live.keys] if signed_by is None else signed_by
        raw = sign_envelope(encode_document(self.live) if payload is None else payload, payload_type, list(signers))
        self.files[self.location.well_known_url] = raw
        return raw

    def publish_stub(
        self,
        *,
        serial: int = 1,
        code: bytes | None = None,
        urls: list[str] | None = None,
        signed_by: tuple[SigningKey, ...] | None = None,
        is_named_by_live: bool = True,
        **changes: Any,
    ) -> bytes:
        """Sign and serve a manifest and its module, and a live document that names them."""
        self.code = self.code if code is None else code
        url = f"https://catalogue.{self.domain}/.well-known/sourcepackage/BNodeStub"
        manifest = Manifest(
            spec="rmn-stub/1",
            domain=self.domain,
            name="bNodeStub",
            serial=serial,
            version=f"1.{serial}.0",
            released=moment(self.now),
            expires=moment(self.now + 180 * DAY),
            module=ModuleReference(
                sha256=hashlib.sha256(self.code).hexdigest(), size=len(self.code), urls=urls or [url]
            ),
            abi=Abi(name="trapezoid-stub", version="1.0"),
            permissions=Permissions(connect=["mn"], clock="monotonic", random=True, auth=True),
        )
        self.manifest = msgspec.structs.replace(manifest, **changes)
        signers = [self.keys[name] for name in self.root.roles.pkg.keys] if signed_by is None else signed_by
        raw = sign_envelope(encode_document(self.manifest), MANIFEST_TYPE, list(signers))
        self.manifest_raw = raw
        self.files[self.location.manifest_url(self.manifest.name)] = raw
        for place in self.manifest.module.urls:
            self.files[place] = self.code
        if is_named_by_live:
            self.publish_live()
        return raw

    @property
    def fingerprint(self) -> str:
        return key_set_fingerprint(self.root)


class RepositoryFetcher(Fetcher):
    """Serves published domains. `requests` are the URLs asked for; `failures` answer instead of the file."""

    def __init__(self, *published: PublishedDomain) -> None:
        self.published = published
        self.requests: list[str] = []
        self.failures: dict[str, Exception] = {}
        self.max_age_seconds: float | None = None
        self.on_request: Callable[[str], None] = lambda _url: None
        self.is_patient = False
        """Whether other tasks run, and a cancellation is noticed, during a request."""

    async def fetch(
        self,
        url: str,
        *,
        domain: str,
        max_bytes: int,
        deadline_seconds: float,  # noqa: ARG002 - nothing here takes time
        connect_to: tuple[str, int] | None = None,  # noqa: ARG002
    ) -> Fetched:
        self.requests.append(url)
        self.on_request(url)
        if self.is_patient:
            await trio.lowlevel.checkpoint()
        if url in self.failures:
            raise self.failures[url]
        body = next((domain_.files[url] for domain_ in self.published if url in domain_.files), None)
        if body is None:
            raise PeerError(Code.HTTP_STATUS, "404", domain=domain)
        if len(body) > max_bytes:
            raise PeerError(Code.DOCUMENT_TOO_LARGE, f"more than {max_bytes} bytes", domain=domain)
        is_document = "/.well-known/rethink-mn" in urlsplit(url).path
        content_type = "application/json" if is_document else "application/wasm"
        return Fetched(body=body, max_age_seconds=self.max_age_seconds, content_type=content_type)


class World:
    """A node's client in front of one published domain."""

    def __init__(self, folder: Path, *published: PublishedDomain) -> None:
        self.folder = folder
        self.published = published or (PublishedDomain(),)
        self.b = self.published[0]
        self.clock = Clock()
        self.fetcher = RepositoryFetcher(*self.published)
        self.anchor = TrustAnchor.web()
        self.bundle: DocumentBundle | None = None
        self.modules: dict[str, bytes] = {}
        self._open()

    def _open(self) -> None:
        self.store = TrustStore(self.folder / "trust.sqlite", secret=SECRET)
        self.client = CatalogueClient(
            self.fetcher, self.store, our_domain="a.example", clock=self.clock, draw=lambda: 0.5
        )

    def restart(self) -> None:
        """Close and open everything again, as after the end of the process."""
        self.store.close()
        self._open()

    def close(self) -> None:
        self.store.close()

    def state(self, domain: str = "b.example") -> TrustState | None:
        return self.store.load(domain)

    async def refresh(self, published: PublishedDomain | None = None) -> DomainTrust:
        return await self.client.refresh((published or self.b).location, self.anchor, known=self.bundle)

    async def fetch_stub(self, trust: DomainTrust, policy: PermissionsPolicy | None = None) -> VerifiedStub:
        """Fetch the default stub, and keep its documents and module as a cache would."""

        async def cached(sha256: str) -> bytes | None:
            return self.modules.get(sha256)

        stub = await self.client.fetch_stub(trust, cached=cached, policy=policy or PermissionsPolicy())
        self.modules[stub.module_sha256] = stub.module
        self.bundle = trust.bundle([stub])
        return stub

    async def provide(self, policy: PermissionsPolicy | None = None) -> VerifiedStub:
        """Refresh, then fetch the default stub."""
        return await self.fetch_stub(await self.refresh(), policy)
