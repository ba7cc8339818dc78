"""Which statements are meant, and what is reported of those that are not there."""

from __future__ import annotations

import random
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.statement_choice import Choice, Standing, Wanted, choose, known_of, wanted_days
from protofly.errors import SettingsError

A1 = Standing("a.example", "2026-03-01", 1, "final")
A2 = Standing("a.example", "2026-03-02", 1, "final")
A2_NEXT = Standing("a.example", "2026-03-02", 2, "restated")
A4 = Standing("a.example", "2026-03-04", 1, "draft")
B2 = Standing("b.example", "2026-03-02", 1, "final")
ALL = [A1, A2, A2_NEXT, A4, B2]


@pytest.mark.parametrize(
    ("wanted", "choice"),
    [
        (Wanted(), Choice((A1, A2_NEXT, B2), drafts=(A4,))),
        (Wanted(drafts=True), Choice((A1, A2_NEXT, A4, B2))),
        (Wanted(domain="b.example"), Choice((B2,))),
        (Wanted(version=1), Choice((A1, A2, B2), drafts=(A4,))),
        (Wanted(version=2), Choice((A2_NEXT,), other_versions=(A1, A4, B2))),
        (Wanted(from_day="2026-03-02", until_day="2026-03-02"), Choice((A2_NEXT, B2))),
        (
            Wanted(from_day="2026-03-02", domain="a.example"),
            Choice((A2_NEXT,), drafts=(A4,), missing={"a.example": (("2026-03-03", "2026-03-03"),)}),
        ),
        (
            Wanted(until_day="2026-03-06", domain="b.example"),
            Choice((B2,), missing={"b.example": (("2026-03-01", "2026-03-01"), ("2026-03-03", "2026-03-06"))}),
        ),
        (
            Wanted(from_day="2026-02-01", until_day="2026-02-02", domain="c.example"),
            Choice(missing={"c.example": (("2026-02-01", "2026-02-02"),)}),
        ),
        (
            Wanted(from_day="0001-01-01", until_day="9999-12-31", domain="b.example"),
            Choice((B2,), missing={"b.example": (("0001-01-01", "2026-03-01"), ("2026-03-03", "9999-12-31"))}),
        ),
    ],
)
def test_of_each_domain_and_day_one_version_is_taken_and_the_rest_is_reported(wanted: Wanted, choice: Choice) -> None:
    assert choose(ALL, wanted) == choice


def test_nothing_is_chosen_out_of_nothing() -> None:
    assert choose([], Wanted(from_day="2026-03-02")) == Choice()


DAYS = st.integers(0, 12).map(lambda number: (date(2026, 3, 1) + timedelta(number)).isoformat())


@given(
    st.dictionaries(st.tuples(st.sampled_from(["a.example", "b.example"]), DAYS), st.integers(0, 3), min_size=1),
    DAYS,
    DAYS,
    st.none() | st.integers(1, 4),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_named_day_of_every_domain_is_accounted_for_once_in_whatever_order_rows_come(
    versions: dict[tuple[str, str], int],
    one: str,
    other: str,
    version: int | None,
    drafts: bool,
    order: random.Random,
) -> None:
    standings = [
        Standing(*whose, number, "draft" if newest == 0 else "final" if number == 1 else "restated")
        for whose, newest in versions.items()
        for number in range(1, max(newest, 1) + 1)
    ]
    wanted = Wanted(from_day=min(one, other), until_day=max(one, other), version=version, drafts=drafts)
    choice = choose(standings, wanted)
    order.shuffle(standings)
    assert choose(standings, wanted) == choice
    shown = [(found.our_domain, found.day) for found in (*choice.taken, *choice.drafts, *choice.other_versions)]
    for domain, stretches in choice.missing.items():
        for first, last in stretches:
            day = date.fromisoformat(first)
            while day <= date.fromisoformat(last):
                shown.append((domain, day.isoformat()))
                day += timedelta(1)
    period = (date.fromisoformat(wanted.until_day) - date.fromisoformat(wanted.from_day)).days + 1
    assert len(shown) == len(set(shown)) == period * len({domain for domain, _ in versions})
    for found in choice.taken:
        newest = versions[found.our_domain, found.day] or 1
        assert found.version == (newest if version is None else version)
        assert drafts or found.status != "draft"


def test_a_day_is_a_period_and_bounds_may_be_open() -> None:
    assert wanted_days("2026-03-02", "", "") == ("2026-03-02", "2026-03-02")
    assert wanted_days("", "2026-03-02", "") == ("2026-03-02", "")
    assert wanted_days("", "", "") == ("", "")


@pytest.mark.parametrize(
    ("day", "first", "last", "shown"),
    [
        ("2026-3-2", "", "", "YYYY-MM-DD"),
        ("", "yesterday", "", "yesterday"),
        ("", "", "2026-02-30", "2026-02-30"),
        ("2026-03-02", "2026-03-01", "", "--from"),
        ("2026-03-02", "", "2026-03-02", "--from"),
        ("2026-03-02", "2026-03-02", "2026-03-02", "--from"),
        ("", "2026-03-02", "2026-03-01", "before it begins"),
    ],
)
def test_what_is_no_day_or_no_period_is_refused(day: str, first: str, last: str, shown: str) -> None:
    with pytest.raises(SettingsError) as caught:
        wanted_days(day, first, last)
    assert shown in caught.value.detail


@given(st.sampled_from([day for _, day, _, _ in ALL]), st.sampled_from([day for _, day, _, _ in ALL]))
def test_standings_of_other_days_are_not_needed_when_it_is_known_whose_and_of_when_they_are(
    first: str, last: str
) -> None:
    wanted = Wanted(from_day=first, until_day=last)
    some = [one for one in ALL if wanted.has_day(one.day)]
    assert choose(some, wanted, known_of(ALL)) == choose(ALL, wanted)
