"""What the stub of one domain has used, over all its runs, and what its exchanges were like since somebody asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from federation.core.processor_share import ProcessorShare, UnaskedRequests
from protofly.limits import STUB_UNASKED_PER_SECOND
from protofly.log_linear import bucket_of, pairs_of

SHARE_REMEDY: Final = "if it works for your users, raise `grant.cpu_share` of its peer entry"

Pairs = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class StubMeters:
    """Counts since the node first needed the domain, and two histograms that `take_histograms` empties.

    `processor` and `unasked` are what its exchanges are paid from.
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
    unasked: UnaskedRequests = field(default_factory=UnaskedRequests)
    _is_short: bool = False
    _exchange_us: Counter[int] = field(default_factory=Counter)
    _exchange_fuel: Counter[int] = field(default_factory=Counter)

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait before the next exchange: the longer of the two debts, processor and unrequested actions."""
        return max(self.processor.pause_seconds, self.unasked.pause_seconds)

    def take(self, cpu_us: int, unasked: int, now: float) -> bool:
        """Pay for one exchange: what it took in its worker, and its requests beyond those for what it heard.

        Returns:
            True when something was used up by it, or there is enough of everything again.
        """
        self.processor.take_us(cpu_us, now)
        self.unasked.take(unasked, now)
        was_short, self._is_short = self._is_short, self.is_used_up(now)
        return self._is_short != was_short

    def is_used_up(self, now: float) -> bool:
        """True while there is too little of what exchanges are paid from; `now` in seconds of a monotonic clock."""
        return self.processor.is_used_up(now) or self.unasked.is_used_up(now)

    def shortage(self, now: float) -> str:
        """Name the share that the stub has used up, and the remedy, for operators; "" while it has enough of both."""
        if self.processor.is_used_up(now):
            share = f"{self.processor.share:.0%} of a core"
            return f"its stub has used up its share of the processor, {share}, and has to wait; {SHARE_REMEDY}"
        if self.unasked.is_used_up(now):
            most = f"{STUB_UNASKED_PER_SECOND:.0f} a second"
            return f"its stub asks the node for more than {most} beyond what it hears, and has to wait; ask its author"
        return ""

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
