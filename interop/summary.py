"""What one demo run brought: gathered from the ledger of the runtimes and the status of the nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from interop.figures import milliseconds, percentile
from interop.group_chat import GroupChat, Traced
from interop.node_status import ContactStep, LinkStatus, NodeStatus


class Summary(Struct, frozen=True, kw_only=True):
    """The facts of a run, as `--json` prints them.

    `sent` = `delivered` + `denied` + `lost`, where each receiver's copy counts as one.
    """

    ok: bool
    sent: int
    delivered: int
    lost: int
    denied: int
    duplicated: int
    reordered: int
    differing: int
    unexpected: int
    first_contact_ms: float | None
    warm_contact_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    cache: str
    steps: tuple[ContactStep, ...]
    warm_steps: tuple[ContactStep, ...]
    worker_pids: dict[str, int]
    node_pids: dict[str, int]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedHop:
    """The traced message at one place. Times in microseconds since it left its runtime, and since the hop before."""

    place: str
    since_start_us: float
    since_previous_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmContact:
    """The first contact after a restart of both nodes, with everything in the caches."""

    taken_ns: int
    link: LinkStatus | None


def summarise(chat: GroupChat, nodes: Mapping[str, NodeStatus], warm: WarmContact | None) -> Summary:
    """Compare what was due with what arrived, and sum up."""
    totals = chat.ledger.totals()
    latencies = chat.ledger.crossing_latencies_ns()
    refused = sum(refusal.is_as_expected for refusal in chat.refusals)
    escaped = len(chat.refusals) - refused
    link = first_link(nodes)
    faults = find_faults(chat, nodes)
    return Summary(
        ok=not faults,
        sent=totals.sent + len(chat.refusals),
        delivered=totals.delivered + escaped,
        lost=totals.lost,
        denied=refused,
        duplicated=totals.duplicated,
        reordered=totals.reordered,
        differing=totals.differing,
        unexpected=totals.unexpected + len(chat.uncalled_for),
        first_contact_ms=milliseconds(chat.first_contact_ns),
        warm_contact_ms=milliseconds(warm.taken_ns) if warm else None,
        p50_ms=milliseconds(percentile(latencies, 0.5)),
        p99_ms=milliseconds(percentile(latencies, 0.99)),
        cache=link.cache if link else "",
        steps=link.steps if link else (),
        warm_steps=warm.link.steps if warm and warm.link else (),
        worker_pids={node.domain: one.worker_pid for node in nodes.values() for one in node.links if one.worker_pid},
        node_pids={node.domain: node.pid for node in nodes.values()},
        faults=tuple(faults),
    )


def first_link(nodes: Mapping[str, NodeStatus]) -> LinkStatus | None:
    """The link over which the first contact was made: that of the first domain to the second."""
    first, second = nodes
    return nodes[first].link_to(second)


def find_faults(chat: GroupChat, nodes: Mapping[str, NodeStatus]) -> list[str]:
    """Everything that must not be, in words; an empty list means success."""
    faults = []
    for flow in chat.ledger.flows:
        for word in ("lost", "duplicated", "reordered", "differing", "unexpected"):
            count = getattr(flow, word)
            if count:
                faults.append(f"{flow.subject} from {flow.speaker} to {flow.receiver}: {count} {word}")
    faults += [f"uncalled for: {text}" for text in chat.uncalled_for]
    for refusal in chat.refusals:
        if not refusal.is_as_expected:
            answer, item = refusal.answer, refusal.item
            expected = f"{item.code} {item.reason}"
            faults.append(f"{item.title}: answered {answer.code} {answer.reason}, expected {expected}")
    for node in nodes.values():
        faults += [f"{node.domain} says {link.lost} lost towards {link.domain}" for link in node.links if link.lost]
    return faults


def passed_hops(traced: Traced, nodes: Mapping[str, NodeStatus]) -> list[PassedHop]:
    """The way of the traced message, from runtime to runtime through both nodes, in order of time."""
    hops: list[tuple[float, str]] = [(traced.sent_at_us, f"{traced.speaker} sends")]
    for domain, node in nodes.items():
        trace = node.trace(traced.trace)
        hops += [(hop.at_us, f"{domain}: {hop.name}") for hop in (trace.hops if trace else ())]
    if traced.arrived_at_us is not None:
        hops.append((traced.arrived_at_us, f"{traced.receiver} receives"))
    hops.sort(key=lambda hop: hop[0])
    start = previous = hops[0][0]
    passed = []
    for at_us, place in hops:
        passed.append(PassedHop(place=place, since_start_us=at_us - start, since_previous_us=at_us - previous))
        previous = at_us
    return passed
