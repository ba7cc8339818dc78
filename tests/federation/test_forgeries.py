"""What a forgery costs: the connection of a node that has proved itself, by a rate, and nobody else."""

from __future__ import annotations

import pytest

from federation.core.forgeries import (
    FORGERIES_BEFORE_CLOSE,
    FORGERY_SECONDS,
    NAMES_COUNTED,
    ForgedNames,
    ForgeryLimit,
)


def limit_after(*times: float, is_node: bool = True) -> bool:
    limit = ForgeryLimit(is_node=is_node)
    for now in times:
        limit.caught(now)
    return limit.is_reached


@pytest.mark.parametrize(
    ("times", "is_reached"),
    [
        ((), False),
        ((0.0, 1.0), False),
        ((0.0, 1.0, 2.0), True),
        ((0.0, 1.0, FORGERY_SECONDS), True),
        ((0.0, 1.0, FORGERY_SECONDS + 0.1), False),
        ((0.0, 50.0, 70.0, 105.0), True),
        (tuple(40.0 * number for number in range(100)), False),
    ],
)
def test_a_node_is_caught_by_a_rate_and_not_by_a_sum(times: tuple[float, ...], is_reached: bool) -> None:
    assert limit_after(*times) is is_reached


def test_a_far_end_that_has_proved_nothing_is_never_cut() -> None:
    assert not limit_after(*[0.0] * (10 * FORGERIES_BEFORE_CLOSE), is_node=False)


def test_names_are_counted_within_bounds_and_the_most_forged_one_is_kept() -> None:
    names = ForgedNames()
    for number in range(20 * NAMES_COUNTED):
        names.count(f"hyperty://n{number}.example/x")
        names.count("hyperty://victim.example/x")
    assert len(names._counts) == NAMES_COUNTED
    [(name, count)] = names.most(1).items()
    assert (name, count) == ("hyperty://victim.example/x", 20 * NAMES_COUNTED)
    assert len(names.most(8)) == 8


def test_a_new_name_takes_the_place_and_the_count_of_the_one_that_was_counted_least() -> None:
    names = ForgedNames()
    for number in range(NAMES_COUNTED):
        for _ in range(3 if number else 2):
            names.count(str(number))
    names.count("new")
    assert (len(names.most(2 * NAMES_COUNTED)), names.most(NAMES_COUNTED)["new"]) == (NAMES_COUNTED, 3)
    assert "0" not in names.most(NAMES_COUNTED)


@pytest.mark.parametrize(("third", "ends"), [(60.0, True), (60.001, False)])
def test_three_forgeries_within_a_minute_end_a_line(third: float, *, ends: bool) -> None:
    assert limit_after(0.0, 30.0) is False
    assert limit_after(0.0, 30.0, third) is ends
