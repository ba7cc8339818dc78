"""Cases of the subscription manager: what is listened to, and by whom. Source: message specification, section 8."""

from __future__ import annotations

from typing import Final

from interop.conformance.jsontext import Json
from interop.conformance.matching import Including, OneOf
from interop.conformance.model import (
    ABSENT,
    EVERYWHERE,
    STRICT_ONLY,
    Answered,
    Arrives,
    Asks,
    Case,
    CaseStep,
    Refusal,
    Scope,
    Silent,
    Success,
    Survives,
    case,
    granted,
    listens,
    malformed,
    owns,
    refused,
    reports,
)

FORMS: Final = "all forms accepted, alone or together (union, duplicates dropped)"
EXPANSION: Final = "expansion of resource + childrenResources"
EMPTY: Final = "no entry found: 400 bad-body"
SOURCE: Final = (
    "body.source if it is an address of the sending session, else from; in every case the listener is the session"
)
OBJECT: Final = "comm://{d}/room-{n}"
SCHEMA: Final = "hyperty-catalogue://{d}/dataObjectSchema/Communication"
TOO_MANY: Final = 1001


def _subscribe(who: str, body: Json = ABSENT, *, type_: str = "subscribe") -> CaseStep:
    return Asks(who, type_, "{sm}", body, from_=f"{{{who}}}/sm")


def event_to(address: str, *, type_: str = "update") -> CaseStep:
    """Bo says something to an address, as a notification that nobody answers."""
    return Asks("bo", type_, address, {"value": "news"}, id=ABSENT)


def heard(address: str, *, type_: str = "update") -> tuple[CaseStep, ...]:
    """Messages of bo to an address arrive at ana, once."""
    return event_to(address, type_=type_), Arrives("ana", "bo"), Silent("ana", after="bo")


def unheard(address: str) -> tuple[CaseStep, ...]:
    """Steps that prove an address silent: an event from bo does not arrive at ana, and has no answer."""
    return event_to(address), Silent("ana", after="bo"), Silent("bo")


def _form(slug: str, says: str, body: Json, *, hears: tuple[str, ...], not_: tuple[str, ...] = ()) -> Case:
    """A subscription in this form is granted; then ana hears these addresses and not those.

    Bo reports the object, unless ana herself takes its subscriptions.
    """
    steps: list[CaseStep] = [] if f"{OBJECT}/subscription" in hears else [*reports("bo", OBJECT)]
    steps += [_subscribe("ana", body), granted("ana")]
    for address in hears:
        steps += heard(address)
    for address in not_:
        steps += unheard(address)
    return case(f"sub-{slug}", "8.1" if says == FORMS else "8.3", says, steps, cast="ana bo")


def _refuses(slug: str, body: Json, says: str = EMPTY) -> Case:
    """A subscription that is answered 400 `bad-body`; the next one is granted."""
    good = listens("ana", f"{OBJECT}/changes")
    steps = (_subscribe("ana", body), refused("ana", 400, "bad-body"), good)
    return case(f"sub-{slug}-refused", "8.1", says, *steps, scope=Scope(profiles=STRICT_ONLY))


def _source(slug: str, source: Json, *, code: int = 0, reason: str = "spoofed-source") -> Case:
    """A subscription with this `source`: granted, or refused and without effect."""
    body: Json = {"resources": [f"{OBJECT}/changes"], "source": source}
    before = owns("ana", "h"), owns("cy", "g"), reports("bo", OBJECT)
    if code:
        after = (refused("ana", code, reason), *unheard(f"{OBJECT}/changes"))
    else:
        after = (granted("ana"), *heard(f"{OBJECT}/changes"))
    return case(f"sub-source-{slug}", "8.2", SOURCE, *before, _subscribe("ana", body), after, cast="ana bo cy")


