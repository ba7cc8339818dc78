"""Cases of the profile `rethink`: what existing runtimes do over and over at the nodes that they were written for.

They register, leave, come back, are found, keep alive and open a second time, without a credential. A node that serves
them behaves here against the strict profile, as its operator wants it to. Source: foreign nodes, section 4.
"""

from __future__ import annotations

from typing import Final

from interop.conformance.jsontext import Json
from interop.conformance.matching import Anything, Maybe, Open, Text
from interop.conformance.model import (
    ALL,
    SESSION_MESSAGES,
    Answered,
    Arrives,
    Asks,
    Case,
    CaseStep,
    Closed,
    Dialect,
    Leaves,
    Loses,
    Need,
    Notices,
    Opens,
    Profile,
    Replies,
    Scope,
    Steps,
    case,
    granted,
    listens,
    owns,
    refused,
    reports,
    unreachable,
)

REGISTRY: Final = "domain://registry.{d}"
OBJECT: Final = "comm://{d}/room-{n}"
USER: Final = "user://{d}/ana-{n}"
TAKE_OVER: Final = (
    "a second open of a live runtime takes its session over, with all that it holds (foreign nodes, section 4)"
)
BY_ADDRESS: Final = "a lost runtime comes back by its address, with all that it holds (foreign nodes, section 4)"
KEPT: Final = "registry entries stay live until they expire, although the session was closed (foreign nodes, section 4)"
_OPENED: Final[Json] = {
    "code": 200,
    "description": "OK",
    "desc": Maybe("OK"),
    "runtimeToken": Maybe(Text(r"\S{16,}", "token")),
    "session": Maybe(Anything()),
}


def _existing(slug: str, section: str, says: str, *steps: Steps, dialects: frozenset[Dialect] = ALL) -> Case:
    scope = Scope(dialects=dialects, needs=frozenset({Need.ANONYMOUS}), profiles=frozenset({Profile.RETHINK}))
    return case(f"rethink-{slug}", section, says, *steps, cast="ana bo", scope=scope)


def _holds() -> tuple[CaseStep, ...]:
    """Ana owns `{h}`, and observes an object of bo."""
    return (*reports("bo", OBJECT), *owns("ana", "h"), *listens("ana", f"{OBJECT}/changes"))


def _reached(who: str) -> tuple[CaseStep, ...]:
    """Requests to `{h}` and changes of bo's object arrive there, and its reply at bo."""
    return (
        Asks("bo", "read", "{h}"),
        Arrives(who, "bo"),
        Replies(who, {"code": 200}),
        Arrives("bo", who),
        Asks("bo", "update", f"{OBJECT}/changes", {"value": 1}),
        Arrives(who, "bo"),
    )


def _second_open(who: str, before: str) -> tuple[CaseStep, ...]:
    return (Opens(who, runtime="{ana}"), Closed(before, (4001,), or_notice=True))


def _registers(type_: str = "create") -> tuple[CaseStep, ...]:
    """Ana registers `{h}` for her user."""
    value = {
        "url": "{h}",
        "user": USER,
        "descriptor": "hyperty-catalogue://catalogue.{d}/.well-known/hyperty/Chat",
        "runtime": "{ana}",
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        "status": "live",
        "expires": 3600,
    }
    return Asks("ana", type_, REGISTRY, {"value": value}, from_="{ana}/registry"), granted("ana")


def _is_found() -> tuple[CaseStep, ...]:
    """Bo finds the entry as live, by its address and by its user."""
    entry = Open({"hypertyID": "{h}", "userID": USER, "status": "live"})
    return (
        Asks("bo", "read", REGISTRY, {"resource": "{h}"}),
        granted("bo", entry),
        Asks("bo", "read", REGISTRY, {"resource": f"/hyperty/user/{USER}"}),
        granted("bo", {"{h}": entry}),
    )


def _keeps_alive(*bodies: dict[str, Json]) -> tuple[CaseStep, ...]:
    requests = [Asks("ana", "update", REGISTRY, {"resource": "{h}", **body}) for body in bodies]
    return tuple(step for request in requests for step in (request, granted("ana")))


