"""The table of services: which address of the node is served by what. Source: message specification, section 2.4."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msg_node.addresses.core.allocation_service import AllocationService
from msg_node.addresses.core.observers import Observers
from msg_node.addresses.core.subscription_service import SubscriptionService
from msg_node.bus.announcements import Announcements
from msg_node.bus.services import Services, SessionRequests, connector_off, no_such_service
from msg_node.kernel.service import Answer, Service, ServiceRequest
from msg_node.node_state import NodeState
from msg_node.registries.core.registry_service import RegistryService
from msg_node.registries.core.twin_service import TwinService
from msg_node.requests.core.delivery_service import DeliveryService, InboxService
from msg_node.sessions.core.session_service import SessionService
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError

VERSION = "0.2.0"
"""Of the program."""
_OFF = ("msg-node.{}/peers", "idm.{}", "qos.{}", "qos-broker.{}")
"""Services of the address plan that are off unless the settings make them."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about the node for readers of `domain://msg-node.<d>`.

    Attributes:
        node_url: Our runtime address.
        version: Of the program.
        guest_stubs: Runtimes may run stubs of other domains themselves.
    """

    node_url: str
    version: str
    guest_stubs: Callable[[], bool] = lambda: True


def make_services(
    state: NodeState,
    session_service: SessionService,
    announcements: Announcements,
    facts: NodeFacts,
    *,
    more: Mapping[str, Service] | None = None,
    at: Mapping[str, Service] | None = None,
) -> Services:
    """Make the table of services.

    Args:
        state: The durable state.
        session_service: Serves `mn:/session`.
        announcements: Words what subscribers are notified of.
        facts: What the node says about itself.
        more: Further services by path below `msg-node`, such as `stubs`.
        at: Services by canonical key, such as `global://registry`: in place of what is there without them. A key that
            ends in `*` stands for all that begin with what is before it.
    """
    observers = Observers(state)
    services: dict[str, Service] = {"global://registry": connector_off}
    information = _information(facts, lambda: made.offered())
    for domain in state.domains:
        node = f"domain://msg-node.{domain}"
        services |= {"domain://" + pattern.format(domain): connector_off for pattern in _OFF}
        services |= {
            node: information,
            f"{node}/address-allocation": AllocationService(state),
            f"{node}/hyperty-address-allocation": AllocationService(state, fixed_scheme="hyperty"),
            f"{node}/object-address-allocation": AllocationService(state, default_scheme="comm"),
            f"{node}/sm": SubscriptionService(state, observers),
            f"{node}/delivery": DeliveryService(state),
            f"{node}/inbox": InboxService(state),
            f"{node}/twin": TwinService(state, state.delivery.queues),
            f"domain://registry.{domain}": RegistryService(state),
        }
        services |= {f"{node}/{path}": service for path, service in (more or {}).items()}
    services |= at or {}
    services |= {f"domain://msg-node.{domain}/*": no_such_service for domain in sorted(state.domains)}
    sessions = SessionRequests(session_service, state.sessions, announcements, state.take_changes)
    made = Services(state, services, sessions, announcements, observers)
    return made


def _information(facts: NodeFacts, offered: Callable[[], Iterable[str]]) -> Service:
    def read(request: ServiceRequest) -> Answer:
        if request.message.type != "read":
            raise PeerError(Code.BAD_TYPE, "this service knows read")
        value = {
            "name": facts.node_url,
            "version": facts.version,
            "domain": request.domain,
            "guestStubs": facts.guest_stubs(),
            "functions": sorted(key for key in offered() if domain_of(canonical_key(key)) == request.domain),
        }
        return Answer(value=value)

    return read
