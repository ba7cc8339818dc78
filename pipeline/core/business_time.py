"""The days and months by which partners settle, in the zone of their business, made of hours of UTC or of quarters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

from pipeline.core.utc_days import checked_day
from protofly.errors import SettingsError

HOUR_US: Final = 3_600_000_000
QUARTER_US: Final = HOUR_US // 4


@dataclass(frozen=True, slots=True)
class BusinessDays:
    """Days in a row of a zone.

    Attributes:
        first: `YYYY-MM-DD`.
        last: Likewise, included.
        zone: Whose midnights separate days.

    Raises:
        SettingsError: A midnight that is within a quarter of an hour of UTC; traffic is kept by these at best.
    """

    first: str
    last: str
    zone: tzinfo

    def __post_init__(self) -> None:
        odd = [day for day in self._days() if self._midnight_us(day) % QUARTER_US]
        if odd:
            raise SettingsError(
                f"midnight of {odd[0]} in {self.zone} is within a quarter of an hour of UTC, and traffic is kept by "
                "these: choose a zone that differs from UTC by whole quarters, as all do today"
            )

    @property
    def is_of_whole_hours(self) -> bool:
        """True if each midnight is at the begin of an hour of UTC; if not, all are at that of a quarter."""
        return not any(self._midnight_us(day) % HOUR_US for day in self._days())

    @property
    def begin_us(self) -> int:
        """The first midnight."""
        return self._midnight_us(date.fromisoformat(self.first))

    @property
    def end_us(self) -> int:
        """The midnight after the last day."""
        return self._midnight_us(date.fromisoformat(self.last) + timedelta(days=1))

    def utc_days(self) -> list[str]:
        """Days of UTC that have a time of these, in their order."""
        first = datetime.fromtimestamp(self.begin_us // 1_000_000, UTC).date()
        last = datetime.fromtimestamp(self.end_us // 1_000_000 - 1, UTC).date()
        return [(first + timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]

    def day_of(self, begins_us: Iterable[int]) -> list[str]:
        """For each hour, or quarter, by its begin, the day that it belongs to; empty for those of no day of these."""
        begin_us, end_us = self.begin_us, self.end_us
        return [
            datetime.fromtimestamp(us // 1_000_000, self.zone).date().isoformat() if begin_us <= us < end_us else ""
            for us in begins_us
        ]

    def _days(self) -> Iterable[date]:
        """All of them, and the one after the last."""
        first, last = date.fromisoformat(self.first), date.fromisoformat(self.last)
        return (first + timedelta(days=number) for number in range((last - first).days + 2))

    def _midnight_us(self, day: date) -> int:
        # Where clocks are set forward at midnight, the day begins with the hour after.
        return int(datetime(day.year, day.month, day.day, tzinfo=self.zone).timestamp()) * 1_000_000


def month_days(month: str) -> tuple[str, str]:
    """The first and the last day of a month, `YYYY-MM`. Raises SettingsError."""
    try:
        first = checked_day(f"{month}-01")
    except SettingsError:
        raise SettingsError(f"{month or 'nothing'} is no month: write it as YYYY-MM") from None
    next_month = date.fromisoformat(first) + timedelta(days=31)
    return first, (next_month.replace(day=1) - timedelta(days=1)).isoformat()