FORM_CASES: Final = (
    case(
        "sub-resources",
        "8.1",
        FORMS,
        reports("bo", OBJECT),
        listens("ana", f"{OBJECT}/changes"),
        Asks("bo", "update", f"{OBJECT}/changes", {"value": "news"}),
        Arrives("ana", "bo"),
        cast="ana bo",
        scope=Scope(reference=True),
    ),
    _form(
        "resources-list",
        FORMS,
        {"resources": [f"{OBJECT}/changes", f"{OBJECT}/children/messages"]},
        hears=(f"{OBJECT}/changes", f"{OBJECT}/children/messages"),
        not_=(f"{OBJECT}/children/others",),
    ),
    _form("resources-text", FORMS, {"resources": f"{OBJECT}/changes"}, hears=(f"{OBJECT}/changes",)),
    _form("subscribe-list", FORMS, {"subscribe": [f"{OBJECT}/changes"]}, hears=(f"{OBJECT}/changes",)),
    _form("subscribe-text", FORMS, {"subscribe": f"{OBJECT}/changes"}, hears=(f"{OBJECT}/changes",)),
    _form(
        "both-lists",
        FORMS,
        {"resources": [f"{OBJECT}/changes"], "subscribe": [f"{OBJECT}/status"]},
        hears=(f"{OBJECT}/changes", f"{OBJECT}/status"),
    ),
    _form(
        "all-forms-together",
        FORMS,
        {
            "resources": [f"{OBJECT}/status"],
            "subscribe": f"{OBJECT}/registration",
            "resource": OBJECT,
            "children": ["m"],
        },
        hears=(f"{OBJECT}/status", f"{OBJECT}/registration", f"{OBJECT}/changes", f"{OBJECT}/children/m"),
    ),
    _form(
        "resource-and-children",
        FORMS,
        {"resource": OBJECT, "children": ["messages"]},
        hears=(f"{OBJECT}/changes", f"{OBJECT}/children/messages"),
    ),
    _form(
        "nested-lists",
        FORMS,
        {"resources": [[f"{OBJECT}/changes"], [[f"{OBJECT}/status"]]]},
        hears=(f"{OBJECT}/changes", f"{OBJECT}/status"),
    ),
    _form(
        "duplicates",
        FORMS,
        {"resources": [f"{OBJECT}/changes", f"{OBJECT}/changes"], "subscribe": f"{OBJECT}/changes"},
        hears=(f"{OBJECT}/changes",),
    ),
    _form("resource", EXPANSION, {"resource": OBJECT, "schema": SCHEMA}, hears=(f"{OBJECT}/changes",), not_=(OBJECT,)),
    _form(
        "resource-with-suffix",
        EXPANSION,
        {"resource": f"{OBJECT}/subscription"},
        hears=(f"{OBJECT}/subscription",),
        not_=(f"{OBJECT}/changes", f"{OBJECT}/subscription/changes"),
    ),
    _form(
        "children",
        EXPANSION,
        {"resource": OBJECT, "childrenResources": ["messages", "participants"], "schema": SCHEMA},
        hears=(
            f"{OBJECT}/changes",
            f"{OBJECT}/children/messages",
            f"{OBJECT}/messages",
            f"{OBJECT}/children/",
            f"{OBJECT}/children/participants",
            f"{OBJECT}/participants",
        ),
        not_=(OBJECT, f"{OBJECT}/files"),
    ),
    _form(
        "children-as-objects",
        EXPANSION,
        {"resource": OBJECT, "childrenResources": [{"name": "a"}, {"b": ""}]},
        hears=(f"{OBJECT}/children/a", f"{OBJECT}/children/b"),
    ),
    _form(
        "children-base",
        EXPANSION,
        {"resource": f"{OBJECT}/children/"},
        hears=(f"{OBJECT}/children/", f"{OBJECT}/children/anything"),
    ),
    case(
        "sub-resource-of-own-object",
        "8.3",
        "and O itself only when the sender owns O",
        owns("ana", "o", "comm"),
        _subscribe("ana", {"resource": "{o}", "childrenResources": ["m"]}),
        granted("ana"),
        *heard("{o}"),
        listens("bo", "{o}/changes"),
        *(step for child in ("children/m", "m") for step in heard(f"{{o}}/{child}", type_="create")),
        cast="ana bo",
    ),
    case(
        "sub-as-in-phase-1",
        "8.3",
        'reply keeps id "1" (text), type response, to as written, code 200 (integer)',
        reports("bo", OBJECT),
        Asks(
            "ana",
            "SUBSCRIBE",
            "{sm}",
            {"resource": OBJECT, "childrenResources": ["messages"], "schema": SCHEMA},
            from_="{ana.old}/sm",
            id="1",
        ),
        granted("ana"),
        *heard(f"{OBJECT}/children/messages"),
        cast="ana bo",
    ),
    case(
        "sub-again",
        "8.1",
        "idempotent: delivery is once per session",
        reports("bo", OBJECT),
        listens("ana", f"{OBJECT}/changes"),
        listens("ana", f"{OBJECT}/changes"),
        *heard(f"{OBJECT}/changes"),
        cast="ana bo",
    ),
    case(
        "sub-two-subscribers",
        "8.4",
        "listeners are sets per (session, address, source)",
        reports("bo", OBJECT),
        listens("ana", f"{OBJECT}/changes"),
        listens("cy", f"{OBJECT}/changes"),
        Asks("bo", "update", f"{OBJECT}/changes", {"value": "news"}),
        Arrives("ana", "bo"),
        Arrives("cy", "bo"),
        cast="ana bo cy",
        scope=Scope(reference=True),
    ),
    case(
        "sub-ten-hundred",
        "1.6",
        "resources: 1000 entries",
        reports("bo", OBJECT),
        _subscribe("ana", {"resources": [f"{OBJECT}/{number}" for number in range(TOO_MANY - 1)]}),
        granted("ana"),
        *heard(f"{OBJECT}/999"),
        cast="ana bo",
    ),
    case(
        "sub-too-many",
        "1.6",
        "resources: 1000 entries; over the limit: 413",
        reports("bo", OBJECT),
        _subscribe("ana", {"resources": [f"{OBJECT}/{number}" for number in range(TOO_MANY)]}),
        refused("ana", 413, "too-large"),
        *unheard(f"{OBJECT}/0"),
        cast="ana bo",
    ),
    case(
        "sub-everything",
        "20.1",
        "taps: wildcard * listeners for operators and tests only",
        _subscribe("ana", {"resources": ["*"]}),
        Answered("ana", OneOf((Success(), Refusal(403, ("policy", "not-owner")), Refusal(400, ("bad-body",))))),
        owns("cy", "h"),
        Asks("bo", "update", "{h}", {"value": 1}),
        Arrives("cy", "bo"),
        Silent("ana", after="bo"),
        *unheard(f"{OBJECT}/changes"),
        cast="ana bo cy",
    ),
    case(
        "sub-of-a-prefix-is-none",
        "20.2",
        "there is no plain text prefix match",
        listens("ana", OBJECT),
        *unheard(f"{OBJECT}1"),
        *unheard(f"{OBJECT}/changes"),
        cast="ana bo",
    ),
)

