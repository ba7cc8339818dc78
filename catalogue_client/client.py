"""The catalogue client: locate, fetch, verify, on one page.

The rules are in `core/`; here they are put in order around a fetcher and a store. After every root the state is stored
before the next step, so that an interrupted refresh goes on where it stopped. `restore` is the warm start: documents
from the cache, verified against the stored marks, without any network.

Source: trust and hosts, sections 2.5 and 3.6.
"""

from __future__ import annotations

import logging
import random
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import trio

from catalogue_client.core import trust as rules
from catalogue_client.core.freshness import REFRESH_SHARE, documents_are_fresh, freshness
from catalogue_client.core.legacy import Descriptor
from catalogue_client.core.location import Location, kept_location
from catalogue_client.core.selection import select_stub
from catalogue_client.core.state import DomainTrust, TrustAnchor, TrustState
from catalogue_client.core.updates import AUTOMATIC, UpdateRule, predecessor
from catalogue_client.core.verify import (
    ManifestRules,
    PermissionsHeldError,
    PermissionsPolicy,
    accept_manifest,
    accept_previous,
    is_newest_mark,
    make_stub,
)
from catalogue_client.downloads import Downloads, ModuleLookup
from catalogue_client.fetcher import Fetcher
from catalogue_client.trust_store import TrustStore
from catalogue_client.version_marks import VersionMarks
from protofly import limits
from protofly.documents import DocumentBundle, Manifest, StubReference, TrustLevel, document_sha256, key_set_fingerprint
from protofly.errors import Code, PeerError, TransportError
from protofly.stub import VerifiedStub

_logger = logging.getLogger("trapezoid.catalogue_client")

OnStep = Callable[[str, float], None]
"""Called with each finished step and its seconds: `live_document`, `root`, `manifest`, `module`, `verify`."""
_DEFAULT_POLICY = PermissionsPolicy()


def _ignore_step(_name: str, _seconds: float) -> None:
    pass


async def _find_nothing(_sha256: str) -> bytes | None:
    return None


@dataclass(frozen=True, slots=True)
class _FetchContext:
    """Inputs of one call of `fetch_stub`."""

    trust: DomainTrust
    cached: ModuleLookup
    rules: ManifestRules


