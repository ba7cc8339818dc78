"""Cases of data synchronisation: what observers and reporters say. Source: message specification, section 9."""

from __future__ import annotations

from typing import Final

from interop.conformance.jsontext import Json
from interop.conformance.matching import Anything
from interop.conformance.model import (
    ABSENT,
    Arrives,
    Asks,
    Case,
    CaseStep,
    Replies,
    Says,
    Silent,
    case,
    listens,
    owns,
    refused,
    unreachable,
)

REPORTER_RULE: Final = (
    "from = O is accepted only from the owner session of O or a session that subscribed O/subscription first; "
    "else 403 not-owner (dropped when there is no id)"
)
CHANGE: Final[Json] = {
    "attribute": "participants.bo.status",
    "value": "away",
    "attributeType": "object",
    "version": 5,
    "lastModified": "2031-04-01T08:00:00Z",
    "source": "{ana}",
}
INNER: Final[Json] = {"type": "delete", "from": "{ana}", "to": "{bo}", "body": {"value": 1}}
FORWARDED: Final[Json] = {"type": "forward", "from": "{ana}", "to": "{bo}", "body": {"message": INNER}}
FORWARDED_TWICE: Final[Json] = {"type": "forward", "from": "{ana}", "to": "{bo}", "body": {"message": FORWARDED}}
VALUE_RULE: Final = "body.value leaves the node equal in meaning: same numbers, same member order, same strings"


def _reports(body: Json, *, id_: Json = None, type_: str = "update") -> CaseStep:
    return Asks("ana", type_, "{o}/changes", body, from_="{o}", id=id_)


def _change(slug: str, section: str, says: str, body: Json, *, id_: Json = None) -> Case:
    """Ana reports a change of her object; bo observes it."""
    steps = (owns("ana", "o", "comm"), listens("bo", "{o}/changes"), _reports(body, id_=id_), Arrives("bo", "ana"))
    return case(f"sync-{slug}", section, says, *steps, Silent("ana"), cast="ana bo")


def _child(slug: str, says: str, type_: str, body: Json, *, to: str = "{o}/children/messages") -> Case:
    """Bo, who observes ana's object, says something about a child of it, and ana and cy hear it."""
    steps = (
        owns("ana", "o", "comm"),
        owns("bo", "h"),
        listens("bo", "{o}/changes"),
        listens("ana", "{o}/children/"),
        listens("cy", to),
        Asks("bo", type_, to, body, from_="{h}"),
        Arrives("ana", "bo"),
        Arrives("cy", "bo"),
    )
    return case(f"sync-{slug}", "9.5", says, *steps, cast="ana bo cy")


def _verbatim(slug: str, value: str) -> Case:
    """A value, as JSON text, arrives as it was sent."""
    text = '{"id":90,"type":"update","from":"{o}","to":"{o}/changes","body":{"attribute":"a","value":' + value + "}}"
    steps = (owns("ana", "o", "comm"), listens("bo", "{o}/changes"), Says("ana", text), Arrives("bo", "ana"))
    return case(f"sync-value-{slug}", "1.5", VALUE_RULE, *steps, cast="ana bo")


