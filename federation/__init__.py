"""Links to other domains: discovery, supervision of stubs, borders, routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "DecisionRecords",
    "Dialler",
    "DomainDocuments",
    "DomainLink",
    "Federation",
    "Identity",
    "LinkAcceptor",
    "LinkContext",
    "Resolver",
    "StubHost",
    "StubProvider",
    "StubSources",
    "StubSupervisor",
]

if TYPE_CHECKING:
    from federation.discovery.dialler import Dialler
    from federation.discovery.domain_documents import DomainDocuments
    from federation.discovery.identity import Identity
    from federation.discovery.resolver import Resolver
    from federation.links.decision_records import DecisionRecords
    from federation.links.domain_link import DomainLink
    from federation.links.link_acceptor import LinkAcceptor
    from federation.links.link_context import LinkContext
    from federation.links.router import Federation
    from federation.stubs.instance_run import StubSources
    from federation.stubs.stub_host import StubHost
    from federation.stubs.stub_provider import StubProvider
    from federation.stubs.supervisor import StubSupervisor
else:
    __getattr__ = public_names(
        __name__,
        {
            "DecisionRecords": "federation.links.decision_records",
            "Dialler": "federation.discovery.dialler",
            "DomainDocuments": "federation.discovery.domain_documents",
            "DomainLink": "federation.links.domain_link",
            "Federation": "federation.links.router",
            "Identity": "federation.discovery.identity",
            "LinkAcceptor": "federation.links.link_acceptor",
            "LinkContext": "federation.links.link_context",
            "Resolver": "federation.discovery.resolver",
            "StubSupervisor": "federation.stubs.supervisor",
            "StubHost": "federation.stubs.stub_host",
            "StubSources": "federation.stubs.stub_deployment",
            "StubProvider": "federation.stubs.stub_provider",
        },
    )
