"""Makes instances of stubs ready to run: a worker that has loaded the code, and what the instance may do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from federation.core.interworking import Interworking
from federation.core.peer_terms import PeerTerms
from federation.core.service_tokens import ServiceTokens
from federation.core.stub_settings import StubSettings
from federation.discovery.identity import Identity
from federation.links.domain_link import DomainLink
from federation.stubs.egress import EgressRules, LineOpener
from federation.stubs.flight_recorder import FlightRecorders
from federation.stubs.hosted_stub import StubInstance
from federation.stubs.stub_provider import Package
from sandbox.host import Sandbox, StubProcess


@dataclass(frozen=True, slots=True)
class StubHost:
    """Hosts the stubs of all domains.

    Attributes:
        sandbox: Runs workers.
        opener: Opens the lines of stubs.
        identity: Signs for them, and checks what their far ends prove.
        interworking: Says which stubs may be of that kind.
        terms: What else holds for single domains.
        recorders: Record the stubs of some domains.
    """

    sandbox: Sandbox
    opener: LineOpener
    identity: Identity
    interworking: Interworking
    terms: PeerTerms
    recorders: FlightRecorders

    async def start_worker(self, package: Package) -> StubProcess:
        """A worker with the code of a package, within the budget of its terms.

        Raises:
            StubFaultError: See `Sandbox.start_worker`.
        """
        process = await self.sandbox.start_worker(package.stub.domain, package.code, package.terms.budget)
        self.recorders.follow(process, package.stub)
        return process

    def describe(self, package: Package, link: DomainLink) -> None:
        """Put what runs into the inventory that operators read."""
        stub, domain = package.stub, link.domain
        ranges = ", ".join(map(str, self.interworking.effective(domain)))
        withheld = ", ".join(package.terms.grant.withheld(stub))
        link.stub.description = {
            "name": stub.name,
            "version": stub.version,
            "sha256": stub.module_sha256,
            "level": stub.level.value,
            **({"class": "plain"} if domain in self.terms.plain else {}),
            **({"interworking": ranges} if stub.manifest.interworking else {}),
            **({"withheld": withheld} if withheld else {}),
        }
        link.stub.verified(module_sha256=stub.module_sha256, version=stub.version, ranges=ranges)

    def instance(self, package: Package, process: StubProcess, link: DomainLink, stream: str) -> StubInstance:
        """One instance of a package for a link; it continues `stream` of ours, and that of the far end."""
        domain = link.domain
        admission = self.interworking.admission(domain)
        tokens = self.interworking.tokens(domain) or ServiceTokens()
        peer_stream, delivered = link.machine.streams.newest()
        settings = StubSettings(
            self.identity.domain,
            self.identity.node,
            link.stub.url,
            domain,
            stream,
            peer_stream,
            delivered,
            tokens.names,
            package.terms.configuration,
        )
        grant = package.terms.grant
        if admission is not None and not admission.allows_http:
            grant = replace(grant, http=False)
        rules = EgressRules(
            domain,
            package.stub.endpoints,
            domain in self.terms.plaintext,
            tokens,
            self.terms.token_readers.get(domain),
        )
        return StubInstance(
            package.stub,
            process,
            settings,
            rules,
            self.opener,
            self.identity,
            link.stub.meters,
            grant,
        )
