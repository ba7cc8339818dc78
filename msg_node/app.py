"""Wires the node and runs it: the one place that knows every concrete thing.

Start order is dependency order, shutdown is structure: cancelling the outermost nursery ends listeners first, then
links, then the services that they used; each service cleans up behind itself.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import trio

from federation.links.decision_records import DecisionRecords
from federation.links.link_acceptor import LinkAcceptor
from federation.links.link_context import LinkContext
from federation.links.router import Federation
from federation.stubs.instance_run import StubSources
from federation.stubs.supervisor import StubSupervisor
from msg_node.admin.admin_messages import AdminMessages
from msg_node.admin.admin_socket import AdminSocket
from msg_node.admin.administered import Administered
from msg_node.admin.administration import Administration
from msg_node.admin.blocked_names import blocked_names
from msg_node.admin.changes import gates_in_force
from msg_node.admin.core.admin_service import ADMIN
from msg_node.admin.draining import Drain, Lost
from msg_node.admin.expiry_watch import Renew, watch_node
from msg_node.admin.metrics import MEDIA_TYPE
from msg_node.admin.peer_checks import CheckPeer, PeerChecks
from msg_node.admin.policy_deployment import Policies, PolicyDeployment
from msg_node.admin.record_search import FindRecords, RecordSearch
from msg_node.admin.shared_restrictions import SharedRestrictions
from msg_node.bus.bus import Bus
from msg_node.bus.core.gathering import Gathering
from msg_node.bus.core.recipients import KnownRecipients
from msg_node.bus.gathered_looks import gather_looks
from msg_node.bus.policy_duties import PolicyDuties
from msg_node.cluster.followed_tables import FollowedTable, FollowedTables
from msg_node.connectors.listener import Listener
from msg_node.connectors.shared_listeners import listen_shared
from msg_node.freed_memory import return_freed_memory
from msg_node.kernel.changes import Table
from msg_node.kernel.domain_records import RECORDS_CHANNEL, announcement
from msg_node.node import Node
from msg_node.node_status import keep_figures, node_metrics, node_status, node_summary
from msg_node.process_tuning import raise_descriptor_limit, settle_memory, share_interpreter
from msg_node.records.quarantine import Quarantine
from msg_node.records.retention import SpoolRetention
from msg_node.registries.core.stub_inventory import StubInventory
from msg_node.registries.engine_guids import GUIDS
from msg_node.services import VERSION
from msg_node.settings.model import Settings
from msg_node.settings.weakenings import insecure_switches
from msg_node.site.site import AskOthers
from msg_node.storage.policy_store import PolicyStore
from msg_node.storage.quota_keeper import QuotaKeeper
from msg_node.storage.stop_mark import StopMark
from msg_node.wiring import meaning
from msg_node.wiring.accounts import forget_guid
from msg_node.wiring.alarms import build_alarms
from msg_node.wiring.backends import Backends
from msg_node.wiring.block_lists import build_block_lists
from msg_node.wiring.bus import build_bus
from msg_node.wiring.cluster import HeldName, held_name
from msg_node.wiring.discovery import build_discovery
from msg_node.wiring.federation import (
    build_acceptor,
    build_link_context,
    build_reverse_checks,
    build_supervision,
)
from msg_node.wiring.foundation import Foundation, build_foundation
from msg_node.wiring.mqtt import BrokerLine, load_mqtt
from msg_node.wiring.nodes import build_nodes, connect_links
from msg_node.wiring.reloadable import Reloadable
from msg_node.wiring.reloading import ReadSettings, Reloading
from msg_node.wiring.trust import build_trust
from policy.core.gate import Gate
from protofly.errors import SettingsError
from protofly.limits import STATE_RETRY_SECONDS
from protofly.records import address_key, hash_address
from sandbox.host import Sandbox
from stubs_cache.cache import StubsCache
from stubs_cache.store import load_secret

logger = logging.getLogger("msg_node")


class ProgramParts(NamedTuple):
    """Services of the program around a node.

    Attributes:
        renew: Renews published documents that are due; None: they are only watched.
        check_peer: Checks other domains for operators; None: nobody does.
        find_records: Searches the audit records for operators; None: nobody does.
    """

    renew: Renew | None = None
    check_peer: CheckPeer | None = None
    find_records: FindRecords | None = None


ALONE: Final = ProgramParts()
"""A node without a program around it."""


async def serve(
    settings: Settings,
    *,
    on_ready: Callable[[dict[str, object]], None],
    sandbox: Sandbox | None = None,
    program: ProgramParts = ALONE,
    read_settings: ReadSettings | None = None,
    processes: tuple[int, AskOthers] | None = None,
) -> Lost:
    """Run a node until SIGINT or SIGTERM; then stop its traffic in order, or at a second signal at once.

    Args:
        settings: Loaded and checked.
        on_ready: Called with the addresses the node listens on once everything is up.
        sandbox: Where stubs run, when it is to be another than the real one (benchmarks compare with none).
        program: What the program brings beside the node.
        read_settings: Reads the settings anew for a reload; None: only the files that they name are read again.
        processes: Which of several processes of the node this is, and who asks the others.

    Returns:
        What was lost by the stop.

    Raises:
        SettingsError: Something in the settings or the files that they name cannot be used.
        HostError: STORAGE, when the data directory cannot be used.
    """
    logging.getLogger("websockets").setLevel(logging.ERROR)  # it logs every connection; we count them
    raise_descriptor_limit()
    share_interpreter()
    for switch in insecure_switches(settings):
        logger.warning("INSECURE by the settings: %s", switch)
    settings.node.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    policies = meaning.policies_in_force(settings)
    gate = meaning.build_gate(settings, policies.compiled)
    sandbox = sandbox or Sandbox(insecure_no_seccomp=settings.sandbox.insecure_no_seccomp)
    async with held_name(settings, lambda: gate.policies.revision) as name:
        node = _build(settings, sandbox, gate, policies, name)
        node.reloading = _reloading(node, read_settings or (lambda: settings))
        node.expiries.renew = program.renew
        node.checks = None if program.check_peer is None else PeerChecks(program.check_peer)
        node.search = None if program.find_records is None else RecordSearch(program.find_records)
        if processes is not None and node.site is not None:
            node.site.serve_processes(*processes)
        return await _serve(node, on_ready)


async def _serve(node: Node, on_ready: Callable[[dict[str, object]], None]) -> Lost:
    """Serve under the name of the node."""
    settings = node.settings
    administered = _administered(node)
    node.administration = Administration(administered)
    if node.name is not None:
        node.restrictions = SharedRestrictions(administered, node.name.shared.read)
        node.name.notices.follow(node.name.shared.channel, node.restrictions.heard)
        tables: dict[Table, FollowedTable] = {
            Table.AGENT_QUEUES: node.state.delivery.queues,
            Table.PUSH_TARGETS: node.state.push,
            Table.PROPOSALS: node.state.proposals,
        }
        node.followed_tables = FollowedTables(tables, node.name.records)
        node.name.notices.follow(RECORDS_CHANNEL, node.followed_tables.heard)
        node.shared_trust = node.name.trust(node.trust.store)
    node.alarm_watch = build_alarms(administered, records=node.records, expiries=node.expiries)
    node.block_lists = build_block_lists(administered)
    node.reloading.watches = node.block_lists, node.alarm_watch
    if settings.admin is not None:
        from msg_node.admin.admin_site import AdminSite  # with its templates, which other nodes need not carry

        node.admin_site = node.reloading.admin_site = AdminSite(settings, node.administration)
    if node.site is not None:
        node.site.serve_status(partial(node_status, node))
        node.site.serve_metrics(partial(node_metrics, node), MEDIA_TYPE)
        if node.reverse_checks is not None:
            node.site.serve_reverse_checks(node.reverse_checks)
        node.site.serve_readiness(node.problems, node.expiries.warnings)
    listeners = await _listen(settings)
    drain = drain_of(node)
    with node.log.following(logging.getLogger()):
        return await _run(node, listeners, drain, on_ready)


def drain_of(node: Node) -> Drain:
    """Return the drain of a node, which stops it in the time that the settings give then."""
    return Drain(node.bus, node.federation, lambda: node.current.get().node.drain_seconds, node.cluster)


async def _run(
    node: Node, listeners: list[trio.SocketListener], drain: Drain, on_ready: Callable[[dict[str, object]], None]
) -> Lost:
    """Start everything, run until a signal, and stop in order."""
    async with trio.open_nursery() as services:
        await services.start(node.store.run)
        if node.name is not None:
            services.start_soon(node.name.keeper.run, partial(node.bus.fence, STATE_RETRY_SECONDS), node.bus.unfence)
            services.start_soon(keep_figures, node, node.name.board)
        await services.start(node.records.run)
        services.start_soon(_retention(node).run)
        if node.recorder is not None:
            await services.start(node.recorder.run)
        await services.start(QuotaKeeper(node.gate.quotas, node.settings.node.data_dir, node.policies.used_up).run)
        node.policies.record_start()
        await services.start(node.sandbox.run)
        await services.start(node.resolver.run)
        async with trio.open_nursery() as traffic:
            await _start_traffic(node, listeners, traffic)
            # A signal that comes right after `ready` is one to stop in order, too.
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                on_ready(_ready(node, listeners))
                await _wait_for_stop(node, signals)
                has_answered_all = await _stop(drain, signals)
            traffic.cancel_scope.cancel()
        lost = drain.give_up()
        clock = node.federation.context.clock
        if has_answered_all and node.name is None and clock.monotonic() >= clock.doubt_until:
            StopMark(node.settings.node.data_dir).put()
        services.cancel_scope.cancel()
    if node.spans is not None:
        await trio.to_thread.run_sync(node.spans.close)
    left = node.store.statistics()
    lost = replace(lost, unstored=left.waiting_rows)
    lost.report(left.last_error)
    return lost


def _retention(node: Node) -> SpoolRetention:
    """Return the service that removes old records, by the settings of the moment."""

    def keep_days() -> dict[str, float]:
        return {str(kind): days for kind, days in node.current.get().records.keep_days.items()}

    return SpoolRetention(node.settings.spool_dir, keep_days, node.records.removed)


async def _start_traffic(node: Node, listeners: list[trio.SocketListener], traffic: trio.Nursery) -> None:
    """Start everything that messages pass, in the order in which one part needs another."""
    if node.shared_trust is not None:
        await traffic.start(node.shared_trust.run)
    await traffic.start(node.federation.run)
    if node.cluster is not None:
        await traffic.start(node.cluster.run)
    await traffic.start(node.trust.provider.run_sweeper, node.federation.running_stubs)
    queues = node.bus.send_queues
    traffic.start_soon(queues.run)
    if (seconds := node.settings.node.gather_seconds) > 0:
        traffic.start_soon(gather_looks, Gathering(seconds), queues.turns.progress)
    traffic.start_soon(node.bus.sweeper.run)
    traffic.start_soon(node.duties.run, node.bus.effects.publish_events)
    traffic.start_soon(return_freed_memory)
    traffic.start_soon(node.reloading.tls.run)
    traffic.start_soon(node.alarm_watch.run)
    if node.block_lists is not None:
        traffic.start_soon(node.block_lists.run)
    await traffic.start(node.administration.run)
    if node.name is not None and node.restrictions is not None and node.followed_tables is not None:
        traffic.start_soon(node.restrictions.run)
        traffic.start_soon(node.followed_tables.run)
        await traffic.start(node.name.notices.run)
    await traffic.start(AdminSocket(node.settings.node.data_dir, node.administration).run)
    most_bytes = node.settings.limits.frame_bytes // 2  # there is more to a message than its value
    node.bus.inquiries.connect(ADMIN, AdminMessages(node.administration, node.state.sessions, most_bytes))
    await traffic.start(node.bus.inquiries.run)
    await traffic.start(node.backends.run)
    await traffic.start(node.listener.run, listeners)
    await traffic.start(node.mqtt.run)
    await traffic.start(node.expiries.run)  # before the first live document is signed: it may renew what that names
    if node.site is not None:
        await traffic.start(node.site.run)
    if node.admin_site is not None:
        await traffic.start(node.admin_site.run)
    settle_memory()


async def _wait_for_stop(node: Node, signals: AsyncIterator[int]) -> None:
    """Wait for SIGINT or SIGTERM; SIGHUP takes over what has changed in the settings, all or nothing."""
    async for number in signals:
        if number != signal.SIGHUP:
            return
        await node.reloading.reload()


async def _stop(drain: Drain, signals: AsyncIterator[int]) -> bool:
    """Stop the traffic in order; a second SIGINT or SIGTERM ends that at once. Returns whether it came to its end."""
    logger.info("stopping")
    has_ended = False

    async def hurry() -> None:
        async for number in signals:
            if number != signal.SIGHUP:
                logger.warning("stopping at once")
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hurry)
        await drain.run()
        has_ended = True
        nursery.cancel_scope.cancel()
    if not has_ended:
        await drain.hurry()
    return has_ended


def _reloading(node: Node, read: ReadSettings) -> Reloading:
    """Make what takes changed settings over."""
    parts = Reloadable(
        current=node.current,
        gate=node.gate,
        policies=node.policies,
        dialler=node.dialler,
        plaintext=node.plaintext,
        resolver=node.resolver,
        documents=node.trust.documents,
        stubs=node.trust.chosen,
        aliases=node.trust.aliases,
        federation=node.federation,
        levels=node.levels,
        listener=node.listener,
        acceptor=node.acceptor,
        reverse_checks=node.reverse_checks,
        site=node.site,
        traffic=node.traffic,
        state=node.state,
        bus=node.bus,
        identity=node.backends.identity,
        backends=node.backends,
        mqtt=node.mqtt,
        borders=(node.federation.context.rules, node.bus.from_sessions.guests.rules),
        own_gate=node.steps.gate,
        terms=node.trust.terms,
        ways=node.ways,
        recorders=node.recorders,
        cache=node.cache,
        records=node.records,
        spans=node.spans,
        reached=None if node.name is None else node.name.reached,
        node_url=node.bus.options.node,
    )
    return Reloading(parts, read)


def _administered(node: Node) -> Administered:
    """Gather the parts that operators see and change."""
    return Administered(
        settings=node.current.get,
        state=node.state,
        bus=node.bus,
        federation=node.federation,
        gate=node.gate,
        recipients=node.steps.gate.decisions.recipients,
        resolver=node.resolver,
        trust_store=node.trust.store,
        pins=node.trust.pins,
        documents=node.trust.documents,
        end_connectors=node.backends.connectors.end_forbidden,
        log=node.log,
        levels=node.levels,
        proposals=node.state.proposals,
        store=node.store,
        record=node.records.append,
        pseudonym=partial(hash_address, key=address_key(load_secret(node.settings.node.data_dir / "secret"))),
        status=partial(node_status, node),
        summary=partial(node_summary, node),
        metrics=partial(node_metrics, node),
        traffic=node.traffic,
        alarms=node.alarms,
        plan_reload=node.reloading.plan,
        changing=node.reloading.changing,
        policies=node.policies,
        policy_store=PolicyStore(node.settings.node.data_dir),
        clients=node.backends.identity.clients,
        passwords=node.backends.identity.passwords,
        forget_guid=partial(_forget_guid, node),
        on_their_way=dict if node.name is None else partial(node.name.shared.read, Table.GIVEN_SESSIONS.value),
        recorder=node.recorder,
        gate_with=lambda policies: meaning.build_gate(node.current.get(), policies),
        checks=node.checks,
        search=node.search,
    )


def _forget_guid(node: Node, guid: str) -> None:
    """Drop what is stored of a GUID, and what is in memory of it. Blocks. Raises HostError."""
    forget_guid(node.settings.node.data_dir, None if node.name is None else node.name.records, guid)
    node.backends.identity.heard([announcement(GUIDS, guid)])


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
    if node.admin_site is not None:
        ready["admin"] = node.admin_site.url
    return ready


def _build(settings: Settings, sandbox: Sandbox, gate: Gate, policies: Policies, name: HeldName | None) -> Node:
    """Make everything and connect it, from the ground up; nothing runs yet."""
    foundation = build_foundation(settings, name)
    records, site = foundation.records, foundation.site
    cache = _stubs_cache(foundation)
    duties, decisions = _judging(foundation, gate)
    deployment = PolicyDeployment(gate, policies, records.append)
    # Other domains: how they are found, and what is believed about them.
    discovery = build_discovery(settings, decisions, foundation.node_url)
    trust = build_trust(foundation, discovery, gate, cache, sandbox)
    # Messages: on the bus, over links, from runtimes.
    backends = Backends(settings, foundation.state, foundation.key, name)
    inventory, cluster = StubInventory(), build_nodes(foundation, name, gate)
    built = build_bus(foundation, decisions, backends, inventory, cluster)
    bus = built.bus
    deployment.on_deployed = lambda: built.judge_by(foundation.current.get())
    backends.connect_catalogues(bus, discovery.fetcher, discovery.resolver, site)
    links = build_link_context(foundation, decisions, trust, built, backends.identify, duties.quarantine)
    supervision = build_supervision(foundation, discovery, trust, gate, sandbox, cluster)
    backends.connectors.connect_stubs(bus, trust.provider, supervision.host)
    federation = _federation(foundation, decisions, links, supervision)
    joined = connect_links(bus, federation, cluster)
    inventory.connect(federation.hosted_stubs)
    acceptor = build_acceptor(foundation, trust, federation, cluster)
    listener = _listener(settings, bus, acceptor)
    return Node(
        current=foundation.current,
        settings=settings,
        version=VERSION,
        state=foundation.state,
        bus=bus,
        duties=duties,
        backends=backends,
        federation=federation,
        store=foundation.store,
        name=name,
        cluster=joined,
        records=records,
        traffic=foundation.traffic,
        spans=foundation.spans,
        sandbox=sandbox,
        resolver=discovery.resolver,
        cache=cache,
        traces=links.traces,
        listener=listener,
        mqtt=BrokerLine(load_mqtt(settings, listener.reception, foundation.node_url)),
        site=site,
        gate=gate,
        steps=built.steps,
        recorder=built.recorder,
        policies=deployment,
        expiries=watch_node(foundation.current.get, site.publisher if site is not None else None),
        dialler=discovery.dialler,
        ways=discovery.ways,
        recorders=supervision.host.recorders,
        plaintext=discovery.plaintext,
        trust=trust,
        acceptor=acceptor,
        reverse_checks=build_reverse_checks(settings, trust, federation),
    )


def _federation(
    foundation: Foundation, decisions: DecisionRecords, links: LinkContext, supervision: StubSources
) -> Federation:
    """Make all links to other domains."""
    return Federation(
        links,
        decisions,
        foundation.stub_addresses,
        supervise=lambda link: StubSupervisor(link, supervision).run(),
        max_links=foundation.settings.limits.links,
    )


def _judging(foundation: Foundation, gate: Gate) -> tuple[PolicyDuties, DecisionRecords]:
    """Make what acts on decisions of the gates, and what records them."""
    settings, restrictions = foundation.settings, foundation.state.restrictions
    gate.cut_off(blocked_names(restrictions, settings.peer))
    gate.set_temporary(gates_in_force(restrictions))
    quarantine = Quarantine(settings.node.data_dir / "quarantine", gate.names)
    duties = PolicyDuties(foundation.node_url, settings.own_domains, quarantine)
    return duties, DecisionRecords(
        gate,
        foundation.records.append,
        hides_addresses=settings.records.hash_addresses,
        carry_out=duties.take,
        recipients=KnownRecipients(foundation.state, is_alone=not settings.storage.engine),
    )


def _listener(settings: Settings, bus: Bus, acceptor: LinkAcceptor | None) -> Listener:
    """Make what takes connections of runtimes and links."""
    context, options = meaning.server_context(settings), meaning.listener_options(settings)
    return Listener(bus, context=context, acceptor=acceptor, options=options)


def _stubs_cache(foundation: Foundation) -> StubsCache:
    """Make the cache of verified stubs."""
    settings = foundation.settings
    folder = settings.node.data_dir / "stubs"
    return StubsCache(folder, secret=foundation.secret, max_bytes=settings.sandbox.cache_bytes)


async def _listen(settings: Settings) -> list[trio.SocketListener]:
    host, port = settings.listen.host, settings.listen.port
    try:
        if settings.node.processes != 1:
            return listen_shared(host, port)
        return list(await trio.open_tcp_listeners(port, host=host))
    except OSError as exc:
        raise SettingsError(f"cannot listen on {host}:{port}: {exc}") from exc
