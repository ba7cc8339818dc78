"""Counters whose names are a closed table: what is not in the table cannot be counted.

A table is an enumeration of `Counted`. The value of a member is the name under which operators see the number, at
`/status` and wherever it is shown later: names are stable, and all of them are in `docs/counters.md`. A member whose
name has a place for a label, such as `refused {}`, stands for one number for each of its labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Self

from protofly.errors import Code

CODES: tuple[str, ...] = tuple(sorted({code.word for code in Code}))
"""Labels of what is counted by the code of its refusal."""


class Counted(StrEnum):
    """Base of tables of counters; a member has a name, a meaning and, if its name has a place for one, labels."""

    meaning: str
    labels: tuple[str, ...]

    def __new__(cls, name: str, meaning: str, labels: Iterable[str] = ()) -> Self:
        """Make a member of a table."""
        one = str.__new__(cls, name)
        one._value_ = name
        one.meaning = meaning
        one.labels = tuple(labels)
        return one

    def of(self, label: str) -> str:
        """The name of the number for one label."""
        return self.value.format(label)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that this member stands for."""
        return tuple([self.of(label) for label in self.labels]) or (self.value,)


@cache
def names_of(table: type[Counted]) -> frozenset[str]:
    """All names of a table."""
    return frozenset(name for one in table for name in one.names)


class Counters(dict[str, int]):
    """Numbers of what one table names. A number is 0 until it is first counted, and only then an item.

    Raises:
        KeyError: A name is read or counted that the table does not have.
    """

    __slots__ = ("_names",)

    def __init__(self, table: type[Counted]) -> None:
        super().__init__()
        self._names = names_of(table)

    def __missing__(self, name: str) -> int:
        """Zero for what has not been counted yet."""
        if name not in self._names:
            raise KeyError(name)
        return 0

    def shown(self) -> dict[str, int]:
        """The counts by name, in order of names."""
        return {str(name): count for name, count in sorted(self.items())}

    def as_members(self) -> dict[str, int]:
        """The same with `_` for blanks, for a document that has other members as well."""
        return {name.replace(" ", "_"): count for name, count in self.shown().items()}