INVITATION: Final = (
    case(
        "sync-invitation",
        "9.2",
        "an invitation goes from O/subscription to the hyperty, its reply from there to O/subscription",
        owns("ana", "o", "comm"),
        owns("bo", "h"),
        listens("ana", "{o}/subscription"),
        Asks(
            "ana",
            "create",
            "{h}",
            {
                "source": "{ana}",
                "schema": "hyperty-catalogue://{d}/x",
                "value": {"name": "R"},
                "p2p": False,
                "mutual": False,
            },
            from_="{o}/subscription",
        ),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 200}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "sync-invitation-rings",
        "9.2",
        "replies 1xx possible (ringing); a code below 200 is provisional: the transaction stays open",
        owns("ana", "o", "comm"),
        owns("bo", "h"),
        Asks("ana", "create", "{h}", {"value": {}}, from_="{o}/subscription"),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 183}),
        Arrives("ana", "bo"),
        Replies("bo", {"code": 403, "description": "no time"}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "sync-invitation-reply-without-listener",
        "9.2",
        "O/subscription must be a listener - when it is not, deliver to the owner of O",
        owns("ana", "o", "comm"),
        owns("bo", "h"),
        Asks("ana", "create", "{h}", {"value": {}}, from_="{o}/subscription"),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 200}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "sync-observer-subscribes",
        "9.3",
        "subscribe to O/subscription is routed to the reporter, who answers with the data",
        owns("ana", "o", "comm"),
        owns("bo", "h"),
        Asks("bo", "subscribe", "{o}/subscription", {"source": "{h}", "resource": "{o}"}, from_="{bo}/sm"),
        Arrives("ana", "bo"),
        Replies("ana", {"code": 200, "value": {"data": {"topic": "release planning"}, "version": 4}}),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "sync-observer-as-running-code-says-it",
        "9.3",
        "source, then subscriber; the node forwards unchanged",
        owns("ana", "o", "comm"),
        owns("bo", "h"),
        Asks("bo", "subscribe", "{o}/subscription", {"subscriber": "{h}", "resource": "{o}"}, from_="{bo}/sm"),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "sync-observer-leaves",
        "9.3",
        "leaving: unsubscribe to O/subscription with source and childrenResources",
        owns("ana", "o", "comm"),
        owns("bo", "h"),
        Asks(
            "bo",
            "unsubscribe",
            "{o}/subscription",
            {"source": "{h}", "childrenResources": ["messages"]},
            from_="{bo}/sm",
        ),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
)

