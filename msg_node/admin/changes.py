"""What operators change at a running node. Each change is planned first, which checks it, and then applied whole.

A plan says what is so before and after, and changes nothing: a dry run ends there. `apply` waits for nothing, so no
message sees half of a change; the caller has it made durable, and recorded.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Literal, TypedDict

import msgspec

from catalogue_client.core.state import FailedModule, TrustState
from catalogue_client.core.updates import failed, readmitted
from catalogue_client.core.verify import approve
from federation.links.domain_link import DomainLink, close_link
from msg_node.admin.administered import Administered
from msg_node.admin.blocked_names import blocked_names, known_aliases
from msg_node.admin.core.operations import MOST_SECONDS, Value
from msg_node.admin.core.plan import Plan
from msg_node.kernel.restrictions import Restricted, Restriction, Restrictions, is_module
from msg_node.kernel.runtime_address import runtime_part
from msg_node.requests.core.recipients import is_domain
from policy.core.temporary import TemporaryGate, make_gate, temporary_gate
from protofly.address import canonical_key
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import TEMPORARY_GATES

LEVEL_SECONDS: Final = 600.0
RECORDED_CHARS: Final = 1024
"""A longer argument is recorded by its digest."""

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
    before = node.state.restrictions.find(Restricted.PEER, pattern)
    affected = _affected(node, restriction)
    after = {"restriction": restriction, **affected, "guests": len(affected["guests"])}
    return Plan(before, after, partial(_restrict, node, restriction))


class _Affected(TypedDict):
    """The parts of a domain that exist here."""

    links: list[str]
    guests: list[int]
    queues: list[str]


def _affected(node: Administered, restriction: Restriction) -> _Affected:
    covers, guests = restriction.covers, node.state.guests
    return {
        "links": [link.domain for link in node.federation.links if covers(link.domain)],
        "guests": [sid for domain in guests.domains() if covers(domain) for sid in guests.of(domain)],
        "queues": [one for one in node.state.delivery.parking.queues.names() if is_domain(one) and covers(one)],
    }


def block_all(node: Administered, restrictions: Iterable[Restriction]) -> None:
    """Put restrictions of domains in force together; with a thousand of them the gates are made anew once."""
    restrictions = [
        msgspec.structs.replace(
            one, aliases=known_aliases(one, node.settings(), node.federation.links, node.trust_store)
        )
        for one in restrictions
    ]
    for one in restrictions:
        node.state.restrictions.set(one)
    node.gate.cut_off(blocked_names(node.state.restrictions, node.settings().peer))
    for one in restrictions:
        _end_all(node, one)


def _cut_off(node: Administered, restriction: Restriction) -> None:
    node.gate.cut_off(blocked_names(node.state.restrictions, node.settings().peer))
    _end_all(node, restriction)


def _end_all(node: Administered, restriction: Restriction) -> None:
    """End what of a domain is here."""
    reason = restriction.reason or "the operator has blocked this domain"
    affected = _affected(node, restriction)
    for domain in affected["links"]:
        node.federation.cut_off(domain, Code.DOMAIN_BLOCKED, reason)
    node.bus.runtimes.remove(affected["guests"])
    for queue in affected["queues"]:
        node.bus.parked_actions.outbox.fail(queue, Code.DOMAIN_BLOCKED)
    node.bus.send_queues.wake()


def unblock(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Lift a block; links come back when they are needed."""
    return _lifting(node, Restricted.PEER, str(arguments["domain"]))


