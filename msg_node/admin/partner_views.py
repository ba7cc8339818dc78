"""What operators see of traffic with other domains: one partner as a whole, latencies, denials, policies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from msg_node.admin import views
from msg_node.admin.administered import Administered
from msg_node.admin.core.alarms import Alarm
from msg_node.admin.core.operations import Value
from msg_node.admin.core.pages import Page, Row, page_of
from msg_node.admin.core.traffic import OTHER, Stage, Window
from msg_node.admin.evaluation import explained, facts_at
from msg_node.admin.link_report import failure_of, link_status
from msg_node.admin.record_search import RecordQuery, RecordSearch
from msg_node.settings.tables.peers import PeerSettings
from policy.core.gate import Gate
from policy.core.model import HOOKS, Hook
from policy.core.session_class import asked_about
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, PeerError

MINUTES_SHOWN: Final = (1, 5, 60)
_PARTNER_DENIALS: Final = 20


def partner(node: Administered, arguments: Mapping[str, Value]) -> dict[str, object]:
    """One other domain: entry, trust, discovery with its attempts, link with its contact, stub, traffic, denials.

    Raises:
        PeerError: NOT_REGISTERED if nothing is known about it.
    """
    domain = str(arguments["domain"])
    if domain in node.settings().own_domains:
        raise PeerError(Code.NOT_REGISTERED, f"{domain} is our own domain: `summary` is about this node")
    row = next((one for one in views.peers(node) if one["domain"] == domain), None)
    if row is None:
        raise PeerError(
            Code.NOT_REGISTERED, f"nothing is known about {domain}: no entry, no documents, no link, no block"
        )
    found = node.resolver.explain(domain)
    entry = next((one for one in node.settings().peer if one.domain == domain), None)
    return {
        **row,
        "settings": _settings_of(entry),
        "attempts": [str(one) for one in found.attempts],
        "detail": found.detail,
        "link_status": next((link_status(one) for one in node.federation.links if one.domain == domain), None),
        "stub": next((one for one in views.stubs(node) if one["domain"] == domain), None),
        "restrictions": [one for one in views.restrictions(node) if _concerns(one, domain)],
        "traffic": traffic_of(node, domain),
        "denials": list(denials(node, domain))[:_PARTNER_DENIALS],
    }


def _settings_of(entry: PeerSettings | None) -> dict[str, object]:
    """The settings of an entry that differ from the defaults."""
    if entry is None:
        return {}
    nothing, said = (msgspec.to_builtins(one, enc_hook=str) for one in (PeerSettings(domain=entry.domain), entry))
    return {name: value for name, value in said.items() if value != nothing[name]}


def _concerns(restriction: Row, domain: str) -> bool:
    subject, aliases = str(restriction["subject"]), restriction["aliases"]
    assert isinstance(aliases, list)
    is_meant = domain.endswith(subject[1:]) if subject.startswith("*.") else domain == subject
    return is_meant or domain in aliases


def traffic_of(node: Administered, domain: str) -> list[Row]:
    """Messages to a domain in the last minutes, and how long they took; one row per window."""
    now = time.time()
    return [_traffic_row(minutes, node.traffic.window(domain, minutes, now)) for minutes in MINUTES_SHOWN]


def _traffic_row(minutes: int, window: Window) -> Row:
    row: dict[str, object] = {"minutes": minutes, "arrived": window.passed, "failed": window.failed}
    for stage in Stage:
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            seconds = window.stages[stage].quantile(share)
            row[f"{stage.name.lower()}_{name}_ms"] = None if seconds is None else round(seconds * 1000, 2)
    return row


def latencies(node: Administered) -> Iterator[Row]:
    """Traffic of the last five minutes with each domain that the settings name, and with all others."""
    now = time.time()
    for domain in [*sorted(node.traffic.domains()), OTHER]:
        yield {"domain": domain, **_traffic_row(5, node.traffic.window(domain, 5, now))}


def denials(node: Administered, domain: str = "") -> Iterator[Row]:
    """The last messages that gates did not let pass, newest first."""
    for one in node.traffic.denials(domain):
        at = datetime.fromtimestamp(one.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        yield {
            "time": at,
            "gate": one.gate,
            "from": one.sender,
            "to": one.recipient,
            "type": one.type,
            "code": one.code,
            "rule": one.rule,
            "msg_id": one.msg_id,
        }


async def find_denials(node: Administered, arguments: Mapping[str, Value]) -> Page:
    """Denials of gates, newest first: the last ones, or with a time those of the audit records.

    Raises:
        PeerError: NO_SUCH_SERVICE where nobody can search records; RATE, TIMEOUT.
        HostError: The records cannot be searched.
    """
    domain, gate, rule = (str(arguments.get(name, "")) for name in ("domain", "gate", "rule"))
    if "since" not in arguments and "until" not in arguments:
        rows = (
            row
            for row in denials(node, domain)
            if (not gate or row["gate"] == gate) and (not rule or row["rule"] == rule)
        )
        return page_of(rows, arguments)
    since, until = _period(arguments)
    query = RecordQuery(since=since, until=until, domain=domain, gate=gate, rule=rule)
    return page_of(await _search_of(node).denials(query), arguments)


async def find_records(node: Administered, arguments: Mapping[str, Value]) -> Page:
    """List audit records of a period, newest first. Raises as `find_denials`."""
    domain, sender, recipient, id_ = (str(arguments.get(name, "")) for name in ("domain", "from", "to", "id"))
    since, until = _period(arguments)
    query = RecordQuery(
        since=since,
        until=until,
        domain=domain,
        sender=sender,
        recipient=recipient,
        id=id_,
        is_refused=bool(arguments.get("refused")),
    )
    return page_of(await _search_of(node).records(query), arguments)


def _period(arguments: Mapping[str, Value]) -> tuple[float, float | None]:
    return float(arguments.get("since", 0.0)), float(arguments["until"]) if "until" in arguments else None


def _search_of(node: Administered) -> RecordSearch:
    if node.search is None:
        raise PeerError(Code.NO_SUCH_SERVICE, "this node runs without a search: use `trapezoid records find`")
    return node.search


def alarm_detail(node: Administered, alarm: Alarm, subject: str) -> str:
    """Describe the failure behind an alarm about a partner's link or stub, and the remedy; "" for other alarms."""
    return failure_of(node.federation.links, subject) if alarm in (Alarm.PARTNER, Alarm.STUB) else ""


