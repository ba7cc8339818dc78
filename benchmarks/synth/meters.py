"""What the stubs used since the last summary, as the nodes that host them would have metered it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from protofly.log_linear import bucket_of, pairs_of
from protofly.records import StubEvent


@dataclass(slots=True)
class Meter:
    """One stub of one peer on one node. Every message is an exchange of its own here."""

    version: str
    since_us: int
    calls: int = 0
    traps: int = 0
    fuel: int = 0
    _exchange_us: Counter[int] = field(default_factory=Counter)
    _exchange_fuel: Counter[int] = field(default_factory=Counter)

    def count(self, stub_us: int, fuel: int) -> None:
        """One exchange."""
        self.calls += 1
        self.fuel += fuel
        self._exchange_us[bucket_of(stub_us)] += 1
        self._exchange_fuel[bucket_of(fuel)] += 1

    def sum_up(self, domain: str, now_us: int) -> StubEvent | None:
        """The summary that is due, None without traffic."""
        if not self._exchange_us:
            return None
        summary = StubEvent(
            ts_us=now_us,
            domain=domain,
            event="summary",
            stub_ver=self.version,
            duration_us=now_us - self.since_us,
            calls=self.calls,
            messages=self.calls,
            traps=self.traps,
            fuel=self.fuel,
            exchange_us=pairs_of(self._exchange_us),
            exchange_fuel=pairs_of(self._exchange_fuel),
        )
        self._exchange_us.clear()
        self._exchange_fuel.clear()
        self.since_us = now_us
        return summary
