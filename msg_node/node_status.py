"""The status report of a node at `/status`. Its readers: `interop/node_status.py`, operators, monitoring."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec
import trio

from federation.core.link_machine import queues_of
from msg_node.admin.core.traffic import OTHER, Stage
from msg_node.admin.link_report import link_problem, link_status
from msg_node.admin.metrics import DomainTotal, Figures, Gauge, Timing, exposition
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.node_figures import FiguresBoard, NodeFigures
from msg_node.node import Node
from msg_node.settings.middleware import active_steps
from msg_node.settings.weakenings import insecure_switches
from protofly.counters import Counters

FIGURES_SECONDS: Final = 1.0
_STAGES: Final = {
    Timing.QUEUE: Stage.QUEUE,
    Timing.STUB: Stage.STUB,
    Timing.ACKNOWLEDGEMENT: Stage.ACKNOWLEDGEMENT,
}
_OF_LINKS: Final = Gauge.LINKS, Gauge.LINK_UP, Gauge.LINK_PROBLEM, Gauge.LINK_WAITING, Gauge.LINK_UNDER_WAY
_OF_STUBS: Final = DomainTotal.STUB_MESSAGES, DomainTotal.FUEL, DomainTotal.CPU, DomainTotal.TRAPS


def node_status(node: Node) -> dict[str, object]:
    """Everything about one node: facts, counters since its start, links, traces."""
    return {
        "domain": node.settings.node.domain,
        "node": node.settings.node_id,
        "version": node.version,
        "pid": os.getpid(),
        "rss_kib": rss_kib(),
        "uptime_seconds": round(time.time() - node.started_at, 3),
        "sessions": node.bus.runtimes.live_sessions,
        "counters": _counters(node),
        "records": msgspec.to_builtins(node.records.statistics()),
        "connectors": node.bus.inquiries.statistics(),
        "backends": node.backends.status(),
        "site": _site(node),
        "state": msgspec.to_builtins(node.store.statistics()),
        **({} if node.cluster is None else {"cluster": node.cluster.statistics()}),
        "delivery": node.state.delivery.statistics(),
        "twin": node.state.twin.statistics(),
        "discovery": msgspec.to_builtins(node.resolver.statistics()),
        "cache": msgspec.to_builtins(node.cache.statistics()),
        "sandbox": {
            "zygote_pid": node.sandbox.zygote_pid,
            "engine": node.sandbox.fingerprint,
            **node.sandbox.statistics(),
        },
        "expiries": node.expiries.status(),
        "profile": node.current.get().compat.profile or "none",
        "insecure": list(insecure_switches(node.current.get())),
        "middleware": list(active_steps(node.current.get(), has_policies=node.gate.judges_own_bus)),
        "policy_revision": node.gate.policies.revision,
        "policies": node.policies.facts(),
        "block_lists": node.block_lists.status() if node.block_lists is not None else [],
        "exchange": node.site.inbox.status() if node.site is not None and node.site.inbox is not None else [],
        "policy_faults": {"count": node.gate.policies.faults, "last": node.gate.policies.last_fault},
        "links": [
            {**link_status(link), "discovery": msgspec.to_builtins(node.resolver.explain(link.domain))}
            for link in node.federation.links
        ],
        "traces": node.traces.snapshot(),
    }


def node_summary(node: Node) -> dict[str, object]:
    """One node at a glance: counts, what is wrong now, what will be."""
    live, links = node.bus.runtimes.live_sessions, list(node.federation.links)
    records, states = node.records.statistics(), Counter(link.state for link in links)
    return {
        "domain": node.settings.node.domain,
        "node": node.settings.node_id,
        "version": node.version,
        "uptime_seconds": round(time.time() - node.started_at),
        "memory_bytes": rss_kib() * 1024,
        "sessions": {"live": live, "parked": len(node.state.sessions) - live},
        "links": dict(sorted(states.items())),
        "stored_requests": len(node.state.delivery.parking),
        "records": {"state": records.state.value, "waiting": records.waiting, "lost": records.lost},
        "policy_revision": node.gate.policies.revision,
        "policies": node.policies.facts(),
        "restrictions": len(list(node.state.restrictions)),
        "alarms": [f"{one.alarm.word} {one.subject}".strip() for one in node.alarms.raised()],
        "problems": [*node.problems(), *(text for link in links if (text := link_problem(link)))],
        "warnings": [*node.expiries.warnings(), *(f"insecure: {one}" for one in insecure_switches(node.current.get()))],
    }


def _counters(node: Node) -> dict[str, int]:
    return _counts(node).shown()


def _counts(node: Node) -> Counters:
    counters = Counters(NodeCount)
    for part in (node.bus.counters, node.listener.counters, node.duties.counters):
        for name, count in part.items():
            counters[name] += count
    counters[NodeCount.BARRED_DOMAINS] = node.federation.barred_messages
    counters[NodeCount.DECISIONS_NOT_RECORDED] = node.federation.decisions.left_out
    if node.mqtt.binding is not None:
        counters[NodeCount.MQTT_RETAINED] = node.mqtt.binding.client.retained_ignored
    return counters


def _site(node: Node) -> dict[str, int]:
    server = None if node.site is None else node.site.server
    return {} if server is None else server.counters.shown()


def rss_kib() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 1024


def node_metrics(node: Node) -> bytes:
    """The figures of one node in the text format of Prometheus; some 2 ms for each hundred links."""
    server = None if node.site is None else node.site.server
    named = {peer.domain for peer in node.current.get().peer}
    counts: dict[str, dict[str, int]] = {}
    figures = Figures(_counts(node), {} if server is None else server.counters, counts)
    _put_node(figures, node)
    _put_links(figures, node, named, counts)
    _put_stubs(figures, node, named)
    for domain in (*node.traffic.domains(), OTHER):
        arrived, failed = node.traffic.totals(domain)
        figures.put_totals(domain, {DomainTotal.ARRIVED: arrived, DomainTotal.FAILED: failed})
    if node.cluster is not None:
        figures.nodes = {**node.cluster.figures(), node.settings.node.name: node_figures(node)}
        for name, is_connected in node.cluster.connections().items():
            figures.put(Gauge.CONNECTED, is_connected, name)
    return exposition(figures)


def node_figures(node: Node) -> NodeFigures:
    """Collect the figures that this node shares with the others of its domain; called once a second."""
    counters, live = _counts(node), node.bus.runtimes.live_sessions
    return NodeFigures(
        uptime_seconds=round(time.time() - node.started_at),
        memory_bytes=rss_kib() * 1024,
        live_sessions=live,
        parked_sessions=len(node.state.sessions) - live,
        links_up=sum(link.is_live for link in node.federation.links),
        stored_requests=len(node.state.delivery.parking),
        delivered=counters[NodeCount.DELIVERED],
        refused=sum(counters[name] for name in NodeCount.REFUSED.names),
        problems=len(node.problems()),
    )


async def keep_figures(node: Node, board: FiguresBoard) -> None:
    """Have the other nodes of the domain know the figures of this one, until cancelled."""
    while True:
        board.newest = node_figures(node)
        await trio.sleep(FIGURES_SECONDS)


def _put_links(figures: Figures, node: Node, named: AbstractSet[str], counts: dict[str, dict[str, int]]) -> None:
    """Fill in what links have, without a call for each figure: with many links, this is most of the page."""
    states, up, problem, waiting, under_way = (figures.gauges[gauge] for gauge in _OF_LINKS)
    for link in node.federation.links:
        domain = link.domain if link.domain in named else OTHER
        of_domain = counts.get(domain)
        if of_domain is None:
            counts[domain] = dict(link.counters)
        else:
            for name, count in link.counters.items():
                of_domain[name] = of_domain.get(name, 0) + count
        queues = queues_of(link.machine)
        states[link.state] = states.get(link.state, 0) + 1
        up[domain] = up.get(domain, 0) + link.is_live
        problem[domain] = problem.get(domain, 0) + bool(link_problem(link))
        waiting[domain] = waiting.get(domain, 0) + sum([queue.waiting for queue in queues])
        under_way[domain] = under_way.get(domain, 0) + sum([queue.under_way for queue in queues])


def _put_stubs(figures: Figures, node: Node, named: AbstractSet[str]) -> None:
    """Fill in what the stubs of other domains have used, likewise."""
    messages, fuel, cpu, traps = (figures.totals[total] for total in _OF_STUBS)
    for stub in node.federation.hosted_stubs():
        domain, meters = stub.domain if stub.domain in named else OTHER, stub.meters
        messages[domain] = messages.get(domain, 0) + meters.messages
        fuel[domain] = fuel.get(domain, 0) + meters.fuel
        cpu[domain] = cpu.get(domain, 0.0) + meters.cpu_us / 1e6
        traps[domain] = traps.get(domain, 0) + meters.traps


def _put_node(figures: Figures, node: Node) -> None:
    """Fill in the gauges of the node itself."""
    records, live = node.records.statistics(), node.bus.runtimes.live_sessions
    figures.put(Gauge.INFO, 1, node.version)
    figures.put(Gauge.UPTIME, time.time() - node.started_at)
    figures.put(Gauge.MEMORY, rss_kib() * 1024)
    figures.put(Gauge.DRAINING, node.federation.visitors.is_draining)
    figures.put(Gauge.SESSIONS, live, "live")
    figures.put(Gauge.SESSIONS, len(node.state.sessions) - live, "parked")
    figures.put(Gauge.RUNTIME_QUEUED, sum(port.queue.queued for port in node.bus.send_queues.ports.values()))
    figures.put(Gauge.STORED_REQUESTS, len(node.state.delivery.parking))
    figures.put(Gauge.RECORDS_WAITING, records.waiting)
    figures.put(Gauge.RECORDS_LOST, records.lost)
    if node.spans is not None:
        spans = node.spans.figures
        figures.gauges[Gauge.SPANS] = {"exported": spans.exported, "failed": spans.failed, "left_out": spans.left_out}
    figures.put(Gauge.STATE_FAILURES, node.store.statistics().failures)
    for one in node.expiries.judged():
        figures.gauges[Gauge.EXPIRY][one.term.title] = one.term.ends_at - time.time()
    for restriction in node.state.restrictions:
        figures.put(Gauge.RESTRICTIONS, 1, restriction.what.value)
    for raised in node.alarms.raised():
        figures.put(Gauge.ALARMS, 1, raised.alarm.word)
    for timing, stage in _STAGES.items():
        figures.timings[timing] = {name: stages[stage] for name, stages in node.traffic.by_class.items()}
    figures.timings[Timing.COMMIT][""] = node.store.commit_times
    figures.timings[Timing.RECORDS][""] = node.records.write_times
