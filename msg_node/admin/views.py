"""What operators see of a running node: lists of rows that have the same members. Nothing here changes anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from federation.core.link_machine import queues_of
from federation.links.domain_link import DomainLink
from msg_node.admin.administered import Administered
from msg_node.admin.core.pages import Row
from msg_node.admin.link_report import link_status
from msg_node.kernel.credentials import shown_of
from msg_node.kernel.restrictions import Restricted, is_module
from msg_node.kernel.session import Session
from policy.core.session_class import SessionClass, class_in
from policy.core.temporary import temporary_gate
from protofly.errors import PeerError


def sessions(node: Administered) -> Iterator[Row]:
    """All sessions, in the order of their numbers."""
    now, ports = time.time(), node.bus.send_queues.ports
    for session in sorted(node.state.sessions, key=lambda one: one.sid):
        port, guest_of = ports.get(session.sid), node.state.guests.domain(session.sid)
        heard_at = session.heard_at if port is None else max(session.heard_at, port.heard_at)
        yield {
            "runtime": session.runtime,
            "session": session.sid,
            "state": _state_of(session, is_live=port is not None),
            "dialect": session.dialect.name.lower().replace("_", "-"),
            "guest_of": guest_of,
            "class": SessionClass.GUEST.value if guest_of else class_in(shown_of(session.proof)),
            "credential": session.proof.credential,
            "roles": sorted(session.proof.roles),
            "silent_seconds": round(max(0.0, now - heard_at), 1),
            "addresses": node.state.owners.count(session.sid),
            "subscriptions": node.state.listeners.count(session.sid),
            "queued": 0 if port is None else port.queue.queued,
        }


def _state_of(session: Session, *, is_live: bool) -> str:
    if session.is_displaced:
        return "displaced"
    return "live" if is_live else "parked"


def addresses(node: Administered) -> Iterator[Row]:
    """All addresses that sessions own, besides those of their runtimes."""
    for session in sorted(node.state.sessions, key=lambda one: one.sid):
        for row in node.state.owners.owned(session.sid):
            yield {
                "address": row.url,
                "runtime": session.runtime,
                "session": session.sid,
                "allocation_key": row.allocation_key,
            }


def subscriptions(node: Administered) -> Iterator[Row]:
    """All subscriptions, of sessions and of other domains."""
    for number in sorted(node.state.listeners.listeners()):
        session = node.state.sessions.get(number)
        domain = node.state.links.domain(number) if number < 0 else ""
        for one in node.state.listeners.subscriptions(number):
            yield {
                "address": one.url,
                "listener": domain or ("" if session is None else session.runtime),
                "is_domain": bool(domain),
                "source": one.source,
            }


def links(node: Administered) -> Iterator[Row]:
    """All links, by domain."""
    for link in sorted(node.federation.links, key=lambda one: one.domain):
        yield link_status(link)


def stubs(node: Administered) -> Iterator[Row]:
    """The stubs of all links that ever needed theirs, by domain."""
    for stub in sorted(node.federation.hosted_stubs(), key=lambda one: one.domain):
        line = stub.line()
        yield {
            "domain": stub.domain,
            "state": stub.state,
            "since": line["since"],
            "detail": stub.detail,
            "version": stub.version,
            "package": stub.module_sha256,
            "signature": stub.signature,
            "update": stub.update,
            "worker_pid": stub.worker_pid,
            "states": list(stub.states),
            "usage": stub.meters.totals(),
        }


def peers(node: Administered) -> Iterator[Row]:
    """All domains that the settings name, whose documents are stored, that have a link, or are blocked."""
    entries = {peer.domain: peer for peer in node.settings().peer}
    linked = {link.domain: link for link in node.federation.links}
    blocked = {one.subject for one in node.state.restrictions.of(Restricted.PEER) if not one.subject.startswith("*.")}
    for domain in sorted({*entries, *node.trust_store.domains(), *linked, *blocked}):
        entry, found = entries.get(domain), node.resolver.explain(domain)
        yield {
            "domain": domain,
            "entry": "" if entry is None else entry.default,
            **_trust_of(node, domain),
            "discovery": found.state,
            "reason": found.reason,
            "link": _link_state(linked.get(domain)),
        }


def _trust_of(node: Administered, domain: str) -> dict[str, object]:
    """The stored trust in a domain; one that cannot be read is shown by the code of its error."""
    try:
        state = node.trust_store.load(domain)
    except PeerError as exc:
        return {"trust": exc.code.word, "root": 0, "serial": 0, "held": [], "failed": []}
    if state is None:
        return {"trust": "", "root": 0, "serial": 0, "held": [], "failed": []}
    held = [f"{name}: {', '.join(update.excess)}" for name, update in state.held.items()]
    failed = [f"{sha256}: {one.code} {one.detail}".strip() for sha256, one in state.failed_modules.items()]
    facts = {"trust": state.level.value, "root": state.root_version, "serial": state.live_serial}
    return {**facts, "held": held, "failed": failed}


def _link_state(link: DomainLink | None) -> str:
    return "" if link is None else link.state


def quotas(node: Administered) -> Iterator[Row]:
    """Bounds of the whole node, and quotas of peers, that the settings name; with what is taken of them."""
    limits, state = node.settings().limits, node.state
    parking = state.delivery.parking
    taken = {
        "limits.sessions": (len(state.sessions), limits.sessions),
        "limits.links": (len(node.federation.links), limits.links),
        "stored requests, bytes": (parking.size_bytes, parking.bounds.bytes),
    }
    for name, (used, most) in taken.items():
        yield {"bound": name, "taken": used, "most": most, "share": round(used / most, 4)}
    now = time.time()
    for name, bucket in node.gate.quotas:
        counted, quota = bucket.counted, bucket.quota
        is_now = now < counted.until
        for unit, used, limit in (
            ("messages", counted.messages, quota.messages),
            ("bytes", counted.bytes, quota.bytes),
        ):
            if limit is not None:
                used = used if is_now else 0
                yield {"bound": f"peer {name}, {unit}", "taken": used, "most": limit, "share": round(used / limit, 4)}


def limits(node: Administered) -> Iterator[Row]:
    """The counts of limits of rules whose period goes on, those with the most messages first."""
    now = time.time()
    counts = [one for one in node.gate.limits if one.counted is not None and now < one.counted.until]
    for limit, key, counted in sorted(counts, key=lambda one: -(one.counted.messages if one.counted else 0)):
        if counted is not None and limit.quota is not None:
            yield {
                "limit": limit.name,
                "by": limit.by,
                "who": key,
                "per": limit.quota.per,
                "messages": counted.messages,
                "most_messages": limit.quota.messages,
                "bytes": counted.bytes,
                "most_bytes": limit.quota.bytes,
                "until": _utc(counted.until),
            }


def queues(node: Administered) -> Iterator[Row]:
    """Queues with something in them: of runtimes, of links, of stored requests."""
    for port in node.bus.send_queues.ports.values():
        if port.queue.queued:
            yield _queue("runtime", node.bus.runtimes.runtime_of(port), port.queue.queued, 0)
    for link in node.federation.links:
        for queue in queues_of(link.machine):
            if queue.waiting or queue.under_way:
                yield _queue("link", link.domain, queue.waiting, queue.under_way)
    stored = node.state.delivery.parking.queues
    for name in list(stored.names()):
        waiting = stored.waiting(name)
        yield _queue("requests", name, waiting, stored.count(name) - waiting)


def _queue(kind: str, name: str, waiting: int, under_way: int) -> Row:
    return {"kind": kind, "queue": name, "waiting": waiting, "under_way": under_way}


def restrictions(node: Administered) -> Iterator[Row]:
    """The restrictions that operators have set."""
    for one in node.state.restrictions:
        if one.what is Restricted.GATE:
            continue
        yield {
            "what": "module" if is_module(one.subject) else one.what.value,
            "subject": one.subject,
            "aliases": list(one.aliases),
            "until": None if one.until is None else _utc(one.until),
            "since": _utc(one.since),
            "by": one.by,
            "reason": one.reason,
        }


def gates(node: Administered) -> Iterator[Row]:
    """Gates for a time, in the order in which they are asked: the one that was set last first."""
    for one in sorted(node.state.restrictions.of(Restricted.GATE), key=lambda one: (one.since, one.by), reverse=True):
        gate = temporary_gate(one.subject, one.effect)
        yield {
            "effect": gate.effect,
            "from": gate.source,
            "to": gate.target,
            "type": gate.type,
            "scheme": gate.scheme,
            "until": None if one.until is None else _utc(one.until),
            "since": _utc(one.since),
            "by": one.by,
            "reason": one.reason,
        }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
