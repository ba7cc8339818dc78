"""What is billed after a concession, whatever the records and the tariffs say later."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.concessions import Concession, after_concessions
from pipeline.core.tariffs import Charge, Item, amount_of

ITEM = Item("EUR", "in", "b-2026", "delivered", "0.333", 1)
COUNTS = st.integers(0, 50)


def charged(*counts: tuple[Item, int]) -> dict[Item, Charge]:
    return {item: Charge(count, amount_of(item, count)) for item, count in counts}


@pytest.mark.parametrize(
    ("less", "now", "billed"),
    [
        (1, 4, 3),
        (1, 6, 5),  # two came late
        (1, 3, 3),  # what was conceded is taken back by a restatement, too
        (1, 2, 2),
        (4, 4, 0),
        (4, 3, 0),
        (3, 2, 1),
        (-1, 4, 5),  # we pay, and one more
        (-1, 5, 5),  # which our own records have by now
        (-1, 6, 6),
        (-1, 3, 4),
    ],
)
def test_a_concession_of_four_stays_when_the_count_changes_and_counts_once(less: int, now: int, billed: int) -> None:
    found = after_concessions(charged((ITEM, now)), [Concession(ITEM, 4, less)])
    assert found == charged((ITEM, billed))


def test_the_amount_is_that_of_what_is_left_and_is_rounded_once() -> None:
    found = after_concessions(charged((ITEM, 4)), [Concession(ITEM, 4, 1)])
    assert found[ITEM].amount == round(Fraction("0.333") * 3 * 100) == 100


@given(st.lists(st.tuples(COUNTS, COUNTS), max_size=4), COUNTS, COUNTS)
def test_more_records_never_make_a_bill_smaller_and_nothing_is_credited_beyond_what_was_conceded(
    said: list[tuple[int, int]], one: int, other: int
) -> None:
    made = [Concession(ITEM, max(pair), min(pair)) for pair in said]
    few, many = (after_concessions(charged((ITEM, now)), made)[ITEM].quantity for now in sorted((one, other)))
    assert 0 <= few <= many
    assert min(one, other) - few <= sum(concession.less for concession in made)


def test_two_returns_of_the_same_count_are_credited_once() -> None:
    made = [Concession(ITEM, 4, 1), Concession(ITEM, 4, 1)]
    assert after_concessions(charged((ITEM, 4)), made) == charged((ITEM, 3))


def test_a_line_with_another_price_takes_the_place_of_the_one_that_was_conceded() -> None:
    dearer = ITEM._replace(price="0.50")
    other = ITEM._replace(role="out")
    found = after_concessions(charged((dearer, 4), (other, 4)), [Concession(ITEM, 4, 1)])
    assert found == charged((dearer, 3), (other, 4))


def test_a_concession_of_a_tariff_that_is_gone_is_taken_from_all_lines_that_count_the_same() -> None:
    early, late = ITEM._replace(tariff="early"), ITEM._replace(tariff="late", currency="USD")
    found = after_concessions(charged((early, 1), (late, 3)), [Concession(ITEM, 4, 2)])
    assert found == charged((early, 0), (late, 2))


def test_what_is_owed_by_us_is_billed_even_if_our_records_have_nothing_of_it() -> None:
    ours = ITEM._replace(role="out")
    assert after_concessions({}, [Concession(ours, 0, -2)]) == charged((ours, 2))
    assert after_concessions({}, [Concession(ITEM, 4, 1)]) == {}
