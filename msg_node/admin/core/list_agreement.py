"""When several block lists agree: a domain counts while so many of them name it.

One list alone may be wrong, or in wrong hands. Source: trust and hosts, section 6.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple


class ListWord(NamedTuple):
    """Content of one block list: the domains that it names, and its expiry in seconds since the Unix epoch."""

    domains: Collection[str]
    expires: float


def agreed_until(domain: str, lists: Iterable[ListWord], needed: int) -> float:
    """Until when `needed` lists name a domain, in seconds since the Unix epoch; 0.0 when fewer do."""
    ends = sorted((one.expires for one in lists if domain in one.domains), reverse=True)
    return ends[needed - 1] if len(ends) >= needed else 0.0
