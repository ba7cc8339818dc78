"""How long a fetched live document may be used without asking again.

Source: trust and hosts, section 2.5.
"""

from __future__ import annotations

from typing import Final

from protofly import limits
from protofly.documents import DocumentBundle, Live

REFRESH_SHARE: Final = 0.8
"""Share of the life after which the document is fetched again in the background."""
_JITTER_SHARE: Final = 0.1


def freshness(max_age_seconds: float | None, live: Live, *, now: float, draw: float) -> tuple[float, float]:
    """Compute until when a document fetched at `now` is used, and when it is fetched again; both in Unix seconds.

    Args:
        max_age_seconds: What the server said; 0 = do not cache (we still do, for 5 minutes), None = nothing
            (24 h ± 10 %).
        live: The document; never fresh beyond its own end.
        now: Unix seconds.
        draw: A random number in [0, 1), so that nodes do not ask at the same time.
    """
    if max_age_seconds is None:
        life = limits.DISCOVERY_DEFAULT_SECONDS * (1 - _JITTER_SHARE + 2 * _JITTER_SHARE * draw)
    else:
        life = min(max(max_age_seconds, limits.DISCOVERY_MIN_SECONDS), limits.DISCOVERY_MAX_SECONDS)
    life = min(life, live.expires.timestamp() - now)
    return now + life, now + REFRESH_SHARE * life


def documents_are_fresh(bundle: DocumentBundle, now: float) -> bool:
    """True if cached documents may be used without asking. Times that no fetch can have produced are not believed."""
    is_plausible = (
        bundle.fetched_at <= now + limits.CLOCK_SKEW_SECONDS
        and bundle.fresh_until - bundle.fetched_at <= limits.DISCOVERY_MAX_SECONDS
    )
    return is_plausible and now < bundle.fresh_until
