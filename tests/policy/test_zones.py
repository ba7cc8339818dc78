"""Time zones of policies: which clock a rule reads, across changes to summer time, and what is refused."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.core.attributes import ATTRIBUTES
from policy.core.engine import CompiledPolicies, Effect, compile_canonical
from policy.core.text import PolicyText, load_policies
from policy.core.zones import zoned
from protofly.errors import SettingsError
from tests.support.policies import deny, one_policy, some_facts
from tests.support.policies import test as condition

OFFICE = """
{top}
[[sets]]
id = "office"
{zone}
[[sets.rules]]
id = "open"
effect = "permit"
condition = {{ time = {{ between = "08:59:59 17:00:00" }}, not = {{ weekday = {{ in = ["saturday", "sunday"] }} }} }}
"""
BERLIN = 'zone = "Europe/Berlin"'


def policies_of(top: str = "", zone: str = "") -> CompiledPolicies:
    loaded = load_policies([PolicyText("p.toml", OFFICE.format(top=top, zone=zone), "toml")])
    return compile_canonical(loaded.canonical)  # as it comes to another process


def is_open(policies: CompiledPolicies, moment: str) -> bool:
    facts = some_facts(now=dt.datetime.fromisoformat(moment).timestamp())
    return policies.decide(facts).effect is Effect.PERMIT


@pytest.mark.parametrize(("top", "zone"), [("", BERLIN), (BERLIN, ""), ('zone = "Asia/Tokyo"', BERLIN)])
@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-01-05T07:59:59+00:00", False),
        ("2026-01-05T08:00:00+00:00", True),
        ("2026-07-06T06:59:59+00:00", False),
        ("2026-07-06T07:00:00+00:00", True),
        ("2026-07-06T15:00:00+00:00", False),
        ("2026-03-27T08:00:00+00:00", True),  # Friday before, and Monday after the change
        ("2026-03-30T07:00:00+00:00", True),
    ],
)
def test_a_set_reads_the_clocks_of_its_zone(top: str, zone: str, moment: str, *, expected: bool) -> None:
    assert is_open(policies_of(top, zone), moment) is expected


def test_without_a_zone_and_with_utc_the_clock_is_that_of_utc_and_the_revision_is_the_same() -> None:
    plain, utc = policies_of(), policies_of('zone = "UTC"')
    assert plain.revision == utc.revision
    assert b"zone" not in plain.canonical
    assert plain.revision != policies_of(BERLIN).revision
    assert is_open(plain, "2026-07-06T09:00:00+00:00")
    assert not is_open(plain, "2026-07-06T07:00:00+00:00")


_ZONES = st.sampled_from(["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"])


@given(_ZONES, st.lists(st.integers(1_000_000_000, 4_000_000_000), min_size=1, max_size=20))
def test_what_is_read_is_what_a_calendar_says_in_any_order_of_time(name: str, moments: list[int]) -> None:
    attributes = [zoned(ATTRIBUTES[one], name) for one in ("time", "date", "weekday")]
    for now in moments:
        there = dt.datetime.fromtimestamp(now, ZoneInfo(name))
        facts = some_facts(now=float(now))
        seconds = there.hour * 3600 + there.minute * 60 + there.second
        expected = [seconds, there.date().toordinal(), there.isoweekday() % 7]
        assert [attribute.read(facts) for attribute in attributes] == expected


_YEAR_9999 = dt.datetime(9999, 1, 1, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize("now", [0.0, _YEAR_9999 - 1])
def test_the_first_and_the_last_second_are_read(now: float) -> None:
    assert zoned(ATTRIBUTES["time"], "Europe/Berlin").read(some_facts(now=now)) in (3_600, 3_599)


@pytest.mark.parametrize("now", [-1.0, -0.001, _YEAR_9999, 1e15, float("inf"), float("nan")])
def test_a_time_that_no_clock_shows_is_missing(now: float) -> None:
    assert zoned(ATTRIBUTES["time"], "Europe/Berlin").read(some_facts(now=now)) is None


@pytest.mark.parametrize(
    "name", ["Europe", "Europe/Nowhere", "../etc/passwd", "/etc/localtime", "", "x" * 500, "a\\u0000b"]
)
def test_a_zone_that_does_not_exist_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(SettingsError, match=r"p\.toml:5: there is no time zone"):
        policies_of("", f'zone = "{name}"')


def test_a_zone_at_what_is_no_time_is_refused() -> None:
    canonical = one_policy(deny("r", condition("size", "equals", 1))).canonical
    with pytest.raises(SettingsError, match="has no time zone"):
        compile_canonical(canonical.replace(b'"attribute":"size"', b'"zone":"Asia/Tokyo","attribute":"size"'))
