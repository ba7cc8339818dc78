"""How many differing messages of each class two partners have agreed not to argue about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pipeline.core.case_classes import BLAMELESS, CASES
from protofly.errors import SettingsError

_DIGITS_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Numbers of cases that do not make a job end with findings.

    Attributes:
        allowed: So many cases, of all classes that exceed their own tolerance together.
        by_class: So many of a class; a class with more counts with all of its cases.
    """

    allowed: int = 0
    by_class: Mapping[str, int] = field(default_factory=dict)

    def is_exceeded(self, counts: Mapping[str, int]) -> bool:
        """True if there are more cases than are tolerated, by how many there are of each class."""
        beyond = (counts[word] for word in CASES if word not in BLAMELESS and counts[word] > self.by_class.get(word, 0))
        return sum(beyond) > self.allowed


def read_tolerance(allowed: int, words: Iterable[str]) -> Tolerance:
    """A tolerance as options say it.

    Args:
        allowed: Of all classes together.
        words: `CLASS=N` each; of a class that comes twice the last one counts.

    Raises:
        SettingsError: No such class, or no number.
    """
    by_class = {}
    for one in words:
        word, _, number = one.partition("=")
        if word not in CASES or word in BLAMELESS:
            named = ", ".join(name for name in CASES if name not in BLAMELESS)
            raise SettingsError(f"--tolerate {one}: a class is one of {named}")
        if not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX):
            raise SettingsError(f"--tolerate {one}: say how many, such as {word}=10")
        by_class[word] = int(number)
    return Tolerance(allowed, by_class)
