"""The status report of a node at `/status`. Its readers: `interop/node_status.py`, operators, monitoring."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import msgspec

from msg_node.admin.link_report import link_status
from msg_node.kernel.counts import NodeCount
from msg_node.node import Node
from msg_node.settings.middleware import active_steps
from msg_node.settings.weakenings import insecure_switches
from protofly.counters import Counters


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
        "profile": node.settings.compat.profile or "none",
        "insecure": list(insecure_switches(node.settings)),
        "middleware": list(active_steps(node.settings)),
        "policy_revision": node.gate.policies.revision,
        "policy_faults": {"count": node.gate.policies.faults, "last": node.gate.policies.last_fault},
        "links": [
            {**link_status(link), "discovery": msgspec.to_builtins(node.resolver.explain(link.domain))}
            for link in node.federation.links
        ],
        "traces": node.traces.snapshot(),
    }


def _counters(node: Node) -> dict[str, int]:
    counters = Counters(NodeCount)
    for part in (node.bus.counters, node.listener.counters):
        for name, count in part.items():
            counters[name] += count
    counters[NodeCount.BARRED_DOMAINS] = node.federation.barred_messages
    counters[NodeCount.DECISIONS_NOT_RECORDED] = node.federation.decisions.left_out
    if node.mqtt is not None:
        counters[NodeCount.MQTT_RETAINED] = node.mqtt.client.retained_ignored
    return counters.shown()


def _site(node: Node) -> dict[str, int]:
    server = None if node.site is None else node.site.server
    return {} if server is None else server.counters.shown()


def rss_kib() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 1024
