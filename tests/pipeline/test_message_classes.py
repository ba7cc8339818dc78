"""Which of several records of one message stands for it."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.core.message_classes import Judging, Messages
from tests.pipeline.book_rows import MINUTE_US, NOON_US, book_row, clocks, completeness, entries
from tests.pipeline.rows import day_of

Row = dict[str, Any]


def case_of(out: list[Row], in_: list[Row]) -> Row:
    """What is said of the one message of which both books have these records."""
    by = Judging({day_of(NOON_US)}, clocks(), completeness(), 2 * MINUTE_US, 1_000_000)
    rows = ([book_row(1, "out", **one) for one in out], [book_row(1, "in", **one) for one in in_])
    [case] = Messages(entries(*rows), by).cases().to_pylist()
    return dict(case)


def pair(first: str, second: str) -> list[list[Row]]:
    """Two records in both orders."""
    return [[{"outcome": first, "seq": one}, {"outcome": second, "seq": 11 - one}] for one in (5, 6)]


@pytest.mark.parametrize("refused", ["denied", "undeliverable", "timeout"])
def test_a_refusal_stands_for_its_message_before_an_ignored_duplicate(refused: str) -> None:
    for rows in pair(refused, "duplicate"):
        assert case_of([], rows)["in_outcome"] == refused
        assert case_of(rows, [{}])["out_outcome"] == refused


@pytest.mark.parametrize("other", ["denied", "duplicate"])
def test_a_delivery_stands_for_its_message_before_everything_else(other: str) -> None:
    for rows in pair("delivered", other):
        assert case_of([], rows)["in_outcome"] == "delivered"
        assert case_of(rows, [])["out_outcome"] == "delivered"


def test_of_equal_records_the_earliest_stands_for_its_message() -> None:
    early, late = {"outcome": "denied", "seq": 6}, {"outcome": "denied", "seq": 5, "ts_us": NOON_US + 1}
    for rows in ([early, late], [late, early]):
        assert case_of(rows, [{}])["out_ts_us"] == NOON_US
