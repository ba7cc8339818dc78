"""The steps of a check that read what a domain publishes, and verify it as the node would. Nothing is remembered."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Final

from catalogue_client.client import CatalogueClient
from catalogue_client.core.location import Location
from catalogue_client.core.state import DomainTrust, TrustAnchor
from catalogue_client.fetcher import Fetcher
from catalogue_client.trust_store import TrustStore
from federation.core.contact_trouble import Side, cleaned
from msg_node.settings.model import Settings
from msg_node.wiring import meaning
from protofly.documents import TrustLevel, key_set_fingerprint
from protofly.errors import HostError
from protofly.limits import LIVE_BYTES
from protofly.stub import VerifiedStub
from stubs_cache.store import load_secret
from trapezoid.peer_check.report import Report

_DAY_SECONDS: Final = 86_400.0
_HOUR_SECONDS: Final = 3_600.0
MANIFEST_DAYS: Final = 14
_FETCH_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Documents:
    """Reads documents with a trust store of its own, which begins with what the node remembers of the domain."""

    client: CatalogueClient
    anchor: TrustAnchor
    fetcher: Fetcher


@asynccontextmanager
async def scratch_documents(settings: Settings, fetcher: Fetcher, domain: str) -> AsyncIterator[Documents]:
    """Documents for one check; what it learns is gone afterwards.

    Raises:
        PeerError: CACHE_TAMPERED: what the node remembers of the domain was changed by somebody else.
    """
    data_dir = settings.node.data_dir
    state = None
    if (data_dir / "trust.sqlite").exists():
        with TrustStore(data_dir / "trust.sqlite", secret=load_secret(data_dir / "secret")) as remembered:
            state = remembered.load(domain)
    with (
        tempfile.TemporaryDirectory(prefix="peer-check-") as folder,
        TrustStore(Path(folder) / "trust.sqlite", secret=token_bytes(32)) as store,
    ):
        if state is not None:
            await store.save(state)
        client = CatalogueClient(fetcher, store, our_domain=settings.node.domain)
        yield Documents(client, meaning.anchor_of(settings, domain), fetcher)


async def read_documents(report: Report, documents: Documents, location: Location) -> DomainTrust | None:
    """The steps `well-known`, `live` and `root`; None when one of them failed."""
    with report.step("well-known", location.well_known_url) as result:
        fetched = await documents.fetcher.fetch(
            location.well_known_url,
            domain=location.domain,
            max_bytes=LIVE_BYTES,
            deadline_seconds=_FETCH_SECONDS,
            connect_to=location.connect_to,
        )
        result.observed = f"{len(fetched.body)} bytes, {cleaned(fetched.content_type) or 'no type'}"
        if fetched.max_age_seconds is not None:
            result.observed += f", to be kept for {fetched.max_age_seconds:.0f} s"
    if not report.has_passed("well-known"):
        report.skip("no document was read", "live", "root")
        return None
    anchor = _anchor(documents.anchor, location)
    believed: list[DomainTrust] = []
    reached: list[str] = []
    with report.step("live", location.well_known_url, side=Side.DOCUMENTS) as result:
        try:
            trust = await documents.client.refresh(location, anchor, on_step=lambda step, _: reached.append(step))
            believed.append(trust)
        except HostError:
            if reached == ["live_document"]:  # it is judged by its root, so roots come before it
                result.step = "root"
            raise
        hours = (trust.expires_at - time.time()) / _HOUR_SECONDS
        age = time.time() - trust.live.issued.timestamp()
        result.observed = f"serial {trust.live.serial}, issued {age:.0f} s ago, valid for {hours:.1f} more hours"
        if trust.live.mode != "enforce":
            result.warn("mode-testing", f"{result.observed}; mode {trust.live.mode}", "they still try things out")
    if not believed:
        report.skip("the documents were not believed", *({"live", "root"} - {report.results[-1].step}))
        return None
    [trust] = believed
    with report.step("root", location.root_url(trust.root.version), side=Side.DOCUMENTS) as result:
        fingerprint = key_set_fingerprint(trust.root)
        result.observed = f"version {trust.root.version}, level {trust.level.value}, fingerprint {fingerprint}"
        if trust.warnings:
            result.warn(
                "pin-differs", "; ".join(trust.warnings), "they: put the fingerprint of today into the TXT record"
            )
        elif trust.level is TrustLevel.WEB:
            result.hint = "compare the fingerprint with them by another way, then pin it in the [[peer]] entry"
    return trust


def _anchor(anchor: TrustAnchor, location: Location) -> TrustAnchor:
    """See `DomainDocuments`: a fingerprint in DNS counts where DNSSEC validated it."""
    if anchor.level is TrustLevel.DNSSEC and not anchor.fingerprint and location.pin_is_validated:
        return TrustAnchor(TrustLevel.DNSSEC, location.pin_hint)
    return anchor


async def read_stub(report: Report, documents: Documents, trust: DomainTrust) -> VerifiedStub | None:
    """The steps `manifest` and `module`; None when one of them failed."""
    stubs: list[VerifiedStub] = []
    reached: list[str] = []
    with report.step("manifest", "stub `default`", side=Side.DOCUMENTS) as result:
        try:
            stub = await documents.client.fetch_stub(trust, on_step=lambda step, _: reached.append(step))
            stubs.append(stub)
        except HostError:
            if "manifest" in reached:
                result.step = "module"
            raise
        days = (stub.manifest.expires.timestamp() - time.time()) / _DAY_SECONDS
        asked = ", ".join(sorted(stub.endpoints)) or "none"
        result.observed = f"{stub.name} {stub.version}, serial {stub.serial}, {days:.0f} more days, endpoints {asked}"
        if days < MANIFEST_DAYS:
            result.warn("expires-soon", result.observed, "they: `trapezoid publish --renew`")
    if not stubs:
        report.skip("there is no stub", *({"manifest", "module"} - {report.results[-1].step}))
        return None
    [stub] = stubs
    with report.step("module", stub.module_sha256, side=Side.DOCUMENTS) as result:
        result.observed = f"{len(stub.module):,} bytes"
    return stub
