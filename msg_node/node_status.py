"""Parts of what a node says about itself at `/status`. Its readers: `interop/node_status.py`, operators, monitoring."""

from __future__ import annotations

import resource
from pathlib import Path

from federation.domain_link import DomainLink


def link_status(link: DomainLink) -> dict[str, object]:
    """How one link is."""
    return {
        "domain": link.domain,
        "state": link.state,
        "detail": link.detail,
        "carried_by": link.carried_by,
        "worker_pid": link.worker_pid,
        "stub": link.stub,
        "cache": "hit" if link.times.is_warm else "miss",
        "steps": [{"name": name, "ms": round(ms, 3)} for name, ms in link.times.steps],
        "waiting": link.leg.waiting,
        "under_way": link.leg.under_way,
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
                "timeouts",
                "undeliverable",
                "stub faults",
            )
        },
        "lost": 0 if link.leg.is_carried or not link.leg.under_way else link.leg.under_way,
    }


def rss_kib() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 1024
