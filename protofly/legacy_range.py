"""Ranges of legacy addresses: what an interworking stub may speak for, and how two ranges compare.

A range is written as one of

    sip://legacy.example   every address of the scheme at that host: `sip://bo@legacy.example`, `sip:bo@legacy.example`,
                           `sip://legacy.example/bo`, and what is below them
    tel:+4930*             every address of the scheme without an authority that begins so; never one with an `@`

Hosts are compared as canonical text, whole: `legacy.example` is neither `x.legacy.example` nor `legacy.example:5060`.
Schemes to which the node itself gives a meaning are nobody's range.

Source: message specification, sections 2.1 and 16.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

import msgspec

from protofly.address import Address, parse
from protofly.errors import Code, PeerError

_FORM: Final = r"^[a-z][a-z0-9+.-]{0,63}:(?://[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|(?!//)[A-Za-z0-9+.#_-]{0,64}\*)\Z"
RangeText = Annotated[str, msgspec.Meta(max_length=320, pattern=_FORM)]
"""A range as manifests and settings write it."""

_OURS: Final = frozenset(
    {"global", "mn", "runtime", "hyperty-runtime", "hyperty", "user", "user-guid", "acct", "hyperty-catalogue", "thing"}
)
_MATCHES: Final = re.compile(_FORM)


class LegacyRange(NamedTuple):
    """One range: of a scheme either all that is at `host`, or all whose rest begins with `prefix`."""

    scheme: str
    host: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}" if self.host else f"{self.scheme}:{self.prefix}*"

    def covers(self, address: Address) -> bool:
        """True if an address is of this range."""
        if address.scheme != self.scheme:
            return False
        host, rest = _place_of(address)
        return host == self.host if self.host else bool(rest) and rest.startswith(self.prefix)

    def is_within(self, outer: LegacyRange) -> bool:
        """True if `outer` covers every address of this range."""
        if (self.scheme, bool(self.host)) != (outer.scheme, bool(outer.host)):
            return False
        return self.host == outer.host and self.prefix.startswith(outer.prefix)

    def overlaps(self, other: LegacyRange) -> bool:
        """True if some address is in both ranges."""
        return self.is_within(other) or other.is_within(self)


def parse_range(text: str) -> LegacyRange:
    """Read one range.

    Raises:
        PeerError: BAD_BODY for what is none, or is of a scheme that is no legacy's.
    """
    if not _MATCHES.match(text):
        raise PeerError(Code.BAD_BODY, f"not a range of addresses: {text[:64]!r}")
    scheme, _, rest = text.partition(":")
    if scheme in _OURS or scheme == "domain" or scheme.startswith("domain-"):
        raise PeerError(Code.BAD_BODY, f"addresses {scheme}: are no legacy's")
    host = rest.removeprefix("//") if rest.startswith("//") else ""
    return LegacyRange(scheme, host, "" if host else rest.removesuffix("*"))


def natural_range(stub_domain: str) -> LegacyRange:
    """The range that goes with a stub domain `<scheme>.<host>`. Source: message specification, section 16, rule 1.

    Raises:
        PeerError: BAD_BODY when its first label cannot be the scheme of a legacy.
    """
    scheme, _, host = stub_domain.partition(".")
    return parse_range(f"{scheme}://{host}")


def host_of(text: str) -> str:
    """The host of an address of any of the forms above, "" when it has none.

    Raises:
        PeerError: BAD_HEADER for an address that nobody could mean.
    """
    return _place_of(parse(text))[0]


def covers_any(ranges: Iterable[LegacyRange], text: str) -> bool:
    """True if an address is of one of `ranges`.

    Raises:
        PeerError: BAD_HEADER for an address that nobody could mean.
    """
    address = parse(text)
    return any(one.covers(address) for one in ranges)


def _place_of(address: Address) -> tuple[str, str]:
    """Host, or else rest, of an address; two empty texts when it is nobody's: several `@` leave open whose it is."""
    if address.authority:
        user, _, host = address.authority.rpartition("@")
        return ("", "") if "@" in user else (host, "")
    rest = address.path.removeprefix("/")  # a canonical key has a slash where the address has none
    user, at, host = rest.partition("/")[0].rpartition("@")
    if not at:
        return "", rest
    return ("", "") if "@" in user or not user else (host, "")
