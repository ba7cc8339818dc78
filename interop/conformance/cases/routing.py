"""Cases of routing: who hears what, who may speak as whom, hops and life time.

Source: message specification, section 20.
"""

from __future__ import annotations

from typing import Final

from interop.conformance.jsontext import Json, write
from interop.conformance.matching import Keep, Maybe, Number, Text
from interop.conformance.model import (
    ABSENT,
    NODE_ADDRESS,
    STRICT_ONLY,
    Answered,
    Arrives,
    Asks,
    Case,
    Hears,
    Opens,
    Refusal,
    Replies,
    SaysTogether,
    Scope,
    Silent,
    case,
    granted,
    listens,
    owns,
    refused,
    reports,
    unreachable,
)

OBJECT: Final = "comm://{d}/room-{n}"
SOURCE_RULE: Final = (
    "a session may use as from: its runtime address and anything below; its session address; what it owns"
)
BELOW_RULE: Final = "addresses below a live runtime address go to that session"
NO_PREFIX: Final = "there is no plain text prefix match: rt-a never receives for rt-ana"
SUFFIX_RULE: Final = (
    "for a hyperty or object key with unknown suffix the owner is not used, except /subscription, /status, /inbox"
)
OWNER_RULE: Final = "owned by another session: 403 not-owner"
VIA_RULE: Final = "to local sessions of runtimes via is removed"


def _speaks(slug: str, from_: str, *, says: str = SOURCE_RULE) -> Case:
    """Ana may speak as this, and gets the reply."""
    return case(
        f"route-from-{slug}",
        "20.3",
        says,
        owns("ana", "h"),
        owns("bo", "g"),
        Asks("ana", "read", "{g}", {"value": 1}, from_=from_),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 200}),
        Arrives("ana", "bo"),
        cast="ana bo",
    )


def _may_not_speak(slug: str, from_: str, says: str, *reasons: str) -> Case:
    """Ana may not speak as this: neither with a request nor with an event."""
    return case(
        f"route-from-{slug}",
        "20.3",
        says,
        owns("bo", "g"),
        Asks("ana", "read", "{g}", {"value": 1}, from_=from_),
        refused("ana", 403, *reasons),
        Asks("ana", "update", "{g}", {"value": 1}, from_=from_, id=ABSENT),
        Silent("ana"),
        Silent("bo", after="ana"),
        cast="ana bo",
    )


def _stripped(slug: str, section: str, says: str, body: dict[str, Json]) -> Case:
    """Members of a body that do not reach bo."""
    return case(
        f"route-{slug}",
        section,
        says,
        owns("bo", "h"),
        Asks("ana", "read", "{h}", {**body, "value": 1}),
        Arrives("bo", "ana", body=dict.fromkeys(body, ABSENT)),
        cast="ana bo",
    )


def _hops(count: int) -> Json:
    return [f"runtime://hop-{number}.invalid/mn" for number in range(count)]


