"""Cases of address allocation: giving addresses back. Source: message specification, section 7.3."""

from __future__ import annotations

from typing import Final

from interop.conformance.cases.allocation import COMM
from interop.conformance.jsontext import Json
from interop.conformance.matching import Keep
from interop.conformance.model import (
    ABSENT,
    STRICT_ONLY,
    Answered,
    Arrives,
    Asks,
    Case,
    CaseStep,
    Refusal,
    Scope,
    Silent,
    Steps,
    Survives,
    case,
    granted,
    malformed,
    owns,
    refused,
    unreachable,
)

LIST_RULE: Final = (
    "collect the list: childrenResources, resources, value.childrenResources, value.allocated; flatten nested arrays"
)
KEY_RULE: Final = "collect the key: resource, value.resource, value.allocationKey; a known key releases its block"
OWNER_RULE: Final = (
    "only the owner session, a session of the same runtime, or an operator releases; "
    "foreign addresses are skipped, the reply is 200 with body.value.refused listing them"
)
NOTHING_RULE: Final = "nothing collected: 400 bad-body"
OWNER_ONLY: Final = Scope(profiles=STRICT_ONLY)
IDEMPOTENT_RULE: Final = "unknown key or address: 200 (idempotent)"


def _delete(who: str, body: Json, *, type_: str = "delete") -> CaseStep:
    return Asks(who, type_, "{allocation}", body, from_=f"{{{who}}}/address-allocation")


def _claim(who: str) -> CaseStep:
    from_ = f"{{{who}}}/address-allocation"
    body: Json = {"resources": ["hyperty://{d}/own-{n}"], "source": from_}
    return Asks(who, "subscribe", "{sm}", body, from_=from_)


def _gone(name: str) -> tuple[CaseStep, ...]:
    """Nobody owns the address any more: requests to it are refused, and ana hears nothing of them."""
    return Asks("cy", "read", f"{{{name}}}"), unreachable("cy", 404, "no-route"), Silent("ana", after="cy")


def _kept(name: str) -> tuple[CaseStep, ...]:
    """Ana still owns the address."""
    return Asks("cy", "read", f"{{{name}}}"), Arrives("ana", "cy")


def _releases(slug: str, says: str, body: Json, *, type_: str = "delete") -> Case:
    """Ana's address `{h}` of the block `{ana}/key-h` is given back by this body."""
    steps: tuple[Steps, ...] = (owns("ana", "h"), _delete("ana", body, type_=type_), granted("ana"), *_gone("h"))
    return case(f"release-{slug}", "7.3", says, *steps, cast="ana cy")


def _refuses(slug: str, says: str, body: Json) -> Case:
    """A body that is answered 400 `bad-body`, and releases nothing."""
    steps: tuple[Steps, ...] = (owns("ana", "h"), _delete("ana", body), refused("ana", 400, "bad-body"), *_kept("h"))
    return case(f"release-{slug}", "7.3", says, *steps, cast="ana cy")


def _grants(slug: str, body: Json) -> Case:
    """A body that is granted, and releases nothing that ana has."""
    steps: tuple[Steps, ...] = (owns("ana", "h"), _delete("ana", body), granted("ana"), *_kept("h"))
    return case(f"release-{slug}", "7.3", IDEMPOTENT_RULE, *steps, cast="ana cy")


