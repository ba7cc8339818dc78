"""From a domain's name to code that may run: documents, module, machine code; each step with its time.

Warm starts need no network: module and compiled code come from the stubs cache and are verified again. Source: design,
section 5; trust and hosts, section 3.6.
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
from catalogue_client.core.state import DomainTrust, FailedModule
from federation.core.stub_release import ReleaseAction, ReleaseEvent
from federation.core.stub_status import StepTimes, StubStatus
from federation.discovery.domain_documents import DomainDocuments
from federation.stubs.chosen_stubs import ChosenStubs, InstanceTerms
from federation.stubs.stub_releases import Candidate, StubReleases
from protofly.errors import Code, HostError, PeerError, TransportError
from protofly.stub import VerifiedStub
from sandbox.core.module_check import inspect_module
from sandbox.core.scripts import code_sha256
from sandbox.host import Sandbox
from stubs_cache.cache import StubsCache
from stubs_cache.core.entry import keys_of_stub

logger = logging.getLogger("federation")

OUR_DECISIONS = frozenset({Code.STUB_CONFIGURATION, Code.STUB_NEEDS_MORE, Code.STUB_FORBIDDEN})
"""Codes of our own decisions against a valid module."""
SWEEP_SECONDS = 3_600.0
"""Seconds between two removals of unused entries from the cache. Source: trust and hosts, section 3.1 (Istio)."""


@dataclass(frozen=True, slots=True)
class Package:
    """A stub that may run, its machine code, and the terms of its instances.

    `has_alternatives`: there are other stubs that this node would try, of its domain or the version before it.
    """

    stub: VerifiedStub
    code: bytes
    terms: InstanceTerms
    has_alternatives: bool = False


class StubProvider:
    """Gets stubs for domains.

    Args:
        documents: Gets what their domains publish.
        client: Fetches modules and verifies them.
        cache: Keeps modules and machine code on disk.
        sandbox: Compiles.
        chosen: What the operator says about stubs.
        forbidden: Says why the operator lets a module run for no domain, by its digest; None: it may.

    Attributes:
        releases: What newer versions do here.
    """

    def __init__(
        self,
        *,
        documents: DomainDocuments,
        client: CatalogueClient,
        cache: StubsCache,
        sandbox: Sandbox,
        chosen: ChosenStubs,
        forbidden: Callable[[str], str | None] = lambda _sha256: None,
    ) -> None:
        self._chosen = chosen
        self._forbidden = forbidden
        self._documents = documents
        self._client = client
        self._cache = cache
        self._sandbox = sandbox
        self._code_names: dict[str, str] = {}  # of the modules that were started last: what they were compiled from
        self._compiling: weakref.WeakValueDictionary[str, trio.Lock] = weakref.WeakValueDictionary()
        self.releases = StubReleases(client, documents, cache.get_module, time.monotonic)

    async def package(self, domain: str, times: StepTimes, *, asked_by: str = "") -> Package:
        """Everything that is needed to run the stub of `domain`; `asked_by` is whose message needs it.

        A stub that may not run by the settings is refused before it is compiled.

        Raises:
            PeerError: Something about the domain was refused.
            TransportError: Nobody answered.
        """
        started = time.perf_counter()
        if self._chosen.is_chosen(domain):
            package = await self._prepared(await self._chosen.load(domain), times)
        else:
            package = await self._published(domain, times, asked_by)
        logger.info(
            "stub %s %s of %s is verified and compiled after %.0f ms",
            package.stub.name,
            package.stub.version,
            domain,
            (time.perf_counter() - started) * 1000,
        )
        return package

    async def _published(self, domain: str, times: StepTimes, asked_by: str) -> Package:
        trust = await self._documents.trust_of(domain, is_refresh=False, times=times, asked_by=asked_by)
        try:
            return await self._first_that_runs(trust, times)
        except (PeerError, TransportError):
            if not times.is_warm:
                raise
            times.steps.clear()  # what the cache had does not hold together: once more, from the source
            trust = await self._documents.trust_of(domain, is_refresh=True, times=times)
            return await self._first_that_runs(trust, times)

    async def _first_that_runs(self, trust: DomainTrust, times: StepTimes) -> Package:
        """Try the stubs that a domain offers, one after the other; raises what the first one met if none can be run."""
        failures: list[PeerError | TransportError] = []
        tried: set[str] = set()
        while candidates := [one for one in self.releases.candidates(trust) if one.manifest_sha256 not in tried]:
            candidate = candidates[0]
            tried.add(candidate.manifest_sha256)
            try:
                package = await self._runnable(trust, candidate, times)
                return replace(package, has_alternatives=len(self.releases.candidates(trust)) > 1)
            except (PeerError, TransportError) as failure:
                failures.append(failure)
                logger.warning(
                    "the stub %s of %s cannot be run: %s",
                    candidate.reference.name,
                    trust.domain,
                    failure,
                    extra={"domain": trust.domain},
                )
        raise failures[0]

    async def _runnable(self, trust: DomainTrust, candidate: Candidate, times: StepTimes) -> Package:
        cached, reference = self._cache.get_module, candidate.reference
        if candidate.is_predecessor:
            stub = await self._client.fetch_predecessor(trust, reference.name, cached)
        else:
            stub = await self._client.fetch_stub(trust, reference, cached=cached, on_step=times.add)
        await self._keep(trust, stub)
        try:
            return await self._prepared(stub, times)
        except PeerError as exc:
            if not await self._is_rolled_back(stub, exc):
                raise
            package = await self._prepared(await self._client.fetch_stub(trust, reference, cached=cached), times)
            logger.warning("%s of %s stays at %s", stub.name, trust.domain, package.stub.version)
            return package

    async def _is_rolled_back(self, stub: VerifiedStub, exc: PeerError) -> bool:
        """True when the module of a newer version cannot run here at all, so that the version before it goes on."""
        if exc.code in OUR_DECISIONS or not self.releases.begin(stub, is_beside=False):
            return False
        why = FailedModule(code=exc.code.word, detail=exc.detail)
        return await self.releases.happened(stub, ReleaseEvent.FAULT, why) is ReleaseAction.ROLL_BACK

    async def _prepared(self, stub: VerifiedStub, times: StepTimes) -> Package:
        """Judge and compile a verified stub.

        Raises:
            PeerError: It may not run by the settings or by the word of an operator, or cannot be compiled.
        """
        self.check_allowed(stub)
        terms = self._chosen.terms(stub)
        return Package(stub, await self._compiled(stub, times), terms)

    def check_allowed(self, stub: VerifiedStub) -> None:
        """Raise PeerError STUB_FORBIDDEN for a module that operators have forbidden, meanwhile too."""
        if (reason := self._forbidden(stub.module_sha256)) is not None:
            detail = f"module {stub.module_sha256} is forbidden here" + (f": {reason}" if reason else "")
            raise PeerError(Code.STUB_FORBIDDEN, detail, domain=stub.domain)

    async def run_sweeper(
        self,
        running: Callable[[], Iterable[StubStatus]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep the stubs cache within its bounds until cancelled: at the start, hourly, and when it becomes too large.

        What the `running` stubs were started from stays: their next start is to be a warm one. After each sweep,
        catalogues whose scripts are pinned are asked whether these have changed.
        """
        await self._sweep(running())
        task_status.started()
        while True:
            with trio.move_on_after(SWEEP_SECONDS):
                await self._cache.wait_full()
            await self._sweep(running())
            await self._chosen.look_for_changes([stub.domain for stub in running()])

    async def _sweep(self, running: Iterable[StubStatus]) -> None:
        engine = self._sandbox.fingerprint
        running = list(running)
        started = {stub.module_sha256 for stub in running}
        self._code_names = {sha256: name for sha256, name in self._code_names.items() if sha256 in started}
        kept = {key for stub in running for key in self._keys_of(stub, engine)}
        try:
            evictions = await self._cache.evict(kept=kept)
        except HostError as exc:
            logger.warning("the stubs cache cannot be swept: %s", exc)
            return
        for reason, count in Counter(eviction.reason.value for eviction in evictions).items():
            logger.info("the stubs cache lets go of %d files (%s)", count, reason)

    def _keys_of(self, stub: StubStatus, engine: str) -> frozenset[str]:
        sha256 = stub.module_sha256
        return keys_of_stub(stub.domain, sha256, self._code_names.get(sha256, sha256), engine)

    async def _keep(self, trust: DomainTrust, stub: VerifiedStub) -> None:
        try:
            await self._cache.put_module(stub.module)
        except HostError as exc:
            logger.warning("the stubs cache takes nothing: %s", exc)
        await self._documents.keep(trust, stub)

    async def _compiled(self, stub: VerifiedStub, times: StepTimes) -> bytes:
        source_sha256 = self._code_names[stub.module_sha256] = code_sha256(stub.module)
        async with self._compiling.setdefault(
            source_sha256, trio.Lock()
        ):  # who needs the same code waits for the first
            return await self._code(stub, source_sha256, times)

    async def _code(self, stub: VerifiedStub, source_sha256: str, times: StepTimes) -> bytes:
        started = time.perf_counter()
        fingerprint = self._sandbox.fingerprint
        code = await self._cache.get_compiled(source_sha256, fingerprint)
        if code is not None:
            if source_sha256 != stub.module_sha256:  # then it may be the code of another package
                inspect_module(stub.module)
            times.add("cached code", time.perf_counter() - started)
            return code
        code = await self._sandbox.compile(stub.module)
        try:
            await self._cache.put_compiled(source_sha256, fingerprint, code)
        except HostError as exc:
            logger.warning("the stubs cache takes nothing: %s", exc)
        times.add("compile", time.perf_counter() - started)
        return code
