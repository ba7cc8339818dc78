"""Cases of address allocation: asking for addresses. Source: message specification, sections 7.1, 7.2 and 7.4."""

from __future__ import annotations

from typing import Final

from interop.conformance.jsontext import Json
from interop.conformance.matching import UUID, Keep, Text
from interop.conformance.model import (
    ABSENT,
    Arrives,
    Asks,
    Case,
    CaseStep,
    HearsAll,
    Leaves,
    Replies,
    Scope,
    Silent,
    Success,
    Survives,
    case,
    granted,
    malformed,
    owns,
    refused,
)

HYPERTY: Final = Text(rf"hyperty://{{d}}/{UUID}", "hyperty address with a random uuid")
COMM: Final = Text(rf"comm://{{d}}/{UUID}", "comm address with a random uuid")
PHASE_1_HYPERTY: Final = "{node}/hyperty-address-allocation"
PHASE_1_OBJECT: Final = "{node}/object-address-allocation"
BY: Final = "{ana}/address-allocation"
NUMBER_RULE: Final = "number 1…100 else 400"
SCHEME_RULE: Final = "scheme pattern [a-z][a-z0-9+.-]*, not a reserved one, else 400"
BODY_RULE: Final = "400 bad-body: malformed"
CLAIM_RULE: Final = "first live claim wins; a claim on an address owned by another live session is refused"


def _create(body: Json = ABSENT, *, to: Json = "{allocation}", type_: str = "create", id_: Json = None) -> CaseStep:
    return Asks("ana", type_, to, body, from_=BY, id=id_)


def _gives(
    slug: str, section: str, says: str, body: Json, *addresses: Json, to: str = "{allocation}", reference: bool = False
) -> Case:
    """A request that is granted with these addresses."""
    steps = (_create(body, to=to), granted("ana", {"allocated": list(addresses)}))
    return case(f"alloc-{slug}", section, says, *steps, scope=Scope(reference=reference))


def _refuses(slug: str, says: str, body: Json) -> Case:
    """A request that is answered 400 `bad-body`; allocation goes on working."""
    return case(f"alloc-{slug}", "7.1", says, _create(body), refused("ana", 400, "bad-body"), owns("ana", "h"))


def _number(slug: str, number: Json) -> Case:
    return _refuses(f"number-{slug}-refused", NUMBER_RULE, {"scheme": "hyperty", "value": {"number": number}})


def _scheme(slug: str, scheme: Json) -> Case:
    return _refuses(f"scheme-{slug}-refused", SCHEME_RULE, {"scheme": scheme, "value": {"number": 1}})


def _claim(who: str, *addresses: str) -> CaseStep:
    from_ = f"{{{who}}}/address-allocation"
    return Asks(who, "subscribe", "{sm}", {"resources": list(addresses), "source": from_}, from_=from_)


_TWO: Final[Json] = {"scheme": "hyperty", "value": {"number": 2, "allocationKey": "{ana}"}}

