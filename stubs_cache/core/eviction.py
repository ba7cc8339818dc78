"""Which entries have to go, and why.

Source: trust and hosts, section 3.1 (Istio purges what was unused for 24 h; we keep longer, for warm starts).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from stubs_cache.core.entry import CacheEntry

CACHE_BYTES: Final = 512 << 20
"""Room for some hundred domains: module, documents and compiled code are about 1 MiB together."""
UNUSED_SECONDS: Final = 30 * 86_400.0


class Reason(Enum):
    """Reason to remove an entry: not used for long, or space is needed."""

    UNUSED = "unused"
    SPACE = "space"


@dataclass(frozen=True, slots=True)
class Eviction:
    """One entry to remove."""

    entry: CacheEntry
    reason: Reason


def choose_evictions(
    entries: Iterable[CacheEntry],
    *,
    now: float,
    max_bytes: int = CACHE_BYTES,
    unused_seconds: float = UNUSED_SECONDS,
    kept: Collection[str] = (),
) -> list[Eviction]:
    """Choose what to remove: first what was not used for long, then the least recently used until the rest fits.

    Args:
        entries: All entries.
        now: Unix seconds.
        max_bytes: What may remain.
        unused_seconds: How long an entry may lie unused.
        kept: Keys that stay whatever happens, those of running stubs.
    """
    evictions: list[Eviction] = []
    remaining_bytes = 0
    candidates: list[CacheEntry] = []
    for entry in sorted(entries, key=lambda entry: (entry.used_at, entry.key)):
        if entry.key not in kept and now - entry.used_at > unused_seconds:
            evictions.append(Eviction(entry, Reason.UNUSED))
            continue
        remaining_bytes += entry.size_bytes
        if entry.key not in kept:
            candidates.append(entry)
    for entry in candidates:
        if remaining_bytes <= max_bytes:
            break
        evictions.append(Eviction(entry, Reason.SPACE))
        remaining_bytes -= entry.size_bytes
    return evictions
