"""A change of a running node that has passed every check, and is not made yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """One change.

    Attributes:
        before: What is so now.
        after: What will be so.
        apply: Makes it so; waits for nothing.
    """

    before: object
    after: object
    apply: Callable[[], None]
