"""Names and texts with wildcards: domains by whole labels, everything else by anchored globs.

No regular expression is ever made from what an operator or a peer wrote; each match is linear in the text.
Source: trust and hosts, section 5.3, rules 2 and 3, and section 7, attack 53.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from protofly.address import valid_domain
from protofly.errors import PeerError, SettingsError


class DomainPattern(str):
    """A checked pattern: `b.example`, `*.b.example` (true subdomains only) or `*` (any domain)."""

    __slots__ = ()

    @property
    def is_exact(self) -> bool:
        """True if the pattern names one domain only."""
        return not self.startswith("*")

    @property
    def base(self) -> str:
        """The domain named, or the one whose subdomains are meant; "" for `*`."""
        return self[2:] if self.startswith("*.") else "" if self == "*" else str(self)


def parse_domain_pattern(text: str) -> DomainPattern:
    """Check a pattern that an operator wrote; capitals and a final dot are accepted.

    Raises:
        SettingsError: It is no domain, or has a wildcard anywhere but as its whole first label.
    """
    name = text.strip().lower().removesuffix(".")
    if name == "*":
        return DomainPattern(name)
    base = name.removeprefix("*.")
    if "*" in base:
        raise SettingsError(f'"{text[:80]}": a wildcard stands for whole labels, only in front: "*.b.example"')
    try:
        valid_domain(base if base == name else f"x.{base}")  # a wildcard may stand right under a top-level domain
    except PeerError as exc:
        raise SettingsError(f'"{text[:80]}" is not a domain name') from exc
    return DomainPattern(name)


def parents(domain: str) -> Iterator[str]:
    """Every domain above this one, nearest first: `x.b.example` gives `b.example`, `example`."""
    start = domain.find(".") + 1
    while start:
        yield domain[start:]
        start = domain.find(".", start) + 1


class DomainMatcher:
    """A set of patterns, asked in time that does not depend on how many there are."""

    __slots__ = ("_any", "_bases", "_exact")

    def __init__(self, patterns: Iterable[DomainPattern]) -> None:
        patterns = tuple(patterns)
        self._any = any(pattern == "*" for pattern in patterns)
        self._exact = frozenset(pattern.base for pattern in patterns if pattern.is_exact)
        self._bases = frozenset(pattern.base for pattern in patterns if not pattern.is_exact)

    def __call__(self, domain: str) -> bool:
        """True if one of the patterns fits a domain in canonical form."""
        if domain in self._exact or self._any:
            return True
        return bool(self._bases) and any(parent in self._bases for parent in parents(domain))


def glob(pattern: str) -> Callable[[str], bool]:
    """A test for texts that begin, continue and end as the pattern says; `*` is any text, also none."""
    first, *rest = pattern.split("*")
    if not rest:
        return lambda text: text == pattern
    *pieces, last = rest
    if not pieces:
        least_chars = len(first) + len(last)
        return lambda text: len(text) >= least_chars and text.startswith(first) and text.endswith(last)

    def fits(text: str) -> bool:
        if not text.startswith(first) or not text.endswith(last):
            return False
        at, end = len(first), len(text) - len(last)
        for piece in pieces:
            at = text.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    return fits