WRONG_CASES: Final = (
    *(
        case(
            f"{word}-body-{slug}",
            "1.1",
            "body: object, missing or null; anything else is malformed",
            _subscribe("ana", body, type_=type_),
            malformed("ana"),
            listens("ana", f"{OBJECT}/changes"),
        )
        for word, type_ in (("sub", "subscribe"), ("unsub", "unsubscribe"))
        for slug, body in {"list": [f"{OBJECT}/changes"], "text": f"{OBJECT}/changes", "number": 5}.items()
    ),
    _refuses("no-body", ABSENT),
    _refuses("null-body", None),
    _refuses("empty-body", {}),
    _refuses("empty-list", {"resources": []}),
    _refuses("nested-empty-list", {"resources": [[], [[]]]}),
    _refuses("only-source", {"source": "{ana}"}),
    _refuses("number", {"resources": 5}, "400 bad-body: malformed"),
    _refuses("object", {"resources": {"a": 1}}, "400 bad-body: malformed"),
    _refuses("list-of-numbers", {"resources": [1, 2, None]}, "400 bad-body: malformed"),
    _refuses("resource-number", {"resource": 7}, "400 bad-body: malformed"),
    _refuses(
        "children-only", {"childrenResources": ["messages"]}, "names of children are nothing without their object"
    ),
    case(
        "sub-type-create",
        "1.2",
        "a service answers 405 with reason bad-type to a type that it does not know",
        _subscribe("ana", {"resources": [OBJECT]}, type_="create"),
        refused("ana", 405, "bad-type"),
    ),
    case(
        "sub-type-unheard-of",
        "1.2",
        "a service answers 405 with reason bad-type to a type that it does not know",
        _subscribe("ana", {"resources": [OBJECT]}, type_="frobnicate"),
        refused("ana", 405, "bad-type"),
    ),
    case(
        "sub-response-is-not-answered",
        "1.7",
        "a response is never answered",
        Asks("ana", "response", "{sm}", {"code": 200, "resources": [OBJECT]}, id=77),
        Silent("ana"),
    ),
    case(
        "sub-without-id",
        "3",
        "messages without id open no transaction; no error reply is sent for them",
        Asks("ana", "subscribe", "{sm}", {}, from_="{ana}/sm", id=ABSENT),
        Silent("ana"),
    ),
)

