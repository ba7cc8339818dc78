"""A change of a running node that has passed every check, and is not made yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Plan:
    """One change.

    Attributes:
        before: What is so now.
        after: What will be so.
        apply: Makes it so; waits for nothing.
        finish: Makes the rest so, when what `apply` did is durable and has been notified; None: nothing is left.
        store: Makes it durable, before it is applied: blocks. None for what the state keeps. Raises HostError: STORAGE.
        wait: Waits for what comes of a change that is made and recorded; the answer has it. Raises HostError.
        answer: What only the one who asks gets to see: no record has it, and no dry run.
    """

    before: object
    after: object
    apply: Callable[[], None]
    store: Callable[[], None] | None = None
    finish: Callable[[], None] | None = None
    wait: Callable[[], Awaitable[Mapping[str, object]]] | None = None
    answer: Mapping[str, str] = field(default_factory=dict)
