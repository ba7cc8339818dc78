"""The tests that a policy file brings along: example messages with the decision that its author expects.

Source: trust and hosts, section 5.3, rule 7.
"""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

from policy.core.document import Node, walk_texts
from policy.core.engine import CompiledPolicies
from policy.core.model import (
    HOOKS,
    RECIPIENT_PRESENCES,
    RECIPIENT_STATUSES,
    Effect,
    Facts,
    Hook,
    KnownRecipient,
    LinkClass,
)
from policy.core.session_class import SESSION_CLASSES, asked_about
from protofly.address import domain_of
from protofly.codec import build
from protofly.errors import PeerError

_KEYS: Final = {
    name: name
    for name in (
        "name",
        "hook",
        "type",
        "from",
        "to",
        "link",
        "link_class",
        "at",
        "size",
        "via_length",
        "resource",
        "class",
        "user",
        "issuer",
        "groups",
        "roles",
        "session_class",
        "dst_status",
        "dst_presence",
        "expect",
        "rule",
    )
} | {
    "viaLength": "via_length",
    "sessionClass": "session_class",
    "dstStatus": "dst_status",
    "dstPresence": "dst_presence",
}
_EXPECTED: Final = {effect.value: effect for effect in Effect}
_LINK_CLASSES: Final[dict[str, LinkClass]] = {"node": "node", "plain": "plain"}
_CLASSES: Final = {word: word for word in SESSION_CLASSES}
_STATUSES: Final = {word: word for word in RECIPIENT_STATUSES}
_PRESENCES: Final = {word: word for word in RECIPIENT_PRESENCES}
_HOOKS: Final[dict[str, Hook]] = {hook: hook for hook in HOOKS}
_MONDAY_NOON: Final = 1_767_614_400.0
"""5 January 2026, 12:00 UTC: when an example happens that does not say."""


class Example(NamedTuple):
    """One example: the facts, what is to be decided, and by which rule ("" = whichever)."""

    name: str
    facts: Facts
    effect: Effect
    rule_id: str
    node: Node


def parse_examples(node: Node | None) -> tuple[Example, ...]:
    """Read the `tests` of a file.

    Raises:
        SettingsError: What cannot be understood, with its line.
    """
    return () if node is None else tuple(_parse_example(entry) for entry in node.entries())


def run_examples(examples: tuple[Example, ...], policies: CompiledPolicies) -> None:
    """Hold each example against the policies.

    Raises:
        SettingsError: The first that is decided otherwise, with its line and what was decided.
    """
    for example in examples:
        decision = policies.decide(example.facts)
        is_right = decision.effect is example.effect and example.rule_id in ("", decision.rule_id)
        if not is_right:
            wanted = example.effect.value + (f" by {example.rule_id}" if example.rule_id else "")
            found = decision.effect.value + (f" by {decision.rule_id}" if decision.rule_id else "")
            example.node.fail(f'test "{example.name}" expects {wanted}, the policies say {found}')


def _parse_example(node: Node) -> Example:
    members = node.members(_KEYS)
    for name in ("from", "to", "expect"):
        if name not in members:
            node.fail(f'a test needs "{name}"')
    return Example(
        name=_text(members, "name", "without a name"),
        facts=_facts(members),
        effect=members["expect"].choose(_EXPECTED, "decision"),
        rule_id=_text(members, "rule", ""),
        node=node,
    )


def _facts(members: dict[str, Node]) -> Facts:
    from_, to = members["from"], members["to"]
    hook: Hook = members["hook"].choose(_HOOKS, "hook") if "hook" in members else "out"
    from_domain, to_domain = _domain(from_), _domain(to)
    by_hook = {"local": "", "in": from_domain}.get(hook, to_domain)
    body: dict[str, object] = {name: members[name].text() for name in ("resource", "class") if name in members}
    message = build(id=1, type=_text(members, "type", "create").lower(), from_=from_.text(), to=to.text(), body=body)
    return Facts(
        hook=hook,
        message=message,
        from_domain=from_domain,
        to_domain=to_domain,
        link_domain=_text(members, "link", by_hook),
        size_bytes=_number(members, "size", len(message.raw)),
        via_length=_number(members, "via_length", 0),
        now=_moment(members.get("at")),
        identity_verified="user" in members,
        identity_user=_text(members, "user", ""),
        identity_issuer=_text(members, "issuer", ""),
        identity_groups=_texts(members, "groups") if "groups" in members else None,
        session_roles=_session(members),
        link_class=members["link_class"].choose(_LINK_CLASSES, "class") if "link_class" in members else "node",
        recipients=KnownRecipient(
            members["dst_status"].choose(_STATUSES, "status") if "dst_status" in members else None,
            members["dst_presence"].choose(_PRESENCES, "presence") if "dst_presence" in members else None,
        ),
    )


def _session(members: dict[str, Node]) -> frozenset[str]:
    """The roles of the sender's session, and its class."""
    return asked_about(
        _texts(members, "roles"),
        members["session_class"].choose(_CLASSES, "class") if "session_class" in members else "",
    )


def _texts(members: dict[str, Node], name: str) -> frozenset[str]:
    return frozenset(node.text() for node in walk_texts(members[name])) if name in members else frozenset()


def _text(members: dict[str, Node], name: str, default: str) -> str:
    return members[name].text() if name in members else default


def _number(members: dict[str, Node], name: str, default: int) -> int:
    return members[name].whole_number() if name in members else default


def _domain(node: Node) -> str:
    try:
        return domain_of(node.text())
    except PeerError as exc:
        node.fail(f"not an address: {exc.detail}")


def _moment(node: Node | None) -> float:
    """A date with time, UTC unless it says otherwise."""
    if node is None:
        return _MONDAY_NOON
    try:
        moment = dt.datetime.fromisoformat(str(node.scalar()))
    except ValueError:
        node.fail('expected a moment as "2026-03-02T22:30:00Z"')
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
