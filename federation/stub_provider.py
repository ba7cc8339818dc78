"""From a domain's name to code that may run: located, fetched, verified, compiled; each step told with its time.

Warm starts need no network: documents, module and compiled code come from the stubs cache and are verified again.
Source: design, section 5; trust and hosts, sections 2.5 and 3.6.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import trio

from catalogue_client.client import CatalogueClient
from catalogue_client.core.location import Location
from catalogue_client.core.state import DomainTrust, TrustAnchor
from federation.core.stub_status import StubStatus
from federation.link_context import StepTimes
from federation.resolver import Resolver
from protofly.documents import DocumentBundle, TrustLevel
from protofly.errors import Code, HostError, PeerError, TransportError
from protofly.stub import VerifiedStub
from sandbox.host import Sandbox
from stubs_cache.cache import StubsCache
from stubs_cache.core.entry import keys_of_stub

logger = logging.getLogger("federation")

DEFAULT_STUB = "default"
_TRANSIENT = (Code.DNS_FAILED, Code.CONNECT_FAILED, Code.FETCH_TIMEOUT, Code.HTTP_STATUS, Code.DISCOVERY_BACKOFF)
_TRUSTED_DOMAINS = 1000
SWEEP_SECONDS = 3_600.0
"""How often the cache is looked through for what nobody uses. Source: trust and hosts, section 3.1 (Istio)."""
LEAST_REFRESH_SECONDS = 60.0
"""A domain is not asked for news more often than this, whatever strangers claim in its name."""


@dataclass(frozen=True, slots=True)
class Package:
    """A stub that may run, and its machine code."""

    stub: VerifiedStub
    code: bytes


class StubProvider:
    """Gets stubs for domains.

    Args:
        anchor_of: Why the first root of a domain may be believed.
    """

    def __init__(
        self,
        *,
        resolver: Resolver,
        client: CatalogueClient,
        cache: StubsCache,
        sandbox: Sandbox,
        anchor_of: Callable[[str], TrustAnchor],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._resolver = resolver
        self._client = client
        self._cache = cache
        self._sandbox = sandbox
        self._anchor_of = anchor_of
        self._clock = clock
        self._trusted: dict[str, DomainTrust] = {}
        self._renewed: Callable[[str], None] = lambda _: None
        self._locks: weakref.WeakValueDictionary[str, trio.Lock] = weakref.WeakValueDictionary()

    async def package(self, domain: str, times: StepTimes, *, asked_by: str = "") -> Package:
        """Everything that is needed to run the stub of `domain`; `asked_by` is whose message needs it.

        Raises:
            PeerError: Something about the domain was refused.
            TransportError: Nobody answered.
        """
        trust = await self._trust(domain, is_refresh=False, times=times, asked_by=asked_by)
        started = time.perf_counter()
        try:
            stub = await self._fetch_stub(trust, times)
        except (PeerError, TransportError):
            if not times.is_warm:
                raise
            times.steps.clear()  # what the cache had does not hold together: once more, from the source
            trust = await self._trust(domain, is_refresh=True, times=times)
            stub = await self._fetch_stub(trust, times)
        await self._keep(trust, stub)
        code = await self._compiled(stub, times)
        logger.info(
            "stub %s %s of %s is verified and compiled after %.0f ms",
            stub.name,
            stub.version,
            domain,
            (time.perf_counter() - started) * 1000,
        )
        return Package(stub, code)

    async def trust_of(self, domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:
        """Verified documents of a domain; `asked_by` is whose look-up it is.

        Raises:
            PeerError: They were refused.
            TransportError: Nobody answered.
        """
        return await self._trust(domain, is_refresh=is_refresh, times=StepTimes(), asked_by=asked_by)

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

    async def run_sweeper(
        self,
        running: Callable[[], Iterable[StubStatus]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep the stubs cache within its bounds until cancelled: at the start, hourly, and when it becomes too large.

        What the `running` stubs were started from stays: their next start is to be a warm one.
        """
        await self._sweep(running())
        task_status.started()
        while True:
            with trio.move_on_after(SWEEP_SECONDS):
                await self._cache.wait_full()
            await self._sweep(running())

    async def _sweep(self, running: Iterable[StubStatus]) -> None:
        engine = self._sandbox.fingerprint
        kept = {key for stub in running for key in keys_of_stub(stub.domain, stub.module_sha256, engine)}
        try:
            evictions = await self._cache.evict(kept=kept)
        except HostError as exc:
            logger.warning("the stubs cache cannot be swept: %s", exc)
            return
        for reason, count in Counter(eviction.reason.value for eviction in evictions).items():
            logger.info("the stubs cache lets go of %d files (%s)", count, reason)

    def is_forgotten(self, domain: str) -> bool:
        """Whether the operator took back what we knew of a domain, and nothing was accepted since."""
        return self._client.is_forgotten(domain)

    def _believed(self, domain: str) -> DomainTrust | None:
        """What we know of a domain, unless the operator retrusted or forgot it since: that holds at once."""
        known = self._trusted.get(domain)
        if known is not None and not self._client.is_remembered(known):
            logger.info("what was known of %s does not count any more: its trust was changed by the operator", domain)
            del self._trusted[domain]
            return None
        return known

    def seconds_until_refresh(self, domain: str) -> float:
        """How long what we know of a domain need not be asked for again; 0 when we know nothing."""
        known = self._trusted.get(domain)
        return max(0.0, known.refresh_at - self._clock()) if known is not None else 0.0

    def seconds_until_askable(self, domain: str) -> float:
        """How long a domain is not asked for newer documents because it was asked a moment ago; 0: it may be."""
        known = self._trusted.get(domain)
        return 0.0 if known is None else max(0.0, known.fetched_at + LEAST_REFRESH_SECONDS - self._clock())

    async def _trust(
        self, domain: str, *, is_refresh: bool, times: StepTimes, asked_by: str = "", for_domain: str = ""
    ) -> DomainTrust:
        async with self._locks.setdefault(domain, trio.Lock()):
            known = self._believed(domain)
            if known is not None and self._clock() - known.fetched_at < LEAST_REFRESH_SECONDS:
                is_refresh = False  # whoever asks for news this often gets the same answer
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
                self._renewed(domain)
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

    async def _fetch_stub(self, trust: DomainTrust, times: StepTimes) -> VerifiedStub:
        return await self._client.fetch_stub(trust, DEFAULT_STUB, cached=self._cache.get_module, on_step=times.add)

    async def _keep(self, trust: DomainTrust, stub: VerifiedStub) -> None:
        """Remember what was accepted, so that the next start of this stub asks nobody."""
        bundle = trust.bundle([stub])
        self._trusted[trust.domain] = replace(trust, manifests=tuple(bundle.manifests.items()))
        try:
            await self._cache.put_module(stub.module)
        except HostError as exc:
            logger.warning("the stubs cache takes nothing: %s", exc)
        await self._keep_documents(bundle)

    async def _keep_documents(self, bundle: DocumentBundle) -> None:
        try:
            await self._cache.put_documents(bundle)
        except HostError as exc:
            logger.warning("the stubs cache takes nothing: %s", exc)

    async def _compiled(self, stub: VerifiedStub, times: StepTimes) -> bytes:
        started = time.perf_counter()
        fingerprint = self._sandbox.fingerprint
        code = await self._cache.get_compiled(stub.module_sha256, fingerprint)
        if code is not None:
            times.add("cached code", time.perf_counter() - started)
            return code
        code = await self._sandbox.compile(stub.module)
        try:
            await self._cache.put_compiled(stub.module_sha256, fingerprint, code)
        except HostError as exc:
            logger.warning("the stubs cache takes nothing: %s", exc)
        times.add("compile", time.perf_counter() - started)
        return code

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
