"""Makes the links to other domains, between the bus and the stubs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from federation.core.auth import Claims
from federation.core.border import HopBound
from federation.core.carrier import LinkPort
from federation.discovery.reverse_check import ReverseChecks
from federation.links.decision_records import DecisionRecords
from federation.links.link_acceptor import LinkAcceptor
from federation.links.link_context import (
    BorderRules,
    Identify,
    LinkClock,
    LinkContext,
    LinkObserver,
    LocalBus,
    OurNames,
)
from federation.links.link_records import Recording
from federation.links.router import Federation
from federation.stubs.flight_recorder import FlightRecorders
from federation.stubs.instance_run import CanaryTerms, StubSources
from federation.stubs.stub_host import StubHost
from msg_node.addresses.core.askers import asker_of
from msg_node.kernel.restrictions import Restricted
from msg_node.records.quarantine import Quarantine
from msg_node.registries.core.stub_inventory import state_events
from msg_node.registries.stub_leases import StubLeases
from msg_node.settings.model import Settings
from msg_node.storage.stop_mark import StopMark
from msg_node.wiring import meaning
from msg_node.wiring.allocated_addresses import AllocatedAddresses
from msg_node.wiring.bus import BuiltBus
from msg_node.wiring.discovery import Discovery
from msg_node.wiring.foundation import Foundation
from msg_node.wiring.nodes import ClusterNode
from msg_node.wiring.recordings import recorded_bytes, recordings_of
from msg_node.wiring.trust import Trust
from policy.core.gate import Gate
from protofly.message import Message
from sandbox.host import Sandbox


def build_supervision(
    foundation: Foundation,
    discovery: Discovery,
    trust: Trust,
    gate: Gate,
    sandbox: Sandbox,
    cluster: ClusterNode | None,
) -> StubSources:
    """Make the sources of stubs of other domains, and what runs them; `cluster` is None for a node alone."""
    settings, state = foundation.settings, foundation.state
    recorders = FlightRecorders(recordings_of(settings), recorded_bytes(settings))
    host = StubHost(sandbox, discovery.ways.lines, trust.identity, state.interworking, trust.terms, recorders)

    def forbidden(domain: str) -> str | None:
        found = state.restrictions.find(Restricted.STUB, domain)
        return None if found is None else found.reason

    def canary(domain: str) -> CanaryTerms | None:
        return meaning.canary_terms(foundation.current.get(), domain)

    discovery.resolver.asker_of = partial(asker_of, state)
    addresses = AllocatedAddresses(state) if cluster is None else cluster.parts.addresses
    return StubSources(trust.documents, trust.provider, host, gate, addresses, forbidden, canary)


def build_link_context(
    foundation: Foundation,
    decisions: DecisionRecords,
    trust: Trust,
    built: BuiltBus,
    identify: Identify | None,
    quarantine: Quarantine,
) -> LinkContext:
    """Make the parts that all links share: what they may send, where they deliver, what they report."""
    bus = built.bus
    settings, state, node = foundation.settings, foundation.state, foundation.node_url
    leases = StubLeases(state, bus.effects.publish_statuses, then=bus.from_links.link_is_live)
    answer: Callable[[Message], None] = bus.refusals.answer
    for one in built.onlookers:
        answer = one.over_answers(answer)
    ours = OurNames(settings.node.domain, node, frozenset(settings.node.aliases))
    return LinkContext(
        BorderRules(
            ours,
            decisions.gate,
            identify,
            state.interworking,
            listed_aliases=lambda domain: trust.aliases.rules.listed(domain),
            max_hops=HopBound(settings.limits.max_hops),
            flows=settings.debug.flows,
            recipients=decisions.recipients,
        ),
        Recording(
            ours.domain,
            decisions.gate,
            foundation.records.append,
            settings.records.hash_addresses,
            decisions.carry_out,
            record_run=foundation.records.append_run,
        ),
        LocalBus(
            deliver=bus.from_links.take,
            answer=answer,
            wait_for_room=bus.send_queues.wait_for_room,
            is_wanted=bus.from_links.is_wanted,
            wake=bus.send_queues.wake,
        ),
        LinkObserver(
            on_live=leases.came,
            on_lost=leases.went,
            on_stub_state=lambda status: bus.effects.publish_events(state_events(status, node, state.listeners)),
            quarantine=quarantine.keep,
        ),
        limits=meaning.queue_limits(settings),
        terms=trust.terms,
        clock=LinkClock(started_seconds=-inf) if StopMark(settings.node.data_dir).take() else LinkClock(),
    )


def build_acceptor(
    foundation: Foundation, trust: Trust, federation: Federation, cluster: ClusterNode | None
) -> LinkAcceptor | None:
    """Make the acceptor of links of other domains, None if this node publishes no endpoint."""

    async def admit(claims: Claims, stream: str) -> LinkPort:
        if cluster is not None:
            federation.visitors.check(claims)
            await cluster.parts.places.take(claims.iss, stream)
        return federation.admit(claims)

    settings = foundation.settings
    if settings.publish is None:
        return None
    return LinkAcceptor(
        identity=trust.identity,
        endpoints=frozenset({settings.publish.endpoint_url}),
        bindings=meaning.bindings(settings),
        admit=admit,
    )


def build_reverse_checks(settings: Settings, trust: Trust, federation: Federation) -> ReverseChecks | None:
    """Make what answers other domains whether they would be admitted, None if this node publishes nothing."""
    if settings.publish is None or settings.site is None:
        return None
    return ReverseChecks(trust.identity, bindings=meaning.site_bindings(settings), foresee=federation.visitors.foresee)
