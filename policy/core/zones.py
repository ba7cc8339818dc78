"""Time, date and weekday as clocks of a place show them.

The name of the zone is part of the condition, so policies mean the same wherever they are compiled again. How far its
clocks are from UTC is looked up once in a quarter of an hour: clocks change on such a quarter.
Source: message specification, section 15.3.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from policy.core.attributes import ATTRIBUTES, Attribute, AttributeKind, Value
from policy.core.model import AllOf, AnyOf, Condition, Facts, Not, Test
from protofly.errors import SettingsError

_SLOT_SECONDS: Final = 900
_YEAR_9999_SECONDS: Final = 253_370_764_800
_KINDS: Final = (AttributeKind.TIME, AttributeKind.DATE, AttributeKind.WEEKDAY)
_ZONES: Final = 256


def zoned(attribute: Attribute, name: str) -> Attribute:
    """The same attribute by the clocks of a zone.

    Raises:
        SettingsError: There is no such zone, or the attribute is no time.
    """
    if attribute.kind not in _KINDS:
        raise SettingsError(f'"{attribute.name}" has no time zone')
    offset, read = clock_of(name), attribute.read

    def read_there(facts: Facts) -> Value:
        if not 0 <= facts.now < _YEAR_9999_SECONDS:
            return None
        return read(msgspec.structs.replace(facts, now=facts.now + offset(facts.now)))

    return attribute._replace(read=read_there)


@lru_cache(_ZONES)
def clock_of(name: str) -> Callable[[float], int]:
    """Return a function from seconds since the Unix epoch to the zone's offset from UTC, in seconds.

    Raises:
        SettingsError: There is no such zone.
    """
    try:
        zone = ZoneInfo(name)
    except (OSError, ValueError, KeyError) as exc:
        raise SettingsError(f'there is no time zone "{name[:64]}" here; names are as "Europe/Berlin"') from exc
    known: tuple[int, int] | None = None

    def offset(now: float) -> int:
        nonlocal known
        at = int(now // _SLOT_SECONDS)
        if known is None or known[0] != at:
            shift = datetime.fromtimestamp(at * _SLOT_SECONDS, zone).utcoffset()
            assert shift is not None  # a zone has one
            known = at, int(shift.total_seconds())
        return known[1]

    return offset


def in_zone(condition: Condition, name: str) -> Condition:
    """A condition whose times are those of a zone."""
    if isinstance(condition, Test):
        return (
            msgspec.structs.replace(condition, zone=name)
            if ATTRIBUTES[condition.attribute].kind in _KINDS
            else condition
        )
    if isinstance(condition, Not):
        return Not(part=in_zone(condition.part, name))
    parts = tuple(in_zone(part, name) for part in condition.parts)
    return AllOf(parts=parts) if isinstance(condition, AllOf) else AnyOf(parts=parts)
