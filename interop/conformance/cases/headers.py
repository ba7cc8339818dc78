"""Cases of header and envelope: ids, types, addresses as text, missing members.

Source: message specification, sections 1, 2.2, 2.4 and 3.
"""

from __future__ import annotations

from typing import Final

from interop.conformance.jsontext import Json, write
from interop.conformance.matching import Maybe, OneOf, Text
from interop.conformance.model import (
    ABSENT,
    Answered,
    Arrives,
    Asks,
    Case,
    CaseStep,
    Hears,
    HearsAll,
    Refusal,
    Replies,
    Says,
    Scope,
    Silent,
    Survives,
    case,
    granted,
    malformed,
    over_limit,
    owns,
)

ID_RULE: Final = "reply header: id equal (same JSON type), from = request to, to = request from"
HEADER_RULE: Final = (
    "from or to missing or not text: 400 bad-header to the session, from mn:/validator, with the id if there is one"
)
TYPE_RULE: Final = "types are compared after lower-casing; outgoing types are lower case"
UNKNOWN: Final[Json] = {"resources": ["comm://{d}/unknown-{n}"]}
OBJECT: Final = "comm://{d}/room-{n}"


def _unsubscribe(
    *, to: str = "{sm}", from_: Json = "{ana}/sm", id_: Json = None, type_: str = "unsubscribe"
) -> CaseStep:
    return Asks("ana", type_, to, UNKNOWN, from_=from_, id=id_)


def _id(slug: str, id_: Json, *, reference: bool = False) -> Case:
    """An id that a service, and a runtime, give back as it came."""
    return case(
        f"header-id-{slug}",
        "3",
        ID_RULE,
        _unsubscribe(id_=id_),
        granted("ana"),
        owns("bo", "h"),
        Asks("ana", "read", "{h}", {"resource": "name"}, from_="{ana}/sm", id=id_),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 200}),
        Arrives("ana", "bo"),
        cast="ana bo",
        scope=Scope(reference=reference),
    )


def _validator(member: str, *, id_: Json = 7) -> Json:
    """The validator's answer to a broken header."""
    body = Refusal(400, ("bad-header",), value={"member": member})
    header: dict[str, Json] = {} if id_ is ABSENT else {"id": id_}
    return {**header, "type": "response", "from": "mn:/validator", "to": "{ana}", "body": body}


def _broken(slug: str, member: str, message: dict[str, Json]) -> Case:
    """A header that the validator refuses; the session goes on."""
    id_ = message.get("id", ABSENT)
    steps = (Says("ana", write(message)), Hears("ana", _validator(member, id_=id_)), Silent("ana"))
    return case(f"header-{slug}", "1.7", HEADER_RULE, *steps)


def _typed(slug: str, type_: str, *, reference: bool = False) -> Case:
    return case(
        f"header-type-{slug}",
        "1.2",
        TYPE_RULE,
        _unsubscribe(type_=type_),
        granted("ana"),
        scope=Scope(reference=reference),
    )


TYPELESS: Final[dict[str, dict[str, Json]]] = {
    "missing": {},
    "null": {"type": None},
    "number": {"type": 3},
    "empty": {"type": ""},
}

IDS: Final = (
    _id("1", 1, reference=True),
    _id("text-1", "1"),
    _id("0", 0),
    _id("negative", -5),
    _id("beyond-53-bits", 9007199254740993),
    _id("beyond-64-bits", 123456789012345678901234567890),
    _id("words", 'id with spaces, ünïcödé 😀 and "quotes"'),
    _id("128-characters", "x" * 128),
    case(
        "header-id-of-two-sessions",
        "3",
        "two sessions may use the same number",
        owns("bo", "h"),
        Asks("ana", "read", "{h}", id=5),
        Arrives("bo", "ana"),
        Asks("cy", "read", "{h}", id=5),
        Arrives("bo", "cy"),
        Replies("bo", {"code": 200, "value": "for cy"}),
        Arrives("cy", "bo"),
        Silent("ana", after="bo"),
        cast="ana bo cy",
    ),
    *(
        case(
            f"header-id-{slug}",
            "1.1",
            "id: integer, or string; anything else does no harm",
            _unsubscribe(id_=id_),
            Survives("ana"),
            Silent("ana"),
        )
        for slug, id_ in {
            "true": True,
            "list": [1],
            "object": {"a": 1},
            "fraction": 1.5,
            "129-characters": "x" * 129,
        }.items()
    ),
    case(
        "header-id-null",
        "1.1",
        "id: integer, or string; anything else does no harm",
        Says("ana", '{"id":null,"type":"read","from":"{ana}","to":"comm://{d}/unknown-{n}"}'),
        Survives("ana"),
        Silent("ana"),
    ),
)

