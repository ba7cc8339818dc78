"""Days and months of a zone, made of hours of UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.business_time import HOUR_US, BusinessDays, month_days
from protofly.errors import SettingsError

BERLIN = ZoneInfo("Europe/Berlin")


def hour(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("month", "days"),
    [
        ("2026-03", ("2026-03-01", "2026-03-31")),
        ("2028-02", ("2028-02-01", "2028-02-29")),
        ("2026-12", ("2026-12-01", "2026-12-31")),
    ],
)
def test_a_month_has_its_days(month: str, days: tuple[str, str]) -> None:
    assert month_days(month) == days


@pytest.mark.parametrize("month", ["", "2026", "2026-13", "2026-3", "2026-03-01"])
def test_what_is_no_month_is_refused(month: str) -> None:
    with pytest.raises(SettingsError, match="YYYY-MM"):
        month_days(month)


def test_a_month_with_a_change_to_summer_time_lacks_an_hour() -> None:
    march = BusinessDays("2026-03-01", "2026-03-31", BERLIN)
    assert (march.begin_us, march.end_us) == (hour("2026-02-28T23:00"), hour("2026-03-31T22:00"))
    assert (march.end_us - march.begin_us) // HOUR_US == 31 * 24 - 1
    assert (march.utc_days()[0], march.utc_days()[-1], len(march.utc_days())) == ("2026-02-28", "2026-03-31", 32)


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        ("2026-02-28T22:00", ""),
        ("2026-02-28T23:00", "2026-03-01"),
        ("2026-03-28T23:00", "2026-03-29"),
        ("2026-03-29T21:00", "2026-03-29"),
        ("2026-03-29T22:00", "2026-03-30"),
        ("2026-03-31T21:00", "2026-03-31"),
        ("2026-03-31T22:00", ""),
    ],
)
def test_an_hour_is_of_the_day_of_the_zone(moment: str, day: str) -> None:
    assert BusinessDays("2026-03-01", "2026-03-31", BERLIN).day_of([hour(moment)]) == [day]


def test_days_of_utc_are_those_of_utc() -> None:
    days = BusinessDays("2026-03-01", "2026-03-02", UTC)
    assert days.utc_days() == ["2026-03-01", "2026-03-02"]


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu"])
def test_a_zone_whose_midnight_cuts_an_hour_is_refused(zone: str) -> None:
    with pytest.raises(SettingsError, match="whole hours"):
        BusinessDays("2026-03-01", "2026-03-31", ZoneInfo(zone))


@given(
    st.integers(2021, 2035),
    st.integers(1, 11),
    st.sampled_from(["Europe/Berlin", "America/Havana", "Asia/Beirut", "Pacific/Auckland", "America/Sao_Paulo"]),
)
def test_each_hour_is_of_exactly_one_month(year: int, month: int, name: str) -> None:
    zone = ZoneInfo(name)
    one = BusinessDays(*month_days(f"{year}-{month:02}"), zone)
    after = BusinessDays(*month_days(f"{year}-{month + 1:02}"), zone)
    assert one.end_us == after.begin_us
    hours = range(one.begin_us, one.end_us, HOUR_US)
    assert "" not in one.day_of(hours)
    assert set(after.day_of(hours)) == {""}
    assert {datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d") for us in hours} == set(one.utc_days())
