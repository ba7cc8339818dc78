"""Conditions on rows, and whether they can hold where only bounds of columns are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Condition: TypeAlias = Sequence[Sequence[tuple[str, str, Any]]]
"""`(column, operator, value)`: all of one of the lists hold; operators are == < <= > >=. As pyarrow has it."""


def held(where: Condition, ranges: Mapping[str, tuple[Any, Any]]) -> bool | None:
    """True if a condition holds for all rows, False if for none, None if that is not known.

    Args:
        where: The condition.
        ranges: Between which values columns are, as far as that is known, in rows in which they are not null.
    """
    every = [[_held(ranges.get(name), how, value) for name, how, value in one] for one in where]
    if all(False in one for one in every):
        return False
    return True if any(all(part is True for part in one) for one in every) else None


def _held(known: tuple[Any, Any] | None, how: str, value: Any) -> bool | None:
    if known is None:
        return None
    low, high = known
    never, always = {
        "==": (value < low or high < value, low == value == high),
        "<": (low >= value, high < value),
        "<=": (low > value, high <= value),
        ">": (high <= value, low > value),
        ">=": (high < value, low >= value),
    }[how]
    return False if never else True if always else None
