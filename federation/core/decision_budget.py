"""How many decisions of the gates `local` and `peer` are recorded: what anybody can cause has a bound, and is counted.

Each minute so many of one source, and so many of one group of sources; a source that floods leaves room for the others,
and one group for the other groups. Pure: monotonic seconds are arguments.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from protofly.limits import DECISIONS_PER_MINUTE, DECISIONS_PER_SOURCE

_MINUTE_SECONDS = 60


class DecisionBudget:
    """The budget of one node.

    Attributes:
        left_out: Decisions that were not recorded, since the start.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._recorded_left_out = 0
        self._minute = -1
        self._of_group: Counter[str] = Counter()
        self._of_source: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def take(self, group: str, source: str, now: float) -> int | None:
        """Ask for one more record.

        Returns:
            How many decisions were left out since the last record; None when this one is to be left out as well.
        """
        minute = int(now // _MINUTE_SECONDS)
        if minute != self._minute:
            self._of_group.clear()
            self._of_source.clear()
            self._minute = minute
        sources = self._of_source[group]
        is_full = self._of_group[group] >= DECISIONS_PER_MINUTE
        if is_full or sources[source] >= DECISIONS_PER_SOURCE:
            self.left_out += 1
            return None
        self._of_group[group] += 1
        sources[source] += 1
        since, self._recorded_left_out = self.left_out - self._recorded_left_out, self.left_out
        return since
