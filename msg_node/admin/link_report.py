"""What is reported of one link, at `/status` and to operators."""

from __future__ import annotations

import time
from collections.abc import Iterable

from federation.core.canary_lane import CanaryLane
from federation.core.contact_trouble import cleaned
from federation.core.link_counts import LinkCount
from federation.core.link_machine import queues_of
from federation.links.domain_link import DomainLink, is_throttled
from protofly.errors import Code

FORGED_NAMES_SHOWN = 8


def link_problem(link: DomainLink) -> str:
    """Describe the trouble of a link for operators; "" if there is none."""
    machine = link.machine
    if machine.state == "stalled":
        return f"{link.domain} is stalled: {machine.detail}"
    if is_throttled(link):
        return f"{link.domain} is slow ({Code.STUB_THROTTLED.word}): its stub has used up its share of the node"
    return "" if machine.carriers else link.events.trouble


def failure_of(links: Iterable[DomainLink], domain: str) -> str:
    """Describe what fails with a domain, and the remedy; "" if nothing is known."""
    for link in links:
        if link.domain == domain:
            return link_problem(link) or f"its stub is {link.stub.state}: {cleaned(link.machine.detail)}".rstrip(": ")
    return ""


def link_status(link: DomainLink) -> dict[str, object]:
    """The status report of one link."""
    machine = link.machine
    return {
        "domain": link.domain,
        "state": link.state,
        "detail": link.machine.detail,
        "problem": link_problem(link),
        "silent_seconds": round(link.machine.silent_seconds(time.monotonic()), 1),
        "carried_by": link.machine.carried_by,
        "worker_pid": link.stub.worker_pid,
        "stub": link.stub.description,
        "update": link.stub.update,
        "usage": link.stub.meters.totals(),
        "cache": "hit" if link.stub.times.is_warm else "miss",
        "steps": [{"name": name, "ms": round(ms, 3)} for name, ms in link.stub.times.steps],
        "waiting": sum(queue.waiting for queue in queues_of(machine)),
        "under_way": sum(queue.under_way for queue in queues_of(machine)),
        "canary": None if machine.canary is None else _share(machine.canary),
        **{name.replace(" ", "_"): link.counters[name] for name in LinkCount},
        "domains": sorted(link.inward.domains()),
        "forged_names": link.inward.forged_names.most(FORGED_NAMES_SHOWN),
        "lost": 0 if link.queue.is_carried or not link.queue.under_way else link.queue.under_way,
    }


def _share(lane: CanaryLane) -> dict[str, int]:
    """Counts of the messages that a newer version has delivered and refused so far."""
    return {"delivered": lane.delivered, "refused": lane.refused}
