"""The names under which a blocked domain is kept out: its own, and those of its aliases.

An alias is blocked with its domain if the settings list it, if a link has proved it, or if the stored documents of both
prove it. What a domain only claims is not blocked: it could name anybody. A name with a `[[peer]]` entry of its own is
nobody's alias, and is blocked by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from catalogue_client.core.aliases import stored_aliases
from catalogue_client.trust_store import TrustStore
from federation.links.domain_link import DomainLink
from msg_node.kernel.restrictions import Restricted, Restriction, Restrictions
from msg_node.settings.model import Settings
from msg_node.settings.tables.peers import PeerSettings
from protofly.errors import PeerError


def blocked_names(restrictions: Restrictions, peers: Iterable[PeerSettings]) -> frozenset[str]:
    """Return every name and pattern that restrictions block, with the aliases that the settings list now."""
    blocks = restrictions.of(Restricted.PEER)
    listed = {alias for peer in peers for alias in peer.aliases if any(one.covers(peer.domain) for one in blocks)}
    return frozenset({name for one in blocks for name in (one.subject, *one.aliases)} | listed)


def known_aliases(
    restriction: Restriction, settings: Settings, links: Iterable[DomainLink], store: TrustStore
) -> tuple[str, ...]:
    """Return the aliases that the domains which a restriction covers have now, in order.

    Args:
        restriction: Of domains.
        settings: Those in force.
        links: All links.
        store: What is stored about other domains.
    """
    never = {*settings.own_domains, *(peer.domain for peer in settings.peer)}
    found = {alias for peer in settings.peer if restriction.covers(peer.domain) for alias in peer.aliases}
    for link in links:
        if restriction.covers(link.domain):
            found |= link.inward.domains()
    for domain in store.domains():
        if restriction.covers(domain):
            found.update(_stored(store, domain))
    return tuple(sorted(name for name in found - never if not restriction.covers(name)))


def _stored(store: TrustStore, domain: str) -> Iterator[str]:
    try:
        state = store.load(domain)
        if state is not None:
            yield from stored_aliases(state, store.load)
    except PeerError:  # what cannot be read proves nothing, so the domain cannot use it either
        return