def _unregisters() -> tuple[CaseStep, ...]:
    return Asks("ana", "delete", REGISTRY, {"value": {"url": "{h}", "user": USER}}), granted("ana")


CASES: Final[tuple[Case, ...]] = (
    _existing("second-open", "5.1", TAKE_OVER, _holds(), _second_open("again", "ana"), _reached("again")),
    _existing(
        "open-over-and-over",
        "5.1",
        TAKE_OVER,
        _holds(),
        _second_open("two", "ana"),
        _second_open("three", "two"),
        _reached("three"),
        _second_open("four", "three"),
        _reached("four"),
    ),
    _existing(
        "open-again-on-one-connection",
        "5.1",
        "open may be repeated, and is answered 200 (reference nodes, sections 3.2 and 5)",
        _holds(),
        Asks("ana", "open", "mn:/session"),
        Answered("ana", _OPENED),
        _reached("ana"),
        dialects=SESSION_MESSAGES,
    ),
    _existing(
        "lost-and-back",
        "5.4",
        BY_ADDRESS,
        _holds(),
        Loses("ana"),
        Notices("bo", "ana"),
        Asks("bo", "read", "{h}"),
        unreachable("bo", 503, "not-connected"),
        Opens("ana"),
        _reached("ana"),
        Loses("ana"),
        Opens("ana"),
        _reached("ana"),
    ),
    _existing("registered-and-gone", "5.4", KEPT, owns("ana", "h"), _registers(), Leaves("ana"), _is_found()),
    _existing(
        "registered-and-back",
        "10.2",
        f"{KEPT}; it keeps them alive when it is back",
        owns("ana", "h"),
        _registers(),
        Leaves("ana"),
        Opens("ana"),
        _is_found(),
        _keeps_alive({}, {"value": {}}, {"value": {"status": "live"}, "method": "refresh"}),
        _registers(),
        _is_found(),
        Leaves("ana"),
        _is_found(),
        Opens("ana"),
        _unregisters(),
        Asks("bo", "read", REGISTRY, {"resource": "{h}"}),
        refused("bo", 404, "not-registered"),
    ),
    _existing(
        "registered-and-not-yours",
        "10.2",
        "entries of a runtime that has left are written by that runtime only",
        owns("ana", "h"),
        _registers(),
        Leaves("ana"),
        Asks("bo", "update", REGISTRY, {"resource": "{h}", "value": "disconnected", "attribute": "status"}),
        refused("bo", 403, "not-owner"),
        _is_found(),
    ),
    _existing(
        "back-with-its-address",
        "7.4",
        "a runtime that comes back claims the addresses that it had",
        owns("ana", "h"),
        Leaves("ana"),
        Opens("ana"),
        Asks("ana", "subscribe", "{sm}", {"resources": ["{h}"], "source": "{ana}/address-allocation"}),
        granted("ana"),
        Asks("bo", "read", "{h}"),
        Arrives("ana", "bo"),
    ),
    _existing(
        "release-by-another",
        "7.3",
        "allocation.strict_release = false restores that any runtime releases what others were given",
        owns("ana", "h"),
        Asks("bo", "delete", "{allocation}", {"childrenResources": ["{h}"]}, from_="{bo}/address-allocation"),
        granted("bo"),
        Asks("bo", "read", "{h}"),
        unreachable("bo", 404, "no-route"),
    ),
    _existing(
        "subscribe-to-nothing",
        "8.1",
        "no entry found: for dialect A sessions with compat.sm_error = 500 the code is 500",
        Asks("ana", "subscribe", "{sm}", {}, from_="{ana}/sm"),
        refused("ana", 500, "bad-body"),
        dialects=SESSION_MESSAGES,
    ),
    _existing(
        "echo",
        "20.5",
        "compat.echo = true restores the behaviour of the reference nodes: the sender is among the subscribers",
        reports("ana", OBJECT),
        listens("ana", f"{OBJECT}/changes"),
        listens("bo", f"{OBJECT}/changes"),
        Asks("ana", "update", f"{OBJECT}/changes", {"value": 1}),
        Arrives("bo", "ana"),
        Arrives("ana", "ana"),
        dialects=SESSION_MESSAGES,
    ),
)
