"""Wires the node and runs it: the one place that knows every concrete thing.

Start order is dependency order, shutdown is structure: cancelling the outermost nursery ends listeners first, then
links, then the services that they used; each service cleans up behind itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import signal
import ssl
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from secrets import token_bytes

import trio

from catalogue_client.client import CatalogueClient
from catalogue_client.http_fetcher import HttpFetcher
from catalogue_client.trust_store import TrustStore
from federation.aliases import Aliases
from federation.attempt_log import AttemptLog
from federation.chosen_stubs import ChosenStubs
from federation.core.message_ids import MessageIds
from federation.core.outbound_queue import QueueLimits
from federation.core.stub_status import StubAddresses
from federation.decision_records import DecisionRecords
from federation.dialler import Dialler
from federation.domain_documents import DomainDocuments
from federation.egress import LineOpener
from federation.identity import Identity
from federation.link_acceptor import LinkAcceptor
from federation.link_context import LinkContext
from federation.logged_fetcher import LoggedFetcher
from federation.name_client import DnsClient
from federation.resolver import Resolver
from federation.router import Federation, greeting, may_talk
from federation.stub_provider import StubProvider
from federation.supervisor import StubSupervisor, SupervisorContext
from federation.traces import Traces
from msg_node.addresses.core.allocation import Owners
from msg_node.addresses.core.remote_subscriptions import RemoteSubscriptions
from msg_node.addresses.core.subscriptions import Listeners
from msg_node.admin.expiry_watch import Renew, watch_node
from msg_node.admin.policy_deployment import PolicyDeployment
from msg_node.bus.announcements import Announcements
from msg_node.bus.bus import Bus
from msg_node.bus.core.message_queue import QueueBounds
from msg_node.bus.taps import Taps
from msg_node.connectors.listener import Listener, ListenerOptions
from msg_node.freed_memory import return_freed_memory
from msg_node.kernel.changes import Journal
from msg_node.kernel.data_schemas import check_configuration
from msg_node.kernel.own_names import OwnNames
from msg_node.node import Node
from msg_node.node_state import NodeState, StateParts, make_state, restore
from msg_node.node_status import node_status
from msg_node.process_tuning import raise_descriptor_limit, settle_memory
from msg_node.records.quarantine import Quarantine
from msg_node.records.segment_writer import SegmentOptions
from msg_node.records.writer import RecordsWriter, WriterOptions
from msg_node.registries.core.stub_inventory import StubInventory, state_events
from msg_node.registries.core.twin import Twin
from msg_node.registries.stub_leases import StubLeases
from msg_node.requests.core.delivery_state import DeliveryState
from msg_node.services import NodeFacts, make_services
from msg_node.sessions.core.session_service import Announced, SessionService
from msg_node.sessions.core.transitions import SessionRules, SessionTransitions
from msg_node.settings.addresses import build_missed, build_pools, build_rules, kept_objects
from msg_node.settings.delivery import build_delivery_rules
from msg_node.settings.interworking import build_interworking, token_readers
from msg_node.settings.model import Settings
from msg_node.settings.peer_stubs import peer_terms
from msg_node.settings.sessions import build_credentials
from msg_node.settings.weakenings import insecure_switches
from msg_node.site.site import Site
from msg_node.storage.state_store import StateStore
from msg_node.wiring import meaning
from msg_node.wiring.allocated_addresses import AllocatedAddresses
from msg_node.wiring.backends import Backends
from msg_node.wiring.mqtt import build_mqtt
from msg_node.wiring.peer_stubs import stub_choices
from protofly.address import canonical_key
from protofly.documents import SigningKey
from protofly.errors import SettingsError
from protofly.record_segments import Signer
from protofly.records import address_key
from sandbox.core.budget import Budget
from sandbox.host import Sandbox
from stubs_cache.cache import StubsCache
from stubs_cache.store import load_secret
from stubs_cache.stub_pins import StubPins

logger = logging.getLogger("msg_node")

VERSION = "0.1.0"
_DRAIN_SECONDS = 1.0


async def serve(
    settings: Settings,
    *,
    on_ready: Callable[[dict[str, object]], None],
    sandbox: Sandbox | None = None,
    renew: Renew | None = None,
) -> None:
    """Run a node until SIGINT or SIGTERM.

    Args:
        settings: Loaded and checked.
        on_ready: Called with the addresses the node listens on once everything is up.
        sandbox: Where stubs run, when it is to be another than the real one (benchmarks compare with none).
        renew: Renews published documents that are due; None: they are only watched.

    Raises:
        SettingsError: Something in the settings or the files that they name cannot be used.
        HostError: STORAGE, when the data directory cannot be used.
    """
    logging.getLogger("websockets").setLevel(logging.ERROR)  # it logs every connection; we count them
    raise_descriptor_limit()
    for switch in insecure_switches(settings):
        logger.warning("INSECURE by the settings: %s", switch)
    data_dir = settings.node.data_dir
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    context = meaning.server_context(settings)
    node = _build(settings, context, sandbox or Sandbox(insecure_no_seccomp=settings.sandbox.insecure_no_seccomp))
    node.expiries.renew = renew
    listeners = await _listen(settings)
    async with trio.open_nursery() as services:
        await services.start(node.store.run)
        await services.start(node.records.run)
        node.policies.record_start()
        await services.start(node.sandbox.run)
        await services.start(node.resolver.run)
        async with trio.open_nursery() as traffic:
            await traffic.start(node.federation.run)
            await traffic.start(node.stub_provider.run_sweeper, node.federation.running_stubs)
            traffic.start_soon(node.bus.run_flusher)
            traffic.start_soon(node.bus.run_sweeper)
            traffic.start_soon(return_freed_memory)
            await traffic.start(node.bus.inquiries.run)
            await traffic.start(node.backends.run)
            await traffic.start(node.listener.run, listeners)
            if node.mqtt is not None:
                await traffic.start(node.mqtt.run)
            await traffic.start(
                node.expiries.run
            )  # before the first live document is signed: it may renew what that names
            if node.site is not None:
                await traffic.start(node.site.run)
            settle_memory()
            # A signal that comes right after `ready` is one to stop in order, too.
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                on_ready(_ready(node, listeners))
                await _wait_for_stop(node, signals)
            logger.info("stopping")
            node.bus.drain()
            await trio.sleep(0.05)
            traffic.cancel_scope.cancel()
        services.cancel_scope.cancel()


async def _wait_for_stop(node: Node, signals: AsyncIterator[int]) -> None:
    """Wait for SIGINT or SIGTERM; SIGHUP reads the policies again, all or none, and tries failed domains again."""
    async for number in signals:
        if number != signal.SIGHUP:
            return
        if forgotten := node.resolver.forget_failures():
            logger.info("%d domains that were not found may be looked up again", forgotten)
        await node.policies.reload()


def _ready(node: Node, listeners: list[trio.SocketListener]) -> dict[str, object]:
    settings = node.settings
    host, port = listeners[0].socket.getsockname()[:2]
    scheme = "ws" if settings.listen.certificate is None else "wss"
    ready: dict[str, object] = {
        "domain": settings.node.domain,
        "node": settings.node_id,
        "pid": os.getpid(),
        "listen": f"{scheme}://{host}:{port}/ws",
        "zygote_pid": node.sandbox.zygote_pid,
    }
    if node.site is not None:
        ready["site"] = node.site.url
    return ready


def _build(settings: Settings, context: ssl.SSLContext | None, sandbox: Sandbox) -> Node:
    """Make everything and connect it; nothing runs yet."""
    data_dir = settings.node.data_dir
    node_url = f"runtime://{settings.node.domain}/{settings.node.name}"
    secret = load_secret(data_dir / "secret")
    store = StateStore(data_dir / "state.sqlite")
    stub_addresses = StubAddresses(node_url, hashlib.sha256(b"trapezoid stub addresses\0" + secret).digest())
    state = _restore_state(settings, store, stub_addresses)
    site = Site.from_settings(settings) if settings.site is not None else None
    published_key = site.node_key if site is not None else None
    # Without a publication nobody can check who we are; then a key of the moment stands in.
    node_key = published_key or SigningKey.from_seed("unpublished", token_bytes(32))
    records = _build_records(settings, node_key, secret)
    gate = meaning.build_gate(settings)
    decisions = DecisionRecords(gate, records.append, hides_addresses=settings.records.hash_addresses)
    policies = PolicyDeployment(gate, files=settings.policy.files, mode=settings.policy.mode, record=records.append)
    inventory = StubInventory()
    backends = Backends(settings, state, node_key)
    taps = Taps(state, node=node_url) if settings.subscriptions.taps else None
    bus = _build_bus(settings, state, store, records, node_url, decisions, inventory, backends, taps)
    backends.connect(bus)
    log = AttemptLog()
    names = DnsClient(settings.discovery.nameservers, believes_ad=settings.discovery.trust_ad_bit)
    dialler = Dialler(names, allow_addresses=meaning.allowed_addresses(settings), log=log)
    resolver = Resolver(
        names,
        own_domains=settings.own_domains,
        peers=meaning.peer_entries(settings),
        is_permitted=lambda domain: may_talk(decisions, domain, greeting(node_url, node_url), is_visit=True),
        log=log,
    )
    plaintext = frozenset(peer.domain for peer in settings.peer if peer.insecure_plaintext)
    tls_context = meaning.client_context(settings)
    fetcher = LoggedFetcher(HttpFetcher(dialler, tls_context, insecure_plaintext=plaintext), log)
    backends.connect_catalogues(bus, fetcher, resolver)
    client = CatalogueClient(
        fetcher, TrustStore(data_dir / "trust.sqlite", secret=secret), our_domain=settings.node.domain
    )
    cache = StubsCache(data_dir / "stubs", secret=secret, max_bytes=settings.sandbox.cache_bytes)
    documents = DomainDocuments(
        resolver=resolver, client=client, cache=cache, anchor_of=partial(meaning.anchor_of, settings)
    )
    chosen = ChosenStubs(
        stub_choices(settings), StubPins(data_dir / "pinned_stubs", secret=secret), check=check_configuration
    )
    stub_provider = StubProvider(documents=documents, client=client, cache=cache, sandbox=sandbox, chosen=chosen)
    aliases = Aliases(meaning.alias_rules(settings, gate, node_url), documents.alias_trust_of)
    identity = Identity(
        node=node_url,
        domains=list(settings.own_domains),
        key=node_key,
        trust_of=documents.trust_of,
        aliases=aliases,
    )
    documents.notify_renewed(identity.documents_renewed)
    terms = peer_terms(settings)
    supervision = SupervisorContext(
        our_domain=settings.node.domain,
        node=node_url,
        documents=documents,
        provider=stub_provider,
        sandbox=sandbox,
        identity=identity,
        opener=LineOpener(dialler, tls_context),
        plaintext_domains=plaintext,
        gate=gate,
        addresses=AllocatedAddresses(state),
        interworking=state.interworking,
        terms=terms,
        token_readers=token_readers(settings),
        budget=Budget(memory_bytes=settings.sandbox.memory_bytes, batch_seconds=settings.sandbox.batch_seconds),
    )
    traces = Traces()
    leases = StubLeases(state, bus.publish_statuses, then=bus.link_is_live)
    federation = Federation(
        LinkContext(
            our_domain=settings.node.domain,
            node=node_url,
            stub_addresses=stub_addresses,
            gate=gate,
            ids=MessageIds(token_bytes(8)),
            traces=traces,
            deliver=bus.from_link if taps is None else taps.over(bus.from_link),
            answer=bus.answer if taps is None else taps.over_answers(bus.answer),
            record=records.append,
            hides_addresses=settings.records.hash_addresses,
            quarantine=Quarantine(data_dir / "quarantine").keep,
            wait_for_room=bus.wait_for_room,
            on_stub_state=lambda status: bus.publish_events(state_events(status, node_url, state.listeners)),
            on_live=leases.came,
            on_lost=leases.went,
            is_wanted=bus.wants_link,
            wake=bus.wake_flusher,
            identify=backends.identify,
            interworking=state.interworking,
            terms=terms,
            our_aliases=frozenset(settings.node.aliases),
            listed_aliases=aliases.rules.listed,
            max_hops=settings.limits.max_hops,
            limits=QueueLimits(
                settings.limits.waiting_messages, settings.limits.waiting_bytes, settings.limits.waiting_seconds
            ),
        ),
        decisions,
        supervise=lambda link: StubSupervisor(link, supervision).run(),
        max_links=settings.limits.links,
    )
    bus.connect_federation(federation)
    inventory.connect(federation.hosted_stubs)
    acceptor = _acceptor(settings, identity, federation)
    listener = Listener(
        bus,
        context=context,
        acceptor=acceptor,
        options=ListenerOptions(
            max_bytes=settings.limits.frame_bytes,
            queue=QueueBounds(settings.limits.session_queue_messages, settings.limits.session_queue_bytes),
            origins=settings.listen.origins,
            https=meaning.https_options(settings),
        ),
    )
    node = Node(
        settings,
        VERSION,
        state,
        bus,
        backends,
        federation,
        stub_provider,
        store,
        records,
        sandbox,
        resolver,
        cache,
        traces,
        listener,
        build_mqtt(settings, listener.reception, node_url),
        site,
        gate,
        policies,
        watch_node(settings, site.publisher if site is not None else None),
        time.time(),
    )
    if site is not None:
        site.serve_status(partial(node_status, node))
        site.serve_readiness(node.problems, node.expiries.warnings)
    return node


def _build_records(settings: Settings, node_key: SigningKey, secret: bytes) -> RecordsWriter:
    chosen = settings.records
    options = WriterOptions(
        is_strict=chosen.durability == "strict",
        queue_records=chosen.queue_records,
        sync_seconds=chosen.sync_seconds,
        segments=SegmentOptions(
            segment_bytes=chosen.segment_bytes,
            segment_seconds=chosen.segment_seconds,
            address_key=address_key(secret) if chosen.hash_addresses else None,
        ),
    )
    signer = Signer(node_key.key_id, node_key.sign)
    return RecordsWriter(settings.spool_dir, settings.node_id, signer=signer, options=options)


def _build_bus(
    settings: Settings,
    state: NodeState,
    store: StateStore,
    records: RecordsWriter,
    node_url: str,
    decisions: DecisionRecords,
    inventory: StubInventory,
    backends: Backends,
    taps: Taps | None,
) -> Bus:
    guests = meaning.build_guests(settings, decisions, node_url, records.append, state, backends.identify)
    sessions = SessionService(
        state.lifecycle,
        state.own,
        announced=Announced(
            ("federation", "catch-up") if settings.subscriptions.catch_up_seconds else ("federation",),
            settings.sessions.grace_seconds,
            settings.sessions.ping_seconds,
            settings.https.poll_seconds,
        ),
        permit=partial(meaning.permit_session, decisions, settings.node.domain),
        permit_guest=guests.open if settings.sessions.guests else None,
    )
    announcements = Announcements(
        node_url,
        state.listeners,
        first_id=random.SystemRandom().randrange(1, 1 << 31),
        notifies_presence=settings.sessions.presence,
    )
    services = make_services(
        state,
        sessions,
        announcements,
        NodeFacts(node_url, VERSION, settings.catalogue.guest_stubs),
        more={"stubs": inventory},
        at=backends.services,
    )
    first_request = random.SystemRandom().randrange(1, 1 << 31)
    remote = RemoteSubscriptions(node_url, first_request, home_of=state.interworking.home_of)
    bus = Bus(
        node=node_url,
        state=state,
        services=services,
        store=store,
        remote=remote,
        guests=guests,
        record=records.append,
        parks=partial(meaning.parks, decisions.gate),
        stack=meaning.build_stack(settings, decisions, state, backends.identify, taps, backends.validation),
        wait_accepting=records.wait_accepting,
        is_accepting=lambda: records.is_accepting,
        ping_seconds=settings.sessions.ping_seconds,
        max_hops=settings.limits.max_hops,
    )
    bus.absences.keep(build_missed(settings))
    if taps is not None:
        taps.connect(bus.send_queues)
    bus.foreign.restore()
    bus.parked_actions.restore()
    return bus


def _restore_state(settings: Settings, store: StateStore, stub_addresses: StubAddresses) -> NodeState:
    journal = Journal()
    rules = SessionRules(
        grace_seconds=settings.sessions.grace_seconds,
        take_over_grace_seconds=settings.sessions.take_over_grace_seconds,
        lease_seconds=settings.sessions.lease_seconds,
        max_sessions=settings.limits.sessions,
        returns_by_address=settings.compat.return_by_address,
    )
    own = OwnNames.of(settings.own_domains, [canonical_key(stub_addresses.node)])
    parts = StateParts(
        transitions=SessionTransitions(journal, build_credentials(settings), rules),
        owners=Owners(journal, per_session=settings.limits.allocation_per_session, pools=build_pools(settings)),
        listeners=Listeners(journal, per_session=settings.limits.subscriptions_per_session),
        journal=journal,
        rules=build_rules(settings),
        interworking=build_interworking(settings, stub_addresses),
        twin=Twin(journal, objects=kept_objects(settings)),
        delivery=DeliveryState(
            journal,
            build_delivery_rules(settings.delivery),
            first_number=random.SystemRandom().randrange(1, 1 << 31),
        ),
    )
    state = make_state(own, parts)
    restore(state, store.load(), now=time.time())
    return state


def _acceptor(settings: Settings, identity: Identity, federation: Federation) -> LinkAcceptor | None:
    if settings.publish is None:
        return None
    return LinkAcceptor(
        identity=identity,
        endpoints=frozenset({settings.publish.endpoint_url}),
        bindings=meaning.bindings(settings),
        admit=federation.admit,
    )


async def _listen(settings: Settings) -> list[trio.SocketListener]:
    try:
        return list(await trio.open_tcp_listeners(settings.listen.port, host=settings.listen.host))
    except OSError as exc:
        raise SettingsError(f"cannot listen on {settings.listen.host}:{settings.listen.port}: {exc}") from exc
