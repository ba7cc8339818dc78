"""What the settings say about the links of single domains, beyond what the gates ask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTerms:
    """Domains, named in full, by what holds for their links.

    Attributes:
        chosen: The operator chose their stub; what they publish does not count, and they cannot connect to us.
        connected: Their link is made at the start of the node, and kept while it is idle.
        plain: Nothing proves who speaks inside them: every user there may be any other.
    """

    chosen: frozenset[str] = frozenset()
    connected: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
