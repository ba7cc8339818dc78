"""Settings of rates of single message types, for one session and for one peer.

Source: feature row BU-26; trust and hosts, section 5.3, rule 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msg_node.settings.problem import Problem
from msg_node.settings.tables.rates import QuotaSettings, TypeRateSettings
from policy.core.quotas import Quota
from policy.core.rates import UNLIMITED, RateLimit, TypeRate


def quotas_of(entries: Sequence[QuotaSettings]) -> tuple[Quota, ...]:
    """The same for the gate."""
    return tuple(Quota(per=one.per, messages=one.messages, bytes=one.bytes, types=one.types) for one in entries)


def quota_problems(entries: Sequence[QuotaSettings], place: tuple[str | int, ...]) -> Iterator[Problem]:
    """Check the entries at a place against each other."""
    seen = set[tuple[str, ...]]()
    for index, entry in enumerate(entries):
        if entry.messages is None and entry.bytes is None:
            yield (*place, index), "`messages` or `bytes` says what the quota is"
        name = (entry.per, *sorted(entry.types))
        if name in seen:
            yield (*place, index), f"two quotas per {entry.per} for the same types"
        seen.add(name)


def rate_limit(messages_per_second: float | None, bytes_per_second: float | None, burst_seconds: float) -> RateLimit:
    """The same for a bucket; `UNLIMITED` when nothing is limited."""
    if messages_per_second is None and bytes_per_second is None:
        return UNLIMITED
    return RateLimit(
        messages_per_second=messages_per_second, bytes_per_second=bytes_per_second, burst_seconds=burst_seconds
    )


def type_rates(entries: Sequence[TypeRateSettings]) -> tuple[TypeRate, ...]:
    """The same for buckets."""
    return tuple(
        TypeRate(types=one.types, limit=rate_limit(one.messages_per_second, one.bytes_per_second, one.burst_seconds))
        for one in entries
    )


def rate_problems(entries: Sequence[TypeRateSettings], place: tuple[str | int, ...]) -> Iterator[Problem]:
    """Check the entries at a place against each other."""
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if entry.messages_per_second is None and entry.bytes_per_second is None:
            yield (*place, index), "`messages_per_second` or `bytes_per_second` says what the rate is"
        for type_ in entry.types:
            if type_ in seen:
                yield (*place, index, "types"), f"two rates for messages of type {type_}"
            seen.add(type_)