SOURCE_CASES: Final = (
    _source("runtime", "{ana}"),
    _source("component", "{ana}/protostub/7f"),
    _source("hyperty", "{h}"),
    _source("of-another-runtime", "{cy}", code=403),
    _source("below-another-runtime", "{cy}/sm", code=403),
    _source("hyperty-of-another", "{g}", code=403),
    _source("of-another-domain", "runtime://elsewhere.invalid/rt", code=403),
    case(
        "sub-source-p2p-handler",
        "17",
        "a source whose path starts with /p2phandler/ and whose domain is that of the session is accepted and claimed",
        _subscribe("ana", {"subscribe": ["{ana}/p2phandler/6f1"], "source": "runtime://{d}/p2phandler/{n}"}),
        granted("ana"),
        *heard("{ana}/p2phandler/6f1"),
        cast="ana bo",
    ),
)


def _unsubscribe(who: str, body: Json = ABSENT) -> CaseStep:
    return _subscribe(who, body, type_="unsubscribe")


def _ends(slug: str, body: Json, *, type_: str = "unsubscribe") -> Case:
    """A subscription to the changes of the object ends with this body."""
    steps = (*reports("bo", OBJECT), *listens("ana", f"{OBJECT}/changes"), _subscribe("ana", body, type_=type_))
    return case(
        f"unsub-{slug}",
        "8.4",
        "same reading of resources, unsubscribe, subscribe, resource (+ children)",
        *steps,
        granted("ana"),
        *unheard(f"{OBJECT}/changes"),
        cast="ana bo",
    )


def _not_ends(slug: str, body: Json, *, says: str, code: int = 0) -> Case:
    """A subscription to the changes of the object goes on after this body."""
    answer = refused("ana", code, "bad-body") if code else granted("ana")
    steps = (*reports("bo", OBJECT), *listens("ana", f"{OBJECT}/changes"), _unsubscribe("ana", body), answer)
    scope = Scope(profiles=STRICT_ONLY) if code else EVERYWHERE
    return case(f"unsub-{slug}", "8.4", says, *steps, *heard(f"{OBJECT}/changes"), cast="ana bo", scope=scope)


