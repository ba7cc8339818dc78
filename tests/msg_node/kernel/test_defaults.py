"""Defaults: no right, no promise and no time, but for those that are named here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import ModuleType

import msgspec

from msg_node.kernel import (
    answers,
    bearer_tokens,
    catalogue_questions,
    certificates,
    changes,
    credentials,
    dialects,
    directories,
    expiry,
    issuer_keys,
    links,
    node_figures,
    own_names,
    proof,
    registrations,
    resources,
    rest_calls,
    restrictions,
    results,
    rules,
    service,
    session,
    signed_tokens,
)
from protofly.limits import ALLOCATION_PER_GUEST_DOMAIN

MODULES = (
    *(answers, bearer_tokens, catalogue_questions, certificates, changes, credentials, dialects, directories, expiry),
    *(issuer_keys, links, node_figures, own_names, proof, registrations, resources, rest_calls, restrictions),
    *(results, rules, service, session, signed_tokens),
)
ON = {
    "Answer.code": 200,
    "Event.has_id": True,
    "IssuerRules.proves_in_full": True,
    "IssuerRules.skew_seconds": 60.0,
    "Rules.learns": True,
    "Rules.reporter_only": True,
    "Rules.strict_release": True,
    "Rules.sm_error": 400,
    "Rules.guest_addresses": ALLOCATION_PER_GUEST_DOMAIN,
}


def defaults_of(module: ModuleType) -> Iterator[tuple[str, object]]:
    for kind in vars(module).values():
        if not isinstance(kind, type) or kind.__module__ != module.__name__:
            continue
        if issubclass(kind, msgspec.Struct):
            yield from ((f"{kind.__name__}.{one.name}", one.default) for one in msgspec.structs.fields(kind))
        elif dataclasses.is_dataclass(kind):
            yield from ((f"{kind.__name__}.{one.name}", one.default) for one in dataclasses.fields(kind))


def test_what_nobody_says_is_off_or_zero_with_few_exceptions() -> None:
    found = {name: value for module in MODULES for name, value in defaults_of(module)}
    assert {"Caller.is_policy_manager", "Opener.is_guest", "SessionRow.is_guest", "Rules.taps"} <= found.keys()
    assert {name: value for name, value in found.items() if isinstance(value, bool | int | float) and value} == ON


def test_rules_follow_others_in_every_rule() -> None:
    other = rules.Rules(**{one.name: "another" for one in dataclasses.fields(rules.Rules)})  # type: ignore[arg-type]
    ours = rules.Rules()
    ours.follow(other)
    assert ours == other
