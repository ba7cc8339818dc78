"""What a soak must not have seen, judged from what was noted: promises of the traffic, memory, lines of the log.

Theory of operation. Traffic keeps an `Account`: what was acknowledged, and what became of it. Memory is a series of
`(seconds, bytes)`; it has a plateau when its level stops growing, which is judged by the slope of the minima of equal
slices: a minimum does not see bursts, and a leak moves every minimum. A line of the log with the level ERROR must fall
into the time of a fault that explains such a line.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

import trio

MIB = 1 << 20
WARM_UP_SHARE = 1 / 3
SLICES = 10
KILL_NODE = "kill node"
REPEATED_SECONDS = 10.0
"""So long after its return, a node that was killed may repeat what it delivered last (docs/security.md)."""
AFTERMATH_SECONDS = 45.0
"""A fault explains errors until so long after its end: redials, circuit breakers and time-outs take that long."""


@dataclass
class Account:
    """What the parties of a soak sent, were promised and got."""

    answers: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    unanswered: list[str] = field(default_factory=list)
    second_answers: list[tuple[float, str, str]] = field(default_factory=list)  # trio's seconds, domain, answer
    acknowledged: dict[str, str] = field(default_factory=dict)  # request id -> sender of a parked action
    ends: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    registered: dict[str, str] = field(default_factory=dict)  # address -> domain
    missing: list[str] = field(default_factory=list)  # registered, and not found at the end
    order: list[str] = field(default_factory=list)  # flows of one domain that lost, doubled or reordered
    heard: Counter[str] = field(default_factory=Counter)
    moved: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    hopeless: set[str] = field(default_factory=set)  # flows to partners that can grant nothing

    def answered(self, flow: str, code: int, reason: str) -> None:
        """A request of `flow` got its final answer."""
        self.answers[flow][f"{code} {reason}".strip()] += 1

    def ended(self, request_id: str, status: str) -> None:
        """The sender of a parked action was notified of its end; `status` is final."""
        self.ends[request_id][status] += 1
        self.moved.unpark_all()

    async def wait_all_ended(self) -> None:
        """Wait until every acknowledged action has its end."""
        while self.open_actions():
            await self.moved.park()

    def open_actions(self) -> set[str]:
        """Parked actions that were acknowledged and have no end yet."""
        return self.acknowledged.keys() - self.ends.keys()

    def findings(self) -> list[str]:
        """Promises that were broken, one line each."""
        several = [one for one, words in self.ends.items() if len(words) > 1]
        lists = {
            "requests without any answer": self.unanswered,
            "acknowledged actions without an end": sorted(self.open_actions()),
            "actions with two different ends": several,
            "acknowledged registrations that are gone": self.missing,
            "flows inside one domain that are not whole and in order": self.order,
        }
        found = [f"{len(items)} {what}: {', '.join(items[:3])}" for what, items in lists.items() if items]
        idle = [
            flow
            for flow, codes in self.answers.items()
            if flow not in self.hopeless and not any(code.startswith("2") for code in codes)
        ]
        return found + [f"no request of {flow} was ever granted" for flow in idle]


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """What a series of memory readings shows. Sizes in bytes, the slope in bytes per hour."""

    start: int
    peak: int
    end: int
    slope_per_hour: float
    has_plateau: bool


def judge_memory(samples: Sequence[tuple[float, int]], *, slope_limit: float = 24 * MIB) -> MemoryVerdict:
    """Decide whether memory has stopped growing.

    Args:
        samples: `(seconds, bytes)` in order of time, at least one for each slice after the warm-up.
        slope_limit: Growth in bytes per hour that still counts as a plateau.

    Returns:
        The Theil-Sen slope over the minima of ten equal slices of what follows the warm-up, the first third.
    """
    first, last = samples[0][0], samples[-1][0]
    begin = first + (last - first) * WARM_UP_SHARE
    width = (last - begin) / SLICES
    slices: list[tuple[float, int]] = []
    for number in range(SLICES):
        low = begin + number * width
        inside = [size for at, size in samples if low <= at <= low + width]
        if inside:
            slices.append((low, min(inside)))
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(slices, 2)]
    slope = median(slopes) * 3600 if slopes else 0.0
    peak = max(size for _, size in samples)
    return MemoryVerdict(samples[0][1], peak, samples[-1][1], slope, slope <= slope_limit)


@dataclass(slots=True)
class FaultWindow:
    """A fault while it lasts. `ended` is None as long as it does; `explains` matches the errors that it may cause."""

    name: str
    node: str
    explains: str
    began: float
    ended: float | None = None

    def covers(self, node: str, at: float, line: str) -> bool:
        """Whether an ERROR of `node` at this time is a consequence of this fault."""
        in_time = self.began <= at and (self.ended is None or at <= self.ended + AFTERMATH_SECONDS)
        return in_time and self.node in (node, "") and re.search(self.explains, line) is not None


def unexplained(lines: Sequence[tuple[str, float, str]], windows: Sequence[FaultWindow]) -> list[str]:
    """The ERROR lines, `(node, seconds, line)`, that no fault explains."""
    return [
        f"{node} at {at:.0f} s: {line}"
        for node, at, line in lines
        if not any(window.covers(node, at, line) for window in windows)
    ]


def unexplained_answers(
    answers: Sequence[tuple[float, str, str]], windows: Sequence[FaultWindow], *, killed: str
) -> list[str]:
    """The second final answers, `(seconds, domain of the asker, answer)`, that no kill of node `killed` explains."""
    kills = [window for window in windows if window.name == KILL_NODE]
    return [
        f"{domain} at {at:.0f} s: {answer}"
        for at, domain, answer in answers
        if domain != killed or not any(kill.began <= at <= (kill.ended or at) + REPEATED_SECONDS for kill in kills)
    ]