GRANTED: Final = (
    _gives(
        "two-hyperties",
        "7.1",
        "the reply lists as many new addresses as asked for",
        _TWO,
        HYPERTY,
        HYPERTY,
        reference=True,
    ),
    _gives(
        "object",
        "7.1",
        "body.scheme names the scheme",
        {"scheme": "comm", "value": {"number": 1}},
        COMM,
        reference=True,
    ),
    _gives("no-body", "7.1", "defaults: scheme hyperty, number 1, no key", ABSENT, HYPERTY),
    _gives("null-body", "1.1", "body: object, missing or null", None, HYPERTY),
    _gives("empty-body", "7.1", "defaults: scheme hyperty, number 1, no key", {}, HYPERTY),
    _gives("no-number", "7.1", "the number defaults to 1", {"scheme": "comm", "value": {}}, COMM),
    _gives("no-scheme", "7.1", "the scheme defaults to hyperty", {"value": {"number": 2}}, HYPERTY, HYPERTY),
    _gives(
        "scheme-in-value", "7.1", "scheme: also body.value.scheme", {"value": {"scheme": "comm", "number": 1}}, COMM
    ),
    _gives("number-in-body", "7.1", "number: also body.number", {"scheme": "comm", "number": 2}, COMM, COMM),
    _gives("number-as-text", "7.1", "number: integer or decimal text", {"value": {"number": "2"}}, HYPERTY, HYPERTY),
    _gives("number-100", "7.1", NUMBER_RULE, {"value": {"number": 100}}, *[HYPERTY] * 100),
    _gives(
        "scheme-with-signs",
        "7.1",
        "scheme pattern [a-z][a-z0-9+.-]*",
        {"scheme": "x-1.y+z", "value": {"number": 1}},
        Text(rf"x-1\.y\+z://{{d}}/{UUID}", "x-1.y+z address"),
    ),
    _gives(
        "unknown-members",
        "7.1",
        "members that the service does not know change nothing",
        {"scheme": "comm", "value": {"number": 1, "colour": [1, {"a": None}]}, "identity": {"userProfile": {}}},
        COMM,
    ),
    case(
        "alloc-fresh-each-time",
        "7.1",
        "identifier = random UUID; uniqueness is checked",
        _create(_TWO),
        granted("ana", {"allocated": [Keep("h1", HYPERTY), Keep("h2", HYPERTY)]}),
        _create({"scheme": "hyperty", "value": {"number": 1}}),
        granted("ana", {"allocated": [Keep("h3", HYPERTY)]}),
        Asks("bo", "update", "{h1}", {"value": 1}),
        Arrives("ana", "bo"),
        Asks("bo", "update", "{h2}", {"value": 2}),
        Arrives("ana", "bo"),
        Asks("bo", "update", "{h3}", {"value": 3}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "alloc-owned-at-once",
        "7.1",
        "every address is owned by the session at once: messages to it are delivered without subscription",
        owns("ana", "h"),
        Asks("bo", "read", "{h}", {"resource": "name"}, from_="{bo}/sm"),
        Arrives("ana", "bo"),
        Replies("ana", {"code": 200, "value": "ana"}),
        Arrives("bo", "ana"),
        cast="ana bo",
        scope=Scope(reference=True),
    ),
    case(
        "alloc-object-owned-at-once",
        "7.1",
        "every address is owned by the session at once: messages to it are delivered without subscription",
        owns("ana", "o", "comm"),
        Asks("bo", "read", "{o}"),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "alloc-id-as-text",
        "3",
        "reply header: id equal, same JSON type",
        _create({"scheme": "hyperty", "value": {"number": 1}}, id_="1"),
        granted("ana", {"allocated": [HYPERTY]}),
    ),
    case(
        "alloc-upper-case-type",
        "1.2",
        "types are compared after lower-casing; outgoing types are lower case",
        _create({"scheme": "hyperty", "value": {"number": 1}}, type_="CREATE"),
        granted("ana", {"allocated": [HYPERTY]}),
    ),
    case(
        "alloc-without-id",
        "3",
        "messages without id open no transaction; no error reply is sent for them",
        Asks("ana", "create", "{allocation}", {"value": {"number": 0}}, from_=BY, id=ABSENT),
        Silent("ana"),
    ),
)

PHASE_1: Final = (
    _gives(
        "phase-1-hyperty",
        "7.2",
        "same bodies at …/hyperty-address-allocation; reply from = the end-point used",
        {"value": {"number": 2}},
        HYPERTY,
        HYPERTY,
        to=PHASE_1_HYPERTY,
    ),
    _gives(
        "phase-1-hyperty-ignores-scheme",
        "7.2",
        "the hyperty one ignores scheme (always hyperty)",
        {"scheme": "comm", "value": {"number": 1}},
        HYPERTY,
        to=PHASE_1_HYPERTY,
    ),
    _gives(
        "phase-1-object",
        "7.2",
        "same bodies at …/object-address-allocation",
        {"scheme": "connection", "value": {"number": 1}},
        Text(rf"connection://{{d}}/{UUID}", "connection address"),
        to=PHASE_1_OBJECT,
    ),
    _gives(
        "phase-1-object-default-scheme",
        "7.2",
        "the object one needs scheme, default comm",
        {"value": {"number": 1}},
        COMM,
        to=PHASE_1_OBJECT,
    ),
    case(
        "alloc-phase-1-upper-case",
        "7.2",
        "types may be upper case (phase 1)",
        _create({"value": {"number": 1}}, to=PHASE_1_HYPERTY, type_="CREATE", id_="1"),
        granted("ana", {"allocated": [HYPERTY]}),
    ),
    case(
        "alloc-phase-1-release",
        "7.2",
        "same bodies: a block is released where it was allocated",
        _create({"scheme": "comm", "value": {"number": 1, "allocationKey": "{ana}/k"}}, to=PHASE_1_OBJECT),
        granted("ana", {"allocated": [Keep("o", COMM)]}),
        Asks("ana", "delete", PHASE_1_OBJECT, {"resource": "{ana}/k"}, from_=BY),
        granted("ana"),
        Asks("bo", "read", "{o}"),
        Survives("bo"),
        Silent("ana", after="bo"),
        cast="ana bo",
    ),
    case(
        "alloc-two-end-points-in-to",
        "1.1",
        "to: string, or array of strings; each service answers as itself",
        _create({"scheme": "comm", "value": {"number": 1}}, to=["{allocation}", PHASE_1_OBJECT], id_=900),
        HearsAll(
            "ana",
            tuple(
                {"id": 900, "type": "response", "from": at, "to": BY, "body": Success({"allocated": [COMM]})}
                for at in ("{allocation}", PHASE_1_OBJECT)
            ),
        ),
    ),
)

WRONG: Final = (
    _number("0", 0),
    _number("101", 101),
    _number("negative", -1),
    _number("fraction", 1.5),
    _number("word", "two"),
    _number("text-0", "0"),
    _number("text-signed", "+2"),
    _number("empty-text", ""),
    _number("true", True),
    _number("list", [2]),
    _number("object", {"number": 2}),
    _number("astronomic", 10**30),
    _scheme("upper-case", "Hyperty"),
    _scheme("digit-first", "1x"),
    _scheme("empty", ""),
    _scheme("space", "hyp erty"),
    _scheme("slash", "comm://x"),
    _scheme("number", 5),
    _scheme("list", ["comm"]),
    *(
        case(f"alloc-body-{slug}-refused", "1.1", BODY_RULE, _create(body), malformed("ana"), owns("ana", "h"))
        for slug, body in {"text": "hyperty", "list": [{"scheme": "hyperty"}], "number": 3}.items()
    ),
    *(_scheme(f"reserved-{word}", word) for word in ("domain", "global", "mn", "user", "runtime")),
    _refuses("value-text-refused", BODY_RULE, {"scheme": "hyperty", "value": "2"}),
    _refuses("value-list-refused", BODY_RULE, {"scheme": "hyperty", "value": [2]}),
    case(
        "alloc-type-execute",
        "1.2",
        "a service answers 405 with reason bad-type to a type that it does not know",
        _create(type_="execute"),
        refused("ana", 405, "bad-type"),
    ),
    case(
        "alloc-type-unheard-of",
        "1.2",
        "a service answers 405 with reason bad-type to a type that it does not know",
        _create({"value": {"number": 1}}, type_="frobnicate"),
        refused("ana", 405, "bad-type"),
    ),
    case(
        "alloc-response-is-not-answered",
        "1.7",
        "a response is never answered",
        _create({"code": 200, "value": {"number": 1}}, type_="response", id_=77),
        Silent("ana"),
    ),
)

CLAIMS: Final = (
    case(
        "alloc-claim",
        "7.4",
        "the node treats base addresses of an own domain with scheme hyperty as a claim; delivery works",
        _claim("ana", "hyperty://{d}/own-{n}", "hyperty://{d}/own2-{n}"),
        granted("ana"),
        Asks("bo", "read", "hyperty://{d}/own-{n}", {"resource": "name"}),
        Arrives("ana", "bo"),
        Asks("bo", "read", "hyperty://{d}/own2-{n}", {"resource": "name"}),
        Arrives("ana", "bo"),
        cast="ana bo",
        scope=Scope(reference=True),
    ),
    case(
        "alloc-claim-object",
        "7.4",
        "base addresses of an own domain with an object scheme are claimed too",
        _claim("ana", "comm://{d}/own-{n}"),
        granted("ana"),
        _claim("bo", "comm://{d}/own-{n}"),
        refused("bo", 403, "not-owner"),
        Asks("cy", "read", "comm://{d}/own-{n}"),
        Arrives("ana", "cy"),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "alloc-claim-of-allocated",
        "7.4",
        f"{CLAIM_RULE} (403 not-owner if single)",
        owns("ana", "h"),
        _claim("bo", "{h}"),
        refused("bo", 403, "not-owner"),
        Asks("cy", "update", "{h}", {"value": 1}),
        Arrives("ana", "cy"),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "alloc-claim-in-part",
        "7.4",
        f"{CLAIM_RULE} (else listed in body.value.refused)",
        owns("ana", "h"),
        _claim("bo", "{h}", "hyperty://{d}/bo-{n}"),
        granted("bo", {"refused": ["{h}"]}),
        Asks("cy", "read", "hyperty://{d}/bo-{n}"),
        Arrives("bo", "cy"),
        Asks("cy", "read", "{h}"),
        Arrives("ana", "cy"),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "alloc-claim-again",
        "7.4",
        "the owner may say so again",
        _claim("ana", "hyperty://{d}/own-{n}"),
        granted("ana"),
        _claim("ana", "hyperty://{d}/own-{n}"),
        granted("ana"),
        Asks("bo", "read", "hyperty://{d}/own-{n}"),
        Arrives("ana", "bo"),
        Silent("ana", after="bo"),
        cast="ana bo",
    ),
    case(
        "alloc-claim-spelled-otherwise",
        "2.2",
        "allocation compares canonical keys: scheme and authority without case, no trailing slash",
        _claim("ana", "hyperty://{d}/own-{n}"),
        granted("ana"),
        _claim("bo", "HYPERTY://{d.upper}/own-{n}/"),
        refused("bo", 403, "not-owner"),
        cast="ana bo",
    ),
    case(
        "alloc-claim-after-close",
        "5.4",
        "close: addresses are freed",
        _claim("ana", "hyperty://{d}/own-{n}"),
        granted("ana"),
        Leaves("ana"),
        _claim("bo", "hyperty://{d}/own-{n}"),
        granted("bo"),
        Asks("cy", "read", "hyperty://{d}/own-{n}"),
        Arrives("bo", "cy"),
        cast="ana bo cy",
    ),
)

CASES: Final = (*GRANTED, *PHASE_1, *WRONG, *CLAIMS)