TYPES: Final = (
    _typed("upper-case", "UNSUBSCRIBE"),
    _typed("mixed-case", "unSubscribe"),
    _typed("lower-case", "unsubscribe", reference=True),
    case(
        "header-type-unknown-is-routed",
        "1.2",
        "a type that the node does not know is routed when to is not a service",
        owns("bo", "h"),
        Asks("ana", "frobnicate", "{h}", {"value": 1}),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "header-type-of-routed-message",
        "1.2",
        TYPE_RULE,
        owns("bo", "h"),
        Asks("ana", "READ", "{h}"),
        Arrives("bo", "ana", {"type": "read"}),
        cast="ana bo",
    ),
    *(
        case(
            f"header-type-{slug}",
            "1.7",
            "type missing: 400 bad-header to from",
            Says("ana", write({"id": 7, **kind, "from": "{ana}/sm", "to": "{sm}", "body": UNKNOWN})),
            Hears(
                "ana",
                {
                    "id": 7,
                    "type": "response",
                    "from": OneOf(("mn:/validator", "{sm}")),
                    "to": "{ana}/sm",
                    "body": Refusal(400, ("bad-header",), value={"member": "type"}),
                },
            ),
            Silent("ana"),
        )
        for slug, kind in TYPELESS.items()
    ),
)

BROKEN: Final = (
    _broken("without-to", "to", {"id": 7, "type": "read", "from": "{ana}"}),
    _broken("to-null", "to", {"id": 7, "type": "read", "from": "{ana}", "to": None}),
    _broken("to-number", "to", {"id": 7, "type": "read", "from": "{ana}", "to": 5}),
    _broken("to-object", "to", {"id": 7, "type": "read", "from": "{ana}", "to": {"url": "{sm}"}}),
    _broken("to-empty", "to", {"id": 7, "type": "read", "from": "{ana}", "to": ""}),
    _broken("to-empty-list", "to", {"id": 7, "type": "read", "from": "{ana}", "to": []}),
    _broken("to-list-of-numbers", "to", {"id": 7, "type": "read", "from": "{ana}", "to": [1, 2]}),
    _broken("without-from", "from", {"id": 7, "type": "read", "to": "{sm}"}),
    _broken("from-null", "from", {"id": 7, "type": "read", "from": None, "to": "{sm}"}),
    _broken("from-number", "from", {"id": 7, "type": "read", "from": 5, "to": "{sm}"}),
    _broken("from-list", "from", {"id": 7, "type": "read", "from": ["{ana}"], "to": "{sm}"}),
    _broken("from-empty", "from", {"id": 7, "type": "read", "from": "", "to": "{sm}"}),
    _broken("without-to-and-text-id", "to", {"id": "7", "type": "read", "from": "{ana}"}),
    _broken("without-to-and-id", "to", {"type": "read", "from": "{ana}"}),
    case(
        "header-empty-object",
        "1.7",
        HEADER_RULE,
        Says("ana", "{}"),
        Hears(
            "ana",
            {
                "type": "response",
                "from": "mn:/validator",
                "to": "{ana}",
                "body": Refusal(400, ("bad-header",), value={"member": Text("from|to|type")}),
            },
        ),
        Silent("ana"),
    ),
    case(
        "header-broken-response",
        "1.7",
        "any fault in a response: dropped; a response is never answered",
        Says("ana", '{"id":7,"type":"response","from":"{ana}"}'),
        Silent("ana"),
        Says("ana", '{"id":7,"type":"response","to":"{sm}","body":{"code":200}}'),
        Silent("ana"),
        Says("ana", '{"id":7,"type":"RESPONSE","from":5,"to":"{sm}","body":{"code":200}}'),
        Silent("ana"),
    ),
    case(
        "header-response-to-nobody",
        "1.7",
        "a response is never answered (no error loops)",
        Asks("ana", "response", "hyperty://{d}/nobody-{n}", {"code": 200}, id=7),
        Silent("ana"),
    ),
    case(
        "header-response-from-another",
        "1.7",
        "response whose from is not permitted: dropped and counted, never answered",
        owns("bo", "h"),
        owns("cy", "g"),
        Asks("ana", "response", "{g}", {"code": 200}, from_="{h}", id=7),
        Silent("ana"),
        Silent("cy", after="ana"),
        cast="ana bo cy",
    ),
    case(
        "header-too-long",
        "1.6",
        "header strings 2048 characters; over the limit: 413",
        Asks("ana", "read", "hyperty://{d}/" + "x" * 2048, id=7),
        over_limit("ana"),
        Silent("ana"),
    ),
)

