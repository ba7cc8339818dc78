"""How long to leave a domain alone after a failure, and how long to believe what was said about it.

Numbers only: nothing here sleeps. `draw` is a random number in [0, 1) that the caller brings.

Source: trust and hosts, section 2.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protofly import limits
from protofly.pauses import doubling_seconds, jittered

_REFRESH_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures in a row, and when the next attempt is allowed (seconds since the epoch)."""

    failures: int = 0
    retry_at: float = 0.0

    def is_over(self, now: float) -> bool:
        """True when a new attempt is allowed."""
        return now >= self.retry_at

    def after_failure(self, *, now: float, draw: float, is_waiting: bool) -> Backoff:
        """The state after one more failure.

        Args:
            now: Seconds since the epoch.
            draw: Random number in [0, 1).
            is_waiting: Messages wait for this domain. Then the longest pause is ten minutes, otherwise a day.
        """
        return Backoff(self.failures + 1, now + backoff_seconds(self.failures + 1, draw=draw, is_waiting=is_waiting))


def backoff_seconds(failures: int, *, draw: float, is_waiting: bool = True) -> float:
    """Pause after the given number of failures in a row: 5 s, doubled each time, ± 10 %, bounded."""
    most = limits.DISCOVERY_BACKOFF_WAITING_SECONDS if is_waiting else limits.DISCOVERY_BACKOFF_IDLE_SECONDS
    return min(most, jittered(doubling_seconds(limits.DISCOVERY_BACKOFF_BASE_SECONDS, failures, 2.0 * most), draw=draw))


def document_life_seconds(max_age_seconds: float | None, *, draw: float) -> float:
    """Seconds for which a fetched `live` document is believed without asking again.

    Args:
        max_age_seconds: What the server said; 0 for "do not store", None for nothing.
        draw: Random number in [0, 1).
    """
    if max_age_seconds is None:
        return jittered(limits.DISCOVERY_DEFAULT_SECONDS, draw=draw)
    return min(max(max_age_seconds, limits.DISCOVERY_MIN_SECONDS), limits.DISCOVERY_MAX_SECONDS)


def negative_life_seconds(soa_seconds: float | None, *, was_recently_valid: bool, draw: float) -> float:
    """Seconds for which "this is not a messaging node" is believed.

    Args:
        soa_seconds: Negative TTL of the zone, None when it is not known.
        was_recently_valid: The domain answered well within the last two hours: then an error is an accident.
        draw: Random number in [0, 1).
    """
    if was_recently_valid:
        return limits.RECENTLY_VALID_RETRY_SECONDS
    usual = jittered(limits.NEGATIVE_SECONDS, draw=draw)
    if soa_seconds is None:
        return usual
    return min(usual, max(soa_seconds, limits.NEGATIVE_MIN_SECONDS))


def clamped_ttl_seconds(ttl_seconds: float) -> float:
    """The TTL of a DNS answer, as far as we follow it."""
    return min(max(ttl_seconds, limits.DNS_TTL_MIN_SECONDS), limits.DNS_TTL_MAX_SECONDS)


def refresh_at(stored_at: float, life_seconds: float) -> float:
    """From when on something believed for `life_seconds` is asked for again in the background."""
    return stored_at + _REFRESH_SHARE * life_seconds
