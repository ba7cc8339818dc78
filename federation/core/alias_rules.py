"""Which names may be aliases of a peer at all, by our settings: before any document is asked.

Our own domains, domains that are peers of their own, and domains that we bar are nobody's aliases, whatever documents
say. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from protofly.address import valid_domain
from protofly.errors import PeerError


class AliasRules:
    """The operator's rules about aliases.

    Args:
        own_domains: Our domain and its aliases.
        peers: Domains that the settings name in full for themselves.
        listed: Aliases that the settings list, by peer.
        is_barred: True when our policy keeps a domain out as such.
    """

    def __init__(
        self,
        *,
        own_domains: Collection[str] = (),
        peers: Collection[str] = (),
        listed: Mapping[str, Collection[str]] | None = None,
        is_barred: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._never = frozenset(own_domains) | frozenset(peers)
        self._listed = {domain: frozenset(names) for domain, names in (listed or {}).items()}
        self._is_barred = is_barred

    def listed(self, domain: str) -> frozenset[str]:
        """The aliases that the operator lists for a peer: they count without documents."""
        return frozenset(name for name in self._listed.get(domain, ()) if self.may_be_alias(name, domain))

    def withdrawn(self, domain: str, names: frozenset[str], before: AliasRules) -> frozenset[str]:
        """Those of `names` that were aliases of a peer by the rules `before` and are none by these.

        A name that is listed no more has to be proved to be one again.
        """
        unlisted = before.listed(domain) - self.listed(domain)
        return frozenset(name for name in names - {domain} if name in unlisted or not self.may_be_alias(name, domain))

    def may_be_alias(self, name: str, domain: str) -> bool:
        """True when `name` may be an alias of `domain`, if it is proved or listed."""
        try:
            valid_domain(name)
        except PeerError:
            return False
        if name == domain or name in self._never or self._is_barred(name):
            return False
        return not any(name in names for other, names in self._listed.items() if other != domain)
