"""The attributes that a policy may ask for: how each is read from the facts, and what kind of value it is.

An attribute that is missing, of a wrong type or unreadable is None, never a guess and never the value of another
message. Claims that the sender wrote into the body (`identity`, `auth`, `assertedIdentity`) are not read at all:
identity comes from what this node verified.
Source: message specification, section 15.3; data formats, section 6.1; trust and hosts, section 5.3, rules 2
and 9.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from policy.core.model import Facts
from policy.core.session_class import class_in, roles_in
from protofly.address import canonical_key, parse
from protofly.errors import PeerError
from protofly.remembered import remembered

Value = str | int | bool | tuple[str, ...] | frozenset[str] | None

DOMAIN_CHARS: Final = 253
MESSAGE_TYPES: Final = frozenset(
    {
        "create",
        "read",
        "update",
        "delete",
        "subscribe",
        "unsubscribe",
        "execute",
        "response",
        "forward",
        "open",
        "re-open",
        "reopen",
        "re_open",
        "close",
        "ping",
        "pong",
        "event",
    }
)
"""The types for which programs are made; a closed set, so that strange types cannot make many."""

TYPE_ALIASES: Final = {"reopen": "re-open", "re_open": "re-open"}
"""Source: message specification, section 1.2, rule 1."""

_CACHED_ADDRESSES: Final = 8_192
_DAY_SECONDS: Final = 86_400
_EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
_THURSDAY: Final = 4  # 1 January 1970, Sunday being 0
_YEAR_10000_SECONDS: Final = 253_402_300_800


class AttributeKind(Enum):
    """The kind of an attribute's value, and therefore which operators and parameters it takes."""

    DOMAIN = "a domain"
    ADDRESS = "an address"
    TEXT = "a text"
    WORD = "a word in lower case"
    TEXTS = "several texts"
    NUMBER = "a whole number"
    FLAG = "true or false"
    TIME = "a time of day"
    DATE = "a date"
    WEEKDAY = "a weekday"


class Attribute(NamedTuple):
    """One attribute. `is_fixed`: the same for every message with the same hook and the same three domains.

    `varies`: it may differ between two messages of one flow; see `CompiledPolicies.settles`.
    """

    name: str
    kind: AttributeKind
    read: Callable[[Facts], Value]
    is_fixed: bool = False
    varies: bool = False


class _ClassOnly(msgspec.Struct, rename={"class_": "class"}):
    class_: str | None = None


_decode_text = msgspec.json.Decoder(str).decode
_decode_class = msgspec.json.Decoder(_ClassOnly).decode


def _domain(name: str) -> str | None:
    return name if name and len(name) <= DOMAIN_CHARS else None


def _link_domain(facts: Facts) -> str | None:
    if facts.link_domain:
        return _domain(facts.link_domain)
    return "" if facts.hook == "local" else None  # on the own bus it is known that there is no link


def _link_class(facts: Facts) -> str | None:
    if facts.link_domain:
        return facts.link_class
    return "" if facts.hook == "local" else None


@remembered(_CACHED_ADDRESSES)
def _address(text: str) -> str | None:
    try:
        return canonical_key(text)
    except PeerError:
        return None


@remembered(_CACHED_ADDRESSES)
def _scheme(text: str) -> str | None:
    try:
        return parse(text).scheme or None
    except PeerError:
        return None


