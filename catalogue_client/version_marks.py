"""What the versions of foreign stubs have done at this node, in the trust store: on trial, proved, failed.

`core/updates` has the rules. Source: trust and hosts, section 3.6, step 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from catalogue_client.core.state import DomainTrust, FailedModule, TrustState
from catalogue_client.core.updates import failed, predecessor, proved
from catalogue_client.core.verify import ManifestRules, accept_previous
from catalogue_client.downloads import ModuleLookup
from catalogue_client.trust_store import ChangedMeanwhileError, TrustStore
from protofly.errors import PeerError
from protofly.stub import VerifiedStub

_TRIES: Final = 5
"""How often a mark is written anew that another one has overtaken."""


class VersionMarks:
    """The marks of all domains.

    Args:
        store: Keeps them.
        rules: What the manifests of a domain are judged by now.
    """

    def __init__(self, store: TrustStore, rules: Callable[[str], ManifestRules]) -> None:
        self._store = store
        self._rules = rules

    def predecessor(self, domain: str, name: str) -> str:
        """Digest of the manifest before that of a stub on trial; "" if the accepted one is on trial no more."""
        state = self._store.load(domain)
        return "" if state is None else predecessor(state, name)

    def is_on_trial(self, stub: VerifiedStub) -> bool:
        """True if a version is the newest accepted one, and has not proved itself here yet."""
        state = self._store.load(stub.domain)
        mark = None if state is None else state.stubs.get(stub.name)
        if mark is None or mark.manifest_sha256 != stub.manifest_sha256:
            return False
        return bool(self.predecessor(stub.domain, stub.name))

    async def fail(
        self, trust: DomainTrust, name: str, manifest_sha256: str, why: FailedModule, *, cached: ModuleLookup
    ) -> bool:
        """Mark the accepted version of a stub as failed here, durably, so that its predecessor goes on.

        Args:
            trust: Of its domain; has the manifests of the cache.
            name: Of the stub.
            manifest_sha256: Of the version; another one may be accepted by now.
            why: For the operator.
            cached: Where the module of the predecessor has to be.

        Returns:
            False if no predecessor may go on, or another version is accepted by now: then nothing is marked.

        Raises:
            HostError: STORAGE.
        """

        def change(state: TrustState) -> TrustState:
            return failed(state, name, manifest_sha256, why)

        state = self._store.load(trust.domain)
        if state is None or change(state) == state:
            return False
        try:
            following, _ = accept_previous(change(state), trust, name, self._rules(trust.domain))
        except PeerError:
            return False
        if await cached(following.module.sha256) is None:
            return False
        await self._write(trust.domain, change)
        return True

    async def prove(self, stub: VerifiedStub) -> None:
        """Note that a version has proved itself here.

        Raises:
            HostError: STORAGE.
        """
        await self._write(stub.domain, lambda state: proved(state, stub.name, stub.manifest_sha256))

    async def _write(self, domain: str, change: Callable[[TrustState], TrustState]) -> None:
        for left in reversed(range(_TRIES)):
            state = self._store.load(domain)
            if state is None or change(state) == state:
                return
            try:
                await self._store.replace(state, change(state))
            except ChangedMeanwhileError:  # by an answer that came, or by the operator: once more
                if not left:
                    raise
            else:
                return
