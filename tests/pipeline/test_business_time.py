"""Days and months of a zone, made of hours of UTC, or of quarters of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.business_time import HOUR_US, QUARTER_US, BusinessDays, month_days
from pipeline.jobs.business import Exchanged, open_line
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


WHOLE = ("Europe/Berlin", "America/Havana", "Asia/Beirut", "Pacific/Auckland", "America/Sao_Paulo")
CUT = (
    *("Asia/Kolkata", "Asia/Kathmandu", "Asia/Yangon", "Asia/Kabul", "Asia/Tehran", "Pacific/Marquesas"),
    *("Australia/Adelaide", "Australia/Eucla", "America/St_Johns", "Pacific/Chatham"),
    "Australia/Lord_Howe",  # half an hour of summer time, so its midnights are at 13:30 and at 13:00
)


def test_a_zone_whose_midnight_cuts_a_quarter_of_an_hour_is_refused() -> None:
    with pytest.raises(SettingsError, match="whole quarters"):
        BusinessDays("2026-03-01", "2026-03-31", timezone(timedelta(minutes=20)))


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [
        ("Asia/Kolkata", "2026-02-28T18:30", "2026-03-31T18:30"),
        ("Asia/Kathmandu", "2026-02-28T18:15", "2026-03-31T18:15"),
        ("Australia/Lord_Howe", "2026-02-28T13:00", "2026-03-31T13:00"),
    ],
)
def test_a_month_of_a_zone_begins_and_ends_within_an_hour_of_utc(name: str, begin: str, end: str) -> None:
    march = BusinessDays("2026-03-01", "2026-03-31", ZoneInfo(name))
    assert (march.begin_us, march.end_us) == (hour(begin), hour(end))
    assert march.is_of_whole_hours is (name == "Australia/Lord_Howe")


def test_the_midnight_after_the_last_day_may_alone_be_within_an_hour_of_utc() -> None:
    """Lord Howe puts its clocks back by half an hour in the night before its midnight of 6 April."""
    zone = ZoneInfo("Australia/Lord_Howe")
    assert BusinessDays("2026-04-04", "2026-04-04", zone).is_of_whole_hours
    assert not BusinessDays("2026-04-05", "2026-04-05", zone).is_of_whole_hours


@pytest.mark.parametrize(("minutes", "utc_days"), [(-15, ["2026-03-01", "2026-03-02"]), (0, ["2026-03-01"])])
def test_a_day_that_ends_a_quarter_after_midnight_of_utc_has_a_time_of_the_next_day(
    minutes: int, utc_days: list[str]
) -> None:
    days = BusinessDays("2026-03-01", "2026-03-01", timezone(timedelta(minutes=minutes)))
    assert days.utc_days() == utc_days


def test_the_month_with_half_an_hour_of_summer_time_ends_has_that_half_hour_more() -> None:
    april = BusinessDays("2026-04-01", "2026-04-30", ZoneInfo("Australia/Lord_Howe"))
    assert (april.end_us - april.begin_us) // QUARTER_US == 30 * 24 * 4 + 2
    assert not april.is_of_whole_hours


@given(st.integers(2021, 2035), st.integers(1, 11), st.sampled_from(WHOLE + CUT))
def test_each_hour_or_quarter_is_of_exactly_one_month(year: int, month: int, name: str) -> None:
    zone = ZoneInfo(name)
    one = BusinessDays(*month_days(f"{year}-{month:02}"), zone)
    after = BusinessDays(*month_days(f"{year}-{month + 1:02}"), zone)
    assert one.end_us == after.begin_us
    assert one.is_of_whole_hours or name in CUT
    begins = range(one.begin_us, one.end_us, HOUR_US if one.is_of_whole_hours else QUARTER_US)
    assert "" not in one.day_of(begins)
    assert set(after.day_of(begins)) == {""}
    assert {datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d") for us in begins} == set(one.utc_days())


@given(
    st.dates(date(2021, 1, 1), date(2035, 12, 1)),
    st.integers(0, 3 * 24 * HOUR_US),
    st.sampled_from(WHOLE + CUT),
)
def test_a_message_is_of_the_day_that_clocks_of_the_zone_show(first: date, after_us: int, name: str) -> None:
    zone = ZoneInfo(name)
    days = BusinessDays(first.isoformat(), (first + timedelta(days=1)).isoformat(), zone)
    sent_us = days.begin_us - 12 * HOUR_US + after_us
    unit_us = HOUR_US if days.is_of_whole_hours else QUARTER_US
    shown = datetime.fromtimestamp(sent_us // 1_000_000, zone).date()
    expected = shown.isoformat() if 0 <= (shown - first).days <= 1 else ""
    assert days.day_of([sent_us // unit_us * unit_us]) == [expected]


def test_open_days_after_each_other_are_named_as_a_stretch_for_each_reason() -> None:
    drafts, silent = [f"2026-03-{day:02} (a draft)" for day in (1, 2, 4)], ["2026-03-05 (no statements)"]
    assert open_line(Exchanged({}, {}, [*drafts, *silent], [])) == (
        "2026-03-01 to 2026-03-02 (a draft), 2026-03-04 (a draft), 2026-03-05 (no statements)"
    )
    apart = [f"2026-03-{day:02} (a draft)" for day in range(1, 31, 2)]
    assert open_line(Exchanged({}, {}, apart, [])).endswith("2026-03-15 (a draft) and 7 more")
