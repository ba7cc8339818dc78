"""Makes the message bus with the services of the node."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from federation.core.border import HopBound
from federation.links.decision_records import DecisionRecords
from federation.links.link_context import UNIDENTIFIED
from msg_node.admin.core.admin_service import admin_service
from msg_node.admin.core.pep_service import pep_service
from msg_node.bus.announcements import Announcements
from msg_node.bus.bus import Bus, BusOptions, Judges, make_bus
from msg_node.bus.delivery_of_nodes import DELIVERY_OF_NODES, DeliveryOfNodes
from msg_node.bus.policies_of_nodes import OBJECTS_OF_NODES, PoliciesOfNodes, guarded_services
from msg_node.bus.recorder import Recorder
from msg_node.bus.registry_of_nodes import REGISTRIES_OF_NODES, RegistriesOfNodes
from msg_node.bus.releases_of_nodes import RELEASES_OF_NODES, ReleasesOfNodes
from msg_node.bus.send_queues import SendQueues
from msg_node.bus.services import Services
from msg_node.bus.taps import Taps
from msg_node.bus.twin_of_nodes import TWINS_OF_NODES, TwinsOfNodes
from msg_node.kernel.service import Service, ServiceRequest
from msg_node.node_state import NodeState
from msg_node.registries.core.proved_users import AskNodes, Proved, ProvedUsers
from msg_node.registries.core.registry_service import RegistryService
from msg_node.registries.core.stub_inventory import StubInventory
from msg_node.registries.core.twin_service import TwinService
from msg_node.requests.core.delivery_service import DeliveryService
from msg_node.services import VERSION, NodeFacts, make_services
from msg_node.sessions.core.session_service import Announced, PermitGuest, SessionService
from msg_node.settings.addresses import build_missed
from msg_node.settings.model import Settings
from msg_node.wiring import meaning
from msg_node.wiring.backends import Backends
from msg_node.wiring.foundation import Foundation
from msg_node.wiring.nodes import ClusterNode
from msg_node.wiring.session_steps import LocalGate, Onlooker, SessionSteps


class BuiltBus(NamedTuple):
    """The bus with what was made for it.

    Attributes:
        bus: As other parts use it.
        steps: Make what messages of sessions pass.
        onlookers: See every message, while the settings want it.
        recorder: One of them, None where the settings want none.
    """

    bus: Bus
    steps: SessionSteps
    onlookers: tuple[Onlooker, ...]
    recorder: Recorder | None

    def judge_by(self, settings: Settings) -> None:
        """Messages pass what these settings want from now on."""
        stack = self.steps.stack(settings)
        self.bus.from_sessions.judge_by(stack)
        self.bus.from_links.judge_by(stack)


def build_bus(
    foundation: Foundation,
    decisions: DecisionRecords,
    backends: Backends,
    inventory: StubInventory,
    cluster: ClusterNode | None = None,
) -> BuiltBus:
    """Make the bus, with what was stored; nothing runs yet.

    Args:
        foundation: Settings, tables, stores.
        decisions: The gate, and what records its decisions.
        backends: Services that stand in front of other servers.
        inventory: The service that lists hosted stubs.
        cluster: What only one of several nodes has.
    """
    settings, state, node = foundation.settings, foundation.state, foundation.node_url
    records = foundation.records
    guests = meaning.build_guests(settings, decisions, node, records.append, state, backends.identify)
    send_queues = SendQueues(state, guests=guests, records=records)
    taps, domain = Taps(state, send_queues, state.rules, node=node), settings.node.domain
    recorder = None if settings.recording is None else Recorder(state, send_queues, node=node, domain=domain)
    onlookers: tuple[Onlooker, ...] = (taps,) if recorder is None else (taps, recorder)
    judged = backends.validation, backends.documents
    steps = SessionSteps(LocalGate(decisions, backends.identify), state, onlookers, *judged)
    judges = Judges(guests=guests, stack=steps.stack(settings), parks=partial(meaning.parks, decisions))
    options = BusOptions(
        node=node,
        first_request=_first_number(),
        ping_seconds=settings.sessions.ping_seconds,
        max_hops=HopBound(settings.limits.max_hops),
        flows=settings.debug.flows,
        nodes=None if cluster is None else cluster.parts,
    )
    permit_guest = partial(meaning.permit_guest, guests, state.restrictions)
    of_nodes = None if cluster is None else ServicesOfNodes(state, cluster)
    answered_anywhere = {} if of_nodes is None else of_nodes.by_key
    services = _build_services(foundation, decisions, backends, inventory, permit_guest, answered_anywhere)
    backends.connectors.connect_services(services)
    if of_nodes is not None and backends.documents is not None:
        of_nodes.guard(services, steps.gate)
    _prove_users(services, foundation, backends, None if of_nodes is None else of_nodes.registries.ask_users)
    store = foundation.store if cluster is None else cluster.claims
    bus = make_bus(options, state, services, store, send_queues, judges)
    built = BuiltBus(bus, steps, onlookers, recorder)
    bus.absences.keep(build_missed(settings))
    bus.restore()
    backends.connect(bus)
    if cluster is not None and of_nodes is not None:
        of_nodes.connect(bus, services)
        backends.connect_nodes(bus, cluster.parts.questions, cluster.quota_sources())
    if recorder is not None:
        recorder.on_changed = lambda: built.judge_by(foundation.current.get())
    if bus.from_nodes is not None:
        bus.from_nodes.narrow_by(steps.gate)
    bus.from_links.judge_by(judges.stack)
    return built


class ServicesOfNodes:
    """Services of one of several nodes that answer about what all of them have."""

    def __init__(self, state: NodeState, cluster: ClusterNode) -> None:
        questions = cluster.parts.questions
        self.registries = RegistriesOfNodes(questions, RegistryService(state))
        self._twins = TwinsOfNodes(questions, TwinService(state, state.delivery.queues))
        self._delivery = DeliveryOfNodes(questions, DeliveryService(state), state.take_changes, cluster.unreachable)
        self._domains = state.domains
        self._releases = ReleasesOfNodes(cluster.identity.node, state, cluster.directory)
        self.policies = PoliciesOfNodes(cluster.identity.node, state, questions, cluster.directory)
        """Before services that answer here about objects of other nodes, once `guard` has put them there."""
        self.by_key: dict[str, Service] = {}
        """The services by canonical key."""
        for domain in state.domains:
            self.by_key[f"domain://registry.{domain}"] = self.registries.service
            self.by_key[f"domain://msg-node.{domain}/twin"] = self._twins.service
            self.by_key[f"domain://msg-node.{domain}/delivery"] = self._delivery.service

    def guard(self, services: Services, gate: LocalGate) -> None:
        """Have policies of objects at other nodes asked, and answer theirs; once, before anything runs."""
        self.policies.objects = gate
        for key, type_ in guarded_services(self._domains).items():
            services.guard(key, partial(self.policies.over, judged=type_))

    def connect(self, bus: Bus, services: Services) -> None:
        """Have the other nodes asked; once, before anything runs."""
        for domain in self._domains:
            for kind in ("", "hyperty-", "object-"):
                services.guard(f"domain://msg-node.{domain}/{kind}address-allocation", self._releases.over)
        bus.inquiries.connect(REGISTRIES_OF_NODES, self.registries.ask)
        bus.inquiries.connect(TWINS_OF_NODES, self._twins.ask)
        bus.inquiries.connect(OBJECTS_OF_NODES, self.policies.ask)
        bus.inquiries.connect(DELIVERY_OF_NODES, self._delivery.ask)
        bus.inquiries.connect(RELEASES_OF_NODES, self._releases.ask)
        self._delivery.effects = bus.effects


def _prove_users(services: Services, foundation: Foundation, backends: Backends, ask_nodes: AskNodes | None) -> None:
    """Have registrations of users judged before any registry sees them, where the settings in force want it."""

    def prove(request: ServiceRequest) -> Proved:
        identify = backends.identify
        if identify is None:
            return Proved()
        whose = (identify(request.message, domain, request.now) for domain in foundation.settings.own_domains)
        who = next((one for one in whose if one.is_verified), UNIDENTIFIED)
        return Proved(who.user, backends.identity.domains_of(who.issuer)) if who.is_verified else Proved()

    state = foundation.state
    proved = ProvedUsers(
        state.registry,
        state.domains,
        is_wanted=lambda: foundation.current.get().identity.registered_users == "proved",
        prove=prove,
        is_there=lambda number: state.sessions.get(number) is not None,
    )
    proved.ask_nodes = ask_nodes
    for domain in state.domains:
        services.guard(f"domain://registry.{domain}", proved.over)


def _build_services(
    foundation: Foundation,
    decisions: DecisionRecords,
    backends: Backends,
    inventory: StubInventory,
    permit_guest: PermitGuest,
    of_nodes: Mapping[str, Service],
) -> Services:
    settings, state = foundation.settings, foundation.state
    at = {**of_nodes, **backends.services}
    sessions = SessionService(
        state.lifecycle,
        state.own,
        announced=lambda: _announced(foundation.current.get()),
        permit=partial(meaning.permit_session, decisions, settings.node.domain, state.restrictions),
        permit_guest=permit_guest,
        takes_guests=lambda: foundation.current.get().sessions.guests,
    )
    announcements = Announcements(
        foundation.node_url,
        state.listeners,
        first_id=_first_number(),
        notifies_presence=lambda: foundation.current.get().sessions.presence,
    )
    return make_services(
        state,
        sessions,
        announcements,
        NodeFacts(foundation.node_url, VERSION, lambda: foundation.current.get().catalogue.guest_stubs),
        more={"stubs": inventory, "admin": admin_service, "pep": pep_service},
        at=at,
    )


def _announced(settings: Settings) -> Announced:
    return Announced(
        ("federation", "catch-up") if settings.subscriptions.catch_up_seconds else ("federation",),
        settings.sessions.grace_seconds,
        settings.sessions.ping_seconds,
        settings.https.poll_seconds,
    )


def _first_number() -> int:
    """Random start of a series of ids. Source: message specification, section 3."""
    return random.SystemRandom().randrange(1, 1 << 31)
