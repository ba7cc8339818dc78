"""Which shapes are measured with which variants, how often and how long; and how runs become rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from benchmarks.sides import Load, Run
from interop.figures import median

TRAPEZOID: Final = "trapezoid"
NO_SANDBOX: Final = "without sandbox"
RELAYS: Final = "plain relays"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of load. `seconds` is the length of a paced run; floods have a `count` for each variant instead."""

    name: str
    width: int
    body_bytes: int
    rate: float = 0.0
    seconds: float = 0.0
    count: int = 0
    relay_count: int = 0
    rounds: int = 1
    tls: bool = False
    variants: tuple[str, ...] = (TRAPEZOID, NO_SANDBOX, RELAYS)

    def load(self, variant: str) -> Load:
        """What one run sends through `variant`: slow ones get fewer, so that all take about equally long."""
        flood = self.relay_count if variant == RELAYS else self.count
        return Load(
            count=int(self.rate * self.seconds) if self.rate else flood, rate=self.rate, body_bytes=self.body_bytes
        )


def shapes(*, quick: bool) -> tuple[Shape, ...]:
    """The whole plan; quick runs are shorter and fewer, and show the same rows but those for 1 kB."""
    count, relay_count = (16_000, 5_000) if quick else (64_000, 20_000)
    rounds = 2 if quick else 5
    seconds = 1.5 if quick else 6.0
    plain = [
        Shape(name="flood", width=1, body_bytes=200, rounds=rounds, count=count, relay_count=relay_count),
        Shape(name="500/s", width=1, body_bytes=200, rate=500.0, seconds=seconds, rounds=1 if quick else 3),
        Shape(name="many", width=100, body_bytes=300, rate=4000.0, seconds=seconds, rounds=1 if quick else 3),
    ]
    if not quick:
        plain.insert(1, Shape(name="flood", width=1, body_bytes=1000, rounds=3, count=count, relay_count=relay_count))
    encrypted = (TRAPEZOID,) if quick else (TRAPEZOID, RELAYS)
    return (
        *plain,
        Shape(
            name="flood",
            width=1,
            body_bytes=200,
            rounds=rounds,
            tls=True,
            variants=encrypted,
            count=count,
            relay_count=relay_count,
        ),
        Shape(name="500/s", width=1, body_bytes=200, rate=500.0, seconds=seconds, tls=True, variants=encrypted),
    )


class Row(Struct, frozen=True, kw_only=True):
    """One line of the table: medians over rounds, losses summed."""

    name: str
    body_bytes: int
    tls: bool
    messages_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_us_per_message: float
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All runs of one variant in one shape."""

    variant: str
    shape: Shape
    runs: tuple[Run, ...]

    @property
    def row(self) -> Row:
        """The medians."""
        return Row(
            name=f"{self.variant}, {self.shape.name}",
            body_bytes=self.shape.body_bytes,
            tls=self.shape.tls,
            messages_per_second=_median([run.messages_per_second for run in self.runs]) or 0.0,
            p50_ms=_median([run.p50_ms for run in self.runs]),
            p99_ms=_median([run.p99_ms for run in self.runs]),
            cpu_us_per_message=_median([run.cpu_us_per_message for run in self.runs]) or 0.0,
            lost=sum(run.lost for run in self.runs),
        )

    @property
    def is_faultless(self) -> bool:
        """Whether every run was."""
        return all(run.is_faultless for run in self.runs)

    @property
    def foreign_cores(self) -> float:
        """The busiest moment of others: above 0.25 the row is disturbed."""
        return max(run.foreign_cores for run in self.runs)

    @property
    def missed_bars(self) -> tuple[str, ...]:
        """Bars that this row misses; only the whole trapezoid without TLS has any."""
        if self.variant != TRAPEZOID or self.shape.tls or self.shape.body_bytes == 1000:
            return ()
        row = self.row
        figures = {
            "messages_per_second": row.messages_per_second,
            "p50_ms": row.p50_ms or 0.0,
            "p99_ms": row.p99_ms or 0.0,
            "cpu_us_per_message": row.cpu_us_per_message,
        }
        bars = BARS.get(self.shape.name, ())
        return tuple(bar.text for bar in bars if not bar.holds(figures[bar.figure]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a figure has to reach."""

    figure: str
    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Whether `value` reaches it."""
        return value >= self.limit if self.at_least else value <= self.limit

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.figure} {'≥' if self.at_least else '≤'} {self.limit:g}"


BARS: Final[dict[str, tuple[Bar, ...]]] = {
    "flood": (
        Bar(figure="messages_per_second", limit=40_000, at_least=True),
        Bar(figure="cpu_us_per_message", limit=40.0),
    ),
    "500/s": (Bar(figure="p50_ms", limit=1.5), Bar(figure="p99_ms", limit=5.0)),
    "many": (Bar(figure="p99_ms", limit=6.0),),
}


def _median(samples: Sequence[float | None]) -> float | None:
    return median([sample for sample in samples if sample is not None])
