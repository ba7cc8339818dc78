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
        finish: Makes the rest so, when what `apply` did is durable and has been notified; None: nothing is left.
        store: Makes it durable, before it is applied: blocks. None for what the state keeps. Raises HostError: STORAGE.
    """

    before: object
    after: object
    apply: Callable[[], None]
    store: Callable[[], None] | None = None
    finish: Callable[[], None] | None = None