END_CASES: Final = (
    case(
        "unsub-resources",
        "8.4",
        "removes listeners of this session",
        reports("bo", OBJECT),
        listens("ana", f"{OBJECT}/changes", f"{OBJECT}/status"),
        _unsubscribe("ana", {"resources": [f"{OBJECT}/changes"]}),
        granted("ana"),
        *unheard(f"{OBJECT}/changes"),
        *heard(f"{OBJECT}/status"),
        cast="ana bo",
    ),
    _ends("unsubscribe-list", {"unsubscribe": [f"{OBJECT}/changes"]}),
    _ends("unsubscribe-text", {"unsubscribe": f"{OBJECT}/changes"}),
    _ends("subscribe-list", {"subscribe": [f"{OBJECT}/changes"]}),
    _ends("resource", {"resource": OBJECT}),
    _ends("upper-case-type", {"resources": [f"{OBJECT}/changes"]}, type_="UNSUBSCRIBE"),
    _ends("with-source", {"resources": [f"{OBJECT}/changes"], "source": "{ana}"}),
    case(
        "unsub-children",
        "8.4",
        "same reading of resource (+ children)",
        reports("bo", OBJECT),
        _subscribe("ana", {"resource": OBJECT, "childrenResources": ["m"]}),
        granted("ana"),
        _unsubscribe("ana", {"resource": OBJECT, "childrenResources": ["m"]}),
        granted("ana"),
        *unheard(f"{OBJECT}/children/m"),
        *unheard(f"{OBJECT}/m"),
        *unheard(f"{OBJECT}/changes"),
        cast="ana bo",
    ),
    _not_ends("unknown", {"resources": ["comm://{d}/other-{n}"]}, says="unknown entries are fine: 200"),
    _not_ends(
        "with-another-source",
        {"resources": [f"{OBJECT}/changes"], "source": "{ana}/other"},
        says="source is given: then only those stored with that source",
    ),
    _not_ends("no-body", ABSENT, says="empty: 400", code=400),
    _not_ends("empty-body", {}, says="empty: 400", code=400),
    _not_ends("empty-list", {"resources": []}, says="empty: 400", code=400),
    _not_ends("number", {"resources": 5}, says="empty: 400", code=400),
    case(
        "unsub-another-holds-it",
        "8.4",
        "the session listener stays while another source holds it",
        reports("bo", OBJECT),
        owns("ana", "h"),
        owns("ana", "g"),
        _subscribe("ana", {"resources": [f"{OBJECT}/changes"], "source": "{h}"}),
        granted("ana"),
        _subscribe("ana", {"resources": [f"{OBJECT}/changes"], "source": "{g}"}),
        granted("ana"),
        _unsubscribe("ana", {"resources": [f"{OBJECT}/changes"], "source": "{h}"}),
        granted("ana"),
        *heard(f"{OBJECT}/changes"),
        _unsubscribe("ana", {"resources": [f"{OBJECT}/changes"], "source": "{g}"}),
        granted("ana"),
        *unheard(f"{OBJECT}/changes"),
        cast="ana bo",
    ),
    case(
        "unsub-all-sources",
        "8.4",
        "removes listeners of this session (all sources, unless source is given)",
        reports("bo", OBJECT),
        owns("ana", "h"),
        _subscribe("ana", {"resources": [f"{OBJECT}/changes"], "source": "{h}"}),
        granted("ana"),
        _subscribe("ana", {"resources": [f"{OBJECT}/changes"], "source": "{ana}"}),
        granted("ana"),
        _unsubscribe("ana", {"resources": [f"{OBJECT}/changes"]}),
        granted("ana"),
        *unheard(f"{OBJECT}/changes"),
        cast="ana bo",
    ),
    case(
        "unsub-of-another-session",
        "8.4",
        "removes listeners of this session",
        reports("bo", OBJECT),
        listens("ana", f"{OBJECT}/changes"),
        _unsubscribe("cy", {"resources": [f"{OBJECT}/changes"]}),
        granted("cy"),
        *heard(f"{OBJECT}/changes"),
        cast="ana bo cy",
    ),
    case(
        "unsub-in-the-name-of-another",
        "8.2",
        "a source of another session: 403 spoofed-source",
        reports("bo", OBJECT),
        listens("ana", f"{OBJECT}/changes"),
        _unsubscribe("cy", {"resources": [f"{OBJECT}/changes"], "source": "{ana}"}),
        Survives("cy"),
        *heard(f"{OBJECT}/changes"),
        cast="ana bo cy",
    ),
)

READ_CASES: Final = (
    case(
        "sub-read",
        "8.7",
        'returns the entries of the session: {"resources":[{"url":"…","source":"…"}]}',
        listens("ana", f"{OBJECT}/changes"),
        _subscribe("ana", type_="read"),
        granted("ana", {"resources": Including(({"url": f"{OBJECT}/changes", "source": "{ana}"},))}),
    ),
    case(
        "sub-read-others",
        "8.7",
        "operators may pass resource = address or runtime: others learn nothing",
        listens("ana", f"{OBJECT}/changes"),
        _subscribe("bo", {"resource": "{ana}"}, type_="read"),
        Survives("bo"),
        cast="ana bo",
    ),
)

CASES: Final = (*FORM_CASES, *WRONG_CASES, *SOURCE_CASES, *READ_CASES, *END_CASES)