def alarms(node: Administered) -> Iterator[Row]:
    """Alarms that are raised, oldest first."""
    for one in node.alarms.raised():
        yield {
            "alarm": one.alarm.word,
            "subject": one.subject,
            "since": datetime.fromtimestamp(one.since or 0.0, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "value": round(one.value, 3),
            "meaning": one.alarm.meaning,
            "detail": alarm_detail(node, one.alarm, one.subject),
        }


def policies(node: Administered) -> Iterator[Row]:
    """The rules in force, in the order in which they are asked."""
    for policy_set in node.gate.policies.sets:
        for policy in policy_set.policies:
            for rule in policy.rules:
                yield {
                    "rule": "/".join(filter(None, (policy_set.id, policy.id, rule.id))),
                    "effect": rule.effect.value,
                    "mode": rule.mode.value,
                    "target": [_text(one.target) for one in (policy_set, policy, rule)],
                    "condition": _text(rule.condition),
                }


def _text(condition: object) -> str:
    return msgspec.json.encode(condition).decode()


def evaluate_at(node: Administered, gate: Gate, arguments: Mapping[str, Value]) -> dict[str, object]:
    """Ask a gate whether a message would pass it; nothing is sent, counted or recorded.

    Raises:
        PeerError: BAD_BODY, BAD_HEADER, NAME_INVALID: it is no message.
    """
    body = str(arguments.get("body", "")) or "{}"
    raw = codec.encode_message(
        id=1,
        type=str(arguments["type"]),
        from_=str(arguments["from"]),
        to=str(arguments["to"]),
        body=_object(body),
    )
    [message] = codec.decode(raw)
    hook = _hook(node, str(arguments.get("gate", "")), domain_of(message.from_), domain_of(message.to))
    roles = frozenset(str(arguments.get("roles", "")).replace(",", " ").split())
    roles = asked_about(roles, str(arguments.get("class", "")))
    facts = facts_at(gate, message, hook, roles, now=time.time(), recipients=node.recipients)
    return {"gate": hook, **explained(gate.explain(facts))}


def _object(text: str) -> bytes:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise PeerError(Code.BAD_BODY, "`body`: expected a JSON object") from exc
    return text.encode()


def _hook(node: Administered, wanted: str, from_domain: str, to_domain: str) -> Hook:
    """The gate that is asked for, or that the message would come to first."""
    for hook in HOOKS:
        if hook == wanted:
            return hook
    ours = node.settings().own_domains
    if from_domain not in ours and from_domain:
        return "in"
    return "local" if to_domain in ours or not to_domain else "out"


async def check(node: Administered, arguments: Mapping[str, Value]) -> dict[str, object]:
    """Test the first contact with a domain, step by step; returns the findings.

    Raises:
        PeerError: RATE; NO_SUCH_SERVICE where nobody can check.
        SettingsError: The settings file cannot be used now.
    """
    if node.checks is None:
        raise PeerError(Code.NO_SUCH_SERVICE, "this node runs without the tester: use `trapezoid peer check`")
    return await node.checks.run(str(arguments["domain"]))
