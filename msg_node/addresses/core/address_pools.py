"""Addresses of schemes whose names others give (telephone numbers): lent to sessions, longest unused first.

Source: message specification, section 7.5.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import islice

from protofly.address import canonical_key
from protofly.errors import Code, PeerError


class AddressPools:
    """Lent and free addresses, by scheme.

    Args:
        pools: All addresses to lend, by scheme.

    Attributes:
        keys: Canonical keys of all of them, lent or not: nobody can claim one.
    """

    def __init__(self, pools: Mapping[str, Sequence[str]]) -> None:
        self._free: dict[str, dict[str, str]] = {}
        self._scheme_of: dict[str, str] = {}
        self.keys: Container[str] = self._scheme_of.keys()
        self.follow(pools, is_lent=lambda _: False)

    def follow(self, pools: Mapping[str, Sequence[str]], *, is_lent: Callable[[str], bool]) -> None:
        """Lend these addresses from now on; one that is lent and in no pool any more is not lent again.

        Free ones that were here keep their order; new ones come behind them. `is_lent` says by canonical key which of
        the new ones somebody owns.
        """
        wanted = {scheme: {canonical_key(url): url for url in urls} for scheme, urls in pools.items()}
        free: dict[str, dict[str, str]] = {}
        for scheme, urls in wanted.items():
            kept = {key: urls[key] for key in self._free.get(scheme, {}) if key in urls}
            free[scheme] = kept | {key: url for key, url in urls.items() if not is_lent(key)}
        self._free = free
        self._scheme_of.clear()
        self._scheme_of.update({key: scheme for scheme, urls in wanted.items() for key in urls})

    def has_scheme(self, scheme: str) -> bool:
        """True when addresses of a scheme are lent and not made."""
        return scheme in self._free

    def free(self, scheme: str) -> int:
        """Number of free addresses of a scheme."""
        return len(self._free.get(scheme, ()))

    def lend(self, scheme: str, number: int) -> dict[str, str]:
        """Lend so many addresses of a scheme, those that were free the longest. Returns them by key.

        Raises:
            PeerError: POOL_EMPTY; then nothing is lent.
        """
        free = self._free[scheme]
        lent = dict(islice(free.items(), number))
        if len(lent) < number:
            raise PeerError(Code.POOL_EMPTY, f"{len(lent)} addresses are left")
        for key in lent:
            del free[key]
        return lent

    def take(self, key: str) -> None:
        """Note that an address is lent (after a restart); no effect on one of no pool."""
        scheme = self._scheme_of.get(key)
        if scheme is not None:
            self._free[scheme].pop(key, None)

    def give_back(self, key: str, url: str) -> None:
        """Return an address of a pool that was lent."""
        self._free[self._scheme_of[key]][key] = url
