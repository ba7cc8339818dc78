"""Which of a domain's stubs is tried next, and what follows from what a newer version does here.

`core/stub_release` decides; marks of versions that failed are in the trust store, so that they outlive the node.
Source: trust and hosts, sections 3.4 and 3.6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from catalogue_client.client import CatalogueClient
from catalogue_client.core.selection import fitting_stubs
from catalogue_client.core.state import DomainTrust, FailedModule
from catalogue_client.downloads import ModuleLookup
from federation.core.stub_release import ReleaseAction, ReleaseEvent, Stage, StubRelease
from federation.discovery.domain_documents import DomainDocuments
from protofly.documents import StubReference
from protofly.errors import HostError
from protofly.stub import VerifiedStub

logger = logging.getLogger("federation")

STUB_TRIES = 3
"""Stubs of one domain that are tried in one deployment; a domain may offer many."""
_DOMAINS = 1000
"""Domains of which failed starts and trials are remembered; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stub that may be tried.

    Attributes:
        reference: What its domain offers.
        manifest_sha256: Its manifest.
        is_predecessor: It is the version before the one that is offered, which is on trial.
    """

    reference: StubReference
    manifest_sha256: str
    is_predecessor: bool = False


class StubReleases:
    """Starts and trials of the stubs of all domains.

    Args:
        client: Verifies stubs, and keeps marks.
        documents: Of their domains.
        cached: Modules that are kept.
        now: The clock, in monotonic seconds.
    """

    def __init__(
        self, client: CatalogueClient, documents: DomainDocuments, cached: ModuleLookup, now: Callable[[], float]
    ) -> None:
        self._client = client
        self._documents = documents
        self._cached = cached
        self._now = now
        self._failed_starts: dict[str, set[str]] = {}
        self._trials: dict[str, tuple[str, StubRelease]] = {}

    def candidates(self, trust: DomainTrust) -> list[Candidate]:
        """The stubs that are tried, in order. When all have failed at their start, the first one is first again.

        Raises:
            PeerError: The domain offers none, or none that fits.
        """
        found = []
        for one in fitting_stubs(trust.live)[:STUB_TRIES]:
            found.append(Candidate(one, one.manifest_sha256))
            before = self._client.versions.predecessor(trust.domain, one.name)
            if before:
                found.append(Candidate(one, before, is_predecessor=True))
        failed = self._failed_starts.get(trust.domain, set())
        failed &= {one.manifest_sha256 for one in found}  # what is not offered any more is forgotten
        if len(failed) == len(found):
            self._failed_starts.pop(trust.domain, None)
            return found
        return sorted(found, key=lambda one: one.manifest_sha256 in failed)

    def start_failed(self, stub: VerifiedStub) -> None:
        """Note that an instance failed at its start, or got no line: another stub of its domain is tried first."""
        _make_room(self._failed_starts, stub.domain)
        self._failed_starts.setdefault(stub.domain, set()).add(stub.manifest_sha256)

    # Trials.

    def begin(self, stub: VerifiedStub, *, is_beside: bool) -> bool:
        """A version is started, `is_beside` the one that runs; returns whether it is on trial.

        A trial that was interrupted goes on.
        """
        if not self._client.versions.is_on_trial(stub):
            return False
        digest, release = self._trials.get(stub.domain, ("", StubRelease(is_beside=is_beside)))
        if digest != stub.manifest_sha256:
            _make_room(self._trials, stub.domain)
            self._trials[stub.domain] = (stub.manifest_sha256, StubRelease(is_beside=is_beside))
        elif not is_beside:
            release.handle(ReleaseEvent.OLDER_ENDED, self._now())
        return True

    async def happened(self, stub: VerifiedStub, event: ReleaseEvent, why: FailedModule | None = None) -> ReleaseAction:
        """Take in what happened to a version; what is to be marked is on disk when this returns.

        Args:
            stub: The version. One that is not on trial may be the predecessor of one that is.
            event: What happened to it.
            why: What was wrong, for a version that may have failed.
        """
        digest, release = self._trials.get(stub.domain, ("", None))
        if release is None:
            return ReleaseAction.NOTHING
        is_older = digest != stub.manifest_sha256
        if is_older:
            if event is not ReleaseEvent.LIVE or release.stage is not Stage.SET_ASIDE:
                return ReleaseAction.NOTHING
            event, why = ReleaseEvent.OLDER_LIVE, FailedModule(code="connect-failed", detail="it got no line")
        action = release.handle(event, self._now())
        if action is ReleaseAction.TRY_OLDER:
            self.start_failed(stub)
        elif action is ReleaseAction.ROLL_BACK:
            del self._trials[stub.domain]
            if not await self._mark(stub, digest, why or FailedModule(code=event.value)):
                return ReleaseAction.NOTHING
        return action

    def seconds_until_proved(self, stub: VerifiedStub) -> float | None:
        """Seconds until a version on trial has carried for long enough; None for others."""
        digest, release = self._trials.get(stub.domain, ("", None))
        if release is None or digest != stub.manifest_sha256:
            return None
        return release.seconds_until_proved(self._now())

    async def prove(self, stub: VerifiedStub) -> None:
        """A version has proved itself here."""
        self._trials.pop(stub.domain, None)
        self._failed_starts.pop(stub.domain, None)
        try:
            await self._client.versions.prove(stub)
        except HostError as exc:
            logger.warning("that %s of %s has proved itself cannot be stored: %s", stub.name, stub.domain, exc)

    async def _mark(self, stub: VerifiedStub, manifest_sha256: str, why: FailedModule) -> bool:
        """Mark the version on trial as failed; False if that changes nothing, as no other may go on."""
        trust = self._documents.believed(stub.domain)
        if trust is None:
            return False
        try:
            return await self._client.versions.fail(trust, stub.name, manifest_sha256, why, cached=self._cached)
        except HostError as exc:
            logger.error("that %s of %s has failed cannot be stored: %s", stub.name, stub.domain, exc)
            return False


def _make_room(by_domain: MutableMapping[str, Any], domain: str) -> None:
    if domain not in by_domain and len(by_domain) >= _DOMAINS:
        del by_domain[next(iter(by_domain))]
