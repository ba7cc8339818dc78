"""Cases of dialect A's session messages: open, re-open, close, ping. Source: message specification, section 5.1."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from interop.conformance.jsontext import Json
from interop.conformance.matching import Anything, Keep, Maybe, OneOf, Open, Text
from interop.conformance.model import (
    EVERYWHERE,
    SESSION_MESSAGES,
    STRICT_ONLY,
    Answered,
    Arrives,
    Asks,
    Case,
    CaseStep,
    Connects,
    Dialect,
    Hears,
    Leaves,
    Loses,
    Need,
    Refusal,
    RefusedOrClosed,
    Scope,
    Silent,
    Steps,
    Success,
    case,
    listens,
    malformed,
    owns,
    refused,
    reports,
    unreachable,
)

SESSION: Final = "mn:/session"
REOPEN_RULE: Final = "re-open success: 200, same session, subscriptions and addresses unchanged"
FAILURE_RULE: Final = "re-open failure (unknown or expired token): 500, reason bad-token, desc `Reconnection fail. …`"
CREDENTIALS_RULE: Final = (
    'credentials: body.credentials = {"kind": "bearer", "token": "…"}; 401: identity missing or wrong'
)
WITH_TOKEN: Final = frozenset({Dialect.A})
"""Only here a token is sure to come: stubs of socket.io expect none."""
OBJECT: Final = "comm://{d}/room-{n}"
REOPENED: Final = OneOf((Success(), {"code": 200, "description": "OK", "desc": Maybe("OK"), "session": Anything()}))
FAILS: Final = Refusal(500, ("bad-token",), text=r"Reconnection fail\..*")


def _session(
    slug: str,
    says: str,
    *steps: Steps,
    cast: str = "ana",
    scope: Scope = EVERYWHERE,
    section: str = "5.1",
) -> Case:
    return case(
        f"open-{slug}",
        section,
        says,
        *steps,
        cast=cast,
        scope=replace(scope, dialects=scope.dialects & SESSION_MESSAGES),
    )


def _reopened(type_: str) -> tuple[CaseStep, ...]:
    """Ana loses her transport and comes back with her session address."""
    return (
        Loses("ana"),
        Connects("back", runtime="{ana}"),
        Asks("back", type_, SESSION, from_="{ana.session}"),
    )


_OPENED: Final[Json] = {
    "code": 200,
    "description": "OK",
    "desc": Maybe("OK"),
    "runtimeToken": Keep("token", Text(r"\S{16,}", "token")),
    "session": Maybe(Anything()),
}

OPENING: Final = (
    _session(
        "upper-case",
        "types are compared after lower-casing",
        Connects("ana"),
        Asks("ana", "OPEN", SESSION),
        Answered("ana", _OPENED),
        Silent("ana"),
        cast="",
        scope=Scope(dialects=WITH_TOKEN),
    ),
    _session(
        "id-as-text",
        "reply header: id equal, same JSON type",
        Connects("ana"),
        Asks("ana", "open", SESSION, id="1"),
        Answered("ana", _OPENED),
        cast="",
        scope=Scope(dialects=WITH_TOKEN),
    ),
    _session(
        "other-spelling",
        "both spell the same entity; the reply repeats the text",
        Connects("ana"),
        Asks("ana", "open", SESSION, from_="{ana.old}"),
        Answered("ana", _OPENED),
        Asks("bo", "read", "{ana}/sm"),
        Arrives("ana", "bo"),
        cast="bo",
        scope=Scope(dialects=WITH_TOKEN),
    ),
    _session(
        "tokens-differ",
        "the token is never disclosed to a second opener",
        Connects("ana"),
        Asks("ana", "open", SESSION),
        Answered("ana", _OPENED),
        Connects("thief", runtime="{ana}"),
        Asks("thief", "open", SESSION),
        refused("thief", 409, "address-taken"),
        cast="",
        scope=Scope(dialects=WITH_TOKEN, needs=frozenset({Need.ANONYMOUS}), profiles=STRICT_ONLY),
    ),
    _session(
        "forged-session-address",
        "credentials or token decide, not the text of an address",
        Connects("thief", runtime="{ana}"),
        Asks("thief", "close", SESSION, from_="{ana}/not-the-token"),
        Asks("bo", "read", "{ana}/sm"),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    _session(
        "nothing-before-open",
        "effects of open: the session may send - not before",
        Connects("ana"),
        Asks("ana", "subscribe", "{sm}", {"resources": [OBJECT]}),
        RefusedOrClosed("ana"),
        cast="",
    ),
    _session(
        "nobody-before-open",
        "effects of open: the session may send - not before",
        owns("bo", "h"),
        Connects("ana"),
        Asks("ana", "update", "{h}", {"value": 1}),
        RefusedOrClosed("ana"),
        Silent("bo"),
        cast="bo",
    ),
    _session(
        "ping",
        "ping to mn:/session is answered with type pong, same id",
        Asks("ana", "ping", SESSION, from_="{ana.session}", id="p-1"),
        Hears("ana", {"id": "p-1", "type": "pong", "from": SESSION, "to": "{ana.session}", "body": Maybe(Open({}))}),
    ),
    _session(
        "unknown-type",
        "a service answers 405 with reason bad-type to a type that it does not know",
        Asks("ana", "frobnicate", SESSION),
        refused("ana", 405, "bad-type"),
        section="1.2",
    ),
    _session(
        "response-to-session",
        "a response is never answered",
        Asks("ana", "response", SESSION, {"code": 200}, id=7),
        Silent("ana"),
        section="1.7",
    ),
)

REOPENING: Final = (
    *(
        _session(
            f"again-{slug}",
            f"{REOPEN_RULE}; reopen and re_open equal re-open",
            owns("ana", "h"),
            reports("bo", OBJECT),
            listens("ana", f"{OBJECT}/changes"),
            _reopened(type_),
            Answered("back", REOPENED),
            Asks("bo", "read", "{h}"),
            Arrives("back", "bo"),
            Asks("bo", "update", f"{OBJECT}/changes", {"value": 1}),
            Arrives("back", "bo"),
            Silent("back"),
            cast="ana bo",
            scope=Scope(dialects=WITH_TOKEN, reference=type_ == "re-open"),
        )
        for slug, type_ in {
            "re-open": "re-open",
            "reopen": "reopen",
            "re_open": "re_open",
            "upper-case": "RE-OPEN",
        }.items()
    ),
    _session(
        "again-wrong-token",
        FAILURE_RULE,
        owns("ana", "h"),
        Loses("ana"),
        Connects("thief", runtime="{ana}"),
        Asks("thief", "re-open", SESSION, from_="{ana}/5b1de06c-6a0e-4c0f-9d0a-1f2f0f7f0c11"),
        Answered("thief", FAILS),
        Asks("bo", "read", "{h}"),
        unreachable("bo", 503, "not-connected"),
        cast="ana bo",
        scope=Scope(dialects=WITH_TOKEN),
    ),
    _session(
        "again-unknown-runtime",
        FAILURE_RULE,
        Connects("ana"),
        Asks("ana", "re-open", SESSION, from_="{ana}/5b1de06c-6a0e-4c0f-9d0a-1f2f0f7f0c11"),
        Answered("ana", FAILS),
        cast="",
        scope=Scope(dialects=WITH_TOKEN),
    ),
    _session(
        "again-without-token",
        FAILURE_RULE,
        Loses("ana"),
        Connects("back", runtime="{ana}"),
        Asks("back", "re-open", SESSION, from_="{ana}"),
        Answered("back", FAILS),
        scope=Scope(dialects=WITH_TOKEN),
    ),
    _session(
        "again-after-close",
        FAILURE_RULE,
        Leaves("ana"),
        Connects("back", runtime="{ana}"),
        Asks("back", "re-open", SESSION, from_="{ana.session}"),
        Answered("back", FAILS),
        scope=Scope(dialects=WITH_TOKEN),
    ),
    _session(
        "again-with-half-a-token",
        FAILURE_RULE,
        Loses("ana"),
        Connects("back", runtime="{ana}"),
        Asks("back", "re-open", SESSION, from_="{ana.session}x"),
        Answered("back", FAILS),
        scope=Scope(dialects=WITH_TOKEN),
    ),
    _session(
        "again-then-open-anew",
        "the stub then opens anew or gives up",
        Connects("ana"),
        Asks("ana", "re-open", SESSION, from_="{ana}/5b1de06c-6a0e-4c0f-9d0a-1f2f0f7f0c11"),
        Answered("ana", FAILS),
        Asks("ana", "open", SESSION),
        Answered("ana", _OPENED),
        Silent("ana"),
        cast="",
        scope=Scope(dialects=WITH_TOKEN),
    ),
)

CLOSING: Final = (
    _session(
        "close-of-another-session",
        "a session may use as from what it owns: nobody closes another's session",
        Asks("bo", "close", SESSION, from_="{ana.session}"),
        RefusedOrClosed("bo"),
        Asks("cy", "read", "{ana}/sm"),
        Arrives("ana", "cy"),
        cast="ana bo cy",
        section="20.3",
    ),
    _session("close-is-not-answered", "close: no reply", Leaves("ana"), scope=Scope(reference=True)),
)

WRONG_CREDENTIALS: Final[dict[str, Json]] = {
    "forged": {"kind": "bearer", "token": "forged-{n}"},
    "empty": {"kind": "bearer", "token": ""},
    "without-token": {"kind": "bearer"},
    "number": {"kind": "bearer", "token": 5},
    "unknown-kind": {"kind": "password", "token": "x"},
    "text": "bearer x",
    "list": ["bearer", "x"],
}
CREDENTIALS: Final = tuple(
    _session(
        f"credentials-{slug}",
        CREDENTIALS_RULE,
        Connects("ana"),
        Asks("ana", "open", SESSION, {"credentials": credentials}),
        Answered("ana", OneOf((Refusal(401, ("bad-token", "no-credentials")), Refusal(400, ("bad-body",))))),
        Asks("ana", "subscribe", "{sm}", {"resources": [OBJECT]}),
        RefusedOrClosed("ana"),
        cast="",
        scope=Scope(needs=frozenset({Need.TOKEN})),
    )
    for slug, credentials in WRONG_CREDENTIALS.items()
)
BODIES: Final = tuple(
    _session(
        f"body-{slug}",
        "body: object, missing or null; anything else is malformed",
        Connects("ana"),
        Asks("ana", "open", SESSION, body),
        malformed("ana"),
        cast="",
        section="1.1",
    )
    for slug, body in {"list": [1], "text": "x", "number": 5}.items()
)

CASES: Final = (*OPENING, *REOPENING, *CLOSING, *CREDENTIALS, *BODIES)
