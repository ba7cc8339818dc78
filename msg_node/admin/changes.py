"""What operators change at a running node. Each change is planned first, which checks it, and then applied whole.

A plan says what is so before and after, and changes nothing: a dry run ends there. `apply` waits for nothing, so no
message sees half of a change; the caller has it made durable, and recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from federation.domain_link import DomainLink, close_link
from msg_node.admin.administered import Administered
from msg_node.admin.blocked_names import blocked_names, known_aliases
from msg_node.admin.core.operations import Value
from msg_node.admin.core.plan import Plan
from msg_node.kernel.restrictions import Restricted, Restriction
from msg_node.kernel.runtime_address import runtime_part
from msg_node.requests.core.recipients import is_domain
from protofly.address import canonical_key
from protofly.errors import Code, PeerError

LEVEL_SECONDS: Final = 600.0

Arguments = Mapping[str, Value]


Planner = Callable[[Administered, Arguments, str], Plan]
"""Plans a change for somebody with that name. Raises PeerError."""


# Domains.


def block(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Cut a domain off: nothing comes from there or goes there, and nothing of it stays here."""
    pattern = str(arguments["domain"])
    restriction = _restriction(Restricted.PEER, pattern, arguments, by)
    if any(map(restriction.covers, node.settings().own_domains)):
        raise PeerError(Code.BAD_BODY, f"{pattern} is our own domain")
    aliases = known_aliases(restriction, node.settings(), node.federation.links, node.trust_store)
    restriction = msgspec.structs.replace(restriction, aliases=aliases)
    covers, guests_here = restriction.covers, node.state.guests
    before = node.state.restrictions.find(Restricted.PEER, pattern)
    links = [link.domain for link in node.federation.links if covers(link.domain)]
    guests = [sid for domain in guests_here.domains() if covers(domain) for sid in guests_here.of(domain)]
    queues = [one for one in node.state.delivery.parking.queues.names() if is_domain(one) and covers(one)]
    after = {"restriction": restriction, "links": links, "guests": len(guests), "queues": queues}
    return Plan(before, after, partial(_cut_off, node, restriction, links, guests, queues))


def _cut_off(
    node: Administered, restriction: Restriction, links: list[str], guests: list[int], queues: list[str]
) -> None:
    reason = restriction.reason or "the operator has blocked this domain"
    node.state.restrictions.set(restriction)
    node.gate.cut_off(blocked_names(node.state.restrictions, node.settings().peer))
    for domain in links:
        node.federation.cut_off(domain, Code.DOMAIN_BLOCKED, reason)
    node.bus.runtimes.remove(guests)
    for queue in queues:
        node.bus.parked_actions.outbox.fail(queue, Code.DOMAIN_BLOCKED)
    node.bus.send_queues.wake()