TARGETS: Final = (
    case(
        "route-to-runtime",
        "20.1",
        "owner: allocated, claimed, runtime addresses, session addresses",
        Asks("bo", "read", "{ana}", {"value": 1}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "route-to-session-address",
        "5.1",
        "listener for the session address",
        Asks("bo", "read", "{ana.session}", {"value": 1}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "route-to-runtime-sm",
        "5.1",
        "implicit listener for <runtime>/sm",
        Asks("bo", "read", "{ana}/sm", {"value": 1}, from_="{bo}/sm"),
        Arrives("ana", "bo"),
        Replies("ana", {"code": 200}),
        Arrives("bo", "ana"),
        cast="ana bo",
        scope=Scope(reference=True),
    ),
    case(
        "route-to-component",
        "20.2",
        BELOW_RULE,
        Asks("bo", "read", "{ana}/registry/", {"value": 1}),
        Arrives("ana", "bo"),
        Asks("bo", "read", "{ana}/protostub/7/x/y", {"value": 1}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "route-no-prefix",
        "20.2",
        NO_PREFIX,
        Opens("long", runtime="{ana}-and-more"),
        Asks("bo", "read", "{ana}-and-more", {"value": 1}),
        Arrives("long", "bo"),
        Asks("bo", "read", "{ana}-and-more/x", {"value": 1}),
        Arrives("long", "bo"),
        Silent("ana", after="bo"),
        Asks("bo", "read", "{ana}-an"),
        unreachable("bo", 404, "no-route"),
        Asks("bo", "read", "{ana}"),
        Arrives("ana", "bo"),
        Silent("long", after="bo"),
        cast="ana bo",
    ),
    case(
        "route-no-prefix-of-hyperty",
        "20.2",
        NO_PREFIX,
        owns("ana", "h"),
        Asks("bo", "read", "{h}0"),
        unreachable("bo", 404, "no-route"),
        Silent("ana", after="bo"),
        cast="ana bo",
    ),
    case(
        "route-unknown-suffix",
        "20.2",
        SUFFIX_RULE,
        owns("ana", "h"),
        Asks("bo", "read", "{h}/changes"),
        unreachable("bo", 404, "no-route"),
        Asks("bo", "read", "{h}/whatever"),
        unreachable("bo", 404, "no-route"),
        Silent("ana", after="bo"),
        cast="ana bo",
    ),
    *(
        case(
            f"route-suffix-{suffix}",
            "20.2",
            SUFFIX_RULE,
            owns("ana", "h"),
            Asks("bo", "read", f"{{h}}/{suffix}"),
            Arrives("ana", "bo"),
            cast="ana bo",
        )
        for suffix in ("subscription", "status", "inbox")
    ),
    case(
        "route-all-listeners",
        "20.2",
        "if there is no owner, all listeners get it",
        listens("ana", f"{OBJECT}/status"),
        listens("cy", f"{OBJECT}/status"),
        Asks("bo", "read", f"{OBJECT}/status"),
        Arrives("ana", "bo"),
        Arrives("cy", "bo"),
        cast="ana bo cy",
    ),
    case(
        "route-no-echo",
        "20.5",
        "the session a message came from gets no copy, even if subscribed",
        reports("ana", OBJECT),
        listens("ana", f"{OBJECT}/changes"),
        listens("bo", f"{OBJECT}/changes"),
        Asks("ana", "update", f"{OBJECT}/changes", {"value": 1}),
        Arrives("bo", "ana"),
        Silent("ana"),
        cast="ana bo",
        scope=Scope(profiles=STRICT_ONLY),
    ),
    case(
        "route-nobody",
        "20.2",
        "404 no-route (requests only)",
        Asks("ana", "read", "hyperty://{d}/nobody-{n}"),
        unreachable("ana", 404, "no-route"),
    ),
    case(
        "route-nobody-event",
        "20.2",
        "404 no-route (requests only)",
        Asks("ana", "update", "hyperty://{d}/nobody-{n}", {"value": 1}, id=ABSENT),
        Silent("ana"),
    ),
    case(
        "route-nobody-notification",
        "3",
        "notifications (update to /changes, /status, /registration): no error reply is sent",
        *(
            step
            for suffix in ("changes", "status", "registration")
            for step in (Asks("ana", "update", f"{OBJECT}/{suffix}", {"value": 1}), Silent("ana"))
        ),
    ),
    case(
        "route-nobody-with-receipt",
        "3",
        "no error reply is sent for them unless body.receipt is true",
        Asks("ana", "update", f"{OBJECT}/changes", {"value": 1, "receipt": True}),
        unreachable("ana", 404, "no-route"),
    ),
    case(
        "route-nobody-plain-name",
        "2.2",
        "text without a colon is its own key, never routable to another domain",
        Asks("ana", "read", "nobody-{n}"),
        unreachable("ana", 404, "no-route"),
    ),
    case(
        "route-order",
        "20.8",
        "FIFO per (origin, receiver session)",
        owns("bo", "h"),
        *(Asks("ana", "update", "{h}", {"value": number}) for number in range(50)),
        *(
            Hears("bo", {"id": Number(), "type": "update", "from": "{ana}", "to": "{h}", "body": {"value": number}})
            for number in range(50)
        ),
        cast="ana bo",
    ),
    case(
        "route-several-together",
        "20.8",
        "FIFO per (origin, receiver session), also for messages that come in one piece",
        owns("bo", "h"),
        SaysTogether(
            "ana",
            tuple(
                write({"id": number, "type": "update", "from": "{ana}", "to": "{h}", "body": {"value": f"ü{number}"}})
                for number in range(10)
            ),
        ),
        *(
            Hears("bo", {"id": number, "type": "update", "from": "{ana}", "to": "{h}", "body": {"value": f"ü{number}"}})
            for number in range(10)
        ),
        cast="ana bo",
    ),
    case(
        "route-several-replies",
        "3",
        "one-to-many requests produce several final replies; a later one is not an error",
        owns("bo", "h"),
        Asks("ana", "read", "{h}"),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 200, "source": "{bo}"}),
        Arrives("ana", "bo"),
        Replies("bo", {"code": 200, "source": "{bo}/second"}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "route-reply-members",
        "4",
        "a reply of a hyperty is routed, not reshaped",
        owns("bo", "h"),
        Asks("ana", "read", "{h}"),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 299, "description": "Fine", "reason": "own-word", "value": {"a": None}, "more": [1]}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "route-not-solicited-reply",
        "3",
        "later replies are routed, marked late and counted",
        Asks("ana", "response", "{bo}", {"code": 200, "value": 1}, id=4711),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
)

SPEAKERS: Final = (
    _speaks("runtime", "{ana}"),
    _speaks("component", "{ana}/registry/x"),
    _speaks("session-address", "{ana.session}"),
    _speaks("old-spelling", "{ana.old}", says="its runtime address (either spelling)"),
    _speaks("allocated", "{h}"),
    _speaks("sub-resource", "{h}/status"),
    _speaks(
        "unowned",
        "hyperty://{d}/learned-{n}",
        says="with learn on: any address of a local domain that has no owner - it becomes learned",
    ),
    _may_not_speak("runtime-of-another", "{bo}", OWNER_RULE, "not-owner"),
    _may_not_speak("component-of-another", "{bo}/sm", OWNER_RULE, "not-owner"),
    _may_not_speak("hyperty-of-another", "{g}", OWNER_RULE, "not-owner"),
    _may_not_speak("sub-resource-of-another", "{g}/status", OWNER_RULE, "not-owner"),
    _may_not_speak("spelling-of-another", "{bo.old}", OWNER_RULE, "not-owner"),
    _may_not_speak(
        "another-domain",
        "hyperty://elsewhere.invalid/h",
        "foreign domain in from on a local session: permitted only for guests of that domain",
        "spoofed-source",
    ),
    _may_not_speak("own-node", "{sm}", "services are the node's own", "not-owner", "spoofed-source"),
    _may_not_speak(
        "session-manager", "mn:/session", "node-internal names are the node's own", "not-owner", "spoofed-source"
    ),
    case(
        "route-from-plain-word",
        "20.3",
        "plain names without scheme are allowed and never learned",
        owns("bo", "g"),
        Asks("ana", "read", "{g}", {"value": 1}, from_="word-{n}"),
        Arrives("bo", "ana"),
        Asks("bo", "read", "word-{n}"),
        unreachable("bo", 404, "no-route"),
        Silent("ana", after="bo"),
        cast="ana bo",
    ),
    case(
        "route-learned-never-overrides",
        "20.1",
        "learned: never overrides owner",
        Asks("ana", "read", "{bo}", from_="hyperty://{d}/learned-{n}"),
        Arrives("bo", "ana"),
        Asks(
            "bo", "subscribe", "{sm}", {"resources": ["hyperty://{d}/learned-{n}"], "source": "{bo}"}, from_="{bo}/sm"
        ),
        granted("bo"),
        Asks("cy", "read", "hyperty://{d}/learned-{n}"),
        Arrives("bo", "cy"),
        Silent("ana", after="cy"),
        cast="ana bo cy",
    ),
    case(
        "route-reply-in-the-name-of-a-listened-address",
        "20.3",
        "in response, any address it is subscribed to or that was the to of a message delivered to it",
        listens("ana", f"{OBJECT}/subscription"),
        listens("bo", f"{OBJECT}/changes"),
        Asks("ana", "delete", f"{OBJECT}/changes", from_=f"{OBJECT}/subscription"),
        Arrives("bo", "ana"),
        Replies("bo", {"code": 200, "source": "{bo}"}),
        Arrives("ana", "bo"),
        cast="ana bo",
    ),
    case(
        "route-claimed-source",
        "1.3",
        "source: original creator; checked against the session",
        owns("bo", "g"),
        Asks("ana", "read", "{g}", {"source": "{ana}/x"}),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
)

BODY_MEMBERS: Final = (
    _stripped("auth-removed", "1.3", "auth: removed on input from any session", {"auth": True}),
    _stripped(
        "session-token-removed",
        "5.4",
        "body.sessionToken is accepted and removed before routing",
        {"sessionToken": "5b1de06c-6a0e-4c0f-9d0a-1f2f0f7f0c11"},
    ),
    _stripped("via-list-removed", "20.6", VIA_RULE, {"via": ["runtime://{d}/protostub/1"]}),
    _stripped("via-text-removed", "20.6", VIA_RULE, {"via": "runtime://{d}/protostub/1"}),
    _stripped("eight-hops", "20.6", "more than max_hops entries (8 default): 508 hop-limit", {"via": _hops(8)}),
    case(
        "route-nine-hops",
        "20.6",
        "more than max_hops entries (8 default): 508 hop-limit",
        owns("bo", "h"),
        Asks("ana", "read", "{h}", {"via": _hops(9)}),
        Answered("ana", Refusal(508, ("hop-limit",), in_place_of_target=True)),
        Asks("ana", "update", "{h}", {"via": _hops(9)}, id=ABSENT),
        Silent("ana"),
        Silent("bo", after="ana"),
        cast="ana bo",
    ),
    case(
        "route-loop",
        "20.6",
        "own node address is in via: 508 loop (requests only)",
        owns("bo", "h"),
        Asks("ana", "read", "hyperty://{d}/nobody-{n}"),
        Answered(
            "ana",
            {
                "code": 404,
                "description": Text(),
                "desc": Maybe(Text()),
                "reason": "no-route",
                "source": Keep("mn", NODE_ADDRESS),
            },
        ),
        Asks("ana", "read", "{h}", {"via": ["{mn}"]}),
        Answered("ana", Refusal(508, ("loop",), in_place_of_target=True)),
        Asks("ana", "update", "{h}", {"via": ["{mn}"], "value": 1}, id=ABSENT),
        Silent("ana"),
        Silent("bo", after="ana"),
        cast="ana bo",
    ),
    case(
        "route-credentials-are-carried",
        "1.3",
        "idToken, accessToken, identity, trace, policy, p2p, store, mutual: carried",
        owns("bo", "h"),
        Asks(
            "ana",
            "read",
            "{h}",
            {
                "idToken": "a.b.c",
                "accessToken": "x",
                "identity": {"userProfile": {"guid": "anonymous"}},
                "trace": "t-1",
                "policy": "p",
                "p2p": True,
                "store": False,
                "mutual": True,
            },
        ),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "route-nothing-added",
        "20.7",
        "a missing ttl is not added on the wire to local sessions",
        owns("bo", "h"),
        Asks("ana", "read", "{h}", {"value": 1}),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "route-ttl",
        "20.7",
        "each node subtracts the time the message spent with it before passing on",
        owns("bo", "h"),
        Asks("ana", "read", "{h}", {"ttl": 20, "value": 1}),
        Arrives("bo", "ana", body={"ttl": Number(0.1, 20)}),
        cast="ana bo",
    ),
    *(
        case(
            f"route-ttl-{slug}",
            "20.7",
            "result ≤ 0: drop, 408 timeout",
            owns("bo", "h"),
            Asks("ana", "read", "{h}", {"ttl": ttl}),
            Answered("ana", Refusal(408, ("timeout",), in_place_of_target=True)),
            Silent("bo", after="ana"),
            cast="ana bo",
        )
        for slug, ttl in {"zero": 0, "negative": -1}.items()
    ),
    case(
        "route-ttl-event",
        "20.7",
        "result ≤ 0: drop",
        owns("bo", "h"),
        Asks("ana", "update", "{h}", {"ttl": 0}, id=ABSENT),
        Silent("ana"),
        Silent("bo", after="ana"),
        cast="ana bo",
    ),
)

CASES: Final = (*TARGETS, *SPEAKERS, *BODY_MEMBERS)
