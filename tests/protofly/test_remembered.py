"""What is made of texts is remembered, within bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protofly.limits import REMEMBERED_CHARS
from protofly.remembered import remembered


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def made(asked: list[str]) -> Callable[[str], int]:
    @remembered(3)
    def made(text: str) -> int:
        asked.append(text)
        return int(text)

    return made


def test_what_was_made_once_is_not_made_again(asked: list[str], made: Callable[[str], int]) -> None:
    assert [made("1"), made("2"), made("1")] == [1, 2, 1]
    assert asked == ["1", "2"]


def test_too_many_are_forgotten_together(asked: list[str], made: Callable[[str], int]) -> None:
    for text in ("1", "2", "3", "4", "4", "1"):
        made(text)
    assert asked == ["1", "2", "3", "4", "1"]


def test_long_texts_are_not_remembered(asked: list[str], made: Callable[[str], int]) -> None:
    longest, longer = "1" * REMEMBERED_CHARS, "1" * (REMEMBERED_CHARS + 1)
    for text in (longest, longest, longer, longer):
        made(text)
    assert asked == [longest, longer, longer]


def test_errors_are_not_remembered(asked: list[str], made: Callable[[str], int]) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="x"):
            made("x")
    assert asked == ["x", "x"]
