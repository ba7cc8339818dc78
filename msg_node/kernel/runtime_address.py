"""Runtime addresses: which part of a key is one, and which of them a credential is for.

A credential is for one address in full, or with a final `*` for all that begin like it.
A pattern has to say its whole authority: `runtime://a.example/*` is a pattern, `runtime://a.example*` covers nothing,
since it would let `runtime://a.example.evil` in. `*` alone covers everything. Source: message specification, sections
2.2 and 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from protofly.address import canonical_key, parse
from protofly.errors import PeerError
from protofly.remembered import remembered

PART_MARKS: Final = "/#?"
PART_MARK: Final = re.compile(f"[{PART_MARKS}]")
"""What separates an address from its parts, which belong to the same owner. Source: RFC 3986, sections 3.3 to 3.5."""

_OWNERS = frozenset({"subscription", "status", "inbox"})
_AGENTS_REMEMBERED: Final = 16_384


def covers(pattern: str, runtime_key: str) -> bool:
    """True if a pattern is for the runtime with that canonical key. False for what is no pattern."""
    if pattern == "*":
        return True
    if pattern.endswith("*"):
        prefix = _prefix_key(pattern[:-1])
        return prefix != "" and runtime_key.startswith(prefix)
    return names_in_full(pattern, runtime_key)


def names_in_full(pattern: str, runtime_key: str) -> bool:
    """True if a pattern is that one address and no other."""
    if pattern.endswith("*"):
        return False
    try:
        return canonical_key(pattern) == runtime_key
    except PeerError:
        return False


def covers_any(patterns: Iterable[str], runtime_key: str) -> bool:
    """True if one of the patterns is for that runtime."""
    return any(covers(pattern, runtime_key) for pattern in patterns)


def is_pattern(text: str) -> bool:
    """True if a text says which runtimes it means: `*`, a runtime address, or the beginning of some and `*`."""
    if text == "*":
        return True
    if "*" in text[:-1]:
        return False
    if text.endswith("*"):
        return _prefix_key(text[:-1]) != ""
    try:
        key = canonical_key(text)
    except PeerError:
        return False
    return key != "" and runtime_part(key) == key


def _prefix_key(prefix: str) -> str:
    """Canonical form of the beginning of addresses: `hyperty-runtime://A.example/x` -> `runtime://a.example/x`.

    "" when it does not say its whole authority or is no runtime's.
    """
    scheme, _, rest = prefix.partition("://")
    authority, slash, path = rest.partition("/")
    if not slash:
        return ""
    try:
        key = canonical_key(f"{scheme}://{authority}/x").removesuffix("x")
    except PeerError:
        return ""
    return key + path if key.startswith("runtime://") else ""


def runtime_part(key: str) -> str:
    """The runtime address in front of a canonical key: `runtime://a.example/rt/sm` -> `runtime://a.example/rt`.

    `rt#1` and `rt?x` are parts of `rt` as well. "" for other schemes.
    """
    if not key.startswith("runtime:/"):
        return ""
    start = key.find("/", 10) if key.startswith("//", 8) else 8  # runtime://authority/id, or runtime:/id
    if start == -1:
        return ""
    end = PART_MARK.search(key, start + 1)
    return key if end is None else key[: end.start()]


@remembered(_AGENTS_REMEMBERED)
def agent_of(key: str) -> str:
    """The address whose owner answers for a canonical key: `thing://<domain>/<agent>`, the runtime, or the key itself.

    Source: message specification, section 19.
    """
    if not key.startswith("thing://"):
        return runtime_part(key) or _without_suffix(key)
    _, authority, path = parse(key)
    agent = path[1:].partition("/")[0]
    return f"thing://{authority}/{agent}" if agent else key


def _without_suffix(key: str) -> str:
    """Return the base of an address that belongs to its owner as well. Source: message specification, section 20.2."""
    base, _, last = key.rpartition("/")
    return base if last in _OWNERS else key
