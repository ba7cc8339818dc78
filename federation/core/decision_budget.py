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

    Args:
        per_minute: What one group may have in a minute.
        per_source: What one source may have of that.

    Attributes:
        left_out: Decisions that were not recorded, since the start.
    """

    def __init__(self, per_minute: int = DECISIONS_PER_MINUTE, per_source: int = DECISIONS_PER_SOURCE) -> None:
        self._per_minute, self._per_source = per_minute, per_source
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
        is_full = self._of_group[group] >= self._per_minute
        if is_full or sources[source] >= self._per_source:
            self.left_out += 1
            return None
        self._of_group[group] += 1
        sources[source] += 1
        since, self._recorded_left_out = self.left_out - self._recorded_left_out, self.left_out
        return since
