"""Cases of addresses: spellings of one key, and the node's own services. Source: message specification, section 2."""

from __future__ import annotations

from typing import Final

from interop.conformance.cases.headers import UNKNOWN
from interop.conformance.jsontext import Json
from interop.conformance.matching import Anything, Open, Text
from interop.conformance.model import (
    ABSENT,
    Answered,
    Arrives,
    Asks,
    Case,
    CaseStep,
    Refusal,
    Replies,
    Silent,
    case,
    granted,
    listens,
    refused,
    unreachable,
)

KEY_RULE: Final = "canonical keys are compared; the original text is what goes on the wire"
OBJECT: Final = "comm://{d}/room-{n}"


def _unsubscribe(*, to: str = "{sm}", from_: Json = "{ana}/sm") -> CaseStep:
    return Asks("ana", "unsubscribe", to, UNKNOWN, from_=from_)


def _spelled(slug: str, to: str, says: str = KEY_RULE) -> Case:
    """Another spelling of the subscription manager, which the reply repeats."""
    return case(f"address-to-{slug}", "2.2", says, _unsubscribe(to=to), granted("ana"))


SPELLINGS: Final = (
    _spelled("upper-case-scheme", "DOMAIN://msg-node.{d}/sm"),
    _spelled("upper-case-authority", "domain://MSG-NODE.{d.upper}/sm"),
    _spelled("trailing-slash", "{sm}/"),
    _spelled("trailing-dot", "domain://msg-node.{d}./sm"),
    case(
        "address-to-path-in-upper-case",
        "2.2",
        "path: keep case",
        _unsubscribe(to="{node}/SM"),
        Answered("ana", Refusal(404, ("no-such-service",))),
    ),
    case(
        "address-to-other-spelling-of-runtime",
        "2.2",
        "hyperty-runtime and runtime: both spell the same entity",
        Asks("ana", "read", "{bo.old}/x", {"value": 1}),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 200}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "address-from-other-spelling-of-runtime",
        "20.3",
        "a session may use its runtime address (either spelling)",
        _unsubscribe(from_="{ana.old}/sm"),
        granted("ana"),
    ),
    case(
        "address-keys-are-canonical",
        "2.2",
        KEY_RULE,
        listens("bo", OBJECT),
        Asks("ana", "update", "COMM://{d.upper}./room-{n}/", {"value": 1}),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "address-paths-keep-their-case",
        "2.2",
        "path: keep case and percent-encoding as sent",
        listens("bo", "comm://{d}/Room-{n}%41"),
        Asks("ana", "update", "comm://{d}/room-{n}%41", {"value": 1}, id=ABSENT),
        Silent("bo", after="ana"),
        Asks("ana", "update", "comm://{d}/Room-{n}A", {"value": 1}, id=ABSENT),
        Silent("bo", after="ana"),
        Asks("ana", "update", "comm://{d}/Room-{n}%41", {"value": 1}),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "address-single-slash",
        "2.2",
        "runtime:/x: own key, accepted",
        listens("bo", "comm:/room-{n}"),
        Asks("ana", "update", "comm:/room-{n}", {"value": 1}),
        Arrives("bo", "ana"),
        Asks("ana", "update", "comm://room-{n}", {"value": 1}, id=ABSENT),
        Silent("bo", after="ana"),
        cast="ana bo",
    ),
    case(
        "address-plain-from",
        "1.1",
        "from: any non-empty string; conformance tests send plain words",
        _unsubscribe(from_="publisher"),
        granted("ana"),
    ),
    case(
        "address-plain-names",
        "2.2",
        "text without a colon is its own key (local name)",
        listens("bo", "news-{n}"),
        Asks("ana", "update", "news-{n}", {"value": 1}, from_="publisher"),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
)

SERVICES: Final = (
    case(
        "address-unknown-service",
        "2.4",
        "requests to an unknown path below msg-node are answered 404 no-such-service",
        Asks("ana", "read", "{node}/no-such-thing"),
        refused("ana", 404, "no-such-service"),
    ),
    case(
        "address-unknown-service-event",
        "3",
        "messages without id: no error reply is sent for them",
        Asks("ana", "read", "{node}/no-such-thing", id=ABSENT),
        Silent("ana"),
    ),
    case(
        "address-information",
        "2.4",
        "domain://msg-node.<d> (no path): information: name, version, functions (read)",
        Asks("ana", "read", "{node}"),
        granted("ana", Open({"name": Text(), "version": Text(), "functions": Anything()})),
    ),
    case(
        "address-information-type",
        "1.2",
        "a service answers 405 with reason bad-type to a type that it does not know",
        Asks("ana", "create", "{node}", {"value": 1}),
        refused("ana", 405, "bad-type"),
    ),
    case(
        "address-stubs-for-operators",
        "6",
        "read to domain://msg-node.<d>/stubs, operators only",
        Asks("ana", "read", "{node}/stubs"),
        refused("ana", 403, "policy", "not-owner"),
    ),
    *(
        case(
            f"address-internal-{name}",
            "2.1",
            "only mn:/session may be addressed from outside",
            Asks("ana", "read", f"mn:/{name}"),
            Answered("ana", Refusal(404, ("no-such-service", "no-route"))),
        )
        for name in ("validator", "policies")
    ),
    case(
        "address-user-address",
        "20.4",
        "user:// as to: resolved only when routing.users is on; else 404",
        Asks("ana", "read", "user://{d}/somebody"),
        unreachable("ana", 404, "no-route", "not-registered"),
    ),
    case(
        "address-catalogue-address",
        "20.4",
        "hyperty-catalogue://: nobody's address, or read by the node for anyone who asks; 404 for what is not there",
        Asks("ana", "read", "hyperty-catalogue://catalogue.{d}/.well-known/hyperty/X"),
        Answered("ana", Refusal(404, ("no-route", "no-such-domain", "not-registered"))),
    ),
)

CASES: Final = (*SPELLINGS, *SERVICES)
