"""Which shapes are measured with which variants, how often and how long; and how runs become rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import Struct

from benchmarks.sides import Load, Run
from interop.figures import median

TRAPEZOID: Final = "trapezoid"
NO_SANDBOX: Final = "without sandbox"
RELAYS: Final = "plain relays"
VERTX_PEER: Final = "vertx_peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The bar that a figure has to reach."""

    figure: str
    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """True if `value` reaches the bar."""
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
    "to a plain domain": (Bar(figure="rate_ratio", limit=0.7, at_least=True),),
    "many": (Bar(figure="p99_ms", limit=6.0),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of load.

    `bars` are for `judged`; `variants` begin with the one that the others are compared with.
    """

    name: str
    body_bytes: int
    variants: tuple[str, ...]
    rounds: int = 1
    tls: bool = False
    bars: tuple[Bar, ...] = ()
    judged: str = ""

    @property
    def is_paced(self) -> bool:
        """True if messages leave at a rate that is far below what can be carried: then latencies mean something."""
        return False

    @property
    def reference(self) -> str:
        """The variant whose cost the others are compared with."""
        return self.variants[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic(Shape):
    """From one domain to another. `seconds` is the length of a paced run; floods have a `count` for each variant."""

    width: int
    rate: float = 0.0
    seconds: float = 0.0
    count: int = 0
    relay_count: int = 0
    variants: tuple[str, ...] = (TRAPEZOID, NO_SANDBOX, RELAYS)
    judged: str = TRAPEZOID

    @property
    def is_paced(self) -> bool:
        """See `Shape.is_paced`."""
        return self.rate > 0

    def load(self, variant: str) -> Load:
        """Load of one run through `variant`: slow ones get less, so that all take about equally long."""
        flood = self.relay_count if variant == RELAYS else self.count
        return Load(
            count=int(self.rate * self.seconds) if self.rate else flood, rate=self.rate, body_bytes=self.body_bytes
        )


def shapes(*, quick: bool) -> tuple[Traffic, ...]:
    """The whole plan; quick runs are shorter and fewer, and show the same rows but those for 1 kB."""
    count, relay_count = (16_000, 5_000) if quick else (64_000, 20_000)
    rounds = 2 if quick else 5
    seconds = 1.5 if quick else 6.0
    flood = Traffic(
        name="flood", width=1, body_bytes=200, rounds=rounds, count=count, relay_count=relay_count, bars=BARS["flood"]
    )
    paced = Traffic(
        name="500/s",
        width=1,
        body_bytes=200,
        rate=500.0,
        seconds=seconds,
        rounds=1 if quick else 3,
        bars=BARS["500/s"],
    )
    many = Traffic(
        name="many",
        width=100,
        body_bytes=300,
        rate=4000.0,
        seconds=seconds,
        rounds=1 if quick else 3,
        bars=BARS["many"],
    )
    plain = replace(
        flood,
        name="to a plain domain",
        variants=(TRAPEZOID, VERTX_PEER),
        judged=VERTX_PEER,
        bars=BARS["to a plain domain"],
    )
    larger = [] if quick else [replace(flood, body_bytes=1000, rounds=3, bars=())]
    encrypted = (TRAPEZOID,) if quick else (TRAPEZOID, RELAYS)
    return (
        flood,
        *larger,
        paced,
        many,
        plain,
        replace(flood, tls=True, variants=encrypted, bars=()),
        replace(paced, tls=True, variants=encrypted, bars=(), rounds=1),
    )


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the table: medians over rounds, losses summed.

    `cpu_ratio` is the cost per message over that of the shape's reference, `p99_ratio` the same of the wait,
    `rate_ratio` of messages per second;
    `session_kib` is for rows about sessions.
    """

    name: str
    body_bytes: int
    tls: bool
    messages_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_us_per_message: float
    lost: int
    longest_ms: float | None = None
    cpu_ratio: float | None = None
    p99_ratio: float | None = None
    rate_ratio: float | None = None
    session_kib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All runs of one variant in one shape."""

    variant: str
    shape: Shape
    runs: tuple[Run, ...]
    reference_cpu_us: float | None = None
    reference_p99_ms: float | None = None
    reference_rate: float | None = None
    session_kib: float | None = None

    @property
    def cpu_us_per_message(self) -> float:
        """The median."""
        return median_of([run.cpu_us_per_message for run in self.runs]) or 0.0

    @property
    def p99_ms(self) -> float | None:
        """The median."""
        return median_of([run.p99_ms for run in self.runs])

    @property
    def row(self) -> Row:
        """The medians."""
        p99 = self.p99_ms
        ratio = self.cpu_us_per_message / self.reference_cpu_us if self.reference_cpu_us else None
        rate = median_of([run.messages_per_second for run in self.runs]) or 0.0
        return Row(
            name=f"{self.variant}, {self.shape.name}",
            body_bytes=self.shape.body_bytes,
            tls=self.shape.tls,
            messages_per_second=rate,
            p50_ms=median_of([run.p50_ms for run in self.runs]),
            p99_ms=p99,
            longest_ms=max((run.longest_ms for run in self.runs if run.longest_ms is not None), default=None),
            cpu_us_per_message=self.cpu_us_per_message,
            lost=sum(run.lost for run in self.runs),
            cpu_ratio=None if ratio is None else round(ratio, 2),
            p99_ratio=round(p99 / self.reference_p99_ms, 2) if p99 and self.reference_p99_ms else None,
            rate_ratio=round(rate / self.reference_rate, 2) if self.reference_rate else None,
            session_kib=self.session_kib,
        )

    @property
    def is_faultless(self) -> bool:
        """True if every run was faultless."""
        return all(run.is_faultless for run in self.runs)

    @property
    def foreign_cores(self) -> float:
        """The busiest moment of others: above 0.25 the row is disturbed."""
        return max(run.foreign_cores for run in self.runs)

    @property
    def missed_bars(self) -> tuple[str, ...]:
        """Bars of the shape that this row misses, if they are for this variant."""
        if self.variant != self.shape.judged:
            return ()
        row = self.row
        return tuple(bar.text for bar in self.shape.bars if not bar.holds(getattr(row, bar.figure) or 0.0))


def compared(measured: Sequence[Measured]) -> list[Measured]:
    """The same, each with what the reference of their shape costs, and how long one waits with it."""
    costs = {one.variant: one.cpu_us_per_message for one in measured}
    waits = {one.variant: one.p99_ms for one in measured}
    rates = {one.variant: one.row.messages_per_second for one in measured}
    return [
        replace(
            one,
            reference_cpu_us=costs.get(one.shape.reference),
            reference_p99_ms=waits.get(one.shape.reference) if one.shape.is_paced else None,
            reference_rate=None if one.shape.is_paced else rates.get(one.shape.reference),
        )
        for one in measured
    ]


def median_of(samples: Sequence[float | None]) -> float | None:
    """Middle of the samples that there are."""
    return median([sample for sample in samples if sample is not None])
