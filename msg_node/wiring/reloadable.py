"""The parts of a node that take changed settings over, and how they take over bounds and terms.

Everything here was checked before: nothing fails, nothing waits. What is made under a bound keeps it: the queue of a
connection that is up, the wait of a message that is queued.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from federation.core.peer_terms import PeerTerms
from federation.discovery.aliases import Aliases
from federation.discovery.dialler import Dialler
from federation.discovery.domain_documents import DomainDocuments
from federation.discovery.resolver import Resolver
from federation.discovery.reverse_check import ReverseChecks
from federation.links.domain_link import reclassify
from federation.links.link_acceptor import LinkAcceptor
from federation.links.link_context import BorderRules
from federation.links.router import Federation
from federation.stubs.chosen_stubs import ChosenStubs
from federation.stubs.flight_recorder import FlightRecorders
from msg_node.admin.core.traffic import Traffic
from msg_node.admin.log_levels import LogLevels
from msg_node.admin.policy_deployment import PolicyDeployment
from msg_node.bus.bus import Bus
from msg_node.connectors.listener import Listener
from msg_node.node_state import NodeState
from msg_node.records.writer import RecordsWriter
from msg_node.sessions.core.transitions import take_rules_over
from msg_node.settings.addresses import (
    build_missed,
    build_pools,
    build_rules,
    kept_objects,
)
from msg_node.settings.delivery import build_delivery_rules
from msg_node.settings.interworking import admissions, token_readers
from msg_node.settings.model import Settings
from msg_node.settings.peer_stubs import peer_terms
from msg_node.site.publisher import live_options
from msg_node.site.site import Site
from msg_node.wiring import meaning
from msg_node.wiring.backends import Backends, LoadedBackends
from msg_node.wiring.discovery import WaysOut
from msg_node.wiring.foundation import CurrentSettings, writer_options
from msg_node.wiring.identity import IdentityServices, LoadedProviders
from msg_node.wiring.mqtt import BrokerLine, LoadedBroker
from msg_node.wiring.session_steps import LocalGate
from policy.core.gate import Gate
from stubs_cache.cache import StubsCache

if TYPE_CHECKING:
    from msg_node.admin.span_export import SpanExport
    from msg_node.wiring.cluster import ReachedNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloadable:
    """The parts of a node that take changed settings over.

    Attributes:
        current: Holds the settings in force.
        gate: Peers, lists, rates, policies.
        policies: Writes down which policies are in force.
        dialler: Internal addresses that peers may have.
        plaintext: Domains whose documents may be fetched without TLS.
        resolver: Asks again for domains that were not found.
        documents: Verify other domains by the anchors of their entries.
        stubs: What stubs of single domains are given, and may spend.
        aliases: Which names may be aliases.
        federation: Ends links of domains that are not talked to any more.
        levels: Levels of the log.
        listener: Shows the certificate of `[listen]`.
        acceptor: Knows to what links may be bound.
        reverse_checks: Know to what their proofs may be bound.
        site: Shows that of `[site]`.
        traffic: Has figures of the domains that are named.
        state: Sessions, and what proofs count.
        bus: Ends sessions whose credentials are gone.
        identity: Believes identity providers.
        backends: Ask systems elsewhere.
        mqtt: Serves runtimes behind a broker.
        borders: Hold for messages of other domains, over links and of guests.
        own_gate: Judges between runtimes of our own.
        terms: What holds for the links of single domains.
        ways: Find other domains, and connect to them.
        recorders: Record stubs.
        cache: Keeps stubs.
        records: Writes audit records.
        spans: Exports spans, None if nothing does.
        reached: Read by the other nodes of the domain, None without them.
        node_url: Our runtime address.
    """

    current: CurrentSettings
    gate: Gate
    policies: PolicyDeployment
    dialler: Dialler
    plaintext: set[str]
    resolver: Resolver
    documents: DomainDocuments
    stubs: ChosenStubs
    aliases: Aliases
    federation: Federation
    levels: LogLevels
    listener: Listener
    acceptor: LinkAcceptor | None
    reverse_checks: ReverseChecks | None
    site: Site | None
    traffic: Traffic
    state: NodeState
    bus: Bus
    identity: IdentityServices
    backends: Backends
    mqtt: BrokerLine
    borders: tuple[BorderRules, ...]
    own_gate: LocalGate
    terms: PeerTerms
    ways: WaysOut
    recorders: FlightRecorders
    cache: StubsCache
    records: RecordsWriter
    spans: SpanExport | None
    reached: ReachedNode | None
    node_url: str


def take_limits_over(parts: Reloadable, settings: Settings) -> None:
    """Let other bounds of sessions, runtimes and links count."""
    state, limits = parts.state, settings.limits
    take_rules_over(state.transitions, meaning.session_rules(settings))
    state.owners.per_session = limits.allocation_per_session
    state.guests.per_domain = limits.allocation_per_guest_domain
    state.listeners.per_session = limits.subscriptions_per_session
    parts.bus.sweeper.ping_seconds = settings.sessions.ping_seconds
    parts.listener.follow(meaning.listener_options(settings))
    for bound in (parts.bus.options.max_hops, *(rules.max_hops for rules in parts.borders)):
        bound.most = limits.max_hops
    waiting, federation = meaning.queue_limits(settings), parts.federation
    federation.max_links = limits.links
    federation.context = replace(federation.context, limits=waiting)
    for link in federation.links:
        link.queue.limits = waiting
    if parts.site is not None and settings.site is not None:
        parts.site.follow(settings.site)


def take_tables_over(parts: Reloadable, before: Settings, settings: Settings) -> None:
    """Let other rules of addresses, subscriptions, routing, deferred delivery and the twin count."""
    state, kept = parts.state, settings.subscriptions
    state.rules.follow(build_rules(settings))
    state.registry.keeps_registered = state.rules.keeps_registered
    state.delivery.follow(build_delivery_rules(settings.delivery))
    if settings.twin.objects != before.twin.objects:
        state.twin.follow(kept_objects(settings))
    if settings.allocation.pool != before.allocation.pool:
        state.owners.pools.follow(build_pools(settings), is_lent=lambda key: state.owners.claimant(key) is not None)
    missed = parts.bus.send_queues.missed
    if missed is not None and kept.catch_up_seconds:
        missed.follow(seconds=kept.catch_up_seconds, messages=kept.catch_up_messages)
    elif bool(missed is None) == bool(kept.catch_up_seconds):
        parts.bus.absences.keep(build_missed(settings))


def take_backends_over(parts: Reloadable, settings: Settings, loaded: LoadedBackends, broker: LoadedBroker) -> None:
    """Ask other systems elsewhere, run other connectors, serve runtimes behind another broker."""
    parts.backends.follow(settings, loaded)
    parts.mqtt.follow(broker)


def take_grants_over(parts: Reloadable, settings: Settings) -> frozenset[str]:
    """Grant other legacy addresses to interworking stubs; returns the domains whose stubs have to begin anew."""
    others = parts.state.interworking.follow(admissions(settings))
    parts.terms.token_readers = token_readers(settings)
    for link in parts.federation.links if others else ():
        link.inward.reconsider()
    return others


def take_aliases_over(parts: Reloadable, settings: Settings) -> None:
    """Let other rules of aliases count, for links that are up as well; the gate has other entries and lists already."""
    before, parts.aliases.rules = parts.aliases.rules, meaning.alias_rules(settings, parts.gate, parts.node_url)
    for link in parts.federation.links:
        link.inward.withdraw(parts.aliases.rules.withdrawn(link.domain, link.inward.domains(), before))


def take_terms_over(parts: Reloadable, settings: Settings) -> None:
    """Let other terms of links count, and keep others connected; the gate has them already."""
    terms, fresh = parts.terms, peer_terms(settings)
    reclassified = terms.plain ^ fresh.plain
    terms.plain, terms.connected = fresh.plain, fresh.connected
    parts.bus.from_sessions.guests.follow(meaning.main_domains(settings))
    terms.chosen, terms.plaintext, terms.bare = fresh.chosen, fresh.plaintext, fresh.bare
    parts.plaintext.clear()
    parts.plaintext.update(fresh.plaintext)
    parts.resolver.follow(meaning.peer_entries(settings))
    for link in parts.federation.links:
        if link.domain in reclassified:
            reclassify(link, parts.gate.class_of(link.domain))
            link.need.recall()  # what operators see of its stub has the class, too


def take_writers_over(parts: Reloadable, settings: Settings) -> None:
    """Let other bounds of the stubs cache, of records, spans and recordings of stubs count, and sign `live` anew."""
    parts.cache.max_bytes = settings.sandbox.cache_bytes
    parts.records.follow(writer_options(settings))
    if parts.spans is not None and settings.traces is not None:
        parts.spans.take(settings.traces.share, settings.traces.per_second)
    if parts.site is not None and parts.site.inbox is not None and settings.exchange is not None:
        parts.site.inbox.follow(settings.exchange)
    publisher = None if parts.site is None else parts.site.publisher
    if publisher is not None and settings.publish is not None:
        publisher.follow(live_options(settings, settings.publish), settings.publish.cache_seconds)
        if parts.reached is not None:
            parts.reached.follow(settings)
        if parts.acceptor is not None:
            parts.acceptor.endpoints |= {settings.publish.endpoint_url}


def take_providers_over(parts: Reloadable, settings: Settings, providers: LoadedProviders) -> None:
    """Believe other identity providers; the gate is of another era afterwards, so that flows are looked at anew."""
    parts.identity.follow(settings, providers)
    parts.own_gate.identify = parts.identity.identify
    for rules in parts.borders:
        rules.identify = parts.identity.identify
