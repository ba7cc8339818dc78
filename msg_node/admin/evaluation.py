"""Whether a message would pass a gate, and why: asked by operators, changes and counts nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from policy.core.gate import Explanation, Gate
from policy.core.model import Facts, Hook, Recipients
from protofly.address import domain_of
from protofly.message import Message


def facts_at(
    gate: Gate,
    message: Message,
    hook: Hook,
    roles: frozenset[str],
    *,
    now: float,
    recipients: Recipients | None = None,
) -> Facts:
    """Collect the facts that a gate at `hook` is given about a message; `roles` are those of the sending session."""
    from_domain, to_domain = domain_of(message.from_), domain_of(message.to)
    links: Mapping[Hook, str] = {"peer": to_domain, "out": to_domain, "in": from_domain, "local": ""}
    return Facts(
        hook=hook,
        message=message,
        from_domain=from_domain,
        to_domain=to_domain,
        link_domain=links[hook],
        size_bytes=len(message.raw),
        via_length=message.via.count(b'"') // 2,
        now=now,
        session_roles=roles,
        link_class=gate.class_of(links[hook]),
        recipients=recipients if hook in ("local", "in") else None,
    )


def explained(explanation: Explanation) -> dict[str, object]:
    """A verdict with its reasons, in plain values."""
    verdict = explanation.verdict
    applied = {True: "applies", False: "does not apply", None: "indeterminate"}
    return {
        "permitted": verdict.permitted,
        "decision": "permit" if verdict.permitted else "deny",
        "decided_by": verdict.step.value,
        "rule": verdict.rule_id,
        "code": verdict.code.word if verdict.code else "",
        "revision": verdict.revision,
        "obligations": [f"{one.name} = {_value_text(one.value)}" for one in verdict.decision.obligations],
        "peer_entry": str(explanation.peer_entry),
        "values": [f"{name} = {_value_text(value)}" for name, value in explanation.values.items()],
        "rules": [
            f"{rule.rule_id} ({rule.effect.value}, {rule.mode.value}): {applied[rule.applies]}"
            + (f"; missing {', '.join(rule.missing)}" if rule.missing else "")
            for rule in explanation.rules
        ],
    }


def _value_text(value: object) -> str:
    """The value of an attribute as rules read it, as JSON; sets are sorted."""
    return msgspec.json.encode(value, order="deterministic").decode()
