"""The verified documents of foreign domains: found, fetched, verified, kept, and asked for again when they are due.

Warm starts need no network: documents come from the stubs cache and are verified again. Source: design, section 5;
trust and hosts, sections 2.5 and 3.6.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from dataclasses import replace

import trio

from catalogue_client.client import CatalogueClient
from catalogue_client.core.location import Location
from catalogue_client.core.state import DomainTrust, TrustAnchor
from federation.core.stub_status import StepTimes
from federation.discovery.resolver import Resolver
from protofly.documents import DocumentBundle, TrustLevel
from protofly.errors import Code, HostError, PeerError
from protofly.stub import VerifiedStub
from stubs_cache.cache import StubsCache

logger = logging.getLogger("federation")

_TRANSIENT = (Code.DNS_FAILED, Code.CONNECT_FAILED, Code.FETCH_TIMEOUT, Code.HTTP_STATUS, Code.DISCOVERY_BACKOFF)
_TRUSTED_DOMAINS = 1000
LEAST_REFRESH_SECONDS = 60.0
"""A domain is not asked for news more often than this, whatever strangers claim in its name."""


class DomainDocuments:
    """Gets the documents of domains.

    Args:
        resolver: Finds the place of a domain's documents.
        client: Fetches and verifies them.
        cache: Keeps them on disk.
        anchor_of: Why the first root of a domain may be believed.
        clock: Seconds since the Unix epoch.
    """

    def __init__(
        self,
        *,
        resolver: Resolver,
        client: CatalogueClient,
        cache: StubsCache,
        anchor_of: Callable[[str], TrustAnchor],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._resolver = resolver
        self._client = client
        self._cache = cache
        self._anchor_of = anchor_of
        self._clock = clock
        self._trusted: dict[str, DomainTrust] = {}
        self._asked_for: set[str] = set()
        self._renewed: Callable[[str], None] = lambda _: None
        self._others: dict[str, trio.Event] = {}
        self._locks: weakref.WeakValueDictionary[str, trio.Lock] = weakref.WeakValueDictionary()

    async def trust_of(
        self, domain: str, *, is_refresh: bool, times: StepTimes | None = None, asked_by: str = ""
    ) -> DomainTrust:
        """Verified documents of a domain: those that are known and fresh, those of the cache, or new ones.

        Args:
            domain: The foreign domain.
            is_refresh: Ask for newer ones, unless that was done within the last `LEAST_REFRESH_SECONDS`.
            times: Gets the steps that were necessary, and how long they took.
            asked_by: Whose look-up it is; see `Resolver.resolve`.

        Raises:
            PeerError: They were refused.
            TransportError: Nobody answered.
        """
        return await self._trust(domain, is_refresh=is_refresh, times=times or StepTimes(), asked_by=asked_by)

    async def alias_trust_of(self, alias: str, *, of: str) -> DomainTrust:
        """Verified documents of a domain that `of` claims as its alias, found under its own name.

        Raises:
            PeerError: They were refused.
            TransportError: Nobody answered.
        """
        return await self._trust(alias, is_refresh=False, times=StepTimes(), for_domain=of)

    def notify_renewed(self, renewed: Callable[[str], None]) -> None:
        """Have `renewed` called with each domain whose documents were fetched anew."""
        self._renewed = renewed

    async def wait_renewed(self, domain: str, version: bytes) -> None:
        """Wait until documents of a domain count that differ from `version`, for whatever reason they were fetched."""
        if version_of(self, domain) != version:
            return
        event = self._others.setdefault(domain, trio.Event())
        try:
            await event.wait()
        finally:
            if not event.statistics().tasks_waiting and self._others.get(domain) is event:
                del self._others[domain]

    def _notify(self, domain: str) -> None:
        self._renewed(domain)
        self._others.pop(domain, trio.Event()).set()

    def reconsider(self) -> None:
        """Verify all documents again when they are next needed: the anchors are others than before.

        Proofs that rest on them are checked again at once.
        """
        known, self._trusted = list(self._trusted), {}
        for domain in known:
            self._notify(domain)

    def ask_again(self, domain: str) -> None:
        """The operator wants news: the next question goes to the domain, however recently it was asked."""
        self._asked_for &= self._trusted.keys()
        if domain in self._trusted:
            self._asked_for.add(domain)

    def is_forgotten(self, domain: str) -> bool:
        """True when the operator took back what we knew of a domain, and nothing was accepted since."""
        return self._client.is_forgotten(domain)

    def believed(self, domain: str) -> DomainTrust | None:
        """Return the trust in a domain, None if the operator retrusted or forgot it since."""
        known = self._trusted.get(domain)
        if known is not None and not self._client.is_remembered(known):
            logger.info("what was known of %s does not count any more: its trust was changed by the operator", domain)
            del self._trusted[domain]
            return None
        return known

    def seconds_until_refresh(self, domain: str) -> float:
        """Seconds until the documents of a domain are due to be asked for again; 0 when we have none."""
        known = self._trusted.get(domain)
        return max(0.0, known.refresh_at - self._clock()) if known is not None else 0.0

    def seconds_until_askable(self, domain: str) -> float:
        """Seconds until a domain may be asked for newer documents, because it was asked a moment ago; 0 for now."""
        known = self._trusted.get(domain)
        return 0.0 if known is None else max(0.0, known.fetched_at + LEAST_REFRESH_SECONDS - self._clock())

    async def _trust(
        self, domain: str, *, is_refresh: bool, times: StepTimes, asked_by: str = "", for_domain: str = ""
    ) -> DomainTrust:
        async with self._locks.setdefault(domain, trio.Lock()):
            known = self.believed(domain)
            if domain in self._asked_for:
                self._asked_for.discard(domain)
                is_refresh = True
            elif known is not None and self._clock() - known.fetched_at < LEAST_REFRESH_SECONDS:
                is_refresh = False  # asked for news this often, it gives the same answer
            if known is not None and not is_refresh and known.is_fresh(self._clock()):
                times.is_warm = True
                return known
            trust = None if is_refresh else await self._restored(domain, times)
            if trust is None:
                trust = await self._refreshed(domain, times, asked_by, for_domain)
            if len(self._trusted) >= _TRUSTED_DOMAINS:
                del self._trusted[next(iter(self._trusted))]
            self._trusted[domain] = trust
            if known is not None and known.live_envelope != trust.live_envelope:
                self._notify(domain)
            return trust

    async def _restored(self, domain: str, times: StepTimes) -> DomainTrust | None:
        started = time.perf_counter()
        bundle = await self._cache.get_documents(domain)
        if bundle is None:
            return None
        try:
            trust = self._client.restore(Location.of(domain), self._remembered_anchor(domain), bundle)
        except PeerError as exc:
            logger.warning(
                "cached documents of %s do not hold (%s): asking again", domain, exc, extra={"domain": domain}
            )
            await self._cache.drop_documents(domain)
            return None
        if trust is not None:
            times.is_warm = True
            times.add("cached documents", time.perf_counter() - started)
        return trust

    async def _refreshed(self, domain: str, times: StepTimes, asked_by: str, for_domain: str) -> DomainTrust:
        known = await self._cache.get_documents(domain)
        started = time.perf_counter()
        try:
            location = await self._resolver.resolve(domain, asked_by=asked_by, for_domain=for_domain)
        except HostError as exc:
            return self._stale(Location.of(domain), domain, known, exc)
        times.add("resolve", time.perf_counter() - started)
        try:
            trust = await self._client.refresh(location, self._anchor(location), known=known, on_step=times.add)
        except HostError as exc:
            self._resolver.report_failure(domain, exc)
            return self._stale(location, domain, known, exc)
        for warning in trust.warnings:
            logger.warning("%s: %s", domain, warning, extra={"domain": domain})
        self._resolver.report_success(domain)
        await self._keep_documents(trust.bundle())
        return trust

    def _stale(self, location: Location, domain: str, known: DocumentBundle | None, error: HostError) -> DomainTrust:
        """What we have may serve until its own end when nobody answers. Source: trust and hosts, section 2.5.

        Raises:
            HostError: `error`, when there is nothing or when it was a refusal and no accident.
        """
        if known is None or error.code not in _TRANSIENT:
            raise error
        try:
            trust = self._client.restore(location, self._remembered_anchor(domain), known, is_stale_allowed=True)
        except PeerError:
            trust = None
        if trust is None:
            raise error
        return trust

    async def keep(self, trust: DomainTrust, stub: VerifiedStub) -> None:
        """Remember that a stub of these documents was accepted, so that its next start asks nobody."""
        bundle = trust.bundle([stub])
        self._trusted[trust.domain] = replace(trust, manifests=tuple(bundle.manifests.items()))
        await self._keep_documents(bundle)

    async def _keep_documents(self, bundle: DocumentBundle) -> None:
        try:
            await self._cache.put_documents(bundle)
        except HostError as exc:
            logger.warning("the stubs cache takes nothing: %s", exc)

    def _remembered_anchor(self, domain: str) -> TrustAnchor:
        """For documents that were believed before: continuity counts, and a pin of the settings."""
        anchor = self._anchor_of(domain)
        return anchor if anchor.fingerprint else TrustAnchor.web()

    def _anchor(self, location: Location) -> TrustAnchor:
        """The anchor of the settings; for level `dnssec` it is the validated fingerprint of the TXT record.

        Raises:
            PeerError: BROKEN_TRUST when DNSSEC is asked for and the name server has not validated a fingerprint.
        """
        anchor = self._anchor_of(location.domain)
        if anchor.level is not TrustLevel.DNSSEC or anchor.fingerprint:
            return anchor
        if not location.pin_is_validated or not location.pin_hint:
            detail = "trust = dnssec, and no validated fingerprint is in DNS"
            raise PeerError(Code.BROKEN_TRUST, detail, domain=location.domain)
        return TrustAnchor(TrustLevel.DNSSEC, location.pin_hint)


def version_of(documents: DomainDocuments, domain: str) -> bytes:
    """The `live` document of a domain that counts now, as it was signed; b"" when none is at hand."""
    known = documents.believed(domain)
    return b"" if known is None else known.live_envelope