def close_links(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """End the links of a domain in good order; one that is down stays so until it is needed."""
    link = _link_of(node, arguments)
    carried_by = link.machine.carried_by
    after = "closing" if carried_by else "down already; the next message opens a link"
    return Plan({"state": link.state, "carried_by": carried_by}, {"state": after}, partial(close_link, link))


def refresh(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Ask a domain for its documents now; start its stub anew unless its link is up."""
    domain = str(arguments["domain"])
    if any(one.covers(domain) for one in node.state.restrictions.of(Restricted.PEER)):
        raise PeerError(Code.DOMAIN_BLOCKED, f"{domain} is blocked here: nothing is asked of it before `peer unblock`")
    link = next((one for one in node.federation.links if one.domain == domain), None)

    is_live = link is not None and link.is_live

    def apply() -> None:
        node.resolver.forget_failures()
        node.documents.ask_again(domain)
        if link is not None and is_live:
            link.need.look()
        elif link is not None:
            node.federation.restart(domain)

    after = {"discovery": "asked now" if is_live else "asked again when needed"}
    return Plan({"discovery": node.resolver.explain(domain).state}, after, apply)


# Runtimes.


def kick(node: Administered, arguments: Arguments, by: str) -> Plan:
    """End the sessions of a runtime, and keep it from opening others for a time."""
    key = _runtime_key(arguments)
    sids = _sessions_of(node, key)
    has_ban = "ban" in arguments
    if not sids and not has_ban:
        raise PeerError(Code.NOT_REGISTERED, f"{key} has no session")
    restriction = None
    if has_ban:
        restriction = _restriction(Restricted.RUNTIME, key, {**arguments, "for": arguments["ban"]}, by)

    def apply() -> None:
        if restriction is not None:
            node.state.restrictions.set(restriction)
        _end_sessions(node, key)

    return Plan({"sessions": sids}, {"sessions": [], "restriction": restriction}, apply)


def _sessions_of(node: Administered, runtime_key: str) -> list[int]:
    sessions = node.state.sessions
    holder = sessions.by_runtime(runtime_key)
    return sorted({one.sid for one in sessions.displaced(runtime_key)} | ({holder} if holder is not None else set()))


def _end_sessions(node: Administered, runtime_key: str) -> None:
    node.bus.runtimes.remove(_sessions_of(node, runtime_key))
    node.bus.send_queues.wake()


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
    before = {"state": link.stub.state, "worker_pid": link.stub.worker_pid}
    is_running = link.stub.worker_pid is not None
    after = "draining" if is_running else "not running; the next message starts it"
    return Plan(before, {"state": after}, link.need.recall)


def restart_stub(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Restart the stub of a domain at once."""
    link = _link_of(node, arguments)
    before = {"state": link.stub.state, "worker_pid": link.stub.worker_pid}
    return Plan(before, {"state": "starting"}, lambda: _restart(node, link.domain))


def forbid_stub(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Let a stub, or a module of whatever domain, not run here; the domain's own node may still connect to us."""
    subject = _stub_or_module(arguments)
    restriction = _restriction(Restricted.STUB, subject, arguments, by)
    after = {"restriction": restriction, "domains": [link.domain for link in _running(node, restriction)]}
    before = node.state.restrictions.find(Restricted.STUB, subject)
    return Plan(before, after, partial(_restrict, node, restriction))


def allow_stub(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Allow a forbidden stub or module to run again."""
    return _lifting(node, Restricted.STUB, _stub_or_module(arguments))


def _stub_or_module(arguments: Arguments) -> str:
    """Raises PeerError: BAD_BODY."""
    if ("domain" in arguments) is ("module" in arguments):
        raise PeerError(Code.BAD_BODY, "give `domain` for the stub of a domain, or `module` for a module of any domain")
    return str(arguments["module"] if "module" in arguments else arguments["domain"])


def _running(node: Administered, restriction: Restriction) -> list[DomainLink]:
    """Links whose stub a restriction ends, or may: any that has a version on trial counts."""
    running = [link for link in node.federation.links if link.stub.worker_pid is not None]
    if not is_module(restriction.subject):
        return [link for link in running if link.domain == restriction.subject]
    return [
        link for link in running if link.stub.module_sha256 == restriction.subject or link.machine.canary is not None
    ]


def approve_stub(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Let versions of the stub of a domain run that were held, or have failed here."""
    domain = str(arguments["domain"])
    if any(one.domain == domain and one.stub is not None for one in node.settings().peer):
        detail = f"the settings choose the stub of {domain}: `stub pin` accepts another module"
        raise PeerError(Code.NOT_REGISTERED, detail)
    state = _trust_in(node, arguments)
    wanted = str(arguments.get("stub", ""))
    held = {name: update.excess for name, update in state.held.items() if wanted in ("", name)}
    if not held and not state.failed_modules:
        raise PeerError(Code.NOT_REGISTERED, f"no version of the stub of {domain} is held or has failed here")
    following = readmitted(state)
    for name in held:
        following = approve(following, name)

    def store() -> None:
        node.trust_store.replace_now(state, following)

    left = {name: update.excess for name, update in following.held.items()}
    before = {"held": held, "failed": state.failed_modules}
    return Plan(before, {"held": left, "failed": {}}, partial(_look_at_versions, node, domain), store)


def roll_back_stub(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Have the version before the running one go on, and do not try the running one again."""
    state, domain = _trust_in(node, arguments), str(arguments["domain"])
    link = _link_of(node, arguments)
    running = link.stub.module_sha256
    name, mark = next(((name, one) for name, one in state.stubs.items() if one.module_sha256 == running), ("", None))
    why = FailedModule(code="operator", detail=f"{arguments.get('reason', '')} ({by})".strip())
    following = state if mark is None else failed(state, name, mark.manifest_sha256, why)
    if following == state:
        detail = f"the stub of {domain} runs no newer version than the one that was accepted first"
        raise PeerError(Code.NOT_REGISTERED, detail)

    def store() -> None:
        node.trust_store.replace_now(state, following)

    before = {"version": link.stub.version, "module": running}
    return Plan(before, {"failed": following.failed_modules}, partial(_look_at_versions, node, domain), store)


def _trust_in(node: Administered, arguments: Arguments) -> TrustState:
    state = node.trust_store.load(str(arguments["domain"]))
    if state is None:
        raise PeerError(Code.NOT_REGISTERED, f"nothing is remembered of {arguments['domain']}")
    return state


def _look_at_versions(node: Administered, domain: str) -> None:
    """Have the stub of a domain look which of its versions may run; one that is held back starts at once."""
    link = next((one for one in node.federation.links if one.domain == domain), None)
    if link is None:
        return
    if link.stub.worker_pid is not None:
        link.need.look()
    elif not link.is_live:
        node.federation.restart(domain)


def _restart(node: Administered, domain: str) -> None:
    node.federation.restart(domain)


# Gates for a time.


def set_gate(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Permit or deny messages from one domain to another for a time."""
    now = time.time()
    if ("for" in arguments) is ("until" in arguments):
        raise PeerError(Code.BAD_BODY, "a gate is for a time: give `for` or `until`")
    until = float(arguments["until"]) if "until" in arguments else now + float(arguments["for"])
    if not now < until <= now + MOST_SECONDS:
        raise PeerError(Code.BAD_BODY, "`until` is a moment to come, within ten years")
    gate, gates = _gate_of(arguments), node.state.restrictions.of(Restricted.GATE)
    before = node.state.restrictions.find(Restricted.GATE, gate.name)
    if before is None and len(gates) >= TEMPORARY_GATES:
        raise PeerError(Code.QUOTA, f"there are {TEMPORARY_GATES} gates for a time; a policy says more than that")
    restriction = Restriction(
        what=Restricted.GATE,
        subject=gate.name,
        reason=str(arguments.get("reason", "")),
        by=by,
        since=now,
        until=until,
        effect=gate.effect,
    )
    return Plan(before, restriction, partial(_restrict, node, restriction))


def unset_gate(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """End a gate before its time."""
    return _lifting(node, Restricted.GATE, _gate_of(arguments).name)


def _gate_of(arguments: Arguments) -> TemporaryGate:
    """Raises PeerError: BAD_BODY."""
    type_, scheme = str(arguments.get("type", "")), str(arguments.get("scheme", ""))
    effect: Literal["permit", "deny"] = "permit" if arguments.get("effect") == "permit" else "deny"
    try:
        return make_gate(str(arguments["from"]), str(arguments["to"]), effect, type_=type_, scheme=scheme)
    except SettingsError as exc:
        raise PeerError(Code.BAD_BODY, exc.detail) from exc


# The node.


def drain(node: Administered, _arguments: Arguments, _by: str) -> Plan:
    """Stop the node in order."""
    return Plan({"state": "serving"}, {"state": "draining"}, node.stop.set)


def log_level(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Set the level of a logger for a time."""
    logger, level = str(arguments.get("logger", "")), str(arguments["level"])
    if logger not in node.levels.loggers():
        known = ", ".join(filter(None, node.levels.loggers()))
        raise PeerError(Code.NOT_REGISTERED, f"there is no logger {logger!r}; there are: {known}")
    until = time.time() + float(arguments.get("for", LEVEL_SECONDS))
    before = {"logger": logger, "level": node.levels.level_of(logger)}
    after = {"logger": logger, "level": level, "until": until}
    return Plan(before, after, lambda: node.levels.set(logger, level, until))


# What several of them need.


def lift(node: Administered, what: Restricted, subject: str) -> None:
    """End a restriction, and let go on what it held back."""
    node.state.restrictions.lift(what, subject)
    lifted(node, what, subject)


def _restrict(node: Administered, restriction: Restriction) -> None:
    node.state.restrictions.set(restriction)
    enforce(node, restriction)


def enforce(node: Administered, restriction: Restriction) -> None:
    """End what a restriction forbids that is in force since now."""
    if restriction.what is Restricted.PEER:
        _cut_off(node, restriction)
    elif restriction.what is Restricted.GATE:
        node.policies.set_gates(gates_in_force(node.state.restrictions))
    elif restriction.what is Restricted.RUNTIME:
        _end_sessions(node, restriction.subject)
    elif is_module(restriction.subject):
        node.end_connectors(restriction.subject)
        for link in _running(node, restriction):
            _restart(node, link.domain)
    else:
        _restart(node, restriction.subject)


def lifted(node: Administered, what: Restricted, subject: str) -> None:
    """Let go on what a restriction held back that has ended."""
    if what is Restricted.PEER:
        node.gate.cut_off(blocked_names(node.state.restrictions, node.settings().peer))
        node.federation.open_lasting()
    elif what is Restricted.GATE:
        node.policies.set_gates(gates_in_force(node.state.restrictions))
    elif what is Restricted.STUB and not is_module(subject):
        _restart(node, subject)
    elif what is Restricted.STUB:
        for link in [one for one in node.federation.links if one.stub.state == "verify-failed"]:
            _restart(node, link.domain)


def gates_in_force(restrictions: Restrictions) -> list[TemporaryGate]:
    """Gates for a time, the one that was set last first."""
    newest_first = sorted(restrictions.of(Restricted.GATE), key=lambda one: (one.since, one.by), reverse=True)
    return [temporary_gate(one.subject, one.effect) for one in newest_first]


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


def recorded(arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a request as a record has them: files, and what is long, by their digest."""
    return {name[:RECORDED_CHARS]: _recorded(name, value) for name, value in arguments.items()}


def _recorded(name: str, value: object) -> object:
    raw = msgspec.json.encode(value)
    if name != "files" and len(raw) <= RECORDED_CHARS:
        return value
    return f"{len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()}"


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
    "stub approve": approve_stub,
    "stub roll-back": roll_back_stub,
    "gate set": set_gate,
    "gate unset": unset_gate,
    "drain": drain,
    "log level": log_level,
}
"""All changes by the name of their operation."""
