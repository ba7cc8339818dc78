"""What the stub of one domain has used, over all its runs, and what its exchanges were like since somebody asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from federation.core.processor_share import ProcessorShare
from protofly.log_linear import bucket_of, pairs_of

Pairs = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class StubMeters:
    """Counts since the node first needed the domain, and two histograms that `take_histograms` empties.

    `processor` is what its exchanges are paid from.
    """

    calls: int = 0
    messages: int = 0
    traps: int = 0
    fuel: int = 0
    cpu_us: int = 0
    memory_bytes: int = 0
    log_lines_dropped: int = 0
    paused_us: int = 0
    processor: ProcessorShare = field(default_factory=ProcessorShare)
    _exchange_us: Counter[int] = field(default_factory=Counter)
    _exchange_fuel: Counter[int] = field(default_factory=Counter)

    def exchanged(self, *, messages: int, elapsed_us: int, fuel: int, cpu_us: int, memory_bytes: int) -> None:
        """One exchange with the sandbox is over; so many of its events were messages for the far end."""
        self.calls += 1
        self.messages += messages
        self.fuel += fuel
        self.cpu_us += cpu_us
        self.memory_bytes = max(self.memory_bytes, memory_bytes)
        self._exchange_us[bucket_of(elapsed_us)] += 1
        self._exchange_fuel[bucket_of(fuel)] += 1

    def totals(self) -> dict[str, int]:
        """The counts, for operators. Memory is the most that it had, in bytes."""
        return {
            "calls": self.calls,
            "messages": self.messages,
            "traps": self.traps,
            "fuel": self.fuel,
            "cpu_us": self.cpu_us,
            "memory_bytes": self.memory_bytes,
            "log_lines_dropped": self.log_lines_dropped,
            "paused_us": self.paused_us,
        }

    @property
    def has_news(self) -> bool:
        """True when there were exchanges since the histograms were taken."""
        return bool(self._exchange_us)

    def take_histograms(self) -> tuple[Pairs | None, Pairs | None]:
        """Microseconds and fuel of the exchanges since the last time, as (bucket, count); None for none."""
        taken = pairs_of(self._exchange_us), pairs_of(self._exchange_fuel)
        self._exchange_us.clear()
        self._exchange_fuel.clear()
        return taken
