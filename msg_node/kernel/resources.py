"""Reading of the many ways in which bodies name resources, and what each name means for ownership and listening.

Everything here is about text: which addresses a request is about, which of them are base addresses, which listening
addresses stand for an object and its children. Source: message specification, sections 1.3, 7.3, 8.1 and 8.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from protofly.address import P2P_STUBS, canonical_key, parse
from protofly.errors import Code, PeerError
from protofly.limits import ADDRESS_LEVELS, HEADER_CHARS, NESTING_LEVELS, RESOURCES_ENTRIES
from protofly.remembered import remembered

Members = Mapping[str, object]
"""Decoded members of a body, as the codec gives them."""

SESSION_KEY = "mn:/session"
"""Where runtimes open, renew and close their session."""
TAPS = "*"
TAPS_KEY = "* "
"""Stands for every message, for those who look on. No address has this key, so that nothing can be sent to it."""

KEY_VALUE = "key-value"
EVENT_SUFFIXES = ("/changes", "/status", "/registration")
_SUFFIXES = (*EVENT_SUFFIXES, "/subscription", "/inbox", "/children")
_END = object()
_BASES_REMEMBERED = 16_384
_UNCLAIMABLE = frozenset(
    {
        "",
        "acct",
        "domain",
        "domain-broker",
        "domain-csp",
        "domain-idp",
        "global",
        "http",
        "https",
        "hyperty-catalogue",
        "hyperty-runtime",
        "mn",
        "runtime",
        "user",
        "user-guid",
        "ws",
        "wss",
    }
)


class Shape(Enum):
    """Kinds of addresses, by their text alone."""

    EVENTS = "events"  # changes, status, registration, children: for every observer
    CONTROL = "control"  # subscription, inbox: for the owner
    BASE = "base"  # the entity itself, or a sub-resource of unknown name
    BELOW = "below"  # `<base>/*`


def shape_of(key: str) -> Shape:
    """Shape of a canonical key."""
    if key.endswith("/*") and "/children/" not in key:
        return Shape.BELOW
    if key.endswith(EVENT_SUFFIXES) or "/children/" in key:
        return Shape.EVENTS
    return Shape.CONTROL if key.endswith(_SUFFIXES) else Shape.BASE


def is_reserved(scheme: str) -> bool:
    """True if addresses of a scheme are never given out or claimed. Source: message specification, section 7.1."""
    return scheme in _UNCLAIMABLE


def object_of_events(key: str) -> str:
    """The object whose changes or children a key is about: `O/changes`, `O/children/n` -> `O`; "" for all else."""
    if key.endswith("/changes"):
        return key.removesuffix("/changes")
    base, children, _ = key.partition("/children/")
    return base if children else ""


P2P_NAMES = P2P_STUBS


def is_p2p_stub(key: str) -> bool:
    """True if a key is the address of a P2P stub that names no runtime: `<scheme>://<domain>/p2phandler/<id>`.

    Source: message specification, section 17.
    """
    _, authority, path = parse(key)
    levels = path.split("/")
    return bool(authority) and len(levels) == 3 and levels[1] in P2P_NAMES


@remembered(_BASES_REMEMBERED)
def is_claimable(key: str) -> bool:
    """True if a runtime may make this base address itself: hyperty or object scheme, a path, no sub-resource suffix.

    Source: message specification, section 7.4.
    """
    scheme, _, path = parse(key)
    levels = path.strip("/").split("/")
    is_named = all(levels) and len(levels) <= ADDRESS_LEVELS
    return is_named and scheme not in _UNCLAIMABLE and shape_of(key) is Shape.BASE


def is_of_no_domain(key: str) -> bool:
    """True if an address names no authority, and so belongs to its user here: `comm:/room`, `hyperty:/h`.

    Source: message specification, section 2.2, rule 3.
    """
    scheme, authority, path = parse(key)
    return not authority and path.startswith("/") and not is_reserved(scheme)


def is_child_form(key: str) -> bool:
    """True if a base address may be a child in the oldest spelling, `O/n`: an object scheme and two levels or more."""
    return is_claimable(key) and parse(key).scheme != "hyperty" and "/" in parse(key).path[1:]


def may_observe_abroad(key: str) -> bool:
    """True if a runtime may listen to an address of another domain here: changes and children of objects.

    Anything else would bring it what is meant for others. Source: message specification, sections 8.5 and 8.6.
    """
    return shape_of(key) is Shape.EVENTS or is_child_form(key)


def text_of(members: Members, *names: str) -> str:
    """The first of the named members that is a non-empty text; "" when there is none.

    Raises:
        PeerError: BAD_BODY for a text longer than an address may be.
    """
    for name in names:
        value = members.get(name)
        if isinstance(value, str) and value:
            if len(value) > HEADER_CHARS:
                raise PeerError(Code.BAD_BODY, f"{name} is longer than {HEADER_CHARS} characters")
            return value
    return ""


def object_of(members: Members, name: str) -> Members:
    """A member that is an object; {} when it is absent or something else."""
    value = members.get(name)
    return value if isinstance(value, dict) else {}


def object_or_refuse(members: Members, name: str) -> Members:
    """A member that is an object; {} when it is absent or null.

    Raises:
        PeerError: BAD_BODY for something else.
    """
    value = members.get(name)
    if value is not None and not isinstance(value, dict):
        raise PeerError(Code.BAD_BODY, f"{name} is to be an object")
    return object_of(members, name)


def check_criteria(members: Members) -> None:
    """Refuse a filter that would not be understood: an answer without it would be to another question.

    Understood are names with their values (`key-value`), which is what no `criteriaSyntax` means as well.

    Raises:
        PeerError: CRITERIA_SYNTAX for another syntax, BAD_BODY for criteria that are no object.

    Source: message specification, section 1.3.
    """
    syntax = members.get("criteriaSyntax")
    if syntax is not None and not isinstance(syntax, str):
        raise PeerError(Code.BAD_BODY, "criteriaSyntax is to be a text")
    if syntax and syntax.lower() != KEY_VALUE:
        raise PeerError(Code.CRITERIA_SYNTAX, f"criteria are understood as {KEY_VALUE} only")
    criteria = object_or_refuse(members, "criteria")
    inner = (name for value in criteria.values() if isinstance(value, dict) for name in value)
    if any(name.startswith("$") for name in (*criteria, *inner)):
        raise PeerError(Code.CRITERIA_SYNTAX, f"criteria hold an operator; they are understood as {KEY_VALUE} only")


def check_texts(criteria: Members, *names: str) -> None:
    """Refuse a criterion that is to be a text and is none: without it the answer would hold more than was asked for.

    Raises:
        PeerError: BAD_BODY.
    """
    for name in names:
        if criteria.get(name) is not None and not isinstance(criteria[name], str):
            raise PeerError(Code.BAD_BODY, f"criteria.{name} is to be a text")


def texts_of(members: Members, *names: str) -> list[str]:
    """All texts in the named members, flattened, in order, each once.

    Raises:
        PeerError: BAD_BODY, TOO_LARGE.
    """
    found: dict[str, None] = {}
    for name in [name for name in names if members.get(name) is not None]:
        for text in _flatten(members[name], name):
            found[text] = None
            if len(found) > RESOURCES_ENTRIES:
                raise PeerError(Code.TOO_LARGE, f"more than {RESOURCES_ENTRIES} resources")
    return list(found)


def _flatten(value: object, name: str) -> Iterator[str]:
    """Texts of a value: a text, nested lists, and only in lists the forms `{"name": "x"}` and `{"x": ""}`.

    The stack is ours: no recursion.
    """
    stack: list[Iterator[object]] = [iter([value])]
    while stack:
        one = next(stack[-1], _END)
        if one is _END:
            stack.pop()
        elif isinstance(one, list) and len(stack) <= NESTING_LEVELS:
            stack.append(iter(one))
        elif isinstance(one, dict) and len(one) == 1 and len(stack) > 1:
            member, inner = next(iter(one.items()))
            yield _checked(inner if member == "name" else member, name)
        elif one is not None:
            yield _checked(one, name)


def _checked(value: object, name: str) -> str:
    if not isinstance(value, str) or not value or len(value) > HEADER_CHARS:
        raise PeerError(Code.BAD_BODY, f"{name} holds something that is no resource")
    return value


def key_or_refuse(text: str) -> str:
    """Canonical key of an address inside a body, or of `*`.

    Raises:
        PeerError: BAD_BODY.
    """
    if text == TAPS:
        return TAPS_KEY
    try:
        return canonical_key(text)
    except PeerError as exc:
        raise PeerError(Code.BAD_BODY, exc.detail) from exc


def child_paths(base: str, names: Iterable[str]) -> list[str]:
    """The spellings under which a child of an object is addressed: `O/children/n` and `O/n`.

    A name with a colon is an address itself.
    """
    base = base.rstrip("/")
    paths: list[str] = []
    for name in names:
        paths += [name] if ":" in name.partition("/")[0] else [f"{base}/children/{name}", f"{base}/{name}"]
    return paths


def expand(resource: str, children: list[str], *, is_owner: bool) -> list[str]:
    """Listening addresses for the form `resource` + `childrenResources`.

    Source: message specification, section 8.3.
    """
    is_sub_resource = shape_of(key_or_refuse(resource)) is not Shape.BASE
    base = _object_of(resource) if is_sub_resource else resource.rstrip("/")
    own = [resource] if is_sub_resource else [f"{base}/changes", *([resource] if is_owner else [])]
    if not children:
        return own
    return list(dict.fromkeys([*own, *child_paths(base, children), f"{base}/children/"]))


def children_base(resource: str) -> str:
    """Key of the base of all children, for the form `resource` + `childrenResources`; "" without a resource."""
    if not resource:
        return ""
    is_sub_resource = shape_of(key_or_refuse(resource)) is not Shape.BASE
    return key_or_refuse(f"{_object_of(resource) if is_sub_resource else resource.rstrip('/')}/children/")


def _object_of(resource: str) -> str:
    """The object in front of a sub-resource; its children are its own, not the sub-resource's."""
    base = resource.partition("/children")[0].rstrip("/")
    return next((base.removesuffix(suffix) for suffix in _SUFFIXES if base.endswith(suffix)), base)
