"""Addresses of the reTHINK world: canonical keys, domains, schemes.

Routing, allocation and subscription compare canonical keys; the text that a sender wrote is what goes on the wire.
The one normaliser here refuses what it does not understand; it never repairs. Source: message specification, section
2.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

import idna

from protofly.errors import Code, PeerError
from protofly.limits import HEADER_CHARS
from protofly.remembered import remembered

ELEMENT_LABELS = frozenset({"msg-node", "registry", "idm", "qos", "qos-broker", "catalogue", "rethink"})
"""First labels that name an element of a domain, not a domain. Source: message specification, section 2.3."""

P2P_STUBS = ("p2phandler", "p2prequester")
"""Path components in the addresses of stubs for direct connections. Source: message specification, section 17."""

_ELEMENT_SCHEMES = frozenset({"domain", "domain-idp", "domain-csp", "domain-broker", "hyperty-catalogue"})
_WITHOUT_DOMAIN = frozenset({"user-guid", "global", "mn"})
_NO_TARGETS = frozenset({"user", "acct", "hyperty-catalogue"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,63}")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\\"<>^`{|}]")
_PORT = re.compile(r":[1-9][0-9]{0,4}")
_HIGHEST_PORT = 65_535
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_CACHED_ADDRESSES = 65_536
_CACHED_PARTS = 4096  # what is made of an address is remembered for longer than its parts


class Address(NamedTuple):
    """One parsed address, in canonical form.

    `authority` keeps a port and a user part; it is empty for `mn:/session` and for local names, whose `scheme` is
    empty too.
    """

    scheme: str
    authority: str
    path: str


@remembered(_CACHED_PARTS)
def parse(text: str) -> Address:
    """Split an address and bring each part into canonical form.

    Raises:
        PeerError: BAD_HEADER for an address that nobody could mean.

    Source: message specification, section 2.2.
    """
    text = text.strip(" ")
    if not text or len(text) > HEADER_CHARS or _FORBIDDEN.search(text):
        raise PeerError(Code.BAD_HEADER, "not an address")
    scheme, colon, rest = text.partition(":")
    if not colon:
        return Address("", "", text)
    if not _SCHEME.fullmatch(scheme):
        raise PeerError(Code.BAD_HEADER, "not an address scheme")
    scheme = scheme.lower()
    if scheme == "hyperty-runtime":
        scheme = "runtime"
    authority, path = _split_rest(rest)
    if scheme != "user-guid":  # a GUID is base64url text: its case matters
        authority = _canonical_authority(authority)
    if not authority and path.startswith("//"):  # else its key would be that of an address with an authority
        raise PeerError(Code.BAD_HEADER, "not an address")
    while path.endswith("/") and not path.endswith("/children/"):
        path = path.removesuffix("/")
    if scheme == "global" and authority and path == "/.":
        path = ""
    return Address(scheme, authority, path)


def _split_rest(rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        return "", rest
    authority, slash, path = rest[2:].partition("/")
    return authority, slash + path


@remembered(_CACHED_PARTS)
def _canonical_authority(authority: str) -> str:
    """User part as written, host in canonical form, port as written.

    Raises:
        PeerError: BAD_HEADER for a host or a port that there cannot be.

    Source: RFC 3986, section 3.2; message specification, section 2.2, rule 4.
    """
    user, at, place = authority.rpartition("@")
    if place.startswith("["):
        host, bracket, port = place.partition("]")
        return f"{user}{at}[{_canonical_ipv6(host[1:], bracket)}]{_checked_port(port)}"
    host, colon, port = place.partition(":")
    if colon and not host:
        raise PeerError(Code.BAD_HEADER, "a port without a host")
    return user + at + _canonical_name(host) + _checked_port(colon + port)


def _canonical_ipv6(text: str, bracket: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError as exc:
        raise PeerError(Code.BAD_HEADER, "not an IPv6 address") from exc
    if not bracket or address.scope_id is not None:
        raise PeerError(Code.BAD_HEADER, "not an IPv6 address")
    return address.compressed


def _checked_port(text: str) -> str:
    """A port with its colon, or ""; none counts as a default, so one that is written is part of the key."""
    if text and not (_PORT.fullmatch(text) and int(text[1:]) <= _HIGHEST_PORT):
        raise PeerError(Code.BAD_HEADER, "not a port")
    return text


def _canonical_name(host: str) -> str:
    host = host.lower()
    if host.endswith("..") or "[" in host or "]" in host:
        raise PeerError(Code.BAD_HEADER, "not a domain name")
    if not host.isascii():
        try:
            host = idna.encode(host, uts46=False).decode("ascii")
        except (idna.IDNAError, UnicodeError) as exc:
            raise PeerError(Code.BAD_HEADER, "not a domain name") from exc
    return host.removesuffix(".")


@remembered(_CACHED_ADDRESSES)
def canonical_key(text: str) -> str:
    """The form of an address by which tables are keyed; a key is its own key.

    Raises:
        PeerError: BAD_HEADER for an address that nobody could mean.

    Source: message specification, section 2.2.
    """
    scheme, authority, path = parse(text)
    if not scheme:
        return path
    if not authority and path:
        key = f"{scheme}:{path if path.startswith('/') else '/' + path}"
    else:
        key = f"{scheme}://{authority}{path}"
    if len(key) > HEADER_CHARS:  # a slash that was left out, a name in other letters: nothing could read this key
        raise PeerError(Code.BAD_HEADER, "not an address")
    return text if text == key else key  # one string in the tables where two would say the same


def is_address(text: str) -> bool:
    """True for an address that somebody could mean; nobody can be answered at any other."""
    try:
        canonical_key(text)
    except PeerError:
        return False
    return True


@remembered(_CACHED_ADDRESSES)
def domain_of(text: str) -> str:
    """Domain to which an address belongs, or "" when it has none.

    A port stays part of the result, so that an authority with one never equals a domain.

    Raises:
        PeerError: BAD_HEADER for an address that nobody could mean.

    Source: message specification, section 2.3.
    """
    scheme, authority, _ = parse(text)
    if scheme in _WITHOUT_DOMAIN:
        return ""
    domain = authority.rpartition("@")[2]
    if scheme in _ELEMENT_SCHEMES:
        label, _, rest = domain.partition(".")
        if label in ELEMENT_LABELS and "." in rest:
            return rest
    return domain


@remembered(_CACHED_ADDRESSES)
def destination_of(text: str) -> str:
    """Domain to which a message for this address is carried: `domain_of`, or "" for what no message goes to.

    Users are people and catalogue entries are documents; neither is a place in another domain.

    Raises:
        PeerError: BAD_HEADER for an address that nobody could mean.

    Source: message specification, section 20.4.
    """
    return "" if parse(text).scheme in _NO_TARGETS else domain_of(text)


def scheme_of(text: str) -> str:
    """Scheme in lower case, `runtime` for both spellings of a runtime, "" for a local name.

    Raises:
        PeerError: BAD_HEADER for an address that nobody could mean.
    """
    return parse(text).scheme


def valid_domain(name: str) -> str:
    """Return `name` if it can be a domain that we federate with: A-labels, lower case, two labels or more.

    Nothing is repaired: what differs from its canonical form by as much as a dot or a capital letter is refused.

    Raises:
        PeerError: NAME_INVALID.

    Source: trust and hosts, section 2.4 (input check).
    """
    labels = name.split(".")
    if len(name) > 253 or len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
        raise PeerError(Code.NAME_INVALID, f"not a domain name: {name[:64]!r}")
    if not any(character.isalpha() for character in labels[-1]) or labels[-1].startswith("0x"):
        raise PeerError(Code.NAME_INVALID, f"not a domain name: {name[:64]!r}")
    try:
        if any(label.startswith("xn--") for label in labels) and idna.encode(idna.decode(name)).decode() != name:
            raise PeerError(Code.NAME_INVALID, f"not a domain name: {name[:64]!r}")
    except (idna.IDNAError, UnicodeError) as exc:
        raise PeerError(Code.NAME_INVALID, f"not a domain name: {name[:64]!r}") from exc
    return name


def is_below(key: str, base: str) -> bool:
    """True if canonical `key` is `base` or one of its sub-resources; `rt-ana` is not below `rt-a`."""
    return key == base or (key.startswith(base) and key[len(base)] == "/")
