"""What a node says about itself at `/status`. Its readers: `interop/node_status.py`, operators, monitoring."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from pathlib import Path

import msgspec

from federation.domain_link import DomainLink
from msg_node.node import Node
from msg_node.settings.middleware import active_steps
from msg_node.settings.weakenings import insecure_switches

FORGED_NAMES_SHOWN = 8


def node_status(node: Node) -> dict[str, object]:
    """Everything about one node: facts, counters since its start, links, traces."""
    return {
        "domain": node.settings.node.domain,
        "node": node.settings.node_id,
        "version": node.version,
        "pid": os.getpid(),
        "rss_kib": rss_kib(),
        "uptime_seconds": round(time.time() - node.started_at, 3),
        "sessions": node.bus.live_sessions,
        "counters": dict(sorted(_counters(node).items())),
        "records": msgspec.to_builtins(node.records.statistics()),
        "connectors": node.bus.inquiries.statistics(),
        "backends": node.backends.status(),
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


def _counters(node: Node) -> Counter[str]:
    counters = Counter(node.bus.counters)
    counters.update(node.listener.counters)
    counters["messages to barred domains"] = node.federation.barred_messages
    counters["decisions not recorded"] = node.federation.decisions.left_out
    if node.mqtt is not None:
        counters["mqtt messages retained"] = node.mqtt.client.retained_ignored
    return counters


def _problem(link: DomainLink) -> str:
    """What is wrong with a link, in words for operators; "" when nothing is."""
    machine = link.machine
    if machine.state == "stalled":
        return f"{link.domain} is stalled: {machine.detail}"
    return "" if machine.carriers else link.events.trouble


def link_status(link: DomainLink) -> dict[str, object]:
    """How one link is."""
    return {
        "domain": link.domain,
        "state": link.state,
        "detail": link.machine.detail,
        "problem": _problem(link),
        "silent_seconds": round(link.machine.silent_seconds(time.monotonic()), 1),
        "carried_by": link.machine.carried_by,
        "worker_pid": link.stub.worker_pid,
        "stub": link.stub.description,
        "usage": link.stub.meters.totals(),
        "cache": "hit" if link.stub.times.is_warm else "miss",
        "steps": [{"name": name, "ms": round(ms, 3)} for name, ms in link.stub.times.steps],
        "waiting": link.queue.waiting,
        "under_way": link.queue.under_way,
        **{
            name.replace(" ", "_"): link.counters[name]
            for name in (
                "sent",
                "accepted",
                "received",
                "denied",
                "expired",
                "trapped",
                "rejected",
                "duplicates",
                "late replies",
                "spoofed",
                "unheard acknowledgements",
                "timeouts",
                "undeliverable",
                "stub faults",
                "stalls",
            )
        },
        "domains": sorted(link.inward.domains()),
        "forged_names": link.inward.forged_names.most(FORGED_NAMES_SHOWN),
        "lost": 0 if link.queue.is_carried or not link.queue.under_way else link.queue.under_way,
    }


def rss_kib() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 1024
