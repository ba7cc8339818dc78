"""The account of a conversation: what each participant must receive, and what arrived.

Theory of operation: a *flow* is everything one party says to one other on one subject. The speaker enters each
message as due, in order, with
the value it put into it; the receiver enters what arrived. One arrival is compared with the oldest message still due
in its flow:

* equal number and equal value: delivered;
* a number that is due later: what it overtook is no longer in order (`reordered`), it is delivered all the same when
  it comes;
* a number that was already taken: `duplicated`; a number that was never due: `unexpected`; another value: `differing`.

What is due and never comes is `lost`. Pure: no clock, no I/O. Times are nanoseconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Flow:
    """Messages from one speaker to one receiver about one subject."""

    speaker: str
    receiver: str
    subject: str
    crosses: bool
    due: dict[int, tuple[object, int]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    latencies_ns: list[int] = field(default_factory=list)
    sent: int = 0
    duplicated: int = 0
    reordered: int = 0
    differing: int = 0
    unexpected: int = 0

    def enter_due(self, number: int, value: object, at_ns: int) -> None:
        """The speaker sends `number` with `value` now."""
        self.due[number] = (value, at_ns)
        self.sent += 1

    def enter_arrival(self, number: int, value: object, at_ns: int) -> None:
        """The receiver got `number` with `value` now."""
        if number in self.taken:
            self.duplicated += 1
            return
        entry = self.due.get(number)
        if entry is None:
            self.unexpected += 1
            return
        if next(iter(self.due)) != number:
            self.reordered += 1
        expected, sent_ns = entry
        del self.due[number]
        self.taken.add(number)
        if value != expected:
            self.differing += 1
        self.latencies_ns.append(at_ns - sent_ns)

    @property
    def delivered(self) -> int:
        """Messages that arrived, each counted once."""
        return len(self.taken)

    @property
    def lost(self) -> int:
        """Messages still due."""
        return len(self.due)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over flows. `sent` counts one copy for each receiver."""

    sent: int
    delivered: int
    lost: int
    duplicated: int
    reordered: int
    differing: int
    unexpected: int

    @property
    def is_faultless(self) -> bool:
        """True if everything that was sent arrived once, equal, and in order, and nothing else did."""
        return not (self.lost or self.duplicated or self.reordered or self.differing or self.unexpected)


class Ledger:
    """All flows of one conversation."""

    def __init__(self) -> None:
        self._flows: dict[tuple[str, str, str], Flow] = {}

    def flow(self, speaker: str, receiver: str, subject: str, *, crosses: bool = False) -> Flow:
        """The flow from `speaker` to `receiver` about `subject`; `crosses`: the two are in different domains."""
        key = (speaker, receiver, subject)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow(speaker, receiver, subject, crosses)
        return flow

    @property
    def flows(self) -> tuple[Flow, ...]:
        """All flows, in the order in which they began."""
        return tuple(self._flows.values())

    def due(self, subject: str) -> int:
        """Messages about `subject` that are still due."""
        return sum(len(flow.due) for flow in self._flows.values() if flow.subject == subject)

    def totals(self) -> Totals:
        """Sums over all flows."""

        def total(measure: Callable[[Flow], int]) -> int:
            return sum(map(measure, self._flows.values()))

        return Totals(
            sent=total(lambda flow: flow.sent),
            delivered=total(lambda flow: flow.delivered),
            lost=total(lambda flow: flow.lost),
            duplicated=total(lambda flow: flow.duplicated),
            reordered=total(lambda flow: flow.reordered),
            differing=total(lambda flow: flow.differing),
            unexpected=total(lambda flow: flow.unexpected),
        )

    def crossing_latencies_ns(self) -> list[int]:
        """One-way times of everything that went from one domain to the other."""
        return [latency for flow in self._flows.values() if flow.crosses for latency in flow.latencies_ns]