class CatalogueClient:
    """Fetches and verifies what foreign domains publish.

    Attributes:
        versions: What the versions of stubs have done here.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        store: TrustStore,
        *,
        our_domain: str,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
        updates: Callable[[str], UpdateRule] = lambda _domain: AUTOMATIC,
    ) -> None:
        """`clock` gives Unix seconds, `draw` numbers in [0, 1); `our_domain` is held against `for_domains`.

        `updates` is what the operator says about newer stubs of a domain.
        """
        self._downloads = Downloads(fetcher)
        self._store = store
        self._our_domain = our_domain
        self._clock = clock
        self._draw = draw
        self._updates = updates
        self.versions = VersionMarks(store, self._rules)
        self._locks: weakref.WeakValueDictionary[str, trio.Lock] = weakref.WeakValueDictionary()

    async def refresh(
        self,
        location: Location,
        anchor: TrustAnchor,
        *,
        known: DocumentBundle | None = None,
        on_step: OnStep = _ignore_step,
    ) -> DomainTrust:
        """Fetch and verify the live document of a domain, and every root that leads to it.

        Args:
            location: Where the domain publishes.
            anchor: Why its first root may be believed; also held against what is remembered.
            known: Documents in the cache, if any. Should the marks be gone, they witness which serials existed.
            on_step: Called with `live_document` when that is fetched, and with `root` when all roots are believed, with
                their seconds. The live document is judged after both.

        Raises:
            PeerError: A document was refused; what was believed before stays.
            TransportError: Nobody answered.
            HostError: STORAGE: the marks could not be written, so nothing new is believed.
        """
        async with self._lock(location.domain):
            now = self._clock()
            rules.check_clock(self._store.load(location.domain), now)
            started = time.perf_counter()
            fetched = await self._downloads.document(location, location.well_known_url, limits.LIVE_BYTES)
            on_step("live_document", time.perf_counter() - started)
            started = time.perf_counter()
            # Read after the wait: the operator may have approved or retrusted something meanwhile.
            remembered = self._store.load(location.domain)
            state, stored = await self._follow_roots(location, anchor, remembered, fetched.body, known)
            root = rules.current_root(state)
            on_step("root", time.perf_counter() - started)
            live, state = rules.accept_live(state, root, fetched.body, now=now)
            await self._save(state, before=stored)
        fresh_until, refresh_at = freshness(fetched.max_age_seconds, live, now=now, draw=self._draw())
        return DomainTrust(
            domain=location.domain,
            level=state.level,
            root=root,
            live=live,
            live_envelope=fetched.body,
            location=location,
            fetched_at=now,
            fresh_until=fresh_until,
            refresh_at=refresh_at,
            expires_at=live.expires.timestamp(),
            warnings=_warnings(state, location),
            manifests=tuple(known.manifests.items()) if known else (),
        )

    def restore(
        self, location: Location, anchor: TrustAnchor, bundle: DocumentBundle, *, is_stale_allowed: bool = False
    ) -> DomainTrust | None:
        """Warm start: verify cached documents against what is remembered, without network.

        Args:
            location: Where the domain publishes, if the bundle does not say; `Location.of` will do.
            anchor: Held against what is remembered.
            bundle: Documents from the cache.
            is_stale_allowed: Take documents that are due for a refresh but have not ended; for when nobody answers.

        Returns:
            None if the documents are not fresh, or nothing is remembered of the domain: a cache is no trust anchor.

        Raises:
            PeerError: The documents do not verify; the caller drops them and refreshes.
        """
        now = self._clock()
        state = self._store.load(bundle.domain)
        if state is None or not state.root_version or bundle.domain != location.domain:
            return None
        if not is_stale_allowed and not documents_are_fresh(bundle, now):
            return None
        state = rules.strengthen(state, anchor)
        root = rules.current_root(state)
        live, _ = rules.accept_live(state, root, bundle.live, now=now)
        ends = live.expires.timestamp()
        return DomainTrust(
            domain=bundle.domain,
            level=state.level,
            root=root,
            live=live,
            live_envelope=bundle.live,
            location=kept_location(bundle) or location,
            fetched_at=bundle.fetched_at,
            fresh_until=min(bundle.fresh_until, ends),
            refresh_at=bundle.fetched_at + REFRESH_SHARE * (bundle.fresh_until - bundle.fetched_at),
            expires_at=ends,
            warnings=_warnings(state, location),
            manifests=tuple(bundle.manifests.items()),
        )

    async def fetch_stub(
        self,
        trust: DomainTrust,
        wanted: str | StubReference = "default",
        *,
        cached: ModuleLookup = _find_nothing,
        policy: PermissionsPolicy = _DEFAULT_POLICY,
        on_step: OnStep = _ignore_step,
    ) -> VerifiedStub:
        """Get and verify a stub of a trusted domain. Asks the network only for what the cache does not have.

        When the newest version is held or refused or cannot be had, the version accepted before goes on, if the cache
        has it and its domain has not revoked it.

        Args:
            trust: From `refresh` or `restore`.
            wanted: Entry of the live document's `stubs`, or a stub's own name, or one of its references.
            cached: Where to look for the module first. What it returns is verified like anything else.
            policy: The most that the stub may ask for.
            on_step: Called with `manifest`, `module` and `verify` with their seconds.

        Raises:
            PeerError: Manifest or module were refused (PERMISSIONS_HELD: the operator has to decide).
            TransportError: Nobody answered.
        """
        context = _FetchContext(trust, cached, self._rules(trust.domain, policy))
        reference = wanted if isinstance(wanted, StubReference) else select_stub(trust.live, wanted)
        try:
            return await self._newest_stub(context, reference, on_step)
        except (PeerError, TransportError) as failure:
            previous = await self._previous_stub(context, reference.name)
            if previous is None:
                raise
            _logger.warning("%s of %s stays at %s: %s", previous.name, trust.domain, previous.version, failure)
            return previous

    async def fetch_predecessor(self, trust: DomainTrust, name: str, cached: ModuleLookup) -> VerifiedStub:
        """The version before the one on trial, from the cache alone.

        Raises:
            PeerError: There is none, or it must not go on.
        """
        context = _FetchContext(trust, cached, self._rules(trust.domain))
        return await self._accepted_stub(context, name, digest=predecessor(self._remembered(trust), name))

    def _rules(self, domain: str, policy: PermissionsPolicy = _DEFAULT_POLICY) -> ManifestRules:
        return ManifestRules(
            our_domain=self._our_domain, policy=policy, now=self._clock(), updates=self._updates(domain)
        )

    async def _newest_stub(self, context: _FetchContext, reference: StubReference, on_step: OnStep) -> VerifiedStub:
        trust, started = context.trust, time.perf_counter()
        raw = _known_manifest(trust, reference)
        if raw is None:
            url = trust.location.manifest_url(reference.name)
            raw = (await self._downloads.document(trust.location, url, limits.MANIFEST_BYTES)).body
        manifest = await self._judge_manifest(context, reference, raw)
        on_step("manifest", time.perf_counter() - started)
        started = time.perf_counter()
        module = await self._downloads.module(trust.location, manifest, context.cached)
        on_step("module", time.perf_counter() - started)
        started = time.perf_counter()
        stub = make_stub(trust, manifest, raw, module)
        # The mark goes up only now: a version that could not be had must not bar the one before it.
        async with self._lock(trust.domain):
            state = self._remembered(trust)
            if not is_newest_mark(state, stub):
                _, accepted = accept_manifest(state, trust, reference, raw, context.rules)
                await self._save(accepted, before=state)
        on_step("verify", time.perf_counter() - started)
        return stub

    async def _judge_manifest(self, context: _FetchContext, reference: StubReference, raw: bytes) -> Manifest:
        async with self._lock(context.trust.domain):
            state = self._remembered(context.trust)
            try:
                return accept_manifest(state, context.trust, reference, raw, context.rules)[0]
            except PermissionsHeldError as held:
                await self._save(held.state, before=state)
                raise

    async def _previous_stub(self, context: _FetchContext, name: str) -> VerifiedStub | None:
        """The accepted version, from the cache alone, if it may go on."""
        try:
            return await self._accepted_stub(context, name)
        except PeerError:
            return None

    async def _accepted_stub(self, context: _FetchContext, name: str, *, digest: str = "") -> VerifiedStub:
        state = self._remembered(context.trust)
        manifest, raw = accept_previous(state, context.trust, name, context.rules, digest=digest)
        module = await context.cached(manifest.module.sha256)
        if module is None:
            detail = f"{name} {manifest.version} is not in the cache any more"
            raise PeerError(Code.PERMISSIONS_HELD, detail, domain=context.trust.domain)
        return make_stub(context.trust, manifest, raw, module)

    def _remembered(self, trust: DomainTrust) -> TrustState:
        state = self._store.load(trust.domain)
        if state is None or not rules.is_current_root(state, trust.live.root):
            raise PeerError(Code.BROKEN_TRUST, "another root is remembered now; refresh first", domain=trust.domain)
        return state

    def is_remembered(self, trust: DomainTrust) -> bool:
        """True if `trust` still rests on what is remembered: the operator may have changed that."""
        try:
            state = self._store.load(trust.domain)
        except PeerError:
            return False
        return state is not None and not state.is_pending and key_set_fingerprint(trust.root) in state.fingerprints

    def is_forgotten(self, domain: str) -> bool:
        """True if at most the key set that the operator named for a domain is remembered of it."""
        try:
            state = self._store.load(domain)
        except PeerError:
            return True
        return state is None or state.is_pending

    async def read_unsigned(self, domain: str, authority: str = "", name: str = "default") -> tuple[Descriptor, bytes]:
        """Read a stub of an original, unsigned catalogue: descriptor and code, to look at or to hold against a pin.

        Nothing is proven by it.

        Args:
            domain: Whose catalogue it is.
            authority: Host and port that serve it; "" = those of the specification, `catalogue.<domain>`.
            name: Of its entry.

        Raises:
            PeerError: UNSIGNED_REFUSED once the domain has signed anything; ADDRESS_REFUSED if the descriptor points
                to another host; DOCUMENT_MALFORMED.
            TransportError: Nobody answered.
        """
        if self._store.load(domain) is not None:
            raise PeerError(Code.UNSIGNED_REFUSED, "the domain signs what it publishes", domain=domain)
        return await self._downloads.unsigned_stub(domain, authority or f"catalogue.{domain}", name)

    def _lock(self, domain: str) -> trio.Lock:
        return self._locks.setdefault(domain, trio.Lock())

    async def _save(self, state: TrustState, *, before: TrustState | None) -> None:
        if state != before:
            await self._store.replace(before, state)

    async def _follow_roots(
        self,
        location: Location,
        anchor: TrustAnchor,
        state: TrustState | None,
        live_raw: bytes,
        known: DocumentBundle | None,
    ) -> tuple[TrustState, TrustState | None]:
        """Go from the remembered root, or the first one, to the one that the live document claims.

        Returns:
            The state, and what of it is on disk.
        """
        version, stored = rules.peek_root_version(live_raw, domain=location.domain), state
        if state is None or not state.root_version:
            state = await self._first_root(location, _first_anchor(location, anchor, state), version)
        state = rules.strengthen(state, anchor)
        rules.check_chain_length(state, version)
        for following in range(state.root_version + 1, version + 1):
            fetched = await self._downloads.document(location, location.root_url(following), limits.ROOT_BYTES)
            state = rules.advance(state, fetched.body)
            await self._save(state, before=stored)
            stored = state
        if known is not None and not state.live_serial:
            state = rules.raise_marks(state, rules.current_root(state), known)
        return state, stored

    async def _first_root(self, location: Location, anchor: TrustAnchor, version: int) -> TrustState:
        """Find the root that the anchor names: the current one, or with a pin the newest earlier one that fits.

        A pin stays good when the domain has rotated its keys since: the chain leads from there to today.
        """
        mismatch = PeerError(Code.FINGERPRINT_MISMATCH, "no root", domain=location.domain)
        for earlier in range(version, max(version - limits.ROOT_STEPS, 0), -1):
            fetched = await self._downloads.document(location, location.root_url(earlier), limits.ROOT_BYTES)
            try:
                return rules.begin(fetched.body, domain=location.domain, version=earlier, anchor=anchor)
            except PeerError as error:
                if error.code is not Code.FINGERPRINT_MISMATCH:
                    raise
                mismatch = error
        raise mismatch


def _first_anchor(location: Location, anchor: TrustAnchor, state: TrustState | None) -> TrustAnchor:
    """The strongest anchor there is: the operator's word, a validated TXT record, or the web."""
    if state is not None:
        return TrustAnchor.pinned(state.fingerprints[0])
    if not anchor.fingerprint and location.pin_is_validated and location.pin_hint:
        return TrustAnchor(TrustLevel.DNSSEC, location.pin_hint)
    return anchor


def _warnings(state: TrustState, location: Location) -> tuple[str, ...]:
    if location.pin_hint and location.pin_hint != state.fingerprints[-1]:
        return (f"DNS names key set {location.pin_hint[:64]}, remembered is {state.fingerprints[-1]}; DNS is ignored",)
    return ()


def _known_manifest(trust: DomainTrust, reference: StubReference) -> bytes | None:
    """The manifest from the cache, if it is the one that the live document names."""
    raw = dict(trust.manifests).get(reference.manifest_sha256)
    try:
        return raw if raw is not None and document_sha256(raw) == reference.manifest_sha256 else None
    except PeerError:
        return None
