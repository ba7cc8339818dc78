"""Kills the own process between two steps of a job, as a power cut would."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from typing import Any


class Moments:
    """Counts the moments before and after each step; dies at number `kill_at`, if it comes."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at = kill_at
        self.count = 0

    def stand_around(self, steps: Iterable[tuple[Any, str]]) -> None:
        """Have each of these functions, by owner and name, preceded and followed by a moment."""
        for owner, name in steps:
            setattr(owner, name, self._stepped(getattr(owner, name)))

    def _stepped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._pass()
            result = original(*args, **options)
            self._pass()
            return result

        return call

    def _pass(self) -> None:
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
