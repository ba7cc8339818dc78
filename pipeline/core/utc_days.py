"""Days of UTC as everybody names them: `YYYY-MM-DD`."""

from __future__ import annotations

from datetime import UTC, datetime

from protofly.errors import SettingsError


def checked_day(day: str) -> str:
    """The day, if it is one. Raises SettingsError."""
    try:
        if datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).strftime("%Y-%m-%d") == day:
            return day
    except ValueError:
        pass
    raise SettingsError(f"{day or 'nothing'} is no day: write it as YYYY-MM-DD")
