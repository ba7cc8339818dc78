"""What the settings say about the links of single domains, beyond what the gates ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class PeerTerms:
    """Domains, named in full, by what holds for their links. All links share it: what is set holds for all of them.

    Attributes:
        chosen: The operator chose their stub; what they publish does not count, and they cannot connect to us.
        connected: Their link is made at the start of the node, and kept while it is idle.
        plain: Nothing proves who speaks inside them: every user there may be any other.
        plaintext: Their stub may open lines without TLS (`insecure_plaintext`).
        bare: Their messages carry no `via` and `trace` of ours.
        token_readers: Give the operator's access token for an interworking stub, and raise SettingsError.
    """

    chosen: frozenset[str] = frozenset()
    connected: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    plaintext: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    token_readers: Mapping[str, Callable[[], str]] = field(default_factory=dict)
