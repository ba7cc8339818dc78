"""Zones of time by their names, out of the database of the system."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from protofly.errors import SettingsError


def zone_of(name: str) -> ZoneInfo:
    """A zone such as Europe/Berlin. Raises SettingsError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise SettingsError(f"zone {name!r} is not known: write it as Europe/Berlin, or UTC") from exc