CHANGES: Final = (
    _change("change", "9.4", "an event from the object to its change address", CHANGE),
    _change("change-without-id", "9.4", "an event without reply", CHANGE, id_=ABSENT),
    _change("change-removes", "9.4", "removal of a field: the same without value", {"attribute": "topic"}),
    _change("change-to-null", "9.4", '"value": null is a value, not a removal', {"attribute": "topic", "value": None}),
    _change(
        "change-of-array",
        "9.4",
        "array: attributeType array with operation add or remove",
        {"attribute": "tags", "value": ["x"], "attributeType": "array", "operation": "add"},
    ),
    _change(
        "change-with-value-only", "9.4", "a body with value only (whole object or unnamed field)", {"value": {"a": 1}}
    ),
    _verbatim("big-integer", "123456789012345678901234567890"),
    _verbatim("many-digits", "0.12345678901234567890123"),
    _verbatim("large-exponent", "1.5e400"),
    _verbatim("member-order", '{"z":1,"a":{"y":2,"b":3},"m":[{"k":1,"c":2}]}'),
    _verbatim("control-characters", r'"\u0000\u001f\u007f\"\\\/"'),
    _verbatim("beyond-ascii", '"žluťoučký 😀 \u2028"'),
    _verbatim("escaped-pair", r'"\ud83d\ude00"'),
    _verbatim("empty-things", '[{},[],"",0,false,null]'),
    _verbatim("looks-like-a-header", '{"id":1,"type":"close","from":"x","to":"mn:/session","auth":true,"via":["y"]}'),
    case(
        "sync-change-two-observers",
        "9.4",
        "delivery: every listener of the change address",
        owns("ana", "o", "comm"),
        listens("bo", "{o}/changes"),
        listens("cy", "{o}/changes"),
        _reports(CHANGE),
        Arrives("bo", "ana"),
        Arrives("cy", "ana"),
        cast="ana bo cy",
    ),
    case(
        "sync-changes-in-order",
        "9.4",
        "in order of arrival per (object, listener)",
        owns("ana", "o", "comm"),
        listens("bo", "{o}/changes"),
        *(_reports({"attribute": "n", "value": number}) for number in range(20)),
        *(Arrives("bo", "ana", body={"value": number}, changes={"id": Anything()}) for number in range(20)),
        cast="ana bo",
    ),
    case(
        "sync-change-unobserved",
        "9.4",
        "no listener: dropped silently (no error: events)",
        owns("ana", "o", "comm"),
        _reports(CHANGE),
        Silent("ana"),
        _reports(CHANGE, id_=ABSENT),
        Silent("ana"),
    ),
    case(
        "sync-change-by-a-stranger",
        "9.4",
        REPORTER_RULE,
        owns("ana", "o", "comm"),
        listens("bo", "{o}/changes"),
        Asks("cy", "update", "{o}/changes", CHANGE, from_="{o}"),
        refused("cy", 403, "not-owner"),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "sync-change-by-a-stranger-without-id",
        "9.4",
        REPORTER_RULE,
        owns("ana", "o", "comm"),
        listens("bo", "{o}/changes"),
        Asks("cy", "update", "{o}/changes", CHANGE, from_="{o}", id=ABSENT),
        Silent("cy"),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "sync-change-by-an-observer",
        "9.4",
        REPORTER_RULE,
        owns("ana", "o", "comm"),
        listens("bo", "{o}/changes"),
        listens("cy", "{o}/changes"),
        Asks("cy", "update", "{o}/changes", CHANGE, from_="{o}"),
        refused("cy", 403, "not-owner"),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "sync-unowned-object-changes-by-its-reporter",
        "9.4",
        REPORTER_RULE,
        listens("ana", "comm://{d}/room-{n}/subscription"),
        listens("bo", "comm://{d}/room-{n}/changes"),
        Asks("ana", "update", "comm://{d}/room-{n}/changes", {"value": 1}, from_="comm://{d}/room-{n}"),
        Arrives("bo", "ana"),
        Asks("cy", "update", "comm://{d}/room-{n}/changes", {"value": 2}, from_="comm://{d}/room-{n}"),
        refused("cy", 403, "not-owner"),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
)

MESSAGE: Final[Json] = {"resource": "{h}#7", "value": {"text": "hello", "sent": 1932624000}}

CHILDREN: Final = (
    _child("child-created", "create to O/children/<name> reaches its listeners", "create", MESSAGE),
    _child("child-updated", "update (same plus new value)", "update", MESSAGE),
    _child("child-deleted", "delete (only resource)", "delete", {"resource": "{h}#7"}),
    _child(
        "child-heartbeat",
        "variants on the same address: heartbeat",
        "create",
        {"resource": "heartbeat", "value": 1932624000, "mutual": False},
    ),
    _child("child-event", "type event for application events", "event", {"value": "typing"}),
    _child(
        "child-at-the-base",
        "running code uses the base O/children/ with the child name in body.resource",
        "create",
        {"resource": "messages", "value": 1},
        to="{o}/children/",
    ),
    case(
        "sync-child-acknowledged",
        "9.5",
        "such a reply carries a from that the replier does not own; distinguished by body.source",
        owns("ana", "o", "comm"),
        owns("bo", "h"),
        listens("bo", "{o}/changes"),
        listens("ana", "{o}/children/messages"),
        listens("cy", "{o}/children/messages"),
        Asks("bo", "create", "{o}/children/messages", MESSAGE, from_="{h}"),
        Arrives("ana", "bo"),
        Arrives("cy", "bo"),
        Replies("ana", {"code": 200, "source": "{ana}"}),
        Arrives("bo", "ana"),
        Replies("cy", {"code": 200, "source": "{cy}"}),
        Arrives("bo", "cy"),
        cast="ana bo cy",
    ),
    case(
        "sync-child-listener-does-not-hear-the-base",
        "9.5",
        "an entry for O/children/ receives messages to O/children/<any>, and the reverse is not true",
        owns("ana", "o", "comm"),
        listens("bo", "{o}/children/messages"),
        listens("cy", "{o}/changes"),
        Asks("cy", "create", "{o}/children/", {"resource": "messages", "value": 1}, id=ABSENT),
        Silent("bo", after="cy"),
        Asks("cy", "create", "{o}/children/files", {"value": 1}, id=ABSENT),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
)

OBJECTS: Final = (
    case(
        "sync-object-deleted",
        "9.6",
        "delete from O/subscription to O/changes; replies come from O/changes to O/subscription with body.source",
        owns("ana", "o", "comm"),
        listens("ana", "{o}/subscription"),
        listens("bo", "{o}/changes"),
        Asks("ana", "delete", "{o}/changes", from_="{o}/subscription"),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 200, "source": "{bo}"}),
        Arrives("ana", "bo"),
        Asks("bo", "read", "{o}"),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "sync-object-deleted-by-a-stranger",
        "9.8",
        "O/changes delete: rightful sender is the reporter (from = O/subscription)",
        owns("ana", "o", "comm"),
        listens("bo", "{o}/changes"),
        Asks("cy", "delete", "{o}/changes", from_="{o}/subscription"),
        refused("cy", 403, "not-owner"),
        Silent("bo", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "sync-object-read",
        "9.7",
        "read to O: 200 value, by the reporter; it goes to the owner only, not to listeners",
        owns("ana", "o", "comm"),
        listens("bo", "{o}/changes"),
        Asks("cy", "read", "{o}", {"attribute": "topic"}),
        Arrives("ana", "cy"),
        Silent("bo", after="cy"),
        Replies("ana", {"code": 401, "reason": "unauthorized"}),
        Arrives("cy", "ana"),
        cast="ana bo cy",
    ),
    case(
        "sync-object-executes",
        "9.7",
        "execute to O (observer asks reporter to run a method): normal reply",
        owns("ana", "o", "comm"),
        Asks("cy", "execute", "{o}", {"method": "rename", "params": ["x", 1, None]}),
        Arrives("ana", "cy"),
        Replies("ana", {"code": 200, "value": True}),
        Arrives("cy", "ana"),
        cast="ana cy",
    ),
    case(
        "sync-forward",
        "9.7",
        "node: routes on the outer header; a forwarded message is never unpacked",
        owns("bo", "h"),
        Asks(
            "ana",
            "forward",
            "{h}",
            {"message": {"type": "delete", "from": "{ana}", "to": "{cy}", "body": {"value": 1}}},
        ),
        Arrives("bo", "ana"),
        Silent("cy", after="ana"),
        cast="ana bo cy",
    ),
    case(
        "sync-forward-as-whole-body",
        "9.7",
        "body = the original message (running code)",
        owns("bo", "h"),
        Asks("ana", "forward", "{h}", {"type": "create", "from": "{ana}", "to": "{cy}", "body": {"value": 1}}),
        Arrives("bo", "ana"),
        Silent("cy", after="ana"),
        cast="ana bo cy",
    ),
    case(
        "sync-forward-too-deep",
        "9.7",
        "nesting deeper than 2: 400 too-deep",
        owns("bo", "h"),
        Asks("ana", "forward", "{h}", {"message": FORWARDED_TWICE}),
        refused("ana", 400, "too-deep"),
        Silent("bo", after="ana"),
        cast="ana bo",
    ),
    case(
        "sync-handshake",
        "1.5",
        "messages of type handshake carry body.handshakePhase; the node does not look into them",
        owns("bo", "h"),
        Asks("ana", "handshake", "{h}", {"handshakePhase": "senderHello", "value": "b64=="}),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "sync-status-is-routed",
        "6",
        "status from an ordinary session is routed like any message; no id, no reply",
        listens("bo", "{ana}/protostub/b7c1/status"),
        Asks(
            "ana", "update", "{ana}/protostub/b7c1/status", {"value": "live"}, from_="{ana}/protostub/b7c1", id=ABSENT
        ),
        Arrives("bo", "ana"),
        Silent("ana"),
        cast="ana bo",
    ),
    case(
        "sync-nobody-there",
        "20.2",
        "404 no-route (requests only)",
        Asks("ana", "create", "comm://{d}/nobody-{n}/children/messages", {"value": 1}),
        unreachable("ana", 404, "no-route"),
        Asks("ana", "create", "comm://{d}/nobody-{n}/children/messages", {"value": 1}, id=ABSENT),
        Silent("ana"),
    ),
)

CASES: Final = (*INVITATION, *CHANGES, *CHILDREN, *OBJECTS)
