"""Who goes next where order matters: in a lane one goes at a time, those that share it together.

Readers share, writers do not; both go in the order in which they came, so that nobody waits for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Lane:
    """`going` are all sharers, or one that does not share; `waiting` says of each whether it shares."""

    going: dict[int, bool] = field(default_factory=dict)
    waiting: OrderedDict[int, bool] = field(default_factory=OrderedDict)

    def may_go(self, is_sharing: bool) -> bool:
        return not self.going or (is_sharing and all(self.going.values()))


class Lanes:
    """Lanes by name; one exists as long as somebody is in it."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def enter(self, name: str, number: int, *, is_sharing: bool) -> bool:
        """Enter a lane; whether `number` may go now. Otherwise a `leave` says when."""
        lane = self._lanes.setdefault(name, _Lane())
        if lane.waiting or not lane.may_go(is_sharing):
            lane.waiting[number] = is_sharing
            return False
        lane.going[number] = is_sharing
        return True

    def follow(self, name: str, number: int, by: int) -> bool:
        """Let `by` go in the place of `number`; False when that one is not going."""
        lane = self._lanes.get(name)
        if lane is None or number not in lane.going:
            return False
        lane.going[by] = lane.going.pop(number)
        return True

    def leave(self, name: str, number: int) -> list[int]:
        """Leave a lane, going or waiting; return who may go now."""
        lane = self._lanes.get(name)
        if lane is None:
            return []
        lane.going.pop(number, None)
        lane.waiting.pop(number, None)
        started: list[int] = []
        while lane.waiting:
            first, is_sharing = next(iter(lane.waiting.items()))
            if not lane.may_go(is_sharing):
                break
            del lane.waiting[first]
            lane.going[first] = is_sharing
            started.append(first)
        if not lane.going:
            del self._lanes[name]
        return started