def _json_text(raw: bytes) -> str | None:
    try:
        return _decode_text(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _message_id(facts: Facts) -> str | None:
    raw = facts.message.id
    if raw is None:
        return None
    return _json_text(raw) if raw.startswith(b'"') else raw.decode("ascii", "replace")


def _identity_domain(facts: Facts) -> str | None:
    user = _identity_user(facts)
    if user is None:
        return None
    _, at, domain = user.rpartition("@")
    return _domain(domain.lower().removesuffix(".")) if at else None


def _identity_user(facts: Facts) -> str | None:
    return facts.identity_user or None if facts.identity_verified else None


def _identity_issuer(facts: Facts) -> str | None:
    return facts.identity_issuer or None if facts.identity_verified else None


def _identity_groups(facts: Facts) -> frozenset[str] | None:
    return facts.identity_groups if facts.identity_verified else None


def _recipient_status(facts: Facts) -> str | None:
    return None if facts.recipients is None else facts.recipients.status(facts.message.to)


def _recipient_presence(facts: Facts) -> str | None:
    return None if facts.recipients is None else facts.recipients.presence(facts.message.to)


def _message_types(facts: Facts) -> tuple[str, ...]:
    """Message type and, if there is one, the class that the addresses give it; documents mix the two."""
    message = facts.message
    by_address = _address_class(_address(message.from_) or "", _address(message.to) or "")
    return (message.type, by_address) if by_address else (message.type,)


def _address_class(from_: str, to: str) -> str:
    """Class of a message by its addresses; the later ones win. Source: data formats, section 6.1."""
    found = ""
    if from_.startswith("domain://registry.") or to.startswith("domain://registry."):
        found = "registration"
    for suffix, name in _CLASS_SUFFIXES:
        if from_.endswith(suffix) or to.endswith(suffix):
            found = name
    return found


_CLASS_SUFFIXES: Final = (
    ("/address-allocation", "addressAllocation"),
    ("/hyperty-address-allocation", "addressAllocation"),
    ("/object-address-allocation", "addressAllocation"),
    ("/discovery", "discovery"),
    ("/graph-connector", "globalRegistry"),
    ("/idm", "identityManagement"),
    ("/sm", "dataSync"),
    ("/ua", "p2pConnection"),
)


def _delivery_class(facts: Facts) -> str | None:
    """`event`, `action` or `rpc`: as the body says, else by type. Source: message specification, section 19."""
    message = facts.message
    if message.body:
        try:
            named = _decode_class(message.body).class_
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if named is not None:
            return named
    if message.type in ("update", "event"):
        return "event"
    return None if message.type == "response" else "rpc"


def _seconds(facts: Facts) -> int | None:
    return int(facts.now) if 0 <= facts.now < _YEAR_10000_SECONDS else None


def _time_of_day(facts: Facts) -> int | None:
    seconds = _seconds(facts)
    return None if seconds is None else seconds % _DAY_SECONDS


def _date_ordinal(facts: Facts) -> int | None:
    seconds = _seconds(facts)
    return None if seconds is None else seconds // _DAY_SECONDS + _EPOCH_ORDINAL


def _weekday(facts: Facts) -> int | None:
    seconds = _seconds(facts)
    return None if seconds is None else (seconds // _DAY_SECONDS + _THURSDAY) % 7


ATTRIBUTES: Final[dict[str, Attribute]] = {
    attribute.name: attribute
    for attribute in (
        Attribute("hook", AttributeKind.WORD, lambda facts: facts.hook, is_fixed=True),
        Attribute("srcSPDomain", AttributeKind.DOMAIN, lambda facts: _domain(facts.from_domain), is_fixed=True),
        Attribute("dstSPDomain", AttributeKind.DOMAIN, lambda facts: _domain(facts.to_domain), is_fixed=True),
        Attribute("linkDomain", AttributeKind.DOMAIN, _link_domain, is_fixed=True),
        Attribute("linkClass", AttributeKind.WORD, _link_class),
        Attribute("srcScheme", AttributeKind.WORD, lambda facts: _scheme(facts.message.from_)),
        Attribute("dstScheme", AttributeKind.WORD, lambda facts: _scheme(facts.message.to)),
        Attribute("dstStatus", AttributeKind.WORD, _recipient_status, varies=True),
        Attribute("dstPresence", AttributeKind.WORD, _recipient_presence, varies=True),
        Attribute("msgFrom", AttributeKind.ADDRESS, lambda facts: _address(facts.message.from_)),
        Attribute("msgTo", AttributeKind.ADDRESS, lambda facts: _address(facts.message.to)),
        Attribute(
            "actionType", AttributeKind.WORD, lambda facts: TYPE_ALIASES.get(facts.message.type, facts.message.type)
        ),
        Attribute("msgType", AttributeKind.TEXTS, _message_types),
        Attribute("msgId", AttributeKind.TEXT, _message_id, varies=True),
        Attribute("class", AttributeKind.TEXT, _delivery_class),
        Attribute("resource", AttributeKind.TEXT, lambda facts: _json_text(facts.message.resource)),
        Attribute("size", AttributeKind.NUMBER, lambda facts: facts.size_bytes, varies=True),
        Attribute("viaLength", AttributeKind.NUMBER, lambda facts: facts.via_length),
        Attribute("auth", AttributeKind.FLAG, lambda facts: facts.auth is True),
        Attribute("identity.verified", AttributeKind.FLAG, lambda facts: facts.identity_verified),
        Attribute("identity.user", AttributeKind.TEXT, _identity_user),
        Attribute("identity.issuer", AttributeKind.TEXT, _identity_issuer),
        Attribute("identity.groups", AttributeKind.TEXTS, _identity_groups),
        Attribute("srcUsername", AttributeKind.TEXT, _identity_user),
        Attribute("srcIDP", AttributeKind.TEXT, _identity_issuer),
        Attribute("srcIDPDomain", AttributeKind.DOMAIN, _identity_domain),
        Attribute("session.roles", AttributeKind.TEXTS, lambda facts: roles_in(facts.session_roles)),
        Attribute("session.class", AttributeKind.WORD, lambda facts: class_in(facts.session_roles)),
        Attribute("time", AttributeKind.TIME, _time_of_day, varies=True),
        Attribute("date", AttributeKind.DATE, _date_ordinal, varies=True),
        Attribute("weekday", AttributeKind.WEEKDAY, _weekday, varies=True),
    )
}
"""Every attribute by the name that policies and decision records use."""

ALIASES: Final = {"srcDomain": "srcSPDomain", "dstDomain": "dstSPDomain"}
