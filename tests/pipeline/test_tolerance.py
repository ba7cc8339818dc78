"""What two partners tolerate, class by class."""

from __future__ import annotations

import pytest

from pipeline.core.case_classes import CASES
from pipeline.core.tolerance import Tolerance, read_tolerance
from protofly.errors import SettingsError


def counts(**those: int) -> dict[str, int]:
    return dict.fromkeys(CASES, 0) | those


@pytest.mark.parametrize(
    ("allowed", "words", "found", "expected"),
    [
        (0, (), counts(pending=9, unprovable=9), False),
        (0, (), counts(lost=1), True),
        (1, (), counts(lost=1), False),
        (0, ("size=100",), counts(size=100), False),
        (0, ("size=100",), counts(size=101), True),
        (100, ("size=100",), counts(size=101), True),
        (101, ("size=100",), counts(size=101), False),
        (0, ("size=100",), counts(size=1, lost=1), True),
        (0, ("size=1", "size=5", "lost=2"), counts(size=5, lost=2), False),
    ],
)
def test_a_class_counts_with_all_of_its_cases_once_there_are_more_than_tolerated(
    allowed: int, words: tuple[str, ...], found: dict[str, int], expected: bool
) -> None:
    assert read_tolerance(allowed, words).is_exceeded(found) is expected


def test_every_class_that_blames_somebody_can_be_tolerated() -> None:
    words = [word for word in CASES if word not in {"pending", "unprovable"}]
    assert read_tolerance(0, [f"{word}=1" for word in words]) == Tolerance(0, dict.fromkeys(words, 1))


@pytest.mark.parametrize(
    "word",
    ["", "lost", "lost=", "lost=-1", "lost=1.5", "lost=²", "lost=٣", f"lost={10**12}", "pending=3", "matched=3", "=4"],
)
def test_what_is_no_class_or_no_number_is_refused_by_name(word: str) -> None:
    with pytest.raises(SettingsError, match="--tolerate"):
        read_tolerance(0, [word])


def test_a_number_of_twelve_digits_can_be_tolerated() -> None:
    assert read_tolerance(0, [f"lost={'9' * 12}"]).by_class == {"lost": 999_999_999_999}
