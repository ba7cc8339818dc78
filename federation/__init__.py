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
    from federation.decision_records import DecisionRecords
    from federation.dialler import Dialler
    from federation.domain_documents import DomainDocuments
    from federation.domain_link import DomainLink
    from federation.identity import Identity
    from federation.instance_run import StubSources
    from federation.link_acceptor import LinkAcceptor
    from federation.link_context import LinkContext
    from federation.resolver import Resolver
    from federation.router import Federation
    from federation.stub_host import StubHost
    from federation.stub_provider import StubProvider
    from federation.supervisor import StubSupervisor
else:
    __getattr__ = public_names(
        __name__,
        {
            "DecisionRecords": "federation.decision_records",
            "Dialler": "federation.dialler",
            "DomainDocuments": "federation.domain_documents",
            "DomainLink": "federation.domain_link",
            "Federation": "federation.router",
            "Identity": "federation.identity",
            "LinkAcceptor": "federation.link_acceptor",
            "LinkContext": "federation.link_context",
            "Resolver": "federation.resolver",
            "StubSupervisor": "federation.supervisor",
            "StubHost": "federation.stub_host",
            "StubSources": "federation.stub_deployment",
            "StubProvider": "federation.stub_provider",
        },
    )
