"""Days and times of UTC as everybody names them: `YYYY-MM-DD`, and the hour behind it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from protofly.errors import SettingsError


def checked_day(day: str) -> str:
    """The day, if it is one. Raises SettingsError."""
    try:
        if datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).strftime("%Y-%m-%d") == day:
            return day
    except ValueError:
        pass
    raise SettingsError(f"{day or 'nothing'} is no day: write it as YYYY-MM-DD")


def end_us(day: str) -> int:
    """Midnight after a day, in µs since 1970."""
    midnight = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    return int(midnight.timestamp()) * 1_000_000


def day_after(day: str) -> str:
    """The next day."""
    return day_of(end_us(day))


def day_of(time_us: int) -> str:
    """The day of a time in µs since 1970."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d")


def moment(time_us: int) -> str:
    """A time for people, to the second; 0 is no time."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if time_us else "never"


def vouched_until(words: Iterable[str], *, grace_s: int) -> dict[str, int]:
    """Until when, in µs, somebody vouches for nodes: `NODE=DAY` is the end of that day and the grace behind it.

    Raises:
        SettingsError: A word that is none of these.
    """
    until = {}
    for word in words:
        node, _, day = word.rpartition("=")
        if not node:
            raise SettingsError(f"--vouch {word} names no node and day: write it as NODE=YYYY-MM-DD")
        until[node] = end_us(checked_day(day)) + grace_s * 1_000_000
    return until