ENVELOPE: Final = (
    case(
        "header-unknown-members",
        "1.1",
        "unknown top-level members are kept and forwarded, not interpreted",
        owns("bo", "h"),
        Asks("ana", "read", "{h}", {"value": 1}, others={"colour": {"b": 1, "a": [None]}, "x": "y"}),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "header-duplicate-members",
        "1.1",
        "duplicate member names: last one wins on parse",
        owns("bo", "h"),
        owns("cy", "g"),
        Says("ana", '{"id":7,"to":"{g}","type":"delete","type":"read","from":"{ana}","to":"{h}","body":{"value":1}}'),
        Arrives("bo", "ana"),
        Silent("cy", after="ana"),
        cast="ana bo cy",
    ),
    case(
        "header-no-body",
        "1.1",
        "body missing: never add one to a forwarded event",
        owns("bo", "h"),
        Asks("ana", "update", "{h}", id=ABSENT),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "header-null-body",
        "1.1",
        "body strict out: object, never null; omitted when empty and not a response",
        owns("bo", "h"),
        Asks("ana", "read", "{h}", None),
        Arrives("bo", "ana", {"body": ABSENT}),
        cast="ana bo",
    ),
    case(
        "header-empty-body",
        "1.1",
        "body strict out: omitted when empty and not a response",
        owns("bo", "h"),
        Asks("ana", "read", "{h}", {}),
        Arrives("bo", "ana", {"body": Maybe({})}),
        cast="ana bo",
    ),
    *(
        case(
            f"header-body-{slug}",
            "1.1",
            "body: object, missing or null; anything else is malformed",
            owns("bo", "h"),
            Asks("ana", "read", "{h}", body),
            malformed("ana"),
            Silent("bo", after="ana"),
            cast="ana bo",
        )
        for slug, body in {"list": [1, 2], "text": "x", "number": 5, "true": True}.items()
    ),
    case(
        "header-to-list",
        "1.1",
        "to: string, or array of strings; split, each copy with one string and the same id",
        owns("bo", "h"),
        owns("cy", "g"),
        Asks("ana", "read", ["{h}", "{g}"], {"value": 1}, id=7),
        Arrives("bo", "ana", {"to": "{h}"}),
        Arrives("cy", "ana", {"to": "{g}"}),
        Replies("bo", {"code": 200, "value": "bo"}),
        Arrives("ana", "bo"),
        cast="ana bo cy",
    ),
    case(
        "header-to-list-of-one",
        "1.1",
        "to: string, or array of strings; strict out: one string",
        owns("bo", "h"),
        Asks("ana", "read", ["{h}"]),
        Arrives("bo", "ana", {"to": "{h}"}),
        cast="ana bo",
    ),
    case(
        "header-to-list-with-nobody",
        "20.2",
        "for each recipient of msg.to",
        owns("bo", "h"),
        Asks("ana", "read", ["{h}", "hyperty://{d}/nobody-{n}"], id=7),
        Arrives("bo", "ana", {"to": "{h}"}),
        Answered("ana", Refusal(404, ("no-route",), in_place_of_target=True), from_="hyperty://{d}/nobody-{n}"),
        cast="ana bo",
    ),
    case(
        "header-to-list-twice-the-same",
        "20.8",
        "at most one copy per receiver session per message",
        owns("bo", "h"),
        Asks("ana", "read", ["{h}", "{h}"], id=7),
        Arrives("bo", "ana", {"to": "{h}"}),
        Silent("bo", after="ana"),
        cast="ana bo",
    ),
    case(
        "header-to-list-of-services",
        "1.1",
        "to: string, or array of strings; each service answers as itself",
        Asks("ana", "frobnicate", ["{sm}", "{allocation}"], {}, id=7),
        HearsAll(
            "ana",
            tuple(
                {"id": 7, "type": "response", "from": at, "to": "{ana}", "body": Refusal(405, ("bad-type",))}
                for at in ("{sm}", "{allocation}")
            ),
        ),
    ),
)

CASES: Final = (*IDS, *TYPES, *BROKEN, *ENVELOPE)