def unblock(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Lift a block; links come back when they are needed."""
    return _lifting(node, Restricted.PEER, str(arguments["domain"]))


def close_links(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """End the links of a domain in good order."""
    link = _link_of(node, arguments)
    before = {"state": link.state, "carried_by": link.machine.carried_by}
    return Plan(before, {"state": "closing"}, partial(close_link, link))


def refresh(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Forget that a domain could not be found, and start its stub anew unless its link is up."""
    domain = str(arguments["domain"])
    link = next((one for one in node.federation.links if one.domain == domain), None)

    def apply() -> None:
        node.resolver.forget_failures()
        if link is not None and not link.is_live:
            node.federation.restart(domain)

    return Plan({"discovery": node.resolver.explain(domain).state}, {"discovery": "asked again when needed"}, apply)


# Runtimes.


def kick(node: Administered, arguments: Arguments, by: str) -> Plan:
    """End the sessions of a runtime, and keep it from opening others for a time."""
    key = _runtime_key(arguments)
    holder = node.state.sessions.by_runtime(key)
    sids = sorted({one.sid for one in node.state.sessions.displaced(key)} | ({holder} if holder is not None else set()))
    has_ban = "ban" in arguments
    if not sids and not has_ban:
        raise PeerError(Code.NOT_REGISTERED, f"{key} has no session")
    restriction = None
    if has_ban:
        restriction = _restriction(Restricted.RUNTIME, key, {**arguments, "for": arguments["ban"]}, by)

    def apply() -> None:
        if restriction is not None:
            node.state.restrictions.set(restriction)
        node.bus.runtimes.remove(sids)
        node.bus.send_queues.wake()

    return Plan({"sessions": sids}, {"sessions": [], "restriction": restriction}, apply)


def unban(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Let a banned runtime open sessions again."""
    return _lifting(node, Restricted.RUNTIME, _runtime_key(arguments))


def _runtime_key(arguments: Arguments) -> str:
    key = canonical_key(str(arguments["runtime"]))
    if not key.startswith("runtime://") or runtime_part(key) != key:
        raise PeerError(Code.BAD_BODY, "`runtime` is the address of a runtime: runtime://<domain>/<id>")
    return key


# Stubs.


def drain_stub(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """End the running stub of a domain in good order."""
    link = _link_of(node, arguments)
    return Plan({"state": link.stub.state, "worker_pid": link.stub.worker_pid}, {"state": "draining"}, link.need.recall)


def restart_stub(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Stop the stub of a domain at once, and start it anew."""
    link = _link_of(node, arguments)
    before = {"state": link.stub.state, "worker_pid": link.stub.worker_pid}
    return Plan(before, {"state": "starting"}, lambda: _restart(node, link.domain))


def forbid_stub(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Let the stub of a domain not run here; its own node may still connect to us."""
    domain = str(arguments["domain"])
    restriction = _restriction(Restricted.STUB, domain, arguments, by)

    def apply() -> None:
        node.state.restrictions.set(restriction)
        _restart(node, domain)

    return Plan(node.state.restrictions.find(Restricted.STUB, domain), restriction, apply)


def allow_stub(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Let a forbidden stub run again."""
    return _lifting(node, Restricted.STUB, str(arguments["domain"]))


def _restart(node: Administered, domain: str) -> None:
    node.federation.restart(domain)


# The node.


def drain(node: Administered, _arguments: Arguments, _by: str) -> Plan:
    """Stop the node in order."""
    return Plan({"state": "serving"}, {"state": "draining"}, node.stop.set)


def log_level(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Set the level of a logger for a time."""
    logger, level = str(arguments.get("logger", "")), str(arguments["level"])
    until = time.time() + float(arguments.get("for", LEVEL_SECONDS))
    before = {"logger": logger, "level": node.levels.level_of(logger)}
    after = {"logger": logger, "level": level, "until": until}
    return Plan(before, after, lambda: node.levels.set(logger, level, until))


# What several of them need.


def lift(node: Administered, what: Restricted, subject: str) -> None:
    """End a restriction, and let go on what it held back."""
    node.state.restrictions.lift(what, subject)
    if what is Restricted.PEER:
        node.gate.cut_off(blocked_names(node.state.restrictions, node.settings().peer))
        node.federation.open_lasting()
    elif what is Restricted.STUB:
        node.federation.restart(subject)


def _lifting(node: Administered, what: Restricted, subject: str) -> Plan:
    found = node.state.restrictions.find(what, subject)
    if found is None:
        raise PeerError(Code.NOT_REGISTERED, f"there is no restriction of the {what.value} {subject}")
    return Plan(found, None, lambda: lift(node, what, subject))


def _restriction(what: Restricted, subject: str, arguments: Arguments, by: str) -> Restriction:
    now = time.time()
    until = now + float(arguments["for"]) if "for" in arguments else None
    reason = str(arguments.get("reason", ""))
    return Restriction(what=what, subject=subject, reason=reason, by=by, since=now, until=until)


def _link_of(node: Administered, arguments: Arguments) -> DomainLink:
    domain = str(arguments["domain"])
    found = next((link for link in node.federation.links if link.domain == domain), None)
    if found is None:
        raise PeerError(Code.NOT_REGISTERED, f"there is no link to {domain}")
    return found


def shown(facts: object) -> str | None:
    """Facts as the JSON of a record; None for nothing."""
    return None if facts is None else msgspec.json.encode(facts).decode()


PLANNERS: Final[Mapping[str, Planner]] = {
    "peer block": block,
    "peer unblock": unblock,
    "peer close": close_links,
    "peer refresh": refresh,
    "kick": kick,
    "unban": unban,
    "stub drain": drain_stub,
    "stub restart": restart_stub,
    "stub forbid": forbid_stub,
    "stub allow": allow_stub,
    "drain": drain,
    "log level": log_level,
}
"""All changes by the name of their operation."""
