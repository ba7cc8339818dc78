"""How many lines of one kind may stand in the log in a minute: nobody outside fills it by doing one thing often."""

from __future__ import annotations

import time
from collections import Counter


class LogAllowance:
    """Counts lines by kind; the kinds are few, and ours."""

    def __init__(self, lines_per_minute: int) -> None:
        self._most = lines_per_minute
        self._lines: Counter[str] = Counter()
        self._minute = 0

    def takes(self, kind: str) -> bool:
        """Whether one more line of that kind may be written in this minute; then it counts."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._lines.clear()
            self._minute = minute
        self._lines[kind] += 1
        return self._lines[kind] <= self._most