CASES: Final = (
    _releases("by-key", KEY_RULE, {"resource": "{ana}/key-h"}),
    _releases("by-key-in-value", KEY_RULE, {"value": {"resource": "{ana}/key-h"}}),
    _releases("by-allocation-key", KEY_RULE, {"value": {"allocationKey": "{ana}/key-h"}}),
    _releases("by-list", LIST_RULE, {"childrenResources": ["{h}"]}),
    _releases("by-nested-list", LIST_RULE, {"childrenResources": [["{h}"]]}),
    _releases("by-resources", LIST_RULE, {"resources": ["{h}"]}),
    _releases("by-list-in-value", LIST_RULE, {"value": {"childrenResources": ["{h}"]}}),
    _releases("by-allocated", LIST_RULE, {"value": {"allocated": ["{h}"]}}),
    _releases("by-address", "else if the key is an address owned by the session, release it", {"resource": "{h}"}),
    _releases("upper-case-type", "types are compared after lower-casing", {"resource": "{h}"}, type_="DELETE"),
    _releases("twice-in-list", LIST_RULE, {"childrenResources": ["{h}", ["{h}"]]}),
    case(
        "release-whole-block",
        "7.3",
        KEY_RULE,
        Asks("ana", "create", "{allocation}", {"scheme": "comm", "value": {"number": 2, "allocationKey": "{n}"}}),
        granted("ana", {"allocated": [Keep("o1", COMM), Keep("o2", COMM)]}),
        _delete("ana", {"resource": "{n}"}),
        granted("ana"),
        _gone("o1"),
        _gone("o2"),
        cast="ana cy",
    ),
    case(
        "release-one-block-of-two",
        "7.3",
        KEY_RULE,
        owns("ana", "h"),
        owns("ana", "o", "comm"),
        _delete("ana", {"resource": "{ana}/key-h"}),
        granted("ana"),
        _gone("h"),
        _kept("o"),
        cast="ana cy",
    ),
    case(
        "release-one-address-of-a-block",
        "7.3",
        LIST_RULE,
        Asks("ana", "create", "{allocation}", {"scheme": "comm", "value": {"number": 2, "allocationKey": "{n}"}}),
        granted("ana", {"allocated": [Keep("o1", COMM), Keep("o2", COMM)]}),
        _delete("ana", {"childrenResources": ["{o1}"]}),
        granted("ana"),
        _gone("o1"),
        _kept("o2"),
        cast="ana cy",
    ),
    case(
        "release-with-sub-resources",
        "7.3",
        "release that address and its sub-resources",
        owns("ana", "o", "comm"),
        _delete("ana", {"resource": "{o}"}),
        granted("ana"),
        Asks("cy", "read", "{o}/subscription"),
        unreachable("cy", 404, "no-route"),
        Silent("ana", after="cy"),
        cast="ana cy",
    ),
    case(
        "release-and-claimed-by-another",
        "7.4",
        "first live claim wins: what is given back may be claimed",
        _claim("ana"),
        granted("ana"),
        _delete("ana", {"childrenResources": ["hyperty://{d}/own-{n}"]}),
        granted("ana"),
        _claim("bo"),
        granted("bo"),
        Asks("cy", "read", "hyperty://{d}/own-{n}"),
        Arrives("bo", "cy"),
        Silent("ana", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "release-of-another-runtimes-address",
        "7.3",
        OWNER_RULE,
        owns("ana", "h"),
        _delete("bo", {"childrenResources": ["{h}"]}),
        granted("bo", {"refused": ["{h}"]}),
        _kept("h"),
        cast="ana bo cy",
        scope=OWNER_ONLY,
    ),
    case(
        "release-of-another-runtimes-address-as-resource",
        "7.3",
        OWNER_RULE,
        owns("ana", "h"),
        _delete("bo", {"resource": "{h}"}),
        Survives("bo"),
        _kept("h"),
        cast="ana bo cy",
        scope=OWNER_ONLY,
    ),
    case(
        "release-of-own-and-foreign",
        "7.3",
        OWNER_RULE,
        owns("ana", "h"),
        owns("bo", "g"),
        _delete("ana", {"childrenResources": ["{g}", "{h}"]}),
        granted("ana", {"refused": ["{g}"]}),
        _gone("h"),
        Asks("cy", "read", "{g}"),
        Arrives("bo", "cy"),
        cast="ana bo cy",
        scope=OWNER_ONLY,
    ),
    case(
        "release-keys-are-scoped",
        "7.3",
        "keys are scoped by session runtime: two runtimes may use the same key",
        Asks("ana", "create", "{allocation}", {"scheme": "comm", "value": {"number": 1, "allocationKey": "{n}"}}),
        granted("ana", {"allocated": [Keep("o", COMM)]}),
        Asks("bo", "create", "{allocation}", {"scheme": "comm", "value": {"number": 1, "allocationKey": "{n}"}}),
        granted("bo", {"allocated": [Keep("p", COMM)]}),
        _delete("bo", {"resource": "{n}"}),
        granted("bo"),
        _gone("p"),
        _kept("o"),
        cast="ana bo cy",
    ),
    case(
        "release-pretending-to-be-the-owner",
        "20.3",
        "a session may use as from what it owns; owned by another session: 403 not-owner",
        owns("ana", "h"),
        Asks("bo", "delete", "{allocation}", {"childrenResources": ["{h}"]}, from_="{ana}/address-allocation"),
        Answered("bo", Refusal(403, ("not-owner", "spoofed-source"))),
        _kept("h"),
        cast="ana bo cy",
    ),
    case(
        "release-list-as-reference-nodes-take-it",
        "7.3",
        "a release by list is answered 200",
        owns("ana", "h"),
        _delete("ana", {"childrenResources": ["{h}"]}),
        granted("ana"),
        scope=Scope(reference=True),
    ),
    _grants("unknown-key", {"resource": "{ana}/no-such-key"}),
    _grants("unknown-address", {"childrenResources": ["hyperty://{d}/unknown-{n}"]}),
    _grants("prefix-of-an-address", {"resource": "hyperty://{d}/"}),
    _grants("names-of-children", {"resource": "comm://{d}/object-{n}", "childrenResources": ["messages"]}),
    _refuses("no-body", NOTHING_RULE, ABSENT),
    _refuses("empty-body", NOTHING_RULE, {}),
    _refuses("empty-list", NOTHING_RULE, {"childrenResources": []}),
    _refuses("list-of-empty-list", NOTHING_RULE, {"childrenResources": [[]]}),
    _refuses("number-for-list", "400 bad-body: malformed", {"childrenResources": 5}),
    _refuses("number-for-key", "400 bad-body: malformed", {"resource": 5}),
    _refuses("numbers-in-list", "400 bad-body: malformed", {"childrenResources": [5, True]}),
    case(
        "release-body-text",
        "1.1",
        "body: object, missing or null; anything else is malformed",
        owns("ana", "h"),
        _delete("ana", "{h}"),
        malformed("ana"),
        _kept("h"),
        cast="ana cy",
    ),
)
