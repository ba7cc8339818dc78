"""A loaded function gets the code of a change, where that is possible; everything else stays as it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.mutation.mutations import Mutation, mutations_of
from tests.mutation.swapping import loaded_functions, swap

SOURCE = b"""
LIMIT = 3

class Scale:
    @property
    def size(self):
        return 10

    @size.setter
    def size(self, value):
        self.kept = value + 1

def doubled(value, by=2):
    return [one * by for one in (value,)]

def outer(bound):
    def inner(value):
        if value > bound:
            return "large"
        return "small"
    return inner

kept = outer(5)
"""
PATH = Path("/nowhere/scale.py")


def loaded() -> Any:
    module: dict[str, Any] = {"__name__": "scale"}
    exec(compile(SOURCE, str(PATH), "exec"), module)
    return SimpleNamespace(**module)


def is_swapped(mutation: Mutation, path: Path = PATH) -> bool:
    return swap(mutation, loaded_functions({str(path)})[str(path)], SOURCE)


def change(function: str, after: str) -> Mutation:
    [found] = [one for one in mutations_of(SOURCE, "scale") if (one.function, one.after) == (function, after)]
    return found


def test_a_function_is_changed_where_it_is_already_known() -> None:
    module = loaded()
    known_before = module.doubled
    assert is_swapped(change("doubled", "return [one // by for one in (value,)]"))
    assert known_before(9) == [4]
    assert module.outer(5)(6) == "large"


@pytest.mark.parametrize(("after", "seen"), [("return 11", (11, 2)), ("self.kept = value - 1", (10, 0))])
def test_of_two_functions_of_one_name_the_changed_one_is_swapped(after: str, seen: tuple[int, int]) -> None:
    scale = loaded().Scale()
    assert is_swapped(change("Scale.size", after))
    scale.size = 1
    assert (scale.size, scale.kept) == seen


def test_an_inner_function_is_changed_in_what_was_made_before_and_is_made_from_then_on() -> None:
    module = loaded()
    assert is_swapped(change("outer.inner", "if value >= bound:"))
    assert module.outer(5)(5) == "large"
    assert module.kept(5) == "large"


def test_a_change_that_takes_a_variable_of_the_outer_function_away_is_not_swapped() -> None:
    module = loaded()
    assert not is_swapped(change("outer.inner", "if False:"))
    assert module.outer(5)(6) == module.kept(6) == "large"


@pytest.mark.parametrize(("function", "after"), [("", "LIMIT = 4"), ("doubled", "def doubled(value, by=3):")])
def test_what_is_in_no_function_cannot_be_swapped(function: str, after: str) -> None:
    module = loaded()
    assert not is_swapped(change(function, after))
    assert module.doubled(1) == [2]


def test_a_function_that_is_not_loaded_cannot_be_swapped() -> None:
    assert not is_swapped(change("doubled", "return [one // by for one in (value,)]"), Path("/nowhere/other.py"))
